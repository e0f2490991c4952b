"""Pictures of a schedule drawn by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest
from pictures import drawn_schedule, spilling_schedule

from cann_env.render import palette
from cann_env.render.bars import ColourBy, bars_of, legend_entries
from cann_env.render.frame import frame
from cann_env.render.gantt import gantt
from cann_env.render.moves import CARRIERS, lanes_of
from cann_env.render.panels import panels_of
from cann_env.render.rows import Rows, command_classes, kernel_spans, pack, rows_of
from cann_env.render.series import busy, from_changes, hbm_in_use
from cann_env.render.text import text_timeline
from cann_env.schedule import BlockRun, CommandRun, Schedule, TransferRun
from cann_env.units import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@pytest.fixture(scope="module")
def drawn() -> Schedule:
    return drawn_schedule()


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
    assert labels == ["host", "stream 0", "stream 1", "from host"]
    assert chart.legend == [
        "cube", "mix", "h2d", "d2h", "host: issue", "host: prefetch", "host: wait", "moves: prefetch"
    ]  # fmt: skip


def test_bars_and_panels_of_memory() -> None:
    """Two faults at once, write-backs one of which lasts, a lift that is done and one that waits."""
    schedule = spilling_schedule()
    bars, labels = bars_of(schedule, ColourBy.WORK_CLASS)
    assert labels == [
        "host", "stream 0", "stream 1", "die 1 from host", "", "die 0 to host", "die 1 into L2"
    ]  # fmt: skip
    moves = sorted((bar.row, bar.name, bar.start_ns, bar.finish_ns) for bar in bars if bar.row > 2)
    assert moves == [
        (3, "b", 0, 100), (4, "c", 0, 200), (5, "a", 400, 1000), (5, "w", 200, 400), (6, "b", 100, 300)
    ]  # fmt: skip
    legend = [name for name, _ in legend_entries(schedule, bars, ColourBy.WORK_CLASS)]
    calls = ["host: issue", "host: lift", "host: offload"]
    assert legend == ["vector", *calls, "moves: fault", "moves: writeback", "moves: lift"]
    panels = {panel.title: [curve.label for curve in panel.curves] for panel in panels_of(schedule)}
    assert panels == {
        "AIV": ["aiv"],
        "DMA": ["h2d, 2 at once", "d2h", "sdma"],
        "HBM": ["die 0, peak 2.0 KiB", "die 1, peak 5.0 KiB"],
    }


@pytest.mark.slow
def test_gantt_of_memory() -> None:
    """Host calls, commands and moves, all of them between the ends of the picture."""
    axes = gantt(spilling_schedule(), dpi=60).axes[0]
    boxes = [path.get_extents() for path in axes.collections[0].get_paths()]
    assert len(boxes) == 5 + 2 + 5
    assert max(box.x1 for box in boxes) == 1000


@pytest.mark.parametrize(("moves", "label"), [(8, "from host"), (11, "from host, +3 more")])
def test_moves_at_once_have_rows_of_their_own_up_to_eight(moves: int, label: str) -> None:
    """Faults that all begin at 0; one at 200, when all are over, finds room again in the first row."""
    schedule = spilling_schedule()
    rows = [TransferRun(2, "fault", 0, 0, 100 + i) for i in range(moves)]
    rows.append(TransferRun(2, "fault", 200, 200, 300))
    lanes = lanes_of(replace(schedule, transfers=tuple(rows)))
    assert [lane.label for lane in lanes] == [label] + [""] * 7
    assert [lane.moves for lane in lanes] == [(rows[0], rows[-1])] + [(row,) for row in rows[1:8]]


def test_every_cause_and_call_can_be_drawn() -> None:
    """Causes that take time have a colour and a sign; all calls have a colour."""
    assert palette.CAUSE_COLOURS.keys() == palette.CAUSE_GLYPHS.keys() == CARRIERS.keys()
    assert palette.CALL_COLOURS.keys() == {"issue", "prefetch", "lift", "offload", "call", "wait"}


def test_a_colour_means_one_thing() -> None:
    """Moves by a DMA engine look like copies by it; a fault, which takes none, looks like no work."""
    assert len(set(palette.CLASS_COLOURS.values())) == len(palette.CLASS_COLOURS)
    assert palette.CAUSE_COLOURS["fault"] not in {
        *palette.CLASS_COLOURS.values(), *palette.REQUEST_COLOURS, palette.HELD
    }  # fmt: skip


def test_text_timeline_of_memory() -> None:
    """Twenty cells of 50 ns; the fault of b hides that of c until it is over, so one line is enough."""
    schedule = spilling_schedule()
    text = text_timeline(*rows_of(schedule), width=9 + 2 + 20 + 6, transfers=schedule.transfers)
    assert text.splitlines()[1:] == [
        "stream 0  |▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓| 100%",
        "stream 1  |▓▓▓▓▓▓▓▓            |  40%",
        "from host |!!!!                |  20%",
        "to host   |    ◀◀◀◀◀◀◀◀◀◀◀◀◀◀◀◀|  80%",
        "into L2   |  ◆◆◆◆              |  20%",
        "           ▓ vector  ! fault  ◀ writeback  ◆ lift",
    ]


def test_gantt_says_how_good_the_schedule_is(chart: Chart) -> None:
    name, figures = (text.get_text() for text in chart.figure.texts)
    assert name == "drawn on toy (assumed)"
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
