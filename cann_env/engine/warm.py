"""The very first use: two halves of the engine are compiled side by side, by two processes.

Compiled code is kept on disk, so what one process compiles the other one reads. Half of the engine is what
lets time pass, the other half what is decided, bounded and observed; the step that ties them together needs
both and comes last. Where there is one processor, or no other process can be started, this one does it all.
"""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

from cann_env.engine.bound import optimistic_makespan
from cann_env.engine.choices import refresh_choices
from cann_env.engine.clock import advance_to
from cann_env.engine.jit import compile_for, is_cached
from cann_env.engine.observe import (
    copy_mask,
    fill_features,
    observe,
)
from cann_env.engine.start import prepare
from cann_env.engine.step import step
from cann_env.engine.tables import lay_out

_OTHER_HALF: tuple[tuple[Any, tuple[str, ...]], ...] = (
    (refresh_choices, ("program", "state")),
    (optimistic_makespan, ("program", "state")),
    (observe, ("image", "image", "features")),
    (copy_mask, ("image", "image", "mask")),
    (lay_out, ("image",)),
    (fill_features, ("image", "features")),
    (prepare, ("image", "image", "image")),
)


@cache
def warm_up() -> None:
    """Compile the engine if that has never been done on this machine."""
    if is_cached(step) or _processors() < 2 or not sys.executable:
        return
    folder = str(Path(__file__).parents[2])
    path = os.pathsep.join([folder, *filter(None, [os.environ.get("PYTHONPATH")])])
    words = [sys.executable, "-c", "from cann_env.engine.warm import compile_half; compile_half()"]
    try:
        other = subprocess.Popen(words, env={**os.environ, "PYTHONPATH": path}, stdin=subprocess.DEVNULL)
    except OSError:
        return
    try:
        compile_for(advance_to, ("program", "state", "int"))
    finally:
        other.wait()  # if it failed, what it lacks is compiled here, and says why


def compile_half() -> None:
    """Compile everything but what lets time pass."""
    for function, arguments in _OTHER_HALF:
        compile_for(function, arguments)


def _processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
