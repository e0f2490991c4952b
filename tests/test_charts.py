"""Charts: what they draw is what they were given, and how wrong input is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from cann_env.render.charts import curves, shares
from cann_env.units import InputError

if TYPE_CHECKING:
    from pathlib import Path


def test_curves_lie_where_the_numbers_are() -> None:
    """Two series, one with a gap, a level, a band."""
    figure = curves(
        [1, 2, 4], {"a": [3, 2, 1], "b": [1, None, 5]}, xlabel="streams", ylabel="ms", title="t",
        levels={"bound": 0.5}, bands={"a": ([2, 1, 0], [4, 3, 2])},
    )  # fmt: skip
    (axes,) = figure.axes
    first, second, level = axes.lines
    assert first.get_xydata().tolist() == [[1, 3], [2, 2], [4, 1]]
    assert np.isnan(second.get_ydata()[1])
    assert list(level.get_ydata()) == [0.5, 0.5]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["a", "b", "bound"]
    assert (axes.get_xlabel(), axes.get_ylabel(), axes.get_title(loc="left")) == ("streams", "ms", "t")
    (band,) = axes.collections
    assert band.get_paths()[0].get_extents().bounds == (1, 0, 3, 4)


def test_words_stand_at_equal_distances() -> None:
    (axes,) = curves(["1", "8", "64"], {"a": [1, 10, 100]}, xlabel="", ylabel="", logarithmic=True).axes
    assert axes.lines[0].get_xdata().tolist() == [0, 1, 2]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["1", "8", "64"]
    assert axes.get_yscale() == "log"


def test_an_axis_from_zero() -> None:
    (axes,) = curves([1, 2], {"a": [5, 6]}, xlabel="", ylabel="", from_zero=True).axes
    assert axes.get_ylim()[0] == 0


def test_parts_stand_behind_one_another() -> None:
    """The second row has no part ``x``; the first one has a mark."""
    figure = shares({"one": {"x": 3.0, "y": 1.0}, "two": {"y": 2.0}}, xlabel="us", marks={"one": 3.5})
    (axes,) = figure.axes
    bars = [(bar.get_x(), bar.get_width(), round(bar.get_y() + 0.33)) for bar in axes.patches]
    assert bars == [(0, 3, 0), (0, 0, 1), (3, 1, 0), (0, 2, 1)]
    assert axes.lines[0].get_xdata().tolist() == [3.5, 3.5]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["lower bound", "x", "y"]
    assert {text.get_text() for text in axes.texts} == {"3", "1", "2"}


def test_a_part_keeps_its_colour() -> None:
    (axes,) = shares({"one": {"x": 1.0, "y": 1.0}}, xlabel="", colours={"y": "#112233"}).axes
    assert axes.patches[1].get_facecolor()[:3] == pytest.approx((0x11 / 255, 0x22 / 255, 0x33 / 255))


def test_charts_are_saved(tmp_path: Path) -> None:
    curves([1, 2], {"a": [1, 2]}, tmp_path / "a.png", xlabel="", ylabel="")
    shares({"a": {"x": 1.0}}, tmp_path / "b.svg", xlabel="")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "b.svg").read_text(encoding="utf-8")
    with pytest.raises(InputError, match=r"chart '.*a\.nothing' cannot be written"):
        curves([1, 2], {"a": [1, 2]}, tmp_path / "a.nothing", xlabel="", ylabel="")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"series": {}}, "no curves to draw"),
        ({"series": {"a": [1]}}, "series 'a' has 1 values; x has 2"),
        (
            {"series": {"a": [1, 2]}, "bands": {"b": ([1, 2], [1, 2])}},
            "band 'b' is around no series; there are a",
        ),
        (
            {"series": {"a": [1, 2]}, "bands": {"a": ([1], [1, 2])}},
            "band 'a' has 1 lower and 2 upper ends; x has 2",
        ),
    ],
    ids=["none", "short series", "stray band", "short band"],
)
def test_wrong_curves_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        curves([1, 2], xlabel="", ylabel="", **given)


@pytest.mark.parametrize(
    ("rows", "marks", "message"),
    [
        ({}, {}, "no bars to draw"),
        ({"a": {"x": -1.0}}, {}, "part 'x' of 'a' is -1.0; parts are at least 0"),
        ({"a": {"x": 1.0}}, {"b": 1.0}, "mark 'b' is of no row; there are a"),
    ],
    ids=["none", "negative", "stray mark"],
)
def test_wrong_bars_are_refused(
    rows: dict[str, dict[str, float]], marks: dict[str, float], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        shares(rows, xlabel="", marks=marks)
