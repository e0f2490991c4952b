"""What programs ask and set besides: parameters, attributes, numbers, errors, neighbours of a device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from cann_env.acl import codes
from cann_env.acl.api import call, getter, simulator
from cann_env.acl.calls.rt_memory import host_register
from cann_env.acl.codes import Refused

if TYPE_CHECKING:
    from collections.abc import Callable

    from cann_env.acl.state.simulator import Simulator

_NOWHERE: Final = 0xFFFF_FFFF
_ATTRIBUTES: Final = {1: "failureMode", 2: "overflowSwitch", 3: "userCustomTag"}
_CORES: Final = {1: "aicpu", 101: "aic", 201: "aiv"}
"""Numbers of cores, by what ``get_device_info`` calls them."""


@call(1)
def ctx_get_current_default_stream(run: Simulator) -> int:
    """The default stream of the current context."""
    return run.context().default_stream


@call()
def set_op_wait_timeout(run: Simulator, timeout: int) -> None:
    """Kept without effect: a wait that never ends is told as such."""
    run.parameters["op_wait_timeout"] = _count(timeout, "timeout")


@call()
def set_op_execute_time_out(run: Simulator, timeout: int) -> None:
    """Kept without effect: no kernel runs for ever."""
    run.parameters["op_execute_timeout"] = _count(timeout, "timeout")


@call(1)
def set_op_execute_timeout_v2(run: Simulator, timeout: int) -> int:
    """The same; gives back the limit in microseconds."""
    run.parameters["op_execute_timeout"] = _count(timeout, "timeout")
    return timeout


@call(1)
def get_op_execute_timeout(run: Simulator) -> int:
    """The limit that was set; 0 if none was."""
    return run.parameters.get("op_execute_timeout", 0)


@call()
def ctx_set_sys_param_opt(run: Simulator, opt: int, value: int) -> None:
    """Set a parameter of the current context (0 deterministic, 1 debug ...); kept without effect."""
    run.parameters[f"context {run.context().handle} {_count(opt, 'opt')}"] = value


@call(1)
def ctx_get_sys_param_opt(run: Simulator, opt: int) -> int:
    """A parameter of the current context."""
    return _parameter(run, f"context {run.context().handle} {opt}")


@call()
def set_sys_param_opt(run: Simulator, opt: int, value: int) -> None:
    """Set a parameter of the process; kept without effect."""
    run.parameters[f"process {_count(opt, 'opt')}"] = value


@call(1)
def get_sys_param_opt(run: Simulator, opt: int) -> int:
    """A parameter of the process."""
    return _parameter(run, f"process {opt}")


def _parameter(run: Simulator, name: str) -> int:
    if name not in run.parameters:
        raise Refused(codes.RT_SYS_PARAM_NOT_SET, f"parameter {name} was not set")
    return run.parameters[name]


def _count(value: object, what: str) -> int:
    if not isinstance(value, int) or value < 0:
        raise Refused(codes.RT_PARAM_INVALID, f"{what} is {value!r}; pass a whole number from 0")
    return value


# Streams and events.


@call()
def set_stream_overflow_switch(run: Simulator, stream: int, flag: int) -> None:
    """Kept without effect: nothing overflows."""
    run.parameters[f"overflow {run.stream(stream).handle}"] = flag


@call(1)
def get_stream_overflow_switch(run: Simulator, stream: int) -> int:
    """What was set; 0 if nothing was."""
    return run.parameters.get(f"overflow {run.stream(stream).handle}", 0)


@call()
def set_stream_attribute(run: Simulator, stream: int, attr: int, value: dict[str, int]) -> None:
    """Set failure mode (1), overflow switch (2) or tag (3) of a stream; kept without effect."""
    key = _attribute(attr)
    if not isinstance(value, dict) or key not in value:
        raise Refused(codes.RT_PARAM_INVALID, f"value is {value!r}; pass {{{key!r}: number}}")
    run.parameters[f"{key} {run.stream(stream).handle}"] = value[key]


@call(1, failed={})
def get_stream_attribute(run: Simulator, stream: int, attr: int) -> dict[str, int]:
    """See :func:`set_stream_attribute`."""
    key = _attribute(attr)
    return {key: run.parameters.get(f"{key} {run.stream(stream).handle}", 0)}


def _attribute(attr: object) -> str:
    if attr not in _ATTRIBUTES:
        raise Refused(codes.RT_PARAM_INVALID, f"attr is {attr!r}; pass 1 (failure), 2 (overflow) or 3 (tag)")
    return _ATTRIBUTES[attr]


@call(1)
def get_event_id(run: Simulator, event: int) -> int:
    """Number of an event."""
    return sorted(run.events).index(run.event(event).handle)


@call(1)
def get_event_avail_num(run: Simulator) -> int:
    """Events that can still be made."""
    held = sum(event.legacy or event.record is not None for event in run.events.values())
    return run.spec.limits.max_events - held


@call(1)
def get_thread_last_task_id(run: Simulator) -> int:
    """Number of the piece of work that was submitted last."""
    return max(len(run.log) - 1, 0)


@call()
def reset_overflow_status(run: Simulator, stream: int) -> None:
    """Nothing overflows."""
    run.stream(stream)


@call()
def get_overflow_status(run: Simulator, output_addr: int, output_size: int, stream: int) -> None:
    """Write that nothing overflowed: the memory is left as it is."""
    run.stream(stream)
    run.memory.range(output_addr, output_size, "output_addr")


# Failures.


@call(initialised=False)
def set_exception_info_callback(run: Simulator, function: Callable[[int], Any] | None = None) -> None:
    """Kept without effect: no task fails."""
    del run
    if function is not None and not callable(function):
        raise Refused(codes.RT_PARAM_INVALID, f"function is {function!r}; pass something that can be called")


@getter(failed=_NOWHERE)
def get_error_code_from_exception_info(run: Simulator, info: int) -> int:
    """There is no such information, since no task fails."""
    del run, info
    return _NOWHERE


get_task_id_from_exception_info = get_error_code_from_exception_info
get_stream_id_from_exception_info = get_error_code_from_exception_info
get_thread_id_from_exception_info = get_error_code_from_exception_info
get_device_id_from_exception_info = get_error_code_from_exception_info


def peek_at_last_error(level: int = 0) -> int:
    """Code of the last call that failed; 0 if none has."""
    del level
    return simulator().last_error


def get_last_error(level: int = 0) -> int:
    """The same, and forget it."""
    del level
    code, simulator().last_error = simulator().last_error, 0
    return code


# Devices.


@call(1)
def query_device_status(run: Simulator, device_id: int) -> int:
    """0: the device works."""
    run.device(device_id)
    return 0


@call(1)
def get_device_info(run: Simulator, device_id: int, attr: int) -> int:
    """Cores of a device: of the AI CPU (1), cube (101) or vector (201)."""
    if attr not in _CORES:
        raise Refused(codes.RT_FEATURE_NOT_SUPPORT, f"attr is {attr!r}; 1, 101 and 201 are simulated")
    return run.device(device_id).spec.pools.get(_CORES[attr], 0)


@call(1)
def device_can_access_peer(run: Simulator, device_id: int, peer_device_id: int) -> int:
    """1: devices reach each other's memory."""
    return int(run.device(device_id).number != run.device(peer_device_id).number)


device_peer_access_status = device_can_access_peer


@call()
def device_enable_peer_access(run: Simulator, peer_device_id: int, flags: int = 0) -> None:
    """Nothing to do: devices reach each other's memory."""
    del flags
    run.device(peer_device_id)


@call()
def device_disable_peer_access(run: Simulator, peer_device_id: int) -> None:
    """Accepted without effect."""
    run.device(peer_device_id)


@call(2)
def get_primary_ctx_state(run: Simulator, device_id: int) -> tuple[int, int]:
    """Whether a device has its own context, and flags of it."""
    number = run.device(device_id).number
    return int(any(c.implicit and c.device == number for c in run.contexts.values())), 0


@call(1)
def get_logic_dev_id_by_user_dev_id(run: Simulator, device_id: int) -> int:
    """The same number: devices are neither hidden nor renumbered."""
    return run.device(device_id).number


get_user_dev_id_by_logic_dev_id = get_logic_dev_id_by_user_dev_id
get_logic_dev_id_by_phy_dev_id = get_logic_dev_id_by_user_dev_id
get_phy_dev_id_by_logic_dev_id = get_logic_dev_id_by_user_dev_id


@call()
def set_device_sat_mode(run: Simulator, mode: int) -> None:
    """How numbers overflow; kept without effect."""
    run.parameters["saturation"] = _count(mode, "mode")


@call(1)
def get_device_sat_mode(run: Simulator) -> int:
    """What was set; 0 (saturate) if nothing was."""
    return run.parameters.get("saturation", 0)


def host_register_v2(ptr: int, size: int, flag: int = 0) -> int:
    """Pin host memory of the program."""
    _, code = host_register(ptr, size, flag)
    return int(code)


@call(1)
def host_get_device_pointer(run: Simulator, host_ptr: int, flag: int = 0) -> int:
    """The address under which the device reaches pinned host memory: the same."""
    del flag
    run.memory.range(host_ptr, 0, "host_ptr")
    return host_ptr
