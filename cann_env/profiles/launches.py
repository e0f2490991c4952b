"""When the host launched each task, on the device's clock.

Host and device have clocks of their own, which the recorder aligns to within some tens of microseconds. A
launch must not come after the start of what it launched; where one does, the host's clock is ahead.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cann_env.profiles.recording import Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cann_env.profiles.ascend import DeviceTask, Operation, Profile, Step
    from cann_env.profiles.recording import Report, Task

LARGEST_OFFSET_NS = 1_000_000
"""A launch that lies further behind its start than clocks drift apart belongs to something else."""


@dataclass(frozen=True, slots=True)
class Launched:
    """A task with the launch of its own, of the host call, or of neither, on the host's clock."""

    task: Task
    call: int | None
    launch_ns: int | None


def by_call(profile: Profile) -> dict[int, int]:
    """When each host call launched: where an arrow starts, else when the call began."""
    launches = {number: span.start_ns for number, span in profile.calls.items()}
    launched: Sequence[DeviceTask | Operation] = (*profile.tasks, *profile.operations)
    for one in launched:
        if one.call is not None and one.launch_ns is not None:
            launches[one.call] = one.launch_ns
    return launches


def clock_offset(launched: Sequence[Launched], report: Report) -> int:
    """How far the host's clock is ahead of the device's (ns), at least 0; noted as guessed.

    The smallest shift after which no launch comes after its start. Launches that lie more than
    ``LARGEST_OFFSET_NS`` behind count only if most do.
    """
    pairs = [(one.launch_ns - one.task.start_ns, one) for one in launched if one.launch_ns is not None]
    late = [lead for lead, _ in pairs if lead > 0]
    far = [lead for lead in late if lead > LARGEST_OFFSET_NS]
    if not late:
        return 0
    trusted = late if 2 * len(far) > len(pairs) else [lead for lead in late if lead <= LARGEST_OFFSET_NS]
    offset = max(trusted, default=0)
    if offset:
        place = max(pairs, key=lambda pair: (pair[0] == offset, -pair[0]))[1].task.place
        what = f"clock of the host, ahead of the device's by {offset} ns, set back"
        report.note(Verdict.GUESSED, what, place, len(late))
    return offset


def on_device_clock(one: Launched, offset: int, report: Report) -> int | None:
    """The launch of a task on the device's clock; None if it has none or one that cannot be its own."""
    if one.launch_ns is None:
        report.note(Verdict.DROPPED, "launch times, not recorded", one.task.place)
        return None
    launch = one.launch_ns - offset
    if launch > one.task.start_ns:
        report.note(Verdict.DROPPED, "launch times long after the start", one.task.place)
        return None
    return launch


def step_of(one: Launched, steps: Sequence[Step], launches: Mapping[int, int]) -> int | None:
    """The step a task was launched in, else the last begun when it started; ``steps`` by start."""
    if one.task.step is not None:
        return one.task.step
    at = one.launch_ns
    if at is None and one.call is not None:
        at = launches.get(one.call)
    if at is not None:
        return next((step.number for step in steps if step.start_ns <= at < step.finish_ns), None)
    begun = [step.number for step in steps if step.start_ns <= one.task.start_ns]
    return begun[-1] if begun else None


def with_steps(tasks: Sequence[Task], report: Report) -> list[Task]:
    """Gives tasks without a step that of the task before them on their stream, else of the one behind.

    Only operator tables number steps where the framework's ranges are missing, and they have no copies and
    no events. Tasks of streams without any numbered task get the step last begun by then.
    """
    if any(task.step is None for task in tasks) and any(task.step is not None for task in tasks):
        return _filled(tasks, report)
    return list(tasks)


def _filled(tasks: Sequence[Task], report: Report) -> list[Task]:
    begun: dict[int, int] = {}
    for task in tasks:
        if task.step is not None:
            begun[task.step] = min(begun.get(task.step, task.start_ns), task.start_ns)
    order = sorted(range(len(tasks)), key=lambda i: (tasks[i].start_ns, tasks[i].finish_ns))
    found = {i: tasks[i].step for i in order}
    for sequence in (order, order[::-1]):
        last: dict[int, int] = {}
        for i in sequence:
            step = found[i]
            if step is not None:
                last[tasks[i].stream] = step
            else:
                found[i] = last.get(tasks[i].stream)
    result = list(tasks)
    for i, step in found.items():
        if tasks[i].step is None:
            at = tasks[i].start_ns
            guess = step if step is not None else max((s for s in begun if begun[s] <= at), default=None)
            if guess is not None:
                report.note(Verdict.GUESSED, "steps of tasks, from their neighbours", tasks[i].place)
                result[i] = replace(tasks[i], step=guess)
    return result
