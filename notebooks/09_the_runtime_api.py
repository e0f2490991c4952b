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
# # 9. The runtime's interface
#
# **What does a program that calls the runtime do, and what is wrong with it?** Programs for Ascend devices
# make streams and events, give out memory, launch kernels and wait. `cann_env.acl` has the calls of CANN's
# Python binding, and beside them the calls of an article on the runtime, whose four listings are programs on
# this page. They run on the simulator: **times are simulated, bytes are real**, and what is wrong with a
# program is told whether or not it went well.
#
# It needs `pip install -e '.[notebook]'`. `docs/acl.md` tells the rest.

# %%
# %matplotlib inline
import re
import threading

import numpy as np

import cann_env.acl as acl
from cann_env.render.gantt import gantt
from cann_env.render.table import table
from cann_env.units import format_size, format_time

HUGE_FIRST = acl.ACL_MEM_MALLOC_HUGE_FIRST
H2D, D2H = acl.ACL_MEMCPY_HOST_TO_DEVICE, acl.ACL_MEMCPY_DEVICE_TO_HOST


def ok(result):
    """What a call gives beside its return code, which has to be 0."""
    *values, code = result if isinstance(result, tuple) else (result,)
    if code != acl.ACL_SUCCESS:
        raise RuntimeError(acl.get_recent_err_msg())
    return values[0] if values else None


def described(operator):
    """A kernel descriptor."""
    desc = ok(acl.create_kernel_desc())
    ok(acl.set_kernel_desc_attr(desc, acl.ACL_KERNEL_ATTR_TYPE, operator))
    return desc


def begin(device):
    """A new run on a device."""
    run = acl.simulate(device)
    ok(acl.init())
    ok(acl.rt.set_device(0))
    return run


# %% [markdown]
# A kernel of a device cannot run here. Its stand-in says which arguments it reads and writes, what that
# costs, and, if values matter, computes them with numpy.

# %%
M, K, N = 1024, 512, 1024


def matmul(a, b, out):
    out[...] = a.astype(np.float32) @ b.astype(np.float32)


acl.define_kernel(
    "MatMul", reads=(0, 1), writes=(2,), kernel_class="cube", flops=2 * M * K * N,
    shapes={0: (M, K), 1: (K, N), 2: (M, N)}, function=matmul,
)  # fmt: skip
acl.define_kernel(
    "Scale", reads=(0,), writes=(1,), dtype="float32", function=lambda x, out: np.multiply(x, 2, out=out)
)
_ = acl.define_kernel("Step", reads=(0,), writes=(0,), function=lambda x: np.add(x, 1, out=x))

# %% [markdown]
# ## Listing 1: the life of a task
#
# Create, configure, submit, wait. A command is a container: its kernels go to the stream as one.

# %%
run = begin("ascend310b1")
rng = np.random.default_rng(0)
a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((M, K), (K, N)))
c = np.zeros((M, N), np.float16)
input1, input2, output = (ok(acl.rt.malloc(x.nbytes, HUGE_FIRST)) for x in (a, b, c))
for there, here in ((input1, a), (input2, b)):
    ok(acl.rt.memcpy(there, here.nbytes, acl.util.numpy_to_ptr(here), here.nbytes, H2D))

command = ok(acl.create_command())
kernel_desc = ok(acl.create_kernel_desc())
ok(acl.set_kernel_desc_attr(kernel_desc, acl.ACL_KERNEL_ATTR_TYPE, "MatMul"))
ok(acl.set_command_args(command, kernel_desc, 1, [input1, input2, output]))
ok(acl.submit_command(command, acl.ACL_STREAM_DEFAULT))
print("done when submitted:", bool(ok(acl.query_command(command))))
ok(acl.synchronize_command(command))
print("done when synchronised:", bool(ok(acl.query_command(command))))

ok(acl.rt.memcpy(acl.util.numpy_to_ptr(c), c.nbytes, output, c.nbytes, D2H))
print("values are right:", np.allclose(c, a.astype(np.float32) @ b.astype(np.float32), atol=0.1))
ok(acl.destroy_command(command))
for memory in (input1, input2, output):
    ok(acl.rt.free(memory))
ok(acl.rt.reset_device(0))
ok(acl.finalize())
print("hazards:", acl.hazards())

# %% [markdown]
# **Fusion saves queue switches.** Many small kernels, each as a command of its own, or all of them in one:
# the host submits once instead of n times, and nothing stands between them in the queue.


# %%
def chain(device, kernels, *, fused):
    """Time from the first submission until all kernels are done."""
    run = begin(device)
    memory, step = ok(acl.rt.malloc(1024, HUGE_FIRST)), described("Step")
    commands = []
    for place in range(kernels):
        if place == 0 or not fused:
            commands.append(ok(acl.create_command()))
        ok(acl.set_command_args(commands[-1], step, 1, [memory]))
    begun = run.clock_ns
    for each in commands:
        ok(acl.submit_command(each))
    ok(acl.synchronize_command(commands[-1]))
    assert not acl.hazards()
    return run.clock_ns - begun


rows = []
for device in ("ascend310b1", "ascend910b2"):
    for kernels in (1, 4, 16, 64):
        apart, together = (chain(device, kernels, fused=fused) for fused in (False, True))
        saved = (apart - together) / max(1, kernels - 1)
        rows.append([device, kernels, format_time(apart), format_time(together), format_time(saved)])
table(["device", "kernels", "a command each", "one command", "saved by each command less"], rows)

# %% [markdown]
# **A callback instead of a wait.** While the device computes one request, the host could prepare the next. If
# it waits for each command it does not; if a callback tells it, it does. A thread of the program runs the
# callbacks.

# %%
REQUESTS, PREPARATION_NS = 8, 300_000


def requests(*, callback):
    """Time of all requests, and the answers in order."""
    run = begin("ascend310b1")
    stream = ok(acl.rt.create_stream())
    answers, stop = [], threading.Event()

    def handle(timeout):
        while not stop.is_set():
            acl.rt.process_report(timeout)

    if callback:
        thread = ok(acl.util.start_thread(handle, 100))
        ok(acl.rt.subscribe_report(thread, stream))
    memory = [ok(acl.rt.malloc(x.nbytes, HUGE_FIRST)) for x in (a, b, c)]
    command = ok(acl.create_command())
    ok(acl.set_command_args(command, described("MatMul"), 1, memory))
    begun = run.clock_ns
    for number in range(REQUESTS):
        ok(acl.wait_until(run.clock_ns + PREPARATION_NS))  # the host is busy with something else
        ok(acl.submit_command(command, stream))
        if callback:
            ok(acl.rt.launch_callback(answers.append, number, acl.ACL_CALLBACK_NO_BLOCK, stream))
        else:
            ok(acl.synchronize_command(command))
            answers.append(number)
    ok(acl.rt.synchronize_stream(stream))
    spent = run.clock_ns - begun
    if callback:
        stop.set()
        ok(acl.rt.unsubscribe_report(thread, stream))
        ok(acl.util.stop_thread(thread))
    return spent, answers


rows = []
for title, callback in (("waits for each", False), ("is called back", True)):
    spent, answers = requests(callback=callback)
    rows.append([title, format_time(spent), answers])
table(["the host", f"{REQUESTS} requests", "answers"], rows)

# %% [markdown]
# ## Listing 2: one address for host and device
#
# What the article calls cached memory has one address for both. On the 910B it is managed memory, which moves
# page by page to whom touches it; a prefetch brings it at the full speed of the link. On the 310B host and
# device share one DRAM, and nothing moves at all. On other chips the call is refused.
#
# First as the article has it, with 1 MB: the host writes, a prefetch brings the data to the device, a kernel
# changes them, a prefetch brings them back, and the host reads.

# %%
run = begin("ascend910b2")
SIZE = 1 << 20
cached = ok(acl.malloc_cached(SIZE, HUGE_FIRST))
acl.util.ptr_to_numpy(cached, (SIZE // 4,), "float32")[:256] = np.arange(256)
ok(acl.mem_prefetch_async(cached, SIZE, 0, acl.ACL_STREAM_DEFAULT))
command = ok(acl.create_command())
ok(acl.set_command_args(command, described("Scale"), 4, [cached, cached]))
ok(acl.submit_command(command, acl.ACL_STREAM_DEFAULT))
ok(acl.mem_prefetch_async(cached, SIZE, acl.ACL_DEVICE_TO_HOST, acl.ACL_STREAM_DEFAULT))
ok(acl.rt.synchronize_stream(acl.ACL_STREAM_DEFAULT))
print("first elements:", acl.util.ptr_to_numpy(cached, (4,), "float32"), "at", format_time(run.clock_ns))
ok(acl.free_cached(cached))
begin("ascend910a")
print("on the 910A:", *acl.malloc_cached(SIZE, HUGE_FIRST), acl.get_recent_err_msg().partition("] ")[2])

# %% [markdown]
# Now eight pieces of 16 MiB, one after another, in three ways: copied explicitly there and back, moved by
# touching, and prefetched, each piece while the one before it is computed.

# %%
PIECES, PIECE = 8, 16 << 20


def explicit():
    stream = ok(acl.rt.create_stream())
    host, memory = ok(acl.rt.malloc_host(PIECE)), ok(acl.rt.malloc(PIECE, HUGE_FIRST))
    for _ in range(PIECES):
        ok(acl.rt.memcpy_async(memory, PIECE, host, PIECE, H2D, stream))
        submit(memory, stream)
        ok(acl.rt.memcpy_async(host, PIECE, memory, PIECE, D2H, stream))
        ok(acl.rt.synchronize_stream(stream))


def shared(*, prefetched):
    stream, mover = (ok(acl.rt.create_stream()) for _ in range(2))
    pieces = [ok(acl.malloc_cached(PIECE, HUGE_FIRST)) for _ in range(PIECES)]
    for piece in pieces:
        acl.util.ptr_to_numpy(piece, (PIECE // 4,), "float32")[:] = 1
    if prefetched:
        for piece in pieces:
            ok(acl.mem_prefetch_async(piece, PIECE, 0, mover))
    done = ok(acl.rt.create_event_ex_with_flag(0))
    for piece in pieces:
        submit(piece, stream)
        if prefetched:
            ok(acl.rt.record_event(done, stream))
            ok(acl.rt.stream_wait_event(mover, done))
            ok(acl.mem_prefetch_async(piece, PIECE, acl.ACL_DEVICE_TO_HOST, mover))
    ok(acl.rt.synchronize_stream(stream))
    ok(acl.rt.synchronize_stream(mover))
    for piece in pieces:
        assert acl.util.ptr_to_numpy(piece, (1,), "float32")[0] == 2


def submit(memory, stream):
    command = ok(acl.create_command())
    ok(acl.set_command_args(command, described("Scale"), 16, [(memory, PIECE), (memory, PIECE)]))
    ok(acl.submit_command(command, stream))


WAYS = {
    "copied explicitly": explicit,
    "moved by touching": lambda: shared(prefetched=False),
    "prefetched": lambda: shared(prefetched=True),
}
rows, pictures = [], {}
for device in ("ascend910b2", "ascend310b1"):
    for title, way in WAYS.items():
        run = begin(device)
        way()
        pictures[device, title] = acl.timeline()
        moves = sum(
            row.cause in ("fault", "prefetch", "writeback") for row in pictures[device, title].transfers
        )
        rows.append([device, title, format_time(run.clock_ns), moves, acl.hazards() or "none"])
table(["device", "way", "time", "moves", "hazards"], rows)

# %%
gantt(pictures["ascend910b2", "moved by touching"], width_inches=10, dpi=80)

# %%
gantt(pictures["ascend910b2", "prefetched"], width_inches=10, dpi=80)

# %% [markdown]
# ## Listing 3: a pool of memory
#
# The pool takes 100 MB once and gives blocks of 4 KiB. Each call of the runtime takes microseconds, each of
# the pool nanoseconds; what `malloc` costs was measured, what a pool costs is an assumption of the device
# file.

# %%
rows = []
for device in ("ascend310b1", "ascend910b2"):
    run = begin(device)
    pool = ok(acl.create_mem_pool(100 * 1024 * 1024, 4096))
    spent = {}
    for title, give, back in (
        ("malloc, free", lambda: acl.rt.malloc(4096, HUGE_FIRST), acl.rt.free),
        ("pool", lambda pool=pool: acl.malloc_from_mem_pool(pool, 4096), acl.free_to_mem_pool),
    ):
        begun = run.clock_ns
        held = [ok(give()) for _ in range(100)]
        given = run.clock_ns
        for address in held:
            ok(back(address))
        spent[title] = (given - begun) / 100, (run.clock_ns - given) / 100
    ok(acl.destroy_mem_pool(pool))
    rows += [[device, title, *map(format_time, times)] for title, times in spent.items()]
table(["device", "from", "one allocation", "one release"], rows)

# %% [markdown]
# **Pieces that cannot be used.** An allocation takes whole pages, here of 2 MiB: 4 KiB that were asked for
# take as much from the device as 2 MiB. The memory of a small board is gone long before it is used. Blocks of
# a pool share pages.

# %%
run = begin("ascend310b4")
total = ok(acl.rt.get_mem_info(acl.ACL_HBM_MEM)[1:])
count, code = 0, acl.ACL_SUCCESS
while code == acl.ACL_SUCCESS:
    _, code = acl.rt.malloc(4096, acl.ACL_MEM_MALLOC_HUGE_ONLY)
    count += code == acl.ACL_SUCCESS
rows = [["malloc", count, format_size(count * 4096), code]]
run = begin("ascend310b4")
pool = ok(acl.create_mem_pool(100 * 1024 * 1024, 4096))
count, code = 0, acl.ACL_SUCCESS
while code == acl.ACL_SUCCESS:
    _, code = acl.malloc_from_mem_pool(pool, 4096)
    count += code == acl.ACL_SUCCESS
rows.append(["pool of 100 MiB", count, format_size(count * 4096), code])
table([f"of {format_size(total)}", "allocations of 4 KiB", "bytes in use", "code at the end"], rows)

# %% [markdown]
# **Free, but in pieces.** A page of 2 MiB needs 2 MiB of which nothing is used. Pieces of 1 MiB fill the
# device, every second one is given back, and half of the memory is free, but there is no place for 2 MiB (a
# program that insists on huge pages fails, others fall back to small ones). A pool of blocks of 2 MiB holds
# half as many pieces of 1 MiB for its size, and every one that comes back serves any request.

# %%
PIECE_1, PIECE_2 = (1 << 20) - 32, (2 << 20) - 32  # with the guard behind them, whole pages


def pattern(give, back):
    """Fill, give every second piece back, ask for a larger one; the pieces held then, and the code."""
    held, code = [], acl.ACL_SUCCESS
    while code == acl.ACL_SUCCESS:
        address, code = give(PIECE_1)
        held += [address] * (code == acl.ACL_SUCCESS)
    for address in held[::2]:
        ok(back(address))
    return len(held) // 2, give(PIECE_2)[1]


run = begin("ascend310b4")
insists = acl.ACL_MEM_MALLOC_HUGE_ONLY
policy = {PIECE_1: acl.ACL_MEM_MALLOC_NORMAL_ONLY, PIECE_2: insists}
rows = [["malloc", *pattern(lambda size: acl.rt.malloc(size, policy[size]), acl.rt.free)]]
rows[0].insert(2, format_size(acl.rt.get_mem_info(acl.ACL_HBM_MEM)[0]))
print(acl.get_recent_err_msg().partition("] ")[2])
run = begin("ascend310b4")
pool = ok(acl.create_mem_pool(1 << 30, 2 << 20))
held, code = pattern(lambda size: acl.malloc_from_mem_pool(pool, size), acl.free_to_mem_pool)
rows.append(["pool of 1 GiB", held, format_size((1 << 30) - held * (2 << 20)), code])
table(["from", "pieces of 1 MiB held", "free then", "code for one of 2 MiB"], rows)

# %% [markdown]
# ## Listing 4: a pipeline on two streams
#
# One stream for data, one for computing, three batches. This is the article's loop, call by call.

# %%
BATCH, BATCHES = 4 << 20, 3


def memory_of(batches, buffers):
    """Pinned input and output of each batch, and so many pairs of buffers on the device."""
    hosts = [(ok(acl.rt.malloc_host(BATCH)), ok(acl.rt.malloc_host(BATCH))) for _ in range(batches)]
    for number, (source, _) in enumerate(hosts):
        acl.util.ptr_to_numpy(source, (BATCH // 4,), "float32")[:] = number + 1
    pairs = [[ok(acl.rt.malloc(BATCH, HUGE_FIRST)) for _ in range(2)] for _ in range(buffers)]
    return hosts, pairs


def compute_command(source, target):
    command = ok(acl.create_command())
    ok(acl.set_command_args(command, described("Scale"), 1, [source, target]))
    return command


def answers(hosts):
    """First element of each batch's result."""
    return [float(acl.util.ptr_to_numpy(target, (1,), "float32")[0]) for _, target in hosts]


def as_printed():
    data_stream, compute_stream = (ok(acl.rt.create_stream()) for _ in range(2))
    data_stream_event = ok(acl.rt.create_event_ex_with_flag(0))
    hosts, [(device_input, device_output)] = memory_of(BATCHES, 1)
    compute = compute_command(device_input, device_output)
    for input_batch, output_batch in hosts:
        ok(acl.rt.memcpy_async(device_input, BATCH, input_batch, BATCH, H2D, data_stream))
        ok(acl.rt.stream_wait_event(compute_stream, data_stream_event))
        ok(acl.submit_command(compute, compute_stream))
        ok(acl.rt.memcpy_async(output_batch, BATCH, device_output, BATCH, D2H, data_stream))
        ok(acl.rt.record_event(data_stream_event, data_stream))
    ok(acl.rt.synchronize_stream(data_stream))
    ok(acl.rt.synchronize_stream(compute_stream))
    return hosts


begin("ascend910b2")
print("results", answers(as_printed()), "instead of", [2.0 * (n + 1) for n in range(BATCHES)])
for hazard in acl.hazards():
    print(re.sub(r"\w+\.py:", "line ", f"- {hazard.kind}: {hazard.what}\n    {hazard.fix}"))

# %% [markdown]
# The wait comes before anything was recorded, so that the first kernel does not wait for its data (the
# article records at the end of the loop, behind the copy back). And the copy back waits for the copy in, not
# for the kernel. All batches share one pair of buffers as well.
#
# Corrected: an event behind each copy in and behind each kernel, and buffers in turn. A copy into a buffer
# waits for the kernel that read it last, a kernel for the copy out of what it overwrites.


# %%
def corrected(batches, streams, buffers):
    """A pipeline: on one stream, on two as in the article, or with a third for the way back."""
    load, compute, back = {1: (0, 0, 0), 2: (0, 1, 0), 3: (0, 1, 2)}[streams]
    made = [ok(acl.rt.create_stream()) for _ in range(streams)]
    load, compute, back = made[load], made[compute], made[back]
    hosts, pairs = memory_of(batches, buffers)
    commands = [compute_command(*pair) for pair in pairs]
    loaded, computed, returned = (
        [ok(acl.rt.create_event_ex_with_flag(0)) for _ in range(buffers)] for _ in range(3)
    )

    def bring_back(number):
        place = number % buffers
        ok(acl.rt.stream_wait_event(back, computed[place]))
        ok(acl.rt.memcpy_async(hosts[number][1], BATCH, pairs[place][1], BATCH, D2H, back))
        ok(acl.rt.record_event(returned[place], back))

    for number in range(batches):
        place = number % buffers
        if number >= buffers:
            ok(acl.rt.stream_wait_event(load, computed[place]))
        ok(acl.rt.memcpy_async(pairs[place][0], BATCH, hosts[number][0], BATCH, H2D, load))
        ok(acl.rt.record_event(loaded[place], load))
        ok(acl.rt.stream_wait_event(compute, loaded[place]))
        if number >= buffers:
            ok(acl.rt.stream_wait_event(compute, returned[place]))
        ok(acl.submit_command(commands[place], compute))
        ok(acl.rt.record_event(computed[place], compute))
        if streams != 2:
            bring_back(number)
        elif number:
            bring_back(number - 1)  # behind the next copy in, which would wait for it otherwise
    if streams == 2:
        bring_back(batches - 1)
    for stream in made:
        ok(acl.rt.synchronize_stream(stream))
    return hosts


def busy(schedule):
    """Part of the time, from the first start to the last end, in which a kernel ran."""
    spans = [row for row in schedule.commands if schedule.graph.commands[row.command].kernels]
    begun = min(row.start_ns for row in schedule.commands)
    return sum(row.finish_ns - row.start_ns for row in spans) / (schedule.makespan_ns - begun)


BATCHES = 16
rows, pictures = [], {}
for streams, buffers in ((1, 1), (2, 2), (3, 2)):
    begin("ascend910b2")
    right = answers(corrected(BATCHES, streams, buffers)) == [2.0 * (n + 1) for n in range(BATCHES)]
    pictures[streams, buffers] = schedule = acl.timeline()
    length = schedule.makespan_ns - min(row.start_ns for row in schedule.commands)
    found = acl.hazards() or "none"
    rows.append([streams, buffers, format_time(length), f"{busy(schedule):.0%}", right, found])
table(["streams", "buffers", f"{BATCHES} batches", "kernels run", "results right", "hazards"], rows)

# %%
gantt(pictures[1, 1], width_inches=10, dpi=80)

# %%
gantt(pictures[3, 2], width_inches=10, dpi=80)

# %% [markdown]
# What would a scheduler make of the last program? `acl.record` gives its work without the order that was
# chosen, `acl.improve` compares.

# %%
print(acl.improve())

# %% [markdown]
# ## A graph, cut into work on streams
#
# The graph engine cuts a model into tasks on streams. Here a scheduler does it: the same small graph on one
# stream and on four.

# %%
from cann_env.scenario import load_scenario

graph = load_scenario("pipeline").graph()
rows = []
for count in (1, 4):
    run = begin("ascend310b1")
    streams = [ok(acl.rt.create_stream()) for _ in range(count)]
    command = ok(acl.run_graph(graph, "reference", streams))
    ok(acl.synchronize_command(command))
    rows.append([count, len(run.log), format_time(run.clock_ns), acl.hazards() or "none"])
table(["streams", "tasks", "time", "hazards"], rows)

# %% [markdown]
# ## Exercises
#
# 1. `as_printed` needs two changes to be right, one of them the place of one line. Which is the smallest
#    program of the article's form that passes the check? Use the fixes that `acl.hazards()` proposes.
# 2. `corrected` with two streams and one pair of buffers: what is the second stream good for then?
#
# <details><summary>Answers</summary>
#
# 1. The record belongs behind the copy in, so that the kernel waits for its data, and a second event behind
#    the kernel, for which the copy back waits. With one pair of buffers the next copy in comes behind the
#    copy back on the same stream, so nothing else is needed.
# 2. ```python
#    begin("ascend910b2")
#    corrected(BATCHES, 2, 1)
#    print(format_time(acl.timeline().makespan_ns), acl.hazards() or "no hazards")
#    ```
#
#    For little: with one pair every step of a batch waits for the step before it.
#
# </details>
