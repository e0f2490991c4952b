"""``acl.util``: between Python objects and addresses; threads for callbacks."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from cann_env.acl import codes
from cann_env.acl.api import call, simulator, site
from cann_env.acl.codes import Refused
from cann_env.acl.managed import come_to_host
from cann_env.acl.memory import Space
from cann_env.acl.threads import Worker

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from cann_env.acl.memory import Range
    from cann_env.acl.simulator import Simulator

NPY_DTYPES = {
    0: np.bool_, 1: np.int8, 2: np.uint8, 3: np.int16, 4: np.uint16, 5: np.int32, 6: np.uint32, 7: np.int64,
    8: np.uint64, 9: np.int64, 10: np.uint64, 11: np.float32, 12: np.float64, 23: np.float16,
}  # fmt: skip
"""numpy's numbers of its types, as the binding takes them."""


def numpy_to_ptr(array: NDArray[Any]) -> int:
    """Address of a contiguous array, which the caller keeps alive. Gives no code, as in the binding."""
    run = simulator()
    with run.turn():
        if not isinstance(array, np.ndarray) or not array.flags.c_contiguous:
            raise TypeError("numpy_to_ptr takes a C-contiguous numpy array")
        return run.memory.pageable(array, site()).address if array.nbytes else int(array.ctypes.data)


numpy_contiguous_to_ptr = numpy_to_ptr


def bytes_to_ptr(data: bytes) -> int:
    """Address of the bytes of an object, which the caller keeps alive."""
    run = simulator()
    with run.turn():
        array = np.frombuffer(data, np.uint8)
        address = run.memory.pageable(array, site()).address
        run.memory.keep(address, data)
        return address


def ptr_to_numpy(ptr: int, shape: tuple[int, ...], dtype: int | type | str) -> NDArray[Any]:
    """An array that shows memory of the host (or of a device that shares it), as a dtype or its number."""
    run = simulator()
    with run.turn():
        wanted = np.dtype(NPY_DTYPES[dtype] if isinstance(dtype, int) else dtype)
        size = int(np.prod(shape, dtype=np.int64)) * wanted.itemsize
        memory = _readable(run, ptr, size)
        return memory.view().view(wanted).reshape(shape)


def ptr_to_bytes(ptr: int, size: int) -> bytes:
    """A copy of memory of the host (or of a device that shares it)."""
    run = simulator()
    with run.turn():
        return _readable(run, ptr, size).view().tobytes()


def _readable(run: Simulator, ptr: int, size: int) -> Range:
    memory = run.memory.host_range(ptr, size, "ptr")
    if memory.allocation.space is Space.DEVICE and not run.spec.memory.host_shares_dram:
        raise Refused(
            codes.RT_PARAM_INVALID,
            f"0x{ptr:x} is device memory, which a host cannot read; copy it to the host first",
        )
    run.settle()
    come_to_host(run, memory, site())
    run.touch_by_host(memory, writes=False, site=site(), what="read by the host")
    return memory


@call(1, initialised=False)
def start_thread(run: Simulator, function: Callable[[Any], Any], args: object) -> int:
    """Start a thread of the program that handles callbacks."""
    if not callable(function):
        raise Refused(codes.RT_PARAM_INVALID, f"function is {function!r}; pass something that can be called")
    worker = Worker(function, args)
    run.workers[worker.ident] = worker
    with run.guest(worker.ident):
        worker.begin()
        worker.settle()
    return worker.ident


@call(initialised=False)
def stop_thread(run: Simulator, thread_id: int) -> None:
    """End a thread; it sees timeouts from now on."""
    worker = run.workers.pop(thread_id, None)
    if worker is None:
        raise Refused(codes.RT_PARAM_INVALID, f"thread {thread_id!r} does not exist")
    with run.guest(thread_id):
        worker.stop()


def current_thread() -> int:
    """Id of this thread, as subscribe_report takes it."""
    return threading.get_ident()
