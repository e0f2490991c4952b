"""Projects: activities that hold units of several renewable resources, and what they become on a device.

The resource-constrained project scheduling problem and the job shop are both of this form. A
:class:`Project` is what a file says; :func:`pose` makes of it a graph, an ideal device and options, so that
the engine's makespan is the project's: one unit of time becomes a microsecond, an activity a kernel of one
block that holds its units of the pools, a resource a pool.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

from cann_env.device.load import load_device
from cann_env.graph import Command, CommandGraph, CommandKind, Kernel, KernelClass, Scheme
from cann_env.options import RunOptions, Submission
from cann_env.paths import config_folder
from cann_env.units import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cann_env.device.spec import DeviceSpec

UNIT_NS = 1000
"""What one unit of a project's time lasts."""

MOST_RESOURCES = 4
"""Most resources that one activity may hold at once."""

_NAMED_POOLS = ("aic", "aiv", "aicpu", "sdma", "h2d", "d2h")
_IDLE_POOL = "callback"
_MOST_STREAMS = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """One piece of work that is not interrupted.

    Attributes:
        name: Unique in its project.
        duration: In units of time; 0 for a milestone.
        units: What it holds of each resource while it runs.
        after: Positions of the activities that must finish first.
    """

    name: str
    duration: int
    units: tuple[int, ...]
    after: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """Activities and the resources they share.

    Attributes:
        name: For people and for tables.
        capacities: Units of each resource.
        activities: In any order.
    """

    name: str
    capacities: tuple[int, ...]
    activities: tuple[Activity, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimum:
    """What is known of the least makespan, in units of time.

    Attributes:
        least: No schedule is shorter; None if nothing is known.
        best: A schedule of this length exists; None if nothing is known.
    """

    least: int | None = None
    best: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PosedProblem:
    """A problem with a known optimum, or bounds of it, ready to be compiled.

    Attributes:
        name: For tables and file names.
        graph, device, options: What is run, where and how.
        least_ns: No schedule is shorter; None if nothing is known.
        best_ns: A schedule of this length exists; None if nothing is known.
    """

    name: str
    graph: CommandGraph
    device: DeviceSpec
    options: RunOptions
    least_ns: int | None = None
    best_ns: int | None = None

    @property
    def optimum_ns(self) -> int | None:
        """The least makespan; None if it is not known."""
        return self.best_ns if self.best_ns == self.least_ns else None


def pose(project: Project, optimum: Optimum | None = None) -> PosedProblem:
    """Make of a project what the engine runs.

    - An activity becomes a command of one vector kernel, one block that lasts :data:`UNIT_NS` for each unit
      of its duration and holds its units of the pools. Activities without duration, such as source and sink,
      are left out; what came after them comes after what was before them.
    - The first six resources become the pools aic, aiv, aicpu, sdma, h2d and d2h, further ones pools named
      ``resource7``, ``resource8``, ...; an activity that holds no resource takes one of the callback threads,
      of which there are enough for all.
    - The device is ideal: launch, gaps, events and the host take no time. There are as many streams and slots
      of the window as activities (4096 at most), and no buffers.

    Args:
        project: What is to be done.
        optimum: What is known of its least makespan.

    Raises:
        InputError: An activity holds more than there is, or more than four resources; activities depend on
            each other in a cycle; or there is nothing that takes time.
    """
    _check_units(project)
    before = _without_milestones(project)
    if not before:
        raise InputError(f"project {project.name!r} has no activity that takes time; it needs at least one")
    pools = _pools(len(project.capacities))
    commands = tuple(
        _command(project.activities[i], pools, [project.activities[j].name for j in sorted(earlier)])
        for i, earlier in before.items()
    )
    known = Optimum() if optimum is None else optimum
    return PosedProblem(
        name=project.name,
        graph=CommandGraph(project.name, commands),
        device=ideal_device(dict(zip(pools, project.capacities, strict=True)), idle=len(commands)),
        options=ideal_options(len(commands)),
        least_ns=None if known.least is None else known.least * UNIT_NS,
        best_ns=None if known.best is None else known.best * UNIT_NS,
    )


def ideal_device(capacities: dict[str, int], idle: int = 1) -> DeviceSpec:
    """The device on which nothing takes time but the work itself.

    Args:
        capacities: Units of each pool that the problem names; the others keep one.
        idle: Callback threads.
    """
    device = _ideal()
    return replace(device, pools={**device.pools, _IDLE_POOL: idle, **capacities})


def ideal_options(commands: int) -> RunOptions:
    """Options that keep no command waiting for a stream, a slot of the window or the host."""
    slots = min(commands, _MOST_STREAMS)
    return RunOptions(
        streams=slots,
        commands=slots,
        run_ahead=commands,
        submission=Submission.SINK,
        prefetches=0,
        l2_prefetches=0,
        l2_bytes=0,
    )


@cache
def _ideal() -> DeviceSpec:
    return load_device(config_folder("problems") / "ideal.toml")


def _pools(count: int) -> tuple[str, ...]:
    return *_NAMED_POOLS[:count], *(f"resource{i + 1}" for i in range(len(_NAMED_POOLS), count))


def _command(activity: Activity, pools: Sequence[str], after: Sequence[str]) -> Command:
    demand = tuple((pool, units) for pool, units in zip(pools, activity.units, strict=True) if units)
    kernel = Kernel(
        name=activity.name,
        kernel_class=KernelClass.VECTOR,
        scheme=Scheme.BATCH,
        duration_ns=activity.duration * UNIT_NS,
        demand=demand or ((_IDLE_POOL, 1),),
    )
    return Command(name=activity.name, kind=CommandKind.KERNEL, kernels=(kernel,), after=tuple(after))


def _check_units(project: Project) -> None:
    for activity in project.activities:
        where = f"project {project.name!r}, activity {activity.name!r}"
        if activity.duration < 0 or min(activity.units, default=0) < 0:
            raise InputError(
                f"{where} has duration {activity.duration} and units {list(activity.units)}; "
                "none may be negative"
            )
        for i, (units, capacity) in enumerate(zip(activity.units, project.capacities, strict=True)):
            if units > capacity:
                raise InputError(
                    f"{where} holds {units} of resource {i + 1}, which has {capacity}; it can never start"
                )
        held = sum(units > 0 for units in activity.units)
        if held > MOST_RESOURCES:
            raise InputError(f"{where} holds {held} resources; at most {MOST_RESOURCES} at once are possible")


def _without_milestones(project: Project) -> dict[int, set[int]]:
    """For each activity that takes time those that take time and come directly before it."""
    activities = project.activities
    before: dict[int, set[int]] = {}
    for i in _order(project):
        before[i] = set()
        for j in activities[i].after:
            before[i] |= {j} if activities[j].duration else before[j]
    return {i: before[i] for i, activity in enumerate(activities) if activity.duration}


def _order(project: Project) -> list[int]:
    """Positions of the activities, each behind those it comes after."""
    activities = project.activities
    waiting = [len(set(activity.after)) for activity in activities]
    later: list[list[int]] = [[] for _ in activities]
    for i, activity in enumerate(activities):
        for j in set(activity.after):
            later[j].append(i)
    order = [i for i, count in enumerate(waiting) if count == 0]
    for i in order:  # grows while it is read
        for j in later[i]:
            waiting[j] -= 1
            if waiting[j] == 0:
                order.append(j)
    if len(order) < len(activities):
        raise InputError(f"project {project.name!r}: {_cycle(project, set(order))}")
    return order


def _cycle(project: Project, placed: set[int]) -> str:
    """One circle among the activities that no order could place."""
    activities = project.activities
    trail = [min(i for i in range(len(activities)) if i not in placed)]
    while (earlier := min(j for j in activities[trail[-1]].after if j not in placed)) not in trail:
        trail.append(earlier)
    circle = [*trail[trail.index(earlier) :], earlier][::-1]
    names = " -> ".join(activities[i].name for i in circle)
    return f"activities wait for each other in a cycle: {names}; remove one of these precedences"
