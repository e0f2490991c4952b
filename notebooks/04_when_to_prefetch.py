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
# # 4. When to prefetch
#
# **A weight that lies on the host must come to the device before its kernel can run. When should it be sent
# for?** Too late, and the kernel waits. Too early, and it takes the place of something that is needed
# sooner, which then has to come again. This page shows the three cases on a chain of twelve kernels, and
# then on a training step that does not fit into memory.
#
# It needs `pip install -e '.[notebook]'`.

# %%
# %matplotlib inline
from cann_env.device.load import load_device
from cann_env.graph import Buffer, BufferKind, Command, CommandGraph, CommandKind, Kernel, KernelClass, Level
from cann_env.metrics import metrics
from cann_env.options import RunOptions
from cann_env.program import compile_graph
from cann_env.render.charts import curves
from cann_env.render.gantt import gantt
from cann_env.render.table import table
from cann_env.scenario import load_scenario
from cann_env.schedulers import ORDERS, PREFETCHERS, decide, record_schedule, run_scheduler
from cann_env.schedulers.prefetch import LookAhead
from cann_env.units import format_size, format_time

MIB = 1 << 20

# %% [markdown]
# ## A chain that reads its weights twice
#
# Six layers, run twice, one millisecond each. Each needs 16 MiB that begin on the host, in *managed* memory:
# if they are not there when the kernel is due, they migrate page by page while it waits.

# %%
LAYERS, PASSES, WEIGHT = 6, 2, 16 * MIB


def layer(i):
    kernel = Kernel(name="layer", kernel_class=KernelClass.CUBE, blocks=24, duration_ns=1_000_000)
    before = (f"layer{i - 1}",) if i else ()
    return Command(
        name=f"layer{i}", kind=CommandKind.KERNEL, kernels=(kernel,), reads=(f"w{i % LAYERS}",), after=before
    )  # fmt: skip


chain = CommandGraph(
    "two passes",
    tuple(layer(i) for i in range(LAYERS * PASSES)),
    tuple(
        Buffer(name=f"w{i}", size_bytes=WEIGHT, kind=BufferKind.MANAGED, level=Level.HOST)
        for i in range(LAYERS)
    ),
)
device = load_device("ascend910b2")


def run(program, ahead):
    """Prefetch what the next ``ahead`` commands need that have not started; 0: nothing."""
    order = ORDERS["eager"]()
    policy = LookAhead(order, ahead) if ahead else order
    return record_schedule(program, decide(program, policy).actions)


def program_of(places, mask):
    """The chain on a device with room for so many weights."""
    options = RunOptions(streams=1, hbm_bytes=places * WEIGHT, prefetch_mask=mask, l2_prefetches=0)
    return compile_graph(chain, device, options)


# %% [markdown]
# ### Too late
#
# Memory for two of the six weights, and nobody prefetches. The row *from host* shows the migrations; each
# kernel waits for its own.

# %%
late = run(program_of(2, "strict"), 0)
gantt(late, width_inches=10, dpi=80)

# %% [markdown]
# ### Just right
#
# Now the next weight is fetched at the full speed of the link while a kernel runs. With two places there is
# always one to fetch into.

# %%
right = run(program_of(2, "strict"), 2)
gantt(right, width_inches=10, dpi=80)

# %% [markdown]
# ### Too early
#
# The same policy, but now it may evict whatever no running command uses (`prefetch_mask = "free"`). It sends
# for the weight after the next one, into the place of the next one, which has not been used yet.

# %%
early = run(program_of(2, "free"), 2)
gantt(early, width_inches=10, dpi=80)

# %%
rows = []
for title, schedule in (("too late", late), ("just right", right), ("too early", early)):
    figures = metrics(schedule)
    causes = [move.cause for move in schedule.transfers]
    rows.append(
        [
            title,
            format_time(figures.makespan_ns),
            causes.count("fault"),
            causes.count("prefetch"),
            format_size(figures.link_bytes["h2d"]),
            format_time(figures.stall_ns["fault"]),
        ]
    )
assert right.makespan_ns < min(late.makespan_ns, early.makespan_ns)
table(["", "makespan", "on demand", "prefetched", "from the host", "kernels waited"], rows)

# %% [markdown]
# ## Strict or free
#
# The strict mask makes a prefetch illegal if what has to go is needed sooner than what comes. That takes the
# risk out of looking far ahead. Over how far, for several sizes of memory:

# %%
AHEAD = [0, 1, 2, 3, 4, 6]
series = {}
for places in (2, 3):
    for mask in ("strict", "free"):
        program = program_of(places, mask)
        series[f"{places} places, {mask}"] = [run(program, ahead).makespan_ns / 1e6 for ahead in AHEAD]
curves(
    AHEAD, series, levels={"kernels alone": LAYERS * PASSES},
    xlabel="commands looked ahead", ylabel="ms", title="How far to look ahead",
)  # fmt: skip

# %%
for name, times in series.items():
    rises = [ahead for ahead, a, b in zip(AHEAD[1:], times[:-1], times[1:], strict=True) if b > 1.001 * a]
    verdict = "never hurts" if not rises else f"hurts from {rises[0]} commands on"
    print(
        f"{name}: looking further ahead {verdict}; {times[0]:.1f} ms on demand, {min(times):.1f} ms at best"
    )

# %% [markdown]
# ## A training step that does not fit
#
# In the scenario `training` what the forward pass keeps for the backward pass takes most of the memory, and
# there is seven tenths of what it would like. Activations have to go to the host and come back. Here even
# the strict mask has a best distance: what comes early holds memory for longer, and something else has to go
# meanwhile.

# %%
training = load_scenario("training")
DEPTHS = [0, 1, 2, 4, 8, 16, 32, 64]
times, moved = {}, {}
for mask in ("strict", "free"):
    program = training.with_options(prefetch_mask=mask).program()
    schedules = [run(program, ahead) for ahead in DEPTHS]
    times[mask] = [schedule.makespan_ns / 1e6 for schedule in schedules]
    moved[mask] = [metrics(schedule).link_bytes["h2d"] / 2**30 for schedule in schedules]
words = [str(depth) for depth in DEPTHS]
curves(words, times, xlabel="commands looked ahead", ylabel="ms", title="Too late, just right, too early")

# %%
curves(
    words, moved, xlabel="commands looked ahead", ylabel="GiB from the host", title="What it costs the link"
)

# %%
for mask, values in times.items():
    best = values.index(min(values))
    print(
        f"{mask}: best {DEPTHS[best]} commands ahead, {min(values):.0f} ms; "
        f"on demand {values[0] / min(values):.2f} "
        f"times as long, {DEPTHS[-1]} ahead {values[-1] / min(values):.2f} times"
    )
    assert 0 < best < len(DEPTHS) - 1

# %% [markdown]
# ## Who decides best, and how much memory is enough?
#
# A prefetcher decides when buffers come, and some of them also when they go. `on_demand_lru` evicts what was
# used last the longest ago, `on_demand` what is needed furthest in the future; `at_once` asks for everything
# as early as it may, `look_ahead_8` for what the next eight commands need; `migration` plans all moves
# beforehand, out as well as in. Each gets the options it is meant for. The memory factor is the memory over
# what it would take to keep every buffer from its first to its last use.

# %%
WHO = ("on_demand_lru", "on_demand", "at_once", "look_ahead_8", "migration")
FACTORS = [0.5, 0.6, 0.7, 0.8, 0.9, 1.0]


def prefetched(factor, who):
    scenario = training.with_options(memory_factor=factor)
    program = compile_graph(scenario.graph(), scenario.device, PREFETCHERS[who].adapt(scenario.options))
    return run_scheduler(program, f"eager+{who}")


made = {(factor, who): prefetched(factor, who) for factor in FACTORS for who in WHO}
factors = {who: [made[factor, who].makespan_ns / 1e6 for factor in FACTORS] for who in WHO}
bound = training.program().lower_bound_ns / 1e6
curves(
    FACTORS, factors, levels={"lower bound": bound}, from_zero=True,
    xlabel="memory factor", ylabel="ms", title="A training step on less and less memory",
)  # fmt: skip

# %%
rows = []
for who in WHO:
    figures = metrics(made[0.7, who])
    rows.append(
        [
            who,
            format_time(figures.makespan_ns),
            format_size(figures.link_bytes["h2d"]),
            format_size(figures.writeback_bytes),
            format_time(figures.stall_ns["fault"]),
            f"{figures.overlap_ns / figures.copy_ns:.0%}",
        ]
    )
table(
    ["at factor 0.7", "makespan", "brought", "written back", "kernels waited", "transfers behind kernels"],
    rows,
)

# %%
ranking = sorted(WHO, key=lambda who: made[0.7, who].makespan_ns)
best, worst = ranking[0], ranking[-1]
saved = made[0.7, "on_demand_lru"].makespan_ns / made[0.7, best].makespan_ns
print(f"best at 0.7: {best}, {saved:.2f} times as fast as on_demand_lru; worst: {worst}")
enough = min(f for f in FACTORS if made[f, best].makespan_ns <= made[1.0, "on_demand_lru"].makespan_ns)
print(f"{best} at factor {enough} is as fast as on_demand_lru at factor 1")

# %% [markdown]
# ## Does the order of issue matter?
#
# A prefetcher can be joined with any order of issue. All above went with `eager`, which queues a command as
# soon as its predecessors are queued; `just_in_time` issues none before it can start.

# %%
adapted = {
    who: compile_graph(training.graph(), training.device, PREFETCHERS[who].adapt(training.options))
    for who in WHO
}
orders = ("eager", "just_in_time")
joined = {(order, who): run_scheduler(adapted[who], f"{order}+{who}") for order in orders for who in WHO}
rows = [[who, *(format_time(joined[order, who].makespan_ns) for order in orders)] for who in WHO]
table(["at factor 0.7", *orders], rows)

# %%
winner = min(joined, key=lambda pair: joined[pair].makespan_ns)
spread = {order: [joined[order, who].makespan_ns for who in WHO] for order in orders}
for order, values in spread.items():
    print(f"{order}: the best prefetcher is {max(values) / min(values):.2f} times as fast as the worst")
gains = [joined["eager", who].makespan_ns / joined["just_in_time", who].makespan_ns for who in WHO]
print(
    f"just_in_time is {min(gains):.2f} to {max(gains):.2f} times as fast as eager; "
    f"best pair: {'+'.join(winner)}"
)

# %% [markdown]
# Order and moves are one problem: a prefetcher can only bring in time what the order leaves time for. The
# best pair as a picture: activations leave during the forward pass and are back when the backward pass wants
# them.

# %%
gantt(joined[winner], width_inches=10, dpi=80)

# %% [markdown]
# ## Exercises
#
# 1. How little memory is possible at all? Lower the factor until the program is refused, and read the
#    message.
# 2. Which of all orders (`ORDERS` has their names) is the best one for `migration` at factor 0.7?
#
# <details><summary>Answers</summary>
#
# 1. ```python
#    from cann_env import CannEnvError
#    for factor in (0.4, 0.3, 0.2, 0.1):
#        try:
#            print(factor, format_time(prefetched(factor, "migration").makespan_ns))
#        except CannEnvError as error:
#            print(factor, error)
#    ```
#
#    Device buffers are never moved away, and every command needs all its operands at once: that much there
#    has to be.
# 2. ```python
#    program = compile_graph(
#        training.graph(), training.device, PREFETCHERS["migration"].adapt(training.options)
#    )
#    for order in ORDERS:
#        print(order, format_time(run_scheduler(program, f"{order}+migration").makespan_ns))
#    ```
#
#    Those that issue a command only when it can start or right behind what it waits for (`just_in_time`,
#    `chained`) are far ahead of the others.
#
# </details>
