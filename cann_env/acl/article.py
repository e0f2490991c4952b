"""Commands, as the article on the runtime has them: a container for kernels that is submitted as one.

CANN itself has no such objects. Their counterparts are ``launch_kernel`` for a command of one kernel, and a
captured graph for one of several.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cann_env.acl import codes
from cann_env.acl.api import call, site
from cann_env.acl.codes import Refused
from cann_env.acl.rt_device import wait_for
from cann_env.acl.rt_kernel import Function, Part, launch_together

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cann_env.acl.simulator import Simulator


@dataclass(slots=True, eq=False)
class CommandObject:
    """A command under the making, and what it was submitted as."""

    handle: int
    site: str
    parts: list[Part] = field(default_factory=list)
    work: list[int] = field(default_factory=list)


@call(1)
def create_command(run: Simulator) -> int:
    """An empty command."""
    command = CommandObject(run.new_handle(), site())
    run.things[command.handle] = command
    return command.handle


@call()
def set_command_args(run: Simulator, command: int, function: int, blocks: int, args: Sequence[Any]) -> None:
    """Add a kernel with its arguments; several are fused into one submission."""
    found = _command(run, command)
    kernel = run.things.get(function)
    if not isinstance(kernel, Function):
        raise Refused(codes.RT_PARAM_INVALID, f"function {function!r} does not exist{run.gone(function)}")
    found.parts.append(Part(kernel.model, blocks, tuple(args)))


@call()
def submit_command(run: Simulator, command: int, stream: int = 0) -> None:
    """Put a command at the end of a stream; it may be submitted again."""
    found, where = _command(run, command), run.stream(stream)
    if not found.parts:
        raise Refused(
            codes.RT_PARAM_INVALID,
            f"command {command} (made at {found.site}) has no kernel; set its arguments",
        )
    work = launch_together(run, found.parts, where, site(), "submit_command")
    found.work.append(work.index)


@call()
def synchronize_command(run: Simulator, command: int) -> None:
    """Wait until a command is done, every time it was submitted."""
    found = _command(run, command)
    if not found.work:
        raise Refused(codes.RT_PARAM_INVALID, f"command {command} (made at {found.site}) was never submitted")
    wait_for(run, found.work, f"command {command}")


@call()
def destroy_command(run: Simulator, command: int) -> None:
    """End a command; what was submitted goes on."""
    _command(run, command)
    run.bury(command, "command", site())
    del run.things[command]


def _command(run: Simulator, handle: object) -> CommandObject:
    found = run.things.get(handle) if isinstance(handle, int) else None
    if not isinstance(found, CommandObject):
        raise Refused(codes.RT_PARAM_INVALID, f"command {handle!r} does not exist{run.gone(handle)}")
    return found
