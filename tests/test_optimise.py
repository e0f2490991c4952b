"""From a recording to a better schedule: what is promised, what stands in the way, what a plan holds."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from recordings import PEER, recorded, task, tensor
from toys import copy_in, toy_device, vector

from cann_env.commands import KernelClass
from cann_env.device import load_device
from cann_env.graph import CommandGraph
from cann_env.options import RunOptions, Submission
from cann_env.program import compile_graph
from cann_env.replay import limits
from cann_env.replay.limits import longest_chain, shares_of
from cann_env.replay.optimise import RECORDED, Asked, Optimised, graph_to_schedule, only_tasks, optimise
from cann_env.replay.plan_file import play_plan, read_plan, write_plan
from cann_env.schedulers import run_scheduler
from cann_env.workloads.from_profiler import Dependencies, Durations, Role, from_profiler

if TYPE_CHECKING:
    from pathlib import Path

    from cann_env.profiles.recording import Recording
    from cann_env.schedule import Schedule

DEVICE = load_device("ascend910b2")
GAP = DEVICE.dispatch.gap_ns
CHIP = {"chip": "Ascend910B2"}
SWIFT = ("reference",)
INFERRED = Asked(schedulers=SWIFT, dependencies=Dependencies.INFERRED)


@pytest.fixture(scope="module", autouse=True)
def compiled() -> None:
    """Load the compiled engine once, so that no single test pays for it."""
    optimise(independent(), DEVICE, INFERRED)


def independent(first_us: float = 100, idle_us: float = 0.02, second_us: float = 100) -> Recording:
    """Two kernels on one stream that share no tensor.

    ::

        2  |a 100 us|b 100 us|
           0       100.02
    """
    one = {"inputs": (tensor(8),), "outputs": (tensor(16),), "op": "Add"}
    two = {"inputs": (tensor(9),), "outputs": (tensor(17),), "op": "Mul"}
    return recorded(task("a", 2, 0, first_us, **one), task("b", 2, first_us + idle_us, second_us, **two))


def test_recorded_order_keeps_all_and_promises_nothing() -> None:
    found = optimise(independent(), DEVICE, Asked(schedulers=SWIFT))
    assert found.replay.schedule.makespan_ns == 200_000 + GAP
    assert found.baseline is found.replay.schedule
    assert [attempt.scheduler for attempt in found.attempts] == [RECORDED, "reference"]
    assert (found.gain_ns, found.promised) == (0, False)
    assert found.best.scheduler == RECORDED
    assert not any(attempt.violations for attempt in found.attempts)


def test_inferred_dependencies_let_what_shares_no_tensor_run_at_once() -> None:
    """Both take a core each: 100 us in place of 200.02 us, and the simulator is off by nothing here."""
    found = optimise(independent(), DEVICE, INFERRED)
    assert found.best.scheduler == "reference"
    assert found.best.schedule.makespan_ns == 100_000
    assert found.gain_ns == found.baseline.makespan_ns - 100_000 == 100_000 + GAP
    assert found.error_ns <= 1
    assert found.promised


def test_a_gain_within_the_error_is_not_promised() -> None:
    """4 us of idle time that the replay does not have make it 4 us too short; 1 us is gained."""
    found = optimise(independent(1, 4, 1), DEVICE, INFERRED)
    assert found.replay.comparison.recorded_ns == 6_000
    assert found.error_ns == 6_000 - (2_000 + GAP)
    assert found.gain_ns == 1_000 + GAP
    assert not found.promised


def test_the_gain_is_never_taken_from_the_recorded_makespan() -> None:
    """A recording that is longer than its replay makes no gain by itself."""
    found = optimise(independent(1, 4, 1), DEVICE, Asked(schedulers=SWIFT))
    assert found.replay.comparison.recorded_ns > found.best.schedule.makespan_ns
    assert found.gain_ns == 0


def with_delay() -> Recording:
    """40 us that nothing explains lie between two kernels; a peer is waited for on another stream.

    ::

        2  |a 100 us|  40 us  |b 100 us|
        3  |peer 30 us|
    """
    one = {"inputs": (tensor(8),), "outputs": (tensor(16),)}
    two = {"inputs": (tensor(16),), "outputs": (tensor(17),)}
    return recorded(
        task("a", 2, 0, 100, **one), task("peer", 3, 0, 30, PEER), task("b", 2, 140, 100, **two), **CHIP
    )


def test_delays_stay_where_the_order_is_recorded_and_go_where_it_is_inferred() -> None:
    kept = optimise(with_delay(), DEVICE, Asked(schedulers=SWIFT))
    left = optimise(with_delay(), DEVICE, INFERRED)
    assert abs(kept.baseline.makespan_ns - 240_000) <= 1
    assert left.replay.schedule.makespan_ns == kept.baseline.makespan_ns
    assert left.baseline.makespan_ns == 200_000 + GAP
    assert left.gain_ns == 0, "leaving a delay out is no gain"


def test_without_delays_whoever_waited_for_one_waits_for_what_it_waited_for() -> None:
    imported = from_profiler(with_delay())
    assert Role.DELAY in imported.roles
    only = only_tasks(imported)
    assert set(only.roles) == {Role.WORK, Role.PEER}
    assert {c.name: c.after for c in only.graph.commands} == {"a": (), "peer": (), "b": ("a",)}
    assert len(only.tasks) == len(only.starts_ns) == len(only.finishes_ns) == 3


@pytest.mark.parametrize("submission", [None, Submission.SINK])
def test_schedulers_and_baseline_have_the_same_modelled_times(submission: Submission | None) -> None:
    """b finds what a wrote in L2, in the replay as in every schedule: nobody beats the bound, or loses."""
    wide, small = tensor(1 << 22), tensor(1)
    kernel = {"kernel_class": KernelClass.VECTOR, "blocks": 40, "op": "Add"}
    made = recorded(
        task("a", 1, 0, 20, inputs=(small,), outputs=(wide,), **kernel),
        task("b", 1, 20.02, 20, inputs=(wide,), outputs=(small,), **kernel),
        **CHIP,
    )
    asked = Asked(schedulers=SWIFT, durations=Durations.MODELLED, submission=submission)
    found = optimise(made, DEVICE, asked)
    assert len({attempt.schedule.makespan_ns for attempt in found.attempts}) == 1
    assert found.baseline.makespan_ns >= found.lower_bound_ns


def launched() -> Recording:
    """The host launches ``b`` 400 us after ``a``, which takes 100 us."""
    return recorded(
        task("a", 2, 0, 100, launch_us=-10),
        task("b", 2, 400, 100, launch_us=390),
        task("c", 2, 500.02, 100, launch_us=391),
        **CHIP,
    )


def test_launch_times_are_kept_unless_another_submission_is_asked_for() -> None:
    kept = optimise(launched(), DEVICE, Asked(schedulers=SWIFT))
    assert kept.best.schedule.makespan_ns >= 590_000
    shares = shares_of(longest_chain(kept.best.schedule, kept.imported.roles))
    assert 280_000 < shares[limits.HOST] < 310_000
    sink = optimise(launched(), DEVICE, Asked(schedulers=SWIFT, submission=Submission.SINK))
    assert sink.attempts[0].schedule.makespan_ns == 300_000 + 2 * GAP
    assert sink.baseline.makespan_ns == kept.baseline.makespan_ns
    assert sink.promised


def test_an_eager_host_pays_for_each_call() -> None:
    eager = optimise(launched(), DEVICE, Asked(schedulers=SWIFT, submission=Submission.EAGER))
    sink = optimise(launched(), DEVICE, Asked(schedulers=SWIFT, submission=Submission.SINK))
    assert eager.attempts[0].schedule.makespan_ns > sink.attempts[0].schedule.makespan_ns


def test_what_ran_side_by_side_is_not_slowed_down_by_it_again() -> None:
    """Each of two kernels that overlapped has more blocks than half the cores; a third ran alone."""
    wide = {"blocks": DEVICE.pools["aic"], "inputs": (tensor(1 << 20),), "outputs": (tensor(1 << 20),)}
    imported = from_profiler(
        recorded(
            task("a", 1, 0, 100, **wide), task("b", 2, 50, 100, **wide), task("c", 1, 160, 10, **wide), **CHIP
        )
    )
    blocks = {c.name: c.kernels[0].blocks for c in graph_to_schedule(imported).commands if c.kernels}
    assert blocks == {"a": 1, "b": 1, "c": DEVICE.pools["aic"]}
    loads = {c.name: c.kernels[0].bytes_read for c in graph_to_schedule(imported).commands if c.kernels}
    assert (loads["a"], loads["b"]) == (0, 0)
    assert loads["c"] > 0


@pytest.mark.parametrize("asked", [INFERRED, Asked(schedulers=SWIFT)])
def test_the_best_becomes_a_plan_that_replays_to_its_makespan(tmp_path: Path, asked: Asked) -> None:
    found = optimise(independent(), DEVICE, asked)
    best = found.best.schedule
    plan = read_plan(write_plan(best, tmp_path / "p.json", found.imported.streams))
    assert play_plan(plan, best.graph, DEVICE).makespan_ns == best.makespan_ns == plan.makespan_ns


def test_progress_is_told_of_each_schedule() -> None:
    begun: list[str] = []
    done: list[None] = []
    optimise(independent(), DEVICE, INFERRED, begin=begun.append, step=lambda: done.append(None))
    assert begun == [RECORDED, "reference"]
    assert len(done) == 2


def test_the_same_recording_gives_the_same_plan() -> None:
    def actions(found: Optimised) -> tuple[int, ...]:
        return found.best.schedule.actions

    asked = replace(INFERRED, schedulers=("search:50",))
    assert actions(optimise(independent(), DEVICE, asked)) == actions(optimise(independent(), DEVICE, asked))


# --- what bounds a schedule ---------------------------------------------------------------------------


def toy_run(*commands, scheduler: str = "reference", **options) -> Schedule:
    program = compile_graph(CommandGraph("g", commands), toy_device(), RunOptions(**options))
    return run_scheduler(program, scheduler)


def test_a_chain_by_hand() -> None:
    """``a`` takes 10 + 100 ns, ``c`` 69; ``b`` waits for both, a gap of 1 ns behind ``a``.

    ::

        |a 110     |b 60 |
        |c 69 |
    """
    made = toy_run(vector("a", 100), copy_in("c", 64), vector("b", 50, after=("a", "c")), streams=2)
    chain = longest_chain(made, [Role.WORK] * 3)
    assert [(link.command, link.what, link.ns, link.behind_ns) for link in chain] == [
        (0, limits.KERNELS, 110, 0),
        (2, limits.KERNELS, 60, 1),
    ]
    assert shares_of(chain) == {limits.KERNELS: 170, limits.BETWEEN: 1}


def test_a_chain_goes_through_who_held_the_cores() -> None:
    """Three kernels of all four cores and no edge between them: they run one after another."""
    wide = [vector(name, 100, blocks=4) for name in "abc"]
    made = toy_run(*wide, streams=3)
    chain = longest_chain(made, [Role.WORK] * 3)
    assert sorted(link.command for link in chain) == [0, 1, 2]
    assert shares_of(chain)[limits.KERNELS] == sum(run.finish_ns - run.start_ns for run in made.commands)


def test_roles_name_what_they_stand_for() -> None:
    made = toy_run(vector("a", 100), vector("b", 50, after=("a",)), streams=1)
    assert shares_of(longest_chain(made, [Role.DELAY, Role.PEER])) == {
        limits.DELAYS: 110, limits.PEERS: 60, limits.BETWEEN: 1,
    }  # fmt: skip


@pytest.mark.parametrize("submission", list(Submission))
@pytest.mark.parametrize("scheduler", ["single_stream", "round_robin", "reference", "random"])
def test_the_times_of_a_chain_add_up_to_the_makespan(scheduler: str, submission: Submission) -> None:
    commands = [vector(f"k{i}", 30 + 7 * i, blocks=1 + i % 4, release_ns=40 * (i % 3)) for i in range(9)]
    commands += [copy_in(f"c{i}", 64, after=(f"k{i}",)) for i in range(4)]
    commands += [vector("last", 10, after=("c0", "c3", "k8"))]
    made = toy_run(*commands, scheduler=scheduler, streams=3, submission=submission)
    chain = longest_chain(made, [Role.WORK] * len(commands))
    assert all(link.ns >= 0 and link.behind_ns >= 0 for link in chain)
    assert sum(shares_of(chain).values()) == made.makespan_ns
