"""Collectives of Ascend profiles: parts that overlap within one stream become a line of tasks in order.

A collective is launched as one task whose subtasks (copies over the links, notify records, notify waits) run
side by side: their stream is no queue at that level. What a replay needs of them is when the device works
and when it waits for others, so the span of a task is cut where only notify waits are running.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from cann_env.profiles.recording import Task, TaskKind, Verdict
from cann_env.spans import union, without

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from cann_env.profiles.ascend import DeviceTask, Operation, Profile
    from cann_env.profiles.recording import Report

SHORTEST_WAIT_NS = 50_000
"""Waits up to this long are steps of the algorithm, in which peers that run abreast meet.

Once all of eight 910B2 have come, the waits between the phases of their all-reduces take 2 to 23 us each
(measured in the recordings among the test data of Ascend/msinsight).
"""

_WAITS = frozenset({"NOTIFY_WAIT", "NOTIFY_WAIT_SQE"})
_SUBTASKS = frozenset({"SDMA", "NOTIFY_WAIT", "NOTIFY_RECORD", "WRITE_VALUE", "RDMA", "ROCE", "UB"})
_ENTRIES = _SUBTASKS | {f"{word}_SQE" for word in _SUBTASKS} | {"MEMCPY_ASYNC", "PCIE_DMA_SQE", "ROCCE_SQE"}
_CLOSE_NS = 1_000


def word_of(text: str) -> str:
    """A word of the recorder in capitals, with underscores for blanks."""
    return re.sub(r"[\s-]+", "_", text.strip()).upper()


def is_entry(word: str) -> bool:
    """Whether a word is one that parts of collectives have in the queues of the hardware."""
    return word_of(word) in _ENTRIES


def is_wait(task: DeviceTask) -> bool:
    """Whether it waits for another device."""
    return word_of(task.word) in _WAITS or (task.part is not None and word_of(task.part.name) in _WAITS)


def split(profile: Profile) -> tuple[list[DeviceTask], list[DeviceTask]]:
    """Tasks that are no part of a collective, and those that are.

    The library says which are. Where it says nothing of any task, those are that move bytes or wait, during a
    collective, launched by the call that launched it.
    """
    calls: dict[int | None, list[Operation]] = defaultdict(list)
    if not any(task.part for task in profile.tasks):
        for operation in profile.operations:
            if operation.call is not None:
                calls[operation.call].append(operation)
    plain: list[DeviceTask] = []
    parts: list[DeviceTask] = []
    for task in profile.tasks:
        (parts if _belongs(task, calls) else plain).append(task)
    return plain, parts


def covers(operation: Operation, task: DeviceTask) -> bool:
    """Whether a task of the same call starts during an operation."""
    return task.call == operation.call is not None and _distance(operation, task) <= _CLOSE_NS


def _belongs(task: DeviceTask, calls: Mapping[int | None, Sequence[Operation]]) -> bool:
    if task.part is not None:
        return True
    word = word_of(task.word)
    if task.subtask is not None:
        return word in _SUBTASKS
    return word in _ENTRIES and any(covers(operation, task) for operation in calls.get(task.call, ()))


def collective_tasks(
    tasks: Sequence[DeviceTask], operations: Sequence[Operation], report: Report
) -> list[tuple[Task, DeviceTask, Operation | None]]:
    """Tasks of collectives, in order within each stream, with a device task and the operation of each.

    Subtasks of one task are collapsed; whole tasks stay what they are.
    """
    finder = _Finder(operations)
    groups: dict[tuple[object, ...], list[DeviceTask]] = defaultdict(list)
    found: list[tuple[Task, DeviceTask, Operation | None]] = []
    for task in tasks:
        if task.subtask is not None:
            groups[task.stream, task.task_id, task.call].append(task)
            continue
        operation = finder.of(task)
        found.append((_whole(task, operation), task, operation))
    for group in groups.values():
        group.sort(key=lambda task: (task.start_ns, task.finish_ns))
        for members in _runs(group, finder):
            operation = finder.of(members[0])
            found += [(piece, members[0], operation) for piece in _collapse(members, operation, report)]
    return found


class _Finder:
    """Which operation a task belongs to: by name, by the host call, else by time."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        self._all = sorted(operations, key=lambda one: one.start_ns)
        self._starts = [one.start_ns for one in self._all]
        self._latest = list(accumulate((one.finish_ns for one in self._all), max))
        self._by_call: dict[int, list[Operation]] = defaultdict(list)
        self._by_name: dict[str, list[Operation]] = defaultdict(list)
        for one in self._all:
            self._by_name[one.name].append(one)
            if one.call is not None:
                self._by_call[one.call].append(one)

    def of(self, task: DeviceTask) -> Operation | None:
        named = self._by_name.get(task.part.operation, []) if task.part else []
        launched = [] if task.call is None else self._by_call.get(task.call, [])
        if named or launched:  # names come again in every step, one call launches a whole graph
            return min(named or launched, key=lambda one: _distance(one, task))
        around = [one for one in self._begun(task.start_ns) if _distance(one, task) <= _CLOSE_NS]
        return min(around, key=lambda one: (_distance(one, task), one.duration_ns), default=None)

    def _begun(self, at_ns: int) -> Iterator[Operation]:
        """Operations begun by then, latest first, as long as any of those left may not have ended."""
        for index in range(bisect_right(self._starts, at_ns + _CLOSE_NS) - 1, -1, -1):
            if self._latest[index] + _CLOSE_NS < at_ns:
                return
            yield self._all[index]


def _distance(operation: Operation, task: DeviceTask) -> int:
    """How far a task starts outside an operation's span."""
    return max(operation.start_ns - task.start_ns, task.start_ns - operation.finish_ns, 0)


def _runs(group: list[DeviceTask], finder: _Finder) -> Iterable[list[DeviceTask]]:
    """Splits subtasks that share numbers (which repeat in long recordings) where the operation changes."""
    run: list[DeviceTask] = []
    current: Operation | None = None
    for task in group:
        operation = finder.of(task)
        if run and operation is not current:
            yield run
            run = []
        current = operation
        run.append(task)
    if run:
        yield run


def _whole(task: DeviceTask, operation: Operation | None) -> Task:
    kind = TaskKind.PEER_WAIT if is_wait(task) else TaskKind.COLLECTIVE
    return Task(
        name=operation.name if operation else task.name,
        kind=kind,
        stream=task.stream,
        start_ns=task.start_ns,
        duration_ns=task.duration_ns,
        task_id=task.task_id,
        op=operation.op if operation else "",
        size_bytes=task.part.size_bytes if task.part and kind is TaskKind.COLLECTIVE else 0,
        event=task.event,
        step=operation.step if operation else None,
        place=task.place,
    )


@dataclass(frozen=True, slots=True)
class _Piece:
    start_ns: int
    finish_ns: int
    waits: bool


def _collapse(group: list[DeviceTask], operation: Operation | None, report: Report) -> list[Task]:
    first = group[0]
    report.note(Verdict.RECOGNISED, "subtasks of collectives, collapsed", first.place, len(group))
    pieces = _pieces(group)
    sizes = _sizes(group, pieces)
    return [
        Task(
            name=operation.name if operation else first.name,
            kind=TaskKind.PEER_WAIT if piece.waits else TaskKind.COLLECTIVE,
            stream=first.stream,
            start_ns=piece.start_ns,
            duration_ns=piece.finish_ns - piece.start_ns,
            task_id=first.task_id,
            op=operation.op if operation else "",
            size_bytes=size,
            step=operation.step if operation else None,
            place=first.place,
        )
        for piece, size in zip(pieces, sizes, strict=True)
    ]


def _pieces(group: list[DeviceTask]) -> list[_Piece]:
    """The span of the subtasks, cut into own work and long waits for peers."""
    start = min(task.start_ns for task in group)
    finish = max(task.finish_ns for task in group)
    works = union((task.start_ns, task.finish_ns) for task in group if not is_wait(task))
    waits = union((task.start_ns, task.finish_ns) for task in group if is_wait(task))
    pieces: list[_Piece] = []
    at = start
    for begin, end in without(waits, works):
        if end - begin <= SHORTEST_WAIT_NS:
            continue
        if begin > at:
            pieces.append(_Piece(at, begin, False))
        pieces.append(_Piece(begin, end, True))
        at = end
    if finish > at or not pieces:
        pieces.append(_Piece(at, finish, False))
    return pieces


def _sizes(group: list[DeviceTask], pieces: list[_Piece]) -> list[int]:
    """Bytes moved in each piece: those over links; what stays on the chip only if nothing else moves."""
    moving = [task for task in group if task.part and task.part.size_bytes and not is_wait(task)]
    linked = [task for task in moving if task.part and not task.part.on_chip]
    sizes = [0] * len(pieces)
    own = [index for index, piece in enumerate(pieces) if not piece.waits]
    for task in linked or moving:
        # A copy that began while the device only waited cannot be: the last piece begun before it is its own.
        index = max((i for i in own if pieces[i].start_ns <= task.start_ns), default=own[0] if own else 0)
        sizes[index] += task.part.size_bytes if task.part else 0
    return sizes
