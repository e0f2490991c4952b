"""The mask is honest: what it allows works, what it forbids is repaired, and the best schedule is in reach.

The best schedule is found twice. Once with the engine: depth first over snapshots, through every sequence of
legal actions, cut off by the engine's own bound. Once without it: every order in which the precedences allow
the commands, each built serially, one command after another at the earliest instant at which its cores, its
engine and one of the streams are free. Among those schedules there always is an optimal one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import permutations
from typing import TYPE_CHECKING

import numpy as np
import pytest
from cases import make_case, running
from episodes import actions_of, legal_actions
from hypothesis import given, settings
from hypothesis import strategies as st
from toys import DEMAND, callback, copy_in, copy_inside, copy_out, kernel_command, toy_device, toy_kernel

from cann_env.engine import layout as at
from cann_env.engine import trace
from cann_env.engine.step import step
from cann_env.graph import Command, CommandGraph, Scheme
from cann_env.options import RunOptions, Submission
from cann_env.program import Program, compile_graph

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

FREE_OF_LATENCY = {
    "classes": {name: {"launch_base_ns": 0, "max_active": 2} for name in ("cube", "vector", "mix", "aicpu")},
    "links": {name: {"latency_ns": 0} for name in ("hbm", "h2d", "d2h", "die")},
    "dispatch": {"gap_ns": 0, "mix_switch_ns": 0},
}
DEVICE = toy_device(**FREE_OF_LATENCY)


# --- small problems -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Job:
    """What a command is to a scheduler: how long it takes, and what it holds meanwhile."""

    duration_ns: int
    demand: dict[str, int]
    before: tuple[int, ...]


def random_command(
    rng: np.random.Generator, name: str, after: tuple[str, ...]
) -> tuple[Command, dict[str, int]]:
    """A command that takes 1 to 60 ns, and what it holds: never a kernel whose blocks may be spread."""
    lasts = int(rng.integers(1, 61))
    work = str(rng.choice(["cube", "vector", "vector", "mix", "h2d", "d2h", "sdma", "callback"]))
    if work == "callback":
        return callback(name, lasts, after=after), DEMAND[work]
    if work in ("h2d", "d2h"):
        return (copy_in if work == "h2d" else copy_out)(name, lasts, after=after), DEMAND[work]
    if work == "sdma":
        return copy_inside(name, 2 * lasts, after=after), DEMAND[work]
    blocks = int(rng.integers(1, {"cube": 3, "vector": 5, "mix": 3}[work]))
    kernel = toy_kernel(work, lasts, blocks=blocks, scheme=Scheme.BATCH)
    return kernel_command(name, kernel, after=after), {
        **{pool: blocks * cores for pool, cores in DEMAND[work].items()},
        f"{work} slots": 1,
    }


def random_problem(rng: np.random.Generator, commands: int) -> tuple[CommandGraph, list[Job]]:
    """A graph of some commands, and the same as jobs."""
    drawn: list[Command] = []
    jobs: list[Job] = []
    for i in range(commands):
        before = tuple(j for j in range(i) if rng.random() < 0.25)
        command, demand = random_command(rng, f"c{i}", tuple(f"c{j}" for j in before))
        lasts = command.duration_ns or command.size_bytes
        if command.kernels:
            lasts = command.kernels[0].flops // command.kernels[0].blocks
        elif command.copy == "d2d":
            lasts = command.size_bytes // 2
        drawn.append(command)
        jobs.append(Job(lasts, demand, before))
    return CommandGraph("small", tuple(drawn)), jobs


# --- without the engine -------------------------------------------------------------------------------


def capacities(streams: int) -> dict[str, int]:
    slots = {f"{name} slots": DEVICE.classes[name].max_active for name in ("cube", "vector", "mix")}
    return {**DEVICE.pools, **slots, "streams": min(streams, DEVICE.limits.max_concurrent_streams)}


def earliest(job: Job, ready_ns: int, placed: list[tuple[int, int, Job]], room: dict[str, int]) -> int:
    """Earliest instant from which a job fits beside those that are placed, all the time it runs."""
    starts = sorted({ready_ns, *(finish for _, finish, _ in placed if finish > ready_ns)})
    return next(start for start in starts if fits(job, start, placed, room))


def fits(job: Job, start_ns: int, placed: list[tuple[int, int, Job]], room: dict[str, int]) -> bool:
    end_ns = start_ns + job.duration_ns
    instants = {start_ns, *(start for start, _, _ in placed if start_ns < start < end_ns)}
    for instant in instants:
        for resource, units in {**job.demand, "streams": 1}.items():
            held = sum(
                {**other.demand, "streams": 1}.get(resource, 0)
                for start, finish, other in placed
                if start <= instant < finish
            )
            if held + units > room[resource]:
                return False
    return True


def orders(jobs: list[Job]) -> Iterator[tuple[int, ...]]:
    for order in permutations(range(len(jobs))):
        place = {job: i for i, job in enumerate(order)}
        if all(place[b] < place[j] for j in order for b in jobs[j].before):
            yield order


def best_by_hand(jobs: list[Job], streams: int) -> int:
    """Least makespan over all orders, each built serially."""
    room = capacities(streams)
    best = sum(job.duration_ns for job in jobs)
    for order in orders(jobs):
        finish: dict[int, int] = {}
        placed: list[tuple[int, int, Job]] = []
        for j in order:
            ready_ns = max((finish[b] for b in jobs[j].before), default=0)
            start_ns = earliest(jobs[j], ready_ns, placed, room)
            finish[j] = start_ns + jobs[j].duration_ns
            placed.append((start_ns, finish[j], jobs[j]))
        best = min(best, *[max(finish.values())])
    return best


# --- with the engine ----------------------------------------------------------------------------------


def essence(program: Program, state: NDArray[np.int64]) -> bytes:
    """What the future depends on: all of a state but how it was reached."""
    kept = state.copy()
    kept[[at.S_STEPS, at.S_WAKES]] = 0
    kept[int(state[at.S_AT_ACTION]) :] = 0
    return kept.tobytes()


def best_by_search(program: Program, *, bounded: bool = True) -> int:
    """Least makespan over all sequences of legal actions."""
    best = np.iinfo(np.int64).max
    seen: set[bytes] = set()
    stack = [program.new_state()]
    while stack:
        state = stack.pop()
        if state[at.S_STATUS] != at.RUNNING:
            assert state[at.S_STATUS] == at.FINISHED
            best = min(best, int(state[at.S_NOW_NS]))
            continue
        if bounded and state[at.S_BOUND_NS] >= best:
            continue
        key = essence(program, state)
        if key in seen:
            continue
        seen.add(key)
        for action in reversed(legal_actions(program, state)):
            branch = state.copy()
            step(program.image, branch, action)
            stack.append(branch)
    return best


def check_reach(seed: int, commands: int, *, bounded: bool = True) -> None:
    rng = np.random.default_rng(seed)
    graph, jobs = random_problem(rng, commands)
    streams = int(rng.integers(2, 4))
    options = RunOptions(streams=streams, submission=Submission.SINK, commands=commands, prefetches=0)
    program = compile_graph(graph, DEVICE, options)
    assert best_by_search(program, bounded=bounded) == best_by_hand(jobs, streams)


@pytest.mark.parametrize("seed", range(20))
def test_the_best_schedule_is_in_reach(seed: int) -> None:
    check_reach(seed, 4 + seed % 2)


def test_the_best_schedule_may_leave_cores_idle() -> None:
    """c could start at once, but then b, which needs all four aiv, and with it e would have to wait for it.

    ::

        aic:      a 0-10                               a
        aiv:             b 10-110 | c 110-170          c 0-60 | b 60-160
        callback:                 | e 110-210                 | e         160-260
    """
    graph = CommandGraph(
        "idle",
        (
            kernel_command("a", toy_kernel("cube", 10)),
            kernel_command("b", toy_kernel("vector", 100, blocks=4, scheme=Scheme.BATCH), after=("a",)),
            kernel_command("c", toy_kernel("vector", 60)),
            callback("e", 100, after=("b",)),
        ),
    )
    program = compile_graph(graph, DEVICE, RunOptions(streams=2, commands=4))
    assert best_by_search(program) == 210
    window = program.options.commands * 2
    eager = program.new_state()
    while running(eager):  # always the first command that may be issued
        step(program.image, eager, min(legal_actions(program, eager), key=lambda a: (a >= window, -a)))
    assert int(eager[at.S_NOW_NS]) > 210


@pytest.mark.parametrize("seed", range(4))
def test_the_bound_cuts_off_nothing_good(seed: int) -> None:
    """Without the bound every sequence is tried."""
    check_reach(seed, 3, bounded=False)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 160))
def test_the_best_schedule_of_six_commands_is_in_reach(seed: int) -> None:
    check_reach(seed, 6)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 120))
def test_the_bound_cuts_off_nothing_good_at_length(seed: int) -> None:
    check_reach(seed, 5, bounded=False)


# --- every action -------------------------------------------------------------------------------------

HOST_ROWS = {
    trace.T_HOST_ISSUE,
    trace.T_HOST_PREFETCH,
    trace.T_HOST_LIFT,
    trace.T_HOST_OFFLOAD,
    trace.T_HOST_WAIT,
}


def meaning(program: Program, state: NDArray[np.int64], action: int) -> tuple[int, int]:
    """Kind and target of the host call that an action stands for."""
    options = program.options
    choices = int(program.image[at.P_CHOICES])
    issues = options.commands * choices
    if action < issues:
        return trace.T_HOST_ISSUE, int(state[int(program.image[at.P_STATE_WINDOW]) + action // choices])
    if action < issues + options.slots:
        slot = action - issues
        lifts = options.prefetches + options.l2_prefetches
        call = trace.T_HOST_LIFT if slot < lifts else trace.T_HOST_OFFLOAD
        call = trace.T_HOST_PREFETCH if slot < options.prefetches else call
        return call, int(state[int(program.image[at.P_STATE_PREFETCH]) + slot])
    return trace.T_HOST_WAIT, -1


def first_call(before: NDArray[np.int64], after: NDArray[np.int64]) -> tuple[int, int]:
    """Kind and target of the first host call that one state has recorded beyond another."""
    first = int(before[at.S_AT_TRACE])
    rows = after[first : first + int(after[at.S_TRACE_ROWS]) * trace.T_WIDTH].reshape(-1, trace.T_WIDTH)
    return next((int(r[0]), int(r[1])) for r in rows[int(before[at.S_TRACE_ROWS]) :] if r[0] in HOST_ROWS)


def every_action_does_what_the_mask_says(seed: int) -> None:
    """Legal ones are carried out as they are, all others as the wait or the first legal one."""
    case = make_case(seed)
    program = case.program
    state = program.new_state(case.noise, trace_rows=4000)
    for _ in range(int(case.rng.integers(0, 12))):
        if running(state):
            case.step(state, case.random_action(state))
    if not running(state):
        return
    legal = legal_actions(program, state)
    assert legal
    wait = program.action_count - 1
    done = {}
    for action in legal:
        done[action] = state.copy()
        case.step(done[action], action)
        assert done[action][at.S_INVALID] == state[at.S_INVALID]
        assert actions_of(done[action])[-1] == action
        assert first_call(state, done[action]) == meaning(program, state, action)
        if action < program.options.commands * program.options.streams and program.image[at.P_IMPLIED] == 0:
            place = int(program.image[at.P_STATE_COMMAND]) + meaning(program, state, action)[1] * at.SC_WIDTH
            assert done[action][place + at.SC_STREAM] == action % program.options.streams
    instead = done[wait if wait in legal else legal[0]]
    for action in {-1, wait + 1, *range(wait + 1)} - set(legal):
        repaired = state.copy()
        case.step(repaired, action)
        assert repaired[at.S_INVALID] == state[at.S_INVALID] + 1
        repaired[at.S_INVALID] -= 1
        assert (repaired == instead).all()


def no_legal_action_leads_into_a_corner(seed: int) -> None:
    """With barely enough memory: an agent that issues whatever it may, wherever it may, always finishes."""
    case = make_case(seed, most=25)
    tight = replace(case.program.options, run_ahead=50, commands=25)
    case = replace(case, program=compile_graph(case.program.graph, case.program.device, tight))
    wait = case.program.action_count - 1
    state = case.new_state()
    while running(state):
        legal = legal_actions(case.program, state)
        if state[at.S_STEPS] > case.program.image[at.P_STEP_BUDGET] // 6:  # enough buffers moved about
            legal = [a for a in legal if a < wait - case.program.options.slots or a == wait] or legal
        rather = [action for action in legal if action != wait] or legal
        case.step(state, int(case.rng.choice(rather)))
    assert (state[at.S_STATUS], state[at.S_INVALID]) == (at.FINISHED, 0)


LAWS = (every_action_does_what_the_mask_says, no_legal_action_leads_into_a_corner)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
@settings(max_examples=30, deadline=None, derandomize=True, database=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_law(law: Callable[[int], None], seed: int) -> None:
    law(seed)


@pytest.mark.slow
@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
@settings(max_examples=1000, deadline=None, derandomize=True, database=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_law_at_length(law: Callable[[int], None], seed: int) -> None:
    law(seed)


def test_a_deadlock_once_reached_stays_out_of_reach() -> None:
    """A case in which a writer of managed memory, finishing early, left too little for a head of a queue."""
    every_action_does_what_the_mask_says(546311040)
    case = make_case(546311040)
    assert case.play()[at.S_STATUS] == at.FINISHED
