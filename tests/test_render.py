"""Pictures of a schedule drawn by hand, and a reader that takes the trace apart again."""

from __future__ import annotations

import dataclasses
import json
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest
from toys import (
    copy_in,
    copy_out,
    kernel_command,
    managed,
    mix,
    toy_device,
    toy_diamond,
    toy_kernel,
    toy_pipeline,
    toy_squeeze,
)

from cann_env.graph import Buffer, CommandGraph, Level
from cann_env.options import RunOptions
from cann_env.program import compile_graph
from cann_env.render import palette
from cann_env.render.bars import ColourBy
from cann_env.render.frame import frame
from cann_env.render.gantt import gantt
from cann_env.render.rows import Rows, command_classes, kernel_spans, pack, rows_of
from cann_env.render.series import busy, from_changes, hbm_in_use
from cann_env.render.text import text_timeline
from cann_env.render.trace import Process, chrome_trace, write_trace
from cann_env.schedule import (
    BlockRun,
    CommandRun,
    EventWait,
    HostCall,
    Schedule,
    Stall,
    TransferRun,
)
from cann_env.schedulers import SCHEDULERS, run_scheduler
from cann_env.units import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@pytest.fixture(scope="module")
def drawn() -> Schedule:
    """Four commands on two streams, one managed buffer.

    ::

        ns         0      1000    2001    3001      4000
        host       |i|i|i|i|p|
        stream 0   |load  ||fused: a | b   |
        stream 1              |mix |        |out    |
                                1500-2500
        pages      |w 0-500|                 ^3500 w leaves, clean
        events     load -> mix, fused -> out

    ``a`` is a cube kernel of one block, ``b`` a vector kernel of four blocks, two of which start at 2500.
    """
    fused = (toy_kernel("cube", 990), toy_kernel("vector", 990, blocks=4))
    commands = (
        copy_in("load", 995, writes=("x",)),
        kernel_command("net/fused", *fused, reads=("x",), writes=("y",)),
        mix("net/mix", 990, reads=("x", "w"), writes=("z",), request="r1"),
        copy_out("out", 600, reads=("y",)),
    )
    buffers = (
        Buffer(name="x", size_bytes=1000),
        Buffer(name="y", size_bytes=600),
        Buffer(name="z", size_bytes=1),
        managed("w", 2048, Level.HOST),
    )
    return Schedule(
        graph=CommandGraph("drawn", commands, buffers),
        device=toy_device(memory={"hbm_bytes": 1 << 20, "alignment_bytes": 512}),
        options=RunOptions(streams=2),
        actions=(),
        commands=(
            CommandRun(0, 0, 0, 0, 0, 1000),
            CommandRun(1, 0, 1, 10, 1001, 3001),
            CommandRun(2, 1, 0, 20, 1400, 2500),
            CommandRun(3, 1, 1, 30, 3001, 4000),
        ),
        blocks=(
            BlockRun(0, 0, "h2d", 1, 0, 0, 1000, 0),
            BlockRun(1, 0, "cube", 1, 0, 1001, 2001, 1001),
            BlockRun(2, 0, "mix", 1, 0, 1500, 2500, 1500),
            BlockRun(1, 1, "vector", 2, 0, 2001, 3001, 2001),
            BlockRun(1, 1, "vector", 2, 0, 2500, 3001, 2001),
            BlockRun(3, 0, "d2h", 1, 0, 3001, 4000, 3001),
        ),
        transfers=(TransferRun(3, "prefetch", 0, 0, 500), TransferRun(3, "evict", 3500, 3500, 3500)),
        waits=(EventWait(0, 2), EventWait(1, 3)),
        host=(
            *(HostCall("issue", i, 10 * i, 10 * (i + 1)) for i in range(4)),
            HostCall("prefetch", 3, 40, 45),
            HostCall("wait", -1, 45, 500),
        ),
        stall=Stall(0, 0, 0, 100, 0),
        lower_bound_ns=3200,
        peak_hbm_bytes=1024 + 1024 + 512 + 2048,
        noise=(1 << 20,) * 4,
    )


class Slice(NamedTuple):
    """A slice as read back, in whole nanoseconds."""

    start: int
    end: int
    name: str
    args: dict[str, Any]


class Trace:
    """What a viewer would show: slices by track, arrows bound to slices, counters."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.processes: dict[str, int] = {}
        self.tracks: dict[tuple[int, int], str] = {}
        self.slices: dict[tuple[int, int], list[Slice]] = defaultdict(list)
        self.counters: dict[tuple[int, str], list[tuple[int, int]]] = defaultdict(list)
        self._open: dict[tuple[int, int], list[Slice]] = defaultdict(list)
        self._tails: dict[int, Slice] = {}
        self.arrows: list[tuple[Slice, Slice]] = []
        self._now = -1
        for event in data["traceEvents"]:
            getattr(self, f"_on_{event['ph']}")(event)
        assert not self._tails, "an arrow starts and does not end"

    def _time(self, event: dict[str, Any]) -> int:
        time = round(event["ts"] * 1000)
        assert abs(event["ts"] * 1000 - time) < 1e-6, "nanoseconds were lost"
        assert time >= self._now, "events are not ordered"
        self._now = time
        return time

    def _on_M(self, event: dict[str, Any]) -> None:
        if event["name"] == "process_name":
            self.processes[event["args"]["name"]] = event["pid"]
        if event["name"] == "thread_name":
            self.tracks[event["pid"], event["tid"]] = event["args"]["name"]

    def _on_X(self, event: dict[str, Any]) -> None:
        track = event["pid"], event["tid"]
        assert track in self.tracks, "a slice on a track without a name"
        start = self._time(event)
        new = Slice(start, start + round(event["dur"] * 1000), event["name"], event["args"])
        stack = self._open[track]
        while stack and stack[-1].end <= start:
            stack.pop()
        assert not stack or new.end <= stack[-1].end, f"{new} sticks out of {stack[-1]}"
        stack.append(new)
        self.slices[track].append(new)

    def _top(self, event: dict[str, Any]) -> Slice:
        time = self._time(event)
        under = [s for s in self._open[event["pid"], event["tid"]] if s.start <= time]
        under = [s for s in under if time < s.end or s.start == s.end == time]
        assert under, "an arrow that touches no slice"
        return under[-1]

    def _on_s(self, event: dict[str, Any]) -> None:
        assert event["id"] not in self._tails
        self._tails[event["id"]] = self._top(event)

    def _on_f(self, event: dict[str, Any]) -> None:
        assert event["bp"] == "e"
        self.arrows.append((self._tails.pop(event["id"]), self._top(event)))

    def _on_C(self, event: dict[str, Any]) -> None:
        (value,) = event["args"].values()
        self.counters[event["pid"], event["name"]].append((self._time(event), value))

    def on(self, process: Process, track: str) -> list[Slice]:
        """The slices of the track with this name."""
        (key,) = [k for k, name in self.tracks.items() if k[0] == process and name == track]
        return self.slices[key]


def read(schedule: Schedule) -> Trace:
    return Trace(json.loads(json.dumps(chrome_trace(schedule))))


def test_trace_streams_hold_commands_and_fused_kernels_nest(drawn: Schedule) -> None:
    trace = read(drawn)
    assert trace.processes == {"Streams": 1, "Engines": 2, "Host": 3, "Transfers": 4}
    first = [(s.name, s.start, s.end) for s in trace.on(Process.STREAMS, "stream 0")]
    assert first == [
        ("load", 0, 1000),
        ("net/fused", 1001, 3001),
        ("cube", 1001, 2001),
        ("vector", 2001, 3001),
    ]
    second = [(s.name, s.start, s.end) for s in trace.on(Process.STREAMS, "stream 1")]
    assert second == [("net/mix", 1400, 2500), ("out", 3001, 4000)]
    assert trace.on(Process.STREAMS, "stream 1")[0].args["request"] == "r1"


def test_trace_lanes_never_overlap_and_mix_blocks_stand_in_both_pools(drawn: Schedule) -> None:
    trace = read(drawn)
    lanes = {name for (pid, _), name in trace.tracks.items() if pid == Process.ENGINES}
    assert lanes == {
        "AIC lane 0", "AIC lane 1", "AIV lane 0", "AIV lane 1", "DMA h2d lane 0", "DMA d2h lane 0"
    }  # fmt: skip
    assert [s.name for s in trace.on(Process.ENGINES, "AIC lane 0")] == ["cube"]
    assert [s.name for s in trace.on(Process.ENGINES, "AIC lane 1")] == ["mix"]
    # The late two blocks of b start when mix ends, so they take the lane it leaves.
    assert [s.name for s in trace.on(Process.ENGINES, "AIV lane 0")] == ["mix", "vector"]
    assert [s.name for s in trace.on(Process.ENGINES, "AIV lane 1")] == ["vector"]
    assert [s.args["blocks"] for s in trace.on(Process.ENGINES, "AIV lane 0")] == [1, 2]


def test_trace_arrows_bind_to_producer_and_consumer(drawn: Schedule) -> None:
    ends = [(a.args["command"], b.args["command"]) for a, b in read(drawn).arrows]
    assert ends == [(0, 2), (1, 3)]


def test_trace_counters(drawn: Schedule) -> None:
    counters = read(drawn).counters
    assert counters[Process.ENGINES, "busy AIC"] == [(0, 0), (1001, 1), (1500, 2), (2001, 1), (2500, 0)]
    assert counters[Process.ENGINES, "busy AIV"] == [(0, 0), (1500, 2), (2001, 4), (3001, 0)]
    # x 1024 from 0, w 2048 from 0, y 1024 from 10, z 512 from 20; x and z go at 2500 and 3001, w at 3500.
    assert counters[Process.TRANSFERS, "HBM in use"] == [
        (0, 3072), (10, 4096), (20, 4608), (2500, 4096), (3001, 3072), (3500, 1024), (4000, 0)
    ]  # fmt: skip


def test_trace_host_and_transfers(drawn: Schedule) -> None:
    trace = read(drawn)
    host = trace.on(Process.HOST, "host thread")
    assert [s.name for s in host[-3:]] == ["issue out", "prefetch w", "wait"]
    assert [(s.name, s.start, s.end) for s in trace.on(Process.TRANSFERS, "prefetch lane 0")] == [
        ("w", 0, 500)
    ]
    assert [(s.start, s.end) for s in trace.on(Process.TRANSFERS, "evict lane 0")] == [(3500, 3500)]


def test_trace_keeps_single_nanoseconds_late_in_a_long_run(drawn: Schedule) -> None:
    """Ten hours in, neighbours that are one nanosecond apart stay apart."""
    late = 36_000_000_000_000
    runs = tuple(r._replace(start_ns=r.start_ns + late, finish_ns=r.finish_ns + late) for r in drawn.commands)
    blocks = tuple(
        b._replace(
            start_ns=b.start_ns + late, finish_ns=b.finish_ns + late, kernel_start_ns=b.start_ns + late
        )
        for b in drawn.blocks
    )
    trace = read(dataclasses.replace(drawn, commands=runs, blocks=blocks, transfers=(), host=()))
    first = [(s.start - late, s.end - late) for s in trace.on(Process.STREAMS, "stream 0")]
    assert first[:2] == [(0, 1000), (1001, 3001)]


def test_reader_refuses_broken_traces(drawn: Schedule) -> None:
    """The reader above is worth something only if it fails on faults planted in a good trace."""

    def planted(phase: str, **changes: Any) -> dict[str, Any]:
        data = chrome_trace(drawn)
        event = [e for e in data["traceEvents"] if e["ph"] == phase][-1]
        event.update(changes)
        return data

    overlap = chrome_trace(drawn)
    load = next(e for e in overlap["traceEvents"] if e["ph"] == "X" and e["name"] == "load")
    load["dur"] = 1.5
    faults = [
        ("sticks out", overlap),
        ("without a name", planted("X", tid=7)),
        ("touches no slice", planted("s", ts=3.001)),
        ("nanoseconds were lost", planted("X", ts=3.0015)),
        ("not ordered", planted("f", ts=0.0)),
    ]
    for message, data in faults:
        with pytest.raises(AssertionError, match=message):
            Trace(data)


@pytest.fixture(scope="module", params=["pipeline", "squeeze", "diamond"])
def real(request: pytest.FixtureRequest) -> list[Schedule]:
    """What every scheduler makes of a toy graph; the squeeze holds two of its five weights at a time."""
    graphs = {"pipeline": toy_pipeline(4), "squeeze": toy_squeeze(5), "diamond": toy_diamond()}
    options = RunOptions(streams=3, hbm_bytes=128 if request.param == "squeeze" else None)
    program = compile_graph(graphs[request.param], toy_device(), options)
    return [run_scheduler(program, name) for name in SCHEDULERS]


def test_traces_of_real_schedules_read_back_whole(real: list[Schedule]) -> None:
    for schedule in real:
        trace = read(schedule)
        ran = {
            s.args["command"]: (s.start, s.end)
            for (process, _), slices in trace.slices.items()
            if process == Process.STREAMS
            for s in slices
            if "kernel" not in s.args
        }
        assert ran == {run.command: (run.start_ns, run.finish_ns) for run in schedule.commands}
        arrows = sorted((a.args["command"], b.args["command"]) for a, b in trace.arrows)
        assert arrows == sorted((wait.producer, wait.consumer) for wait in schedule.waits)
        moved = sum(len(s) for (process, _), s in trace.slices.items() if process == Process.TRANSFERS)
        assert moved == len(schedule.transfers)


def test_hbm_in_use_peaks_where_the_engine_says(real: list[Schedule]) -> None:
    for schedule in real:
        assert hbm_in_use(schedule).values.max() == schedule.peak_hbm_bytes


def test_write_trace_is_the_trace_and_names_a_bad_path(drawn: Schedule, tmp_path: Path) -> None:
    path = write_trace(drawn, tmp_path / "t.json")
    data = json.loads(path.read_text(encoding="utf-8"))
    assert data == chrome_trace(drawn)
    assert data["displayTimeUnit"] == "ns"
    assert data["otherData"]["makespan_ns"] == 4000
    with pytest.raises(InputError, match="nowhere"):
        write_trace(drawn, tmp_path / "nowhere" / "t.json")


def test_pack_uses_the_lowest_free_lane() -> None:
    """Lane 0: 0-4, 4-6; lane 1: 1-9; lane 2: 2-3, 3-3, 5-7."""
    assert pack([(0, 4), (1, 9), (2, 3), (3, 3), (4, 6), (5, 7)]) == (0, 1, 2, 2, 0, 2)


def test_fallback_kernel_takes_the_class_that_held_more(drawn: Schedule) -> None:
    blocks = [
        BlockRun(0, 0, "cube", 1, 0, 0, 10, 0),
        BlockRun(0, 0, "vector", 3, 0, 2, 10, 0),
        BlockRun(0, 1, "aicpu", 1, 0, 10, 15, 10),
    ]
    spans = kernel_spans(blocks)
    assert [(s.work_class, s.blocks, s.start_ns, s.finish_ns) for s in spans] == [
        ("vector", 4, 0, 10), ("aicpu", 1, 10, 15)
    ]  # fmt: skip
    assert command_classes(spans) == {0: "vector"}
    assert command_classes(kernel_spans(drawn.blocks)) == {0: "h2d", 1: "cube", 2: "mix", 3: "d2h"}


def test_series_average_and_peak() -> None:
    """Value 2 from 10 to 20, 4 from 20 to 30: bins of 10, 20 and 25 ns."""
    series = from_changes([(20, 2), (10, 2), (30, -4), (50, 1), (50, -1)])
    assert series.times_ns.tolist() == [0, 10, 20, 30]
    edges = np.array([0.0, 10.0, 30.0, 55.0])
    assert series.mean_over(edges).tolist() == [0.0, 3.0, 0.0]
    assert series.max_over(edges).tolist() == [0.0, 4.0, 0.0]
    fine = np.array([12.0, 14.0, 21.0])
    assert series.max_over(fine).tolist() == [2.0, 4.0]
    assert series.mean_over(fine).tolist() == [2.0, pytest.approx(16 / 7)]


def test_hbm_peak_equals_what_the_schedule_says(drawn: Schedule) -> None:
    assert hbm_in_use(drawn).values.max() == drawn.peak_hbm_bytes
    assert busy(drawn, "aiv").values.max() == 4


def test_text_timeline_literally(drawn: Schedule) -> None:
    """Forty cells of 100 ns. The fused command ends 1 ns into one; mix starts at 1400, its block at 1500."""
    text = text_timeline(*rows_of(drawn), width=8 + 2 + 40 + 6)
    assert text.splitlines() == [
        "          0                   2.00 us      4.00 us",
        "stream 0 |▶▶▶▶▶▶▶▶▶▶██████████▓▓▓▓▓▓▓▓▓▓·         |  75%",
        "stream 1 |              -▒▒▒▒▒▒▒▒▒▒     ◀◀◀◀◀◀◀◀◀◀|  52%",
        "          █ cube  ▓ vector  ▒ mix  ▶ h2d  ◀ d2h  - held",
    ]


def test_text_timeline_of_a_running_program(drawn: Schedule) -> None:
    """At 2 us of 4: fused runs to an end not known yet, out has not started, a third stream is idle."""
    runs = (drawn.commands[0], drawn.commands[1]._replace(finish_ns=-1), drawn.commands[2])
    text = text_timeline(drawn.blocks[:3], runs, 3, 2000, width=8 + 2 + 20 + 6)
    assert text.splitlines() == [
        "          0            2.00 us",
        "stream 0 |▶▶▶▶▶▶▶▶▶▶██████████| 100%",
        "stream 1 |              -▒▒▒▒▒|  30%",
        "stream 2 |                    |   0%",
        "          █ cube  ▒ mix  ▶ h2d  - held",
    ]


def test_text_timeline_marks_short_work_with_a_dot() -> None:
    """Ten cells of 10 ns; 4 ns of work in the third is a dot, 6 ns in the fifth is not."""
    blocks = [BlockRun(0, 0, "cube", 1, 0, 23, 27, 23), BlockRun(1, 0, "cube", 1, 0, 42, 48, 42)]
    runs = [CommandRun(0, 0, 0, 0, 23, 27), CommandRun(1, 0, 1, 0, 42, 48)]
    text = text_timeline(blocks, runs, 1, 100, width=30)
    assert "|  " in text
    line = text_timeline(blocks, runs, 1, 140, width=30).splitlines()[1]
    assert line == "stream 0 |  · █         |   7%"


@pytest.mark.parametrize("now_ns", [0, 1])
def test_pictures_of_nothing(now_ns: int) -> None:
    """A program that has not begun can be drawn."""
    assert text_timeline((), (), 1, now_ns, width=40).splitlines()[1].endswith("|   0%")
    assert frame((), (), 1, now_ns).shape == (360, 960, 3)


def test_text_timeline_refuses_a_width_it_cannot_use(drawn: Schedule) -> None:
    with pytest.raises(InputError, match="29"):
        text_timeline(*rows_of(drawn), width=29)


def pixels(image: np.ndarray[Any, np.dtype[np.uint8]], colour: str) -> int:
    return int((image == np.array(palette.rgb(colour), np.uint8)).all(axis=2).sum())


def test_frame_shows_classes_in_proportion(drawn: Schedule) -> None:
    image = frame(*rows_of(drawn), size=(480, 200))
    assert image.shape == (200, 480, 3)
    assert image.dtype == np.uint8
    cube, vector = (pixels(image, palette.CLASS_COLOURS[name]) for name in ("cube", "vector"))
    assert cube == pytest.approx(vector, rel=0.03)
    assert pixels(image, palette.CLASS_COLOURS["hcom"]) == 0
    assert pixels(image, palette.HELD) > 0


def test_frame_draws_nothing_beyond_the_present(drawn: Schedule) -> None:
    image = frame(drawn.blocks, drawn.commands, 2, 1000, horizon_ns=4000, size=(480, 200))
    left = 74 + (480 - 74 - 14) // 4 + 2
    assert pixels(image[30:154, left:], palette.CLASS_COLOURS["cube"]) == 0
    assert pixels(image[30:154, :left], palette.CLASS_COLOURS["h2d"]) > 1000


def test_frame_refuses_a_size_it_cannot_use(drawn: Schedule) -> None:
    with pytest.raises(InputError, match="10, 10"):
        frame(*rows_of(drawn), size=(10, 10))


def test_rows_of_a_schedule_fit_both_pictures(drawn: Schedule) -> None:
    assert rows_of(drawn) == Rows(drawn.blocks, drawn.commands, 2, 4000)


class Chart(NamedTuple):
    figure: Figure
    path: Path

    @property
    def legend(self) -> list[str]:
        return [text.get_text() for text in self.figure.axes[0].get_legend().get_texts()]


@pytest.fixture(scope="module")
def chart(drawn: Schedule, tmp_path_factory: pytest.TempPathFactory) -> Chart:
    path = tmp_path_factory.mktemp("gantt") / "g.png"
    return Chart(gantt(drawn, path, dpi=60), path)


def test_gantt_writes_a_picture(chart: Chart) -> None:
    from PIL import Image

    with Image.open(chart.path) as image:
        assert image.size == tuple(chart.figure.bbox.size.astype(int))
        assert len(image.convert("RGB").getcolors(1 << 20)) > 20


def test_gantt_draws_every_bar(chart: Chart) -> None:
    """Four commands, six host calls, one transfer that takes time."""
    axes = chart.figure.axes[0]
    assert len(axes.collections[0].get_paths()) == 4 + 6 + 1
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels == ["host", "stream 0", "stream 1", "pages"]
    assert chart.legend[:4] == ["cube", "mix", "h2d", "d2h"]


def test_gantt_says_how_good_the_schedule_is(chart: Chart) -> None:
    name, figures = (text.get_text() for text in chart.figure.texts)
    assert name == "drawn on toy"
    assert "makespan 4.00 us" in figures
    assert "lower bound 3.20 us" in figures
    assert "gap 25.0 %" in figures
    assert [axes.get_ylabel() for axes in chart.figure.axes[1:]] == ["AIC", "AIV", "DMA", "HBM"]


def test_gantt_names_fit_their_bars(chart: Chart) -> None:
    renderer = chart.figure.canvas.get_renderer()
    names = [text for text in chart.figure.axes[0].texts if text.get_text() != "bound"]
    assert {text.get_text() for text in names} == {"load", "net/fused", "net/mix", "out", "w"}
    boxes = [text.get_window_extent(renderer) for text in names]
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])


@pytest.mark.slow
def test_gantt_by_request(drawn: Schedule) -> None:
    by_request = Chart(gantt(drawn, colour_by=ColourBy.REQUEST), Path())
    assert by_request.legend[:2] == ["(no request)", "r1"]


@pytest.mark.slow
@pytest.mark.parametrize("bad", ["nowhere/g.png", "g.nonsense"])
def test_gantt_names_a_file_it_cannot_write(drawn: Schedule, tmp_path: Path, bad: str) -> None:
    with pytest.raises(InputError, match=bad):
        gantt(drawn, tmp_path / bad, dpi=40)
