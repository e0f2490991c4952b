"""``acl.util``: between Python objects and addresses; threads for callbacks."""

from __future__ import annotations

import threading
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from cann_env.acl import codes
from cann_env.acl.api import call, simulator, site
from cann_env.acl.codes import Refused
from cann_env.acl.facts import helper
from cann_env.acl.state.managed import come_to_host
from cann_env.acl.state.memory import Space
from cann_env.acl.state.threads import Worker
from cann_env.acl.state.watched import watched

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from cann_env.acl.state.memory import Range
    from cann_env.acl.state.order import HostAccess
    from cann_env.acl.state.simulator import Simulator

NPY_DTYPES = {
    0: np.bool_, 1: np.int8, 2: np.uint8, 3: np.int16, 4: np.uint16, 5: np.int32, 6: np.uint32, 7: np.int64,
    8: np.uint64, 9: np.int64, 10: np.uint64, 11: np.float32, 12: np.float64, 23: np.float16,
}  # fmt: skip
"""numpy's numbers of its types, as the binding takes them."""


@helper(differs="Takes any array; one that is not contiguous brings a warning.")
def numpy_to_ptr(array: NDArray[Any]) -> int:
    """Address of an array's first element, which the caller keeps alive. Gives no code, as in the binding."""
    run = simulator()
    with run.turn():
        if not isinstance(array, np.ndarray):
            raise ValueError("numpy_to_ptr takes a numpy array")
        if not array.flags.c_contiguous:
            warnings.warn("the array is not contiguous; its bytes are not in its order", stacklevel=2)
            return int(array.ctypes.data)
        if array.nbytes:
            run.memory.pageable(array, site())
        return int(array.ctypes.data)


@helper()
def numpy_contiguous_to_ptr(array: NDArray[Any]) -> tuple[int, NDArray[Any]]:
    """Address of an array, or of a contiguous copy if it is not contiguous; and the array it is of."""
    if not isinstance(array, np.ndarray):
        raise ValueError("numpy_contiguous_to_ptr takes a numpy array")
    whole = np.ascontiguousarray(array)
    return numpy_to_ptr(whole), whole


@helper()
def bytes_to_ptr(data: bytes) -> int:
    """Address of the bytes of an object, which the caller keeps alive; copies to it change the object."""
    if not isinstance(data, bytes):
        raise ValueError("bytes_to_ptr takes bytes")
    run = simulator()
    with run.turn():
        return run.memory.lend(data, site()).address


@helper(
    differs="The array notices what numpy does with it, as an access of the host. Managed memory comes back "
    "to the host when it is touched."
)
def ptr_to_numpy(ptr: int, shape: tuple[int, ...], dtype: int | type | str) -> NDArray[Any]:
    """An array that shows memory of the host (or of a device that shares it), as a dtype or its number."""
    run = simulator()
    with run.turn():
        wanted = np.dtype(NPY_DTYPES[dtype] if isinstance(dtype, int) else dtype)
        size = int(np.prod(shape, dtype=np.int64)) * wanted.itemsize
        memory, supposed = _readable(run, ptr, size)
        return watched(run, memory, memory.view().view(wanted).reshape(shape), supposed)


@helper()
def ptr_to_bytes(ptr: int, size: int) -> bytes:
    """A copy of memory of the host (or of a device that shares it)."""
    run = simulator()
    with run.turn():
        return _readable(run, ptr, size)[0].view().tobytes()


def _readable(run: Simulator, ptr: int, size: int) -> tuple[Range, HostAccess]:
    memory = run.memory.host_range(ptr, size, "ptr")
    if memory.allocation.space is Space.DEVICE and not run.spec.memory.host_shares_dram:
        raise Refused(
            codes.RT_PARAM_INVALID,
            f"0x{ptr:x} is device memory, which a host cannot read; copy it to the host first",
        )
    run.settle()
    come_to_host(run, memory, site())
    supposed = run.touch_by_host(memory, writes=False, site=site(), what="the program", alone=True)
    return memory, supposed


@call(
    1, initialised=False, c_name="",
    differs="Runs only when it is handed a callback, never beside the program.",
)  # fmt: skip
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


@call(initialised=False, c_name="")
def stop_thread(run: Simulator, thread_id: int) -> None:
    """End a thread; it sees timeouts from now on."""
    worker = run.workers.pop(thread_id, None)
    if worker is None:
        raise Refused(codes.RT_PARAM_INVALID, f"thread {thread_id!r} does not exist")
    with run.guest(thread_id):
        worker.stop()
    run.minds.joined(thread_id)


@helper(differs="The binding has no such helper; its programs ask ctypes or threading.")
def current_thread() -> int:
    """Id of this thread, as subscribe_report takes it."""
    return threading.get_ident()
