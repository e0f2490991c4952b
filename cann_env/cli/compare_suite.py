"""``cann-env compare --suite``: opens the suite, runs it, prints the tables, writes the files."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.markup import escape

from cann_env.cli.files import check_folder, check_picture
from cann_env.cli.printing import JUDGED_WRONG, print_json, progress, show_table
from cann_env.cli.score_files import csv_rows, partial_path
from cann_env.cli.score_tables import explanation, family_label, suite_tables
from cann_env.cli.scores import LOSS, WIN, by_family, row_of, standings
from cann_env.cli.suites import Contest, run_suite, run_suite_apart, with_seconds
from cann_env.render.comparison import Point, comparison
from cann_env.suite import Asked, load_suite

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from cann_env.cli.scores import Score
    from cann_env.suite import SuiteCase

_REASONS_SHOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteRequest:
    """What was asked for.

    Attributes:
        suite: Name or path.
        schedulers: Who is run.
        policies: Files of trained policies that are among them.
        baseline: Whom ratios are taken to; it is run too.
        seed: Of the instances, added to what the suite says, and of schedulers that draw.
        seconds: Time for anytime schedulers; None for their own.
        jobs: Cases that run at once, each in a process of its own.
        data: Where instances lie that are not shipped.
        csv: File for the rows.
        picture: File for the picture.
        as_json: Print JSON instead of tables.
    """

    suite: str
    schedulers: tuple[str, ...]
    baseline: str
    policies: tuple[Path, ...] = ()
    seed: int = 0
    seconds: float | None = None
    jobs: int = 1
    data: Path | None = None
    csv: Path | None = None
    picture: Path | None = None
    as_json: bool = False


def compare_suite(request: SuiteRequest) -> None:
    """Run the suite and say what came out; leaves with exit code 1 if the judge found a violation.

    Raises:
        InputError: Something that was asked for does not exist, or cannot be written.
    """
    for path in (request.csv, request.picture):
        check_folder(path)
    check_picture("--picture", request.picture)
    suite = load_suite(request.suite)
    asked = Asked(seed=request.seed, data=request.data)
    cases = suite.cases(asked)
    names = [with_seconds(name, request.seconds) for name in (*request.schedulers, request.baseline)]
    contest = Contest(
        schedulers=tuple(dict.fromkeys(names)),
        baseline=names[-1],
        policies=request.policies,
        seed=request.seed,
    )
    scores = _run(request, asked, cases, contest)
    if request.picture is not None:
        labels = {family: family_label(family, of_one) for family, of_one in by_family(scores).items()}
        points = [Point(labels[each.family], each.case, each.scheduler, each.ratio) for each in scores]
        title = f"Suite {suite.name}: {len(cases)} cases"
        comparison(points, request.picture, title=title, baseline=contest.baseline, win=WIN, loss=LOSS)
    if request.as_json:
        print_json(suite_json(suite.name, contest.baseline, scores))
    else:
        _show(suite.name, contest.baseline, scores)
        for label, path in (("Rows", request.csv), ("Picture", request.picture)):
            if path is not None:
                typer.echo(f"{label:<9} {path}")
    if any(score.violations for score in scores):
        raise typer.Exit(JUDGED_WRONG)


def _run(request: SuiteRequest, asked: Asked, cases: Sequence[SuiteCase], contest: Contest) -> list[Score]:
    scores: list[Score] = []
    total = len(cases) * len(contest.schedulers)
    try:
        with progress("Scheduling", total, quiet=request.as_json) as bar, csv_rows(request.csv) as write:
            if request.jobs == 1:
                found = run_suite(cases, contest, bar.begin, bar.step, bar.watch)
            else:
                found = run_suite_apart(request.suite, asked, len(cases), contest, request.jobs, bar.step)
            for of_case in found:
                write(of_case)
                scores += of_case
    except BaseException:
        if request.csv is not None and scores:
            done = len(scores) // len(contest.schedulers)
            part = partial_path(request.csv)
            typer.echo(f"Not finished: the rows of {done} of {len(cases)} cases are in {part}", err=True)
        raise
    return scores


def suite_json(suite: str, baseline: str, scores: Sequence[Score]) -> dict[str, Any]:
    """What ``--json`` prints: the rows, and the numbers of the tables."""
    return {
        "suite": suite,
        "baseline": baseline,
        "rows": [row_of(score) for score in scores],
        "overall": [asdict(each) for each in standings(scores)],
        "families": {
            family: [asdict(each) for each in standings(of_family)]
            for family, of_family in by_family(scores).items()
        },
    }


def _show(suite: str, baseline: str, scores: Sequence[Score]) -> None:
    console = Console(highlight=False)
    for number, table in enumerate(suite_tables(f"Suite {suite}", scores)):
        show_table(console, table)
        if number == 0:
            console.print(escape(explanation(baseline, scores)))
        console.print()
    reasons: dict[str, list[Score]] = {}
    for score in scores:
        if score.failure or score.violations:
            reasons.setdefault(score.scheduler, []).append(score)
    for name, of_one in reasons.items():
        for score in of_one[:_REASONS_SHOWN]:
            reason = score.failure or f"the judge counts {score.violations} wrong"
            console.print(f"[red]{escape(name)}[/red] on {escape(score.case)}: {escape(reason)}")
        if len(of_one) > _REASONS_SHOWN:
            console.print(f"[red]{escape(name)}[/red]: {len(of_one) - _REASONS_SHOWN} more cases like these")
    if reasons:
        console.print()
