"""The picture of two timelines: what is drawn where, in which colour, and what is left out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from matplotlib.colors import to_hex

from cann_env.render import palette
from cann_env.render.two_timelines import Side, Span, StartError, group_colours, two_timelines
from cann_env.units import InputError

if TYPE_CHECKING:
    from pathlib import Path

UPPER = Side(
    "recorded", [Span(7, 0, 400, "cube"), Span(9, 400, 1000, "Add"), Span(7, 500, 900, "peer", True)]
)
LOWER = Side(
    "simulated", [Span(7, 0, 500, "cube"), Span(9, 500, 1100, "Add"), Span(7, 600, 1000, "peer", True)]
)
ERRORS = [StartError(0, 0, "cube"), StartError(400, 100, "Add")]


def draw(upper: Side = UPPER, lower: Side = LOWER, errors: list[StartError] = ERRORS, **given):
    return two_timelines(upper, lower, errors, title="T", **given)


def bars(axes) -> list[tuple[float, float, float, str]]:
    """``(left, right, middle, colour)`` of the bars that are no waits, in their order."""
    collection = axes.collections[-1]
    found = []
    for path, colour in zip(collection.get_paths(), collection.get_facecolors(), strict=True):
        corners = path.vertices[:4]
        (left, low), (right, high) = corners.min(axis=0), corners.max(axis=0)
        found.append((left, right, (low + high) / 2, to_hex(colour)))
    return found


def test_both_sides_have_the_same_rows_axis_and_colours() -> None:
    """::

    stream 7  |cube   |   ////     recorded      |cube     |  ////      simulated
    stream 9          |Add     |                           |Add     |
              0      400     1000                0        500     1100
    """
    upper, lower, strip = draw().axes
    assert [label.get_text() for label in upper.get_yticklabels()] == ["stream 7", "stream 9"]
    assert [label.get_text() for label in lower.get_yticklabels()] == ["stream 7", "stream 9"]
    assert upper.get_xlim() == lower.get_xlim() == strip.get_xlim() == (0, pytest.approx(1105.5))
    cube, add = palette.CLASS_COLOURS["cube"], bars(upper)[1][3]
    assert add != cube
    assert bars(upper) == [(0, 400, 0, cube), (400, 1000, 1, add)]
    assert bars(lower) == [(0, 500, 0, cube), (500, 1100, 1, add)]


def test_external_waits_are_hatched_and_nothing_else_is() -> None:
    upper, _, _ = draw().axes
    waits, plain = upper.collections[-2:]
    assert (len(waits.get_paths()), len(plain.get_paths())) == (1, 2)
    assert waits.get_hatch() == "////"
    assert plain.get_hatch() is None
    assert [text.get_text() for text in upper.get_legend().get_texts()] == ["Add", "cube", "external wait"]


def test_without_external_waits_the_legend_has_none() -> None:
    upper, _, _ = draw(UPPER._replace(spans=UPPER.spans[:2]), LOWER._replace(spans=LOWER.spans[:2])).axes
    assert [text.get_text() for text in upper.get_legend().get_texts()] == ["Add", "cube"]


def test_errors_stand_at_the_recorded_start() -> None:
    strip = draw().axes[2]
    points = strip.collections[-1].get_offsets()
    np.testing.assert_array_equal(points, [[0, 0], [400, 99]])  # 99: the 99th percentile of 0 and 100
    assert strip.get_ylim()[1] > 99


def test_streams_on_which_nothing_can_be_seen_are_left_out_and_counted() -> None:
    far = Span(1, 0, 1_000_000, "cube")
    brief = [Span(2, 5, 6, "cube"), Span(3, 5, 7, "cube")]
    figure = draw(Side("a", [far, *brief]), Side("b", [far]))
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["stream 1"]
    assert any("2 streams without anything long left out" in text.get_text() for text in figure.texts)


def test_a_part_shows_only_what_lies_in_it() -> None:
    upper, _, strip = draw(between_ns=(450, 700)).axes
    assert upper.get_xlim() == (450, pytest.approx(701.25))
    assert [(left, right) for left, right, *_ in bars(upper)] == [(450, 700)]
    assert len(strip.collections[-1].get_offsets()) == 0


@pytest.mark.parametrize("part", [(700, 700), (-1, 5), (9, 3)])
def test_an_empty_part_is_refused(part: tuple[int, int]) -> None:
    with pytest.raises(InputError, match=f"is {part[0]} to {part[1]} ns"):
        draw(between_ns=part)


def test_a_bar_thinner_than_a_pixel_can_still_be_seen() -> None:
    spans = [Span(0, 0, 1_000_000, "cube"), Span(1, 0, 500_000, "cube"), Span(1, 600_000, 600_001, "vector")]
    figure = draw(Side("a", spans), Side("b", spans))
    left, right, *_ = bars(figure.axes[0])[-1]
    low, high = figure.axes[0].get_xlim()
    assert 0.5 < (right - left) / (high - low) * figure.axes[0].bbox.width < 1.0


def test_colours_go_to_the_longest_and_a_class_keeps_its_own() -> None:
    """Eleven operators and one class: nine colours are left beside the class's, the two shortest get none."""
    spans = [Span(0, 0, 100 - i, f"op{i}") for i in range(11)] + [Span(0, 0, 1, "cube")]
    colours = group_colours(spans)
    assert colours["cube"] == palette.CLASS_COLOURS["cube"]
    assert list(colours) == [*(f"op{i}" for i in range(11)), "cube"]
    own = [colours[f"op{i}"] for i in range(9)]
    assert len({*own, colours["cube"], palette.OTHER}) == 11
    assert colours["op9"] == colours["op10"] == palette.OTHER


def test_a_side_without_spans_is_drawn_too() -> None:
    assert len(draw(Side("nothing", []), Side("nothing", []), []).axes) == 3


@pytest.mark.slow
def test_ten_thousand_tasks_make_two_collections_a_side(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    starts = np.sort(rng.integers(0, 10**8, 10_000)).tolist()
    spans = [Span(i % 40, start, start + 5_000, f"op{i % 5}", i % 50 == 0) for i, start in enumerate(starts)]
    errors = [StartError(span.start_ns, 3, span.group) for span in spans]
    figure = draw(Side("a", spans), Side("b", spans), errors, path=tmp_path / "p.png")
    assert (tmp_path / "p.png").stat().st_size > 10_000
    counts = [sum(len(c.get_paths()) for c in axes.collections[-2:]) for axes in figure.axes[:2]]
    assert counts == [10_000, 10_000]
