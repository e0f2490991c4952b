"""A schedule, or two, as one JSON document: all that the page draws and says, nothing that it has to compute.

Rows are columns: one list for each field, indexed as the graph is. Times are nanoseconds, sizes bytes.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

from cann_env.metrics import ai_core_ns
from cann_env.render import palette
from cann_env.render.moves import CARRIERS, TITLES, seen
from cann_env.render.palette import POOL_TITLES
from cann_env.render.rows import pack
from cann_env.render.timeline.curves import curves
from cann_env.render.timeline.facts import facts
from cann_env.waiting import critical_chain, delays

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cann_env.render.timeline.facts import Facts
    from cann_env.schedule import BlockRun, Schedule
    from cann_env.waiting import Chain, Delay

FORMAT: Final = "cann-env timeline"
VERSION: Final = 1


def document(
    schedule: Schedule,
    against: Schedule | None = None,
    *,
    labels: tuple[str, str] = ("", ""),
    streams: Sequence[int] = (),
) -> dict[str, Any]:
    """What the page of a timeline shows.

    Args:
        schedule: A finished schedule.
        against: Another one to show below it on the same axis, or None.
        labels: What to call each of them, such as the names of their schedulers.
        streams: For each command of the first the stream to show it on, by its index, where that is not the
            engine's own number; see :class:`~cann_env.render.timeline.whatif.Edited`. Empty for none.

    Returns:
        ``format``, ``version``, ``colours`` (of classes, causes and calls) and ``schedules``, one or two;
        each has ``label``, ``graph``, ``device``, ``makespan_ns``, ``lower_bound_ns``, ``figures``,
        ``buffers``, ``commands``, ``blocks``, ``moves``, ``host``, ``events``, ``path`` and ``curves``.
        Ready for ``json.dumps``; equal schedules give equal documents.
    """
    shown = [side_of(schedule, labels[0], streams)]
    if against is not None:
        shown.append(side_of(against, labels[1]))
    return joined(shown)


def joined(sides: list[dict[str, Any]]) -> dict[str, Any]:
    """The document of one or two schedules, each as :func:`side_of` makes it."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "colours": {
            "classes": palette.CLASS_COLOURS,
            "causes": palette.CAUSE_COLOURS,
            "calls": palette.CALL_COLOURS,
            "requests": list(palette.REQUEST_COLOURS),
            "other": palette.OTHER,
        },
        "schedules": sides,
    }


def side_of(schedule: Schedule, label: str, streams: Sequence[int] = ()) -> dict[str, Any]:
    """One schedule of a document; see :func:`document`."""
    known, delay, chain = facts(schedule), delays(schedule), critical_chain(schedule)
    return {
        "label": label,
        "graph": schedule.graph.name,
        "device": schedule.device.label,
        "makespan_ns": schedule.makespan_ns,
        "lower_bound_ns": schedule.lower_bound_ns,
        "streams": schedule.options.streams,
        "window": schedule.options.window.value,
        "figures": {
            "ai_core_busy": ai_core_ns(schedule) / max(schedule.makespan_ns, 1),
            "peak_hbm_bytes": schedule.peak_hbm_bytes,
            "stall_ns": schedule.stall._asdict(),
            "event_waits": len(schedule.waits),
        },
        "buffers": {
            "name": [buffer.name for buffer in schedule.graph.buffers],
            "bytes": [buffer.size_bytes for buffer in schedule.graph.buffers],
        },
        "commands": _commands(schedule, known, delay, chain, streams),
        "blocks": _blocks(schedule),
        "moves": _moves(schedule),
        "host": {
            "call": [call.call for call in schedule.host],
            "target": [call.target for call in schedule.host],
            "start": [call.start_ns for call in schedule.host],
            "finish": [call.end_ns for call in schedule.host],
        },
        "events": [list(wait) for wait in schedule.waits],
        "path": _path(chain),
        "curves": [
            {
                "key": curve.key,
                "title": curve.title,
                "unit": curve.unit,
                "colour": curve.colour,
                "most": curve.most,
                "times": curve.series.times_ns.tolist(),
                "values": curve.series.values.tolist(),
            }
            for curve in curves(schedule)
        ],
    }


def _commands(
    schedule: Schedule,
    known: Sequence[Facts],
    delay: Sequence[Delay],
    chain: Chain,
    streams: Sequence[int],
) -> dict[str, list[Any]]:
    runs = sorted(schedule.commands)
    commands = schedule.graph.commands
    on_path = set(chain.commands)
    return {
        "name": [command.name for command in commands],
        "kind": [command.kind.value for command in commands],
        "class": [each.work_class for each in known],
        "op": [command.kernels[0].op if command.kernels else "" for command in commands],
        "request": [command.request for command in commands],
        "stream": list(streams) or [run.stream for run in runs],
        "engine_stream": [run.stream for run in runs],
        "position": [run.position for run in runs],
        "blocks": [each.blocks for each in known],
        "kernels": [len(command.kernels) for command in commands],
        "released": [command.release_ns for command in commands],
        "ready": [each.ready_ns for each in delay],
        "submitted": [run.issue_ns for run in runs],
        "eligible": [each.eligible_ns for each in delay],
        "start": [run.start_ns for run in runs],
        "finish": [run.finish_ns for run in runs],
        "read": [each.read_bytes for each in known],
        "written": [each.written_bytes for each in known],
        "l2": [each.l2_bytes for each in known],
        "waits": [
            [[s.cause.value, s.start_ns, s.finish_ns, s.behind] for s in each.stretches] for each in delay
        ],
        "operands": [[list(operand) for operand in each.operands] for each in known],
        "writes": [
            [schedule.graph.buffer_index[name] for name in dict.fromkeys(command.writes)]
            for command in commands
        ],
        "before": [list(before) for before in schedule.graph.predecessors],
        "critical": [int(i in on_path) for i in range(len(commands))],
    }


def _blocks(schedule: Schedule) -> dict[str, list[Any]]:
    """Blocks in lanes of their pools, a lane for each die and pool and for what runs there at once."""
    groups: dict[tuple[int, int], list[BlockRun]] = defaultdict(list)
    pools = list(schedule.device.pool_names)
    for block in schedule.blocks:
        for pool in schedule.demand_of(block):
            groups[block.die, pools.index(pool)].append(block)
    rows: dict[str, list[Any]] = {
        name: []
        for name in ("lanes", "lane", "command", "kernel", "class", "blocks", "held", "start", "finish")
    }
    for die, place in sorted(groups):
        pool, found = pools[place], groups[die, place]
        found.sort(key=lambda block: (block.start_ns, block.command, block.kernel))
        lanes = pack([(block.start_ns, block.finish_ns) for block in found])
        first = len(rows["lanes"])
        title = POOL_TITLES.get(pool, pool)
        title = f"die {die} {title}" if schedule.device.dies > 1 else title
        rows["lanes"] += [title if lane == 0 else "" for lane in range(max(lanes) + 1)]
        for lane, block in zip(lanes, found, strict=True):
            rows["lane"].append(first + lane)
            rows["command"].append(block.command)
            rows["kernel"].append(block.kernel)
            rows["class"].append(block.work_class)
            rows["blocks"].append(block.blocks)
            rows["held"].append(block.blocks * schedule.demand_of(block)[pool])
            rows["start"].append(block.start_ns)
            rows["finish"].append(block.finish_ns)
    return rows


def _moves(schedule: Schedule) -> dict[str, list[Any]]:
    """Buffers on the move, in lanes below each other: from the host, to the host, into L2."""
    buffers = schedule.graph.buffers
    found = [m for m in seen(schedule.transfers, schedule.makespan_ns) if m.finish_ns > m.start_ns]
    kinds = list(TITLES)
    groups: dict[tuple[int, int], list[Any]] = defaultdict(list)
    for move in found:
        if move.cause in CARRIERS:
            groups[kinds.index(CARRIERS[move.cause]), buffers[move.buffer].die].append(move)
    rows: dict[str, list[Any]] = {
        name: []
        for name in ("lanes", "lane", "buffer", "cause", "asked", "start", "finish", "bytes", "which")
    }
    several = len({die for _, die in groups}) > 1
    which: dict[int, int] = defaultdict(int)
    for kind, die in sorted(groups):
        ordered = sorted(groups[kind, die], key=lambda move: (move.start_ns, move.finish_ns, move.buffer))
        lanes = pack([(move.start_ns, move.finish_ns) for move in ordered])
        first = len(rows["lanes"])
        title = f"die {die} {TITLES[kinds[kind]]}" if several else TITLES[kinds[kind]]
        rows["lanes"] += [title if lane == 0 else "" for lane in range(max(lanes) + 1)]
        for lane, move in zip(lanes, ordered, strict=True):
            rows["lane"].append(first + lane)
            rows["buffer"].append(move.buffer)
            rows["cause"].append(move.cause)
            rows["asked"].append(move.reserve_ns)
            rows["start"].append(move.start_ns)
            rows["finish"].append(move.finish_ns)
            rows["bytes"].append(move.size_bytes or buffers[move.buffer].size_bytes)
            rows["which"].append(which[move.buffer] if move.cause == "prefetch" else None)
            which[move.buffer] += move.cause == "prefetch"
    return rows


def _path(chain: Chain) -> dict[str, Any]:
    return {
        "segments": [
            [link.part.value, link.command, list(link.buffers), link.start_ns, link.finish_ns]
            for link in chain.links
        ],
        "links": [[hop.before, hop.after, hop.part.value, hop.at_ns] for hop in chain.hops],
        "length_ns": {part.value: ns for part, ns in chain.parts_ns.items() if ns},
    }
