"""Kernels from data, and lists of arguments that are made one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cann_env.acl import codes
from cann_env.acl.api import call, getter, site
from cann_env.acl.calls.arguments import Arguments, number_at
from cann_env.acl.calls.mdl_types import thing, whole
from cann_env.acl.calls.rt_kernel import Binary, Function
from cann_env.acl.codes import Refused

if TYPE_CHECKING:
    from cann_env.acl.state.simulator import Simulator


@call(1, failed=0)
def binary_load_from_data(run: Simulator, data: int, length: int, options: object = None) -> int:
    """Load kernels that lie in memory; those that were defined stand for what is in it."""
    del options
    run.memory.host_range(data, whole(length, "length", 1), "data")
    handle = run.new_handle()
    run.things[handle] = Binary("data")
    return handle


@getter()
def create_binary(run: Simulator, data: int, data_len: int) -> int:
    """A file of kernels in memory, to be loaded with :func:`binary_load`."""
    run.memory.host_range(data, whole(data_len, "data_len", 1), "data")
    handle = run.new_handle()
    run.things[handle] = Binary("data")
    return handle


@call()
def destroy_binary(run: Simulator, binary: int) -> None:
    """Forget a file of kernels in memory."""
    thing(run, binary, Binary, "binary")
    run.bury(binary, "binary", site())
    del run.things[binary]


@call(1, failed=0)
def binary_load(run: Simulator, binary: int) -> int:
    """Load a file of kernels in memory."""
    found = thing(run, binary, Binary, "binary")
    handle = run.new_handle()
    run.things[handle] = found
    return handle


@call(1, failed="")
def get_function_name(run: Simulator, func_handle: int, max_len: int = 1024) -> str:
    """Name of a kernel."""
    return str(thing(run, func_handle, Function, "function").model.name[:max_len])


@call(1, failed=0)
def kernel_args_init(run: Simulator, func_handle: int) -> int:
    """An empty list of arguments of a kernel."""
    thing(run, func_handle, Function, "function")
    handle = run.new_handle()
    run.things[handle] = Arguments(func_handle)
    return handle


@call(1, failed=0)
def kernel_args_append(run: Simulator, args_handle: int, param: int, param_size: int) -> int:
    """Append an argument, which lies in host memory; gives a handle by which it is changed later."""
    found = thing(run, args_handle, Arguments, "list of arguments")
    found.values.append(number_at(run, param, param_size))
    return len(found.values)


@call()
def kernel_args_para_update(
    run: Simulator, args_handle: int, param_handle: int, param: int, param_size: int
) -> None:
    """Change an argument."""
    found = thing(run, args_handle, Arguments, "list of arguments")
    if not 1 <= whole(param_handle, "param_handle") <= len(found.values):
        raise Refused(codes.RT_PARAM_INVALID, f"argument {param_handle} was not appended")
    found.values[param_handle - 1] = number_at(run, param, param_size)


@call()
def kernel_args_finalize(run: Simulator, args_handle: int) -> None:
    """Say that all arguments are there."""
    thing(run, args_handle, Arguments, "list of arguments").complete = True
