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
# # 2. What limits my model?
#
# **A network takes so long: is it the chain of its operators, the cores, the link to the host, or the host
# itself?** Each has another remedy, and a remedy for the wrong one changes nothing. This page asks for
# Inception v1, a real network that comes with the package `onnx` as a small file without weights, on a small
# chip (310B1) and a large one (910B2).
#
# It needs `pip install -e '.[notebook,onnx]'`.

# %%
# %matplotlib inline
from collections import Counter
from itertools import pairwise

from cann_env.device.load import load_device
from cann_env.graph import Level
from cann_env.metrics import metrics
from cann_env.options import RunOptions
from cann_env.program import compile_graph
from cann_env.render.charts import curves, shares
from cann_env.render.gantt import gantt
from cann_env.render.table import table
from cann_env.replay.limits import BETWEEN, longest_chain
from cann_env.schedulers import run_scheduler
from cann_env.solvers.bounds import lower_bounds
from cann_env.spans import covered_ns
from cann_env.units import format_size, format_time
from cann_env.workloads.from_onnx import from_onnx, macs
from cann_env.workloads.recorded_role import Role

SMALL, LARGE = "ascend310b1", "ascend910b2"
NETWORK = "inception_v1"  # or the path of a file of yours

# %% [markdown]
# The importer makes a command of every operator that runs, and cuts it into blocks for the cores of the
# device.

# %%
rows = []
for name in (SMALL, LARGE):
    device = load_device(name)
    graph = from_onnx(NETWORK, device)
    kinds = Counter(kernel.kernel_class.value for command in graph.commands for kernel in command.kernels)
    weights = sum(buffer.size_bytes for buffer in graph.buffers if buffer.level is Level.HOST)
    rows.append(
        [
            device.label,
            len(graph.commands),
            *(kinds[kind] for kind in ("cube", "vector")),
            f"{macs(graph) / 1e9:.2f}",
            format_size(weights),
            device.pools["aic"],
            device.pools["aiv"],
        ]
    )
heads = [
    "device",
    "commands",
    "cube kernels",
    "vector kernels",
    "GMAC",
    "weights",
    "cube cores",
    "vector cores",
]
table(heads, rows)

# %% [markdown]
# ## Bounds: what no schedule can beat
#
# Four kinds of lower bounds, worked out from the graph alone. The largest says what the program is up
# against before anybody has decided anything. `eager` means that the host calls the runtime for each
# command, `sink` that the whole graph was handed over beforehand; `cold` that all weights still lie in host
# memory.

# %%
SETTINGS = {
    "eager, cold": ("eager", Level.HOST),
    "eager": ("eager", Level.HBM),
    "sink, cold": ("sink", Level.HOST),
    "sink": ("sink", Level.HBM),
}


def case(name, setting, batch=1):
    """Graph, device and options of a setting."""
    submission, weights = SETTINGS[setting]
    device = load_device(name)
    return from_onnx(NETWORK, device, batch=batch, weights=weights), device, RunOptions(submission=submission)


rows, binding = [], {}
for name in (SMALL, LARGE):
    for setting in SETTINGS:
        bounds = lower_bounds(*case(name, setting))
        binding[name, setting] = bounds.binding
        terms = (
            bounds.critical_path_ns,
            bounds.area_ns["aic"],
            bounds.area_ns["aiv"],
            bounds.link_ns["h2d"],
            bounds.link_ns["hbm"],
            bounds.host_ns,
        )
        rows.append([name, setting, *map(format_time, terms), f"**{bounds.binding}**"])
table(["device", "setting", "chain", "cube", "vector", "host link", "HBM", "host calls", "binding"], rows)

# %%
changing = {name: sorted({binding[name, setting] for setting in SETTINGS}) for name in (SMALL, LARGE)}
for name, found in changing.items():
    print(f"{name}: bound by the {found[0]} in every setting" if len(found) == 1 else
          f"{name}: bound by the {' or the '.join(found)}, as the setting has it")  # fmt: skip

# %% [markdown]
# The columns *cube* and *vector* say how long the cores would need if the work could be spread over all of
# them. Where they are far below the chain, cores cannot be what limits: the operators need one another. (On
# the 310B1 host and device share one memory, so its weights are where they are needed either way.)
#
# ## Where the time goes
#
# A bound says what is possible. Where the time of a *schedule* goes is read off the chain of commands that
# ends last: each link is what its command came right behind, and all its times add up to the makespan. The
# mark is the lower bound.


# %%
def where_time_goes(schedule):
    """Microseconds of the longest chain by what they were spent on."""
    faults = [(move.start_ns, move.finish_ns) for move in schedule.transfers if move.cause == "fault"]
    starts = {run.command: run.start_ns for run in schedule.commands}
    spent = Counter()
    for link in longest_chain(schedule, [Role.WORK] * len(schedule.graph.commands)):
        gap = (starts[link.command] - link.behind_ns, starts[link.command])
        covered = covered_ns([gap]) + covered_ns(faults) - covered_ns([gap, *faults])
        fetching = covered if link.why == BETWEEN else 0
        spent[link.what] += link.ns
        spent["waiting for weights"] += fetching
        spent[link.why] += link.behind_ns - fetching
    assert sum(spent.values()) == schedule.makespan_ns
    return {what: ns / 1000 for what, ns in spent.most_common()}


def chart(name, scheduler="single_stream"):
    rows, marks = {}, {}
    for setting in SETTINGS:
        schedule = run_scheduler(compile_graph(*case(name, setting)), scheduler)
        rows[setting] = where_time_goes(schedule)
        marks[setting] = schedule.lower_bound_ns / 1000
    return shares(rows, xlabel="us", title=f"{name}, one stream", marks=marks, colours=COLOURS)


COLOURS = {
    "kernels": "#3d6fb4",
    "copies": "#2f9e78",
    "waiting for weights": "#c2268f",
    "launches by the host": "#54708c",
    "gaps between commands": "#c8ccd1",
}
chart(SMALL)

# %%
chart(LARGE)

# %% [markdown]
# The same network, and another story on each chip. What takes the most time on each, beside kernels:

# %%
for name in (SMALL, LARGE):
    for setting in SETTINGS:
        spent = where_time_goes(run_scheduler(compile_graph(*case(name, setting)), "single_stream"))
        share = spent["kernels"] / sum(spent.values())
        other = max((what for what in spent if what != "kernels"), key=spent.get)
        print(f"{name}, {setting:11}: kernels {share:4.0%}, then {other} {spent[other]:.0f} us")

# %% [markdown]
# ## Why kernels do not fill the chip
#
# Kernels take most of the time where weights are resident, but do they keep the cores busy? The longest ones
# of each chip, alone on it: how many of its cores they use, and what part of the cores' peak rate they
# reach.

# %%
rows = []
for name in (SMALL, LARGE):
    graph, device, options = case(name, "sink")
    schedule = run_scheduler(compile_graph(graph, device, options), "single_stream")
    lengths = {run.command: run.finish_ns - run.start_ns for run in schedule.commands}
    cubes = [
        c
        for c in lengths
        if graph.commands[c].kernels and graph.commands[c].kernels[0].kernel_class == "cube"
    ]
    peak = device.classes["cube"].flops_per_cycle["float16"] * device.clock_hz * device.pools["aic"]
    for command in sorted(cubes, key=lengths.get, reverse=True)[:3]:
        kernel = graph.commands[command].kernels[0]
        reached = kernel.flops / (lengths[command] / 1e9) / peak
        cores = f"{min(kernel.blocks, device.pools['aic'])} of {device.pools['aic']}"
        shape = " x ".join(map(str, kernel.inputs[-2].shape))
        rows.append(
            [name, f"{kernel.op}, weights {shape}", format_time(lengths[command]), cores, f"{reached:.0%}"]
        )
    total = (
        sum(graph.commands[c].kernels[0].flops for c in cubes) / sum(lengths[c] / 1e9 for c in cubes) / peak
    )
    rows.append([name, f"all {len(cubes)}", format_time(sum(lengths[c] for c in cubes)), "", f"{total:.0%}"])
table(["device", "cube kernel", "time", "cores", "of peak"], rows)

# %% [markdown]
# A larger batch gives each kernel more to do. The time for *one image* over the batch, and what bounds it:

# %%
BATCHES = [1, 2, 4, 8, 16, 32, 64]
each, bound_by = {}, []
for name in (SMALL, LARGE):
    each[name] = []
    for batch in BATCHES:
        graph, device, options = case(name, "sink", batch)
        schedule = run_scheduler(compile_graph(graph, device, options), "reference")
        each[name].append(schedule.makespan_ns / 1e6 / batch)
for name, times in each.items():
    print(f"{name}: an image of the best batch ({BATCHES[times.index(min(times))]}) takes "
          f"{min(times) / times[0]:.0%} of the time of a single one")  # fmt: skip
curves(
    [str(batch) for batch in BATCHES], each,
    xlabel="batch", ylabel="ms an image", title="A large chip wants large batches", logarithmic=True,
)  # fmt: skip

# %% [markdown]
# ## Stalls: what the heads of streams wait for
#
# With several streams a chain is not the whole story. `metrics` sums, for every command, what it waited for:
# an event of another stream, weights, a free slot of the device, free cores, a DMA engine, the host. The
# sums are larger than the makespan where many wait at once, so read them beside one another.

# %%
rows = []
for name, setting in ((SMALL, "sink"), (LARGE, "sink"), (LARGE, "sink, cold"), (LARGE, "eager")):
    program = compile_graph(*case(name, setting))
    for scheduler in ("single_stream", "round_robin", "reference"):
        figures = metrics(run_scheduler(program, scheduler))
        waits = [figures.stall_ns[cause] for cause in ("event", "fault", "slot", "cores", "dma", "host")]
        rows.append([name, setting, scheduler, format_time(figures.makespan_ns), *map(format_time, waits)])
heads = ["device", "setting", "scheduler", "makespan", "event", "weights", "slot", "cores", "DMA", "host"]
table(heads, rows)

# %% [markdown]
# The best of these on the large chip, as a picture. The branches of each Inception module lie side by side.

# %%
best = run_scheduler(compile_graph(*case(LARGE, "sink")), "reference")
gantt(best, width_inches=10, dpi=80)

# %% [markdown]
# The picture seems to say that vector cores are the limit. But a core that is held does not always work: a
# short kernel takes most of its time to be launched and to fill its pipes. Beside the time for which cores
# are held, the time that their work would take if it were spread evenly:

# %%
work, rows = lower_bounds(*case(LARGE, "sink")).area_ns, []
for pool in ("aic", "aiv"):
    rows.append([pool, f"{metrics(best).utilisation[pool]:.0%}", f"{work[pool] / best.makespan_ns:.0%}"])
table(["cores", "held", "work"], rows)

# %% [markdown]
# ## One remedy after another
#
# Each step takes one of these limits away. Where a step brings little, it was not the limit.

# %%
STEPS = (
    ("as it comes: eager, cold, one stream", "eager, cold", "single_stream", 1),
    ("weights resident", "eager", "single_stream", 1),
    ("graph mode", "sink", "single_stream", 1),
    ("several streams", "sink", "reference", 1),
    ("batch 8", "sink", "reference", 8),
)
rows, series = [], {}
for name in (SMALL, LARGE):
    before, series[name] = None, []
    for title, setting, scheduler, batch in STEPS:
        graph, device, options = case(name, setting, batch)
        schedule = run_scheduler(compile_graph(graph, device, options), scheduler)
        image_ns = schedule.makespan_ns / batch
        gain = "" if before is None else f"{before / image_ns:.2f}"
        bounds = lower_bounds(graph, device, options)
        rows.append(
            [name, title, format_time(image_ns), gain, bounds.binding, f"{metrics(schedule).gap:.0%}"]
        )
        before = image_ns
        series[name].append(image_ns)
table(["device", "step", "time an image", "gain", "bound by", "over bound"], rows)

# %%
for name, times in series.items():
    gains = [before / after for before, after in pairwise(times)]
    step = max(range(len(gains)), key=gains.__getitem__)
    print(f"{name}: {times[0] / times[-1]:.1f} times as fast in the end; most by: {STEPS[step + 1][0]}")

# %% [markdown]
# ## Exercises
#
# 1. Change `NETWORK` to `"vgg19"` or `"densenet121"` and run the page again. What binds them when cold, and
#    do several streams still help?
# 2. The lower bound of a cold start on the 910B2 is set by the link. By how much would a link of twice the
#    speed help? Device files are data: `dataclasses.replace` makes another one.
#
# <details><summary>Answers</summary>
#
# 1. Cold on the 910B2, VGG-19 with its large weights is bound by the link, DenseNet with its many short
#    kernels by their chain. With resident weights both are chains on both chips, and streams gain little,
#    since hardly anything can run side by side.
# 2. ```python
#    from dataclasses import replace
#    graph, device, options = case(LARGE, "sink, cold")
#    link = device.links["h2d"]
#    faster = replace(link, bandwidth_bytes_per_s=2 * link.bandwidth_bytes_per_s)
#    twice = replace(device, links={**device.links, "h2d": faster})
#    for each in (device, twice):
#        program = compile_graph(graph, each, options)
#        bounds = lower_bounds(graph, each, options)
#        makespan = run_scheduler(program, "reference").makespan_ns
#        print(bounds.binding, format_time(bounds.lower_bound_ns), format_time(makespan))
#    ```
#
#    Less than twice: what the link no longer takes, the chain of operators takes.
#
# </details>
