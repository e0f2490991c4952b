"""How well PyTorch profiler (Kineto) traces of other makers' chips replay, and what of that was given.

A recording of a GPU is played on a device that binds nothing: durations, streams, events and launches are
those recorded. A makespan that comes out right then says little where launches decide it, so a second table
shows

- what the makespan consists of along the chain that ends last: work, collectives (whose length holds what
  they waited for peers), delays that nothing explains, and time in which all waited for a launch;
- the error without those delays;
- the error when launches are known by their order alone: at the median pace of the recording, and from a host
  that is never waited for.

Run: ``python benchmarks/pytorch_traces.py TRACE_OR_FOLDER ... [--steps] [--json]``
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tables import arguments, print_json, print_table, progress

from cann_env.profiles.kineto import read_kineto
from cann_env.replay import replay
from cann_env.replay.pacing import paced, undelayed
from cann_env.workloads.foreign_device import foreign_device
from cann_env.workloads.from_profiler import from_profiler

if TYPE_CHECKING:
    from cann_env.profiles.recording import Recording


class Row(NamedTuple):
    """A trace, or a step of it; shares are parts of the simulated makespan, errors parts of the recorded."""

    trace: str
    step: int | None
    tasks: int
    streams: int
    recorded_ms: float
    error: float
    start_median_us: float
    start_p90_us: float
    work: float
    peers: float
    delays: float
    launches: float
    delay_count: int
    delay_ms: float
    error_undelayed: float
    error_paced: float
    error_hostless: float


def main() -> None:
    """Print a row for each trace or step."""
    parser = arguments(__doc__, device=False)
    parser.add_argument("paths", nargs="+", type=Path, help="traces, or folders of them")
    parser.add_argument("--steps", action="store_true", help="a row for each profiler step")
    parser.add_argument("--gpu", type=int, help="number of the device, where a trace holds several")
    asked = parser.parse_args()
    files = [file for path in asked.paths for file in _traces(path)]
    rows: list[Row] = []
    with progress(len(files)) as begin:
        for file in files:
            begin(file.name)
            recording = read_kineto(file, asked.gpu)
            steps = recording.steps if asked.steps and recording.steps else (None,)
            rows += [_row(recording, step) for step in steps]
    if asked.json:
        print_json(rows=rows)
        return
    print_table(
        "Replay of PyTorch profiler traces",
        ("trace", "tasks", "streams", "recorded ms", "error %", "median start error us", "p90"),
        [_replayed(row) for row in rows],
    )
    print_table(
        "What was given",
        (
            "trace",
            "work %",
            "peers %",
            "delays %",
            "launches %",
            "delays",
            "ms",
            "without %",
            "order %",
            "no host %",
        ),
        [_given(row) for row in rows],
        (
            "'work' to 'launches': parts of the makespan along the chain that ends last",
            "errors 'without' delays, with launches in 'order' at the median pace, and with 'no host'",
        ),
    )


def _traces(path: Path) -> list[Path]:
    return sorted(file for file in path.iterdir() if ".json" in file.suffixes) if path.is_dir() else [path]


def _row(recording: Recording, step: int | None) -> Row:
    device = foreign_device(recording)
    imported = from_profiler(recording, step=step, device=device)
    found = replay(imported, device).comparison
    path, whole = found.path, max(1, found.simulated_ns)
    slower = paced(imported, device.host.launch_kernel_ns)
    return Row(
        trace=recording.name,
        step=step,
        tasks=found.starts.count,
        streams=len(imported.streams),
        recorded_ms=found.recorded_ns / 1e6,
        error=found.error,
        start_median_us=found.starts.median_ns / 1e3,
        start_p90_us=found.starts.p90_ns / 1e3,
        work=path.work_ns / whole,
        peers=path.peer_ns / whole,
        delays=path.delay_ns / whole,
        launches=path.launch_ns / whole,
        delay_count=found.delays,
        delay_ms=found.delay_ns / 1e6,
        error_undelayed=replay(undelayed(imported), device).comparison.error,
        error_paced=replay(slower, device).comparison.error,
        error_hostless=replay(paced(imported, 0), device).comparison.error,
    )


def _replayed(row: Row) -> tuple[str, ...]:
    return (
        _name(row),
        str(row.tasks),
        str(row.streams),
        f"{row.recorded_ms:.3f}",
        f"{100 * row.error:+.4f}",
        f"{row.start_median_us:.1f}",
        f"{row.start_p90_us:.1f}",
    )


def _given(row: Row) -> tuple[str, ...]:
    shares = (row.work, row.peers, row.delays, row.launches)
    errors = (row.error_undelayed, row.error_paced, row.error_hostless)
    return (
        _name(row),
        *(f"{100 * share:.1f}" for share in shares),
        str(row.delay_count),
        f"{row.delay_ms:.2f}",
        *(f"{100 * error:+.2f}" for error in errors),
    )


def _name(row: Row) -> str:
    return row.trace if row.step is None else f"{row.trace}, step {row.step}"


if __name__ == "__main__":
    main()
