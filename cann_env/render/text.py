"""A schedule as plain text: one line a stream, one character a slice of time. Needs no dependency."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from cann_env.render.moves import CARRIERS, TITLES, seen
from cann_env.render.palette import CAUSE_GLYPHS, CLASS_GLYPHS
from cann_env.render.rows import clip, kernel_spans
from cann_env.units import InputError, format_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cann_env.schedule import BlockRun, CommandRun, TransferRun

_HELD = "held"
_GLYPHS = {**CLASS_GLYPHS, _HELD: "-", **CAUSE_GLYPHS}
_NARROWEST = 30

Span = tuple[int, int, str]


def text_timeline(
    blocks: Sequence[BlockRun],
    runs: Sequence[CommandRun],
    streams: int,
    now_ns: int,
    *,
    width: int = 100,
    transfers: Sequence[TransferRun] = (),
) -> str:
    """Draw streams as text; ``text_timeline(*rows_of(schedule))`` draws a finished schedule.

    With ``transfers=schedule.transfers`` lines below the streams show what moves from the host, to the host
    and into L2; where several move at once, the one that began first.

    Each character stands for an equal slice of the time from 0 to ``now_ns``: blank if no command ran, ``·``
    if one ran for less than half of it, else the sign of the class that ran longest (``-`` where a command
    had started with no block running). The share of time with a command follows each line.

    Args:
        blocks: Block rows so far.
        runs: Command rows so far; see :class:`~cann_env.render.rows.Rows` for running ones.
        streams: Lines to draw.
        now_ns: The time at the right edge.
        width: Most characters a line, at least 30.
        transfers: Transfers so far, if they are to be drawn too.

    Returns:
        Lines joined by newlines: a ruler, one line a stream, a legend of the signs in use.

    Raises:
        InputError: ``width`` is too small.
    """
    if width < _NARROWEST:
        raise InputError(f"text timeline width is {width}; write at least {_NARROWEST}")
    moves = _spans_by_carrier(transfers, now_ns)
    names = [f"stream {i}" for i in range(streams)] + [TITLES[pool] for pool in moves]
    margin = max(map(len, names), default=8)
    cells = width - margin - len(" |" + "| 100%")
    by_stream = _spans_by_stream(blocks, runs, now_ns)
    rows = [*(by_stream[i] for i in range(streams)), *moves.values()]
    lines = [_ruler(margin, cells, now_ns)]
    used: set[str] = set()
    for name, spans in zip(names, rows, strict=True):
        signs, share = _line(spans, cells, now_ns)
        used.update(signs)
        lines.append(f"{name:<{margin}} |{''.join(_GLYPHS.get(s, s) for s in signs)}| {share:4.0%}")
    legend = "  ".join(f"{glyph} {name}" for name, glyph in _GLYPHS.items() if name in used)
    return "\n".join([*lines, " " * (margin + 2) + legend] if legend else lines)


def _ruler(margin: int, cells: int, now_ns: int) -> str:
    end = format_time(now_ns)
    middle = "0".ljust(cells // 2) + format_time(now_ns / 2)
    begin = middle if len(middle) + len(end) < cells else "0"
    return " " * (margin + 2) + begin.ljust(cells - len(end)) + end


def _spans_by_stream(
    blocks: Sequence[BlockRun], runs: Sequence[CommandRun], now_ns: int
) -> dict[int, list[Span]]:
    """Disjoint spans ``(start, finish, class)`` of each stream; ``held`` fills a command's gaps."""
    kernels: dict[int, list[Span]] = defaultdict(list)
    for span in kernel_spans(blocks):
        start, finish = clip(span.start_ns, span.finish_ns, now_ns)
        kernels[span.command].append((start, finish, span.work_class))
    spans: dict[int, list[Span]] = defaultdict(list)
    for run in runs:
        at, end = clip(run.start_ns, run.finish_ns, now_ns)
        for start, finish, work_class in kernels[run.command]:
            spans[run.stream] += [(at, start, _HELD), (start, finish, work_class)]
            at = finish
        spans[run.stream].append((at, end, _HELD))
    return spans


def _spans_by_carrier(transfers: Sequence[TransferRun], now_ns: int) -> dict[str, list[Span]]:
    """Disjoint spans ``(start, finish, cause)`` of what moves, by the pool of the engine that moves it."""
    moves = sorted(
        (move.start_ns, move.finish_ns, move.cause)
        for move in seen(transfers, now_ns)
        if move.cause in CARRIERS
    )
    rows = {}
    for pool in TITLES:
        spans, end = [], 0
        for start, finish, cause in moves:
            if CARRIERS[cause] == pool and finish > max(start, end):
                spans.append((max(start, end), finish, cause))
                end = finish
        if spans:
            rows[pool] = spans
    return rows


def _line(spans: Sequence[Span], cells: int, now_ns: int) -> tuple[list[str], float]:
    """Sign of each cell (a class, ``held``, a blank or a dot) and the share of time in use."""
    held: list[dict[str, int]] = [defaultdict(int) for _ in range(cells)]
    # Times are multiplied by the number of cells, so that cell borders are whole numbers.
    for start, finish, name in spans:
        for cell in range(start * cells // max(1, now_ns), cells):
            overlap = min(finish * cells, (cell + 1) * now_ns) - max(start * cells, cell * now_ns)
            if overlap <= 0:
                break
            held[cell][name] += overlap
    total = sum(sum(cell.values()) for cell in held)
    return [_sign(cell, now_ns) for cell in held], total / max(1, now_ns * cells)


def _sign(cell: dict[str, int], full: int) -> str:
    ran = sum(cell.values())
    if ran == 0:
        return " "
    return "·" if 2 * ran < full else max(cell, key=lambda name: cell[name])
