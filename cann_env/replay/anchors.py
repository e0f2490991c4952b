"""Errors between external waits: what a replay gets wrong by itself, from one wait for others to the next."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cann_env.workloads.recorded_role import Role

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from cann_env.replay.comparison import Side
    from cann_env.workloads.from_profiler import Imported

EXTERNAL = frozenset(role for role in Role if role.is_external)
"""What stands for something outside of the device."""


class Segment(NamedTuple):
    """The work of one stream between two waits for other devices, idle time in it included.

    Attributes:
        stream: Recorded number of the stream.
        tasks: How many.
        recorded_ns, simulated_ns: From the end of the wait before (or the first start) to the last finish.
    """

    stream: int
    tasks: int
    recorded_ns: int
    simulated_ns: int

    @property
    def error(self) -> float:
        """``simulated / recorded - 1``."""
        return self.simulated_ns / self.recorded_ns - 1 if self.recorded_ns else 0.0


def anchors(imported: Imported, recorded: Side, roles: Collection[Role] = EXTERNAL) -> list[int | None]:
    """For each command the last wait or delay (``roles``) of those it comes after; None for none.

    A command comes after what stands before it on its stream, what it waits for, and what they come after.
    """
    graph = imported.graph
    found: list[int | None] = [None] * len(graph.commands)
    for i in graph.topological_order:
        best: int | None = None
        for j in graph.predecessors[i]:
            anchor = j if imported.roles[j] in roles else found[j]
            if anchor is not None and (best is None or recorded.finishes[anchor] > recorded.finishes[best]):
                best = anchor
        found[i] = best
    return found


def anchored_errors(imported: Imported, recorded: Side, simulated: Side) -> Iterator[int]:
    """Absolute errors of the starts of all work, each counted from its anchor's end (ns)."""
    for i, anchor in enumerate(anchors(imported, recorded)):
        if imported.roles[i] is Role.WORK:
            error = simulated.starts[i] - recorded.starts[i]
            if anchor is not None:
                error -= simulated.finishes[anchor] - recorded.finishes[anchor]
            yield abs(error)


def segments(imported: Imported, recorded: Side, simulated: Side) -> tuple[Segment, ...]:
    """Runs of work of a stream behind the same wait for another device, in their order."""
    groups: dict[tuple[int, int | None], list[int]] = {}
    for i, anchor in enumerate(anchors(imported, recorded, {Role.PEER})):
        if imported.roles[i] is Role.WORK:
            hint = imported.graph.commands[i].stream_hint or 0
            groups.setdefault((hint, anchor), []).append(i)
    found = []
    for (hint, anchor), members in groups.items():
        lengths = [
            max(side.finishes[i] for i in members) - (0 if anchor is None else side.finishes[anchor])
            for side in (recorded, simulated)
        ]
        found.append(Segment(imported.streams[hint], len(members), *lengths))
    return tuple(found)
