"""Schedule generation: two schemes against plain oracles and their definitions, and the search on top."""

from __future__ import annotations

import importlib
import inspect
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba.core.dispatcher import Dispatcher
from projects import (
    could_start_earlier,
    is_feasible,
    makespan,
    optimum,
    plain_parallel,
    plain_serial,
    project,
    random_project,
    waits_needlessly,
)

import cann_env.generation
from cann_env.engine import jit
from cann_env.generation import Population, generate
from cann_env.units import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

FOLDER = Path(cann_env.generation.__file__).parent
SEEDS = st.integers(0, 2**32 - 1)
COMPILED = not os.environ.get("NUMBA_DISABLE_JIT", "0").strip("0")
needs_compiler = pytest.mark.skipif(not COMPILED, reason="NUMBA_DISABLE_JIT leaves nothing to cache")


# --- by hand ------------------------------------------------------------------------------------------


def test_serial_inserts_before_and_parallel_does_not_wait() -> None:
    """One resource of 2; by key ``a``, then ``b``, then ``c``.

    ::

        task   duration   units   after
        a      2          1
        b      3          2       a
        c      3          1

        serial     a 0-2 | b 2-5 | c 5-8            c would reach into b
        parallel   a 0-2, c 0-3  | b 3-6            c does not wait, b has to

    With ``c`` one shorter it fits before ``b``, and serial puts it there though its turn came later.
    """
    tasks = project([2, 3, 3], [[1], [2], [1]], [2], [(0, 1)])
    assert generate(tasks, [0, 1, 2]).tolist() == [0, 2, 5]
    assert generate(tasks, [0, 1, 2], scheme="parallel").tolist() == [0, 3, 0]
    shorter = project([2, 3, 2], [[1], [2], [1]], [2], [(0, 1)])
    for scheme in ("serial", "parallel"):
        assert generate(shorter, [0, 1, 2], scheme=scheme).tolist() == [0, 2, 0]


def test_serial_waits_where_waiting_is_better() -> None:
    """No schedule that never waits is the best: the long ``c`` must let ``b`` by, which ``d`` waits for.

    ::

        task   duration   units   after         serial     a 0-1 | b 1-2 |
        a      1          1                                        | d 2-12 |
        b      1          2       a                                | c 2-12 |
        c      10         1                     parallel   a 0-1 |
        d      10         1       b                        c 0-10 | b 10-11 | d 11-21
    """
    tasks = project([1, 1, 10, 10], [[1], [2], [1], [1]], [2], [(0, 1), (1, 3)])
    assert generate(tasks, [0, 1, 2, 3]).tolist() == [0, 1, 2, 2]
    for keys in ([0, 1, 2, 3], [3, 2, 1, 0]):
        assert generate(tasks, keys, scheme="parallel").tolist() == [0, 10, 0, 11]
    assert optimum(tasks) == 12


def test_a_task_needs_room_to_its_end() -> None:
    """``c`` would fit at 0 beside ``a``, but not for long: ``b`` takes all from 3 to 5. It is released at 1.

    ::

        a 0-3, one of two | b 3-5, two, released at 3 | c 5-9, one
    """
    tasks = project([3, 2, 4], [[1], [2], [1]], [2], releases=[0, 3, 1])
    assert generate(tasks, [0, 1, 2]).tolist() == [0, 3, 5]
    assert generate(tasks, [0, 1, 2], scheme="parallel").tolist() == [0, 5, 1]


def test_of_equal_keys_the_lowest_task_goes_first() -> None:
    tasks = project([1, 2, 3], [[1]] * 3, [1])
    for scheme in ("serial", "parallel"):
        assert generate(tasks, [0, 0, 0], scheme=scheme).tolist() == [0, 1, 3]
        assert generate(tasks, [1, 1, 0], scheme=scheme).tolist() == [3, 4, 0]


def test_justification_shifts_to_the_right() -> None:
    """``c`` and ``b`` end together; then there is nothing to gain: ``a`` stays where it is.

    ::

        a 0-2 | b 2-6            a 0-2 | b 2-6
        c 0-3                            c 3-6
    """
    tasks = project([2, 4, 3], [[1], [1], [1]], [2], [(0, 1)])
    found = Population(tasks).justified(np.array([0, 2, 0]))
    assert found.tolist() == [0, 2, 3]


def test_what_is_not_there_is_refused() -> None:
    tasks = project([1, 1], [[1, 0], [0, 3]], [1, 2])
    for use in (lambda: generate(tasks, [0, 1]), lambda: Population(tasks)):
        with pytest.raises(InputError, match="task 1 holds 3 of 'r1'; there are 2"):
            use()
    with pytest.raises(InputError, match="scheme 'greedy' is not known; write 'serial' or 'parallel'"):
        generate(project([1], [[1]], [1]), [0], scheme="greedy")


# --- laws of the schemes ------------------------------------------------------------------------------


def schemes_equal_their_oracles(seed: int) -> None:
    rng = np.random.default_rng(seed)
    tasks = random_project(rng)
    keys = rng.integers(0, 8, len(tasks.duration_ns)).tolist()
    assert generate(tasks, keys).tolist() == plain_serial(tasks, keys)
    assert generate(tasks, keys, scheme="parallel").tolist() == plain_parallel(tasks, keys)


def serial_schedules_are_active(seed: int) -> None:
    rng = np.random.default_rng(seed)
    tasks = random_project(rng)
    starts = generate(tasks, rng.permutation(len(tasks.duration_ns))).tolist()
    assert is_feasible(tasks, starts)
    assert not list(could_start_earlier(tasks, starts))


def parallel_schedules_never_wait(seed: int) -> None:
    rng = np.random.default_rng(seed)
    tasks = random_project(rng)
    starts = generate(tasks, rng.permutation(len(tasks.duration_ns)), scheme="parallel").tolist()
    assert is_feasible(tasks, starts)
    assert not list(waits_needlessly(tasks, starts))


def justified_schedules_are_no_longer(seed: int) -> None:
    """And nothing in them could end later without moving anything else, or the end of all."""
    rng = np.random.default_rng(seed)
    tasks = random_project(rng, released=False)
    starts = generate(tasks, rng.permutation(len(tasks.duration_ns)))
    found = Population(tasks).justified(starts).tolist()
    assert is_feasible(tasks, found)
    assert min(found) >= 0
    assert makespan(tasks, found) <= makespan(tasks, starts.tolist())
    end = makespan(tasks, found)
    mirrored = [end - start - int(length) for start, length in zip(found, tasks.duration_ns, strict=True)]
    edges = [(b, a) for a in range(len(found)) for b in tasks.successors(a)]
    assert not list(could_start_earlier(mirror(tasks, edges), mirrored))


def mirror(tasks: Any, edges: list[tuple[int, int]]) -> Any:
    """The project from its end to its beginning; tails are not asked for."""
    return project(tasks.duration_ns.tolist(), tasks.demand.tolist(), tasks.capacity.tolist(), edges)


# --- laws of the search -------------------------------------------------------------------------------


def the_best_schedule_is_what_it_says(seed: int) -> None:
    rng = np.random.default_rng(seed)
    tasks = random_project(rng)
    population = Population(tasks, seed=seed)
    population.run(int(rng.integers(1, 300)))
    starts = population.starts.tolist()
    assert is_feasible(tasks, starts)
    assert makespan(tasks, starts) == population.makespan
    assert population.makespan >= int((tasks.tail_ns + tasks.release_ns).max())
    for member in population.members():
        assert is_feasible(tasks, member.tolist())
        assert makespan(tasks, member.tolist()) >= population.makespan


def members_are_distinct_and_sorted(seed: int) -> None:
    tasks = random_project(np.random.default_rng(seed))
    population = Population(tasks, seed=1)
    population.run(100)
    found = [member.tolist() for member in population.members()]
    lengths = [makespan(tasks, member) for member in found]
    assert found
    assert lengths == sorted(lengths)
    assert len({tuple(member) for member in found}) == len(found)


def chunks_come_to_the_same(seed: int) -> None:
    """However often it is interrupted, also in the middle of a generation; more schedules are never worse."""
    rng = np.random.default_rng(seed)
    tasks = random_project(rng)
    whole, parts = Population(tasks, seed=3), Population(tasks, seed=3)
    last = None
    total = 0
    for chunk in rng.integers(1, 60, 8).tolist():
        total += chunk
        parts.run(chunk)
        assert parts.generated == total or parts.done
        assert last is None or parts.makespan <= last
        last = parts.makespan
    whole.run(total)
    assert whole.makespan == parts.makespan
    assert whole.generated == parts.generated or whole.done
    assert whole.starts.tolist() == parts.starts.tolist()
    if not whole.done:
        assert [m.tolist() for m in whole.members()] == [m.tolist() for m in parts.members()]


def tiny_projects_are_solved(seed: int) -> None:
    tasks = random_project(np.random.default_rng(seed), most=5)
    population = Population(tasks, seed=seed)
    population.run(3000)
    assert population.makespan == optimum(tasks)


LAWS = (
    schemes_equal_their_oracles,
    serial_schedules_are_active,
    parallel_schedules_never_wait,
    justified_schedules_are_no_longer,
    the_best_schedule_is_what_it_says,
    members_are_distinct_and_sorted,
    chunks_come_to_the_same,
    tiny_projects_are_solved,
)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
@settings(max_examples=20, deadline=None, derandomize=True, database=None)
@given(seed=SEEDS)
def test_law(law: Callable[[int], None], seed: int) -> None:
    law(seed)


@pytest.mark.thorough
@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
@settings(max_examples=600, deadline=None, derandomize=True, database=None)
@given(seed=SEEDS)
def test_law_at_length(law: Callable[[int], None], seed: int) -> None:
    law(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_projects_of_seven_tasks_are_solved(seed: int) -> None:
    rng = np.random.default_rng(seed)
    tasks = random_project(rng, most=7)
    population = Population(tasks, seed=seed)
    population.run(5000)
    assert population.makespan == optimum(tasks)


def hard_project() -> Any:
    """Thirty tasks on two resources, for which a first population is not the end."""
    rng = np.random.default_rng(7)
    edges = [(a, b) for b in range(30) for a in range(b) if rng.random() < 0.08]
    demand = rng.integers(0, 5, (30, 2)).tolist()
    return project(rng.integers(1, 30, 30).tolist(), demand, [6, 6], edges)


def test_a_seed_decides_everything() -> None:
    tasks = hard_project()
    found = []
    for seed in (1, 1, 2):
        population = Population(tasks, seed=seed)
        population.run(200)
        found.append([member.tolist() for member in population.members()])
    assert found[0] == found[1] != found[2]


def test_the_search_improves_on_its_first_population() -> None:
    """And on the best of as many random orders."""
    tasks = hard_project()
    population = Population(tasks, seed=0)
    population.run(40)
    first = population.makespan
    population.run(4000)
    assert population.makespan < first
    rng = np.random.default_rng(0)
    drawn = [makespan(tasks, generate(tasks, rng.permutation(30)).tolist()) for _ in range(1000)]
    assert population.makespan < min(drawn)


def test_what_is_found_backwards_is_a_schedule_too() -> None:
    """Whichever direction a better schedule comes from, its starts are those of the project."""
    tasks = hard_project()
    for seed in range(5):
        population = Population(tasks, seed=seed)
        for _ in range(12):
            population.run(30)
            starts = population.starts.tolist()
            assert is_feasible(tasks, starts)
            assert makespan(tasks, starts) == population.makespan


def test_justification_goes_by_the_end_of_tasks() -> None:
    """By their starts a longer schedule may come of it."""
    tasks = hard_project()
    population = Population(tasks)
    rng = np.random.default_rng(1)
    for _ in range(60):
        starts = generate(tasks, rng.permutation(30))
        found = population.justified(starts).tolist()
        assert is_feasible(tasks, found)
        assert makespan(tasks, found) <= makespan(tasks, starts.tolist())


def test_a_bound_ends_the_search() -> None:
    """What is asked for is reached at once; a search without a bound goes on to the critical path."""
    tasks = hard_project()
    free = Population(tasks, seed=0)
    free.run(2000)
    assert free.generated == 2000
    assert not free.done
    bounded = Population(tasks, seed=0, bound=free.makespan + 10)
    bounded.run(2000)
    assert bounded.done
    assert bounded.generated < 2000
    assert free.makespan <= bounded.makespan <= free.makespan + 10


# --- compiled code ------------------------------------------------------------------------------------


@needs_compiler
def test_every_kernel_carries_the_stamp_of_both_folders() -> None:
    """A digest of the engine and of this folder, so that an edit of either recompiles."""
    found = 0
    for path in sorted(FOLDER.glob("[a-z]*.py")):
        module = importlib.import_module(f"cann_env.generation.{path.stem}")
        for value in vars(module).values():
            own = inspect.unwrap(getattr(value, "py_func", value))
            if isinstance(value, Dispatcher) and own.__module__ == module.__name__:
                found += 1
                assert value._cache._cache_file._source_stamp == jit.engine_digest(FOLDER), own.__name__
    assert found > 20
    assert jit.engine_digest(FOLDER) != jit.engine_digest()


def test_the_stamp_follows_every_file_of_the_folder(tmp_path: Path) -> None:
    copy = tmp_path / "generation"
    shutil.copytree(FOLDER, copy, ignore=shutil.ignore_patterns("__pycache__"))
    before = jit.engine_digest.__wrapped__(copy)
    for path in sorted(copy.glob("*.py")):
        text = path.read_text(encoding="utf-8")
        path.write_text(text + "# edited\n", encoding="utf-8")
        assert jit.engine_digest.__wrapped__(copy) != before, path.name
        path.write_text(text, encoding="utf-8")
    assert jit.engine_digest.__wrapped__(copy) == before


ASK = """
from cann_env.generation import generate, population
from projects import project
print(generate(project([2, 3], [[1], [1]], [1]), [0, 1]).tolist())
print(sum(population.generate.stats.cache_hits.values()))
"""


@needs_compiler
@pytest.mark.slow
def test_an_edited_scheme_recompiles_its_callers(tmp_path: Path) -> None:
    """Two tasks one after another; once the serial scheme starts everything at 0, they are side by side."""
    package = tmp_path / "cann_env"
    shutil.copytree(FOLDER.parent, package, ignore=shutil.ignore_patterns("__pycache__"))

    def ask() -> list[str]:
        done = subprocess.run(
            [sys.executable, "-c", ASK],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{Path(__file__).parent}"},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.split("\n")[:2]

    assert ask() == ["[0, 2]", "0"]
    assert ask() == ["[0, 2]", "1"]
    scheme = package / "generation" / "schemes.py"
    text = scheme.read_text(encoding="utf-8")
    old = "start = _earliest(q, w, task)"
    assert text.count(old) == 1
    scheme.write_text(text.replace(old, "start = 0"), encoding="utf-8")
    assert ask() == ["[0, 0]", "0"]
