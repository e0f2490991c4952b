"""The output folder of the Ascend PyTorch profiler: a timeline, a table of kernels, what lies beside them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from cann_env.profiles.ascend import Operation, Profile
from cann_env.profiles.ascend_metadata import read_api_costs, read_metadata
from cann_env.profiles.ascend_tasks import device_tasks
from cann_env.profiles.ascend_trace import read_timeline
from cann_env.profiles.communication import read_communication, with_figures
from cann_env.profiles.kernel_details import read_kernel_details
from cann_env.profiles.operator_table import clock_hz, level, of_device, read_operators
from cann_env.profiles.recording import Recording, Report, Task, TaskKind, ordered
from cann_env.profiles.streams import NO_STREAM
from cann_env.profiles.words import meaning
from cann_env.units import InputError

if TYPE_CHECKING:
    from cann_env.profiles.ascend import DeviceTask
    from cann_env.profiles.operator_table import Operator

_OUTPUT = "ASCEND_PROFILER_OUTPUT"
_TIMELINES = ("trace_view.json", "trace_view.json.gz")
_KERNELS = "kernel_details.csv"
_COMMUNICATION = "communication.json"
_API = "api_statistic.csv"
_CLOSE_NS = 1_000


def read_folder(path: str | Path) -> Recording:
    """Read what the profiler wrote for one device.

    Args:
        path: The folder ``ASCEND_PROFILER_OUTPUT``, the ``*_ascend_pt`` folder around it, a folder that holds
            one such, or a timeline alone (``trace_view.json``, compressed or not).

    Raises:
        InputError: There is neither a timeline nor a table of kernels, or one of the files is not what its
            name says; names the file and the event, line or column.
    """
    path = Path(path)
    if path.is_file():
        return _of_timeline(path, None)
    folder = _output(path)
    timeline = next((folder / name for name in _TIMELINES if (folder / name).is_file()), None)
    kernels = folder / _KERNELS
    if timeline is not None:
        recording = _of_timeline(timeline, kernels if kernels.is_file() else None)
    elif kernels.is_file():
        recording = read_kernel_details(kernels)
    else:
        raise InputError(
            f"{path} holds neither trace_view.json nor kernel_details.csv; "
            f"give the profiler's folder {_OUTPUT} or the *_ascend_pt folder around it"
        )
    return _completed(recording, folder)


def _output(path: Path) -> Path:
    """The folder of results: the one given, the one in it, or the one in its only ``*_ascend_pt``."""
    if not path.is_dir():
        raise InputError(f"{path}: there is no such file or folder")
    if (path / _OUTPUT).is_dir():
        return path / _OUTPUT
    within = sorted(found for found in path.glob(f"*_ascend_pt/{_OUTPUT}") if found.is_dir())
    if len(within) > 1:
        names = ", ".join(found.parent.name for found in within[:4])
        raise InputError(f"{path} holds recordings of {len(within)} devices ({names}, ...); give one of them")
    return within[0] if within else path


def _of_timeline(timeline: Path, kernels: Path | None) -> Recording:
    report = Report()
    profile, hertz = read_timeline(timeline, report)
    traits = {"profiler": "torch_npu"}
    if kernels is not None:
        operators = of_device(read_operators(kernels, report), None, kernels)
        profile = _joined(profile, operators)
        hertz = hertz or clock_hz(operators)
        traits["level"] = level([operator.task for operator in operators])
    if not profile.tasks and not profile.loose and not profile.operations:
        raise InputError(
            f"{timeline} shows no task of a device; its process should be called Ascend Hardware"
        )
    tasks, origin_ns = ordered(device_tasks(profile, report))
    return Recording(
        name=timeline.name,
        format="timeline of the Ascend PyTorch profiler",
        tasks=tasks,
        origin_ns=origin_ns,
        clock_hz=hertz,
        traits=traits,
        report=report,
    )


def _joined(profile: Profile, operators: list[Operator]) -> Profile:
    """Gives each device task its row of the table; rows without one are loose, or operations of their own."""
    rows = [operator.task for operator in operators if operator.task.kind is not TaskKind.COLLECTIVE]
    finder = _Rows(rows)
    tasks = [replace(task, detail=finder.take(task)) for task in profile.tasks]
    collectives = [operator.task for operator in operators if operator.task.kind is TaskKind.COLLECTIVE]
    return replace(
        profile,
        tasks=tasks,
        operations=_operations(profile.operations, collectives),
        loose=[row for index, row in enumerate(rows) if index not in finder.taken],
    )


class _Rows:
    """Finds rows of the table: by stream, task id and time, else by name and time, else by the very time."""

    def __init__(self, rows: list[Task]) -> None:
        self.taken: set[int] = set()
        self._rows = rows
        self._by_id: dict[tuple[int, int], list[int]] = defaultdict(list)
        self._by_name: dict[str, list[int]] = defaultdict(list)
        self._by_start: dict[int, list[int]] = defaultdict(list)
        for index, row in enumerate(rows):
            if row.task_id is not None and row.stream != NO_STREAM:
                self._by_id[row.stream, row.task_id].append(index)
            else:
                self._by_name[row.name].append(index)
                self._by_start[row.start_ns].append(index)

    def take(self, task: DeviceTask) -> Task | None:
        """The row of a task, which no other then gets; None if it has none."""
        if task.part is not None:
            return None
        ids = [] if task.task_id is None else self._by_id.get((task.stream, task.task_id), [])
        named = self._by_name.get(task.name, [])
        close = self._close(ids, task) or self._close(named, task)
        if not close:
            # A nanosecond may be lost where a file has its times rounded.
            close = [index for ns in (0, -1, 1) for index in self._by_start.get(task.start_ns + ns, [])]
            close = self._close(close, task) if meaning(task.name) is None else []
        if not close:
            return None
        best = min(close, key=lambda index: abs(self._rows[index].start_ns - task.start_ns))
        self.taken.add(best)
        return self._rows[best]

    def _close(self, indices: list[int], task: DeviceTask) -> list[int]:
        """Rows that no task has and that start when the task does."""
        rows = (index for index in indices if index not in self.taken)
        return [index for index in rows if abs(self._rows[index].start_ns - task.start_ns) <= _CLOSE_NS]


def _operations(known: list[Operation], rows: list[Task]) -> list[Operation]:
    """Operations of the timeline with the steps of their rows, and rows that the timeline does not show."""
    left = list(rows)
    found = []
    for operation in known:
        row = next((row for row in left if _same(operation, row)), None)
        if row is None:
            found.append(operation)
        else:
            left.remove(row)
            found.append(replace(operation, op=row.op or operation.op, step=row.step))
    return found + [
        Operation(
            name=row.name,
            op=row.op,
            start_ns=row.start_ns,
            duration_ns=row.duration_ns,
            step=row.step,
            place=row.place,
        )
        for row in left
    ]


def _same(operation: Operation, row: Task) -> bool:
    return operation.name == row.name and abs(operation.start_ns - row.start_ns) <= _CLOSE_NS


def _completed(recording: Recording, folder: Path) -> Recording:
    """With what the files beside the timeline say."""
    tasks = list(recording.tasks)
    if (folder / _COMMUNICATION).is_file():
        figures = read_communication(folder / _COMMUNICATION)
        tasks = with_figures(tasks, figures, recording.origin_ns, recording.report)
    traits = dict(recording.traits)
    if (folder / _API).is_file():
        traits.update(read_api_costs(folder / _API))
    beside = read_metadata(folder, recording.report)
    traits.update(beside.traits)
    name = folder.parent.name if folder.name == _OUTPUT else folder.name
    return replace(
        recording,
        name=name,
        tasks=ordered(tasks)[0],
        clock_hz=recording.clock_hz or beside.clock_hz,
        cube_cores=beside.cube_cores,
        vector_cores=beside.vector_cores,
        chip=beside.chip,
        traits=traits,
    )
