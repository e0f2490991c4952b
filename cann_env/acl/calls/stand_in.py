"""What a program on a device does through libraries that are not simulated: operations of known length.

Collectives of HCCL, functions of the host, copies without addresses: they occupy their engine and their
stream.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cann_env.acl import codes
from cann_env.acl.api import call, site
from cann_env.acl.codes import Refused
from cann_env.acl.state.memory import Space
from cann_env.acl.state.work import Touch
from cann_env.commands import Command, CommandKind, CopyKind, HostMemory
from cann_env.options import Submission

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cann_env.acl.state.memory import Range
    from cann_env.acl.state.simulator import Simulator

_KINDS: Final = {"collective": CommandKind.COLLECTIVE, "callback": CommandKind.CALLBACK}


@call(c_name="", differs="A stand-in for what other libraries submit, such as HCCL's collectives.")
def operation(
    run: Simulator,
    kind: str,
    amount: int,
    stream: int = 0,
    reads: Sequence[int] = (),
    writes: Sequence[int] = (),
    duration_ns: int = 0,
    *,
    pageable: bool = False,
) -> None:
    """Submit an operation that no other call of the simulator stands for.

    Args:
        run: The run.
        kind: ``collective`` or ``callback``, of a given length; or ``h2d``, ``d2h``, ``d2d``: a copy.
        amount: Nanoseconds, or bytes of a copy.
        stream: Where.
        reads: Addresses of memory that it reads, each to the end of its allocation.
        writes: The same of what it writes.
        duration_ns: Measured time of a copy, in place of the cost model; 0 for none.
        pageable: The host's side of a copy is; a host whose behaviour was prescribed then waits.
    """
    where = run.stream(stream)
    if not isinstance(amount, int) or amount <= 0:
        raise Refused(codes.RT_PARAM_INVALID, f"amount is {amount!r}; pass nanoseconds or bytes above 0")
    if kind in _KINDS:
        command = Command(name=kind, kind=_KINDS[kind], duration_ns=amount)
    elif kind in tuple(CopyKind):
        side = HostMemory.PAGEABLE if pageable and run.runtime.options is not None else HostMemory.PINNED
        command = Command(
            name=f"copy {kind}", kind=CommandKind.COPY, copy=CopyKind(kind), size_bytes=amount,
            duration_ns=duration_ns, host_memory=side,
        )  # fmt: skip
    else:
        words = ", ".join((*_KINDS, *CopyKind))
        raise Refused(codes.RT_PARAM_INVALID, f"kind is {kind!r}; pass one of {words}")
    touches = [Touch(_to_the_end(run, address), False) for address in reads]
    touches += [Touch(_to_the_end(run, address), True) for address in writes]
    run.pay("launch_kernel_ns")
    run.submit("operation", where, command, touches, site=site(), label=command.name)


def _to_the_end(run: Simulator, address: int) -> Range:
    found = run.memory.range(address, 0, "address")
    return run.memory.range(address, found.allocation.size - found.first, "address")


@call(c_name="", differs="A stand-in for what the host does besides.")
def wait_until(run: Simulator, time_ns: int) -> None:
    """The host does something else until a time of the run; nothing if that is over."""
    if not isinstance(time_ns, int) or time_ns < 0:
        raise Refused(codes.RT_PARAM_INVALID, f"time_ns is {time_ns!r}; pass nanoseconds from 0")
    run.clock_ns = max(run.clock_ns, time_ns)
    # Of a graph that was handed over nothing has to happen yet, but for functions of the program.
    if run.submission is not Submission.SINK or _calls_back(run):
        run.settle()


def _calls_back(run: Simulator) -> bool:
    works = (run.log[i] for device in run.devices.values() for i in device.works)
    return any(work.call == "rt.launch_callback" and not work.begun for work in works)


@call(c_name="", differs="stream_wait_event, on a device.")
def reuse_memory(run: Simulator, stream: int, event: int) -> None:
    """Wait for an event because memory is used again; on a device that is ``stream_wait_event``.

    A runtime whose behaviour was prescribed places memory, and orders those who use it, itself.
    """
    where, found = run.stream(stream), run.event(event)
    if found.record is None:
        raise Refused(codes.RT_PARAM_INVALID, f"event {event} (made at {found.site}) was never recorded")
    known = set(where.pending)
    run.wait(where, found.record)
    if run.runtime.options is not None:
        where.reuse |= set(where.pending) - known


@call(c_name="", differs="Prescribes the simulator's runtime; a device has none.")
def graph_order(
    run: Simulator,
    order: Sequence[int],
    edges: Mapping[int, Sequence[int]] | None = None,
    releases: Mapping[int, int] | None = None,
) -> None:
    """The place of each piece of work, as it is submitted, in the graph that was handed over.

    A runtime that knows the graph evicts what the graph needs last.

    Args:
        run: The run.
        order: Places, of the work in the order of submission.
        edges: For places, others that the graph wants done before, where no event and no data tell.
        releases: For places, when the graph lets work become known (ns); 0 for those that are not named.
    """
    run.runtime.order = tuple(order)
    run.runtime.edges = {place: tuple(before) for place, before in (edges or {}).items()}
    run.runtime.releases = dict(releases or {})


@call(c_name="", differs="On a device each die is a device, and set_device names it.")
def use_die(run: Simulator, die: int) -> None:
    """What is made from now on, streams and memory, has a die of the device as its home.

    On a device each die is a device of its own, which ``set_device`` names.
    """
    dies = run.device(run.context().device).spec.dies
    if not isinstance(die, int) or not 0 <= die < dies:
        raise Refused(codes.RT_PARAM_INVALID, f"die is {die!r}; {run.spec.name} has dies 0 to {dies - 1}")
    run.die = die


@call(c_name="", differs="Says what came before the program; a device has none.")
def begins(run: Simulator, ptr: int, place: str, *, pageable: bool = False) -> None:
    """Say where managed memory lay before the program began.

    Args:
        run: The run.
        ptr: The memory.
        place: ``device``; or ``host``, where it is needed even if work writes it first.
        pageable: Its host side is, so that a host that moves it waits.
    """
    found = run.memory.range(ptr, 0, "ptr").allocation
    if found.space is not Space.MANAGED:
        raise Refused(codes.RT_PARAM_INVALID, f"0x{ptr:x} lies in {found.name}; pass managed memory")
    if place not in ("device", "host"):
        raise Refused(codes.RT_PARAM_INVALID, f"place is {place!r}; pass 'device' or 'host'")
    found.on_device, found.on_host, found.pageable = place == "device", place == "host", pageable
