"""Memory of the program, and functions of it that streams call."""

from __future__ import annotations

import itertools
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
    return simulator


def test_bytes_of_the_program_are_copied_both_ways() -> None:
    data = np.arange(4, dtype=np.float32).tobytes()
    memory = value(acl.rt.malloc(16, 0))
    works(acl.rt.memcpy(memory, 16, acl.util.bytes_to_ptr(data), 16, H2D))
    result = bytes(16)
    works(acl.rt.memcpy(acl.util.bytes_to_ptr(result), 16, memory, 16, D2H))
    assert result == data


def test_a_view_has_its_own_address() -> None:
    array = np.arange(8, dtype=np.float32)
    assert acl.util.numpy_to_ptr(array[2:]) - acl.util.numpy_to_ptr(array) == 8
    address, whole = acl.util.numpy_contiguous_to_ptr(array[::2])
    assert address == whole.ctypes.data
    assert whole.tolist() == [0, 2, 4, 6]


def test_reading_past_an_object_gives_zeros_and_a_warning() -> None:
    memory, result = value(acl.rt.malloc(16, 0)), np.zeros(16, np.uint8)
    data = bytes([7] * 8)
    pointer = acl.util.bytes_to_ptr(data)
    with pytest.warns(UserWarning, match="ends 8 bytes behind"):
        works(acl.rt.memcpy(memory, 16, pointer, 16, H2D))
    works(acl.rt.memcpy(acl.util.numpy_to_ptr(result), 16, memory, 16, D2H))
    assert result.tolist() == [7] * 8 + [0] * 8
    assert acl.rt.memcpy(pointer, 16, memory, 16, D2H) == codes.RT_PARAM_INVALID  # writing there is not


def test_an_address_that_is_no_memory_is_refused() -> None:
    memory = value(acl.rt.malloc(16, 0))
    assert acl.rt.memcpy(memory, 16, 1 << 20, 16, H2D) == codes.RT_PARAM_INVALID
    assert "no memory of this process" in acl.get_recent_err_msg()


def test_callbacks_of_one_thread_come_one_after_the_other(run) -> None:
    """Each copies for longer than it takes the next to become due; the stream waits for those that block."""
    stream, host = value(acl.rt.create_stream()), value(acl.rt.malloc_host(1 << 24))
    memory, seen, over = value(acl.rt.malloc(1 << 24, 0)), [], []

    def reports(context: int) -> None:
        acl.rt.set_context(context)
        while not over:
            acl.rt.process_report(10)

    def copies(number: int) -> None:
        begin = run.clock_ns
        works(acl.rt.memcpy(host, 1 << 24, memory, 1 << 24, D2H))
        seen.append((number, begin, run.clock_ns))

    thread = value(acl.util.start_thread(reports, value(acl.rt.get_context())))
    works(acl.rt.subscribe_report(thread, stream))
    for number in range(3):
        works(acl.rt.launch_callback(copies, number, acl.ACL_CALLBACK_BLOCK, stream))
    works(acl.rt.synchronize_stream(stream))
    works(acl.rt.unsubscribe_report(thread, stream))
    over.append(True)
    works(acl.util.stop_thread(thread))
    assert [number for number, _, _ in seen] == [0, 1, 2]
    assert all(earlier[2] <= later[1] for earlier, later in itertools.pairwise(seen))
    assert run.clock_ns >= seen[-1][2]
