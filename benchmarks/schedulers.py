"""Schedulers against bounds, optima and CANN's own choice: the tables of ``docs/baselines.md``.

``python benchmarks/schedulers.py [--sections networks planted ...] [--data PATH] [--schedulers NAME ...]
[--baseline NAME] [--rows FOLDER [--reuse]] [--markdown FILE] [--json]`` runs the suites of each section and
prints a few tables: ``psplib`` holds schedulers against published optima and needs ``--data``, the folder
with ``j30.tar.gz`` and the other sets; ``networks`` runs the suites ``onnx`` and ``serving``; ``planted``
holds schedulers against optima known by construction; ``others`` runs what is left. ``--rows`` keeps a CSV
file of each suite, and ``--reuse`` reads those that are there instead of running them again. Every time is
simulated; only the seconds spent deciding are those of the machine.
"""

from __future__ import annotations

import csv
import sys
from dataclasses import fields, replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

from rates import machine, machine_line
from tables import arguments, number, print_json, print_table, progress

from cann_env.cli.results import geometric_mean
from cann_env.cli.score_files import csv_rows
from cann_env.cli.score_tables import COLUMNS, columns_of, duration, percent
from cann_env.cli.scores import LOSS, Score, by_family, standings
from cann_env.cli.suites import BASELINE, Contest, run_suite
from cann_env.schedulers import SHORT_LIST
from cann_env.suite import Asked, load_suite
from cann_env.units import CannEnvError, InputError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping, Sequence

    from cann_env.graph import CommandGraph
    from cann_env.suite import SuiteCase

SECTIONS = {
    "psplib": ("psplib",),
    "networks": ("onnx", "serving"),
    "planted": ("planted",),
    "others": ("generated", "oversubscribed", "training"),
}
"""Suites of each section."""

ROOM = 0.05
"""The bound leaves room where the baseline lies more than this above it."""


class Page(NamedTuple):
    """One table: its title, its columns, its rows, and what stands below it."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()


# --- running --------------------------------------------------------------------------------------------


def measure(
    suite: str,
    cases: Sequence[SuiteCase],
    contest: Contest,
    begin: Callable[[str], None],
    path: Path | None = None,
) -> list[Score]:
    """Scores of a suite; rows go to a CSV file as they come, if there is one."""
    scores: list[Score] = []
    with csv_rows(path) as write:
        for of_case in run_suite(cases, contest, lambda what: begin(f"{suite}: {what}")):
            write(of_case)
            scores += of_case
    return scores


def read_rows(path: Path) -> list[Score]:
    """Scores from a CSV file."""
    with path.open(encoding="utf-8", newline="") as file:
        return [_score(row) for row in csv.DictReader(file)]


_TEXTS = ("family", "case", "device", "objective", "scheduler", "optimum_from", "failure")


def _score(row: Mapping[str, str]) -> Score:
    values: dict[str, Any] = {}
    for name in (field.name for field in fields(Score)):
        text = row[name]
        if name in _TEXTS:
            values[name] = text
        elif name == "calibrated":
            values[name] = text == "True"
        elif name == "seconds":
            values[name] = float(text) if text else None
        else:
            values[name] = int(text) if text else None
    return Score(**values)


# --- tables ---------------------------------------------------------------------------------------------


def standing_page(title: str, scores: Sequence[Score]) -> Page:
    """What ``cann-env compare --suite`` prints of these scores."""
    rows = standings(scores)
    columns = columns_of(rows)
    cells = {**COLUMNS, "judge": lambda each: str(each.violations)}
    return Page(
        f"{title}: {len({score.case for score in scores})} cases",
        columns,
        [[cells[column](each) for column in columns] for each in rows],
    )


def pages_of_suite(suite: str, scores: Sequence[Score]) -> list[Page]:
    """All cases of a suite, then each family."""
    families = by_family(scores)
    pages = [standing_page(suite, scores)]
    if len(families) > 1:
        pages += [standing_page(f"{suite}, {family}", each) for family, each in families.items()]
    return pages


def room_page(scores: Sequence[Score], baseline: str) -> Page:
    """Cases where the baseline lies more than :data:`ROOM` above the bound; and the worst of all cases."""
    roomy = {
        score.case
        for score in scores
        if score.scheduler == baseline and score.gap is not None and score.gap > ROOM
    }
    rows = []
    for each in standings(scores):
        own = [score for score in scores if score.scheduler == each.scheduler and score.ratio is not None]
        gains = [1 / score.ratio for score in own if score.case in roomy]
        worst = min((1 / score.ratio for score in own), default=None)
        mean = geometric_mean(gains) if gains else None
        rows.append([each.scheduler, number(mean), str(len(gains)), number(worst), str(each.losses)])
    return Page(
        f"Where {baseline} is more than {ROOM:.0%} above the bound: {len(roomy)} cases",
        ("scheduler", "speedup", "cases", "worst of all cases", f"below {LOSS}"),
        rows,
        (f"Speedup: time of {baseline} over time, geometric mean. Worst, below {LOSS}: over all cases.",),
    )


def psplib_page(family: str, scores: Sequence[Score], paths_ns: Mapping[str, int]) -> Page:
    """Mean deviations as the literature gives them.

    Args:
        family: Name of the set.
        scores: Of the problems of the set.
        paths_ns: Length of the critical path by case.
    """
    rows = []
    for each in standings(scores):
        own = [score for score in scores if score.scheduler == each.scheduler and score.value_ns is not None]
        gaps = [score.optimum_gap for score in own if score.optimum_from == "case"]
        over_path = [score.value_ns / paths_ns[score.case] - 1 for score in own if score.value_ns]
        rows.append(
            [
                each.scheduler,
                percent(fmean(gaps) if gaps else None),
                f"{sum(gap == 0 for gap in gaps)}/{len(gaps)}",
                str(sum(gap < 0 for gap in gaps)),
                percent(fmean(over_path) if over_path else None),
                duration(each.seconds),
                number(rate_of(each.scheduler, each.seconds), 0),
                str(each.violations),
            ]
        )
    known = len({score.case for score in scores if score.optimum_from == "case"})
    return Page(
        f"{family}: {len({score.case for score in scores})} problems",
        (
            "scheduler",
            "over optimum",
            "optimal",
            "below",
            "over critical path",
            "seconds",
            "schedules/s",
            "violations",
        ),
        rows,
        (f"Arithmetic means, as the literature has them. The optimum is published for {known} problems.",),
    )


def rate_of(scheduler: str, seconds: float | None) -> float | None:
    """Schedules a second of a scheduler that is told how many to try, as ``search:5000``."""
    count = scheduler.rpartition(":")[2]
    return int(count) / seconds if count.isdecimal() and ":" in scheduler and seconds else None


def critical_path_ns(graph: CommandGraph) -> int:
    """Longest path of a graph whose kernels have fixed durations.

    Raises:
        InputError: A kernel has none.
    """
    finish: list[int] = []
    for command, before in zip(graph.commands, graph.predecessors, strict=True):
        durations = [kernel.duration_ns for kernel in command.kernels]
        if None in durations:
            raise InputError(f"command {command.name!r} of graph {graph.name!r} has no fixed duration")
        start = max((finish[i] for i in before), default=0)
        finish.append(start + sum(duration or 0 for duration in durations))
    return max(finish)


def planted_page(scores: Sequence[Score]) -> Page:
    """Gap to the optimum by family and scheduler, and the seconds spent."""
    ordered = standings(scores)
    families = by_family(scores)
    gaps = {
        family: {each.scheduler: each.optimum_gap for each in standings(of_family)}
        for family, of_family in families.items()
    }
    rows = [
        [
            each.scheduler,
            *(percent(gaps[family].get(each.scheduler)) for family in families),
            duration(each.seconds),
        ]
        for each in ordered
    ]
    return Page(
        "Over the planted optimum",
        ("kernels", *families, "seconds"),
        rows,
        ("Geometric means. The optimum is known by construction; no solver was asked.",),
    )


# --- sections -------------------------------------------------------------------------------------------


def section_pages(
    section: str,
    scores: Mapping[str, Sequence[Score]],
    baseline: str,
    cases: Mapping[str, Sequence[SuiteCase]],
) -> list[Page]:
    """The tables of a section.

    Args:
        section: One of :data:`SECTIONS`.
        scores: By suite.
        baseline: Whom ratios are taken to.
        cases: By suite.
    """
    if section == "psplib":
        paths = {case.name: critical_path_ns(case.make().graph) for case in cases["psplib"]}
        return [psplib_page(family, each, paths) for family, each in by_family(scores["psplib"]).items()]
    if section == "planted":
        return [planted_page(scores["planted"])]
    pages = [page for suite, each in scores.items() for page in pages_of_suite(suite, each)]
    if section == "networks":
        pages.append(room_page([score for each in scores.values() for score in each], baseline))
    return pages


def markdown(sections: Mapping[str, Sequence[Page]], command: str, place: str) -> str:
    """The tables as a page, below the command that printed them and the machine it ran on."""
    lines = [f"Printed by `{command}` on {place}.", ""]
    for section, pages in sections.items():
        lines += [f"## {section}", ""]
        for page in pages:
            lines += [f"**{page.title}**", "", _line(page.columns)]
            lines.append(_line(["---", *["---:"] * (len(page.columns) - 1)]))
            lines += [_line(row) for row in page.rows]
            lines += ["", *(line for note in page.notes for line in (note, ""))]
    return "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def stored(suite: str, folder: Path | None, contest: Contest) -> list[Score] | None:
    """Rows of a suite that were kept, of those asked for and against their baseline; None if none were kept.

    Raises:
        InputError: The rows lack a scheduler.
    """
    path = folder / f"{Path(suite).stem}.csv" if folder else None
    if path is None or not path.is_file():
        return None
    scores = read_rows(path)
    lacking = set(contest.schedulers) - {score.scheduler for score in scores}
    if lacking:
        raise InputError(f"{str(path)!r} has no rows of {', '.join(sorted(lacking))}; leave out --reuse")
    base = {score.case: score.value_ns for score in scores if score.scheduler == contest.baseline}
    return [
        replace(score, baseline_ns=base[score.case])
        for score in scores
        if score.scheduler in contest.schedulers
    ]


def run_all(
    cases: Mapping[str, Sequence[SuiteCase]], contest: Contest, rows: Path | None, reuse: bool
) -> dict[str, list[Score]]:
    """Scores by suite, read where they were kept and may be used again, else measured."""
    kept = {suite: stored(suite, rows, contest) if reuse else None for suite in cases}
    total = sum(len(cases[suite]) * len(contest.schedulers) for suite in cases if kept[suite] is None)
    scores: dict[str, list[Score]] = {}
    with progress(total) as begin:
        for suite, found in kept.items():
            path = rows / f"{Path(suite).stem}.csv" if rows else None
            scores[suite] = measure(suite, cases[suite], contest, begin, path) if found is None else found
    return scores


def command_of(given: argparse.Namespace) -> str:
    """How to print the same tables elsewhere: without paths, which would not be the same there."""
    words = ["python benchmarks/schedulers.py"]
    words += ["--sections", *given.sections] if given.sections else []
    words += ["--data PATH"] if given.data else []
    words += ["--schedulers", *given.schedulers, "--baseline", given.baseline, "--seed", str(given.seed)]
    return " ".join(words)


def main() -> None:
    """Run and print."""
    parser = arguments(__doc__, device=False)
    parser.add_argument("--sections", choices=SECTIONS, nargs="+", default=None)
    parser.add_argument("--schedulers", nargs="+", default=list(SHORT_LIST))
    parser.add_argument("--baseline", default=BASELINE)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--data", type=Path, help="folder of the sets of PSPLIB")
    parser.add_argument("--rows", type=Path, help="folder for the rows of each suite")
    parser.add_argument("--reuse", action="store_true", help="read rows that are there instead of running")
    parser.add_argument("--markdown", type=Path, help="also write the tables into this file")
    given = parser.parse_args()
    sections = given.sections or [name for name in SECTIONS if name != "psplib" or given.data]
    try:
        names = tuple(dict.fromkeys([*given.schedulers, given.baseline]))
        contest = Contest(schedulers=names, baseline=given.baseline, seed=given.seed)
        asked = Asked(seed=given.seed, data=given.data)
        cases = {suite: load_suite(suite).cases(asked) for each in sections for suite in SECTIONS[each]}
        scores = run_all(cases, contest, given.rows, given.reuse)
    except CannEnvError as error:
        sys.exit(str(error))
    pages = {
        section: section_pages(
            section, {suite: scores[suite] for suite in SECTIONS[section]}, given.baseline, cases
        )
        for section in sections
    }
    if given.markdown:
        page = markdown(pages, command_of(given), machine_line(machine()))
        given.markdown.write_text(page, encoding="utf-8")
    show(pages, given.json)


def show(pages: Mapping[str, Sequence[Page]], as_json: bool) -> None:
    """Print all tables."""
    if as_json:
        print_json(**{section: list(each) for section, each in pages.items()}, machine=machine())
        return
    for each in pages.values():
        for page in each:
            print_table(page.title, page.columns, page.rows, page.notes)
    print(machine_line(machine()))


if __name__ == "__main__":
    main()
