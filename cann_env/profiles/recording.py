"""What a profiler recorded, whatever it wrote it to: tasks on streams, with times, and where they came from.

Readers of single formats fill a :class:`Recording`; nothing that reads one needs to know the format. Times
are whole nanoseconds since the earliest task of the recording.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cann_env.commands import CopyKind, KernelClass, Operand


class TaskKind(enum.StrEnum):
    """What a task did to its stream.

    ``collective`` is work of the collective engine, its own part; ``peer_wait`` waits for another device
    (a notify wait), so that its length says nothing about this one; ``record``, ``wait`` and ``reset`` are
    those of events; ``other`` occupies its stream and nothing else (markers, placeholders).
    """

    KERNEL = "kernel"
    COPY = "copy"
    COLLECTIVE = "collective"
    PEER_WAIT = "peer_wait"
    RECORD = "record"
    WAIT = "wait"
    RESET = "reset"
    CALLBACK = "callback"
    OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One task of a stream, as recorded.

    Attributes:
        name: As recorded; need not be unique.
        kind: See :class:`TaskKind`.
        stream: As recorded.
        start_ns: From the earliest task of the recording.
        duration_ns: At least 0.
        task_id: The runtime's number of the task in its stream; None if the format has none.
        op: Type of the operator (``MatMulV2``); empty if not recorded.
        kernel_class: KERNEL: the core it ran on; None if not recorded.
        blocks: KERNEL: logical blocks; None if not recorded.
        mix_blocks: KERNEL: blocks on the other kind of core of a mix kernel; 0 if there are none.
        inputs, outputs: KERNEL: the tensors, where recorded.
        core_ns: KERNEL: time that its cores counted, without launch and drain; None if not recorded.
        copy: COPY: its direction; None if not recorded.
        size_bytes: COPY, COLLECTIVE: bytes moved; 0 if not recorded.
        launch_ns: When the host submitted it, on the clock of ``start_ns``; None if not recorded.
        event: Says which wait belongs to which record: equal for both; None if not recorded.
        step: Number of the training step or iteration; None if not recorded.
        place: File and line (or index) it was read from, for messages.
    """

    name: str
    kind: TaskKind
    stream: int
    start_ns: int
    duration_ns: int
    task_id: int | None = None
    op: str = ""
    kernel_class: KernelClass | None = None
    blocks: int | None = None
    mix_blocks: int = 0
    inputs: tuple[Operand, ...] = ()
    outputs: tuple[Operand, ...] = ()
    core_ns: int | None = None
    copy: CopyKind | None = None
    size_bytes: int = 0
    launch_ns: int | None = None
    event: str | None = None
    step: int | None = None
    place: str = ""

    @property
    def finish_ns(self) -> int:
        """When it ended."""
        return self.start_ns + self.duration_ns


class Verdict(enum.StrEnum):
    """What became of something that was read: taken as it stands, completed by a guess, or left out."""

    RECOGNISED = "recognised"
    GUESSED = "guessed"
    DROPPED = "dropped"


@dataclass(slots=True)
class Report:
    """What was recognised, guessed and dropped on the way from a file to a graph, and how often.

    Attributes:
        counts: By verdict and what it is about, in the order of first mention.
        examples: The first place each was met.
    """

    counts: dict[tuple[Verdict, str], int] = field(default_factory=dict)
    examples: dict[tuple[Verdict, str], str] = field(default_factory=dict)

    def note(self, verdict: Verdict, what: str, place: str = "", count: int = 1) -> None:
        """Count something; ``what`` is a noun phrase such as ``"event waits without a record"``."""
        key = verdict, what
        self.counts[key] = self.counts.get(key, 0) + count
        self.examples.setdefault(key, place)

    def rows(self) -> list[dict[str, str | int]]:
        """One row a finding, by verdict: ``verdict``, ``what``, ``count``, ``example``."""
        return [
            {"verdict": verdict.value, "what": what, "count": count, "example": self.examples[verdict, what]}
            for wanted in Verdict
            for (verdict, what), count in self.counts.items()
            if verdict is wanted
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """A profile: what one device did.

    Attributes:
        name: Of the file or folder.
        format: Which reader read it, in a few words for people.
        tasks: By start, then stream, then task id.
        origin_ns: The earliest start on the recorder's own clock.
        clock_hz: Core clock, where counters tell; None if they do not.
        cube_cores, vector_cores: Cores of the device, where the file states them; None if it does not.
        chip: The device's name as recorded; empty if it is not.
        traits: Anything else a reader learnt, by name (``"profiler"``, ``"level"``).
        report: What was recognised, guessed and dropped while reading.
    """

    name: str
    format: str
    tasks: tuple[Task, ...]
    origin_ns: int = 0
    clock_hz: int | None = None
    cube_cores: int | None = None
    vector_cores: int | None = None
    chip: str = ""
    traits: Mapping[str, str] = field(default_factory=dict)
    report: Report = field(default_factory=Report)

    @property
    def streams(self) -> tuple[int, ...]:
        """Numbers of the streams, ascending."""
        return tuple(sorted({task.stream for task in self.tasks}))

    @property
    def steps(self) -> tuple[int, ...]:
        """Numbers of the recorded steps, ascending; empty if there are none."""
        return tuple(sorted({task.step for task in self.tasks if task.step is not None}))

    @property
    def makespan_ns(self) -> int:
        """From the earliest start to the last finish."""
        if not self.tasks:
            return 0
        return max(task.finish_ns for task in self.tasks) - min(task.start_ns for task in self.tasks)


def ordered(tasks: list[Task]) -> tuple[tuple[Task, ...], int]:
    """Tasks by start, stream and id, shifted so that the first starts at 0; and by how much (ns)."""
    if not tasks:
        return (), 0
    origin = min(task.start_ns for task in tasks)
    shifted = [
        replace(
            task,
            start_ns=task.start_ns - origin,
            launch_ns=None if task.launch_ns is None else task.launch_ns - origin,
        )
        for task in tasks
    ]
    # A task that takes no time stands before the one that starts where it ends.
    shifted.sort(key=lambda t: (t.start_ns, t.stream, t.finish_ns, -1 if t.task_id is None else t.task_id))
    return tuple(shifted), origin
