"""Products of matrices by their shape: read from tensors, timed by hand and by law, and run by the engine.

The toy device has two cube cores of 1 GHz that do one operation a nanosecond, so a tile of 128 x 128 and
depth d takes 32,768 d ns; loading and storing take next to nothing, a launch takes 10 ns and filling 7 ns.
A result of 300 x 128 has three tiles and takes two waves::

    core 0  | rows 1-128   | rows 257-300 and nothing |
    core 1  | rows 129-256 |
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from episodes import Host, times
from hypothesis import example, given, settings
from hypothesis import strategies as st
from toys import kernel_command, toy_device

from cann_env.device import device_names, load_device
from cann_env.device.attention import attention_flops
from cann_env.device.cost import Q20, cost_of, kernel_cost, minimum_kernel_ns
from cann_env.device.cost_cube import product_work
from cann_env.device.products import Form, matrix_of, product_of
from cann_env.device.spec import ProductSpec
from cann_env.graph import CommandGraph, Kernel, KernelClass, Operand
from cann_env.paths import config_folder
from cann_env.units import InputError

if TYPE_CHECKING:
    from pathlib import Path

    from cann_env.device.spec import DeviceSpec

FAST = 1_000_000.0
LAUNCH_NS, FILL_NS = 10, 7
TILE_NS = 2 * 128 * 128
SPEC = ProductSpec(
    load_bytes_per_cycle=FAST, read_bytes_per_cycle=FAST, store_bytes_per_cycle=FAST,
    unfold_bytes_per_cycle=FAST, turned=2.0, exposed=0.0, resident=1.0, convolution_efficiency=0.5,
    input_gradient_efficiency=0.25, filter_gradient_efficiency=0.125, fill_ns=FILL_NS,
)  # fmt: skip
ROOMY = {"l2_bytes": 1 << 40}
B4 = load_device("ascend910b4")
HOLDS = replace(B4, memory=replace(B4.memory, l2_bytes=1 << 50))


def toy(**fields: float) -> DeviceSpec:
    """The toy device, whose products go as given and whose L2 holds all operands."""
    return toy_device(classes={"cube": {"product": replace(SPEC, **fields)}}, memory=ROOMY)


def matmul(
    first: tuple[int, ...],
    second: tuple[int, ...],
    out: tuple[int, ...],
    *,
    blocks: int = 2,
    dtype: str = "float16",
    layout: str = "ND",
    op: str = "MatMulV3",
) -> Kernel:
    return Kernel(
        name=op, kernel_class=KernelClass.CUBE, blocks=blocks, dtype=dtype, op=op,
        inputs=(Operand(first, dtype, layout), Operand(second, dtype, layout)),
        outputs=(Operand(out, dtype, layout),),
    )  # fmt: skip


def plain(rows: int, depth: int, columns: int, *, blocks: int = 2, batch: int = 1) -> Kernel:
    return matmul(
        (batch, rows, depth), (batch, depth, columns), (batch, rows, columns), blocks=blocks, op="BatchMatMul"
    )


def alone_ns(device: DeviceSpec, kernel: Kernel) -> int:
    work_class = kernel.kernel_class.value
    return minimum_kernel_ns(device, work_class, cost_of(device, work_class, kernel), kernel.blocks)


# --- what the tensors say -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second", "out", "turned"),
    [
        ((5, 7), (7, 3), (5, 3), False),
        ((5, 7), (3, 7), (5, 3), False),
        ((7, 5), (7, 3), (5, 3), True),
        ((7, 5), (3, 7), (5, 3), True),
        ((7, 7), (7, 7), (7, 7), False),
    ],
)
def test_a_product_is_read_whichever_way_its_matrices_lie(
    first: tuple[int, int], second: tuple[int, int], out: tuple[int, int], turned: bool
) -> None:
    product = product_of(matmul(first, second, out))
    assert product is not None
    assert (product.rows, product.columns, product.turned) == (*out, turned)
    assert product.depth == 7


def test_blocked_matrices_are_as_long_as_their_blocks_and_never_turned() -> None:
    """FRACTAL_NZ (columns/16, rows/16, 16, 16): 32 x 48 times 48 x 64."""
    assert matrix_of(Operand((3, 2, 16, 16), "float16", "FRACTAL_NZ")) == (1, 32, 48)
    kernel = matmul((3, 2, 16, 16), (4, 3, 16, 16), (4, 2, 16, 16), layout="FRACTAL_NZ")
    turned = matmul((2, 3, 16, 16), (4, 3, 16, 16), (4, 2, 16, 16), layout="FRACTAL_NZ")
    unsaid = matmul((3, 2, 16, 16), (4, 3, 16, 16), (4, 2, 16, 16), layout="ND", op="MatMul")
    for one in map(product_of, (kernel, turned, unsaid)):
        assert one is not None
        assert (one.rows, one.depth, one.columns, one.turned) == (32, 48, 64, False)


def test_four_dimensions_of_a_batch_are_not_blocks() -> None:
    product = product_of(matmul((3, 2, 16, 16), (3, 2, 16, 16), (3, 2, 16, 16), op="BatchMatMulV2"))
    assert product is not None
    assert (product.batch, product.rows, product.depth, product.columns) == (6, 16, 16, 16)


def test_groups_share_the_rows_and_a_batch_repeats_them() -> None:
    grouped = product_of(matmul((100, 7), (4, 7, 3), (100, 3), op="GroupedMatmul"))
    batched = product_of(matmul((4, 100, 7), (4, 7, 3), (4, 100, 3), op="BatchMatMulV2"))
    assert grouped is not None
    assert batched is not None
    assert (grouped.batch, grouped.rows) == (4, 25)
    assert (batched.batch, batched.rows) == (4, 100)


def test_a_convolution_and_its_gradients_do_the_same_operations() -> None:
    """2 images of 5 x 5, 3 x 3 taps: 50 pixels, 9 taps of 8 channels (one block), 16 filters (one block)."""
    image = Operand((2, 1, 5, 5, 8), "float32", "NC1HWC0")
    weights = Operand((9, 1, 16, 8), "float32", "FRACTAL_Z")
    result = Operand((2, 2, 5, 5, 8), "float32", "NC1HWC0")
    sizes = Operand((4,), "int32", "NCHW")
    kernel = plain(1, 1, 1)
    shapes = {
        "Conv2D": ((image, weights), result, Form.CONVOLUTION, (50, 16, 72)),
        "Conv2DBackpropInput": ((sizes, weights, result), image, Form.INPUT_GRADIENT, (50, 72, 16)),
        "Conv2DBackpropFilter": ((image, sizes, result), weights, Form.FILTER_GRADIENT, (16, 72, 50)),
    }
    for op, (inputs, output, form, sides) in shapes.items():
        product = product_of(replace(kernel, op=op, inputs=inputs, outputs=(output,)))
        assert product is not None
        assert (product.form, (product.rows, product.columns, product.depth)) == (form, sides)


@pytest.mark.parametrize(
    ("layout", "shape"), [("NCHW", (16, 3, 3, 3)), ("HWCN", (3, 3, 3, 16)), ("NHWC", (16, 3, 3, 3))]
)
def test_channels_of_a_filter_are_padded_to_the_depth_of_the_cube(
    layout: str, shape: tuple[int, ...]
) -> None:
    image = Operand((2, 3, 5, 5), "float16", "NCHW")
    inputs = (image, Operand(shape, "float16", layout))
    kernel = replace(
        plain(1, 1, 1), op="Conv2D", inputs=inputs, outputs=(Operand((2, 16, 5, 5), "float16", "NCHW"),)
    )
    product = product_of(kernel)
    assert product is not None
    assert (product.depth, product.columns) == (9 * 16, 16)


@pytest.mark.parametrize(
    "kernel",
    [
        matmul((5, 7), (8, 3), (5, 3)),
        matmul((5, 7), (7, 3), (5, 4)),
        matmul((0, 7), (7, 3), (0, 3)),
        replace(plain(5, 7, 3), inputs=()),
        replace(plain(5, 7, 3), op="Add"),
        replace(plain(5, 7, 3), op="Conv2D"),
    ],
)
def test_what_does_not_fit_is_no_product_and_goes_by_its_bytes(kernel: Kernel) -> None:
    assert product_of(kernel) is None
    by_bytes = kernel_cost(toy(), "cube", flops=0, dtype="", size_bytes=0, blocks=2, duration_ns=None)
    assert cost_of(toy(), "cube", kernel) == by_bytes


# --- time by hand -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rows", "waves"), [(1, 1), (128, 1), (256, 1), (257, 2), (512, 2), (513, 3)])
def test_tiles_run_in_waves(rows: int, waves: int) -> None:
    """Depth 16 on two cores. A short last tile takes as long as a full one, a lone one has 16 rows."""
    tile = TILE_NS * 16 if rows > 1 else 2 * 16 * 128 * 16
    assert alone_ns(toy(), plain(rows, 16, 128)) == LAUNCH_NS + FILL_NS + waves * tile


def test_few_tiles_share_a_deep_product() -> None:
    """One tile of depth 1024 on two cores: each takes half of the depth, but not less than 512."""
    assert alone_ns(toy(), plain(128, 1024, 128)) == LAUNCH_NS + FILL_NS + TILE_NS * 512
    assert alone_ns(toy(), plain(128, 600, 128)) == LAUNCH_NS + FILL_NS + TILE_NS * 512


def test_the_slowest_path_binds_and_a_part_of_the_others_shows() -> None:
    """128 x 256, depth 16, one core: 32 ns to multiply, 12,288 bytes to load and read, 65,536 to store."""
    fast = {"cube": {"flops_per_cycle": {"float16": 32_768.0}}}
    kernel = plain(128, 16, 256, blocks=1)
    for slow, busy in ((16.0, 65_536 // 16), (1.0, 65_536)):
        spec = replace(
            SPEC,
            load_bytes_per_cycle=12.0,
            read_bytes_per_cycle=4.0,
            store_bytes_per_cycle=slow,
            resident=1e-9,
            exposed=0.1,
        )
        classes = {"cube": {**fast["cube"], "product": spec}}
        device = toy_device(classes=classes, memory=ROOMY)
        parts = [32, 1024, 3072, busy]
        exposed = (sum(parts) - max(parts)) // 10
        assert alone_ns(device, kernel) == LAUNCH_NS + FILL_NS + exposed + max(parts)


def test_a_turned_matrix_loads_its_rows_twice() -> None:
    """128 x 16 by 16 x 256: (128 + 256) x 32 bytes, turned (256 + 256) x 32, at one byte a nanosecond."""
    device = toy_device(
        classes={
            "cube": {
                "flops_per_cycle": {"float16": 1e9},
                "product": replace(SPEC, load_bytes_per_cycle=1.0),
            }
        },
        memory=ROOMY,
    )
    straight = alone_ns(device, matmul((128, 16), (16, 256), (128, 256), blocks=1))
    turned = alone_ns(device, matmul((16, 128), (16, 256), (128, 256), blocks=1))
    assert (straight, turned) == (LAUNCH_NS + FILL_NS + 384 * 32, LAUNCH_NS + FILL_NS + 512 * 32)


def test_convolutions_have_their_own_rates_and_type() -> None:
    image, result = (Operand((1, 1, 4, 4, 8), "float32", "NC1HWC0") for _ in range(2))
    weights, sizes = Operand((1, 1, 16, 8), "float32", "FRACTAL_Z"), Operand((4,), "int32")
    kernel = plain(1, 1, 1, blocks=1)
    rates = {"float32": 1.0, "hfloat32": 4.0}
    device = toy_device(classes={"cube": {"flops_per_cycle": rates, "product": SPEC}}, memory=ROOMY)
    one = replace(kernel, op="Conv2D", inputs=(image, weights), outputs=(result,))
    assert alone_ns(device, one) == LAUNCH_NS + FILL_NS + 2 * 16 * 16 * 8 // 2
    back = replace(kernel, op="Conv2DBackpropInput", inputs=(sizes, weights, result), outputs=(image,))
    # 16 pixels by 8 columns, which the cube pads to 16, by 16 filters.
    assert alone_ns(device, back) == LAUNCH_NS + FILL_NS + 2 * 16 * 16 * 16
    exact = toy_device(classes={"cube": {"flops_per_cycle": {"float32": 1.0}, "product": SPEC}}, memory=ROOMY)
    assert alone_ns(exact, one) == LAUNCH_NS + FILL_NS + 2 * 16 * 16 * 8 * 2


def test_an_unfolded_image_can_bind() -> None:
    """16 pixels of 8 taps of 4 bytes at one byte a nanosecond: 512 ns, more than 16 ns of arithmetic."""
    image = result = Operand((1, 1, 4, 4, 8), "float32", "NC1HWC0")
    weights = Operand((1, 1, 16, 8), "float32", "FRACTAL_Z")
    cube = {"flops_per_cycle": {"float32": 512.0}, "product": replace(SPEC, unfold_bytes_per_cycle=1.0)}
    kernel = replace(plain(1, 1, 1, blocks=1), op="Conv2D", inputs=(image, weights), outputs=(result,))
    assert alone_ns(toy_device(classes={"cube": cube}, memory=ROOMY), kernel) == LAUNCH_NS + FILL_NS + 512


def test_results_of_unknown_type_are_as_wide_as_the_operands() -> None:
    known = plain(300, 16, 300)
    unknown = replace(known, outputs=(Operand(known.outputs[0].shape),))
    device = toy(store_bytes_per_cycle=1e-3)
    assert alone_ns(device, unknown) == alone_ns(device, known) > 2 * 300 * 300 * 1000 // 2


# --- L2 -----------------------------------------------------------------------------------------------


def test_small_operands_are_found_in_l2_as_far_as_they_leave_room() -> None:
    """Operands that fill a quarter of L2 are found there as to 0.6 x 0.75; results beyond it wait for HBM."""
    kernel = plain(128, 16, 256, blocks=1)
    size = (128 + 256) * 32
    device = toy_device(
        classes={"cube": {"product": replace(SPEC, resident=0.6)}}, memory={"l2_bytes": 4 * size}
    )
    product = product_of(kernel)
    assert product is not None
    spilled = 128 * 256 * 2 - 4 * size
    work = product_work(device, kernel, product, 1, 2 * Q20)
    assert work.read_bytes == size - size * 45 // 100
    assert work.exposed_ns == FILL_NS + spilled // 2


def test_a_second_matrix_beyond_l2_is_read_again_for_each_block_of_rows_that_l2_holds() -> None:
    """128 rows of tiles, of which L2 holds 63: a second matrix one byte too large is read three times."""
    kernel = plain(128 * 128, 64, 32 * 256, blocks=20)
    product = product_of(kernel)
    assert product is not None
    second = 64 * 32 * 256 * 2
    fits, lacks = (
        product_work(
            replace(B4, memory=replace(B4.memory, l2_bytes=l2)), kernel, product, 20, 1 << 60
        ).read_bytes
        for l2 in (second, second - 1)
    )
    assert abs(lacks - fits - 2 * second) <= 2


def test_cores_that_drift_beyond_l2_lose_what_they_share() -> None:
    shallow, deep = plain(4096, 16_384, 1024, blocks=20), plain(4096, 151_936, 1024, blocks=20)
    read = {}
    for kernel in (shallow, deep):
        product = product_of(kernel)
        assert product is not None
        operands = 2 * product.depth * (product.rows + product.columns)
        read[product.depth] = product_work(B4, kernel, product, 20, 1 << 60).read_bytes / operands
    assert read[16_384] <= 1
    assert 3 < read[151_936] < 6


# --- laws ---------------------------------------------------------------------------------------------

SIDES = st.integers(1, 3000)


@settings(max_examples=60, deadline=None)
@given(
    st.tuples(SIDES, SIDES, SIDES), st.tuples(*[st.integers(0, 700)] * 3), st.integers(1, 20), st.booleans()
)
def test_more_work_is_never_cheaper_on_as_many_blocks(
    sides: tuple[int, int, int], more: tuple[int, int, int], blocks: int, small_l2: bool
) -> None:
    device = replace(B4, memory=replace(B4.memory, l2_bytes=1 << 20)) if small_l2 else B4
    larger = [side + extra for side, extra in zip(sides, more, strict=True)]
    assert alone_ns(device, plain(*sides, blocks=blocks)) <= alone_ns(device, plain(*larger, blocks=blocks))


@example(513, 57, 257, 5)
@settings(max_examples=40, deadline=None)
@given(SIDES, SIDES, SIDES, st.integers(1, 10))
def test_twice_the_batch_is_twice_the_work_where_waves_are_full(
    rows: int, depth: int, columns: int, batch: int
) -> None:
    """L2 holds all: what no longer fits costs more than its share."""
    device = replace(B4, memory=replace(B4.memory, l2_bytes=1 << 50))
    one, two = (plain(rows, depth, columns, blocks=20, batch=20 * 4 * times) for times in (batch, 2 * batch))
    busy = [cost_of(device, "cube", kernel).compute_ns for kernel in (one, two)]
    assert abs(busy[1] - 2 * busy[0]) <= 2


@settings(max_examples=25, deadline=None)
@given(SIDES, SIDES, SIDES, st.integers(1, 19))
def test_one_more_core_costs_its_launch_at_most_where_l2_holds_all(
    rows: int, depth: int, columns: int, blocks: int
) -> None:
    few, more = (alone_ns(HOLDS, plain(rows, depth, columns, blocks=n)) for n in (blocks, blocks + 1))
    assert more <= few + B4.classes["cube"].launch_per_block_ns


@pytest.mark.parametrize("name", device_names())
def test_every_shipped_device_prices_products_below_its_peak(name: str) -> None:
    device = load_device(name)
    assert device.classes["cube"].product is not None
    cores = device.pools["aic"]
    kernel = plain(4096, 4096, 4096, blocks=cores)
    peak = cores * device.classes["cube"].flops_per_cycle["float16"] * device.clock_hz / 1e9
    assert 0.2 < 2 * 4096**3 / peak / alone_ns(device, kernel) < 1


# --- what stays as it was -----------------------------------------------------------------------------


def test_a_measured_duration_comes_before_the_shape() -> None:
    assert alone_ns(B4, replace(plain(4096, 4096, 4096, blocks=20), duration_ns=1234)) == 1234


def test_without_an_operator_operations_and_bytes_count_as_before() -> None:
    kernel = replace(plain(64, 64, 64), op="", flops=1000, bytes_read=500, bytes_written=100)
    before = kernel_cost(B4, "cube", flops=1000, dtype="float16", size_bytes=600, blocks=2, duration_ns=None)
    assert cost_of(B4, "cube", kernel) == before


def test_a_device_that_says_nothing_of_products_goes_by_operations() -> None:
    kernel = replace(plain(64, 64, 64), flops=1000)
    before = kernel_cost(
        toy_device(), "cube", flops=1000, dtype="float16", size_bytes=0, blocks=2, duration_ns=None
    )
    assert cost_of(toy_device(), "cube", kernel) == before


def test_the_engine_takes_as_long_alone_as_the_model_says() -> None:
    device = toy(exposed=0.1, read_bytes_per_cycle=1.0, resident=0.5)
    kernel = plain(300, 16, 300)
    schedule = Host(CommandGraph("one", (kernel_command("a", kernel),)), device).issue("a").schedule()
    assert times(schedule) == {"a": (0, alone_ns(device, kernel))}


def test_written_bytes_load_hbm_but_do_not_prolong_the_kernel() -> None:
    kernel = plain(4096, 1024, 1024, blocks=20)
    cost = cost_of(B4, "cube", kernel)
    product = product_of(kernel)
    assert product is not None
    read = product_work(B4, kernel, product, 20, 1 << 60).read_bytes
    assert cost.bytes_q20 * 20 >= (read + 4096 * 1024 * 2) * Q20
    assert alone_ns(B4, kernel) == cost.launch_ns + cost.compute_ns


# --- attention ----------------------------------------------------------------------------------------


def attention(*, mask: tuple[int, ...] = (), op: str = "FlashAttentionScore", keys: int = 4096) -> Kernel:
    """4096 rows, 16 heads of 128, keys and values of 8 heads, laid out (rows, batch, width)."""
    query, key = Operand((4096, 1, 2048), "bfloat16"), Operand((keys, 1, 1024), "bfloat16")
    masks = (Operand(mask, "bool"),) if mask else ()
    statistics = Operand((1, 16, 4096, 8), "float32")
    return Kernel(
        name=op, kernel_class=KernelClass.MIX, blocks=20, op=op, dtype="bfloat16",
        inputs=(query, key, key, *masks), outputs=(statistics, statistics, query),
    )  # fmt: skip


def test_attention_counts_two_products_and_its_gradient_five() -> None:
    whole = 4 * 16 * 4096 * 4096 * 128
    assert attention_flops(attention()) == whole
    assert attention_flops(attention(mask=(2048, 2048))) == whole // 2
    assert attention_flops(attention(mask=(4096, 4096))) == whole
    assert attention_flops(attention(mask=(2048, 2048), op="FlashAttentionScoreGrad")) == whole * 5 // 4
    assert attention_flops(attention(keys=8192)) == 2 * whole
    assert attention_flops(attention(mask=(2048, 2048), keys=8192)) == 2 * whole * 3 // 4


def test_attention_reads_heads_from_queries_of_four_dimensions() -> None:
    query = Operand((2, 8, 512, 64), "float16")
    kernel = replace(attention(), inputs=(query, query, query), outputs=(query,))
    assert attention_flops(kernel) == 4 * 2 * 8 * 512 * 512 * 64
    assert attention_flops(replace(kernel, op="Softmax")) == 0


@pytest.mark.parametrize("keys", [2048, 4096])
@pytest.mark.parametrize(
    ("query", "key"),
    [
        ((2, 16, 4096, 128), (2, 8, 0, 128)),
        ((2, 4096, 16, 128), (2, 0, 8, 128)),
        ((2, 4096, 2048), (2, 0, 1024)),
        ((4096, 2, 2048), (0, 2, 1024)),
    ],
    ids=["BNSD", "BSND", "BSH", "SBH"],
)
def test_attention_of_every_layout_is_the_same_work(
    query: tuple[int, ...], key: tuple[int, ...], keys: int
) -> None:
    """Nothing but queries, keys (the 0 stands for their rows) and values is known, as in inference."""
    queries, tensor = Operand(query, "float16"), Operand(tuple(size or keys for size in key), "float16")
    kernel = replace(attention(op="PromptFlashAttention"), inputs=(queries, tensor, tensor), outputs=())
    assert attention_flops(kernel) == 4 * 2 * 16 * 4096 * keys * 128
    masked = replace(kernel, inputs=(*kernel.inputs, Operand((2048, 2048), "bool")))
    # Half of the last rows' own keys: of 4096 rows, or of the 2048 that see any.
    assert attention_flops(masked) == attention_flops(kernel) // 2


def test_attention_of_unknown_layout_has_no_operations() -> None:
    flat = Operand((4096, 2048), "float16")
    assert attention_flops(replace(attention(), inputs=(flat, flat, flat), outputs=())) == 0


def test_attention_takes_its_operations_at_the_rate_of_mix_kernels() -> None:
    kernel = attention(mask=(2048, 2048))
    flops = attention_flops(kernel)
    expected = kernel_cost(
        B4, "mix", flops=flops, dtype="bfloat16", size_bytes=0, blocks=20, duration_ns=None
    )
    assert cost_of(B4, "mix", kernel) == expected


# --- faults -------------------------------------------------------------------------------------------


def test_a_type_without_a_rate_is_refused() -> None:
    kernel = matmul((5, 7), (7, 3), (5, 3), dtype="float64")
    with pytest.raises(InputError, match=r"class 'cube' of ascend910b4 has no rate for dtype 'float64'"):
        cost_of(B4, "cube", kernel)


def test_a_file_says_all_of_products_or_nothing(tmp_path: Path) -> None:
    load_path = tmp_path / "half.toml"
    leaf = '{ value = 1, unit = "B/cycle", source = "assumed", note = "test" }'
    base = _without_products()
    text = base.replace(
        "[classes.vector]", f"[classes.cube.product]\nload_bytes_per_cycle = {leaf}\n\n[classes.vector]", 1
    )
    load_path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=r"classes\.cube\.product\.read_bytes_per_cycle: is missing, but"):
        load_device(load_path)
    load_path.write_text(base, encoding="utf-8")
    assert load_device(load_path).classes["cube"].product is None


def _without_products() -> str:
    """The file of the 910B4 without what it says of products."""
    lines = (config_folder("devices") / "ascend910b4.toml").read_text(encoding="utf-8").splitlines()
    start = lines.index("[classes.cube.product]")
    end = lines.index("", start)
    return "\n".join(lines[:start] + lines[end:])


@pytest.mark.parametrize(
    ("key", "value", "unit", "words"),
    [("turned", 0.5, "times", "one or more"), ("exposed", 2, "fraction", r"in \(0, 1\]")],
)
def test_constants_out_of_range_are_refused(
    tmp_path: Path, key: str, value: float, unit: str, words: str
) -> None:
    path = tmp_path / "odd.toml"
    leaf = f'{{ value = {value}, unit = "{unit}", source = "assumed", note = "test" }}'
    path.write_text(f'extends = "ascend910b4"\nclasses.cube.product.{key} = {leaf}\n', encoding="utf-8")
    with pytest.raises(InputError, match=words):
        load_device(path)
