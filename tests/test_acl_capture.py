"""Graphs that are captured on streams and replayed: order, cost, values, and what a capture forbids."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import cann_env.acl as acl
from cann_env.acl import codes

H2D, D2H, FLOAT = acl.ACL_MEMCPY_HOST_TO_DEVICE, acl.ACL_MEMCPY_DEVICE_TO_HOST, 11


def value(result: tuple[Any, ...]) -> Any:
    """The value of a call that has to work."""
    *values, code = result
    assert code == acl.ACL_SUCCESS, acl.get_recent_err_msg()
    return values[0] if len(values) == 1 else tuple(values)


def works(code: int) -> None:
    assert code == acl.ACL_SUCCESS, acl.get_recent_err_msg()


@pytest.fixture(autouse=True)
def run():
    simulator = acl.simulate("ascend910b2")
    works(acl.init())
    works(acl.rt.set_device(0))
    acl.define_kernel("slow", writes=(0,), duration_ns=1_000_000, dtype="float32")
    acl.define_kernel("add", reads=(0,), writes=(0,), dtype="float32", function=lambda a: np.add(a, 1, out=a))
    acl.define_kernel(
        "double", reads=(0,), writes=(1,), dtype="float32", function=lambda a, b: np.multiply(a, 2, out=b)
    )
    return simulator


def function(name: str) -> int:
    return value(acl.rt.binary_get_function(value(acl.rt.binary_load_from_file("kernels.o")), name))


class Fork:
    """A capture on two streams::

    first    in -- add -----------.            .-- out
    second                         `-- double -'

    """

    def __init__(self) -> None:
        self.first, self.second = (value(acl.rt.create_stream()) for _ in range(2))
        self.forked, self.joined = (value(acl.rt.create_event_ex_with_flag(0)) for _ in range(2))
        self.a, self.b = (value(acl.rt.malloc(16, 0)) for _ in range(2))
        self.source, self.target = (value(acl.rt.malloc_host(16)) for _ in range(2))
        works(acl.mdl.ri_capture_begin(self.first, acl.ACL_MODEL_RI_CAPTURE_MODE_GLOBAL))
        works(acl.rt.memcpy_async(self.a, 16, self.source, 16, H2D, self.first))
        works(acl.rt.launch_kernel(function("add"), 1, [self.a], None, self.first))
        works(acl.rt.record_event(self.forked, self.first))
        works(acl.rt.stream_wait_event(self.second, self.forked))
        works(acl.rt.launch_kernel(function("double"), 1, [self.a, self.b], None, self.second))

    def join(self) -> None:
        works(acl.rt.record_event(self.joined, self.second))
        works(acl.rt.stream_wait_event(self.first, self.joined))
        works(acl.rt.memcpy_async(self.target, 16, self.b, 16, D2H, self.first))


def test_a_captured_graph_is_executed_again_and_again(run) -> None:
    fork = Fork()
    fork.join()
    assert run.log == []
    assert value(acl.mdl.ri_capture_get_info(fork.second))[0] == acl.ACL_MODEL_RI_CAPTURE_STATUS_ACTIVE
    graph = value(acl.mdl.ri_capture_end(fork.first))
    assert value(acl.mdl.ri_capture_get_info(fork.second)) == (acl.ACL_MODEL_RI_CAPTURE_STATUS_NONE, 0)
    for number in (1, 5):
        acl.util.ptr_to_numpy(fork.source, (4,), FLOAT)[...] = number
        before = run.clock_ns
        works(acl.mdl.ri_execute_async(graph, fork.first))
        assert run.clock_ns - before == run.spec.host.launch_kernel_ns
        works(acl.rt.synchronize_stream(fork.first))
        assert acl.util.ptr_to_numpy(fork.target, (4,), FLOAT).tolist() == [2 * (number + 1)] * 4
    assert acl.hazards() == []
    for copied, added, doubled, out in (run.log[:4], run.log[4:]):
        assert copied.finish_ns <= added.start_ns <= added.finish_ns <= doubled.start_ns
        assert doubled.finish_ns <= out.start_ns
        assert doubled.stream not in (fork.first, fork.second)  # a stream of the graph's own
    works(acl.mdl.ri_execute(graph))
    works(acl.mdl.ri_destroy(graph))
    assert acl.mdl.ri_execute(graph) == codes.RT_PARAM_INVALID


def _elsewhere(call: Any) -> int:
    """The code of a call made by another thread."""
    found: list[int] = []
    context = value(acl.rt.get_context())
    thread = threading.Thread(target=lambda: (acl.rt.set_context(context), found.append(call())))
    thread.start()
    thread.join()
    return found[0]


def _other_capture(fork: Fork) -> int:
    other = value(acl.rt.create_stream())
    works(acl.mdl.ri_capture_begin(other, 2))
    return acl.rt.stream_wait_event(other, fork.forked)


def _unrecorded(fork: Fork) -> int:
    return acl.rt.stream_wait_event(fork.first, value(acl.rt.create_event_ex_with_flag(0)))


CAPTURED = {
    "synchronised": (lambda f: acl.rt.synchronize_stream(f.first), codes.RT_CAPTURE_MODE_BLOCK_ASYNC),
    "asked": (lambda f: acl.rt.stream_query(f.second)[1], codes.RT_CAPTURE_MODE_BLOCK_ASYNC),
    "device": (lambda f: acl.rt.synchronize_device(), codes.RT_CAPTURE_MODE_BLOCK_ASYNC),
    "memcpy": (lambda f: acl.rt.memcpy(f.a, 16, f.source, 16, H2D), codes.RT_CAPTURE_MODE_BLOCK_ASYNC),
    "memset": (lambda f: acl.rt.memset(f.a, 16, 0, 16), codes.RT_CAPTURE_MODE_BLOCK_ASYNC),
    "memcpy elsewhere": (
        lambda f: _elsewhere(lambda: acl.rt.memcpy(f.a, 16, f.source, 16, H2D)),
        codes.RT_CAPTURE_MODE_BLOCK_ASYNC,
    ),
    "event": (lambda f: acl.rt.synchronize_event(f.forked), codes.RT_EVENT_CAPTURED),
    "event asked": (lambda f: acl.rt.query_event(f.forked)[1], codes.RT_EVENT_CAPTURED),
    "begun again": (lambda f: acl.mdl.ri_capture_begin(f.first, 0), codes.RT_STREAM_CAPTURED),
    "default stream": (lambda f: acl.mdl.ri_capture_begin(0, 0), codes.RT_STREAM_CAPTURE_IMPLICIT),
    "default joins": (lambda f: acl.rt.stream_wait_event(0, f.forked), codes.RT_STREAM_CAPTURE_IMPLICIT),
    "not joined": (lambda f: acl.mdl.ri_capture_end(f.first)[1], codes.RT_STREAM_UNJOINED),
    "wrong stream": (lambda f: acl.mdl.ri_capture_end(f.second)[1], codes.RT_STREAM_CAPTURE_UNMATCHED),
    "wrong thread": (
        lambda f: _elsewhere(lambda: acl.mdl.ri_capture_end(f.first)[1]),
        codes.RT_STREAM_CAPTURE_WRONG_THREAD,
    ),
    "not captured": (
        lambda f: acl.mdl.ri_capture_end(value(acl.rt.create_stream()))[1], codes.RT_STREAM_NOT_CAPTURED,
    ),
    "another capture": (_other_capture, codes.RT_STREAM_CAPTURE_CONFLICT),
    "nothing recorded": (_unrecorded, codes.RT_CAPTURE_DEPENDENCY),
    "destroyed": (lambda f: acl.rt.destroy_stream(f.first), codes.RT_STREAM_CAPTURED),
    "mode": (
        lambda f: acl.mdl.ri_capture_begin(value(acl.rt.create_stream()), 3), codes.RT_PARAM_INVALID,
    ),
    "executed": (
        lambda f: acl.mdl.ri_execute(value(acl.mdl.ri_capture_get_info(f.first))[1]), codes.RT_MODEL_CAPTURED,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CAPTURED)
def test_a_capture_forbids(case: str) -> None:
    call, code = CAPTURED[case]
    fork = Fork()
    assert call(fork) == code
    fork.join()  # the capture is as it was
    value(acl.mdl.ri_capture_end(fork.first))


def test_a_relaxed_capture_forbids_nothing_elsewhere() -> None:
    stream, memory = value(acl.rt.create_stream()), value(acl.rt.malloc(16, 0))
    source = value(acl.rt.malloc_host(16))
    works(acl.mdl.ri_capture_begin(stream, acl.ACL_MODEL_RI_CAPTURE_MODE_RELAXED))
    works(acl.rt.memcpy(memory, 16, source, 16, H2D))
    value(acl.mdl.ri_capture_end(stream))
    works(acl.mdl.ri_capture_begin(stream, acl.ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL))
    assert acl.rt.memcpy(memory, 16, source, 16, H2D) == codes.RT_CAPTURE_MODE_BLOCK_ASYNC
    assert _elsewhere(lambda: acl.rt.memcpy(memory, 16, source, 16, H2D)) == acl.ACL_SUCCESS
    assert value(acl.mdl.ri_capture_thread_exchange_mode(2)) == 0
    works(acl.rt.memcpy(memory, 16, source, 16, H2D))


def test_a_graph_that_runs_is_not_destroyed() -> None:
    stream, memory = value(acl.rt.create_stream()), value(acl.rt.malloc(16, 0))
    works(acl.mdl.ri_capture_begin(stream))
    works(acl.rt.launch_kernel(function("slow"), 1, [memory], None, stream))
    graph = value(acl.mdl.ri_capture_end(stream))
    works(acl.mdl.ri_execute_async(graph, stream))
    assert acl.mdl.ri_destroy(graph) == codes.RT_MODEL_RUNNING
    works(acl.rt.synchronize_stream(stream))
    works(acl.mdl.ri_destroy(graph))


@pytest.mark.parametrize("device", ["ascend310b1", "ascend910a"])
def test_chips_that_cannot_capture(device: str) -> None:
    acl.simulate(device)
    works(acl.init())
    works(acl.rt.set_device(0))
    stream = value(acl.rt.create_stream())
    assert acl.mdl.ri_capture_begin(stream, 0) == codes.RT_FEATURE_NOT_SUPPORT
