"""The cost model: by hand on the toy device, by law on a shipped one, and against recorded kernels."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from toys import toy_device

from cann_env.device import load_device
from cann_env.device.cost import (
    Q20,
    KernelCost,
    cores_of_class,
    kernel_cost,
    link_rate_q20,
    minimum_kernel_ns,
)
from cann_env.device.keys import DTYPES
from cann_env.device.spec import CLASSES
from cann_env.units import InputError

DEVICE = load_device("ascend910b2")


def test_cost_of_a_toy_kernel_by_hand() -> None:
    """The toy: 1 operation and 2 bytes a cycle of 1 ns, launch 10 ns, four vector cores, HBM 4 B/ns.

    1000 operations and 600 bytes in 6 blocks: a block has ceil(166.7) = 167 ns of arithmetic and 100 bytes
    (50 ns); two waves: 10 + 2 x 167 = 344 ns. With 4000 bytes a block has 667 bytes, 334 ns at its port, so
    the cores need 10 + 2 x 334 = 678 ns, but HBM needs 6 x 667 / 4 = 1000.5, so 1001 ns.
    """
    toy = toy_device()
    cost = kernel_cost(toy, "vector", flops=1000, dtype="float16", size_bytes=600, blocks=6, duration_ns=None)
    assert cost == KernelCost(launch_ns=10, compute_ns=167, bytes_q20=100 * Q20, rate_q20=2 * Q20)
    assert minimum_kernel_ns(toy, "vector", cost, 6) == 344
    cost = kernel_cost(toy, "vector", flops=0, dtype="float16", size_bytes=4000, blocks=6, duration_ns=None)
    assert (cost.compute_ns, cost.bytes_q20) == (0, 667 * Q20)
    assert minimum_kernel_ns(toy, "vector", cost, 6) == 1001


def test_launch_counts_the_blocks_of_the_first_wave() -> None:
    """Two cube cores at 3 ns a block: one block 10 + 3, two 10 + 6, and five still 10 + 6."""
    toy = toy_device(classes={"cube": {"launch_per_block_ns": 3}})
    launch = [
        kernel_cost(toy, "cube", flops=0, dtype="", size_bytes=0, blocks=n, duration_ns=None).launch_ns
        for n in (1, 2, 5)
    ]
    assert launch == [13, 16, 16]


def test_efficiency_and_clock_are_exact_decimals() -> None:
    """0.7 of 1 operation a cycle at 10 GHz is 7 a nanosecond: 7000 operations take 1000 ns, not 1001."""
    toy = toy_device(clock_hz=10**10, classes={"cube": {"compute_efficiency": 0.7}})
    cost = kernel_cost(toy, "cube", flops=7000, dtype="float16", size_bytes=0, blocks=1, duration_ns=None)
    assert cost.compute_ns == 1000


def test_transfers_pay_their_link_once() -> None:
    """64 bytes at 1 B/ns behind 5 ns of latency: 69 ns."""
    toy = toy_device()
    cost = kernel_cost(toy, "h2d", flops=0, dtype="", size_bytes=64, blocks=1, duration_ns=None)
    assert cost == KernelCost(5, 0, 64 * Q20, Q20)
    assert minimum_kernel_ns(toy, "h2d", cost, 1) == 69


def test_link_rates() -> None:
    """1.6 TB/s at 0.75 is 1200 B/ns; 25.7 GB/s at 0.891 is 22.8987 B/ns: 24,011,027.25 rounded down."""
    device = load_device("ascend910b2")
    assert link_rate_q20(device, "hbm") == 1200 * Q20
    assert link_rate_q20(device, "h2d") == 24_011_027
    with pytest.raises(
        InputError, match="link 'pcie' of ascend910b2 is not known; write one of hbm, h2d, d2h, die"
    ):
        link_rate_q20(device, "pcie")


@settings(max_examples=50, deadline=None)
@given(
    st.sampled_from(("cube", "vector", "mix", "aicpu")),
    st.integers(1, 300),
    st.integers(0, 10**9),
    st.integers(0, 2**41),
)
@example("vector", 48, 1000, 2**40)
@example("cube", 1, 1000, 2**40)
def test_a_measured_duration_is_reproduced_alone(
    work_class: str, blocks: int, duration_ns: int, size_bytes: int
) -> None:
    """No launch on top, and no bytes that stretch it: at most a nanosecond a wave from rounding up."""
    cost = kernel_cost(
        DEVICE,
        work_class,
        flops=10**12,
        dtype="",
        size_bytes=size_bytes,
        blocks=blocks,
        duration_ns=duration_ns,
    )
    waves = -(-blocks // cores_of_class(DEVICE, work_class))
    assert cost.launch_ns == 0
    assert cost.bytes_q20 <= cost.compute_ns * cost.rate_q20
    assert duration_ns <= minimum_kernel_ns(DEVICE, work_class, cost, blocks) <= duration_ns + waves - 1


@settings(max_examples=50, deadline=None)
@given(
    st.sampled_from(("cube", "vector", "mix", "aicpu")),
    st.integers(1, 300),
    st.integers(0, 10**15),
    st.integers(0, 2**36),
    st.integers(2, 9),
)
def test_more_work_never_costs_less(
    work_class: str, blocks: int, flops: int, size_bytes: int, factor: int
) -> None:
    def least(flops: int, size_bytes: int) -> int:
        cost = kernel_cost(
            DEVICE,
            work_class,
            flops=flops,
            dtype="float16",
            size_bytes=size_bytes,
            blocks=blocks,
            duration_ns=None,
        )
        assert 0 <= max(cost.launch_ns, cost.compute_ns, cost.bytes_q20, cost.rate_q20) < 2**63
        return minimum_kernel_ns(DEVICE, work_class, cost, blocks)

    assert least(flops, size_bytes) <= least(factor * flops, size_bytes)
    assert least(flops, size_bytes) <= least(flops, factor * size_bytes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"work_class": "tensor"}, "class 'tensor' of ascend910a is not known; write one of cube, vector"),
        (
            {"dtype": "bfloat16"},
            "class 'cube' of ascend910a has no rate for dtype 'bfloat16'; it has: float16, ",
        ),
        ({"work_class": "h2d"}, "class 'h2d' of ascend910a has no rate for dtype 'float16'; it has: none"),
        ({"flops": -1}, "has flops -1; it is at least 0"),
        ({"size_bytes": -1}, "has size_bytes -1; it is at least 0"),
        ({"blocks": 0}, "has blocks 0; it is at least 1"),
        ({"duration_ns": -1}, "has duration_ns -1; it is at least 0"),
        ({"flops": 10**40}, "has too many operations"),
        ({"size_bytes": 2**50}, "moves too many bytes"),
        ({"duration_ns": 2**62}, "lasts too long"),
    ],
)
def test_work_that_cannot_be_costed(changes: dict[str, object], message: str) -> None:
    work: dict[str, object] = {
        "work_class": "cube",
        "flops": 1,
        "dtype": "float16",
        "size_bytes": 1,
        "blocks": 1,
    }
    work |= {"duration_ns": None, **changes}
    with pytest.raises(InputError, match=message):
        kernel_cost(load_device("ascend910a"), **work)  # type: ignore[arg-type]


def test_a_class_without_cores_says_so() -> None:
    toy = toy_device(classes={"mix": {"demand": {}}})
    assert cores_of_class(toy, "mix") == 0
    with pytest.raises(InputError, match="toy cannot run class 'mix'"):
        kernel_cost(toy, "mix", flops=0, dtype="", size_bytes=0, blocks=1, duration_ns=None)
    with pytest.raises(InputError, match="toy cannot run class 'mix'"):
        minimum_kernel_ns(toy, "mix", KernelCost(0, 0, 0, 1), 1)


@pytest.mark.parametrize("dtype", DTYPES)
def test_some_core_of_910b_computes_every_dtype(dtype: str) -> None:
    classes = load_device("ascend910b2").classes
    assert any(dtype in classes[name].flops_per_cycle for name in CLASSES)


def _matmul_us(name: str, m: int, k: int, n: int, dtype: str) -> float:
    device = load_device(name)
    blocks = device.pools["aic"]
    size_bytes = 2 * (m * k + k * n + m * n)
    cost = kernel_cost(
        device,
        "cube",
        flops=2 * m * k * n,
        dtype=dtype,
        size_bytes=size_bytes,
        blocks=blocks,
        duration_ns=None,
    )
    return minimum_kernel_ns(device, "cube", cost, blocks) / 1000


@pytest.mark.parametrize(
    ("name", "shape", "dtype", "recorded_us", "within"),
    [
        ("ascend910b1", (4096, 12288, 4608), "float16", 1475, 0.15),
        ("ascend910b1", (4096, 1536, 12288), "float16", 496, 0.15),
        ("ascend910b4", (4096, 1024, 6144), "bfloat16", 238, 0.35),
        ("ascend910b4", (4096, 3072, 1024), "bfloat16", 131, 0.25),
        ("ascend910a", (16000, 2496, 1024), "float16", 453, 0.15),
    ],
)
def test_matmul_agrees_with_recorded_runs(
    name: str, shape: tuple[int, int, int], dtype: str, recorded_us: float, within: float
) -> None:
    """The recorded 910B4 ran at 1650 MHz, 10 % above the clock in its file, which widens its margin."""
    assert _matmul_us(name, *shape, dtype) == pytest.approx(recorded_us, rel=within)


def test_small_vector_kernel_agrees_with_recorded_runs() -> None:
    """One block and 1 kB: 1.4 us, the median of such kernels on 910B2."""
    cost = kernel_cost(
        DEVICE, "vector", flops=512, dtype="float16", size_bytes=1024, blocks=1, duration_ns=None
    )
    assert minimum_kernel_ns(DEVICE, "vector", cost, 1) == pytest.approx(1400, rel=0.1)


def test_streaming_agrees_with_recorded_runs() -> None:
    """ZerosLike and Add over a gigabyte run at 1.2 to 1.3 TB/s on 910B1."""
    device = load_device("ascend910b1")
    size = 3 * 544_404_480
    cost = kernel_cost(
        device, "vector", flops=size // 6, dtype="float16", size_bytes=size, blocks=48, duration_ns=None
    )
    assert size / minimum_kernel_ns(device, "vector", cost, 48) == pytest.approx(1280, rel=0.02)


def test_copy_to_the_device_agrees_with_recorded_runs() -> None:
    """19,267,584 bytes to 910B2 took 841 us (median of 12 runs)."""
    cost = kernel_cost(DEVICE, "h2d", flops=0, dtype="", size_bytes=19_267_584, blocks=1, duration_ns=None)
    assert minimum_kernel_ns(DEVICE, "h2d", cost, 1) == pytest.approx(841_000, rel=0.02)
