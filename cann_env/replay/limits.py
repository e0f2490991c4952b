"""What keeps a schedule from being shorter: the chain of commands that ends last, link by link.

A chain is walked from the command that finishes last to the start. Each link goes to what its command came
right behind: a predecessor, the command before it on its stream, or else whoever finished last before it and
so may have held what it needed. All times of a chain add up to the makespan.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from cann_env.graph import CommandKind
from cann_env.options import Submission
from cann_env.workloads.recorded_role import Role

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cann_env.schedule import CommandRun, Schedule

KERNELS: Final = "kernels"
COPIES: Final = "copies"
PEERS: Final = "collectives and waits for other devices"
OTHERS: Final = "other tasks"
CALLBACKS: Final = "callbacks"
DELAYS: Final = "delays that nothing explains"
PROFILER: Final = "gaps of the profiler"
HOST: Final = "launches by the host"
BETWEEN: Final = "gaps between commands"

_KINDS = {
    CommandKind.KERNEL: KERNELS,
    CommandKind.COPY: COPIES,
    CommandKind.COLLECTIVE: OTHERS,
    CommandKind.CALLBACK: CALLBACKS,
}
_ROLES = {Role.PEER: PEERS, Role.DELAY: DELAYS, Role.PROFILER: PROFILER}


class Link(NamedTuple):
    """One command of a chain.

    Attributes:
        command: Its index in the graph.
        what: What it is, in a word for people.
        ns: How long it takes.
        behind_ns: How long after the link before it starts.
        why: What that time is: launches by the host, or gaps between commands.
    """

    command: int
    what: str
    ns: int
    behind_ns: int
    why: str


def longest_chain(schedule: Schedule, roles: Sequence[Role]) -> tuple[Link, ...]:
    """The chain of commands that ends last, from its start.

    Args:
        schedule: What ran.
        roles: What each command of its graph stands for.
    """
    runs = {run.command: run for run in schedule.commands}
    before = _before(schedule, runs)
    by_finish = sorted(schedule.commands, key=lambda run: (run.finish_ns, run.start_ns, run.command))
    finishes = [run.finish_ns for run in by_finish]
    links: list[Link] = []
    at: CommandRun | None = by_finish[-1]
    while at is not None:
        due = max((runs[c] for c in before[at.command]), key=lambda run: run.finish_ns, default=None)
        ready_ns = 0 if due is None else due.finish_ns
        launched = _launched_late(schedule, at, ready_ns)
        if not launched and at.start_ns > ready_ns:
            due = _holder(at, ready_ns, by_finish, finishes) or due
            ready_ns = 0 if due is None else due.finish_ns
        links.append(_link(schedule, roles, at, ready_ns, launched))
        at = due
    return tuple(reversed(links))


def shares_of(links: Sequence[Link]) -> dict[str, int]:
    """What a chain spends its time on (ns), the longest first; the sum is the makespan."""
    total: Counter[str] = Counter()
    for link in links:
        total[link.what] += link.ns
        total[link.why] += link.behind_ns
    return {what: ns for what, ns in total.most_common() if ns > 0}


def _before(schedule: Schedule, runs: Mapping[int, CommandRun]) -> list[list[int]]:
    """What each command came after: predecessors, events it waited for, and its stream."""
    before = [list(each) for each in schedule.graph.predecessors]
    for wait in schedule.waits:
        before[wait.consumer].append(wait.producer)
    last: dict[int, int] = {}
    for run in sorted(runs.values(), key=lambda run: (run.stream, run.position)):
        if run.stream in last:
            before[run.command].append(last[run.stream])
        last[run.stream] = run.command
    return before


def _launched_late(schedule: Schedule, run: CommandRun, ready_ns: int) -> bool:
    """Whether the host submitted a command only when nothing else was left to wait for.

    Where submitting costs nothing and all is known, a command that is issued late was held back for cores.
    """
    if schedule.options.submission is Submission.EAGER:
        return run.issue_ns > ready_ns
    return schedule.graph.commands[run.command].release_ns > ready_ns


def _holder(
    run: CommandRun, ready_ns: int, by_finish: Sequence[CommandRun], finishes: Sequence[int]
) -> CommandRun | None:
    """Who finished last while a command that could have started did not; None if nobody did."""
    place = bisect_right(finishes, run.start_ns) - 1
    while place >= 0 and by_finish[place].command == run.command:
        place -= 1
    if place < 0 or by_finish[place].finish_ns <= ready_ns or by_finish[place].start_ns >= run.start_ns:
        return None
    return by_finish[place]


def _link(schedule: Schedule, roles: Sequence[Role], run: CommandRun, ready_ns: int, launched: bool) -> Link:
    what = _ROLES.get(roles[run.command]) or _KINDS[schedule.graph.commands[run.command].kind]
    ns = run.finish_ns - run.start_ns
    return Link(run.command, what, ns, run.start_ns - ready_ns, HOST if launched else BETWEEN)
