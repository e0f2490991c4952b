"""A program as a project: what each task holds and how long, by hand and by an account of the graph's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from cases import make_case
from hypothesis import given, settings
from hypothesis import strategies as st
from toys import (
    callback,
    class_of,
    collective,
    copy_in,
    copy_inside,
    copy_out,
    cube,
    kernel_command,
    mix,
    toy_device,
    toy_diamond,
    toy_kernel,
    vector,
)

from cann_env.graph import CommandGraph
from cann_env.options import RunOptions
from cann_env.program import compile_graph
from cann_env.tasks import FULL_RATE, Tasks, tasks_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from cann_env.device.spec import DeviceSpec
    from cann_env.graph import Command

SEEDS = st.integers(0, 2**32 - 1)


def seen(*commands: Command, device: DeviceSpec | None = None, **options: int) -> Tasks:
    program = compile_graph(
        CommandGraph("seen", commands), device or toy_device(), RunOptions(**{"streams": 4, **options})
    )
    return tasks_of(program)


def held(tasks: Tasks, task: int = 0) -> dict[str, int]:
    """What a task holds, by name; a slot goes without saying."""
    row = dict(zip(tasks.resources, tasks.demand[task].tolist(), strict=True))
    assert row.pop("slots") == 1
    return {name: units for name, units in row.items() if units}


# --- by hand ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "duration_ns", "demand"),
    [
        (vector("a", blocks=3), 110, {"aiv": 3}),
        (cube("a", blocks=5), 310, {"aic": 2}),  # three waves on both cores
        (mix("a", blocks=2), 110, {"aic": 2, "aiv": 4}),
        (mix("a", blocks=7), 410, {"aic": 2, "aiv": 4}),
        (copy_in("a", 64), 69, {"h2d": 1}),
        (copy_out("a", 64), 69, {"d2h": 1}),
        (callback("a"), 50, {"callback": 1}),
        (collective("a"), 50, {"hcom": 1}),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_a_command_holds_what_its_blocks_hold(
    command: Command, duration_ns: int, demand: dict[str, int]
) -> None:
    tasks = seen(command)
    assert tasks.duration_ns.tolist() == [duration_ns]
    assert held(tasks) == demand


def test_of_several_kernels_the_largest_demands_count() -> None:
    """Two vector blocks for 110 ns, then one cube block for 60: they are not told apart."""
    kernels = (toy_kernel("vector", 100, blocks=2), toy_kernel("cube", 50))
    tasks = seen(kernel_command("a", *kernels), kernel_command("b", *reversed(kernels)), vector("c"))
    assert tasks.duration_ns.tolist() == [170, 170, 110]
    assert [held(tasks, task) for task in range(3)] == [{"aic": 1, "aiv": 2}] * 2 + [{"aiv": 1}]


@pytest.mark.parametrize(
    ("block_ns", "size_bytes", "duration_ns", "share"),
    [
        (90, 0, 100, 0),
        (90, 100, 100, 250),  # 100 bytes in 100 ns, of 4 a nanosecond
        (90, 180, 100, 450),  # as long for its bytes as for its operations
        (0, 400, 210, 476),  # one core moves 2 bytes a nanosecond, after the launch
    ],
)
def test_a_task_holds_its_part_of_the_bandwidth(
    block_ns: int, size_bytes: int, duration_ns: int, share: int
) -> None:
    tasks = seen(kernel_command("a", toy_kernel("vector", block_ns, size_bytes=size_bytes)))
    assert tasks.duration_ns.tolist() == [duration_ns]
    assert held(tasks).get("hbm", 0) == share
    assert FULL_RATE == 1000


def test_nobody_holds_more_than_all_of_the_bandwidth() -> None:
    """Four cores could move 8 bytes a nanosecond, HBM moves 4: 400 bytes take 100 ns of all of it."""
    tasks = seen(kernel_command("a", toy_kernel("vector", 0, blocks=4, size_bytes=400)))
    assert held(tasks) == {"aiv": 4, "hbm": 1000}


def test_a_copy_within_hbm_reads_and_writes_it() -> None:
    """Its 64 bytes count twice: more than HBM moves in the least time that such a copy could take."""
    assert held(seen(copy_inside("a", 64))) == {"sdma": 1, "hbm": 1000}


def test_capacities_are_those_of_all_dies_together() -> None:
    for dies in (1, 2):
        tasks = seen(vector("a"), device=toy_device(dies=dies))
        assert dict(zip(tasks.resources, tasks.capacity.tolist(), strict=True)) == {
            "aic": 2 * dies,
            "aiv": 4 * dies,
            "aicpu": dies,
            "h2d": dies,
            "d2h": dies,
            "sdma": dies,
            "callback": dies,
            "hcom": dies,
            "hbm": 1000 * dies,
            "slots": 4,
        }


@pytest.mark.parametrize(("streams", "most", "slots"), [(4, 8, 4), (8, 3, 3), (1, 8, 1)])
def test_slots_are_streams_whose_head_may_be_active(streams: int, most: int, slots: int) -> None:
    device = toy_device(limits={"max_concurrent_streams": most})
    tasks = seen(vector("a"), device=device, streams=streams)
    assert (tasks.resources[-1], int(tasks.capacity[-1])) == ("slots", slots)


def test_a_diamond_is_a_diamond() -> None:
    """a 110, then b 110 and c 210, then d 110; by tail a, c, b, d."""
    tasks = tasks_of(compile_graph(toy_diamond(), toy_device(), RunOptions()))
    assert [tasks.predecessors(task) for task in range(4)] == [[], [0], [0], [1, 2]]
    assert [tasks.successors(task) for task in range(4)] == [[1, 2], [3], [3], []]
    assert tasks.tail_ns.tolist() == [430, 220, 320, 110]
    assert tasks.rank.tolist() == [0, 2, 1, 3]


# --- laws ---------------------------------------------------------------------------------------------


def edges_are_those_of_the_graph(seed: int) -> None:
    """In both directions."""
    case = make_case(seed)
    graph, tasks = case.program.graph, tasks_of(case.program)
    for task in range(len(graph.commands)):
        assert sorted(tasks.predecessors(task)) == sorted(graph.predecessors[task])
        assert sorted(tasks.successors(task)) == sorted(graph.successors[task])
    assert tasks.pred_at[-1] == len(tasks.pred)
    assert tasks.succ_at[-1] == len(tasks.succ)


def demand_is_that_of_the_blocks(seed: int) -> None:
    """Of the device's table or of the kernel's own, as many blocks as fit on a die at once."""
    case = make_case(seed, own=True)
    device, tasks = case.program.device, tasks_of(case.program)
    for task, command in enumerate(case.program.graph.commands):
        expected: dict[str, int] = {}
        for i in range(max(1, len(command.kernels))):
            blocks, own = 1, ()
            if command.kernels:
                blocks, own = command.kernels[i].blocks, command.kernels[i].demand
            units = dict(own or ()) or device.classes[class_of(command, i)].demand
            at_once = min(blocks, *(device.pools[pool] // count for pool, count in units.items()))
            for pool, count in units.items():
                expected[pool] = max(expected.get(pool, 0), count * at_once)
        found = held(tasks, task)
        found.pop("hbm", None)
        assert found == expected, command.name
    assert (tasks.demand <= tasks.capacity).all()


def tails_are_paths_and_ranks_their_order(seed: int) -> None:
    case = make_case(seed)
    tasks = tasks_of(case.program)
    commands = case.program.graph.commands
    count = len(commands)
    assert tasks.release_ns.tolist() == [command.release_ns for command in commands]
    assert (tasks.duration_ns >= 1).all()
    for task in range(count):
        after = [int(tasks.tail_ns[other]) for other in tasks.successors(task)]
        assert tasks.tail_ns[task] == tasks.duration_ns[task] + max(after, default=0)
    expected = sorted(range(count), key=lambda task: (-int(tasks.tail_ns[task]), task))
    assert [int(tasks.rank[task]) for task in expected] == list(range(count))


def looking_changes_nothing(seed: int) -> None:
    """Arrays are copies: whoever writes to them leaves the program alone."""
    case = make_case(seed)
    before = case.program.image.copy()
    tasks = tasks_of(case.program)
    for name in ("duration_ns", "tail_ns", "release_ns", "capacity", "demand", "pred", "succ", "rank"):
        array = getattr(tasks, name)
        array += 1
    assert (case.program.image == before).all()


LAWS = (
    edges_are_those_of_the_graph,
    demand_is_that_of_the_blocks,
    tails_are_paths_and_ranks_their_order,
    looking_changes_nothing,
)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
@settings(max_examples=30, deadline=None, derandomize=True, database=None)
@given(seed=SEEDS)
def test_law(law: Callable[[int], None], seed: int) -> None:
    law(seed)
