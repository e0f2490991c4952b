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
# # 1. A first schedule
#
# **Who decides how long a program takes?** An Ascend NPU works off *commands*: kernels on its cores, copies
# on its DMA engines. The host puts each command on a *stream*; a stream keeps its order, different streams
# run side by side. Which command goes where, and when, decides how long it all takes. This page loads a
# scenario, compares schedulers, looks at what happened, and then plays the host by hand.
#
# It needs `pip install -e '.[notebook]'`.

# %%
# %matplotlib inline
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from tempfile import mkdtemp

import gymnasium
import numpy as np

from cann_env.metrics import metrics
from cann_env.options import RunOptions
from cann_env.render.gantt import gantt
from cann_env.render.rows import rows_of
from cann_env.render.table import table
from cann_env.render.text import text_timeline
from cann_env.render.trace import write_trace
from cann_env.scenario import load_scenario, scenario_names
from cann_env.schedulers import SHORT_LIST, run_scheduler
from cann_env.solvers.bounds import lower_bounds
from cann_env.units import format_bandwidth, format_size, format_time
from cann_env.validate import validate

# %% [markdown]
# ## The scenario
#
# A scenario is a device, a workload and the options of a run. These are shipped; each file in
# `configs/scenarios` is a page of TOML.

# %%
table(
    ["scenario", "device", "what can be learned"],
    ([each.name, each.device.name, each.description] for each in map(load_scenario, scenario_names())),
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
dict(Counter(command.kind.value for command in graph.commands))

# %% [markdown]
# Two pairs of buffers are used in turn, so `in2` waits until `run0` has read the first one. This is the
# device it runs on, and these are the options that are not as usual:

# %%
device = scenario.device
print(device.title, "with", device.pools["aic"], "cube core(s) and", format_size(device.memory.hbm_bytes))
for link in ("h2d", "d2h", "hbm"):
    print(f"{link}: {format_bandwidth(device.links[link].bandwidth_bytes_per_s)} at best")
usual, chosen = asdict(RunOptions()), asdict(scenario.options)
table(
    ["option", "here", "usually"],
    ([key, chosen[key], usual[key]] for key in usual if chosen[key] != usual[key]),
)

# %% [markdown]
# ## Schedulers
#
# `program()` compiles the graph for the device: work becomes nanoseconds. No schedule can beat the lower
# bound, the largest of several: the longest chain of dependencies, the work of each pool of cores, the bytes
# on each link, the calls of the host.

# %%
program = scenario.program()
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
table(["scheduler", "makespan", "x single stream", "over bound", "AI core busy", "judge"], rows)

# %% [markdown]
# The judge in the last column checks a schedule against the graph and the device, and shares no code with
# the simulator that made it.
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
print("written:", trace.name)

# %% [markdown]
# ## Playing the host by hand
#
# As a Gymnasium environment, the scenario asks for one decision after another: issue the command in slot k
# of the ready window to stream s, or wait. The mask says what is legal. The observation `graph` also tells
# which command lies in which slot.

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
# Idle streams are treated alike, so only the first may be named. The reward of a step is minus the rise of
# an optimistic makespan; a decision that costs nothing earns zero.

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
costs = []
for stream in range(streams):
    _, reward, *_ = env.unwrapped.clone().step(legal(observation, info)["run1", stream])
    costs.append(reward)
    print(f"run1 on stream {stream}: reward {reward:8.5f}")
print(f"best: stream {int(np.argmax(costs))}")

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


def play(rule):
    """The schedule that a rule makes, and its return."""
    total, ended = 0.0, False
    observation, info = env.reset(seed=0)
    while not ended:
        observation, reward, terminated, truncated, info = env.step(rule(legal(observation, info)))
        total, ended = total + reward, terminated or truncated
    return env.unwrapped.schedule(), total


mine, total = play(own_rule)
gap = metrics(mine).gap
print(f"{format_time(mine.makespan_ns)}, {gap:.1%} over the bound; return {total:.4f}")
assert abs(total + gap) < 1e-6

# %% [markdown]
# ## Exercises
#
# 1. Every batch has two pairs of buffers to alternate between. Would a third pair help? Look for `slots` in
#    `configs/scenarios/pipeline.toml`.
# 2. Write a rule for `play` that never waits of its own accord but takes any other legal action at random.
#    How far from the bound does it end?
#
# <details><summary>Answers</summary>
#
# 1. A workload is plain data, so one field of it can be replaced:
#
#    ```python
#    from dataclasses import replace
#    for slots in (1, 2, 3, 4):
#        changed = replace(scenario, workload=replace(scenario.workload, slots=slots))
#        print(slots, format_time(run_scheduler(changed.program(), "per_engine").makespan_ns))
#    ```
#
#    With one pair a batch can be copied in only beside the copy out of the one before it; look at where the
#    times stop falling.
# 2. ```python
#    rng = np.random.default_rng(0)
#    def any_rule(choices):
#        issues = [action for choice, action in choices.items() if choice is not None]
#        return int(rng.choice(issues)) if issues else choices[None]
#    print(f"{metrics(play(any_rule)[0]).gap:.1%} over the bound")
#    ```
#
#    Any order gets the work done; the order decides for how long the AI core idles meanwhile.
#
# </details>
#
# ## From here
#
# * [02](02_what_limits_my_model.ipynb) asks what keeps a real network from being faster.
# * `cann-env compare model.onnx --device ascend910b2` compares schedulers on a model of yours.
# * `docs/design.md` says what is modelled, and by which rules.
