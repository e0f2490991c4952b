"""What schedulers reached on the cases of a suite, one row each, and their sums by family.

The gap to the lower bound and the gap to a certified optimum are kept apart: the bound is there for every
case but may lie below what any schedule can reach, the optimum is exact but known for some cases only.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

from cann_env.cli.results import geometric_mean

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

WIN, LOSS = 1.05, 0.98
"""A scheduler wins where the baseline takes 1.05 times its time or more, and loses where that takes less than
0.98 times its time: the thresholds of CANN's own tuner."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """One scheduler on one case.

    Attributes:
        family, case: Of the suite.
        device, commands, objective: What was run: where, how many, and ``makespan`` or ``latency``.
        calibrated: Whether the device's numbers stand on recordings; else they are assumed.
        scheduler: Its name.
        value_ns: The objective it reached; None if it did not finish.
        makespan_ns: When the last command finished; None if it did not finish.
        bound_ns: Lower bound of the objective; None if the device refuses the graph.
        optimum_ns: The certified optimum of the objective, where one is known.
        optimum_from: Who certifies it: ``case``, which brought it; or ``bound`` or ``solver``, where some
            scheduler met the lower bound, or one that a solver among the schedulers proved.
        baseline_ns: The objective that the baseline reached; None if it did not finish.
        seconds: Wall time spent deciding; None if it did not finish.
        violations: How many the judge found.
        failure: Why it did not finish; empty if it did.
    """

    family: str
    case: str
    device: str
    calibrated: bool
    commands: int
    objective: str
    scheduler: str
    value_ns: int | None
    makespan_ns: int | None
    bound_ns: int | None
    optimum_ns: int | None
    optimum_from: str
    baseline_ns: int | None
    seconds: float | None
    violations: int
    failure: str

    @property
    def ratio(self) -> float | None:
        """Objective over that of the baseline: below 1 is better than the baseline."""
        return _over(self.value_ns, self.baseline_ns)

    @property
    def gap(self) -> float | None:
        """Objective over the lower bound, less one."""
        over = _over(self.value_ns, self.bound_ns)
        return None if over is None else over - 1.0

    @property
    def optimum_gap(self) -> float | None:
        """Objective over the certified optimum, less one; None where none is known."""
        over = _over(self.value_ns, self.optimum_ns)
        return None if over is None else over - 1.0


def _over(value: int | None, other: int | None) -> float | None:
    return None if value is None or other is None else value / max(other, 1)


def row_of(score: Score) -> dict[str, Any]:
    """A row of the CSV file and of ``--json``: the attributes of a score, and what follows from them."""
    return {
        **asdict(score),
        "ratio": score.ratio,
        "gap": score.gap,
        "optimum_gap": score.optimum_gap,
        "verdict": verdict(score.value_ns, score.baseline_ns),
    }


def verdict(value_ns: int | None, baseline_ns: int | None) -> str:
    """``win``, ``tie`` or ``loss`` against the baseline; empty where one of the two did not finish."""
    if value_ns is None or baseline_ns is None:
        return ""
    if 100 * baseline_ns >= round(100 * WIN) * value_ns:
        return "win"
    return "loss" if 100 * baseline_ns < round(100 * LOSS) * value_ns else "tie"


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """One scheduler over many cases. What did not finish is in no mean.

    Attributes:
        scheduler: Its name.
        cases: How many it was run on.
        failures: On how many of them it did not finish.
        compared: On how many both it and the baseline finished.
        ratio: Geometric mean of the ratio to the baseline over those.
        ratio_median: Median of it.
        ratio_p90: Nine cases of ten have at most this ratio (nearest rank).
        gap: Geometric mean of objective over lower bound, less one.
        optimum_gap: Geometric mean of objective over certified optimum, less one.
        optima: On how many cases an optimum is known and it finished.
        wins, ties, losses: Against the baseline, see :data:`WIN` and :data:`LOSS`.
        seconds: Mean wall time spent deciding.
        violations: What the judge found, altogether.
    """

    scheduler: str
    cases: int
    failures: int
    compared: int
    ratio: float | None
    ratio_median: float | None
    ratio_p90: float | None
    gap: float | None
    optimum_gap: float | None
    optima: int
    wins: int
    ties: int
    losses: int
    seconds: float | None
    violations: int


def standings(scores: Iterable[Score]) -> list[Standing]:
    """Sum up by scheduler: the smallest ratio first, equal ones as they appear, who has none last."""
    rows: dict[str, list[Score]] = {}
    for score in scores:
        rows.setdefault(score.scheduler, []).append(score)
    found = [_standing(name, of_one) for name, of_one in rows.items()]
    return sorted(found, key=lambda each: (each.ratio is None, each.ratio or 0.0))


def by_family(scores: Iterable[Score]) -> dict[str, list[Score]]:
    """Scores by family, in order of appearance."""
    found: dict[str, list[Score]] = {}
    for score in scores:
        found.setdefault(score.family, []).append(score)
    return found


def _standing(name: str, scores: Sequence[Score]) -> Standing:
    ratios = sorted(score.ratio for score in scores if score.ratio is not None)
    verdicts = [verdict(score.value_ns, score.baseline_ns) for score in scores]
    to_optimum = [score.optimum_gap for score in scores if score.optimum_gap is not None]
    seconds = [score.seconds for score in scores if score.seconds is not None]
    return Standing(
        scheduler=name,
        cases=len(scores),
        failures=sum(bool(score.failure) for score in scores),
        compared=len(ratios),
        ratio=geometric_mean(ratios) if ratios else None,
        ratio_median=median(ratios) if ratios else None,
        ratio_p90=nearest_rank(ratios, 9, 10) if ratios else None,
        gap=_mean_gap([score.gap for score in scores if score.gap is not None]),
        optimum_gap=_mean_gap(to_optimum),
        optima=len(to_optimum),
        wins=verdicts.count("win"),
        ties=verdicts.count("tie"),
        losses=verdicts.count("loss"),
        seconds=fmean(seconds) if seconds else None,
        violations=sum(score.violations for score in scores),
    )


def _mean_gap(gaps: Sequence[float]) -> float | None:
    return geometric_mean([1.0 + gap for gap in gaps]) - 1.0 if gaps else None


def nearest_rank(ordered: Sequence[float], part: int, of: int) -> float:
    """The smallest of ordered values that is not below ``part / of`` of them."""
    return ordered[max(0, -(-len(ordered) * part // of) - 1)]
