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
# # 3. How many streams?
#
# **One stream keeps everything in order, many let everything run side by side: how many are enough?** More
# streams can only help as far as there is something to run beside, and each order between two streams costs
# an event. This page draws the curve for six requests to three networks, looks at what events cost a host
# that calls the runtime for each, at what the device can hold, and at where CANN's own allocators end up.
#
# It needs `pip install -e '.[notebook,onnx]'`.

# %%
# %matplotlib inline
from dataclasses import replace

from cann_env import CannEnvError
from cann_env.device.load import load_device
from cann_env.graph import Command, CommandGraph, CommandKind, CopyKind, Kernel, KernelClass
from cann_env.metrics import metrics
from cann_env.options import RunOptions
from cann_env.program import compile_graph
from cann_env.render.charts import curves
from cann_env.render.gantt import gantt
from cann_env.render.table import table
from cann_env.scenario import load_scenario
from cann_env.schedulers import Assignment, Fetch, Rule, record_schedule, run_scheduler
from cann_env.units import format_time

SMALL, LARGE = "ascend310b1", "ascend910b2"
COUNTS = [1, 2, 3, 4, 6, 8, 12, 16]

# %% [markdown]
# ## The curve
#
# Any option of a scenario can be changed; here the device, the number of streams and who pays for
# submitting. With `sink` the graph was handed over beforehand and submitting is free. The window is wide
# enough for rules that place a whole graph.


# %%
def scenario(device, submission, streams):
    wide = {"commands": 64, "run_ahead": 256}
    return load_scenario("serving_onnx").with_device(device).with_options(
        streams=streams, submission=submission, **wide
    )  # fmt: skip


def sweep(device, submission, schedulers):
    """Milliseconds of each scheduler over the number of streams."""
    programs = [scenario(device, submission, count).program() for count in COUNTS]
    return {
        name: [run_scheduler(program, name).makespan_ns / 1e6 for program in programs] for name in schedulers
    }


def enough(times):
    """The fewest streams within a hundredth of the best."""
    return next(count for count, time in zip(COUNTS, times, strict=True) if time <= 1.01 * min(times))


NAMES = ("round_robin", "nimble", "reference")
sink = {device: sweep(device, "sink", NAMES) for device in (SMALL, LARGE)}
curves(COUNTS, sink[LARGE], xlabel="streams", ylabel="ms", title=f"{LARGE}, graph mode", from_zero=True)

# %%
curves(COUNTS, sink[SMALL], xlabel="streams", ylabel="ms", title=f"{SMALL}, graph mode", from_zero=True)

# %% [markdown]
# `round_robin` takes streams in turn, `nimble` cuts the graph into as few chains as it can without losing
# parallelism, `reference` tries many forms and keeps the best. What they gain over their own single stream,
# and with how few streams they are within 1 % of their best:

# %%
rows = []
for device, series in sink.items():
    for name, times in series.items():
        rows.append([device, name, f"{times[0] / min(times):.2f}", enough(times)])
table(["device", "scheduler", "gain by streams", "streams that are enough"], rows)

# %%
gain = {device: max(times[0] / min(times) for times in sink[device].values()) for device in sink}
more, less = sorted(gain, key=gain.get, reverse=True)
print(f"{more} gains more than {less}: up to {gain[more]:.2f} against {gain[less]:.2f} times")
for name in (more, less):
    pools, commands = load_device(name).pools, len(scenario(name, "sink", 1).graph().commands)
    print(f"{name}: {pools['aic']} cube and {pools['aiv']} vector core(s) for {commands} commands")

# %% [markdown]
# With one core of each kind, little more than a copy, a cube kernel and a vector kernel can ever run side by
# side.
#
# ## What events cost
#
# In eager mode the host calls the runtime for each command, and twice more for each order between two
# streams: a record and a wait. A rule that scatters neighbours over streams pays for it.

# %%
eager = {device: sweep(device, "eager", NAMES) for device in (SMALL, LARGE)}
curves(COUNTS, eager[LARGE], xlabel="streams", ylabel="ms", title=f"{LARGE}, eager", from_zero=True)

# %%
rows = []
for name in NAMES:
    for count in (1, 2, 4, 16):
        schedule = run_scheduler(scenario(LARGE, "eager", count).program(), name)
        calling = sum(call.end_ns - call.start_ns for call in schedule.host if call.call == "issue")
        row = [name, count, metrics(schedule).streams, len(schedule.waits), format_time(schedule.makespan_ns)]
        rows.append([*row, f"{calling / schedule.makespan_ns:.0%}"])
table(["scheduler", "streams given", "used", "event waits", "makespan", "host submits"], rows)

# %%
best = {name: COUNTS[times.index(min(times))] for name, times in eager[LARGE].items()}
for name, count in best.items():
    worst = max(eager[LARGE][name]) / min(eager[LARGE][name])
    print(f"{name}: best with {count} stream(s); its worst number takes {worst:.2f} times as long")
device = load_device(LARGE)
calls = device.host.record_event_ns + device.host.wait_event_ns
print(
    f"one event: {format_time(calls)} of host calls; "
    f"a kernel's launch: {format_time(device.host.launch_kernel_ns)}"
)

# %% [markdown]
# Where the host submits all the time, it is the limit, and streams can only make it worse. Graph mode first,
# then streams.
#
# ## One side stream, or one per layer?
#
# A common pattern: a chain of layers, and beside each something that nobody waits for soon, such as the
# gradient of its weights. Should all of that go to one side stream, or each piece to a stream of its own?
# Two kinds of side work, of equal area: *wide* pieces that fill all vector cores, and *narrow* ones that
# take a few cores for longer.

# %%
LAYERS = 12


def layers(blocks, side_us):
    """A chain of cube kernels, each with a vector kernel beside it."""
    commands = []
    for i in range(LAYERS):
        main = Kernel(name="main", kernel_class=KernelClass.CUBE, blocks=24, duration_ns=30_000)
        beside = Kernel(
            name="side", kernel_class=KernelClass.VECTOR, blocks=blocks, duration_ns=side_us * 1000
        )
        before = (f"main{i - 1}",) if i else ()
        commands.append(Command(name=f"main{i}", kind=CommandKind.KERNEL, kernels=(main,), after=before))
        commands.append(
            Command(name=f"side{i}", kind=CommandKind.KERNEL, kernels=(beside,), after=(f"main{i}",))
        )
    return CommandGraph(f"{side_us} us on {blocks} cores beside each layer", tuple(commands))


LABELS = {
    "all on one": lambda i: 0,
    "one side stream": lambda i: i % 2,
    "two side streams": lambda i: 1 + i // 2 % 2 if i % 2 else 0,
    "one per layer": lambda i: 1 + i // 2 if i % 2 else 0,
}


def by_hand(graph, label, submission):
    """A schedule whose streams are written down."""
    options = RunOptions(streams=LAYERS + 1, submission=submission, commands=64, run_ahead=256)
    program = compile_graph(graph, device, options)
    order = tuple(range(len(graph.commands)))
    assignment = Assignment(order=order, labels=tuple(map(label, order)), rule=Rule(fetch=Fetch.ON_DEMAND))
    return record_schedule(program, assignment.play(program).actions)


rows, made = [], {}
for kind, graph in (("wide", layers(48, 20)), ("narrow", layers(8, 120))):
    for submission in ("sink", "eager"):
        for name, label in LABELS.items():
            made[kind, submission, name] = schedule = by_hand(graph, label, submission)
            waits = len(schedule.waits)
            rows.append(
                [kind, submission, name, metrics(schedule).streams, waits, format_time(schedule.makespan_ns)]
            )
table(["side work", "submission", "streams", "used", "event waits", "makespan"], rows)

# %%
gantt(made["narrow", "sink", "one side stream"], width_inches=10, dpi=80)

# %%
gantt(made["narrow", "sink", "one per layer"], width_inches=10, dpi=80)

# %%
for kind in ("wide", "narrow"):
    one, each = (made[kind, "sink", name].makespan_ns for name in ("one side stream", "one per layer"))
    verdict = "is enough" if one <= 1.01 * each else f"takes {one / each:.1f} times as long as one per layer"
    print(f"{kind} side work: one side stream {verdict}")

# %% [markdown]
# A side stream is a queue: it is enough as long as what it holds could not have run side by side anyway.
#
# ## What the device holds
#
# Streams are cheap to make, but only so many heads are active at once. The 310B1 runs eight, as an article
# on the runtime states for one card. Work for every core and every DMA channel of the chip, twelve equal
# pieces for each and nothing that waits for anything, shows it. Beside it, the same chip without that limit.

# %%
small = load_device(SMALL)
free = replace(small, limits=replace(small.limits, max_concurrent_streams=64))
print(
    "heads at once:",
    small.limits.max_concurrent_streams,
    "| streams that can be made:",
    small.limits.max_streams,
)
TEN_US, PIECES = 10_000, 12


def piece(kind, i):
    if kind in ("h2d", "d2h"):
        return Command(
            name=f"{kind}{i}", kind=CommandKind.COPY, copy=CopyKind(kind), size_bytes=1, duration_ns=TEN_US
        )
    kernel = Kernel(name=kind, kernel_class=KernelClass(kind), duration_ns=TEN_US)
    return Command(name=f"{kind}{i}", kind=CommandKind.KERNEL, kernels=(kernel,))


WIDTH = {"cube": 1, "vector": 1, "aicpu": 4, "h2d": 4, "d2h": 4}
pieces = tuple(piece(kind, i) for kind, width in WIDTH.items() for i in range(PIECES * width))
everything = CommandGraph("something for all", pieces)
print(sum(WIDTH.values()), "cores and channels,", len(pieces), "pieces of", format_time(TEN_US))
MANY = list(range(1, 17))
makespans = {"eight heads at once": [], "without the limit": []}
for chip, times in zip((small, free), makespans.values(), strict=True):
    for count in MANY:
        options = RunOptions(streams=count, commands=len(pieces), run_ahead=len(pieces))
        times.append(run_scheduler(compile_graph(everything, chip, options), "reference").makespan_ns / 1000)
faster = {name: [times[0] / time for time in times] for name, times in makespans.items()}
curves(
    MANY,
    faster,
    xlabel="streams",
    ylabel="times as fast as one stream",
    title=f"{SMALL}: work for every engine",
)

# %%
for name, times in makespans.items():
    last = max(n for n, time in zip(MANY, times, strict=True) if time > 1.01 * min(times)) + 1
    print(f"{name}: best from {last} streams on, {min(times):.0f} us")
try:
    compile_graph(everything, small, RunOptions(streams=small.limits.max_streams + 1))
except CannEnvError as error:
    print(f"{type(error).__name__}: {error}")

# %% [markdown]
# ## Where CANN's allocators end up
#
# The graph engine of CANN can cut a graph into chains and merge them into N streams by one of three scores;
# its tuner plays the sensible N and takes the best. Over N, on the large chip in graph mode:

# %%
MODES = ("load_balance", "main_stream", "weighted_load_balance")
program = scenario(LARGE, "sink", max(COUNTS)).program()
allocators = {
    mode: [run_scheduler(program, f"{mode}:{count}").makespan_ns / 1e6 for count in COUNTS] for mode in MODES
}
ends = {
    name: run_scheduler(program, name).makespan_ns / 1e6
    for name in ("cann_default", "cann_autotune", "reference")
}
curves(
    COUNTS, allocators, levels={**ends, "lower bound": program.lower_bound_ns / 1e6},
    xlabel="streams N", ylabel="ms", title=f"{LARGE}: allocators of the graph engine",
)  # fmt: skip

# %%
rows = [[name, "-", f"{time:.3f}", f"{time / ends['cann_autotune']:.3f}"] for name, time in ends.items()]
for mode, times in allocators.items():
    count = COUNTS[times.index(min(times))]
    rows.append([mode, count, f"{min(times):.3f}", f"{min(times) / ends['cann_autotune']:.3f}"])
table(["scheduler", "best N", "ms", "x autotune"], rows)

# %% [markdown]
# ## Exercises
#
# 1. Why is one stream the best number for a *chain* on every device? Run `load_scenario("transformer")` with
#    resident weights (`replace(scenario.workload, weights=Level.HBM)`) over `COUNTS` and see whether it is.
# 2. In the picture of narrow side work, how many side streams are as good as one per layer? Extend `LABELS`.
#
# <details><summary>Answers</summary>
#
# 1. In a chain every command waits for the one before it, so a second stream could only add an event. But a
#    transformer is not quite a chain: queries, keys and values do not need one another. The gain is what
#    that allows.
#
#    ```python
#    from cann_env.graph import Level
#    cold = load_scenario("transformer")
#    warm = replace(cold, workload=replace(cold.workload, weights=Level.HBM))
#    for count in COUNTS:
#        program = warm.with_options(streams=count).program()
#        print(count, format_time(run_scheduler(program, "reference").makespan_ns))
#    ```
# 2. A piece takes four times as long as a layer, so four pieces overlap at any time:
#
#    ```python
#    for sides in (1, 2, 3, 4, 5):
#        label = lambda i, sides=sides: 1 + i // 2 % sides if i % 2 else 0
#        print(sides, format_time(by_hand(layers(8, 120), label, "sink").makespan_ns))
#    ```
#
# </details>
