"""What an Ascend profile says before anything is made of it, whether it lies in JSON or in a database.

The readers of both forms fill these records; :mod:`cann_env.profiles.ascend_tasks` makes tasks of them.
Times are whole nanoseconds of the recorder's own clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cann_env.profiles.recording import Task

NO_NUMBER = 2**32 - 1
"""What the tools write where a task has no subtask, model or context."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What the communication library says of a task that belongs to a collective.

    Attributes:
        name: ``Memcpy``, ``Reduce_Inline``, ``Notify_Wait``, ``RDMASend``, ...
        size_bytes: Bytes moved; 0 if it moves none or they were not recorded.
        on_chip: The bytes stay on the device.
        operation: Name of the collective; empty if it has to be found by time.
    """

    name: str
    size_bytes: int = 0
    on_chip: bool = False
    operation: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceTask:
    """One entry of a hardware stream.

    Attributes:
        name: As recorded.
        word: The recorder's word for what it is (``AI_CORE``, ``PCIE_DMA_SQE``, ``Notify Wait``).
        stream: As recorded.
        start_ns, duration_ns: When it ran.
        task_id: The runtime's number of the task in its stream; None if not recorded.
        subtask: Its number within the task, of tasks whose parts overlap; None of a whole task.
        call: Number of the host call that launched it; None if not recorded.
        launch_ns: When the host launched it, where an arrow points at this very task; None if none does.
        detail: What an operator table says of it; None if it stands in none.
        size_bytes: Bytes copied; 0 if not recorded.
        direction: Of a copy, as recorded (``host to device``); empty if not.
        event: Number of the event, as recorded; None if not.
        part: What the communication library says of it; None if it says nothing.
        place: File and event or row, for messages.
    """

    name: str
    word: str
    stream: int
    start_ns: int
    duration_ns: int
    task_id: int | None = None
    subtask: int | None = None
    call: int | None = None
    launch_ns: int | None = None
    detail: Task | None = None
    size_bytes: int = 0
    direction: str = ""
    event: str | None = None
    part: Part | None = None
    place: str = ""

    @property
    def finish_ns(self) -> int:
        """When it ended."""
        return self.start_ns + self.duration_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """A collective as the communication library sees it: one span over all its tasks.

    Attributes:
        name: ``hcom_allReduce__271_0_1``.
        op: Its type, ``hcom_allReduce_``.
        start_ns, duration_ns: When it ran.
        call: Number of the host call that launched it; None if not recorded.
        launch_ns: See :class:`DeviceTask`.
        step: Number of the step, where an operator table says it; None if none does.
        place: File and event or row, for messages.
    """

    name: str
    op: str
    start_ns: int
    duration_ns: int
    call: int | None = None
    launch_ns: int | None = None
    step: int | None = None
    place: str = ""

    @property
    def finish_ns(self) -> int:
        """When it ended."""
        return self.start_ns + self.duration_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A range on a thread of the host.

    Attributes:
        name: Of the call or of the framework's operator.
        thread: Any number or text that tells threads apart.
        start_ns, finish_ns: On the host's clock.
    """

    name: str
    thread: object
    start_ns: int
    finish_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A training step or iteration, on the host's clock."""

    number: int
    start_ns: int
    finish_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """All that was read.

    Attributes:
        name: Of the file or folder.
        tasks: Of one device.
        operations: Collectives.
        calls: Host calls by the number that tasks refer to.
        hints: Ranges of the host whose names tell which way a copy inside them goes.
        steps: In any order.
        loose: Tasks of operator tables that no device task is.
    """

    name: str
    tasks: list[DeviceTask]
    operations: list[Operation] = field(default_factory=list)
    calls: Mapping[int, Span] = field(default_factory=dict)
    hints: list[Span] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    loose: list[Task] = field(default_factory=list)
