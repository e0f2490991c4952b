"""A running or finished program as one RGB image, quick enough to draw at every step.

Rows go in, a ``uint8`` array of shape (height, width, 3) comes out; drawn with Pillow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cann_env.device.spec import CLASSES
from cann_env.render import palette
from cann_env.render.rows import clip, kernel_spans
from cann_env.units import InputError, format_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from PIL.ImageDraw import ImageDraw

    from cann_env.schedule import BlockRun, CommandRun

_LEFT, _RIGHT, _TOP, _BOTTOM = 74, 14, 30, 46


def frame(
    blocks: Sequence[BlockRun],
    runs: Sequence[CommandRun],
    streams: int,
    now_ns: int,
    *,
    size: tuple[int, int] = (960, 360),
    horizon_ns: int = 0,
    title: str = "",
) -> NDArray[np.uint8]:
    """Draw streams as an image; ``frame(*rows_of(schedule))`` draws a finished schedule.

    Args:
        blocks: Block rows so far.
        runs: Command rows so far; see :class:`~cann_env.render.rows.Rows` for running ones.
        streams: Rows to draw, at least 1.
        now_ns: The present: nothing is drawn beyond it, and a line marks it.
        size: Width and height in pixels, at least 240 by 120.
        horizon_ns: The time at the right edge, for example the lower bound; the present if that is later.
        title: Written above.

    Returns:
        Image, shape (height, width, 3), dtype uint8.

    Raises:
        InputError: Pillow is missing, or the size is too small.
    """
    width, height = size
    if width < 240 or height < 120:
        raise InputError(f"frame size is {size}; write at least (240, 120)")
    image_module, draw_module = _pillow()
    image = image_module.new("RGB", size, "white")
    draw = draw_module.Draw(image)
    end_ns = max(now_ns, horizon_ns, 1)
    pitch = (height - _TOP - _BOTTOM) / max(1, streams)
    _rows(draw, width, streams, pitch)
    scale = (width - _LEFT - _RIGHT) / end_ns
    used = _spans(draw, blocks, runs, now_ns, scale, pitch)
    bottom = height - _BOTTOM
    draw.line([(_LEFT + now_ns * scale, _TOP), (_LEFT + now_ns * scale, bottom)], fill=palette.INK)
    draw.text((_LEFT, 8), title, fill=palette.INK)
    draw.text((_LEFT, bottom + 5), "0", fill=palette.FAINT)
    draw.text((width - _RIGHT, bottom + 5), format_time(end_ns), fill=palette.FAINT, anchor="ra")
    draw.text((width - _RIGHT, 8), f"now {format_time(now_ns)}", fill=palette.INK, anchor="ra")
    _key(draw, used, height)
    return np.asarray(image, dtype=np.uint8).copy()


def _pillow() -> tuple[Any, Any]:
    try:
        from PIL import Image, ImageDraw
    except ImportError as error:
        raise InputError('an image of the streams needs Pillow: pip install "cann-env[plot]"') from error
    return Image, ImageDraw


def _rows(draw: ImageDraw, width: int, streams: int, pitch: float) -> None:
    every = max(1, round(12 / pitch))
    for i in range(streams):
        middle = _TOP + (i + 0.5) * pitch
        draw.line([(_LEFT, middle), (width - _RIGHT, middle)], fill=palette.RULE)
        if i % every == 0:
            draw.text((_LEFT - 8, middle), f"stream {i}", fill=palette.INK, anchor="rm")


def _spans(
    draw: ImageDraw,
    blocks: Sequence[BlockRun],
    runs: Sequence[CommandRun],
    now_ns: int,
    scale: float,
    pitch: float,
) -> set[str]:
    """Draw every command and its kernels up to the present; return the classes seen."""
    stream_of: dict[int, int] = {}
    for run in runs:
        stream_of[run.command] = run.stream
        _bar(draw, run.stream, clip(run.start_ns, run.finish_ns, now_ns), palette.HELD, scale, pitch)
    used: set[str] = set()
    for span in kernel_spans(blocks):
        times = clip(span.start_ns, span.finish_ns, now_ns)
        colour = palette.CLASS_COLOURS[span.work_class]
        _bar(draw, stream_of[span.command], times, colour, scale, pitch)
        used.add(span.work_class)
    return used


def _bar(draw: ImageDraw, row: int, times: tuple[int, int], colour: str, scale: float, pitch: float) -> None:
    left, right = (_LEFT + time * scale for time in times)
    top = _TOP + row * pitch
    # One pixel short on the right, so that neighbours stay apart.
    box = [left, top + 0.12 * pitch, max(left, right - 1.5), top + 0.88 * pitch]
    draw.rectangle(box, fill=colour)


def _key(draw: ImageDraw, used: set[str], height: int) -> None:
    x = float(_LEFT)
    for name in CLASSES:
        if name in used:
            draw.rectangle([x, height - 19, x + 9, height - 10], fill=palette.CLASS_COLOURS[name])
            draw.text((x + 14, height - 15), name, fill=palette.INK, anchor="lm")
            x += 14 + draw.textlength(name) + 16
