"""Figures read off a schedule, against sums done by hand."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hand_made import (
    chain,
    copies,
    diamond,
    fallback,
    inside,
    mixed,
    one_mover,
    pair,
    pipeline,
    squeeze,
    waves,
)
from hand_made_cache import in_part, lifted, two_lifts
from hand_made_memory import (
    beside_weight,
    classes,
    half_remote,
    in_blocks,
    remote,
    spilled,
    tenants,
    two_saved,
    whole,
)
from hypothesis import given
from hypothesis import strategies as st
from toys import copy_in, cube, hand_schedule, toy_device, vector

from cann_env.graph import CommandGraph
from cann_env.metrics import metrics
from cann_env.options import RunOptions
from cann_env.schedule import FAR, Allocation, Schedule, Stall, TransferRun


def test_makespan_is_the_last_finish() -> None:
    """d, not the longer c, ends last: 430 ns."""
    assert diamond().makespan_ns == metrics(diamond()).makespan_ns == 430


def test_gap_is_over_the_bound() -> None:
    """332 ns against a bound of 166."""
    assert metrics(chain(lower_bound_ns=166)).gap == pytest.approx(1.0)
    assert metrics(chain(lower_bound_ns=332)).gap == 0.0


def test_utilisation_is_block_time_by_demand() -> None:
    """Five blocks on two cube cores: 2*110 + 2*100 + 1*100 of 2*310; no other pool works."""
    figures = metrics(waves())
    assert figures.utilisation["aic"] == pytest.approx(520 / 620)
    assert {pool for pool, share in figures.utilisation.items() if share} == {"aic"}
    assert figures.ai_core_busy == 1.0


def test_a_mix_block_counts_in_both_pools() -> None:
    """A vector block 0-110, a mix block 113-223: one of two aic for 110, 1 and then 2 of 4 aiv."""
    figures = metrics(mixed())
    assert figures.utilisation["aic"] == pytest.approx(110 / (2 * 223))
    assert figures.utilisation["aiv"] == pytest.approx((110 + 220) / (4 * 223))
    assert figures.ai_core_busy == pytest.approx(220 / 223)


def test_utilisation_follows_the_class_that_really_ran() -> None:
    """A cube kernel on two vector cores: none of the aic, two of four aiv."""
    figures = metrics(fallback())
    assert (figures.utilisation["aic"], figures.utilisation["aiv"]) == (0.0, 0.5)


def test_pools_that_the_device_lacks_are_idle() -> None:
    schedule = hand_schedule(
        CommandGraph("one", (vector("a"),)), [("a", 0, 0, 0, 110)], device=toy_device(pools={"aic": 0})
    )
    assert metrics(schedule).utilisation["aic"] == 0.0


def test_ai_core_is_busy_once_however_many_cores_work() -> None:
    """a and b side by side from 0 to 110 ns, then a hole, then c from 210 to 320."""
    graph = CommandGraph("hole", (vector("a"), cube("b"), vector("c")))
    runs = [("a", 0, 0, 0, 110), ("b", 1, 0, 0, 110), ("c", 0, 0, 210, 320)]
    assert metrics(hand_schedule(graph, runs)).ai_core_busy == pytest.approx(220 / 320)


def test_copies_beside_kernels_overlap() -> None:
    """::

    copies:  in0 0-69 | in1 70-139 |   | out0 179-248 |     | out1 290-359
    kernels:          | k0 69 ------ 179 | k1 180 --- 290 |

    Copies take 4*69 ns; 69 of in1 and 1 + 67 of out0 lie beside a kernel (179-180 is idle).
    """
    figures = metrics(pipeline())
    assert figures.copy_ns == 4 * 69
    assert figures.overlap_ns == 69 + 68
    assert figures.events == 4
    assert figures.streams == 3


def test_migrations_count_as_copies() -> None:
    """Three weights of 69 ns each; w1 and w2 arrive beside k0 and k1, an eviction moves nothing."""
    figures = metrics(squeeze())
    assert figures.copy_ns == 3 * 69
    assert figures.overlap_ns == 69 + 68
    assert figures.link_bytes == {"hbm": 0, "h2d": 3 * 64, "d2h": 0, "die": 0, "l2": 0}
    assert figures.peak_hbm_bytes == 128


def test_bytes_per_link() -> None:
    assert metrics(pipeline()).link_bytes == {"hbm": 0, "h2d": 128, "d2h": 128, "die": 0, "l2": 0}
    assert metrics(inside()).link_bytes["hbm"] == 2 * 64
    assert metrics(one_mover()).link_bytes["hbm"] == 64
    assert metrics(copies(links={"h2d": {"shares_hbm": True}})).link_bytes["hbm"] == 2 * 64


def test_latency_goes_from_the_first_release_to_the_last_finish() -> None:
    """Request r: 10 to 230 ns; request s: 50 to 110 ns."""
    graph = CommandGraph(
        "served",
        (
            vector("a", request="r", release_ns=10),
            vector("b", request="r", release_ns=20),
            copy_in("c", 55, request="s", release_ns=50),
        ),
    )
    runs = [("a", 0, 10, 10, 120), ("c", 1, 50, 50, 110), ("b", 0, 20, 121, 231)]
    figures = metrics(hand_schedule(graph, runs))
    assert figures.latency_ns == {"r": 221, "s": 60}
    assert figures.latency_mean_ns == pytest.approx(140.5)
    assert figures.latency_p90_ns == 221


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=30))
def test_nine_of_ten_requests_are_done_within_p90(durations: list[int]) -> None:
    """At least nine tenths lie at or below it, and it is the least latency of which that is true."""
    commands = tuple(copy_in(f"c{i}", ns, request=f"r{i}") for i, ns in enumerate(durations))
    runs = [(f"c{i}", i, 0, 0, ns) for i, ns in enumerate(durations)]
    p90 = metrics(hand_schedule(CommandGraph("many", commands), runs)).latency_p90_ns
    assert 10 * sum(ns <= p90 for ns in durations) >= 9 * len(durations)
    assert 10 * sum(ns < p90 for ns in durations) < 9 * len(durations)


def test_figures_are_ready_for_json() -> None:
    schedule = pair(stall=Stall(event=1, fault=2, slot=3, cores=4, dma=5, host=6))
    figures = metrics(schedule).as_dict()
    assert json.loads(json.dumps(figures)) == figures
    assert figures["stall_ns"] == {"event": 1, "fault": 2, "slot": 3, "cores": 4, "dma": 5, "host": 6}
    assert set(figures) == set(metrics(schedule).__dataclass_fields__)


def test_link_utilisation_counts_copies_and_migrations() -> None:
    """Each link's bytes over what it could carry: the toy's host link carries 1 byte a ns, its HBM 4."""
    figures = metrics(squeeze())
    assert figures.link_bytes["h2d"] == 3 * 64
    assert figures.link_utilisation["h2d"] == pytest.approx(3 * 64 / figures.makespan_ns)
    assert figures.link_utilisation["d2h"] == 0.0


# --- memory -------------------------------------------------------------------------------------------


def test_write_backs_cross_the_link_to_the_host() -> None:
    """64 bytes go and come back: 138 ns of copying."""
    figures = metrics(spilled())
    assert figures.writeback_bytes == figures.link_bytes["d2h"] == 64
    assert figures.link_bytes["h2d"] == 64
    assert figures.copy_ns == 138


def test_what_is_under_way_at_the_end_counts_until_then() -> None:
    """The last command ends at 110 ns; a write-back has been moving since 80 and another one waits::

    x:  a 0 ----------- 110 |
    y:           | 80 ---------> written back
    z:             waits ------> to be written back
    """
    schedule = two_saved()
    moving = TransferRun(0, "writeback", 80, 80, FAR)
    waiting = TransferRun(1, "writeback", 90, FAR, FAR)
    figures = metrics(replace(schedule, transfers=(moving, waiting)))
    assert (figures.copy_ns, figures.overlap_ns) == (30, 30)
    assert figures.writeback_bytes == sum(figures.link_bytes.values()) == 0


def test_hits_come_from_l2_and_lifts_read_hbm() -> None:
    """All 128 bytes, or half of them, of the one operand; what is lifted comes from HBM, the rest too."""
    all_hit, half = metrics(lifted()), metrics(in_part())
    assert (all_hit.l2_hit_bytes, all_hit.l2_hit_rate) == (128, 1.0)
    assert (all_hit.link_bytes["hbm"], all_hit.link_bytes["l2"]) == (128, 128)
    assert (half.l2_hit_bytes, half.l2_hit_rate) == (64, 0.5)
    assert (half.link_bytes["hbm"], half.link_bytes["l2"]) == (64 + 64, 64)
    assert half.link_utilisation["l2"] == pytest.approx(64 / (32 * 87))


def test_without_kernels_that_read_nothing_is_found() -> None:
    figures = metrics(pipeline())
    assert (figures.l2_hit_bytes, figures.l2_hit_rate) == (0, 0.0)
    assert metrics(two_lifts()).link_bytes["hbm"] == 2 * 128


def test_what_lies_on_another_die_crosses_both_links() -> None:
    """128 bytes, all or half of them from die 0; HBM of either die gives its part."""
    assert metrics(remote()).link_bytes == {"hbm": 128, "h2d": 0, "d2h": 0, "die": 128, "l2": 0}
    assert metrics(half_remote()).link_bytes == {"hbm": 128, "h2d": 0, "d2h": 0, "die": 64, "l2": 0}


def test_rounding_is_what_the_allocator_takes_beyond_the_buffers() -> None:
    """576 bytes in a class of 640, and in three blocks of 200; 40 bytes in 64."""
    assert metrics(classes()).rounding == pytest.approx(64 / 640)
    assert metrics(in_blocks()).rounding == pytest.approx(24 / 600)
    assert metrics(beside_weight()).rounding == pytest.approx(24 / 64)
    assert metrics(chain()).rounding == 0.0


def in_holes(*sizes: int, **options: int) -> Schedule:
    """Places in a row from 0 on; the odd ones are free again when the last one is placed, at the top."""
    names = [f"x{i}" for i in range(len(sizes))]
    commands = tuple(vector(f"k{i}", writes=(name,)) for i, name in enumerate(names))
    buffers = tuple(whole(name, size) for name, size in zip(names, sizes, strict=True))
    places, top = [], 0
    for i, size in enumerate(sizes):
        times = (500, 500, 900) if i == len(sizes) - 1 else (0, 0, 400 if i % 2 else 900)
        places.append(Allocation(i, i, top, size, *times))
        top += size
    runs = [(f"k{i}", i, 0, 0, 110) for i in range(len(sizes))]
    chosen = RunOptions(**options)
    return hand_schedule(
        CommandGraph("holes", commands, buffers), runs, allocations=tuple(places), options=chosen
    )


def test_fragmentation_is_the_free_part_that_is_too_small() -> None:
    """64 used, 64 free, 128 used, then 192 free: of 256 free bytes 64 are no good for 128."""
    assert metrics(in_holes(64, 64, 128, 128, hbm_bytes=448)).fragmentation == pytest.approx(64 / 256)
    assert metrics(in_holes(64, 64, 128, 64, hbm_bytes=448)).fragmentation == 0.0
    assert metrics(chain()).fragmentation == 0.0


@given(st.integers(2, 6), st.integers(0, 199))
def test_equal_blocks_have_no_fragmentation(count: int, rest: int) -> None:
    """Not even when the space has some bytes more than whole blocks."""
    sizes = [200] * count
    schedule = in_holes(*sizes, pool_block_bytes=200, pool_bytes=200 * count + rest)
    assert metrics(schedule).fragmentation == 0.0


def test_a_die_that_is_full_is_not_fragmented() -> None:
    assert metrics(tenants()).fragmentation == 0.0
