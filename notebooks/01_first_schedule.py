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
# # A first schedule
#
# An Ascend NPU works off *commands*: kernels on its cores, copies on its DMA engines. The host puts each
# command on a *stream*; a stream keeps its order, different streams run side by side. Which command goes
# where, and when, decides how long it all takes. This page loads a scenario, compares schedulers, looks at
# what happened, and then plays the host by hand.
#
# It needs `pip install -e '.[notebook]'` and takes less than a minute.

# %%
# %matplotlib inline
from collections import Counter
from pathlib import Path
from tempfile import mkdtemp

import gymnasium
import matplotlib.pyplot as plt
import numpy as np
from IPython.display import Markdown

from cann_env.metrics import metrics
from cann_env.program import compile_graph
from cann_env.render.gantt import gantt
from cann_env.render.rows import rows_of
from cann_env.render.text import text_timeline
from cann_env.render.trace import write_trace
from cann_env.scenario import load_scenario, scenario_names
from cann_env.schedulers import SHORT_LIST, run_scheduler
from cann_env.solvers.bounds import lower_bounds
from cann_env.units import format_bandwidth, format_size, format_time
from cann_env.validate import validate


def table(*rows):
    """The first row is the heading."""
    lines = ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    lines.insert(1, "|---" * len(rows[0]) + "|")
    return Markdown("\n".join(lines))


# %% [markdown]
# ## The scenario
#
# A scenario is a device, a workload and the options of a run. These are shipped; each file in
# `configs/scenarios` is a page of TOML.

# %%
table(
    ["scenario", "device", "what can be learned"],
    *([s.name, s.device.name, s.description] for s in map(load_scenario, scenario_names())),
)

# %% [markdown]
# The pipeline is the smallest: batch after batch is copied in, computed, copied out.

# %%
scenario = load_scenario("pipeline")
graph = scenario.graph()
for name in ("in0", "run0", "out0", "in2"):
    i = graph.command_index[name]
    before = [graph.commands[j].name for j in graph.predecessors[i]]
    print(f"{name:5} {graph.commands[i].kind.value:7} after {', '.join(before) or 'nothing'}")
Counter(command.kind.value for command in graph.commands)

# %% [markdown]
# Two pairs of buffers are used in turn, so `in2` waits until `run0` has read the first one. The device it
# runs on, and how:

# %%
device = scenario.device
print(device.title, "with", device.pools["aic"], "cube core(s) and", format_size(device.memory.hbm_bytes))
for link in ("h2d", "d2h", "hbm"):
    print(f"{link}: {format_bandwidth(device.links[link].bandwidth_bytes_per_s)} at best")
scenario.options

# %% [markdown]
# ## Schedulers
#
# Compiling the graph for the device turns work into nanoseconds. No schedule can beat the lower bound, the
# largest of several: the longest chain of dependencies, the work of each pool of cores, the bytes on each
# link, the calls of the host.

# %%
program = compile_graph(graph, device, scenario.options)
bounds = lower_bounds(graph, device, scenario.options)
print(f"lower bound {format_time(bounds.lower_bound_ns)}, set by the {bounds.binding}")

# %%
schedules = {name: run_scheduler(program, name) for name in SHORT_LIST if name != "search"}
single = schedules["single_stream"].makespan_ns
rows = []
for name, schedule in sorted(schedules.items(), key=lambda item: item[1].makespan_ns):
    figures = metrics(schedule)
    rows.append(
        [
            name,
            format_time(figures.makespan_ns),
            f"{figures.makespan_ns / single:.3f}",
            f"{figures.gap:.1%}",
            f"{figures.ai_core_busy:.1%}",
            "ok" if not validate(schedule) else "wrong",
        ]
    )
table(["scheduler", "makespan", "x single stream", "over bound", "AI core busy", "judge"], *rows)

# %% [markdown]
# The judge in the last column checks a schedule against the graph and the device, and shares no code with the
# simulator that made it.
#
# ## What happened
#
# On one stream nothing overlaps, whatever the device could do. The top row is the host thread: it issues, or
# it waits.

# %%
gantt(schedules["single_stream"], width_inches=10, dpi=80)

# %% [markdown]
# With a stream for each engine, copies in, kernels and copies out of different batches run at the same time.

# %%
gantt(schedules["per_engine"], width_inches=10, dpi=80)

# %% [markdown]
# The same as text, for a terminal; and as a file that [Perfetto](https://ui.perfetto.dev) and MindStudio
# Insight open.

# %%
print(text_timeline(*rows_of(schedules["per_engine"]), width=110))
trace = write_trace(schedules["per_engine"], Path(mkdtemp()) / "pipeline.json")
print(trace.name, format_size(trace.stat().st_size))

# %% [markdown]
# ## Playing the host by hand
#
# As a Gymnasium environment, the scenario asks for one decision after another: issue the command in slot k of
# the ready window to stream s, or wait. The mask says what is legal. The observation `graph` also tells which
# command lies in which slot.

# %%
env = gymnasium.make("cann_env:cann/Pipeline-v0", observation="graph")
observation, info = env.reset(seed=0)
streams = scenario.options.streams


def names(action, observation):
    """The command that an action issues and its stream; None for the wait."""
    if action == env.action_space.n - 1:
        return None
    slot, stream = divmod(action, streams)
    return graph.commands[int(observation["window"][slot]) - 1].name, stream


def legal(observation, info):
    """All legal actions by what they name."""
    return {names(action, observation): action for action in np.flatnonzero(info["action_mask"]).tolist()}


list(legal(observation, info))

# %% [markdown]
# Idle streams are treated alike, so only the first may be named. The reward of a step is minus the
# rise of an optimistic makespan; a decision that costs nothing earns zero.

# %%
for choice in (("in0", 0), ("run0", 1), ("in1", 0), ("out0", 2), ("in2", 0)):
    action = legal(observation, info)[choice]
    observation, reward, *_, info = env.step(action)
    print(
        f"{choice[0]:4} on stream {choice[1]}: reward {reward:8.5f}, host at {format_time(info['time_ns'])}"
    )
list(legal(observation, info))

# %% [markdown]
# Issuing does not wait for the device: the host runs ahead until so many commands are in flight that it must
# not. `clone` branches an episode. What would it cost to put the next kernel behind the copies on stream 0,
# and what on the stream of kernels?

# %%
for stream in range(streams):
    _, reward, *_ = env.unwrapped.clone().step(legal(observation, info)["run1", stream])
    print(f"run1 on stream {stream}: reward {reward:8.5f}")

# %% [markdown]
# A rule in a few lines: always the first legal command, on the stream that already holds its kind of work.
# The return of the episode is minus the gap to the lower bound.

# %%
HOME = {"in": 0, "run": 1, "out": 2}


def own_rule(choices):
    for choice, action in choices.items():
        if choice is None or HOME[choice[0].rstrip("0123456789")] == choice[1]:
            return action
    return next(iter(choices.values()))


total, ended = 0.0, False
observation, info = env.reset(seed=0)
while not ended:
    observation, reward, terminated, truncated, info = env.step(own_rule(legal(observation, info)))
    total, ended = total + reward, terminated or truncated
mine = env.unwrapped.schedule()
print(f"{format_time(mine.makespan_ns)}, {metrics(mine).gap:.1%} over the bound; return {total:.4f}")

# %% [markdown]
# ## How many streams?
#
# What if the program used fewer streams, or more? Any option of the scenario can be changed; here the number
# of streams, for three schedulers. The AI core is what should never idle.

# %%
COUNTS = [1, 2, 3, 4]
figure, axes = plt.subplots(figsize=(7, 3.5))
rows = []
for name in ("round_robin", "per_engine", "reference"):
    busy = []
    for count in COUNTS:
        changed = scenario.with_options(streams=count)
        schedule = run_scheduler(compile_graph(changed.graph(), changed.device, changed.options), name)
        busy.append(metrics(schedule).ai_core_busy)
    axes.plot(COUNTS, busy, marker="o", label=name)
    rows.append([name, *(f"{share:.1%}" for share in busy)])
axes.set(xlabel="streams", ylabel="AI core busy", ylim=(0, 1), xticks=COUNTS)
axes.legend()
table(["AI core busy with streams:", *COUNTS], *rows)

# %% [markdown]
# Streams help as far as there are engines to keep busy, and a rule has to put the right things on them.
#
# The same question on another chip takes another word:

# %%
rows = []
for name in ("ascend310b1", "ascend310p3", "ascend910b2"):
    changed = scenario.with_device(name)
    program = compile_graph(changed.graph(), changed.device, changed.options)
    times = [run_scheduler(program, who).makespan_ns for who in ("single_stream", "reference")]
    rows.append([name, *map(format_time, (program.lower_bound_ns, *times)), f"{times[1] / times[0]:.3f}"])
table(["device", "lower bound", "single_stream", "reference", "ratio"], *rows)

# %% [markdown]
# ## Prefetching
#
# A transformer whose weights still lie in host memory is nearly a chain: more streams gain little. But a
# kernel that touches an absent weight stalls until it has arrived, page by page. A prefetch brings the weight
# beforehand, at the full speed of the link, while earlier kernels still run.

# %%
cold = load_scenario("transformer")
rows = []
pair = {}
for title, slots in (("on demand", 0), ("prefetched", cold.options.prefetches)):
    changed = cold.with_options(prefetches=slots)
    program = compile_graph(changed.graph(), changed.device, changed.options)
    pair[title] = run_scheduler(program, "reference")
    figures = metrics(pair[title])
    moves = Counter(move.cause for move in pair[title].transfers)
    rows.append(
        [
            title,
            format_time(figures.makespan_ns),
            f"{figures.gap:.1%}",
            ", ".join(f"{number} {cause}" for cause, number in moves.items()),
            format_time(figures.stall_ns["fault"]),
            f"{figures.overlap_ns / figures.copy_ns:.1%}",
        ]
    )
table(["weights", "makespan", "over bound", "moves", "stalled by faults", "transfers behind kernels"], *rows)

# %%
gantt(pair["on demand"], width_inches=10, dpi=80)

# %%
gantt(pair["prefetched"], width_inches=10, dpi=80)

# %% [markdown]
# ## From here
#
# * `cann-env compare model.onnx --device ascend910b2` does all this for a model of yours.
# * `python -m agents.train` trains an agent on the pipeline and prints it beside these schedulers.
# * `docs/design.md` says what is modelled, and by which rules.
