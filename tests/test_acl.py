"""Programs against the runtime's interface: values, times, codes, handles, callbacks, pools."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import cann_env.acl as acl
from cann_env.acl import codes

H2D, D2H, D2D = acl.ACL_MEMCPY_HOST_TO_DEVICE, acl.ACL_MEMCPY_DEVICE_TO_HOST, acl.ACL_MEMCPY_DEVICE_TO_DEVICE
SIZE = 1 << 20


def value(result: tuple[object, int]) -> object:
    """The value of a call that has to work."""
    *values, code = result
    assert code == acl.ACL_SUCCESS, acl.get_recent_err_msg()
    return values[0] if len(values) == 1 else tuple(values)


def works(code: int) -> None:
    assert code == acl.ACL_SUCCESS, acl.get_recent_err_msg()


@pytest.fixture(autouse=True)
def run():
    """A device that is ready."""
    simulator = acl.simulate("ascend910b2", devices=2)
    works(acl.init())
    works(acl.rt.set_device(0))
    acl.define_kernel(
        "double", reads=(0,), writes=(1,), dtype="float32", function=lambda a, out: np.multiply(a, 2, out=out)
    )
    acl.define_kernel("slow", writes=(0,), duration_ns=1_000_000, dtype="float32")
    return simulator


def function(name: str) -> int:
    return value(acl.rt.binary_get_function(value(acl.rt.binary_load_from_file("kernels.o")), name))


def pinned(values: np.ndarray) -> int:
    host = value(acl.rt.malloc_host(values.nbytes))
    acl.util.ptr_to_numpy(host, values.shape, str(values.dtype))[...] = values
    return host


def test_bytes_move_and_kernels_compute() -> None:
    x = np.arange(SIZE // 4, dtype=np.float32)
    host, stream = pinned(x), value(acl.rt.create_stream())
    a, b = (value(acl.rt.malloc(SIZE, acl.ACL_MEM_MALLOC_HUGE_FIRST)) for _ in range(2))
    works(acl.rt.memcpy_async(a, SIZE, host, SIZE, H2D, stream))
    works(acl.rt.launch_kernel(function("double"), 8, [a, b], None, stream))
    works(acl.rt.memcpy_async(host, SIZE, b, SIZE, D2H, stream))
    seen = acl.util.ptr_to_numpy(host, x.shape, "float32")
    assert np.array_equal(seen, x)  # nothing has happened yet, as far as the host knows
    works(acl.rt.synchronize_stream(stream))
    assert np.array_equal(seen, 2 * x)
    array = np.zeros_like(x)
    works(acl.rt.memcpy(acl.util.numpy_to_ptr(array), SIZE, b, SIZE, D2H))
    assert np.array_equal(array, 2 * x)


def test_times_are_those_of_the_engine(run) -> None:
    """::

    stream  --record-- slow (1 ms) --record--

    """
    stream = value(acl.rt.create_stream())
    memory = value(acl.rt.malloc(64, 0))
    slow = function("slow")
    first, last = (value(acl.rt.create_event_ex_with_flag(acl.ACL_EVENT_TIME_LINE)) for _ in range(2))
    works(acl.rt.record_event(first, stream))
    before = run.clock_ns
    works(acl.rt.launch_kernel(slow, 1, [memory], None, stream))
    works(acl.rt.record_event(last, stream))
    assert run.clock_ns - before == run.spec.host.launch_kernel_ns + run.spec.host.record_event_ns
    assert value(acl.rt.query_event(last)) == acl.ACL_EVENT_STATUS_NOT_READY
    assert acl.rt.event_elapsed_time(first, last)[1] == codes.RT_EVENT_TIMESTAMP_INVALID
    works(acl.rt.synchronize_event(last))
    elapsed = value(acl.rt.event_elapsed_time(first, last))
    assert elapsed == pytest.approx(1.0 + run.spec.host.launch_kernel_ns / 1e6, abs=1e-5)
    assert acl.rt.event_elapsed_time(last, first)[1] == codes.RT_EVENT_TIMESTAMP_REVERSAL
    ((device, epoch),) = run.schedules()
    assert device == 0
    assert epoch.schedule.makespan_ns == 1_000_000


def test_streams_overlap_and_events_order(run) -> None:
    one, other = (value(acl.rt.create_stream()) for _ in range(2))
    memory = [value(acl.rt.malloc(64, 0)) for _ in range(3)]
    slow, event = function("slow"), value(acl.rt.create_event_ex_with_flag(0))
    works(acl.rt.launch_kernel(slow, 1, [memory[0]], None, one))
    works(acl.rt.record_event(event, one))
    works(acl.rt.launch_kernel(slow, 1, [memory[1]], None, other))
    works(acl.rt.stream_wait_event(other, event))
    works(acl.rt.launch_kernel(slow, 1, [memory[2]], None, other))
    works(acl.rt.synchronize_device())
    a, b, c = run.log
    assert b.start_ns < a.finish_ns
    assert c.start_ns >= max(a.finish_ns, b.finish_ns)
    assert not acl.hazards()


def test_pageable_memory_makes_a_copy_wait(run) -> None:
    stream, memory = value(acl.rt.create_stream()), value(acl.rt.malloc(SIZE, 0))
    array = np.ones(SIZE, np.uint8)
    works(acl.rt.memcpy_async(memory, SIZE, acl.util.numpy_to_ptr(array), SIZE, H2D, stream))
    assert run.log[-1].ended
    works(acl.rt.memcpy_async(memory, SIZE, pinned(array), SIZE, H2D, stream))
    assert not run.log[-1].ended


REFUSED = {
    "no such device": (lambda: acl.rt.set_device(7), codes.RT_INVALID_DEVICE_ID),
    "no such stream": (lambda: acl.rt.synchronize_stream(99), codes.RT_PARAM_INVALID),
    "no such event": (lambda: acl.rt.record_event(99, 0), codes.RT_PARAM_INVALID),
    "priority": (lambda: acl.rt.create_stream_with_config(8, 0)[1], codes.RT_PARAM_INVALID),
    "size": (lambda: acl.rt.malloc(0, 0)[1], codes.RT_PARAM_INVALID),
    "policy": (lambda: acl.rt.malloc(64, 99)[1], codes.RT_PARAM_INVALID),
    "too much": (lambda: acl.rt.malloc(1 << 40, 0)[1], codes.RT_MEMORY_ALLOCATION),
    "not allocated": (lambda: acl.rt.free(0x1240_0000_0000), codes.RT_PARAM_INVALID),
    "no blocks": (lambda: acl.rt.launch_kernel(function("slow"), 0, [1], None, 0), codes.RT_PARAM_INVALID),
    "no callback thread": (
        lambda: acl.rt.launch_callback(print, None, 1, 0),
        codes.RT_STREAM_NO_CALLBACK_REGISTERED,
    ),
    "no context": (lambda: acl.rt.set_context(5), codes.RT_CONTEXT_NULL),
    "again": (acl.init, codes.REPEAT_INITIALIZE),
    "default stream": (lambda: acl.rt.destroy_stream(0), codes.RT_PARAM_INVALID),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_failed_call_has_its_code_and_changes_nothing(case: str, run) -> None:
    call, code = REFUSED[case]
    before = len(run.log), len(run.streams), len(run.memory.allocations), run.devices[0].used_bytes
    assert call() == code
    assert f"[{code}]" in acl.get_recent_err_msg()
    after = len(run.log), len(run.streams), len(run.memory.allocations), run.devices[0].used_bytes
    assert after == before


def test_a_stream_of_another_context_is_refused() -> None:
    stream = value(acl.rt.create_stream())
    value(acl.rt.create_context(0))
    assert acl.rt.synchronize_stream(stream) == codes.RT_STREAM_CONTEXT


def test_what_was_destroyed_says_where() -> None:
    stream = value(acl.rt.create_stream())
    works(acl.rt.destroy_stream(stream))
    assert acl.rt.destroy_stream(stream) == codes.RT_PARAM_INVALID
    assert "was destroyed at test_acl.py:" in acl.get_recent_err_msg()


def test_one_stream_more_than_there_are_is_refused(run) -> None:
    most = run.spec.limits.max_streams
    made = 0
    while acl.rt.create_stream()[1] == acl.ACL_SUCCESS:
        made += 1
    assert made == most - 1  # the default stream counts
    assert acl.rt.create_stream()[1] == codes.RT_RESOURCE_ALLOC_FAIL


def test_strict_raises() -> None:
    with acl.strict(), pytest.raises(acl.Refused, match=r"\[107000\] size is 0"):
        acl.rt.malloc(0, 0)
    assert acl.rt.malloc(0, 0)[1] == codes.RT_PARAM_INVALID


def test_a_thread_handles_callbacks() -> None:
    stop, got = threading.Event(), []

    def handle(timeout: int) -> None:
        while not stop.is_set():
            acl.rt.process_report(timeout)

    stream = value(acl.rt.create_stream())
    thread = value(acl.util.start_thread(handle, 100))
    works(acl.rt.subscribe_report(thread, stream))
    works(acl.rt.launch_callback(got.append, "one", acl.ACL_CALLBACK_BLOCK, stream))
    works(acl.rt.launch_callback(got.append, "two", acl.ACL_CALLBACK_NO_BLOCK, stream))
    assert got == []
    works(acl.rt.synchronize_stream(stream))
    assert got == ["one", "two"]
    stop.set()
    works(acl.rt.unsubscribe_report(thread, stream))
    works(acl.util.stop_thread(thread))


def test_a_pool_serves_again_what_came_back(run) -> None:
    stream = value(acl.rt.create_stream())
    pool = value(acl.rt.mem_pool_create())
    first = value(acl.rt.mem_pool_malloc_async(pool, 1000, stream))
    assert value(acl.rt.mem_pool_get_attr(pool, "used")) == 1024
    works(acl.rt.mem_pool_free_async(first, stream))
    second = value(acl.rt.mem_pool_malloc_async(pool, 900, stream))
    assert value(acl.rt.mem_pool_get_attr(pool, "reserved")) == 1024
    assert acl.rt.mem_pool_destroy(pool) == codes.RT_PARAM_INVALID
    works(acl.rt.mem_pool_free_async(second, stream))
    works(acl.rt.mem_pool_destroy(pool))
    assert run.devices[0].used_bytes == 0


def test_streams_that_wait_for_each_other_are_reported() -> None:
    """Each stream takes one notify and then waits for the other's."""
    one, other = (value(acl.rt.create_stream()) for _ in range(2))
    a, b = (value(acl.rt.create_notify(0)) for _ in range(2))
    memory = value(acl.rt.malloc(64, 0))
    for stream, waited, told in ((one, a, b), (other, b, a)):
        works(acl.rt.wait_and_reset_notify(waited, stream, 0))
        works(acl.rt.launch_kernel(function("slow"), 1, [memory], None, stream))
        works(acl.rt.record_notify(told, stream))
    assert acl.rt.synchronize_stream(one) == codes.RT_STREAM_SYNC_TIMEOUT
    assert {hazard.kind for hazard in acl.hazards()} >= {acl.HazardKind.DEADLOCK}
