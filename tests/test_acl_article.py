"""The article's names, from commands to pools and graphs; timelines, improvement, the table of calls."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

import cann_env.acl as acl
from cann_env.acl import codes
from cann_env.acl.facts import facts_of, name_in_c
from cann_env.acl.table import page, rows
from cann_env.graph import (
    Buffer,
    BufferKind,
    Command,
    CommandGraph,
    CommandKind,
    CopyKind,
    Kernel,
    KernelClass,
    Level,
)
from cann_env.units import InputError

SIZE = 4 << 20
CALLS = Path(__file__).resolve().parent.parent / "docs" / "acl_calls.md"


def ok(result):
    """What a call gives beside its code, which has to be 0."""
    *values, code = result if isinstance(result, tuple) else (result,)
    assert code == acl.ACL_SUCCESS, acl.get_recent_err_msg()
    return values[0] if values else None


def begin(device: str = "ascend910b2", submission: str = "eager"):
    run = acl.simulate(device, devices=2, submission=submission)
    ok(acl.init())
    ok(acl.rt.set_device(0))
    return run


@pytest.fixture(autouse=True)
def kernels():
    acl.define_kernel(
        "double", reads=(0,), writes=(1,), dtype="float32", op="Mul",
        function=lambda a, out: np.multiply(a, 2, out=out),
    )  # fmt: skip
    acl.define_kernel("inc", reads=(0,), writes=(0,), dtype="float32", function=lambda a: np.add(a, 1, out=a))
    acl.define_kernel("long", writes=(0,), duration_ns=100_000)


def described(operator: str, core: int | None = None) -> int:
    desc = ok(acl.create_kernel_desc())
    ok(acl.set_kernel_desc_attr(desc, acl.ACL_KERNEL_ATTR_TYPE, operator))
    if core is not None:
        ok(acl.set_kernel_desc_attr(desc, acl.ACL_KERNEL_ATTR_CORE, core))
    return desc


def command(operator: str, *args: object, times: int = 1, blocks: int = 1) -> int:
    made = ok(acl.create_command())
    for _ in range(times):
        ok(acl.set_command_args(made, described(operator), blocks, list(args)))
    return made


def floats(address: int, size: int = SIZE) -> np.ndarray:
    return acl.util.ptr_to_numpy(address, (size // 4,), "float32")


# Commands.


def test_kernels_of_one_command_see_what_the_ones_before_wrote() -> None:
    begin("ascend310b1")
    memory = ok(acl.rt.malloc(1024, 0))
    fused = command("inc", memory, times=5)
    ok(acl.submit_command(fused))
    ok(acl.synchronize_command(fused))
    assert floats(memory, 1024)[0] == 5
    ok(acl.submit_command(fused))  # asked again
    assert ok(acl.query_command(fused)) == acl.ACL_EVENT_RECORDED_STATUS_NOT_READY
    ok(acl.synchronize_command(fused))
    assert ok(acl.query_command(fused)) == acl.ACL_EVENT_RECORDED_STATUS_COMPLETE
    assert floats(memory, 1024)[0] == 10
    assert acl.hazards() == []


def test_fusion_saves_a_launch_and_a_switch_for_each_kernel() -> None:
    """n commands against one of n kernels: the host submits n times, or once."""
    spent = {}
    for fused in (False, True):
        run = begin()
        memory = ok(acl.rt.malloc(1024, 0))
        commands = [command("inc", memory, times=8)] if fused else [command("inc", memory) for _ in range(8)]
        begun = run.clock_ns
        for each in commands:
            ok(acl.submit_command(each))
        submitted = run.clock_ns - begun
        ok(acl.synchronize_command(commands[-1]))
        assert submitted == len(commands) * run.spec.host.launch_kernel_ns
        spent[fused] = run.clock_ns - begun
        assert len(run.log) == len(commands)
    assert spent[True] < spent[False]


def test_a_callback_behind_a_command_comes_when_it_is_done() -> None:
    run = begin()
    stream, got = ok(acl.rt.create_stream()), []
    ok(acl.rt.subscribe_report(0, stream))
    long = command("long", ok(acl.rt.malloc(64, 0)))
    ok(acl.submit_command(long, stream))
    ok(acl.rt.launch_callback(got.append, "done", acl.ACL_CALLBACK_NO_BLOCK, stream))
    assert got == []
    assert acl.rt.process_report(1000) == acl.ACL_SUCCESS
    assert got == ["done"]
    assert run.log[0].finish_ns <= run.clock_ns


REFUSED = {
    "no command": lambda: acl.submit_command(99),
    "empty command": lambda: acl.submit_command(ok(acl.create_command())),
    "never submitted": lambda: acl.synchronize_command(command("long", ok(acl.rt.malloc(64, 0)))),
    "no kernel": lambda: acl.set_command_args(ok(acl.create_command()), 99, 1, []),
    "no operator": lambda: acl.set_command_args(
        ok(acl.create_command()), ok(acl.create_kernel_desc()), 1, []
    ),
    "unknown operator": lambda: acl.set_kernel_desc_attr(
        ok(acl.create_kernel_desc()), acl.ACL_KERNEL_ATTR_TYPE, "nothing"
    ),
    "unknown core": lambda: acl.set_kernel_desc_attr(
        ok(acl.create_kernel_desc()), acl.ACL_KERNEL_ATTR_CORE, 7
    ),
    "unknown attribute": lambda: acl.set_kernel_desc_attr(ok(acl.create_kernel_desc()), "colour", 0),
    "no path": lambda: acl.load_kernel("")[1],
    "no cached memory": lambda: acl.free_cached(ok(acl.rt.malloc(64, 0))),
    "plain memory": lambda: acl.mem_prefetch_async(ok(acl.rt.malloc(64, 0)), 64, 0),
    "more than a block": lambda: acl.malloc_from_mem_pool(ok(acl.create_mem_pool(8192, 4096)), 4097)[1],
    "no block": lambda: acl.create_mem_pool(100, 4096)[1],
    "a pool without blocks": lambda: acl.malloc_from_mem_pool(ok(acl.rt.mem_pool_create()), 64)[1],
    "no streams": lambda: acl.run_graph(small_graph(), "reference", [])[1],
    "no scheduler": lambda: acl.run_graph(small_graph(), "nothing", [0])[1],
    "no model": lambda: acl.run_graph("no such model", "reference", [0])[1],
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_wrong_argument_is_refused_and_submits_nothing(case: str) -> None:
    run = begin()
    assert REFUSED[case]() == codes.RT_PARAM_INVALID
    assert "[107000]" in acl.get_recent_err_msg()
    assert run.log == []


def test_a_loaded_binary_gives_functions_for_commands() -> None:
    begin("ascend310b1")
    memory = ok(acl.rt.malloc(1024, 0))
    function = ok(acl.rt.binary_get_function(ok(acl.load_kernel("kernels.o")), "inc"))
    made = ok(acl.create_command())
    ok(acl.set_command_args(made, function, 1, [memory]))
    ok(acl.submit_command(made))
    ok(acl.synchronize_command(made))
    assert floats(memory, 1024)[0] == 1


@pytest.mark.parametrize(
    ("device", "core", "classes"),
    [
        ("ascend910b2", acl.ACL_KERNEL_CORE_AI_CORE, (KernelClass.CUBE, KernelClass.VECTOR)),
        ("ascend910b2", acl.ACL_KERNEL_CORE_VECTOR_CORE, (KernelClass.VECTOR, KernelClass.CUBE)),
        ("ascend910a", acl.ACL_KERNEL_CORE_AI_CORE, (KernelClass.CUBE, KernelClass.VECTOR)),
    ],
)
def test_a_preferred_core_is_a_class_with_a_fallback(device: str, core: int, classes) -> None:
    run = begin(device)
    made = ok(acl.create_command())
    ok(acl.set_command_args(made, described("Mul", core), 1, [ok(acl.rt.malloc(64, 0)) for _ in range(2)]))
    ok(acl.submit_command(made))
    ok(acl.synchronize_command(made))
    (kernel,) = run.log[-1].command.kernels
    assert (kernel.kernel_class, kernel.fallback) == classes


def test_a_preferred_core_that_is_taken_leaves_the_other() -> None:
    """Two kernels that prefer the one vector core of a 310B: the second runs on its AI core meanwhile."""
    begin("ascend310b1")
    streams = [ok(acl.rt.create_stream()) for _ in range(2)]
    for stream in streams:
        made = ok(acl.create_command())
        memory = [ok(acl.rt.malloc(SIZE, 0)) for _ in range(2)]
        desc = described("double", acl.ACL_KERNEL_CORE_VECTOR_CORE)
        ok(acl.set_command_args(made, desc, 1, memory))
        ok(acl.submit_command(made, stream))
    ok(acl.rt.synchronize_device())
    blocks = acl.timeline().blocks
    assert [block.work_class for block in blocks] == ["vector", "cube"]
    assert blocks[1].start_ns < blocks[0].finish_ns


# Shared memory.


@pytest.mark.parametrize("device", ["ascend910b2", "ascend310b1"])
@pytest.mark.parametrize("prefetched", [False, True])
def test_shared_memory_shows_the_host_what_the_device_wrote(device: str, prefetched: bool) -> None:
    begin(device)
    memory = ok(acl.malloc_cached(SIZE))
    floats(memory)[:] = 3
    if prefetched:
        ok(acl.mem_prefetch_async(memory, SIZE, 0))
    ok(acl.submit_command(command("inc", memory)))
    if prefetched:
        ok(acl.mem_prefetch_async(memory, SIZE, acl.ACL_DEVICE_TO_HOST))
    ok(acl.rt.synchronize_stream(0))
    assert np.all(floats(memory) == 4)
    ok(acl.free_cached(memory))
    assert acl.hazards() == []


def moves() -> list[str]:
    return [row.cause for row in acl.timeline().transfers if row.cause in ("fault", "prefetch", "writeback")]


@pytest.mark.parametrize("least", [1, 1000])
def test_memory_moves_to_whom_touches_it_and_the_host_pays(monkeypatch, least: int) -> None:
    monkeypatch.setattr(sys.modules["cann_env.acl.state.simulator"], "_EPOCH", least)
    run = begin()
    memory = ok(acl.malloc_cached(SIZE))
    array = floats(memory)
    array[:] = 1
    assert run.clock_ns == run.spec.memory.malloc_ns  # it lay on the host
    ok(acl.submit_command(command("inc", memory)))
    ok(acl.rt.synchronize_stream(0))
    assert moves() == ["fault"]
    begun = run.clock_ns
    assert array[0] == 2  # the array was made before, and notices that it is read
    pages = SIZE // run.spec.memory.page_bytes
    assert run.clock_ns - begun > pages * run.spec.memory.fault_ns
    back = run.clock_ns
    assert array[1] == 2
    assert run.clock_ns == back  # it is there now
    ok(acl.submit_command(command("inc", memory)))
    ok(acl.rt.synchronize_stream(0))
    assert moves() == ["fault", "fault"] if least == 1 else ["fault", "writeback", "fault"]
    assert acl.hazards() == []


def test_a_prefetch_hides_the_transfer_behind_other_work() -> None:
    """::

    prefetched   stream  |---- long ----|- inc -|     without   |---- long ----|-- faults --|- inc -|
                 mover   |-- bytes --|

    """
    spent = {}
    for prefetched in (False, True):
        run = begin()
        stream, mover = (ok(acl.rt.create_stream()) for _ in range(2))
        memory, other = ok(acl.malloc_cached(SIZE // 2)), ok(acl.rt.malloc(64, 0))
        for _ in range(2):
            ok(acl.submit_command(command("long", other), stream))
        if prefetched:
            ok(acl.mem_prefetch_async(memory, SIZE // 2, 0, mover))
        ok(acl.submit_command(command("inc", memory), stream))
        ok(acl.rt.synchronize_stream(stream))
        spent[prefetched] = run.log[-1].finish_ns
        assert moves() == ["prefetch" if prefetched else "fault"]
    assert spent[False] - spent[True] > 90_000  # 2 MiB at 23 GB/s


def test_nothing_moves_where_host_and_device_share_memory() -> None:
    run = begin("ascend310b1")
    memory = ok(acl.malloc_cached(SIZE))
    before = len(run.log)
    ok(acl.mem_prefetch_async(memory, SIZE, 0))
    assert len(run.log) == before
    ok(acl.submit_command(command("inc", memory)))
    ok(acl.rt.synchronize_stream(0))
    assert floats(memory)[0] == 1
    assert acl.timeline().transfers == ()


def test_shared_memory_is_refused_where_there_is_none() -> None:
    begin("ascend910a")
    assert acl.malloc_cached(SIZE) == (None, codes.RT_FEATURE_NOT_SUPPORT)
    assert "malloc and memcpy_async" in acl.get_recent_err_msg()


def test_the_host_that_reads_too_early_is_found() -> None:
    begin()
    memory = ok(acl.malloc_cached(SIZE))
    ok(acl.submit_command(command("inc", memory)))
    assert floats(memory)[0] == 0
    (hazard,) = acl.hazards()
    assert hazard.kind is acl.HazardKind.READ_AFTER_WRITE


def test_the_last_holder_frees_and_work_keeps_memory_to_its_end() -> None:
    run = begin("ascend310b1")
    used = run.devices[0].used_bytes
    memory = ok(acl.malloc_cached(SIZE))
    assert ok(acl.retain_cached(memory)) == 2
    ok(acl.free_cached(memory))
    ok(acl.submit_command(command("inc", memory)))
    ok(acl.free_cached(memory))
    assert run.devices[0].used_bytes > used  # the kernel still runs
    ok(acl.rt.synchronize_stream(0))
    assert run.devices[0].used_bytes == used
    assert acl.hazards() == []  # with acl.rt.free it is one
    assert acl.free_cached(memory) == codes.RT_PARAM_INVALID


# Pools.


@pytest.mark.parametrize("device", ["ascend310b1", "ascend910b2"])
def test_a_pool_gives_blocks_in_nanoseconds(device: str) -> None:
    run = begin(device)
    free = ok((run.spec.memory.hbm_bytes - run.devices[0].used_bytes, 0))
    pool = ok(acl.create_mem_pool(16 * 4096 + 100, 4096))
    assert run.devices[0].used_bytes == run.spec.memory.hbm_bytes - free + 16 * 4096
    begun = run.clock_ns
    held = [ok(acl.malloc_from_mem_pool(pool, 4000)) for _ in range(16)]
    assert run.clock_ns - begun == 16 * run.spec.memory.pool_malloc_ns < run.spec.memory.malloc_ns
    assert acl.malloc_from_mem_pool(pool, 1) == (None, codes.RT_MEMORY_ALLOCATION)
    for address in held[::2]:
        ok(acl.free_to_mem_pool(address))
    assert len({ok(acl.malloc_from_mem_pool(pool, 4096)) for _ in range(8)}) == 8
    assert acl.destroy_mem_pool(pool) == codes.RT_PARAM_INVALID  # blocks are held


def test_a_pool_that_is_whole_again_goes() -> None:
    run = begin()
    used = run.devices[0].used_bytes
    pool = ok(acl.create_mem_pool(100 * 1024 * 1024, 4096))
    block = ok(acl.malloc_from_mem_pool(pool, 4096))
    ok(acl.free_to_mem_pool(block))
    assert acl.free_to_mem_pool(block) == codes.RT_PARAM_INVALID
    ok(acl.destroy_mem_pool(pool))
    assert run.devices[0].used_bytes == used


def test_a_block_given_back_in_use_is_found() -> None:
    begin()
    block = ok(acl.malloc_from_mem_pool(ok(acl.create_mem_pool(4096, 4096)), 4096))
    ok(acl.submit_command(command("inc", block)))
    ok(acl.free_to_mem_pool(block))
    assert [hazard.kind for hazard in acl.hazards()] == [acl.HazardKind.FREE_IN_USE]


def test_small_pieces_in_huge_pages_fill_a_device_that_a_pool_does_not() -> None:
    """4 KiB in a page of 2 MiB each: a GiB holds 512 of them, as a pool of 2 MiB does."""
    run = begin("ascend310b4")
    ok(acl.rt.malloc(run.spec.memory.hbm_bytes - (1 << 30) - 64, acl.ACL_MEM_MALLOC_NORMAL_ONLY))
    made = 0
    while acl.rt.malloc(4096, acl.ACL_MEM_MALLOC_HUGE_ONLY)[1] == acl.ACL_SUCCESS:
        made += 1
    assert made == 512
    begin("ascend310b4")
    pool = ok(acl.create_mem_pool(512 * 4096, 4096))
    assert all(acl.malloc_from_mem_pool(pool, 4096)[1] == acl.ACL_SUCCESS for _ in range(512))


def test_freed_small_pieces_leave_no_whole_pages_and_a_pool_does() -> None:
    """Pieces of 1 MiB fill the device, every second goes::

    malloc   |x |x |x |x |   half is free, no 2 MiB in one      pool   |  |x |  |x |   every block is free

    """
    run = begin("ascend310b4")
    small, huge = acl.ACL_MEM_MALLOC_NORMAL_ONLY, acl.ACL_MEM_MALLOC_HUGE_ONLY
    ok(acl.rt.malloc(run.spec.memory.hbm_bytes - (64 << 20) - 32, huge))
    held = []
    while True:
        address, code = acl.rt.malloc((1 << 20) - 32, small)
        if code:
            break
        held.append(address)
    assert len(held) == 64
    for address in held[::2]:
        ok(acl.rt.free(address))
    free, _ = ok((acl.rt.get_mem_info(acl.ACL_HBM_MEM)[:2], 0))
    assert free == 32 << 20
    assert acl.rt.malloc(1 << 20, huge) == (None, codes.RT_MEMORY_ALLOCATION)
    assert "only 0 of them in frames" in acl.get_recent_err_msg()
    ok(acl.rt.malloc((2 << 20) - 32, acl.ACL_MEM_MALLOC_HUGE_FIRST))  # falls back to small pages
    for address in held[1::2]:
        ok(acl.rt.free(address))
    assert acl.rt.malloc(1 << 20, huge)[1] == acl.ACL_SUCCESS
    begin("ascend310b4")
    pool = ok(acl.create_mem_pool(62 << 20, 2 << 20))
    held = [ok(acl.malloc_from_mem_pool(pool, 1 << 20)) for _ in range(31)]
    for address in held[::2]:
        ok(acl.free_to_mem_pool(address))
    ok(acl.malloc_from_mem_pool(pool, 2 << 20))


# Graphs.


def small_graph() -> CommandGraph:
    """Three chains: copy in, kernel, copy out."""
    buffers, commands = [], []
    for i in range(3):
        buffers += [Buffer(name=f"x{i}", size_bytes=SIZE), Buffer(name=f"y{i}", size_bytes=SIZE)]
        kernel = Kernel(
            name="k", kernel_class=KernelClass.VECTOR, bytes_read=SIZE, bytes_written=SIZE, dtype="float16"
        )
        commands += [
            Command(
                name=f"in{i}", kind=CommandKind.COPY, copy=CopyKind.H2D, size_bytes=SIZE, writes=(f"x{i}",)
            ),
            Command(
                name=f"run{i}",
                kind=CommandKind.KERNEL,
                kernels=(kernel,),
                reads=(f"x{i}",),
                writes=(f"y{i}",),
            ),
            Command(
                name=f"out{i}", kind=CommandKind.COPY, copy=CopyKind.D2H, size_bytes=SIZE, reads=(f"y{i}",)
            ),
        ]
    return CommandGraph("small", tuple(commands), tuple(buffers))


def test_a_graph_becomes_tasks_on_streams_and_gives_its_memory_back() -> None:
    spent = {}
    for count in (1, 3):
        run = begin()
        streams = [ok(acl.rt.create_stream()) for _ in range(count)]
        whole = ok(acl.run_graph(small_graph(), "reference", streams))
        assert run.devices[0].used_bytes > 0
        ok(acl.synchronize_command(whole))
        tasks = [work.label for work in run.log if work.prefetch is None]
        assert sorted(tasks) == sorted(command.name for command in small_graph().commands)
        assert {work.stream for work in run.log if work.prefetch is None} == set(streams)
        ok(acl.destroy_command(whole))
        assert run.devices[0].used_bytes == 0
        assert acl.hazards() == []
        spent[count] = max(work.finish_ns for work in run.log)
    assert spent[3] < spent[1]


def test_weights_on_the_host_are_prefetched_by_the_scheduler() -> None:
    weight = Buffer(name="w", size_bytes=64 << 20, kind=BufferKind.MANAGED, level=Level.HOST)
    wait = Kernel(name="long", kernel_class=KernelClass.VECTOR, duration_ns=5_000_000)
    use = Kernel(name="use", kernel_class=KernelClass.VECTOR, bytes_read=64 << 20)
    graph = CommandGraph(
        "weights",
        (
            Command(name="long", kind=CommandKind.KERNEL, kernels=(wait,)),
            Command(name="use", kind=CommandKind.KERNEL, kernels=(use,), reads=("w",), after=("long",)),
        ),
        (weight,),
    )
    begin()
    whole = ok(acl.run_graph(graph))
    ok(acl.synchronize_command(whole))
    assert moves() == ["prefetch"]


# The timeline, and what a scheduler would make of it.


def three_rounds():
    """Work on two streams with the device idle in between, on the program's clock."""
    run = begin()
    one, other = (ok(acl.rt.create_stream()) for _ in range(2))
    memory, event = ok(acl.rt.malloc(64, 0)), ok(acl.rt.create_event_ex_with_flag(0))
    long = command("long", memory)
    for _ in range(3):
        ok(acl.submit_command(long, one))
        ok(acl.rt.record_event(event, one))
        ok(acl.rt.stream_wait_event(other, event))
        ok(acl.submit_command(long, other))
        ok(acl.rt.synchronize_stream(other))
        ok(acl.wait_until(run.clock_ns + 50_000))
    return run


@pytest.mark.parametrize(("least", "pieces"), [(1, 3), (1000, 1)])
def test_a_timeline_spans_all_that_the_device_did(monkeypatch, least: int, pieces: int) -> None:
    """Whether what the device did before it was idle was set aside or not."""
    monkeypatch.setattr(sys.modules["cann_env.acl.state.simulator"], "_EPOCH", least)
    run = three_rounds()
    assert len(run.schedules()) == pieces
    schedule = acl.timeline()
    assert [(row.start_ns, row.finish_ns) for row in schedule.commands] == [
        (work.start_ns, work.finish_ns) for work in run.log
    ]
    assert [row.stream for row in schedule.commands] == [0, 1] * 3
    assert {(wait.producer, wait.consumer) for wait in schedule.waits} >= {(0, 1), (2, 3), (4, 5)}
    assert sum(call.call == "issue" for call in schedule.host) == 6
    assert sum(call.end_ns - call.start_ns for call in schedule.host if call.call == "wait") > 500_000
    assert schedule.makespan_ns == run.log[-1].finish_ns


def test_a_prefetch_is_a_move_and_no_command() -> None:
    begin()
    memory = ok(acl.malloc_cached(SIZE))
    ok(acl.mem_prefetch_async(memory, SIZE, 0))
    ok(acl.submit_command(command("inc", memory)))
    ok(acl.rt.synchronize_stream(0))
    schedule = acl.timeline()
    assert len(schedule.commands) == 1
    assert [row.cause for row in schedule.transfers if row.cause == "prefetch"] == ["prefetch"]


def test_memory_that_arrives_last_is_in_the_timeline() -> None:
    run = begin()
    memory = ok(acl.malloc_cached(SIZE))
    ok(acl.submit_command(command("inc", memory)))
    ok(acl.mem_prefetch_async(memory, SIZE, acl.ACL_DEVICE_TO_HOST))
    ok(acl.rt.synchronize_stream(0))
    schedule = acl.timeline()
    (back,) = [row for row in schedule.transfers if row.cause == "writeback"]
    assert schedule.makespan_ns == back.finish_ns == run.log[-1].finish_ns > run.log[0].finish_ns
    assert schedule.graph.commands[schedule.commands[-1].command].name == "1:moved"


def test_a_trace_names_the_calls_of_the_program(tmp_path: Path) -> None:
    three_rounds()
    events = json.loads(acl.save_trace(tmp_path / "run.json").read_text("utf-8"))["traceEvents"]
    names = [event["name"] for event in events if event["ph"] == "X"]
    assert names.count("acl.submit_command") == 6
    assert names.count("rt.synchronize_stream") == 3
    assert sum(":long" in name for name in names) >= 6


def test_a_picture_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    three_rounds()
    assert acl.save_picture(tmp_path / "run.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("what", [acl.timeline, acl.improve])
def test_nothing_to_show_is_said(what) -> None:
    begin()
    with pytest.raises(InputError, match="device 0"):
        what()


def test_improvement_tells_the_written_order_from_the_host() -> None:
    """Two independent kernels of 100 us that were written on one stream, with a wait of the host between."""
    run = begin()
    for _ in range(2):
        ok(acl.submit_command(command("long", ok(acl.rt.malloc(64, 0)))))
        ok(acl.rt.synchronize_stream(0))
        ok(acl.wait_until(run.clock_ns + 1_000_000))
    found = acl.improve()
    assert 200_000 <= found.written_ns < 201_000
    assert found.ran_ns > 1_200_000
    assert 100_000 <= found.scheduled_ns < 101_000
    assert found.ratio == found.scheduled_ns / found.written_ns
    assert found.streams == 1
    assert str(found).count("\n") == 3
    assert "0.50" in str(found)


def test_improvement_leaves_out_what_the_host_touched() -> None:
    """Two kernels on one piece of managed memory, between which the host reads it."""
    begin()
    memory = ok(acl.malloc_cached(SIZE))
    for _ in range(2):
        ok(acl.submit_command(command("inc", memory)))
        ok(acl.rt.synchronize_stream(0))
        assert floats(memory)[0] > 0
    found = acl.improve()
    assert len(found.scheduled.graph.commands) == len(found.written.graph.commands) == 2
    assert found.scheduled_ns <= found.written_ns < found.ran_ns


def test_improvement_keeps_what_the_data_demand() -> None:
    three_rounds()
    found = acl.improve()
    assert found.scheduled_ns >= 600_000 - 1
    assert found.scheduled_ns <= found.written_ns


# The table.


def test_the_page_of_calls_is_up_to_date() -> None:
    """``python -m cann_env.acl.table > docs/acl_calls.md`` makes it so."""
    assert CALLS.read_text("utf-8") == page()


def test_every_call_has_a_name_a_sentence_and_its_differences_where_c_has_none() -> None:
    listed = [row for room in ("acl", "rt", "mdl", "op", "media", "prof", "util") for row in rows(room)]
    assert len(listed) > 350
    for row in listed:
        assert row.does.endswith("."), row
        assert row.c_name or row.differs or row.python.startswith("acl.util."), row
    named = {row.article for row in listed}
    assert named >= {
        "aclInit", "aclFinalize", "aclrtSetDevice", "aclrtResetDevice", "aclrtCreateCommand",
        "aclrtSetCommandArgs", "aclrtSubmitCommand", "aclrtSynchronizeCommand", "aclrtDestroyCommand",
        "aclrtCreateKernelDesc", "aclrtSetKernelDescAttr", "aclrtLoadKernel", "aclrtLaunchCallback",
        "aclrtMallocCached", "aclrtMemPrefetchAsync", "aclrtFreeCached", "aclrtCreateMemPool",
        "aclrtMallocFromMemPool", "aclrtFreeToMemPool", "aclrtDestroyMemPool", "aclrtCreateStream",
        "aclrtDestroyStream", "aclrtSynchronizeStream", "aclrtMemcpyAsync", "aclrtStreamWaitEvent",
        "aclrtRecordEvent", "aclmdlExecute",
    }  # fmt: skip


def test_public_functions_of_the_rooms_are_calls_or_known_helpers() -> None:
    """A call that lost its facts would be missing from the table."""
    for room in (acl.rt, acl.mdl, acl.op, acl.media, acl.prof, acl.util):
        for name, function in vars(room).items():
            own = getattr(function, "__module__", "").startswith("cann_env.acl")
            if callable(function) and own and hasattr(function, "__wrapped__"):
                assert facts_of(function) is not None, name


@pytest.mark.parametrize(
    ("room", "name", "real"),
    [
        ("rt", "create_event_ex_with_flag", "aclrtCreateEventExWithFlag"),
        ("mdl", "ri_capture_begin", "aclmdlRICaptureBegin"),
        ("mdl", "set_dynamic_hw_size", "aclmdlSetDynamicHWSize"),
        ("acl", "init", "aclInit"),
        ("media", "dvpp_set_pic_desc_width", "acldvppSetPicDescWidth"),
    ],
)
def test_names_in_c_follow_from_names_in_python(room: str, name: str, real: str) -> None:
    assert name_in_c(room, name) == real
