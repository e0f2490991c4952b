"""The page about memory: its command prints every figure on it and draws every picture."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("matplotlib")

from cann_env.validate import validate

if TYPE_CHECKING:
    from types import ModuleType

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "memory.md"
PICTURES = ROOT / "docs" / "pictures"
UNITS = ("ns", "us", "ms", "B", "KiB", "MiB", "GiB", "MB", "GB/s", "TB/s", "%", "faults")
QUANTITY = re.compile(rf"(?<![\w.])(\d+(?:\.\d+)?) ({'|'.join(UNITS)})(?![\w/])")


@pytest.fixture(scope="module")
def draw() -> Any:
    """The command as a module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(PICTURES))
        import draw_memory

        yield draw_memory


@pytest.fixture(scope="module")
def printed(draw: ModuleType) -> str:
    return "\n".join(draw.figures())


def quantities(text: str) -> set[tuple[float, str]]:
    """Every number with a unit."""
    return {(float(number), unit) for number, unit in QUANTITY.findall(text)}


def test_quantities_are_read_with_their_units() -> None:
    text = "16 MiB (16.0 MiB) at 18.79 GB/s: 2.5 us, 50 %, 6 faults, k0 3 B; not 910B2, 2 buffers or 1.5 MiBs"
    assert quantities(text) == {
        (16.0, "MiB"), (18.79, "GB/s"), (2.5, "us"), (50.0, "%"), (6.0, "faults"), (3.0, "B"),
    }  # fmt: skip


def test_every_figure_of_the_page_is_printed_by_its_command(printed: str) -> None:
    quoted = quantities(PAGE.read_text("utf-8"))
    assert len(quoted) > 40
    assert sorted(quoted - quantities(printed)) == []
    assert quantities("894.98 us") - quantities(printed)  # a digit that is wrong is found


def test_messages_of_the_page_are_printed_word_by_word(printed: str) -> None:
    quoted = re.findall(r"^```\n(.*?)\n```$", PAGE.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    assert quoted
    assert [message for message in quoted if message not in printed] == []


def test_what_the_page_says_beside_figures(printed: str) -> None:
    """Answers of the mask, of events and of moves that stand on the page as words."""
    for line in (
        "largest hole has 5.0 MiB; z may go: False",
        "reuse: c may be issued while x is there: False",
        "reuse: on the same stream 0 events, on another: c behind b",
        "banker: in 8.0 MiB c may be issued beside a: False",
        "banker: in 12.0 MiB c may be issued beside a: True",
        "strict, both places taken by what is needed sooner; w2: False",
        "free, both places taken by what is needed sooner; w2: True",
        "5 by touch, 2 by writeback, 2 by fault, 0 by prefetch",
        "5 by touch, 2 by writeback, 0 by fault, 2 by prefetch",
        "zero copy: on the 310B1 0 buffers move",
        "lifting ahead, 1 weights: makespan 720.35 us, hit rate 100.0 %",
    ):
        assert line in printed


def test_the_examples_pass_the_judge(draw: ModuleType) -> None:
    paging, caching = draw.memory_examples, draw.memory_cache
    schedules = [
        paging.places(),
        paging.on_demand(),
        paging.prefetched(prefetch_streams=2),
        paging.written_back(),
        paging.moved_early(),
        caching.one_reader(lift=True),
        *(caching.lifted(ahead) for ahead in caching.AHEAD),
    ]
    assert [validate(schedule) for schedule in schedules] == [()] * len(schedules)


def test_what_the_l2_picture_shows_is_what_kernels_found(draw: ModuleType) -> None:
    """Its replay refuses a schedule whose kernels found something else."""
    schedule = draw.memory_cache.lifted(1)
    capacity = draw.memory_cache.SMALL_L2
    curve = draw.memory_cache.occupancy(schedule, capacity)
    assert max(sum(held.values()) for _, held in curve) == capacity
    with pytest.raises(ValueError, match="does not find what its kernels found"):
        draw.memory_cache.occupancy(schedule, capacity // 2)


def test_pictures_of_the_page_are_those_of_its_command(draw: ModuleType) -> None:
    shown = re.findall(r"!\[[^\]]+\]\(pictures/(\w+)\.png\)", PAGE.read_text("utf-8"))
    assert shown == list(draw.PICTURES)
    pages = "".join(page.read_text("utf-8") for page in sorted(PAGE.parent.rglob("*.md")))
    assert {path.stem for path in PICTURES.glob("*.png")} == set(
        re.findall(r"\((?:\.\./)?pictures/(\w+)\.png\)", pages)
    )


@pytest.mark.slow
def test_every_picture_is_drawn(draw: ModuleType, tmp_path: Path) -> None:
    for name, picture in draw.PICTURES.items():
        path = tmp_path / f"{name}.png"
        picture(path)
        assert path.read_bytes().startswith(b"\x89PNG")
