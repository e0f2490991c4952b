"""Prefetching that learns from its own runs: triggers move earlier where a buffer came too late.

The first run fetches on demand and shows who misses what. From then on each miss has a *trigger*, the
command with whose finish its prefetch begins: at first the latest one that leaves time for the transfer.
After each run the trigger of a buffer that its user had to wait for moves earlier by as long as it waited;
what was missed for the first time gets a trigger of its own; what had to be written back to make room is from
now on sent to the host right after its last use. The best of all runs is kept (Capuchin, ASPLOS 2020).
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cann_env.schedulers.policy import EpisodeError, Plan, rollout
from cann_env.schedulers.prefetch import Follow, Move
from cann_env.schedulers.recording import record_schedule
from cann_env.schedulers.usage import Milestones, Usage

if TYPE_CHECKING:
    from cann_env.program import Program
    from cann_env.schedule import Schedule
    from cann_env.schedulers.policy import Policy


@dataclass(slots=True)
class _Triggers:
    """What the runs so far have taught.

    Attributes:
        lead_ns: How long before the start of its user each fetch begins, by buffer and user.
        sent: Buffers to send away after a command, as ``(buffer, command)``.
    """

    lead_ns: dict[tuple[int, int], int] = field(default_factory=dict)
    sent: set[tuple[int, int]] = field(default_factory=set)

    def learn(self, usage: Usage, schedule: Schedule) -> None:
        """Look at who had to wait for what."""
        waited = _waits(usage, schedule)
        for key, late_ns in waited.items():
            if key in self.lead_ns:
                self.lead_ns[key] += max(late_ns, 1)
            else:
                self.lead_ns[key] = usage.transfer_ns(key[0], "h2d")
        finish = {run.command: run.finish_ns for run in schedule.commands}
        for move in schedule.transfers:
            if move.cause == "writeback":
                users = [usage.sequence[place] for place in usage.positions[move.buffer]]
                past = [c for c in users if finish[c] <= move.reserve_ns]
                if past:
                    self.sent.add((move.buffer, max(past, key=lambda c: finish[c])))

    def moves(self, usage: Usage, schedule: Schedule) -> tuple[tuple[Move, ...], tuple[Move, ...]]:
        """Fetches and offloads, in order of use, for an order and times as in a schedule."""
        milestones = Milestones.of(schedule)
        start = {run.command: run.start_ns for run in schedule.commands}
        place_of = {c: place for place, c in enumerate(usage.sequence)}
        fetches = []
        for (b, user), lead_ns in self.lead_ns.items():
            before = [place for place in usage.positions[b] if place < place_of[user]]
            trigger = milestones.before(start[user] - lead_ns)
            done = {*trigger, *(usage.sequence[place] for place in before[-1:])}
            fetches.append((place_of[user], Move(b, user, tuple(sorted(done)))))
        offloads = []
        for b, c in self.sent:
            later = [place for place in usage.positions[b] if place > place_of[c]]
            user = usage.sequence[later[0]] if later else -1
            offloads.append((place_of[c], Move(b, user, done=(c,))))
        return tuple(m for _, m in sorted(fetches)), tuple(m for _, m in sorted(offloads))


def _waits(usage: Usage, schedule: Schedule) -> dict[tuple[int, int], int]:
    """For each buffer and user that fetched it or had to wait for its prefetch: how long, ns."""
    start = {run.command: run.start_ns for run in schedule.commands}
    ready = _ready(usage, schedule)
    waits = {}
    for move in schedule.transfers:
        if move.cause not in ("fault", "prefetch"):
            continue
        users = [usage.sequence[place] for place in usage.positions[move.buffer]]
        user = min((c for c in users if start[c] >= move.finish_ns), key=lambda c: start[c], default=-1)
        if user >= 0 and (move.cause == "fault" or move.finish_ns > ready[user]):
            waits[move.buffer, user] = max(0, move.finish_ns - ready[user])
    return waits


def _ready(usage: Usage, schedule: Schedule) -> dict[int, int]:
    """When each command was issued and everything before it was done, ns."""
    finish = {run.command: run.finish_ns for run in schedule.commands}
    behind = {(run.stream, run.position + 1): run.finish_ns for run in schedule.commands}
    before = usage.program.graph.predecessors
    return {
        run.command: max(
            run.issue_ns, behind.get((run.stream, run.position), 0), *(finish[c] for c in before[run.command])
        )
        for run in schedule.commands
    }


@dataclass(frozen=True, slots=True)
class Feedback:
    """Learn triggers from runs under expected durations; see the top of this file.

    Attributes:
        order: The policy that decides everything else.
        rounds: Runs after the first.
    """

    order: Policy
    rounds: int = 8

    def choose(self, program: Program) -> Policy:
        """The policy of the best run; the order itself if none is better than that.

        Raises:
            EpisodeError: The order of issue does not finish.
        """
        best: Policy = deepcopy(self.order)
        outcome = rollout(program, deepcopy(self.order))
        least = outcome.objective_ns
        schedule = record_schedule(program, outcome.actions)
        triggers = _Triggers()
        for _ in range(self.rounds):
            usage = Usage.in_schedule(program, schedule)
            triggers.learn(usage, schedule)
            moves = triggers.moves(usage, schedule)
            try:
                outcome = rollout(program, Follow(deepcopy(self.order), *moves))
            except EpisodeError:
                break
            if outcome.objective_ns < least:
                best, least = Follow(deepcopy(self.order), *moves), outcome.objective_ns
            schedule = record_schedule(program, outcome.actions)
        return best

    def plan(self, program: Program) -> Plan:
        """All decisions under expected durations."""
        return Plan(rollout(program, self.choose(program)).actions)
