"""Demonstrations: decisions of a scheduler on training instances, to be cloned.

The scheduler plans with the agent's own window and limits, so that each of its decisions is one that the
agent could have taken. What it found is kept in a file, since a search takes longer than anything else.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

from agents.families import Play, instance
from cann_env.options import Window
from cann_env.schedulers import decide, make_scheduler

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path


class Demonstration(NamedTuple):
    """What a scheduler did on one instance.

    Attributes:
        play: Number of the play.
        number: Of the instance within the training split.
        actions: All decisions.
        objective_ns: What they came to.
    """

    play: int
    number: int
    actions: tuple[int, ...]
    objective_ns: int


class _Task(NamedTuple):
    play: Play
    window: str
    split_seed: int
    number: int
    teacher: str


def demonstrations(
    plays: Sequence[Play],
    window: Window,
    *,
    split_seed: int,
    teacher: str,
    folder: Path,
    workers: int = 1,
    watch: Callable[[int, int], None] | None = None,
) -> list[Demonstration]:
    """Let a scheduler decide on all training instances of all plays, or read what it decided before.

    Args:
        plays: What is played; each says how many instances it has.
        window: The agent's.
        split_seed: Of the training split.
        teacher: Name of a scheduler.
        folder: Where files are kept, one for each play.
        workers: Processes at work.
        watch: Told how many of how many are done.

    Raises:
        EpisodeError: The scheduler does not finish an instance.
    """
    folder.mkdir(parents=True, exist_ok=True)
    found: list[Demonstration] = []
    total = sum(play.instances for play in plays)
    for index, play in enumerate(plays):
        tasks = [_Task(play, window.value, split_seed, j, teacher) for j in range(play.instances)]
        file = folder / f"{_name(play, window, split_seed, teacher)}.json"
        if file.exists():
            rows = json.loads(file.read_text(encoding="utf-8"))
        else:
            rows = []
            for row in _results(tasks, workers):
                rows.append(row)
                if watch is not None:
                    watch(len(found) + len(rows), total)
            draft = file.with_suffix(".part")
            draft.write_text(json.dumps(rows), encoding="utf-8")
            draft.replace(file)
        found += [Demonstration(index, j, tuple(row[0]), row[1]) for j, row in enumerate(rows)]
        if watch is not None:
            watch(len(found), total)
    return found


def _results(tasks: Sequence[_Task], workers: int) -> Iterable[tuple[list[int], int]]:
    if workers == 1:
        yield from map(_decide, tasks)
        return
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(_decide, tasks, chunksize=4)


def _decide(task: _Task) -> tuple[list[int], int]:
    program = instance(task.play.scenario(Window(task.window)), task.split_seed, task.number)
    outcome = decide(program, make_scheduler(task.teacher, task.number))
    return list(outcome.actions), outcome.objective_ns


def _name(play: Play, window: Window, split_seed: int, teacher: str) -> str:
    scenario = play.scenario(window)
    parts = json.dumps([scenario.to_dict(), split_seed, play.instances, teacher], sort_keys=True)
    return f"{play.name.replace(' ', '_')}-{hashlib.sha256(parts.encode()).hexdigest()[:12]}"
