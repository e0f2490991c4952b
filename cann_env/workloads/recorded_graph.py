"""From tasks and their causes to commands, each behind the last of its stream and what it waited for."""

from __future__ import annotations

import heapq
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from cann_env.commands import Command, CommandKind
from cann_env.profiles.recording import TaskKind, Verdict
from cann_env.workloads.recorded_commands import command_of
from cann_env.workloads.recorded_role import Role
from cann_env.workloads.recorded_tasks import SILENT, by_stream

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cann_env.device.spec import DispatchSpec
    from cann_env.profiles.recording import Report
    from cann_env.workloads.recorded_commands import Pricing
    from cann_env.workloads.recorded_links import Edge, Links
    from cann_env.workloads.recorded_tasks import Entry

_PEERS = (TaskKind.COLLECTIVE, TaskKind.PEER_WAIT)


class Written(NamedTuple):
    """Commands, with the position of the entry and the role of each."""

    commands: list[Command]
    entries: list[int]
    roles: list[Role]


class Writer:
    """Writes the commands of a recording one after another.

    Args:
        entries: The tasks.
        links: What they waited for.
        dispatch: What the device adds between commands; delays are shorter by it.
        streams: Recorded numbers of the streams; a command's hint is the place in it.
        pricing: What tasks become.
    """

    def __init__(
        self,
        entries: Sequence[Entry],
        links: Links,
        dispatch: DispatchSpec,
        streams: Sequence[int],
        pricing: Pricing,
    ) -> None:
        self._entries = entries
        self._links = links
        self._gap_ns = dispatch.gap_ns
        self._hints = {stream: hint for hint, stream in enumerate(streams)}
        self._pricing = pricing
        self._written = Written([], [], [])
        self._names: dict[str, int] = {}
        self._last: dict[int, str] = {}
        self._pending: dict[int, dict[str, None]] = {stream: {} for stream in streams}
        self._ends: dict[int, tuple[str, ...]] = {}

    def write(self) -> Written:
        """All commands, in an order in which they can be submitted."""
        causes: dict[int, list[int]] = {}
        for edge in self._links.edges:
            causes.setdefault(edge.task, []).append(edge.cause)
        for i in _submission_order(self._entries, self._links.edges, self._pricing.report):
            self._take(i, causes.get(i, ()))
        return self._written

    def _take(self, i: int, causes: Sequence[int]) -> None:
        entry = self._entries[i]
        stream = entry.task.stream
        pending = self._pending[stream]
        release = 0
        if entry.task.launch_ns is not None:
            release = max(0, entry.task.launch_ns + self._links.latency_ns)
        # The profiler's gap runs behind the kernel before, whatever the task behind it waits for.
        self._wait(i, Role.PROFILER, self._links.profiler.get(i, 0) - 2 * self._gap_ns, 0)
        for cause in causes:
            pending.update(dict.fromkeys(self._ends.get(cause, ())))
        self._wait(i, Role.DELAY, self._links.delays.get(i, 0) - self._gap_ns, release)
        if entry.task.kind not in SILENT:
            command = command_of(entry.task, self._pricing)
            peers = entry.waits or entry.task.kind in _PEERS
            self._put(i, command, Role.PEER if peers else Role.WORK, release)
        last = self._last.get(stream)
        self._ends[i] = (*([last] if last else []), *pending)

    def _wait(self, i: int, role: Role, length: int, release: int) -> None:
        if length > 0:
            name = f"{role.value} before {self._entries[i].task.name}"
            command = Command(name=name, kind=CommandKind.COLLECTIVE, duration_ns=length)
            self._put(i, command, role, release)

    def _put(self, i: int, command: Command, role: Role, release: int) -> None:
        stream = self._entries[i].task.stream
        before = self._last.get(stream)
        after = dict.fromkeys([before] if before else [])
        after.update(self._pending[stream])
        self._pending[stream].clear()
        name = self._unique(command.name)
        self._last[stream] = name
        placed = replace(
            command, name=name, after=tuple(after), release_ns=release, stream_hint=self._hints[stream]
        )
        self._written.commands.append(placed)
        self._written.entries.append(i)
        self._written.roles.append(role)

    def _unique(self, name: str) -> str:
        count = self._names.get(name, 0) + 1
        self._names[name] = count
        return name if count == 1 else self._unique(f"{name} #{count}")


def _submission_order(entries: Sequence[Entry], edges: Sequence[Edge], report: Report) -> list[int]:
    """Positions of all entries, causes and stream predecessors first, else by time.

    Where edges would make tasks wait for each other in a circle, the earliest of them waits for nobody.
    """
    streams = by_stream(entries)
    after: list[list[int]] = [[] for _ in entries]
    waits = [0] * len(entries)
    following = {i: j for members in streams.values() for i, j in pairwise(members)}
    for i, j in [*following.items(), *((edge.cause, edge.task) for edge in edges)]:
        after[i].append(j)
        waits[j] += 1
    heads = {members[0] for members in streams.values()}
    free = [(entries[i].moment_ns, i) for i in heads if waits[i] == 0]
    heapq.heapify(free)
    order: list[int] = []
    while heads:
        if not free:
            stuck = min(heads, key=lambda i: (entries[i].moment_ns, i))
            report.note(Verdict.DROPPED, "causes that close a circle", entries[stuck].task.place)
            waits[stuck] = 0
            free.append((entries[stuck].moment_ns, stuck))
        _, i = heapq.heappop(free)
        order.append(i)
        heads.remove(i)
        if i in following:
            heads.add(following[i])
        for j in after[i]:
            waits[j] -= 1
            if waits[j] == 0 and j in heads:
                heapq.heappush(free, (entries[j].moment_ns, j))
    return order
