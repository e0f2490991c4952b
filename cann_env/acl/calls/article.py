"""Commands and kernel descriptors, as the article on the runtime has them.

CANN itself has neither. A command is a container of kernels that is submitted as one; its counterparts are a
launch for a command of one kernel, and a captured graph for one of several.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from cann_env.acl import codes
from cann_env.acl import constants as const
from cann_env.acl.api import call, site
from cann_env.acl.calls.rt_device import wait_for
from cann_env.acl.calls.rt_kernel import Binary, Function, launch_together
from cann_env.acl.calls.rt_memory import put_back
from cann_env.acl.codes import Refused
from cann_env.acl.state.kernels import KERNELS, Part
from cann_env.commands import KernelClass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cann_env.acl.state.kernels import KernelModel
    from cann_env.acl.state.simulator import Simulator

_CORES: Final = {
    const.ACL_KERNEL_CORE_AI_CORE: (KernelClass.CUBE, KernelClass.VECTOR),
    const.ACL_KERNEL_CORE_VECTOR_CORE: (KernelClass.VECTOR, KernelClass.CUBE),
}
"""The class that a preference means, and the one that it falls back to."""


@dataclass(slots=True, eq=False)
class CommandObject:
    """A command under the making, and what it was submitted as.

    Attributes:
        handle: As the program knows it.
        site: Where it was made.
        parts: Its kernels.
        work: Indices of its work, of all submissions.
        owned: Addresses of memory that goes away with it.
    """

    handle: int
    site: str
    parts: list[Part] = field(default_factory=list)
    work: list[int] = field(default_factory=list)
    owned: list[int] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class KernelDesc:
    """A description of a kernel: the operator it computes, and the core it prefers."""

    handle: int
    site: str
    operator: str = ""
    core: int | None = None


@call(
    1, c_name="", article="aclrtCreateCommand",
    differs="CANN has no commands: one kernel is launched with aclrtLaunchKernel, several that belong "
    "together are captured as a graph (aclmdlRICaptureBegin and End).",
)  # fmt: skip
def create_command(run: Simulator) -> int:
    """An empty command."""
    command = CommandObject(run.new_handle(), site())
    run.things[command.handle] = command
    return command.handle


@call(
    c_name="", article="aclrtSetCommandArgs",
    differs="Counterpart: the arguments of aclrtLaunchKernelWithConfig. Kernels of one command share one "
    "launch and run back to back on their stream; on a device only a captured graph or a fused kernel "
    "saves that.",
)  # fmt: skip
def set_command_args(run: Simulator, command: int, kernel: int, blocks: int, args: Sequence[Any]) -> None:
    """Add a kernel with its arguments; several are fused into one submission.

    Args:
        run: The run.
        command: As :func:`create_command` gave it.
        kernel: A function, as ``binary_get_function`` gave it, or a kernel descriptor.
        blocks: Logical blocks.
        args: As ``launch_kernel`` takes them.
    """
    found = find_command(run, command)
    found.parts.append(Part(_model(run, kernel), blocks, tuple(args)))


@call(
    c_name="", article="aclrtSubmitCommand",
    differs="Counterpart: aclrtLaunchKernel, or aclmdlRIExecuteAsync for a captured graph.",
)  # fmt: skip
def submit_command(run: Simulator, command: int, stream: int = const.ACL_STREAM_DEFAULT) -> None:
    """Put a command at the end of a stream; it may be submitted again."""
    found, where = find_command(run, command), run.stream(stream)
    if not found.parts:
        raise Refused(
            codes.RT_PARAM_INVALID,
            f"command {command} (made at {found.site}) has no kernel; set its arguments",
        )
    work = launch_together(run, found.parts, where, site(), "submit_command")
    if work.index >= 0:
        found.work.append(work.index)


@call(
    c_name="", article="aclrtSynchronizeCommand",
    differs="Counterpart: aclrtSynchronizeEvent on an event recorded behind the launch, or "
    "aclrtSynchronizeStream. To be told instead of waiting, aclrtLaunchCallback behind it.",
)  # fmt: skip
def synchronize_command(run: Simulator, command: int) -> None:
    """Wait until a command is done, every time it was submitted."""
    found = find_command(run, command)
    if not found.work:
        raise Refused(codes.RT_PARAM_INVALID, f"command {command} (made at {found.site}) was never submitted")
    wait_for(run, found.work, f"command {command}")


@call(1, c_name="", differs="Counterpart: aclrtQueryEventStatus on an event recorded behind the launch.")
def query_command(run: Simulator, command: int) -> int:
    """1 if a command is done, every time it was submitted (or never was), 0 if not."""
    found = find_command(run, command)
    run.settle()
    done = all(run.log[i].ended for i in found.work)
    if done:
        run.seen(found.work)
    return const.ACL_EVENT_RECORDED_STATUS_COMPLETE if done else const.ACL_EVENT_RECORDED_STATUS_NOT_READY


@call(
    c_name="", article="aclrtDestroyCommand",
    differs="Counterpart: aclmdlRIDestroy for a captured graph; a launch leaves nothing to destroy.",
)  # fmt: skip
def destroy_command(run: Simulator, command: int) -> None:
    """End a command; what was submitted goes on."""
    found = find_command(run, command)
    if found.owned:
        run.advance_to(found.work)
        run.seen(found.work)
    for address in found.owned:
        allocation = run.memory.range(address, 0, "memory of the command").allocation
        put_back(run, allocation, site())
    run.bury(command, "command", site())
    del run.things[command]


@call(
    1, c_name="", article="aclrtCreateKernelDesc",
    differs="CANN has no descriptors: a function of a loaded binary (aclrtBinaryGetFunction) says what is "
    "computed, the launch configuration of aclrtLaunchKernelWithConfig how.",
)  # fmt: skip
def create_kernel_desc(run: Simulator) -> int:
    """An empty description of a kernel."""
    desc = KernelDesc(run.new_handle(), site())
    run.things[desc.handle] = desc
    return desc.handle


@call(
    c_name="", article="aclrtSetKernelDescAttr",
    differs="Counterpart: the attributes of a launch configuration. The kind of core is a matter of how a "
    "kernel was built and cannot be chosen at launch; only 310P spreads some vector kernels over both "
    "kinds.",
)  # fmt: skip
def set_kernel_desc_attr(run: Simulator, kernel_desc: int, attribute: str, value: object) -> None:
    """Set the operator of a description, or the kind of core it prefers.

    Args:
        run: The run.
        kernel_desc: As :func:`create_kernel_desc` gave it.
        attribute: ``ACL_KERNEL_ATTR_TYPE`` or ``ACL_KERNEL_ATTR_CORE``.
        value: The operator: name or ``op`` of a kernel that was defined. The core:
            ``ACL_KERNEL_CORE_AI_CORE`` or ``ACL_KERNEL_CORE_VECTOR_CORE``; a kernel takes the other kind when
            no core of the preferred one is free.
    """
    desc = _desc(run, kernel_desc)
    if attribute == const.ACL_KERNEL_ATTR_TYPE:
        _of_type(value)
        desc.operator = str(value)
    elif attribute == const.ACL_KERNEL_ATTR_CORE:
        if value not in _CORES:
            raise Refused(
                codes.RT_PARAM_INVALID, f"preferred core is {value!r}; pass one of ACL_KERNEL_CORE_, 0 or 1"
            )
        desc.core = int(str(value))
    else:
        raise Refused(
            codes.RT_PARAM_INVALID, f"attribute is {attribute!r}; pass ACL_KERNEL_ATTR_TYPE or _CORE"
        )


@call(c_name="", differs="Counterpart: none is needed.")
def destroy_kernel_desc(run: Simulator, kernel_desc: int) -> None:
    """End a description; commands that were given it keep what it said."""
    _desc(run, kernel_desc)
    run.bury(kernel_desc, "kernel descriptor", site())
    del run.things[kernel_desc]


@call(
    1, c_name="", article="aclrtLoadKernel",
    differs="Counterpart: aclrtBinaryLoadFromFile. Kernels that were defined stand for those of the file.",
)  # fmt: skip
def load_kernel(run: Simulator, path: str) -> int:
    """Load a binary of kernels; a handle as ``binary_load_from_file`` gives it."""
    if not isinstance(path, str) or not path:
        raise Refused(codes.RT_PARAM_INVALID, f"path is {path!r}; pass the path of a kernel binary")
    handle = run.new_handle()
    run.things[handle] = Binary(path)
    return handle


def find_command(run: Simulator, handle: object) -> CommandObject:
    """A command by handle."""
    found = run.things.get(handle) if isinstance(handle, int) else None
    if not isinstance(found, CommandObject):
        raise Refused(codes.RT_PARAM_INVALID, f"command {handle!r} does not exist{run.gone(handle)}")
    return found


def _desc(run: Simulator, handle: object) -> KernelDesc:
    found = run.things.get(handle) if isinstance(handle, int) else None
    if not isinstance(found, KernelDesc):
        raise Refused(
            codes.RT_PARAM_INVALID, f"kernel descriptor {handle!r} does not exist{run.gone(handle)}"
        )
    return found


def _model(run: Simulator, handle: object) -> KernelModel:
    """The kernel that a function or a description stands for."""
    found = run.things.get(handle) if isinstance(handle, int) else None
    if isinstance(found, Function):
        return found.model
    if not isinstance(found, KernelDesc):
        raise Refused(
            codes.RT_PARAM_INVALID,
            f"kernel {handle!r} is no function and no kernel descriptor{run.gone(handle)}",
        )
    if not found.operator:
        raise Refused(
            codes.RT_PARAM_INVALID,
            f"kernel descriptor {handle} (made at {found.site}) names no operator; set ACL_KERNEL_ATTR_TYPE",
        )
    model = _of_type(found.operator)
    return model if found.core is None else _preferring(run, model, found.core)


def _of_type(operator: object) -> KernelModel:
    model = KERNELS.find(str(operator)) or KERNELS.of_operator(str(operator))
    if model is None:
        known = ", ".join(KERNELS.names()) or "none"
        raise Refused(
            codes.RT_PARAM_INVALID,
            f"operator {operator!r} is not known; say what it costs with define_kernel (known: {known})",
        )
    return model


def _preferring(run: Simulator, model: KernelModel, core: int) -> KernelModel:
    preferred, other = _CORES[core]
    classes = [name for name in (preferred, other) if _can_run(run, name, model)]
    if not classes:
        raise Refused(
            codes.RT_FEATURE_NOT_SUPPORT,
            f"kernel {model.name!r} ({model.dtype}) runs on neither kind of core of {run.spec.name}",
        )
    fallback = classes[1] if len(classes) > 1 else None
    exact = model.exact and replace(model.exact, kernel_class=classes[0], fallback=fallback)
    return replace(model, kernel_class=classes[0], fallback=fallback, exact=exact)


def _can_run(run: Simulator, name: KernelClass, model: KernelModel) -> bool:
    found = run.spec.classes.get(name.value)
    if found is None or any(run.spec.pools.get(pool, 0) < units for pool, units in found.demand.items()):
        return False
    return model.dtype in found.flops_per_cycle
