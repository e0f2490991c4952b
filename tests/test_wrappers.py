"""Wrappers: hand-computed plans, returns that are those of single steps, edits that are undone, contracts."""

from __future__ import annotations

import pickle
import re
import warnings
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env
from test_env import env_of, same
from toys import cube, toy_chain, toy_device, toy_squeeze, vector

from cann_env import InputError
from cann_env.engine import planned as by
from cann_env.engine.layout import FINISHED, OUT_OF_STEPS, S_OBJECTIVE_NS, S_STATUS, S_WAKES
from cann_env.envs import (
    CannEnv,
    EpisodeOverError,
    MaskInObservation,
    OneShotPriorities,
    PlanEditing,
    PrefetchDistance,
)
from cann_env.envs.instances import ProgramSource
from cann_env.envs.wrappers.priorities import Priorities
from cann_env.graph import CommandGraph
from cann_env.schedulers import Assignment, Launch, Rule, carry_out, decide, make_scheduler, replay
from cann_env.schedulers.edits import Edits, Shift
from cann_env.validate import validate

if TYPE_CHECKING:
    from collections.abc import Callable

ID = "cann_env:cann/Random-v0"


def one_shot(env: gymnasium.Env[Any, Any], **arguments: Any) -> OneShotPriorities:
    return OneShotPriorities(env, **arguments)


def masked(layout: str, flat: bool = True) -> Callable[..., MaskInObservation]:
    return lambda env: MaskInObservation(env, layout, flat=flat)


WRAPPERS: dict[str, Callable[[Any], gymnasium.Wrapper[Any, Any, Any, Any]]] = {
    "one_shot": OneShotPriorities,
    "editing": lambda env: PlanEditing(env, scheduler="round_robin", edits=6),
    "distance": PrefetchDistance,
    "rllib": masked("rllib"),
    "torchrl": masked("torchrl"),
    "torchrl_parts": masked("torchrl", flat=False),
    "tianshou": masked("tianshou"),
}


def two_chains() -> CommandGraph:
    """``a`` (110 ns) before ``b`` (110 ns), and beside them ``c`` (310 ns); all on one cube core."""
    return CommandGraph("two", (cube("a"), cube("b", after=("a",)), cube("c", 300)))


def action_of(env: gymnasium.Env[Any, Any], *priorities: float) -> np.ndarray[Any, Any]:
    """An action with these priorities and knobs of -1."""
    action = np.full(env.action_space.shape, -1.0, np.float32)  # type: ignore[arg-type]
    action[: len(priorities)] = priorities
    return action


def by_step(env: CannEnv, actions: tuple[int, ...], **reset: Any) -> float:
    """The return of an episode that is played step by step."""
    env.reset(**reset)
    return sum(float(env.step(action)[1]) for action in actions)


# --- priorities ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("priorities", "order"), [((1, 0, -1), "abc"), ((0, -1, 1), "cab"), ((0, -1, -0.5), "acb")]
)
def test_priorities_are_the_order_in_which_commands_start(priorities: Any, order: str) -> None:
    """One cube core, no gap on streams: commands run one after another, in the order of their priorities."""
    inner = env_of(two_chains(), streams=4)
    device = toy_device(pools={"aic": 1}, dispatch={"gap_ns": 0})
    inner.scenario = replace(inner.scenario, device=device)
    inner.source = ProgramSource(inner.scenario)
    env = one_shot(inner, launch="just_in_time", capacity=(3, 1))
    env.reset(seed=0)
    _, reward, terminated, truncated, info = env.step(action_of(env, *priorities))
    runs = env.schedule().commands
    names = [env.schedule().graph.commands[run.command].name for run in runs]
    assert names == list(order)
    assert (terminated, truncated) == (True, False)
    makespan, bound = info["schedule"]["makespan_ns"], info["schedule"]["lower_bound_ns"]
    assert makespan == 110 + 110 + 310
    assert reward == pytest.approx(-(makespan - bound) / bound, abs=1e-9)


def test_zeros_are_list_scheduling_by_descending_tail() -> None:
    env = one_shot(gymnasium.make(ID), launch="round_robin", knobs=())
    env.reset(seed=3)
    env.step(np.zeros(env.action_space.shape, np.float32))  # type: ignore[arg-type]
    program = env.unwrapped.program  # type: ignore[attr-defined]
    order = env.assignment(np.zeros(env.action_space.shape)).order  # type: ignore[arg-type]
    expected = carry_out(program, Assignment(order=order, rule=Rule(launch=Launch.ROUND_ROBIN)))
    assert env.schedule().actions == expected.plan.actions
    nodes = env.reset(seed=3)[0]["nodes"].reshape(-1, 16)
    tails = nodes[list(order), 4]
    assert np.all(np.diff(tails) <= 1e-6)


@pytest.mark.parametrize("launch", ["just_in_time", "chained", "eager", "round_robin"])
@pytest.mark.parametrize(
    "arguments",
    [{}, {"options": {"noise": 0.3}}, {"scenario": "serving_arrivals"}, {"scenario": "oversubscribed"}],
    ids=["plain", "noise", "latency", "memory"],
)
def test_the_reward_is_the_return_of_single_steps(launch: str, arguments: dict[str, Any]) -> None:
    """Law 3, whatever the objective; and what is tried in one call is exactly what a step gives."""
    env = one_shot(gymnasium.make(ID, **arguments), launch=launch, knobs=("streams", "ahead"))
    env.reset(seed=5)
    env.action_space.seed(1)
    actions = np.array([env.action_space.sample() for _ in range(4)])
    tried = env.evaluate(actions)
    assert np.array_equal(env.evaluate(actions, threads=2), tried)
    plain = gymnasium.make(ID, **arguments).unwrapped
    for action, expected in zip(actions, tried, strict=True):
        env.reset(seed=5)
        reward = env.step(action)[1]
        assert reward == expected
        schedule = env.schedule()
        assert validate(schedule) == ()
        assert reward == pytest.approx(by_step(plain, schedule.actions, seed=5), abs=1e-9)  # type: ignore[arg-type]


def test_knobs_are_fields_of_the_rule() -> None:
    knobs = ("fit", "streams", "ahead", "lift")
    env = one_shot(gymnasium.make(ID), knobs=knobs)
    env.reset(seed=0)
    n = len(env.unwrapped.program.graph.commands)  # type: ignore[attr-defined]

    def rule(*values: float) -> Rule:
        return env.assignment([*np.zeros(env.capacity.nodes), *values]).rule

    assert rule(1, 1, 1, 1) == Rule(launch=Launch.JUST_IN_TIME, fit=1.0, streams=8, lift=True)
    assert rule(-1, -1, -1, -1) == Rule(launch=Launch.JUST_IN_TIME, streams=1, ahead=0)
    assert rule(0, 0, 0, 0).ahead == round((n + 1) ** 0.5) - 1
    assert rule(7, -7, 7, 0) == rule(1, -1, 1, 0)  # cut to the space


def test_what_does_not_finish_costs_what_single_steps_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted fault: the decoder leaves behind an episode out of steps. The reward is its price."""
    env = one_shot(env_of(toy_chain()), capacity=(3, 2), knobs=())
    env.reset(seed=0)
    state, norm = env.unwrapped.get_state().state, env.unwrapped.program.norm_ns  # type: ignore[attr-defined]
    broken = state.copy()
    broken[S_STATUS] = OUT_OF_STEPS
    broken[S_OBJECTIVE_NS] += 5 * norm
    monkeypatch.setattr(Priorities, "play", lambda self, action: broken)
    _, reward, terminated, _, info = env.step(np.zeros(3))
    assert (reward, terminated, info["schedule"]["finished"]) == (-5.0, True, False)
    assert info["terms"] == {"progress": 0.0, "invalid": 0.0, "failure": -5.0}
    with pytest.raises(EpisodeOverError, match="not finished"):
        env.schedule()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: OneShotPriorities(gymnasium.make("CartPole-v1")), "OneShotPriorities wraps .* not CartPole"),
        (lambda: OneShotPriorities(gymnasium.make(ID), launch="labels"), "launch is 'labels'; write one of"),
        (
            lambda: OneShotPriorities(gymnasium.make(ID), knobs=["depth"]),
            "'just_in_time' write some of 'fit'",
        ),
        (lambda: OneShotPriorities(gymnasium.make(ID), knobs=["fit", "fit"]), "each once"),
        (lambda: OneShotPriorities(gymnasium.make(ID), capacity=(0, 1)), "graph_capacity is"),
        (lambda: PlanEditing(gymnasium.make(ID), scheduler="nobody"), "nobody"),
        (lambda: PlanEditing(gymnasium.make(ID), edits=0), "edits is 0; write a whole number of at least 1"),
        (lambda: PlanEditing(gymnasium.make(ID), moves=True), "moves is True"),
        (lambda: MaskInObservation(gymnasium.make(ID), "keras"), "layout is 'keras'; write one of 'rllib'"),
        (lambda: MaskInObservation(OneShotPriorities(gymnasium.make(ID)), "rllib"), "numbered actions"),
        (lambda: PrefetchDistance(gymnasium.make("cann_env:cann/Pipeline-v0")), "needs slots"),
    ],
)
def test_what_cannot_be_wrapped_is_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()


def test_wrong_actions_of_priorities_are_refused() -> None:
    env = one_shot(env_of(toy_chain()), capacity=(3, 2), knobs=())
    with pytest.raises(EpisodeOverError, match="call reset"):
        env.step(np.zeros(3))
    env.reset(seed=0)
    with pytest.raises(InputError, match="has shape"):
        env.step(np.zeros(4))
    with pytest.raises(InputError, match="entry 1 of action 0"):
        env.step(np.array([0, np.nan, 0]))
    with pytest.raises(InputError, match="has shape"):
        env.evaluate(np.zeros(3))
    assert env.evaluate(np.zeros((0, 3))).shape == (0,)
    env.step(np.zeros(3))
    with pytest.raises(EpisodeOverError, match="is over"):
        env.step(np.zeros(3))
    small = one_shot(env_of(toy_chain(4)), capacity=(3, 9))
    with pytest.raises(InputError, match="has 4 commands"):
        small.reset(seed=0)


# --- edits --------------------------------------------------------------------------------------------


def chains(env: CannEnv, **arguments: Any) -> PlanEditing:
    return PlanEditing(env, scheduler="single_stream", capacity=(4, 4), **arguments)


def test_an_edit_gains_what_is_computed_by_hand() -> None:
    """Two vector kernels of 110 ns on one stream, 1 ns apart: 221 ns. On a stream each they run side by side
    in 110 ns, which is the lower bound; back on one stream the gain is lost again."""
    env = chains(env_of(CommandGraph("pair", (vector("a"), vector("b"))), streams=2), edits=3)
    seen, info = env.reset(seed=0)
    assert info["objective_ns"] == 221
    table = seen["commands"].reshape(4, 18)
    bound = env.unwrapped.program.lower_bound_ns  # type: ignore[attr-defined]
    assert bound == 110
    first, second = table[:2] if table[0, 1] == 0.0 else table[1::-1]
    assert first[:6] == pytest.approx(
        [1, 0, 1, 1 / 2, 0, 1 / 110], abs=1e-6
    )  # ends 1 ns before the other starts
    assert second[:6] == pytest.approx([1, 111 / 110, 221 / 110, 1 / 2, 1 / 110, 0], abs=1e-6)
    assert not table[2:].any()
    later = int(table[0, 1] == 0.0)  # the number of the command that comes second
    seen, reward, terminated, _, info = env.step(later * 6 + 1)
    assert (info["objective_ns"], info["best_objective_ns"]) == (110, 110)
    assert reward == pytest.approx(111 / 110, abs=1e-12)
    assert seen["plan"][:4] == pytest.approx([0, 111 / 110, 0, 1 / 3], abs=1e-6)
    assert env.schedule().makespan_ns == 110
    assert not terminated
    _, reward, _, _, info = env.step(later * 6)
    assert reward == pytest.approx(-111 / 110, abs=1e-12)
    _, reward, terminated, _, info = env.step(later * 6)  # where it is already
    assert (info["invalid_actions"], terminated) == (1, True)
    assert reward == -env.unwrapped.scenario.options.invalid_penalty  # type: ignore[attr-defined]
    assert info["terms"] == pytest.approx({"progress": 0.0, "invalid": reward}, abs=1e-12)
    with pytest.raises(EpisodeOverError, match="used up"):
        env.step(0)


def test_places_are_exchanged_and_wait_as_they_did() -> None:
    """``a``, then ``c``: earlier means that ``c`` is issued first; ``b`` may not pass ``a``."""
    env = chains(env_of(two_chains(), streams=2), edits=9)
    env.reset(seed=0)
    draft = env._draft
    order = [int(who) for who in draft.ids if who >= 0]
    mask = env.action_masks()[: 4 * 6].reshape(4, 6)
    for before, after in pairwise(order):
        free = (before, after) != (0, 1)
        assert bool(mask[after, 2 + Shift.EARLIER]) == free
        assert bool(mask[before, 2 + Shift.LATER]) == free
    assert not mask[3].any()
    edits = Edits(env.unwrapped.program)  # type: ignore[attr-defined]
    who = next(after for before, after in pairwise(order) if (before, after) != (0, 1))
    moved = draft.shifted(who, Shift.EARLIER)
    assert np.array_equal(moved.rows[:, by.L_WAKES], draft.rows[:, by.L_WAKES])
    assert moved.place(who) < draft.place(who)
    assert edits.play(moved).state[S_STATUS] == FINISHED


@pytest.mark.parametrize("scenario", ["random", "oversubscribed", "serving", "pipeline"])
@pytest.mark.parametrize("scheduler", ["eager+aggressive", "round_robin"])
def test_a_plan_begins_as_it_was_decided_and_edits_can_be_undone(scenario: str, scheduler: str) -> None:
    slots = {"prefetches": 4}
    env = gymnasium.make(ID, scenario=scenario, options=slots).unwrapped
    env.reset(seed=2)
    program = env.program  # type: ignore[attr-defined]
    outcome = decide(program, make_scheduler(scheduler))
    edits = Edits(program)
    draft = edits.draft(outcome.actions)
    played = edits.play(draft)
    assert played.plan.actions == outcome.actions
    assert (played.objective_ns, played.strayed, played.skipped) == (outcome.objective_ns, 0, 0)
    rng = np.random.default_rng(0)
    opposite = {Shift.EARLIER: Shift.LATER, Shift.SOONER: Shift.HOLD}
    opposite |= {back: there for there, back in opposite.items()}
    wakes = int(played.state[S_WAKES])
    for _ in range(12):
        command, number = rng.choice(np.argwhere(edits.shifts(draft, wakes)))
        shift = Shift(number)
        there = draft.shifted(command, shift)
        back = there.shifted(command, opposite[shift])
        assert np.array_equal(back.rows, draft.rows)
        assert np.array_equal(back.ids, draft.ids)
        assert edits.play(back).objective_ns == outcome.objective_ns
        result = edits.play(there)
        if result.state[S_STATUS] == FINISHED:
            assert replay(program, result.plan.actions).objective_ns == result.objective_ns


@pytest.mark.parametrize("window", ["issuable", "startable"])
def test_random_edits_keep_to_the_law_and_the_judge(window: str) -> None:
    """The sum of the rewards is the first objective less the last; whatever the mask allows can be judged."""
    options = {"window": window}
    env = PlanEditing(gymnasium.make(ID, options=options), scheduler="eager+aggressive", edits=20, moves=4)
    _, info = env.reset(seed=1)
    bound = env.unwrapped.program.norm_ns  # type: ignore[attr-defined]
    first, total = info["objective_ns"], 0.0
    rng = np.random.default_rng(3)
    for _ in range(20):
        assert np.array_equal(info["action_mask"], env.action_masks())
        action = int(rng.choice(np.flatnonzero(info["action_mask"])))
        seen, reward, terminated, truncated, info = env.step(action)
        assert seen in env.observation_space
        total += reward
        assert validate(env.schedule()) == ()
        assert replay(env.unwrapped.program, env.plan().actions).objective_ns == info["objective_ns"]  # type: ignore[attr-defined]
    assert (terminated, truncated, info["invalid_actions"]) == (True, False, 0)
    assert total == pytest.approx((first - info["objective_ns"]) / bound, abs=1e-9)


def test_a_prefetch_is_moved() -> None:
    """Three kernels, each with a weight of its own: of prefetches the last one can come before the others."""
    inner = env_of(toy_squeeze(), run_ahead=1)
    env = PlanEditing(inner, scheduler="eager+aggressive", moves=4, capacity=(3, 2))
    seen, info = env.reset(seed=0)
    moves = seen["moves"].reshape(4, 6)
    made = int(moves[:, 0].sum())
    assert made >= 2
    assert not moves[made:].any()
    first = 3 * (4 + 4)
    place = moves[made - 1, 4]
    earlier, later = first + 2 * (made - 1), first + 2 * (made - 1) + 1
    assert info["action_mask"][earlier] == 1
    seen, there, *_ = env.step(earlier)
    assert seen["moves"].reshape(4, 6)[made - 1, 4] < place
    seen, back, *_, info = env.step(later)
    assert seen["moves"].reshape(4, 6)[made - 1, 4] == place
    assert there == pytest.approx(-back, abs=1e-12)
    assert info["objective_ns"] == info["first_objective_ns"]


def test_a_plan_that_breaks_an_order_is_put_right_and_counted() -> None:
    """A planted fault: ``b`` is listed before ``a``, on which it depends. The play takes it out of turn."""
    env = env_of(toy_chain(2), streams=2)
    env.reset(seed=0)
    edits = Edits(env.program)
    draft = edits.draft(decide(env.program, make_scheduler("single_stream")).actions)
    assert edits.play(draft).strayed == 0
    wrong = draft.rows[::-1].copy()
    result = edits.play(type(draft)(wrong, draft.ids[::-1].copy()))
    assert result.state[S_STATUS] == FINISHED
    assert result.strayed == 1


# --- distances and masks ------------------------------------------------------------------------------


@pytest.mark.parametrize("scenario", ["random", "oversubscribed", "training"])
def test_distances_keep_the_return_and_the_mask_is_honest(scenario: str) -> None:
    env = PrefetchDistance(gymnasium.make(ID, scenario=scenario))
    plain = gymnasium.make(ID, scenario=scenario).unwrapped
    _, info = env.reset(seed=4)
    rng = np.random.default_rng(0)
    total, done = 0.0, False
    while not done:
        assert np.array_equal(info["action_mask"], env.action_masks())
        _, reward, terminated, truncated, info = env.step(
            int(rng.choice(np.flatnonzero(info["action_mask"])))
        )
        total, done = total + reward, terminated or truncated
    assert (terminated, info["invalid_actions"]) == (True, 0)
    actions = env.unwrapped.schedule().actions  # type: ignore[attr-defined]
    assert total == pytest.approx(by_step(plain, actions, seed=4), abs=1e-9)  # type: ignore[arg-type]


def test_a_distance_says_how_far_ahead_buffers_are_fetched() -> None:
    """``k0``, ``k1``, ``k2`` in a row, a weight each, one in flight: distance 0 brings nothing beforehand,
    1 what the next command needs while the one before runs."""
    causes = {}
    for number in (0, 1, 5):
        env = PrefetchDistance(env_of(toy_squeeze(), run_ahead=1))
        _, info = env.reset(seed=0)
        done = False
        while not done:
            legal = np.flatnonzero(info["action_mask"])
            chosen = legal[legal % 6 == number][0]
            *_, terminated, truncated, info = env.step(int(chosen))
            done = terminated or truncated
        moves = env.unwrapped.schedule().transfers  # type: ignore[attr-defined]
        causes[number] = sum(move.cause == "prefetch" for move in moves)
    assert causes[0] == 0
    assert causes[5] > 0
    assert causes[0] <= causes[1] <= causes[5]


@pytest.mark.parametrize("flat", [True, False])
@pytest.mark.parametrize(
    ("layout", "seen", "mask", "kind"),
    [
        ("rllib", "observations", "action_mask", spaces.Box),
        ("torchrl", "observation", "action_mask", spaces.MultiBinary),
        ("tianshou", "obs", "mask", spaces.MultiBinary),
    ],
)
def test_the_mask_stands_beside_the_observation(
    layout: str, seen: str, mask: str, kind: type, flat: bool
) -> None:
    plain = gymnasium.make(ID)
    env = MaskInObservation(gymnasium.make(ID), layout, flat=flat)
    assert isinstance(env.observation_space[mask], kind)
    observation, info = env.reset(seed=0)
    given, told = plain.reset(seed=0)
    for _ in range(3):
        assert observation in env.observation_space
        assert np.array_equal(observation[mask], told["action_mask"])
        assert np.array_equal(env.action_masks(), told["action_mask"])
        if flat:
            assert same(observation[seen], np.concatenate([given[name] for name in sorted(given)]))
        elif layout == "torchrl":
            parts = {f"observation_{name}": part for name, part in given.items()}
            assert same(parts | {mask: observation[mask]}, observation)
        else:
            assert same(observation[seen], given)
        observation[mask][:] = 7  # what is given away is not shared with the information
        assert np.array_equal(info["action_mask"], told["action_mask"])
        action = np.flatnonzero(told["action_mask"])[-1]
        observation, *_, info = env.step(action)
        given, *_, told = plain.step(action)


def test_masks_of_edits_and_distances_can_stand_there_too() -> None:
    for wrapper in (lambda env: PlanEditing(env, scheduler="round_robin", edits=2), PrefetchDistance):
        env = MaskInObservation(wrapper(gymnasium.make(ID)), "tianshou")
        observation, info = env.reset(seed=0)
        assert np.array_equal(observation["mask"], info["action_mask"])
        assert observation["mask"].shape == (env.action_space.n,)


# --- contracts ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", WRAPPERS)
def test_gymnasium_finds_nothing_to_warn_about(name: str) -> None:
    """Of its own accord it warns of every wrapper that it is not the bare environment; of nothing else."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*different from the unwrapped version.*")
        check_env(WRAPPERS[name](gymnasium.make(ID)), skip_render_check=True)


@pytest.mark.parametrize("name", WRAPPERS)
def test_stable_baselines_finds_nothing_to_warn_about(name: str) -> None:
    checker = pytest.importorskip("stable_baselines3.common.env_checker")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        checker.check_env(WRAPPERS[name](gymnasium.make(ID)))


def run(env: gymnasium.Env[Any, Any], steps: int = 3) -> list[Any]:
    """What the first steps of an episode give, by the first legal or a drawn action."""
    given: list[Any] = []
    for step in range(steps):
        action = env.action_space.sample()
        if "action_mask" in env_info(given):
            action = np.flatnonzero(env_info(given)["action_mask"])[step]
        given.append(env.step(action))
        if given[-1][2] or given[-1][3]:
            break
    return given


def env_info(given: list[Any]) -> dict[str, Any]:
    return given[-1][-1] if given else {}


@pytest.mark.parametrize("name", WRAPPERS)
def test_a_wrapper_survives_json_pickling_and_a_second_reset(name: str) -> None:
    env = WRAPPERS[name](gymnasium.make(ID, options={"commands": 5}))
    assert env.spec is not None
    again = gymnasium.make(gymnasium.envs.registration.EnvSpec.from_json(env.spec.to_json()))
    assert again.observation_space == env.observation_space
    assert again.action_space == env.action_space
    runs = []
    for one in (env, again, env):
        start = one.reset(seed=7)
        one.action_space.seed(0)
        runs.append([start, *run(one)])
    assert same(runs[0], runs[1])
    assert same(runs[0], runs[2])
    env.reset(seed=8)
    env.action_space.seed(0)
    other = pickle.loads(pickle.dumps(env))
    assert same(run(other), run(env))


@pytest.mark.parametrize("wrapper", [OneShotPriorities, PlanEditing, PrefetchDistance, MaskInObservation])
def test_docstrings_are_contracts(wrapper: type) -> None:
    text = wrapper.__doc__ or ""
    for title in ("Action Space", "Observation Space", "Rewards", "What is kept", "Arguments"):
        assert f"## {title}\n" in text, title


@pytest.mark.parametrize("wrapper", [OneShotPriorities, PlanEditing])
def test_tables_of_docstrings_are_the_spaces(wrapper: type) -> None:
    env = wrapper(gymnasium.make(ID))
    sizes = {"N": env.capacity.nodes, "E": env.capacity.edges, "S": 8, "M": getattr(env, "moves", 0)}
    rows = re.findall(r"\| `(\w+)` \| \(([^)]*),\) \| 0 \| (\w+) \|", wrapper.__doc__ or "")
    assert {name for name, _, _ in rows} == set(env.observation_space)
    for name, shape, high in rows:
        length = int(np.prod([sizes[w] if w in sizes else int(w) for w in shape.split("*")]))
        box = env.observation_space[name]
        assert box.shape == (length,), name
        assert box.high.max() == sizes.get(high, 0) or box.high.max() == float(high), name
    if wrapper is PlanEditing:
        assert env.action_space.n == sizes["N"] * 12 + 2 * sizes["M"] + 1


def test_rendering_is_that_of_what_came_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    env = one_shot(gymnasium.make(ID, render_mode="ansi"))
    env.reset(seed=0)
    env.step(action_of(env))
    assert "ms" in str(env.render())
    shown = PlanEditing(gymnasium.make(ID, render_mode="human"), scheduler="round_robin", edits=2)
    shown.reset(seed=0)
    capsys.readouterr()
    shown.step(shown.action_space.n - 1)  # type: ignore[attr-defined]
    assert capsys.readouterr().out
