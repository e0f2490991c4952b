"""Lower bounds: each term against a sum done by hand, and never above a schedule that is possible."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hand_made import SOUND
from hypothesis import given, settings
from hypothesis import strategies as st
from toys import (
    callback,
    collective,
    copy_in,
    copy_inside,
    copy_out,
    cube,
    kernel_command,
    managed,
    mix,
    toy_chain,
    toy_device,
    toy_diamond,
    toy_kernel,
    toy_pipeline,
    toy_squeeze,
    vector,
)

from cann_env.graph import Buffer, Command, CommandGraph, KernelClass, Level, Scheme
from cann_env.options import Allocator, RunOptions, Submission
from cann_env.solvers.bounds import Bounds, lower_bounds
from cann_env.units import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from cann_env.schedule import Schedule

EAGER = RunOptions(submission=Submission.EAGER)


def bounds(*commands: Command, options: RunOptions | None = None, **device: object) -> Bounds:
    graph = CommandGraph("bounded", commands)
    return lower_bounds(graph, toy_device(**device), options or RunOptions())


def test_chain_is_bounded_by_its_path() -> None:
    """Three times 110 ns; the dispatch gap does not count."""
    found = lower_bounds(toy_chain(3), toy_device(), RunOptions())
    assert (found.critical_path_ns, found.lower_bound_ns, found.binding) == (330, 330, "critical path")


def test_diamond_is_bounded_by_its_longer_branch() -> None:
    """a 110, c 210, d 110; the area is 500 ns of work without launch on four cores."""
    found = lower_bounds(toy_diamond(), toy_device(), RunOptions())
    assert (found.critical_path_ns, found.area_ns["aiv"]) == (430, 125)


def test_waves_count_in_the_path_and_blocks_in_the_area() -> None:
    """Five blocks of 100 on two cores: 10 + 3 * 100 alone, 500 / 2 as area."""
    found = bounds(cube("a", blocks=5))
    assert (found.critical_path_ns, found.area_ns["aic"]) == (310, 250)


def test_many_small_kernels_are_bounded_by_area() -> None:
    """Nine cube blocks of 100: 900 ns on two cores, 110 ns each."""
    found = bounds(*(cube(f"k{i}") for i in range(9)))
    assert (found.critical_path_ns, found.lower_bound_ns, found.binding) == (110, 450, "aic")


def test_mix_blocks_load_both_pools() -> None:
    """Three mix blocks and a vector block: 3 of 2 aic, 3*2 + 1 of 4 aiv."""
    found = bounds(mix("a", blocks=3), vector("b"))
    assert (found.area_ns["aic"], found.area_ns["aiv"]) == (150, 175)


def test_a_kernel_with_a_choice_counts_its_better_class_and_no_area() -> None:
    """Four blocks: two waves as cube, one wave as vector, which is its fallback."""
    kernel = toy_kernel("cube", 100, blocks=4, fallback=KernelClass.VECTOR)
    found = bounds(kernel_command("a", kernel))
    assert (found.critical_path_ns, found.area_ns["aic"], found.area_ns["aiv"]) == (110, 0, 0)


def test_a_choice_the_device_or_the_batch_scheme_rules_out_is_none() -> None:
    """Without aiv, or with three blocks to start at once on two aic, one class is left."""
    kernel = toy_kernel("vector", 100, blocks=2, fallback=KernelClass.CUBE)
    assert bounds(kernel_command("a", kernel), pools={"aiv": 0}).area_ns["aic"] == 100
    batch = toy_kernel("cube", 100, blocks=3, fallback=KernelClass.VECTOR, scheme=Scheme.BATCH)
    assert bounds(kernel_command("a", batch)).area_ns["aiv"] == 75


def test_kernels_of_a_command_add_up() -> None:
    found = bounds(kernel_command("a", toy_kernel("vector", 100), toy_kernel("cube", 50)))
    assert found.critical_path_ns == 110 + 60


def test_nothing_starts_before_its_release() -> None:
    """a is known at 500 ns; b, which needs a, at 550 ns."""
    found = bounds(vector("a", release_ns=500), vector("b", after=("a",), release_ns=550))
    assert found.critical_path_ns == 500 + 110 + 110


def test_fixed_durations_count_as_path_and_area() -> None:
    found = bounds(callback("a", 50), callback("b", 60), collective("c", 70))
    assert (found.critical_path_ns, found.area_ns["callback"], found.area_ns["hcom"]) == (70, 110, 70)
    assert found.binding == "callback"


def test_bytes_count_on_their_links() -> None:
    """In 64 and 32 at 1 a ns, out 64, inside 64 both read and written at 4 a ns; a kernel's 128 at 4."""
    found = bounds(
        copy_in("a", 64),
        copy_in("b", 32),
        copy_out("c", 64),
        copy_inside("d", 64),
        kernel_command("e", toy_kernel("vector", 0, blocks=2, size_bytes=128)),
    )
    assert found.link_ns == {"hbm": (2 * 64 + 128) // 4, "h2d": 96, "d2h": 64, "die": 0}
    assert found.critical_path_ns == 69


def test_copies_load_a_shared_hbm_too() -> None:
    """On one DRAM of 1 byte a ns, 64 bytes in and 64 out take 128 ns."""
    shared = {"shares_hbm": True}
    links = {"h2d": shared, "d2h": shared, "hbm": {"bandwidth_bytes_per_s": 10**9}}
    found = bounds(copy_in("a"), copy_out("b"), links=links)
    assert (found.link_ns["hbm"], found.link_ns["h2d"], found.binding) == (128, 64, "link hbm")


def test_cold_buffers_cross_the_link_once() -> None:
    """w is used twice, v once, u never, x is there: 128 + 64 bytes; 100 bytes take two units of 64."""
    graph = CommandGraph(
        "cold",
        (
            vector("a", reads=("w", "x")),
            vector("b", reads=("w",), after=("a",)),
            vector("c", reads=("v",), after=("b",)),
        ),
        (managed("w", 100), managed("v"), managed("u"), managed("x", level=Level.HBM)),
    )
    found = lower_bounds(graph, toy_device(), RunOptions())
    assert found.link_ns["h2d"] == 192
    assert found.critical_path_ns == 5 + 128 + 3 * 110  # a waits for w; what b and c need may come meanwhile


def test_squeeze_is_bounded_by_its_first_weight_and_its_path() -> None:
    found = lower_bounds(toy_squeeze(3), toy_device(), RunOptions())
    assert (found.critical_path_ns, found.link_ns["h2d"], found.lower_bound_ns) == (69 + 330, 192, 399)


def test_host_calls_count_in_eager_mode() -> None:
    """Per batch two copies of 4 ns, a kernel of 5, two pool buffers of 1 + 1; k0 and its like cannot lead."""
    graph = toy_pipeline(30, block_ns=0)
    found = lower_bounds(graph, toy_device(), EAGER)
    assert found.host_ns == 30 * (4 + 5 + 4 + 2 * 2)
    assert found.critical_path_ns == (4 + 2) + 69 + 10 + 69
    slow = lower_bounds(graph, toy_device(), replace(EAGER, allocator=Allocator.MALLOC))
    assert slow.host_ns == 30 * (4 + 5 + 4 + 2 * 30)
    assert lower_bounds(graph, toy_device(), RunOptions()).host_ns == 0


def test_a_bound_is_at_least_one() -> None:
    """A kernel that takes no time at all."""
    found = bounds(vector("a", 0), classes={"vector": {"launch_base_ns": 0}})
    assert (found.critical_path_ns, found.lower_bound_ns) == (0, 1)


def test_a_resident_or_rewritten_buffer_is_allocated_once_or_never() -> None:
    """x is written twice and allocated once, r is there from the start."""
    graph = CommandGraph(
        "again",
        (vector("a", writes=("x", "r")), vector("b", writes=("x",))),
        (Buffer(name="x", size_bytes=64), Buffer(name="r", size_bytes=64, level=Level.HBM)),
    )
    assert lower_bounds(graph, toy_device(), EAGER).host_ns == 2 * 5 + 2


def test_work_the_device_cannot_do_is_refused() -> None:
    with pytest.raises(InputError, match="cube"):
        bounds(cube("a"), classes={"cube": {"demand": {}}})


# --- laws ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", SOUND)
def test_no_sound_schedule_beats_the_bound(make: Callable[[], Schedule]) -> None:
    schedule = make()
    found = lower_bounds(schedule.graph, schedule.device, schedule.options)
    assert 1 <= found.lower_bound_ns <= schedule.makespan_ns


@st.composite
def graphs(draw: st.DrawFn) -> CommandGraph:
    count = draw(st.integers(1, 8))
    commands = []
    for i in range(count):
        after = tuple(f"k{j}" for j in range(i) if draw(st.booleans()))
        make = draw(st.sampled_from([vector, cube, mix]))
        commands.append(make(f"k{i}", draw(st.integers(0, 90)), blocks=draw(st.integers(1, 6)), after=after))
    return CommandGraph("random", tuple(commands))


@settings(max_examples=50)
@given(graphs(), st.integers(2, 5))
def test_path_and_area_scale_with_the_work(graph: CommandGraph, factor: int) -> None:
    """Without launch, ``factor`` times the operations make ``factor`` times the path."""
    device = toy_device(classes={name: {"launch_base_ns": 0} for name in ("vector", "cube", "mix")})
    kernels = [command.kernels[0] for command in graph.commands]
    scaled = [
        replace(command, kernels=(replace(kernel, flops=kernel.flops * factor),))
        for command, kernel in zip(graph.commands, kernels, strict=True)
    ]
    small = lower_bounds(graph, device, RunOptions())
    large = lower_bounds(CommandGraph("scaled", tuple(scaled)), device, RunOptions())
    assert large.critical_path_ns == factor * small.critical_path_ns
    for pool, area in small.area_ns.items():
        assert factor * (area - 1) < large.area_ns[pool] <= factor * area or area == large.area_ns[pool] == 0


@settings(max_examples=50)
@given(graphs())
def test_one_more_command_never_lowers_a_term(graph: CommandGraph) -> None:
    less = CommandGraph("less", graph.commands[:-1]) if len(graph.commands) > 1 else graph
    small, large = (lower_bounds(g, toy_device(), EAGER) for g in (less, graph))
    assert small.critical_path_ns <= large.critical_path_ns
    assert small.host_ns <= large.host_ns
    assert all(small.area_ns[pool] <= large.area_ns[pool] for pool in small.area_ns)
