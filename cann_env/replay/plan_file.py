"""A schedule as a plan that can be carried away: a JSON file, which replays to the same schedule.

People and other tools read what it says of streams, events and prefetches; the list of actions at its end is
what is played. A plan names the commands of one graph, and is refused for any other.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cann_env.options import RunOptions
from cann_env.program import compile_graph
from cann_env.schedulers import record_schedule
from cann_env.units import InputError
from cann_env.workloads.recorded_role import Role

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cann_env.device.spec import DeviceSpec
    from cann_env.graph import CommandGraph
    from cann_env.schedule import Schedule

FORMAT: Final = "cann-env plan"
VERSION: Final = 1

_MOVES = ("prefetch", "lift", "offload")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFile:
    """What a file of a plan says.

    Attributes:
        graph: Name of the graph.
        device: Name of the device it was made for.
        fingerprint: Of the graph, see :func:`fingerprint`.
        makespan_ns: What the plan reaches on that device.
        options: How it runs.
        actions: All decisions, waits included.
    """

    graph: str
    device: str
    fingerprint: str
    makespan_ns: int
    options: RunOptions
    actions: tuple[int, ...]


def fingerprint(graph: CommandGraph) -> str:
    """A word that two graphs share if their commands have the same names, kinds and predecessors.

    How long commands take is not in it: a plan may be tried on another recording of the same graph.
    """
    rows = [
        [command.name, command.kind.value, list(before)]
        for command, before in zip(graph.commands, graph.predecessors, strict=True)
    ]
    text = json.dumps([rows, [buffer.name for buffer in graph.buffers]], separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def plan_of(
    schedule: Schedule,
    streams: Sequence[int] = (),
    roles: Sequence[str] = (),
    source: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """What the file of a schedule's plan holds.

    Args:
        schedule: Made without noise.
        streams: Recorded number of each stream it was recorded on, to be shown beside the plan's own; empty
            if there are none.
        roles: What each command of the graph stands for, to be shown beside those that are not work.
        source: Where its graph came from, for people: plain data.

    Returns:
        ``format``, ``version``, ``source``, ``graph`` (name, number of commands, fingerprint), ``device``,
        ``makespan_ns``, ``options``; ``streams``: the commands of each in order; ``events``: ``record``
        behind one command, ``wait`` before another, with the stream of each; ``moves``: the buffers that are
        prefetched, lifted or offloaded, each behind the ``after``-th command that is submitted; ``actions``.
    """
    graph = schedule.graph
    names = [command.name for command in graph.commands]
    stream_of = {run.command: run.stream for run in schedule.commands}
    return {
        "format": FORMAT,
        "version": VERSION,
        "source": dict(source or {}),
        "graph": {"name": graph.name, "commands": len(names), "fingerprint": fingerprint(graph)},
        "device": schedule.device.name,
        "makespan_ns": schedule.makespan_ns,
        "options": asdict(schedule.options),
        "streams": [
            {"stream": stream, "commands": [_entry(graph, c, streams, roles) for c in commands]}
            for stream, commands in _queues(schedule).items()
        ],
        "events": [
            {
                "record": names[wait.producer],
                "record_stream": stream_of[wait.producer],
                "wait": names[wait.consumer],
                "wait_stream": stream_of[wait.consumer],
            }
            for wait in schedule.waits
        ],
        "moves": _moves(schedule),
        "actions": list(schedule.actions),
    }


def write_plan(
    schedule: Schedule,
    path: str | Path,
    streams: Sequence[int] = (),
    roles: Sequence[str] = (),
    source: Mapping[str, Any] | None = None,
) -> Path:
    """Write the plan of a schedule, see :func:`plan_of`.

    Raises:
        InputError: The file cannot be written.
    """
    path = Path(path)
    try:
        path.write_text(
            json.dumps(plan_of(schedule, streams, roles, source), indent=1) + "\n", encoding="utf-8"
        )
    except OSError as error:
        raise InputError(f"plan {str(path)!r} cannot be written: {error}") from error
    return path


def read_plan(path: str | Path) -> PlanFile:
    """Read the file of a plan.

    Raises:
        InputError: It cannot be read, or is no plan of a version that is known; says what is wrong.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
        data = json.loads(text)
    except (OSError, ValueError) as error:
        raise InputError(f"plan {str(path)!r} cannot be read: {error}") from error
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise InputError(f'plan {str(path)!r} is none: its entry "format" has to be {FORMAT!r}')
    if data.get("version") != VERSION:
        raise InputError(
            f"plan {str(path)!r} has version {data.get('version')!r}; this package reads version {VERSION}"
        )
    graph = _of_type(path, data, "graph", dict)
    actions = _of_type(path, data, "actions", list)
    if not all(
        isinstance(action, int) and not isinstance(action, bool) and action >= 0 for action in actions
    ):
        raise InputError(f'plan {str(path)!r} has "actions" that are not all whole numbers from 0')
    return PlanFile(
        graph=_of_type(path, graph, "name", str),
        device=_of_type(path, data, "device", str),
        fingerprint=_of_type(path, graph, "fingerprint", str),
        makespan_ns=_of_type(path, data, "makespan_ns", int),
        options=_options(path, _of_type(path, data, "options", dict)),
        actions=tuple(actions),
    )


def play_plan(plan: PlanFile, graph: CommandGraph, device: DeviceSpec) -> Schedule:
    """Play a plan on the graph it was made for; on the device it was made for it reaches its makespan.

    Raises:
        InputError: It was made for another graph or device.
        EpisodeError: Its actions do not finish the graph.
    """
    if plan.fingerprint != fingerprint(graph):
        raise InputError(
            f"the plan is for graph {plan.graph!r} with fingerprint {plan.fingerprint}; graph {graph.name!r} "
            f"has {fingerprint(graph)}: their commands differ in name, kind or order"
        )
    if plan.device != device.name:
        raise InputError(f"the plan is for device {plan.device!r}, not {device.name!r}")
    return record_schedule(compile_graph(graph, device, plan.options), plan.actions)


def _queues(schedule: Schedule) -> dict[int, list[int]]:
    """Commands of each stream that is used, in its order."""
    queues: dict[int, list[int]] = {}
    for run in sorted(schedule.commands, key=lambda run: (run.stream, run.position)):
        queues.setdefault(run.stream, []).append(run.command)
    return queues


def _entry(graph: CommandGraph, command: int, streams: Sequence[int], roles: Sequence[str]) -> dict[str, Any]:
    hint = graph.commands[command].stream_hint
    entry: dict[str, Any] = {"command": graph.commands[command].name}
    if hint is not None and hint < len(streams):
        entry["recorded_stream"] = streams[hint]
    if roles and roles[command] != Role.WORK:
        entry["role"] = str(roles[command])
    return entry


def _moves(schedule: Schedule) -> list[dict[str, Any]]:
    """Buffers that are moved by decision, and how many commands are submitted before each."""
    moves, issued = [], 0
    for call in schedule.host:
        issued += call.call == "issue"
        if call.call in _MOVES:
            moves.append(
                {"move": call.call, "buffer": schedule.graph.buffers[call.target].name, "after": issued}
            )
    return moves


def _of_type(path: str | Path, data: Mapping[str, Any], key: str, wanted: type) -> Any:
    value = data.get(key)
    if not isinstance(value, wanted) or isinstance(value, bool):
        raise InputError(
            f"plan {str(path)!r} has {key!r} = {_brief(value)}; it needs a value of type {wanted.__name__}"
        )
    return value


def _brief(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:39] + "…"


def _options(path: str | Path, values: Mapping[str, Any]) -> RunOptions:
    try:
        return RunOptions(**values)
    except (TypeError, InputError) as error:
        raise InputError(f"plan {str(path)!r} has options that cannot be used: {error}") from error
