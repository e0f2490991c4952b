"""What a Gantt chart shows: its bars, the labels of its rows, its legend. Rows in, plain tuples out."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, NamedTuple

from cann_env.render import palette
from cann_env.render.moves import CARRIERS, lanes_of
from cann_env.render.rows import command_classes, kernel_spans

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cann_env.schedule import CommandRun, Schedule

_REQUESTS_IN_LEGEND = 12


class ColourBy(enum.StrEnum):
    """What the colour of a command tells: its class of work, or the request it belongs to."""

    WORK_CLASS = "class"
    REQUEST = "request"


class Bar(NamedTuple):
    """One bar of the upper part: its row, its times, its colour, and the name to write in it."""

    row: int
    start_ns: int
    finish_ns: int
    colour: str
    name: str


def bars_of(schedule: Schedule, colour_by: ColourBy) -> tuple[list[Bar], list[str]]:
    """All bars, those of commands first, and the labels of their rows, top row first."""
    host = _host_matters(schedule)
    streams = 1 + max(run.stream for run in schedule.commands)
    lanes = lanes_of(schedule)
    labels = ["host"] * host + [f"stream {i}" for i in range(streams)]
    colours = _colours(schedule, colour_by)
    bars = [
        Bar(host + run.stream, run.start_ns, run.finish_ns, colours[run.command], _name(schedule, run))
        for run in schedule.commands
    ]
    if host:
        bars += [
            Bar(0, call.start_ns, call.end_ns, palette.CALL_COLOURS[call.call], "")
            for call in schedule.host
            if call.end_ns > call.start_ns
        ]
    bars += [
        Bar(
            len(labels) + row,
            move.start_ns,
            move.finish_ns,
            palette.CAUSE_COLOURS[move.cause],
            schedule.graph.buffers[move.buffer].name,
        )
        for row, lane in enumerate(lanes)
        for move in lane.moves
    ]
    return bars, [*labels, *(lane.label for lane in lanes)]


def _host_matters(schedule: Schedule) -> bool:
    """Whether a call that does something takes time; in graph mode only waits do."""
    return any(call.call != "wait" and call.end_ns > call.start_ns for call in schedule.host)


def _name(schedule: Schedule, run: CommandRun) -> str:
    return schedule.graph.commands[run.command].name


def _requests(schedule: Schedule) -> dict[str, str]:
    """Colour of each request, in order of first appearance in the graph."""
    names = dict.fromkeys(command.request for command in schedule.graph.commands)
    return {name: palette.REQUEST_COLOURS[i % len(palette.REQUEST_COLOURS)] for i, name in enumerate(names)}


def _colours(schedule: Schedule, colour_by: ColourBy) -> list[str]:
    if colour_by is ColourBy.REQUEST:
        requests = _requests(schedule)
        return [requests[command.request] for command in schedule.graph.commands]
    classes = command_classes(kernel_spans(schedule.blocks))
    return [
        palette.CLASS_COLOURS[classes[i]] if i in classes else palette.HELD
        for i in range(len(schedule.graph.commands))
    ]


def legend_entries(schedule: Schedule, bars: Sequence[Bar], colour_by: ColourBy) -> list[tuple[str, str]]:
    """Legend entries ``(label, colour)`` for what the picture really contains."""
    used = {bar.colour for bar in bars[: len(schedule.commands)]}
    if colour_by is ColourBy.REQUEST:
        groups = _request_entries(schedule)
    else:
        groups = [(name, colour) for name, colour in palette.CLASS_COLOURS.items() if colour in used]
    if _host_matters(schedule):
        calls = dict.fromkeys(call.call for call in schedule.host if call.end_ns > call.start_ns)
        groups += [(f"host: {name}", palette.CALL_COLOURS[name]) for name in sorted(calls)]
    causes = {move.cause for lane in lanes_of(schedule) for move in lane.moves}
    return groups + [(f"moves: {name}", palette.CAUSE_COLOURS[name]) for name in CARRIERS if name in causes]


def _request_entries(schedule: Schedule) -> list[tuple[str, str]]:
    requests = [(name or "(no request)", colour) for name, colour in _requests(schedule).items()]
    more = len(requests) - _REQUESTS_IN_LEGEND
    return requests if more <= 0 else [*requests[:_REQUESTS_IN_LEGEND], (f"and {more} more", "#ffffff")]
