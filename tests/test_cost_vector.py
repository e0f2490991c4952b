"""Vector work on tensors: what is counted, by hand; how long it takes, by hand and by law; what L2 holds.

The toy device has four vector cores of 1 GHz with ports of 2 B/ns each way and an HBM of 4 B/ns, of which all
is reached one way and half when as much is written as read. Nothing stays in L2, a launch takes 10 ns, a
further phase 5 ns and a row asked for alone 3 ns of a core.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from episodes import Host, times
from hypothesis import given, settings
from hypothesis import strategies as st
from toys import kernel_command, toy_device

from cann_env.device import device_names, load_device
from cann_env.device.cost import Q20, cores_of_class, cost_of, is_streamed, minimum_kernel_ns
from cann_env.device.cost_vector import (
    VectorModel,
    alone_ns,
    body_ns,
    fixed_ns,
    hbm_bytes,
    hbm_ns,
    port_ns,
    priced,
    vector_model,
)
from cann_env.device.families import FAMILIES
from cann_env.device.products import operand_bytes
from cann_env.device.spec import StreamingSpec
from cann_env.device.work import VectorWork, family_of, likely_blocks, work_of
from cann_env.graph import Buffer, CommandGraph, Kernel, KernelClass, Operand
from cann_env.units import InputError

if TYPE_CHECKING:
    from pathlib import Path

SPEC = StreamingSpec(
    port_bytes_per_cycle=2.0, mixed_efficiency=0.5, one_way=1.0, written=1.0, held=1.0, arithmetic=1.0,
    launch_ns=10, phase_ns=5, fill_ns=0, request_ns=3,
)  # fmt: skip
TOY = toy_device(classes={"vector": {"streaming": SPEC}})
SHIPPED = {name: load_device(name) for name in ("ascend910a", "ascend910b4", "ascend310p3")}


def toy_model(**fields: float) -> VectorModel:
    model = vector_model(TOY)
    assert model is not None
    return replace(model, **fields)


def model_of(name: str) -> VectorModel:
    model = vector_model(SHIPPED[name])
    assert model is not None
    return model


def tensor(*shape: int, dtype: str = "float16", layout: str = "ND") -> Operand:
    return Operand(shape, dtype, layout)


def kernel(
    op: str,
    inputs: tuple[Operand, ...],
    outputs: tuple[Operand, ...],
    blocks: int = 4,
    kernel_class: KernelClass = KernelClass.VECTOR,
) -> Kernel:
    return Kernel(
        name=op, kernel_class=kernel_class, blocks=blocks, op=op, inputs=inputs, outputs=outputs,
        bytes_read=sum(map(operand_bytes, inputs)), bytes_written=sum(map(operand_bytes, outputs)),
    )  # fmt: skip


# --- what is counted ----------------------------------------------------------------------------------


def counted(op: str, *tensors: tuple[Operand, ...]) -> tuple[int, int, int, int]:
    work = work_of(kernel(op, tensors[0], tensors[1]))
    return work.read_bytes, work.written_bytes, work.fetched_bytes, work.requests


def test_elements_by_type() -> None:
    sizes = [operand_bytes(tensor(6, dtype=dtype)) for dtype in ("float32", "bfloat16", "int64", "bool", "")]
    assert sizes == [24, 12, 48, 6, 6]
    assert operand_bytes(tensor()) == 2
    assert operand_bytes(tensor(0)) == 0


def test_an_addition_reads_all_and_an_unknown_operator_is_like_it() -> None:
    """A row of 4 float16 is added to each of 3: 24 + 8 bytes in, 24 out; 0.06 cycles an element."""
    both = (tensor(3, 4), tensor(4)), (tensor(3, 4),)
    assert counted("Add", *both) == counted("NeverHeardOf", *both) == (32, 24, 32, 0)
    assert work_of(kernel("Add", *both)).cycles == pytest.approx(0.06 * 12)


def test_what_only_writes() -> None:
    """Zeros like 8 elements are not read; a table's clearing lists what it clears as an input."""
    assert counted("ZerosLike", (tensor(8),), (tensor(8),)) == (0, 16, 0, 0)
    assert counted("AtomicAddrClean", (tensor(8),), ()) == (0, 16, 0, 0)


def test_a_slice_reads_what_it_writes_but_memory_moves_bursts() -> None:
    """100 rows of 64 float16 (128 bytes) out of rows of 512 (1 KiB): memory moves 512 bytes for each.

    From rows of 100 elements (200 bytes) it cannot be more than the whole tensor of 20000 bytes, and a slice
    of whole rows is one piece.
    """
    target = (tensor(100, 64),)
    assert counted("Slice", (tensor(100, 512),), target) == (12800, 12800, 51200, 0)
    assert counted("Slice", (tensor(100, 100),), target) == (12800, 12800, 20000, 0)
    assert counted("StridedSlice", (tensor(300, 64),), target) == (12800, 12800, 12800, 0)


def test_a_gather_reads_rows_and_not_the_table() -> None:
    """10 of 50000 rows of 1 KiB with 10 indices of 8 bytes; rows of 4 bytes move 512 each."""
    indices = tensor(10, dtype="int64")
    wide = (tensor(50000, 512), indices), (tensor(10, 512),)
    assert counted("GatherV2", *wide) == (10240 + 80, 10240, 10240 + 80, 10)
    narrow = (tensor(50000, 2), indices), (tensor(10, 2),)
    assert counted("GatherV2", *narrow) == (40 + 80, 40, 5120 + 80, 10)


def test_a_scatter_adds_rows_that_it_reads_too() -> None:
    """10 rows of 1 KiB are read, with their indices, and added to 10 rows of an output of any size."""
    parts = (tensor(10, 512), tensor(10, dtype="int32")), (tensor(50000, 512),)
    assert counted("UnsortedSegmentSum", *parts) == (10240 + 40 + 10240, 10240, 10280 + 10240, 10)


def test_optimisers_write_back_what_they_do_not_list() -> None:
    """Parameter and two moments of 8 float32 each come back; the gradient and the step do not."""
    state = tuple(tensor(8, dtype="float32") for _ in range(4))
    assert counted("ApplyAdamWV2", (*state, tensor(1, dtype="int64")), ()) == (136, 96, 136, 0)
    assert counted("ApplyAdamW", state, state[:3]) == (128, 96, 128, 0)


def test_a_cast_to_its_own_type_is_a_gap_in_the_table() -> None:
    """Outputs without types are given those of inputs, which a Cast cannot mean: it takes the other width."""
    for dtype, written in (("float32", 16), ("float16", 32)):
        source = tensor(8, dtype=dtype)
        assert counted("Cast", (source,), (source,))[1] == written
    assert counted("Cast", (tensor(8, dtype="int64"),), (tensor(8, dtype="int32"),))[1] == 32


def test_joining_short_rows_costs_cycles() -> None:
    """Two tensors of 100 rows of 16 bytes side by side: 200 rows at 2 cycles; one behind the other: none."""
    halves = (tensor(100, 8), tensor(100, 8))
    assert work_of(kernel("ConcatD", halves, (tensor(100, 16),))).cycles == 400
    assert work_of(kernel("ConcatD", halves, (tensor(200, 8),))).cycles == 0
    assert work_of(kernel("SplitD", (tensor(100, 16),), halves)).cycles == 400


def test_layouts_of_weights_are_slow_to_change() -> None:
    plain, padded = tensor(64, 3, 11, 11, layout="NCHW"), tensor(121, 4, 16, 8, layout="FRACTAL_Z")
    images = tensor(121, 4, 16, 8, layout="NC1HWC0")
    slow, fast = (work_of(kernel("TransData", (plain,), (to,))).cycles for to in (padded, images))
    assert slow - fast == 4.0 * 64 * 3 * 11 * 11


def test_without_tensors_bytes_count() -> None:
    bare = Kernel(name="k", kernel_class=KernelClass.VECTOR, op="MemSet", bytes_read=5, bytes_written=7)
    assert work_of(bare) == VectorWork(5, 7, 5, 0.0, 0, 1)


def test_families_are_in_range() -> None:
    assert all(f.cycles >= 0 and f.phases >= 1 and f.row_cycles >= 0 for f in FAMILIES.values())
    assert family_of("Softmax").cycles > family_of("Add").cycles
    assert family_of("") is family_of("NeverHeardOf")


# --- by hand ------------------------------------------------------------------------------------------


def test_time_by_hand() -> None:
    """600 bytes are read and 200 written by 3 cores in two phases.

    Ports: 600 B / (3 x 2 B/ns) = 100 ns. HBM: mixed to 4 x 600 x 200 / 800**2 = 0.75, so it reaches
    1 - 0.5 x 0.75 = 0.625 of 4 B/ns: 800 / 2.5 = 320 ns. Together (100**4 + 320**4)**(1/4) = 320.76. Launch
    and second phase: 15. If 300 of the 600 are found, 300 and 200: mixed to 0.96, 0.52 x 4 B/ns, 240.38 ns,
    together 242.16.
    """
    model, work = toy_model(), VectorWork(600, 200, 600, 0.0, 0, 2)
    assert fixed_ns(model, work, 3) == 15
    assert hbm_ns(model, *hbm_bytes(model, work)) == pytest.approx(320)
    assert alone_ns(model, work, 3) == 336
    assert alone_ns(model, work, 3, 300) == 258
    assert alone_ns(model, work, 3, 600) == alone_ns(model, work, 3, 10**9)


def test_one_way_is_faster() -> None:
    """800 bytes one way: 200 ns; 400 each way: 400 ns."""
    model = toy_model()
    assert [hbm_ns(model, *way) for way in ((800, 0), (0, 800), (400, 400), (0, 0))] == [200, 200, 400, 0]


def test_what_is_written_stays_as_far_as_it_fits() -> None:
    """A quarter of what is written goes to HBM, or all but the 100 bytes that L2 can hold."""
    model = toy_model(written=0.25, l2_bytes=100.0)
    assert [hbm_bytes(model, VectorWork(0, n))[1] for n in (40, 120, 400)] == [10, 30, 300]


def test_ports_read_from_hbm_and_from_l2() -> None:
    """600 bytes read by 2 cores at 2 B/ns each take 150 ns, 100 if 300 of them come from L2 at 6 B/ns.

    Writing 800 bytes takes the ports 200 ns, beside which reading does not show.
    """
    model = toy_model(l2_rate=6.0)
    assert [port_ns(model, VectorWork(600, n), 2, found) for n, found in ((0, 0), (0, 300), (800, 0))] == [
        pytest.approx(150),
        pytest.approx(100),
        pytest.approx(200),
    ]


def test_arithmetic_and_requests() -> None:
    """No bytes: 800 cycles on 4 cores are 200 ns, 40 requests of 3 ns 30 more; 8 blocks are no more cores."""
    model, work = toy_model(), VectorWork(0, 0, 0, 800.0, 40)
    assert [alone_ns(model, work, blocks) for blocks in (1, 4, 8)] == [10 + 920, 10 + 230, 10 + 230]
    assert alone_ns(replace(model, arithmetic=2.0), work, 4) == 10 + 130


def test_a_pipeline_fills() -> None:
    """A fill of 30 ns at most: 230 ns of work take 230 x 30 / 260 = 26.5 longer, nothing no longer."""
    model = toy_model(fill_ns=30.0)
    assert body_ns(model, VectorWork(0, 0, 0, 920.0), 4, 0, 0.0) == pytest.approx(230 + 6900 / 260)
    assert body_ns(model, VectorWork(0, 0), 4, 0, 0.0) == 0


# --- in the engine's terms ----------------------------------------------------------------------------

COUNTS = st.integers(0, 1 << 33)
WORKS = st.builds(
    VectorWork,
    read_bytes=COUNTS,
    written_bytes=COUNTS,
    cycles=st.floats(0, 1e9),
    requests=st.integers(0, 10**6),
    phases=st.integers(1, 12),
).map(lambda work: replace(work, fetched_bytes=work.read_bytes))


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(SHIPPED)), WORKS, st.integers(1, 300), st.integers(1, 8))
def test_the_engine_finds_the_time_again(name: str, work: VectorWork, blocks: int, waves: int) -> None:
    """Launch and waves of blocks make up the time, no byte is invented, and L2 leaves less to do."""
    model, link = model_of(name), 1000 * Q20
    parts = priced(model, work, blocks, waves, link)
    whole = alone_ns(model, work, blocks)
    wave = max(parts.compute_ns, -(-parts.bytes_q20 // parts.rate_q20))
    assert whole <= parts.launch_ns + waves * wave <= whole + waves
    assert parts.bytes_q20 * blocks <= (work.fetched_bytes + work.written_bytes) * Q20
    assert parts.bytes_q20 * blocks <= whole * link
    assert parts.launch_ns + waves * parts.compute_ns <= whole + waves


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(sorted(SHIPPED)),
    st.integers(1, 1 << 26),
    st.integers(1, 96),
    st.sampled_from(("Add", "Softmax", "ZerosLike", "GatherV2", "Transpose")),
)
def test_alone_a_kernel_lasts_what_the_model_says(name: str, elements: int, blocks: int, op: str) -> None:
    device = SHIPPED[name]
    shape = tensor(elements)
    work = kernel(op, (shape,), (shape,), blocks)
    classes = [c for c in ("vector", "mix") if cores_of_class(device, c)]
    for work_class in classes:
        found = minimum_kernel_ns(device, work_class, cost_of(device, work_class, work), blocks)
        expected = alone_ns(model_of(name), work_of(work), blocks)
        assert expected <= found <= expected + -(-blocks // cores_of_class(device, work_class))


def test_the_engine_runs_it() -> None:
    """One kernel in the engine: it starts at once and ends after its time."""
    added = kernel("Add", (tensor(100), tensor(100)), (tensor(100),))
    schedule = Host(CommandGraph("one", (kernel_command("a", added),)), TOY).issue("a").schedule()
    assert times(schedule) == {"a": (0, alone_ns(toy_model(), work_of(added), 4))}


def test_the_engine_reads_from_l2_what_was_written() -> None:
    """An L2 of 4 KiB at 16 B/ns holds the 400 bytes that "a" makes and "b" reads.

    Alone and with nothing found, "b" of 4 blocks loads 400 bytes one way in 100 ns; its ports need 50,
    together 101.5, and with 3 ns of arithmetic 101.6. Found, a block's 100 bytes come at 16 / 4 B/ns in
    25 ns, which makes 25.2 with the arithmetic.
    """
    made, summed = tensor(200), kernel("Add", (tensor(200),), ())
    cached = replace(TOY, memory=replace(TOY.memory, l2_bytes=4096, l2_bandwidth_bytes_per_s=16 * 10**9))
    graph = CommandGraph(
        "l2",
        (
            kernel_command("a", kernel("Fill", (), (made,)), writes=("x",)),
            kernel_command("b", summed, reads=("x",)),
        ),
        (Buffer(name="x", size_bytes=400),),
    )
    spans = [times(Host(graph, device).issue("a").issue("b").schedule())["b"] for device in (TOY, cached)]
    cold, warm = (finish - start for start, finish in spans)
    assert cold == alone_ns(toy_model(), work_of(summed), 4) == 10 + 102
    assert warm == 10 + 26


def test_measured_times_and_other_paths_stay_as_they_were() -> None:
    """A duration replaces the model; without operator, tensors or table the roofline of the class decides."""
    added = kernel("Add", (tensor(100), tensor(100)), (tensor(100),))
    measured = cost_of(TOY, "vector", replace(added, duration_ns=77))
    assert minimum_kernel_ns(TOY, "vector", measured, 4) == 77
    plain = toy_device()
    roofline = cost_of(plain, "vector", added)
    assert roofline == cost_of(TOY, "vector", replace(added, op="")) == cost_of(plain, "vector", added)
    assert roofline != cost_of(TOY, "vector", added)
    assert vector_model(plain) is None


# --- laws ---------------------------------------------------------------------------------------------


@settings(max_examples=80, deadline=None)
@given(st.sampled_from(sorted(SHIPPED)), WORKS, st.integers(1, 96), COUNTS, st.sampled_from((1.0, 1.5, 4.0)))
def test_more_is_never_faster(
    name: str, work: VectorWork, blocks: int, found: int, times_more: float
) -> None:
    """More of everything takes longer, L2 never does, nothing beats launch or the ports, phases only add."""
    model = model_of(name)
    took = alone_ns(model, work, blocks)
    more = replace(
        work,
        read_bytes=int(work.read_bytes * times_more),
        fetched_bytes=int(work.fetched_bytes * times_more),
        written_bytes=int(work.written_bytes * times_more),
        cycles=work.cycles * times_more,
    )
    assert alone_ns(model, more, blocks) >= took
    assert alone_ns(model, work, blocks, work.read_bytes) <= took
    ports = work.written_bytes / (min(blocks, model.cores) * model.port_rate)
    assert took >= max(model.launch_ns, ports)
    assert alone_ns(model, replace(work, phases=work.phases + 1), blocks) >= took


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from((*FAMILIES, "NeverHeardOf")),
    st.lists(st.lists(st.integers(0, 70), max_size=4), max_size=4),
    st.lists(st.lists(st.integers(0, 70), max_size=4), max_size=3),
    st.sampled_from(("float16", "int64", "bool", "")),
)
def test_any_operator_takes_any_tensors(
    op: str, reads: list[list[int]], writes: list[list[int]], dtype: str
) -> None:
    """Recordings leave tensors out, and write scalars and empty ones: whatever they say has a price."""
    work = work_of(
        kernel(op, *(tuple(tensor(*shape, dtype=dtype) for shape in side) for side in (reads, writes)))
    )
    assert work.fetched_bytes >= 0
    assert min(work.read_bytes, work.written_bytes, work.cycles, work.requests) >= 0
    assert alone_ns(model_of("ascend910b4"), work, 4) >= model_of("ascend910b4").launch_ns


@pytest.mark.parametrize("name", device_names())
def test_every_device_says_where_its_figures_come_from(name: str) -> None:
    """A chip without recordings has only assumed ones."""
    device = load_device(name)
    kinds = {s.kind for path, s in device.sources.items() if path.startswith("classes.vector.streaming.")}
    assert vector_model(device) is not None
    assert device.calibrated or kinds <= {"assumed", "documented"}


def test_an_incomplete_table_is_refused(tmp_path: Path) -> None:
    """A file that gives one figure of a table has to give them all; here the base has none to inherit."""
    text = tmp_path / "part.toml"
    leaf = '{ value = 2, unit = "us", source = "assumed", note = "a test" }'
    text.write_text(f'extends = "ascend910b4"\nclasses.vector.streaming.fill = {leaf}\n', encoding="utf-8")
    assert load_device(text).classes["vector"].streaming is not None
    text.write_text(
        f'extends = "ascend910b4"\nclasses.vector.streaming.one_way = {leaf.replace("us", "fraction")}\n',
        encoding="utf-8",
    )
    with pytest.raises(InputError, match=r"one_way: has value 2; write a number in \(0, 1\]"):
        load_device(text)


def test_who_is_priced_as_vector_work() -> None:
    """A core that holds both units does; a cube core alone does not, and no product, whatever its class."""
    add = kernel("Add", (tensor(8),), (tensor(8),))
    product = kernel("MatMulV2", (tensor(8, 8), tensor(8, 8)), (tensor(8, 8),))
    both, split = SHIPPED["ascend910a"], SHIPPED["ascend910b4"]
    assert [is_streamed(device, "cube", add) for device in (both, split)] == [True, False]
    assert not any(is_streamed(both, c, product) for c in ("cube", "vector", "mix"))
    assert not is_streamed(both, "vector", replace(add, duration_ns=1))
    assert not is_streamed(toy_device(), "vector", add)


def test_blocks_that_are_not_recorded() -> None:
    """One a KiB of what is read or written, whichever is more, up to all cores."""
    sizes = (1, 512, 1024, 5 * 512, 1 << 20)
    kernels = [kernel("Relu", (tensor(n),), (tensor(n),)) for n in sizes]
    assert [likely_blocks(one, 4) for one in kernels] == [1, 1, 2, 4, 4]
