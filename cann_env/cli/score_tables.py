"""Tables of a comparison over a suite: all cases, then each family; the best scheduler first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cann_env.cli.scores import by_family, standings
from cann_env.cli.tables import plain_table, verdict
from cann_env.device.spec import ASSUMED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rich.table import Table

    from cann_env.cli.scores import Score, Standing

ABSENT = "-"
"""Stands where there is no number."""

_HELP = (
    "Ratio: time over that of {baseline}: geometric mean, median, and what nine cases of ten stay within. "
    "To bound, to optimum: mean gaps (geometric), the latter over as many cases as have one. W/T/L: wins, "
    "ties, losses against {baseline} (1.05 and 0.98). Seconds: mean time spent deciding. What did not finish "
    "is in no mean."
)


def number(value: float | None) -> str:
    """A ratio, with three digits behind the point."""
    return ABSENT if value is None else f"{value:.3f}"


def percent(value: float | None) -> str:
    """A gap, in percent: a tenth of one counts, a hundredth where it is small."""
    if value is None:
        return ABSENT
    return f"{value:.2%}" if abs(value) < 0.01 else f"{value:.1%}"


def duration(seconds: float | None) -> str:
    """Seconds, with three figures that count."""
    return ABSENT if seconds is None else f"{seconds:.3g}"


def _optimum(each: Standing) -> str:
    return f"{percent(each.optimum_gap)} ({each.optima})" if each.optima else ABSENT


COLUMNS: dict[str, Callable[[Standing], str]] = {
    "scheduler": lambda each: each.scheduler,
    "ratio": lambda each: number(each.ratio),
    "median": lambda each: number(each.ratio_median),
    "p90": lambda each: number(each.ratio_p90),
    "to bound": lambda each: percent(each.gap),
    "to optimum": _optimum,
    "W/T/L": lambda each: f"{each.wins}/{each.ties}/{each.losses}",
    "seconds": lambda each: duration(each.seconds),
    "failed": lambda each: f"{each.failures}/{each.cases}",
    "judge": lambda each: verdict(each.violations),
}
"""What a column says of a scheduler, by its title."""


def columns_of(rows: Sequence[Standing]) -> list[str]:
    """Titles of the columns that say something: optima, failures and violations only if there are some."""
    said = {
        "to optimum": any(each.optima for each in rows),
        "failed": any(each.failures for each in rows),
        "judge": any(each.violations for each in rows),
    }
    return [title for title in COLUMNS if said.get(title, True)]


def explanation(baseline: str, scores: Sequence[Score]) -> str:
    """What the columns mean, and what the judge says of all schedules."""
    wrong = sum(score.violations for score in scores)
    judged = sum(score.value_ns is not None for score in scores)
    said = f"found {wrong} violations in" if wrong else "found nothing wrong in"
    return f"{_HELP.format(baseline=baseline)} The judge {said} {judged} schedules.{_assumed(scores)}"


def _assumed(scores: Sequence[Score]) -> str:
    """Names the devices whose numbers are assumed; says nothing if there are none."""
    names = sorted({score.device for score in scores if not score.calibrated})
    return f" No recording exists of {', '.join(names)}: all numbers there are {ASSUMED}." if names else ""


def suite_tables(title: str, scores: Sequence[Score]) -> Iterator[Table]:
    """One table of all cases, and one for each family if there are several."""
    families = by_family(scores)
    yield _table(f"{title}, {_count(scores)}", standings(scores))
    if len(families) > 1:
        for family, of_family in families.items():
            yield _table(f"{family_label(family, of_family)}, {_count(of_family)}", standings(of_family))


def family_label(family: str, scores: Sequence[Score]) -> str:
    """The name of a family; it says so where it is all on devices whose numbers are assumed."""
    return family if any(score.calibrated for score in scores) else f"{family} ({ASSUMED})"


def _table(title: str, rows: Sequence[Standing]) -> Table:
    titles = columns_of(rows)
    table = plain_table(title, *titles)
    for each in rows:
        table.add_row(*(COLUMNS[column](each) for column in titles))
    return table


def _count(scores: Sequence[Score]) -> str:
    cases = len({score.case for score in scores})
    return f"{cases} case" if cases == 1 else f"{cases} cases"
