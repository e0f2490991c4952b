"""From rows of single instances to what a table says: means over sets, intervals, wins and losses.

Sets weigh the same within an axis, whatever their size. Intervals come from drawing instances, and training
seeds where there are several, again and again.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cann_env.cli.scores import verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from agents.contests import Row

UNFINISHED = 3.0
"""An episode that was not finished counts as this many times the reference's objective."""

_DRAWS = 1000
_INTERVAL = (2.5, 97.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A contestant on an axis.

    Attributes:
        axis, contestant: Whose standing it is.
        sets, instances, seeds: How much stands behind it.
        to_reference: Ratio to the reference: geometric mean over instances, then over sets.
        low, high: Interval of it, 95 %.
        by_seed: The same ratio for each training seed alone.
        to_autotune, to_search: Ratio to CANN's autotuning, and to search in the same time.
        median, p90: Of the ratio to the reference, all instances and seeds together.
        gap: Objective over lower bound, less one.
        optimum_gap: Objective over certified optimum, less one; None where none is known.
        wins, ties, losses: Against the reference, by the thresholds of CANN's tuner: 1.05 and 0.98.
        unfinished: Episodes that did not finish their graph.
        seconds: Mean time spent deciding.
    """

    axis: str
    contestant: str
    sets: int
    instances: int
    seeds: int
    to_reference: float
    low: float
    high: float
    by_seed: tuple[float, ...]
    to_autotune: float
    to_search: float
    median: float
    p90: float
    gap: float
    optimum_gap: float | None
    wins: int
    ties: int
    losses: int
    unfinished: int
    seconds: float


def best_windows(rows: Iterable[Row]) -> list[Row]:
    """Of each contestant on each set the rows of its best window, by geometric mean."""
    groups: dict[tuple[str, str, str], dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        groups[row.axis, row.test, row.contestant][row.window].append(row)
    kept = []
    for windows in groups.values():
        kept += min(windows.values(), key=lambda rows: float(np.mean([_log(row) for row in rows])))
    return kept


def _log(row: Row) -> float:
    value = UNFINISHED * 1e3 * row.bound_ns if row.objective_ns is None else row.objective_ns
    return float(np.log(value))


def standings(rows: Sequence[Row], axis: str, *, test: str | None = None) -> list[Standing]:
    """All contestants on an axis, or on one set of it, the best first."""
    kept = [row for row in best_windows(rows) if row.axis == axis and test in (None, row.test)]
    values: dict[str, dict[str, dict[tuple[int, int], Row]]] = defaultdict(lambda: defaultdict(dict))
    for row in kept:
        values[row.contestant][row.test][row.seed, row.number] = row
    found = [_standing(axis, name, values) for name in values]
    return sorted(found, key=lambda each: each.to_reference)


def _standing(axis: str, name: str, values: dict[str, dict[str, dict[tuple[int, int], Row]]]) -> Standing:
    own = [row for rows in values[name].values() for row in rows.values()]
    cells = _cells(values, name, "reference")
    low, high = _interval(cells)
    ratios = np.concatenate([cell.ravel() for cell in cells])
    reference = values["reference"]
    verdicts = [verdict(row.objective_ns, reference[row.test][0, row.number].objective_ns) for row in own]
    seeds = sorted({row.seed for row in own})
    return Standing(
        axis=axis,
        contestant=name,
        sets=len(values[name]),
        instances=sum(cell.shape[1] for cell in cells),
        seeds=len(seeds),
        to_reference=_mean(cells),
        low=low,
        high=high,
        by_seed=tuple(_mean([cell[i : i + 1] for cell in cells]) for i in range(len(seeds))),
        to_autotune=_mean(_cells(values, name, "cann_autotune")),
        to_search=_mean(_cells(values, name, _search_name(values))) if _search_name(values) else np.nan,
        median=float(np.median(ratios)),
        p90=float(np.quantile(ratios, 0.9)),
        gap=_over([(row.objective_ns, row.bound_ns) for row in own]) or 0.0,
        optimum_gap=_over([(row.objective_ns, row.optimum_ns) for row in own]),
        wins=verdicts.count("win"),
        ties=verdicts.count("tie"),
        losses=verdicts.count("loss"),
        unfinished=sum(row.objective_ns is None for row in own),
        seconds=float(np.mean([row.seconds for row in own])),
    )


def _over(pairs: Sequence[tuple[int | None, int | None]]) -> float | None:
    """Geometric mean of one number over the other, less one, where both are known; None if they never are."""
    ratios = [mine / other for mine, other in pairs if mine is not None and other is not None]
    return float(np.exp(np.mean(np.log(ratios))) - 1.0) if ratios else None


def _search_name(values: dict[str, dict[str, dict[tuple[int, int], Row]]]) -> str | None:
    return next((name for name in values if name.startswith("search")), None)


def _cells(
    values: dict[str, dict[str, dict[tuple[int, int], Row]]], name: str, other: str
) -> list[NDArray[np.float64]]:
    """Ratios of one contestant to another, float64 (seeds, instances), one array a set."""
    cells = []
    for test, rows in values[name].items():
        against = values[other].get(test, {})
        seeds = sorted({seed for seed, _ in rows})
        numbers = sorted({number for _, number in rows if (0, number) in against})
        cells.append(
            np.array(
                [[_ratio(rows[seed, number], against[0, number]) for number in numbers] for seed in seeds]
            )
        )
    return cells


def _ratio(row: Row, other: Row) -> float:
    if row.objective_ns is None or other.objective_ns is None:
        return UNFINISHED if row.objective_ns is None else 1.0
    return row.objective_ns / other.objective_ns


def _mean(cells: Sequence[NDArray[np.float64]]) -> float:
    return float(np.exp(np.mean([np.log(cell).mean() for cell in cells])))


def _interval(cells: Sequence[NDArray[np.float64]]) -> tuple[float, float]:
    """Interval of the mean over sets: instances and training seeds drawn with replacement."""
    rng = np.random.default_rng(0)
    logs = [np.log(cell) for cell in cells]
    seeds = logs[0].shape[0]
    means = np.zeros(_DRAWS)
    for draw in range(_DRAWS):
        chosen = rng.integers(seeds, size=seeds)
        total = 0.0
        for cell in logs:
            columns = rng.integers(cell.shape[1], size=cell.shape[1])
            total += float(cell[np.ix_(chosen, columns)].mean())
        means[draw] = total / len(logs)
    low, high = np.exp(np.percentile(means, _INTERVAL))
    return float(low), float(high)
