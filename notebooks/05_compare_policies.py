# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 5. Compare policies, and make the table for a paper
#
# **Is one scheduler better than another, or was it lucky with the cases?** A single ratio on a single graph
# says little. This page runs a suite of cases, sums them up in ratios to a baseline, counts wins, ties and
# losses, puts intervals around the means, and writes the table as LaTeX and CSV and the picture as PDF.
#
# It needs `pip install -e '.[notebook]'`.

# %%
# %matplotlib inline
from itertools import pairwise
from pathlib import Path
from tempfile import mkdtemp

import numpy as np

from cann_env.cli.scores import LOSS, WIN, by_family, row_of, standings, verdict
from cann_env.cli.suites import Contest, run_suite
from cann_env.intervals import geometric_mean_interval
from cann_env.render.charts import curves
from cann_env.render.comparison import Point, comparison
from cann_env.render.table import table
from cann_env.suite import Asked, load_suite

FOLDER = Path(mkdtemp())

# %% [markdown]
# ## A suite
#
# A suite is a file that names its cases; ten are shipped in `configs/suites` and run by `cann-env compare
# --suite NAME`. For a paper of your own, write down which graphs you compare on, and keep the file: with its
# seeds it makes the same graphs on every machine. This one has random layers, forks and joins and a few
# serving mixes, on two chips, with free and with paid submission.

# %%
SUITE = """
[suite]
name = "mine"
description = "Small graphs of three kinds on a small and a large chip."

[options]  # wide enough that whoever places a whole graph beforehand can issue in an order of its own
commands = 64
run_ahead = 256

[[members]]
kind = "workload"
family = "layers"
devices = ["ascend310b1", "ascend910b2"]
instances = 5
workload = { kind = "layered", commands = 60, width = 8, density = 0.15, traits = { weights = "hbm" } }

[[members]]
kind = "workload"
family = "forks"
devices = ["ascend310b1", "ascend910b2"]
instances = 5
workload = { kind = "fork_join", stages = 4, branches = 5, length = 3, traits = { weights = "hbm" } }

[[members]]
kind = "workload"
family = "eager layers"
devices = ["ascend910b2"]
submissions = ["eager"]
instances = 5
workload = { kind = "layered", commands = 60, width = 8, density = 0.15, traits = { weights = "hbm" } }

[[members]]
kind = "scenario"
family = "serving"
scenario = "serving"
instances = 5
"""
(FOLDER / "mine.toml").write_text(SUITE)
cases = load_suite(FOLDER / "mine.toml").cases(Asked(seed=0))
print(len(cases), "cases, for example", cases[0].name, "and", cases[-1].name)

# %% [markdown]
# ## Running it
#
# Who takes part, and to whom ratios are taken: `cann_autotune` is what CANN's own tuner would choose. Every
# schedule passes the judge or is counted as wrong, and who does not finish a case is in no mean.

# %%
BASELINE = "cann_autotune"
contest = Contest(
    schedulers=(BASELINE, "single_stream", "round_robin", "nimble", "heft", "reference", "search:200"),
    baseline=BASELINE,
)
scores = [score for of_case in run_suite(cases, contest) for score in of_case]
wrong, failed = sum(score.violations for score in scores), sum(bool(score.failure) for score in scores)
print(f"{len(scores)} schedules, {wrong} violations found by the judge, {failed} not finished")
assert not wrong

# %% [markdown]
# A row of the raw data, as it goes into the CSV file of `cann-env compare --csv`. Keep it: every figure
# below is computed from these rows. The time spent deciding hangs on the machine and is left out here.

# %%
raw = [{key: value for key, value in row_of(score).items() if key != "seconds"} for score in scores]
table(["column", "value"], raw[-1].items())

# %% [markdown]
# ## The table
#
# Ratios are summed up by their geometric mean, for it does not matter then which of two schedulers is the
# baseline. The interval is a bootstrap: cases are drawn again with replacement, ten thousand times, and
# nineteen of twenty means lie within. A win is a baseline that takes at least 1.05 times as long, a loss one
# that takes less than 0.98 times as long, the thresholds of CANN's own tuner.


# %%
def ratios_of(scheduler, among):
    return [score.ratio for score in among if score.scheduler == scheduler and score.ratio is not None]


def paper_table(among):
    """One row a scheduler, the best first."""
    rows = []
    for each in standings(among):
        low, high = geometric_mean_interval(ratios_of(each.scheduler, among))
        gap = f"{each.gap:.1%}"
        record = f"{each.wins}/{each.ties}/{each.losses}"
        rows.append(
            [
                each.scheduler,
                f"{each.ratio:.3f}",
                f"{low:.3f} to {high:.3f}",
                f"{each.ratio_p90:.3f}",
                gap,
                record,
            ]
        )
    return table(["scheduler", "ratio", "95% interval", "p90", "over bound", "W/T/L"], rows)


print(f"win from {WIN}, loss below {LOSS}")
overall = paper_table(scores)
overall

# %%
families = by_family(scores)
names = [each.scheduler for each in standings(scores)]
rows = []
for name in names:
    cells = []
    for of_family in families.values():
        found = {each.scheduler: each.ratio for each in standings(of_family)}
        cells.append(f"{found[name]:.3f}")
    rows.append([name, *cells])
table(["ratio by family", *families], rows)

# %% [markdown]
# ## The picture
#
# Dots are cases, bars geometric means, the grey band holds ties; on the right the share of cases on which a
# scheduler is within a factor of the best one (a performance profile after Dolan and Moré). The single
# stream is left out: it would take most of the axis.

# %%
drawn = [score for score in scores if score.scheduler != "single_stream"]
points = [Point(score.family, score.case, score.scheduler, score.ratio) for score in drawn]
comparison(
    points, FOLDER / "mine.pdf", title=f"{len(cases)} cases", baseline=BASELINE, win=WIN, loss=LOSS, dpi=75
)

# %% [markdown]
# ## Is the difference real?
#
# Two intervals that overlap do not settle it, for both schedulers ran on the *same* cases. Take the ratio of
# the two on each case, and the interval of that.


# %%
def against(one, other):
    """Ratio of two schedulers case by case."""
    values = {
        name: {s.case: s.value_ns for s in scores if s.scheduler == name and s.value_ns}
        for name in (one, other)
    }
    both = sorted(set(values[one]) & set(values[other]))
    return [values[one][case] / values[other][case] for case in both]


rows = []
for one, other in pairwise(names):
    pairs = against(one, other)
    low, high = geometric_mean_interval(pairs)
    said = f"{one} is better" if high < 1 else f"{other} is better" if low > 1 else "not settled"
    record = [sum(ratio < 1 for ratio in pairs), pairs.count(1.0), sum(ratio > 1 for ratio in pairs)]
    rows.append([f"{one} / {other}", f"{low:.3f} to {high:.3f}", "/".join(map(str, record)), said])
table(["pair", "95% interval of the ratio", "faster/equal/slower", "so"], rows)

# %% [markdown]
# (Six intervals at 95 % are one in three to miss somewhere. If a paper hangs on one pair, name that pair
# before the suite is run.)
#
# How many cases does it take? The interval of the same comparison with baseline, over the first n cases of a
# fixed shuffle: it shrinks about as one over the square root of n.

# %%
best = next(name for name in names if name != BASELINE)
shuffled = np.random.default_rng(0).permutation(ratios_of(best, scores)).tolist()
sizes = list(range(3, len(shuffled) + 1, 3))
ends = [geometric_mean_interval(shuffled[:size]) for size in sizes]
means = [float(np.exp(np.mean(np.log(shuffled[:size])))) for size in sizes]
band = {best: ([end.low for end in ends], [end.high for end in ends])}
curves(
    sizes,
    {best: means},
    bands=band,
    levels={BASELINE: 1.0},
    xlabel="cases",
    ylabel="ratio",
    title="More cases, narrower interval",
)

# %% [markdown]
# ## Into the paper
#
# The table writes itself as LaTeX (with `booktabs`) and as CSV; the picture above is a PDF already.

# %%
(FOLDER / "mine.tex").write_text(overall.latex())
overall.write_csv(FOLDER / "mine.csv")
print(overall.latex())
print("written:", ", ".join(sorted(path.name for path in FOLDER.iterdir())))

# %% [markdown]
# And a sentence for the text, from the same numbers:

# %%
low, high = geometric_mean_interval(ratios_of(best, scores))
mean = next(each for each in standings(scores) if each.scheduler == best)
where = {
    family: next(e.ratio for e in standings(of) if e.scheduler == best) for family, of in families.items()
}
most, least = min(where, key=where.get), max(where, key=where.get)
print(
    f"Over {mean.cases} cases {best} takes {mean.ratio:.3f} times as long as {BASELINE} "
    f"(95% interval {low:.3f} to "
    f"{high:.3f}; {mean.wins} wins, {mean.ties} ties, {mean.losses} losses). It gains most on {most} "
    f"({where[most]:.3f}) and least on {least} ({where[least]:.3f})."
)
assert (mean.wins, mean.losses) == tuple(
    sum(verdict(s.value_ns, s.baseline_ns) == word for s in scores if s.scheduler == best)
    for word in ("win", "loss")
)

# %% [markdown]
# ## Exercises
#
# 1. Which scheduler is best in the *worst* case? Sort by the largest ratio instead of the mean.
# 2. Two schedulers often meet on the lower bound, and then no better one can be told from them. On how many
#    cases is the best schedule of all within 1 % of the bound?
#
# <details><summary>Answers</summary>
#
# 1. ```python
#    for name in sorted(names, key=lambda name: max(ratios_of(name, scores))):
#        print(name, f"{max(ratios_of(name, scores)):.3f}")
#    ```
#
#    A good mean with a bad worst case is a reason to look at that case: `scores` has its name.
# 2. ```python
#    from collections import defaultdict
#    nearest = defaultdict(list)
#    for score in scores:
#        nearest[score.case].append(score.gap)
#    print(sum(min(gaps) <= 0.01 for gaps in nearest.values()), "of", len(nearest))
#    ```
#
#    Such cases tell schedulers apart only downwards. A suite with many of them makes everybody look alike.
#
# </details>
