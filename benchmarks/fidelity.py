"""How far the simulator is from recordings: what was recorded beside what it says.

``python benchmarks/fidelity.py --data DIR [--json] [--parts PART ...]``. The folder holds recordings of
Ascend devices, and of GPUs in PyTorch's format.

replay: Recorded durations in recorded streams and order. Errors of the makespan and of starts, and, beside
    them, how much of the makespan is pinned: launches, waits for other devices, idle time that nothing
    explains. Where there is another run of the same program, also with its edges and delays.
left_out: Errors of modelled durations of single kernels, each recording priced by constants that were fitted
    to the others.
segments: The same durations in the engine: from one wait for other devices to the next, with constants fitted
    without the recording and with those of the device files.
tables: Products of matrices and bandwidths of vector kernels, measured and modelled.
artefacts: Gaps that profilers leave behind kernels, and the dispatch times of the device files.
kineto: Replays of PyTorch traces, as the first part.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

import fit_cost
from bandwidths import bandwidths
from kernel_samples import load_samples
from tables import arguments, number, print_json, print_table, progress

from cann_env.device import load_device
from cann_env.graph import CommandGraph
from cann_env.profiles.read import read_profile
from cann_env.replay import device_of, replay
from cann_env.units import InputError
from cann_env.workloads.foreign_device import foreign_device
from cann_env.workloads.from_profiler import Durations, from_profiler
from cann_env.workloads.recorded_role import Role

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from cann_env.device.spec import DeviceSpec
    from cann_env.profiles import Recording
    from cann_env.replay import Comparison
    from cann_env.workloads.from_profiler import Imported

PARTS = ("replay", "left_out", "segments", "tables", "artefacts", "kineto")
ALL = "all files"
US = 1000


class ReplayRow(NamedTuple):
    """One recording, or one step of it, played again.

    Attributes:
        recording, step: Which.
        tasks: Tasks that were played.
        makespan: As recorded (ms).
        error: Of the replay's makespan (%).
        start, start_p90: Median and 90th percentile of the errors of starts (us).
        between, between_p90: The same, counted from the last wait for others or delay (us).
        pinned: Part of the makespan that no known work of this device stands for (%).
        borrowed: Error of the makespan with edges and delays of another run of the same program (%).
    """

    recording: str
    step: str
    tasks: int
    makespan: float
    error: float
    start: float
    start_p90: float
    between: float
    between_p90: float
    pinned: float
    borrowed: float | None


class SegmentRow(NamedTuple):
    """Work between waits for other devices with modelled durations.

    Attributes:
        recording, step: Which.
        segments: How many.
        recorded: Their sum (ms).
        left_out: Error of the sum, constants fitted without the recording (%).
        files: The same with the constants of the device files (%).
        within: Part of the recorded time in segments that are within 7 % (%), likewise without it.
    """

    recording: str
    step: str
    segments: int
    recorded: float
    left_out: float
    files: float
    within: float


class ErrorRow(NamedTuple):
    """Modelled durations of single kernels, constants fitted without their recording; errors in %."""

    recording: str
    kernels_of: str
    kernels: int
    median: float
    p90: float
    total: float


class ArtefactRow(NamedTuple):
    """A recording's own gap behind kernels, and the gaps of its device's file (us)."""

    recording: str
    device: str
    profiler: float
    gap: float
    mix_switch: float
    wake: float


def main() -> None:
    """Read the arguments, measure, and print."""
    parser = arguments(__doc__, device=False)
    parser.add_argument("--data", type=Path, required=True, help="folder with recordings")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="what to measure")
    options = parser.parse_args()
    with progress(len(options.parts)) as begin:
        tables = measure(options.data, options.parts, begin)
    if options.json:
        print_json(**tables)
        return
    for title, rows in tables.items():
        if rows:
            columns = [name.replace("_", " ") for name in rows[0]._fields]
            print_table(title.replace("_", " "), columns, [[_text(v) for v in row] for row in rows])


def measure(
    data: Path, parts: Sequence[str], begin: Callable[[str], None]
) -> dict[str, Sequence[NamedTuple]]:
    """The rows of every part that is asked for, by its name."""
    tables: dict[str, Sequence[NamedTuple]] = {}
    recordings = list(_recordings(data))
    if "replay" in parts:
        begin("recorded durations")
        tables["replay"] = [row for one in recordings for row in replay_rows(one, recordings)]
    if {"left_out", "segments", "tables"} & {*parts}:
        begin("constants, one recording left out")
        samples = load_samples(data)
        unseen = fit_cost.left_out(samples, lambda sample: sample.file)
        if "left_out" in parts:
            tables["left_out"] = error_rows(unseen)
        if "segments" in parts:
            begin("segments")
            tables["segments"] = [row for one in recordings for row in segment_rows(one, unseen)]
        if "tables" in parts:
            begin("constants, nothing left out")
            fitted = {family.NAME: family.fit(samples) for family in fit_cost.FAMILIES}
            seen = fit_cost.price(fitted, samples)
            tables["products"] = fit_cost.products(unseen, seen)
            tables["bandwidths"] = bandwidths(unseen, seen)
    if "artefacts" in parts:
        begin("gaps")
        tables["artefacts"] = [artefact_row(one) for one in recordings]
    if "kineto" in parts:
        begin("PyTorch traces")
        tables["kineto"] = [row for one in _recordings(data, foreign=True) for row in replay_rows(one)]
    return tables


class Known(NamedTuple):
    """A recording, its name, and the device that fits it."""

    name: str
    recording: Recording
    device: DeviceSpec


def _recordings(data: Path, *, foreign: bool = False) -> Iterator[Known]:
    """Everything under a folder that can be read and whose device is known, or, if foreign, is not."""
    folders = {path.parent for path in data.glob("**/kernel_details.csv")}
    files = {path for path in data.glob("**/*.csv") if path.parent not in folders}
    traces = {path for path in data.glob("**/*.json.gz") if path.parent not in folders}
    for path in sorted(traces if foreign else folders | files):
        try:
            recording = read_profile(path)
        except InputError:
            continue  # a table that is no profile
        name = path.name.removesuffix(".csv").removesuffix(".json.gz")
        if foreign:
            yield Known(name, recording, foreign_device(recording))
        elif device_of(recording) is not None:
            yield Known(name, recording, load_device(device_of(recording) or ""))


def replay_rows(known: Known, others: Sequence[Known] = ()) -> list[ReplayRow]:
    """Replays with recorded durations, a row a step.

    Args:
        known: What is played.
        others: Recordings among which there may be another run of the same program.
    """
    rows = []
    for step in _steps(known):
        imported = from_profiler(known.recording, step=step, device=known.device)
        found = replay(imported, known.device).comparison
        rows.append(_replay_row(known.name, step, imported, found, _borrowed(known, step, others)))
    return rows


def _steps(known: Known) -> Sequence[int | None]:
    """Steps to be played one by one; none where launches are known, which run ahead of steps."""
    steps = known.recording.steps
    launched = any(task.launch_ns is not None for task in known.recording.tasks)
    return (None,) if launched or len(steps) < 2 else steps


def _borrowed(known: Known, step: int | None, others: Sequence[Known]) -> float | None:
    """Error with edges and delays of another step, or of another run of the program; None without any."""
    like: int | Recording | None = None
    if step is not None:
        steps = known.recording.steps
        like = steps[0] if step != steps[0] else steps[-1]
    else:
        names = {task.name for task in known.recording.tasks}
        for other in others:
            if other.name != known.name and {task.name for task in other.recording.tasks} == names:
                like = other.recording
    if like is None:
        return None
    imported = from_profiler(known.recording, step=step, like=like, device=known.device)
    return 100 * replay(imported, known.device).comparison.error


def _replay_row(
    name: str, step: int | None, imported: Imported, found: Comparison, borrowed: float | None
) -> ReplayRow:
    return ReplayRow(
        recording=name,
        step="all" if step is None else str(step),
        tasks=sum(role in (Role.WORK, Role.PEER) for role in imported.roles),
        makespan=found.recorded_ns / 1e6,
        error=100 * found.error,
        start=found.starts.median_ns / US,
        start_p90=found.starts.p90_ns / US,
        between=found.starts_between_waits.median_ns / US,
        between_p90=found.starts_between_waits.p90_ns / US,
        pinned=100 * found.path.pinned,
        borrowed=borrowed,
    )


def error_rows(unseen: Sequence[fit_cost.Priced]) -> list[ErrorRow]:
    """Errors of single kernels by recording and family, those of all files first."""
    rows = [
        ErrorRow(row.file, row.op, row.kernels, 100 * row.median, 100 * row.p90, 100 * row.total)
        for row in fit_cost.summary(unseen, by_op=False)
    ]
    return sorted(rows, key=lambda row: (row.recording != ALL, row.recording))


def segment_rows(known: Known, unseen: Sequence[fit_cost.Priced]) -> list[SegmentRow]:
    """Modelled durations in the engine, with constants of the other recordings and of the device files."""
    modelled: dict[tuple[str, int], list[int]] = defaultdict(list)
    for one in unseen:
        if one.sample.file == known.name:
            modelled[one.sample.kernel.name, one.sample.duration_ns].append(one.modelled_ns)
    if not modelled:
        return []
    return [_segment_row(known, step, modelled) for step in _steps(known)]


def _segment_row(known: Known, step: int | None, modelled: dict[tuple[str, int], list[int]]) -> SegmentRow:
    recorded = from_profiler(known.recording, step=step, device=known.device)
    priced = replace(recorded, graph=_with_durations(recorded.graph, known.recording, recorded, modelled))
    unseen = replay(priced, known.device).comparison
    files = replay(
        from_profiler(known.recording, step=step, durations=Durations.MODELLED, device=known.device),
        known.device,
        l2=True,
    ).comparison
    weight = sum(segment.recorded_ns for segment in unseen.segments)
    good = sum(segment.recorded_ns for segment in unseen.segments if abs(segment.error) <= 0.07)
    return SegmentRow(
        recording=known.name,
        step="all" if step is None else str(step),
        segments=len(unseen.segments),
        recorded=weight / 1e6,
        left_out=100 * _total_error(unseen),
        files=100 * _total_error(files),
        within=100 * good / weight,
    )


def _total_error(found: Comparison) -> float:
    recorded = sum(segment.recorded_ns for segment in found.segments)
    return sum(segment.simulated_ns for segment in found.segments) / recorded - 1


def _with_durations(
    graph: CommandGraph,
    recording: Recording,
    imported: Imported,
    modelled: dict[tuple[str, int], list[int]],
) -> CommandGraph:
    """The same commands, kernels that were priced with the price in place of the recorded time."""
    commands = []
    for command, task in zip(graph.commands, imported.tasks, strict=True):
        found = recording.tasks[task]
        prices = modelled.get((found.name, found.duration_ns), [])
        if command.kernels and prices:
            (kernel,) = command.kernels
            command = replace(command, kernels=(replace(kernel, duration_ns=max(1, prices[0])),))
        commands.append(command)
    return CommandGraph(graph.name, tuple(commands), graph.buffers)


def artefact_row(known: Known) -> ArtefactRow:
    """What the profiler left behind kernels, and what the device file says of dispatch."""
    imported = from_profiler(known.recording, device=known.device)
    dispatch = known.device.dispatch
    gaps = imported.links.profiler.values()
    return ArtefactRow(
        known.name, known.device.name, median(gaps) / US if gaps else 0.0,
        dispatch.gap_ns / US, dispatch.mix_switch_ns / US, dispatch.wake_ns / US,
    )  # fmt: skip


def _text(value: object) -> str:
    if value is None:
        return "-"
    return number(value) if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main()
