"""What lasted in a trace that this package wrote, and in the schedule it shows, in the same words.

Slices are read here by their own means, not by those that wrote them.
"""

from __future__ import annotations

from collections import defaultdict
from decimal import Decimal, DecimalException
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from cann_env.units import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cann_env.schedule import Schedule

EVENTS: Final = "events"
"""In place of a process: records and waits of events."""

_LONGEST: Final = Decimal(2**62)
_TRACKS: Final = 1_000_000


class Slice(NamedTuple):
    """Something that lasted, and what it is, in words that both the trace and the schedule give."""

    start_ns: int
    finish_ns: int
    what: str


def shown(file: str, events: Iterable[Any], origin_ns: int) -> dict[str, list[Slice]]:
    """Slices of a trace by process, records and waits of events apart.

    Args:
        file: For messages.
        events: Of the trace.
        origin_ns: Time zero of the run on the clock of the trace.

    Raises:
        InputError: A time is no whole number of nanoseconds; names the event.
    """
    processes = dict(_process(event) for event in events if _is(event, "M"))
    found: dict[str, list[Slice]] = defaultdict(list)
    for number, event in enumerate(events):
        process = processes.get(str(event.get("pid")), "") if _is(event, "X") else ""
        if process not in _NAMES:
            continue
        args = _args(event)
        where = f"trace {file!r}, event {number}"
        start = _ns(event.get("ts"), where) - origin_ns
        finish = start + _ns(event.get("dur"), where)
        if "event_id" in args:
            found[EVENTS].append(Slice(start, finish, f"{event.get('name')} {args['event_id']}"))
        else:
            found[process].append(Slice(start, finish, _NAMES[process](event, args)))
    return found


def _is(event: object, phase: str) -> bool:
    return isinstance(event, dict) and event.get("ph") == phase


def _args(event: dict[str, Any]) -> dict[str, Any]:
    args = event.get("args")
    return args if isinstance(args, dict) else {}


def _process(event: dict[str, Any]) -> tuple[object, str]:
    """Number and name of a process; metadata of other kinds name none."""
    named = event.get("name") == "process_name"
    return (str(event.get("pid")) if named else None), str(_args(event).get("name"))


def _ns(value: object, where: str) -> int:
    """Whole nanoseconds of a time in microseconds; writers may add less than half a nanosecond."""
    try:
        exact = Decimal(str(value)) * 1000
    except DecimalException:
        raise InputError(f"{where}: {value!r} is no time in microseconds") from None
    if not exact.is_finite() or abs(exact) > _LONGEST:
        raise InputError(f"{where}: {value!r} is no time in microseconds")
    nearest = exact.to_integral_value()
    if abs(exact - nearest) > Decimal("0.01"):
        raise InputError(f"{where}: {value} microseconds are no whole number of nanoseconds")
    return int(nearest)


def _name_of_command(event: dict[str, Any], args: dict[str, Any]) -> str:
    kernel = f", kernel {args['kernel']}" if "kernel" in args else ""
    return f"command {args.get('command')} {event.get('name')!r}{kernel} on track {_row(event)}"


def _name_of_blocks(_: dict[str, Any], args: dict[str, Any]) -> str:
    return f"{args.get('blocks')} blocks of command {args.get('command')}, kernel {args.get('kernel')}"


def _name_of_call(event: dict[str, Any], args: dict[str, Any]) -> str:
    return f"call {event.get('cat')!r} for {args.get('target')}"


def _name_of_move(event: dict[str, Any], args: dict[str, Any]) -> str:
    return f"{event.get('cat')} of buffer {args.get('buffer')}"


def _name_of_task(event: dict[str, Any], args: dict[str, Any]) -> str:
    return f"task {event.get('name')!r} of command {args.get('command')} on track {event.get('tid')}"


def _name_of_operator(event: dict[str, Any], _: dict[str, Any]) -> str:
    return f"submission of {event.get('name')!r}"


def _row(event: dict[str, Any]) -> object:
    tid = event.get("tid")
    return tid % _TRACKS if isinstance(tid, int) else tid


_NAMES: Final = {
    "Streams": _name_of_command,
    "Engines": _name_of_blocks,
    "Host": _name_of_call,
    "Transfers": _name_of_move,
    "Ascend Hardware": _name_of_task,
    "Python": _name_of_operator,
}


# --- what the run has -----------------------------------------------------------------------------------


def _kernel_spans(schedule: Schedule) -> dict[tuple[int, int], tuple[int, int]]:
    spans: dict[tuple[int, int], tuple[int, int]] = {}
    for row in schedule.blocks:
        start, finish = spans.get((row.command, row.kernel), (row.kernel_start_ns, row.finish_ns))
        spans[row.command, row.kernel] = min(start, row.kernel_start_ns), max(finish, row.finish_ns)
    return spans


def made_chrome(schedule: Schedule) -> dict[str, Iterable[Slice]]:
    """Slices that the form ``chrome`` must show of a schedule, by process."""
    return {
        "Streams": _made_streams(schedule),
        "Engines": _made_engines(schedule),
        "Host": (
            Slice(call.start_ns, call.end_ns, f"call {call.call!r} for {call.target}")
            for call in schedule.host
        ),
        "Transfers": (
            Slice(
                move.start_ns,
                min(move.finish_ns, schedule.makespan_ns),
                f"{move.cause} of buffer {move.buffer}",
            )
            for move in schedule.transfers
            if move.start_ns <= schedule.makespan_ns
        ),
    }


def _made_streams(schedule: Schedule) -> Iterator[Slice]:
    spans = _kernel_spans(schedule)
    for run in schedule.commands:
        command = schedule.graph.commands[run.command]
        on = f"on track {run.stream}"
        yield Slice(run.start_ns, run.finish_ns, f"command {run.command} {command.name!r} {on}")
        for k, kernel in enumerate(command.kernels if len(command.kernels) > 1 else ()):
            what = f"command {run.command} {kernel.name!r}, kernel {k} {on}"
            yield Slice(*spans[run.command, k], what)


def _made_engines(schedule: Schedule) -> Iterator[Slice]:
    for row in schedule.blocks:
        what = f"{row.blocks} blocks of command {row.command}, kernel {row.kernel}"
        for units in schedule.demand_of(row).values():
            if units:
                yield Slice(row.start_ns, row.finish_ns, what)


def made_mindstudio(schedule: Schedule) -> dict[str, Iterable[Slice]]:
    """Slices that the form ``mindstudio`` must show of a schedule, by process; events are not among them."""
    names = [command.name for command in schedule.graph.commands]
    return {
        "Ascend Hardware": _made_tasks(schedule),
        "Python": (
            Slice(call.start_ns, call.end_ns, f"submission of {names[call.target]!r}")
            for call in schedule.host
            if call.call == "issue"
        ),
    }


def _made_tasks(schedule: Schedule) -> Iterator[Slice]:
    spans = _kernel_spans(schedule)
    for run in schedule.commands:
        command = schedule.graph.commands[run.command]
        name = "MEMCPY_ASYNC" if command.copy is not None else command.name
        names = [kernel.name for kernel in command.kernels] or [name]
        for k, name in enumerate(names):
            start = run.start_ns if k == 0 else spans[run.command, k][0]
            finish = run.finish_ns if k == len(names) - 1 else spans[run.command, k][1]
            yield Slice(start, finish, f"task {name!r} of command {run.command} on track {run.stream}")
