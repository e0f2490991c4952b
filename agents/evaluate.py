"""Test trained policies beside the schedulers: ``python -m agents.evaluate --suite standard``.

Every shipped policy, or those that are named, plays the sets of a suite: fresh instances of the families it
was trained on, and sets that differ from these along one axis each. Tables are printed, rows can be kept.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import multiprocessing
import os
import sys
import tomllib
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from agents.config import TrainConfig
from agents.contests import Row, contest
from agents.families import digest, instance
from agents.pictures import draw
from agents.shipping import Trained, load_policy
from agents.standings import Standing, standings
from agents.suites import TestSet, load_tests, suite_names
from cann_env import CannEnvError, InputError
from cann_env.workloads.tables import read_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_SUMMARY = "Test trained policies beside the schedulers, in distribution and out of it."
_TEST_SEED = 777
_AT_ONCE = 4
PRETRAINED = Path(__file__).parent / "pretrained"


# --- what is played, by whom ------------------------------------------------------------------------------


Files = dict[str, dict[int, Path]]
"""Policies by recipe and training seed."""


def recipes(paths: Sequence[Path]) -> Files:
    """Policies by recipe and training seed: ``serving_0.zip`` is seed 0 of ``serving``.

    Raises:
        InputError: There is none, or two have the same name.
    """
    found: Files = {}
    for path in paths:
        recipe, _, digits = path.stem.rpartition("_")
        name, seed = (recipe, int(digits)) if recipe and digits.isdigit() else (path.stem, 0)
        if seed in found.setdefault(name, {}):
            raise InputError(f"{path} and {found[name][seed]} have the same name; rename one of them")
        found[name][seed] = path
    if not found:
        raise InputError(f"there is no policy to test in {PRETRAINED}; name files")
    return found


def players(test: TestSet, files: Files) -> dict[int, Path]:
    """Who plays a set: the policies of its recipe, or those of the only recipe there is.

    Raises:
        InputError: There are several recipes, and none of them is the set's.
    """
    if test.recipe in files:
        return files[test.recipe]
    if len(files) == 1:
        return next(iter(files.values()))
    raise InputError(
        f"set {test.name!r} is for policies named {test.recipe!r}; among {', '.join(files)} there is none, "
        "and it is not clear which should play it: test one recipe at a time"
    )


def training_digests(trained: Sequence[Trained]) -> frozenset[str]:
    """Digests of all instances that some policies were trained on."""
    seen: set[str] = set()
    done: set[str] = set()
    for each in trained:
        config = read_table(TrainConfig, tomllib.loads(each.facts["config"]), "the policy's configuration")
        for play in config.plays:
            mark = repr((play.family, play.device, config.split_seed, play.instances))
            if mark not in done:
                done.add(mark)
                scenario = play.scenario()  # in the window of its family, as in test sets
                seen |= {digest(instance(scenario, config.split_seed, j)) for j in range(play.instances)}
    return frozenset(seen)


class _Job(NamedTuple):
    """Some instances of a set for one process."""

    test: TestSet
    places: list[int]
    files: dict[int, Path]
    trained_on: frozenset[str]
    samples: int


def _play(job: _Job) -> list[Row]:
    policies = {seed: load_policy(path) for seed, path in job.files.items()}
    cases = job.test.cases(_TEST_SEED, job.trained_on)
    return contest(job.test, [cases[i] for i in job.places], policies, samples=job.samples)


def _jobs(tests: Sequence[TestSet], files: Files, trained_on: frozenset[str], samples: int) -> Iterator[_Job]:
    for test in tests:
        count = len(test.cases(_TEST_SEED, trained_on))
        for first in range(0, count, _AT_ONCE):
            places = list(range(first, min(first + _AT_ONCE, count)))
            yield _Job(test, places, players(test, files), trained_on, samples)


def evaluate(
    suite: str, paths: Sequence[Path], *, samples: int, jobs: int, console: Console
) -> tuple[list[Row], dict[str, Any]]:
    """Let all policies and schedulers play a suite.

    Returns:
        The rows, and facts: how many test instances, and digests of both splits.
    """
    files = recipes(paths)
    trained_on = training_digests([load_policy(path) for seeds in files.values() for path in seeds.values()])
    tests = load_tests(suite)
    work = list(_jobs(tests, files, trained_on, samples))
    rows: list[Row] = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with (
        Progress(*columns, console=console, disable=not console.is_terminal) as bar,
        ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool,
    ):
        task = bar.add_task("Playing", total=len(work))
        for found in pool.map(_play, work):
            rows += found
            bar.update(task, advance=1, description=found[0].test if found else "Playing")
    tested = sorted({digest(case.program) for test in tests for case in test.cases(_TEST_SEED, trained_on)})
    facts = {
        "suite": suite,
        "policies": {recipe: [path.name for path in seeds.values()] for recipe, seeds in files.items()},
        "training_instances": len(trained_on),
        "training_split": _hash(sorted(trained_on)),
        "test_instances": len(tested),
        "test_split": _hash(tested),
        "in_both": len(trained_on & set(tested)),
    }
    return rows, facts


def _hash(digests: Sequence[str]) -> str:
    return hashlib.sha256("".join(digests).encode()).hexdigest()[:16]


# --- what is shown ----------------------------------------------------------------------------------------

_COLUMNS = (
    "contestant",
    "x reference",
    "95 %",
    "each seed",
    "x autotune",
    "x search",
    "median",
    "p90",
    "over bound",
    "over optimum",
    "W/T/L",
    "seconds",
)


def axes_of(rows: Sequence[Row]) -> list[str]:
    """The axes that were played, in the order of the suite."""
    return list(dict.fromkeys(row.axis for row in rows))


def cells_of(each: Standing) -> list[str]:
    """A standing as the cells of a table."""
    return [
        each.contestant + (f" ({each.unfinished} unfinished)" if each.unfinished else ""),
        f"{each.to_reference:.3f}",
        f"{each.low:.3f}-{each.high:.3f}",
        " ".join(f"{ratio:.3f}" for ratio in each.by_seed) if each.seeds > 1 else "",
        f"{each.to_autotune:.3f}",
        f"{each.to_search:.3f}",
        f"{each.median:.3f}",
        f"{each.p90:.3f}",
        f"{each.gap:.1%}",
        "" if each.optimum_gap is None else f"{each.optimum_gap:.1%}",
        f"{each.wins}/{each.ties}/{each.losses}",
        f"{each.seconds:.2g}",
    ]


def set_cells(rows: Sequence[Row], axis: str) -> tuple[list[str], list[list[str]]]:
    """Ratios to the reference, a row a contestant and a column a set: the headings and the rows."""
    tests = list(dict.fromkeys(row.test for row in rows if row.axis == axis))
    columns = {test: {s.contestant: s for s in standings(rows, axis, test=test)} for test in tests}
    lines = []
    for name in [each.contestant for each in standings(rows, axis)]:
        cells = [columns[test].get(name) for test in tests]
        lines.append([name, *("" if cell is None else f"{cell.to_reference:.3f}" for cell in cells)])
    return ["contestant", *tests], lines


def rich_table(title: str, heading: Sequence[str], lines: Sequence[Sequence[str]]) -> Table:
    """A table for a terminal; the first column stands left, the others right."""
    table = Table(title=title, title_justify="left")
    for name in heading:
        table.add_column(name, justify="right" if table.columns else "left")
    for line in lines:
        table.add_row(*line)
    return table


def markdown_table(title: str, heading: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """The same for a page."""
    ruler = ["---", *("---:" for _ in heading[1:])]
    parts = [f"**{title}**", "", *(f"| {' | '.join(line)} |" for line in (heading, ruler, *lines)), ""]
    return "\n".join(parts)


def show(rows: Sequence[Row], facts: dict[str, Any], *, markdown: bool) -> None:
    """Print standings and sets of every axis."""
    out = Console(width=max(170, Console().width), highlight=False)
    for axis in axes_of(rows):
        main_table = (axis, _COLUMNS, [cells_of(each) for each in standings(rows, axis)])
        sets = (f"{axis}: x reference, set by set", *set_cells(rows, axis))
        for table in (main_table, sets):
            if markdown:
                print(markdown_table(*table))
            else:
                out.print(rich_table(*table), "")
    print(
        f"{facts['test_instances']} test instances (split {facts['test_split']}), "
        f"{facts['training_instances']} training instances (split {facts['training_split']}), "
        f"{facts['in_both']} in both."
    )


def write_rows(rows: Sequence[Row], path: Path) -> None:
    """All rows as CSV."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Row)])
        writer.writeheader()
        writer.writerows(asdict(row) for row in rows)


def main(arguments: Sequence[str] | None = None) -> list[Row]:
    """Play, and print; the command line is ``arguments``, or that of the process."""
    parser = argparse.ArgumentParser("python -m agents.evaluate", description=_SUMMARY, allow_abbrev=False)
    parser.add_argument("policies", nargs="*", type=Path, help="files; all shipped ones unless named")
    parser.add_argument("--suite", default="standard", choices=suite_names(), help="sets to play")
    parser.add_argument("--samples", type=int, default=64, help="of the best-of contestants")
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1), help="processes")
    parser.add_argument("--json", action="store_true", help="print standings and facts as JSON")
    parser.add_argument("--markdown", action="store_true", help="print the tables for a page")
    parser.add_argument("--csv", type=Path, help="keep all rows")
    parser.add_argument("--picture", type=Path, help="draw the ratios to the reference")
    given = parser.parse_args(arguments)
    if min(given.samples, given.jobs) < 1:
        raise InputError(f"--samples is {given.samples} and --jobs {given.jobs}; write numbers from 1")
    console = Console(stderr=True)
    paths = given.policies or sorted(PRETRAINED.glob("*.zip"))
    rows, facts = evaluate(given.suite, paths, samples=given.samples, jobs=given.jobs, console=console)
    axes = axes_of(rows)
    if given.csv is not None:
        write_rows(rows, given.csv)
    if given.picture is not None:
        draw({axis: standings(rows, axis) for axis in axes}, given.picture)
    if given.json:
        print(
            json.dumps({"facts": facts, "axes": {a: [asdict(s) for s in standings(rows, a)] for a in axes}})
        )
        return rows
    show(rows, facts, markdown=given.markdown)
    return rows


if __name__ == "__main__":
    try:
        main()
    except CannEnvError as error:
        sys.exit(f"agents.evaluate: {error}")
