"""N environments in one call: equal to N single ones, whatever the mode; requests checked; nothing kept."""

from __future__ import annotations

import copy
import gc
import inspect
import json
import os
import re
import subprocess
import sys
import tracemalloc
import warnings
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from vectors import MODES, Pair, assert_equal, assert_row, legal, mixed, row_of, small

from cann_env import ENVIRONMENTS
from cann_env.engine import layout as at
from cann_env.engine.episodes import TERMS, score
from cann_env.envs import CannEnv, CannVectorEnv, EpisodeOverError
from cann_env.envs.instances import InstanceKey, ProgramSource
from cann_env.envs.reward import reward_terms
from cann_env.envs.rows import Rows
from cann_env.scenario import Scenario, load_scenario
from cann_env.units import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

# --- law 1: vector equals single ---------------------------------------------------------------------


@pytest.mark.parametrize("noise", [0.0, 0.2])
@pytest.mark.parametrize("window", ["issuable", "startable"])
@pytest.mark.parametrize("name", ["pipeline", "random", "serving", "serving_arrivals"])
def test_vector_equals_single(name: str, window: str, noise: float) -> None:
    Pair(small(name, window=window, noise=noise)).play(ends=4)


@pytest.mark.slow
@pytest.mark.parametrize("noise", [0.0, 0.2])
@pytest.mark.parametrize("window", ["issuable", "startable"])
@pytest.mark.parametrize("name", [*ENVIRONMENTS.values(), "serving_arrivals"])
def test_vector_equals_single_as_shipped(name: str, window: str, noise: float) -> None:
    Pair(name, count=3, options={"window": window, "noise": noise}).play(ends=7)


@pytest.mark.parametrize("instances", [3, None])
@pytest.mark.parametrize("copied", [True, False])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("mode", MODES)
def test_vector_equals_single_however_it_is_stepped(
    mode: AutoresetMode, threads: int, copied: bool, instances: int | None
) -> None:
    how = {"autoreset_mode": mode, "threads": threads, "copy": copied}
    Pair(small("random"), count=5, vector=how, instances=instances).play(ends=9)


LITTLE_MEMORY = {"pipeline": 0.6, "serving": 0.8, "random": 1.25, "training": 0.6, "oversubscribed": 0.6}
"""As little as the first graphs of seed 5 can do with, or less than half of what they like to have."""


@pytest.mark.slow
@pytest.mark.parametrize("noise", [0.0, 0.2])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ENVIRONMENTS.values())
def test_vector_equals_single_with_little_memory(name: str, mode: AutoresetMode, noise: float) -> None:
    """Three graphs, so that some are played again."""
    how = {"autoreset_mode": mode, "threads": 2, "copy": noise > 0.0}
    few = {"memory_factor": LITTLE_MEMORY[name], "instances": 3}
    Pair(name, 3, vector=how, options={"noise": noise}, **few).play(ends=8)


@pytest.mark.parametrize("name", ["random", "serving_arrivals"])
def test_graph_observation_equals_single(name: str) -> None:
    pair = Pair(small(name), observation="graph", graph_capacity=(120, 400))
    pair.play(ends=3)
    assert "edge_index" in pair.vector.single_observation_space.spaces


def test_truncation_equals_single(monkeypatch: pytest.MonkeyPatch) -> None:
    """Budgets of 5 steps are planted, so that the episodes are truncated and not terminated."""
    compiled = ProgramSource.program

    def impatient(self: ProgramSource, key: InstanceKey) -> Any:
        program = compiled(self, key)
        program.image[at.P_STEP_BUDGET] = 5
        return program

    monkeypatch.setattr(ProgramSource, "program", impatient)
    pair = Pair(small("random"))
    pair.play(ends=4)
    assert pair.truncations == 4


def test_first_index_can_be_chosen() -> None:
    """Environment i of a vector that begins at index 3 is the single environment of index 3 + i."""
    scenario = small("random")
    vector = CannVectorEnv(scenario, num_envs=2, env_index=3)
    observations, _ = vector.reset(seed=1)
    assert_row(observations, 1, CannEnv(scenario, env_index=4).reset(seed=1)[0])


def test_the_comparison_catches_another_instance() -> None:
    with pytest.raises(AssertionError):
        Pair(small("random"), shift=1).play(ends=1)


def test_the_comparison_catches_a_step_left_out() -> None:
    pair = Pair(small("random"))
    pair.reset(5)
    pair.singles[1].step(int(pair.masks[1].argmax()))
    with pytest.raises(AssertionError):
        pair.step(pair.masks.argmax(axis=1))


@pytest.mark.parametrize("part", [0, 1])
def test_the_comparison_catches_a_row_that_no_thread_steps(part: int) -> None:
    pair = Pair(small("random"), count=4, vector={"threads": 2})
    pair.reset(5)
    pair.step(pair.masks.argmax(axis=1))
    pair.vector._rows._parts[part] = pair.vector._rows._parts[part][:1]
    with pytest.raises(AssertionError):
        pair.step(pair.masks.argmax(axis=1))


@pytest.mark.parametrize("status", [at.RUNNING, at.FINISHED, at.OUT_OF_MEMORY, at.OUT_OF_STEPS])
def test_terms_are_those_of_a_single_environment(status: int) -> None:
    """All cases of a rise (up, none, down), an illegal action and a failure."""
    image, state = np.zeros(at.P_HEADER, np.int64), np.zeros(at.S_HEADER, np.int64)
    image[at.P_NORM_NS], state[at.S_STATUS] = 7, status
    failed = status in (at.OUT_OF_MEMORY, at.OUT_OF_STEPS)
    for rise in (13, 0, -3):
        for bad in (0, 1):
            sums = np.full(TERMS, 0.5)
            reward = score(image, state, rise, bad, 0.1, sums)
            terms = reward_terms(rise, 7, illegal=bad, penalty=0.1, failed=failed)
            assert reward == terms.total
            assert sums.tolist() == [0.5 + term for term in (*terms, reward)]


def test_rows_grow_without_losing_a_state() -> None:
    """A graph of 4 commands is under way in row 0 when one of 60 comes into row 1."""
    source = ProgramSource(Scenario.from_dict(_layered(4)))
    little = source.program(InstanceKey(0, 0, 0))
    large = ProgramSource(Scenario.from_dict(_layered(60))).program(InstanceKey(0, 0, 0))
    assert large.image.size > 2 * little.image.size
    rows = Rows(source, 2)
    rows.set_seeds({0: 0, 1: 0})
    rows.begin(np.arange(2))
    rows.step(rows.seen.masks.argmax(axis=1))
    before = rows.state(0)
    assert before[at.S_STEPS] == 1 and before.size == little.state_words()
    source.program = lambda key: large  # type: ignore[method-assign]
    rows.begin(np.array([1]))
    assert np.array_equal(rows.state(0), before)
    assert np.array_equal(rows.state(1), large.new_state())


def _layered(commands: int) -> dict[str, Any]:
    tables = load_scenario("layered").to_dict()
    tables["workload"]["commands"] = commands
    return tables


# --- autoreset ---------------------------------------------------------------------------------------


Told = dict[tuple[int, int], list[tuple[dict[str, Any], float, bool]]]


def episodes(mode: str, count: int, each: int) -> Told:
    """What the first episodes of every environment were: observation, reward, over, step by step.

    The action depends on environment, episode, step and mask only, and so not on the mode.
    """
    vector = CannVectorEnv(small("random", noise=0.1), num_envs=count, autoreset_mode=mode)
    observations, infos = vector.reset(seed=9)
    told: Told = {(i, 0): [(row_of(observations, i), 0.0, False)] for i in range(count)}
    number = [0] * count
    pending = np.zeros(count, bool)
    while min(number) <= each:
        steps = [len(told[i, number[i]]) if (i, number[i]) in told else 0 for i in range(count)]
        rngs = [np.random.default_rng([i, number[i], steps[i]]) for i in range(count)]
        actions = [legal(infos["action_mask"][i : i + 1], rng)[0] for i, rng in enumerate(rngs)]
        observations, rewards, terminations, truncations, infos = vector.step(np.array(actions))
        ended = terminations | truncations
        assert not (ended & pending).any() and not rewards[pending].any()
        for i in range(count):
            if pending[i]:
                told[i, number[i]] = [(row_of(observations, i), 0.0, False)]
                continue
            same = bool(mode == "SameStep" and ended[i])
            seen = infos["final_obs"][i] if same else row_of(observations, i)
            told[i, number[i]].append((seen, rewards[i], bool(ended[i])))
            number[i] += int(ended[i])
            if same:
                told[i, number[i]] = [(row_of(observations, i), 0.0, False)]
        pending = ended & (mode == "NextStep")
        if mode == "Disabled" and ended.any():
            observations, infos = vector.reset(options={"reset_mask": ended})
            told |= {(i, number[i]): [(row_of(observations, i), 0.0, False)] for i in np.flatnonzero(ended)}
    return {key: steps for key, steps in told.items() if key[1] < each}


def test_all_modes_play_the_same_episodes() -> None:
    same, following, disabled = (episodes(mode.value, 2, 3) for mode in MODES)
    assert same.keys() == following.keys() == disabled.keys() and len(same) == 6
    for key, steps in same.items():
        assert steps[-1][2] and len(steps) > 4
        for other in (following, disabled):
            assert [step[1:] for step in other[key]] == [step[1:] for step in steps]
            for mine, theirs in zip(steps, other[key], strict=True):
                assert all(np.array_equal(mine[0][name], theirs[0][name]) for name in mine[0])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("by_word", [True, False])
def test_mode_is_told_in_both_places(mode: AutoresetMode, by_word: bool) -> None:
    vector = CannVectorEnv(small("pipeline"), num_envs=2, autoreset_mode=mode.value if by_word else mode)
    assert vector.metadata["autoreset_mode"] is mode
    assert vector.autoreset_mode is mode
    assert "autoreset_mode" not in CannEnv.metadata


@pytest.mark.parametrize("mode", MODES)
def test_infos_are_those_of_gymnasiums_own_vector(mode: AutoresetMode) -> None:
    """Gymnasium's ``SyncVectorEnv`` of single environments gives the same entries, but for our statistics.

    It resets environment i with its own seed, so both get the same list of seeds.
    """
    scenario = small("random")
    theirs = SyncVectorEnv(
        [lambda i=i: CannEnv(scenario, env_index=i) for i in range(2)], autoreset_mode=mode
    )
    ours = CannVectorEnv(scenario, num_envs=2, autoreset_mode=mode)
    (seen, told), (seen_2, told_2) = theirs.reset(seed=[3, 4]), ours.reset(seed=[3, 4])
    assert_equal(seen_2, seen)
    assert_equal(told_2, told)
    rng = np.random.default_rng(0)
    ends = 0
    while ends < 4:
        actions = legal(told["action_mask"], rng)
        *results, told = theirs.step(actions)
        *results_2, told_2 = ours.step(actions)
        assert_equal(dict(enumerate(results_2)), dict(enumerate(results)))
        assert_equal(told_2, told)
        ended = results[2] | results[3]
        ends += int(ended.sum())
        if mode is AutoresetMode.DISABLED and ended.any():
            (_, told), (_, told_2) = (env.reset(options={"reset_mask": ended}) for env in (theirs, ours))
            assert told.keys() == told_2.keys()
            told = told_2  # gymnasium leaves the masks of the others empty


def test_own_statistics_equal_gymnasiums() -> None:
    vector = CannVectorEnv(small("random"), num_envs=2, autoreset_mode="NextStep")
    counted = gymnasium.wrappers.vector.RecordEpisodeStatistics(vector)
    _, infos = counted.reset(seed=0)
    rng = np.random.default_rng(0)
    ends = 0
    while ends < 3:
        *_, infos = counted.step(mixed(infos["action_mask"], rng))
        if "episode" in infos:
            ended = infos["_episode"]
            assert np.array_equal(ended, infos["_episode_return"])
            assert np.allclose(infos["episode"]["r"][ended], infos["episode_return"][ended], rtol=1e-12)
            assert np.array_equal(infos["episode"]["l"][ended], infos["episode_length"][ended])
            ends += int(ended.sum())


@pytest.mark.parametrize("mode", MODES)
def test_own_statistics_are_sums_of_what_was_given(mode: AutoresetMode) -> None:
    """Rewards and steps are added up here, whatever version of Gymnasium this is."""
    vector = CannVectorEnv(small("random"), num_envs=3, autoreset_mode=mode)
    infos = vector.reset(seed=0)[1]
    rng = np.random.default_rng(0)
    returns, lengths, over = np.zeros(3), np.zeros(3, int), np.zeros(3, bool)
    ends = 0
    while ends < 7:
        _, rewards, terminations, truncations, infos = vector.step(mixed(infos["action_mask"], rng))
        returns += rewards
        lengths += ~over
        over = terminations | truncations
        if over.any():
            told = infos["final_info"] if mode is AutoresetMode.SAME_STEP else infos
            assert np.array_equal(told["_episode_return"], over)
            assert np.array_equal(told["episode_return"][over], returns[over])
            assert np.array_equal(told["episode_length"][over], lengths[over])
            assert np.array_equal(told["schedule"]["steps"][over], lengths[over])
            ends += int(over.sum())
            returns[over] = lengths[over] = 0
        if mode is AutoresetMode.DISABLED and over.any():
            infos = vector.reset(options={"reset_mask": over})[1]
        if mode is not AutoresetMode.NEXT_STEP:
            over = np.zeros(3, bool)


def test_return_of_an_episode_tells_its_makespan() -> None:
    """Legal actions only: the return is ``-(makespan - bound) / bound``."""
    vector = CannVectorEnv(small("random"), num_envs=2)
    infos = vector.reset(seed=2)[1]
    rng = np.random.default_rng(0)
    while "final_info" not in infos:
        *_, infos = vector.step(legal(infos["action_mask"], rng))
    final = infos["final_info"]
    i = int(infos["_final_info"].argmax())
    bound = final["schedule"]["lower_bound_ns"][i]
    expected = -(final["schedule"]["makespan_ns"][i] - bound) / bound
    assert final["episode_return"][i] == pytest.approx(expected, abs=1e-9)
    assert final["episode_return"][i] == pytest.approx(final["terms"]["progress"][i], abs=1e-12)


# --- reset -------------------------------------------------------------------------------------------


def test_some_environments_can_be_reset() -> None:
    """Environment 1 begins its next episode, or one of another seed; environment 0 does not notice."""
    scenario = small("random")
    vector = CannVectorEnv(scenario, num_envs=2)
    single = CannEnv(scenario, env_index=1)
    vector.reset(seed=4)
    single.reset(seed=4)
    before = vector.step(vector.action_masks().argmax(axis=1))
    for arguments in ({}, {"seed": 8}, {"seed": [None, 6]}):
        options = {"reset_mask": np.array([False, True])}
        observations, infos = vector.reset(options=options, **arguments)
        assert_row(observations, 0, row_of(before[0], 0))
        assert infos["time_ns"][0] == before[4]["time_ns"][0]
        seed = arguments.get("seed")
        observation, info = single.reset(seed=seed[1] if isinstance(seed, list) else seed)
        assert_row(observations, 1, observation)
        assert_row(infos, 1, info)


def test_seeds_can_be_given_one_by_one() -> None:
    scenario = small("random")
    vector = CannVectorEnv(scenario, num_envs=2)
    observations, _ = vector.reset(seed=[3, 11])
    for i, seed in enumerate((3, 11)):
        assert_row(observations, i, CannEnv(scenario, env_index=i).reset(seed=seed)[0])


def test_without_a_seed_runs_differ_and_go_on() -> None:
    vector = CannVectorEnv(small("random"), num_envs=2)
    first = vector.reset()[0]
    second, infos = vector.reset()
    assert infos["episode_index"].tolist() == [1, 1]
    assert not np.array_equal(first["commands"], second["commands"])
    other = CannVectorEnv(small("random"), num_envs=2).reset()[0]
    assert not np.array_equal(first["commands"], other["commands"])


def test_an_instance_can_be_picked() -> None:
    scenario = small("random")
    vector = CannVectorEnv(scenario, num_envs=2)
    vector.reset(seed=4)
    observations, infos = vector.reset(options={"instance": 6})
    assert infos["episode_index"].tolist() == [6, 6]
    single = CannEnv(scenario, env_index=1)
    single.reset(seed=4)
    assert_row(observations, 1, single.reset(options={"instance": 6})[0])
    assert vector.reset()[1]["episode_index"].tolist() == [7, 7]


def test_options_stay_as_they_are() -> None:
    vector = CannVectorEnv(small("pipeline"), num_envs=2)
    vector.reset(seed=0)
    options = {"reset_mask": np.array([True, False]), "instance": 3}
    before = copy.deepcopy(options)
    vector.reset(options=options)
    assert options.keys() == before.keys()
    assert np.array_equal(options["reset_mask"], before["reset_mask"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"seed": [1]}, "1 seeds; write one for each of the 2"),
        ({"seed": [1, -2]}, "environment 1 is -2"),
        ({"seed": [1, 2.5]}, "environment 1 is 2.5"),
        ({"seed": -1}, "environment 0 is -1"),
        ({"seed": "12"}, "seed is '12'"),
        ({"options": {"mask": 1}}, "'mask' is not known; there are 'instance' and 'reset_mask'"),
        ({"options": {"instance": -1}}, "'instance' is -1"),
        ({"options": {"reset_mask": np.array([1, 0])}}, "type int64"),
        ({"options": {"reset_mask": np.array([True])}}, r"shape \(1,\)"),
        ({"options": {"reset_mask": np.array([False, False])}}, "False everywhere"),
    ],
)
def test_wrong_resets_are_refused(arguments: dict[str, Any], words: str) -> None:
    vector = CannVectorEnv(small("pipeline"), num_envs=2)
    vector.reset(seed=0)
    with pytest.raises(InputError, match=words):
        vector.reset(**arguments)
    assert vector.reset()[1]["episode_index"].tolist() == [1, 1]


# --- steps -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("actions", "words"),
    [
        ([0], r"shape \(1,\); write a whole number from 0 to \d+ for each of the 2 environments"),
        (0, r"shape \(\)"),
        ([[0], [0]], r"shape \(2, 1\)"),
        ([[0], [0, 1]], "no plain array"),
        ([0.0, 1.0], "type float64"),
        ([True, False], "type bool"),
        ([None, 0], "type object"),
        ([0, 10**6], "action 1000000 of environment 1 is out of range"),
        ([-1, 0], "action -1 of environment 0 is out of range"),
        (np.array([0, 2**64 - 1], np.uint64), "environment 1 is out of range"),
    ],
)
def test_wrong_actions_are_refused(actions: Any, words: str) -> None:
    vector = CannVectorEnv(small("pipeline"), num_envs=2)
    _, before = vector.reset(seed=0)
    with pytest.raises(InputError, match=words):
        vector.step(actions)
    *_, after = vector.step(before["action_mask"].argmax(axis=1).tolist())
    assert after["invalid_actions"].tolist() == [0, 0]


def test_nothing_can_be_done_before_the_first_reset() -> None:
    vector = CannVectorEnv(small("pipeline"), num_envs=2)
    for ask in (
        lambda: vector.step([0, 0]),
        vector.action_masks,
        lambda: vector.environment(0),
        lambda: vector.reset(options={"reset_mask": np.array([True, False])}),
    ):
        with pytest.raises(EpisodeOverError, match=r"environment [01] has no episode yet; call reset\(\)"):
            ask()
    vector.reset()
    with pytest.raises(EpisodeOverError, match="no episode of environment 1 has ended yet"):
        vector.schedule(1)


def test_with_autoreset_disabled_the_end_is_the_end() -> None:
    vector = CannVectorEnv(small("pipeline"), num_envs=2, autoreset_mode="Disabled")
    infos = vector.reset(seed=0)[1]
    ended = np.zeros(2, bool)
    while not ended.any():
        _, _, terminations, truncations, infos = vector.step(infos["action_mask"].argmax(axis=1))
        ended = terminations | truncations
    with pytest.raises(EpisodeOverError, match="environment 0 is over"):
        vector.step([0, 0])
    _, infos = vector.reset(options={"reset_mask": ended})
    vector.step(infos["action_mask"].argmax(axis=1))


def test_what_is_handed_out_is_not_written_to_again() -> None:
    vector = CannVectorEnv(small("random"), num_envs=2)
    rng = np.random.default_rng(0)
    observations, infos = vector.reset(seed=0)
    kept = [(observations, infos)]
    frozen = [copy.deepcopy(kept[0])]
    for _ in range(30):
        observations, *numbers, infos = vector.step(legal(infos["action_mask"], rng))
        kept.append((observations, infos | dict(enumerate(numbers))))
        frozen.append(copy.deepcopy(kept[-1]))
    for (seen, told), (seen_2, told_2) in zip(kept, frozen, strict=True):
        assert_equal(seen, seen_2)
        assert_equal(told, told_2, extra=frozenset())
    for (earlier, _), (later, _) in pairwise(kept):
        assert not any(np.shares_memory(earlier[name], later[name]) for name in later)


@pytest.mark.parametrize("observation", ["window", "graph"])
def test_without_copy_the_arrays_are_the_same_again(observation: str) -> None:
    scenario = small("random")
    fresh = CannVectorEnv(scenario, num_envs=2, observation=observation)
    reused = CannVectorEnv(scenario, num_envs=2, observation=observation, copy=False)
    first, infos = reused.reset(seed=0)
    fresh.reset(seed=0)
    actions = infos["action_mask"].argmax(axis=1)
    second = reused.step(actions)[0]
    assert all(np.shares_memory(first[name], second[name]) for name in second)
    assert_equal(second, fresh.step(actions)[0])
    assert_equal(first, second)


# --- looking back ------------------------------------------------------------------------------------


def test_schedule_is_that_of_the_episode_that_ended_last() -> None:
    scenario = small("random", noise=0.2)
    vector = CannVectorEnv(scenario, num_envs=2)
    single = CannEnv(scenario, env_index=1)
    infos = vector.reset(seed=1)[1]
    for seed in (1, None):
        single.reset(seed=seed)
        *_, infos = vector.step(infos["action_mask"].argmax(axis=1))
        while not infos.get("_final_info", np.zeros(2))[1]:
            *_, infos = vector.step(infos["action_mask"].argmax(axis=1))
        schedule = vector.schedule(1)
        for action in schedule.actions:
            single.step(action)
        assert single.schedule() == schedule
        assert schedule.makespan_ns == infos["final_info"]["schedule"]["makespan_ns"][1]


def test_a_single_environment_can_go_its_own_way() -> None:
    """It first does what environment 1 does next, then goes on; environment 1 stays where it was."""
    vector = CannVectorEnv(small("random"), num_envs=2)
    infos = vector.reset(seed=1)[1]
    actions = infos["action_mask"].argmax(axis=1)
    *_, infos = vector.step(actions)
    branch = vector.environment(1)
    actions = infos["action_mask"].argmax(axis=1)
    observation, reward, *_ = branch.step(int(actions[1]))
    branch.step(int(branch.action_masks().argmax()))
    results = vector.step(actions)
    assert_row(results[0], 1, observation)
    assert results[1][1] == reward


def test_copies_and_pickles_go_on_alike() -> None:
    vector = CannVectorEnv(small("random"), num_envs=2)
    infos = vector.reset(seed=1)[1]
    vector.step(infos["action_mask"].argmax(axis=1))
    twin = copy.deepcopy(vector)
    rng = np.random.default_rng(0)
    for _ in range(20):
        actions = legal(vector.action_masks(), rng)
        mine, theirs = vector.step(actions), twin.step(actions)
        assert_equal(theirs[0], mine[0])
        assert np.array_equal(theirs[1], mine[1])


def test_rendering_gives_a_picture_of_each() -> None:
    vector = CannVectorEnv(small("pipeline"), num_envs=2, render_mode="ansi")
    infos = vector.reset(seed=0)[1]
    vector.step(infos["action_mask"].argmax(axis=1))
    single = CannEnv(small("pipeline"), render_mode="ansi")
    single.reset(seed=0)
    single.step(int(infos["action_mask"][0].argmax()))
    assert vector.render() == (single.render(), single.render())


# --- the house ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("env_id", ENVIRONMENTS)
def test_make_vec_finds_it(env_id: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        vector = gymnasium.make_vec(f"cann_env:{env_id}", num_envs=2, autoreset_mode="NextStep")
        observations, _ = vector.reset(seed=0)
        vector.step(vector.action_space.sample())
    assert isinstance(vector, CannVectorEnv)
    assert vector.autoreset_mode is AutoresetMode.NEXT_STEP
    assert vector.spec.id == env_id and vector.spec.max_episode_steps is None
    assert vector.observation_space.contains(observations)
    assert gymnasium.envs.registration.EnvSpec.from_json(vector.spec.to_json()).id == env_id
    vector.close()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"num_envs": 0}, "num_envs is 0"),
        ({"num_envs": 2.0}, "num_envs is 2.0"),
        (
            {"autoreset_mode": "same"},
            "autoreset_mode is 'same'; write one of 'NextStep', 'SameStep', 'Disabled'",
        ),
        ({"render_mode": "svg"}, "render_mode is 'svg'"),
        ({"observation": "pixels"}, "observation is 'pixels'"),
        ({"memory_factor": -1}, "option 'memory_factor' is -1.0; write a number above 0"),
        ({"prefetch_mask": "loose"}, "key 'prefetch_mask' is 'loose'; write one of strict, free"),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        CannVectorEnv(small("pipeline"), **arguments)


def test_memory_and_mask_are_arguments() -> None:
    vector = gymnasium.make_vec(
        "cann_env:cann/Oversubscribed-v0", num_envs=2, memory_factor=0.5, prefetch_mask="free"
    )
    options = vector.scenario.options
    assert (options.memory_factor, options.prefetch_mask) == (0.5, "free")
    vector.close()


def test_docstring_tells_the_arguments_and_the_information() -> None:
    text = inspect.getdoc(CannVectorEnv) or ""
    tables = {part.split("\n", 1)[0]: part for part in text.split("## ")[1:]}
    own = set(re.findall(r"^\| `(\w+)`", tables["Arguments"], flags=re.MULTILINE))
    mine, single = (set(inspect.signature(env).parameters) for env in (CannVectorEnv, CannEnv))
    assert own == mine - single
    assert single < mine
    modes = re.findall(r'^\| `"(\w+)"`', tables["Autoreset"], flags=re.MULTILINE)
    assert sorted(modes) == sorted(mode.value for mode in AutoresetMode)
    rows = re.findall(r"^\| (`\w+.*?) \|", tables["Information"], flags=re.MULTILINE)
    told = {key for row in rows for key in re.findall(r"`(\w+)`", row)}
    vector = CannVectorEnv(small("pipeline"), num_envs=2, autoreset_mode="NextStep")
    infos = vector.reset(seed=0)[1]
    while "schedule" not in infos:
        *_, infos = vector.step(infos["action_mask"].argmax(axis=1))
    assert told == {key for key in infos if not key.startswith("_")}


@pytest.fixture
def traced() -> Iterator[None]:
    """All memory that is asked for is counted."""
    tracemalloc.start()
    yield
    tracemalloc.stop()


@pytest.mark.slow
@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("name", ["pipeline", "random"])
def test_memory_stays_flat(name: str) -> None:
    """8000 steps in some hundred episodes leave less than 200 kB behind, all caches being full."""
    vector = CannVectorEnv(small(name), num_envs=4, instances=16)
    rng = np.random.default_rng(0)
    masks = vector.reset(seed=0)[1]["action_mask"]
    held = []
    for steps in (400, 2000):  # the first fill the pool of graphs
        for _ in range(steps):
            masks = vector.step(legal(masks, rng))[4]["action_mask"]
        gc.collect()
        held.append(tracemalloc.get_traced_memory()[0])
    assert held[1] - held[0] < 200_000


DIGEST = """
import hashlib, json, sys
import numpy as np
from cann_env.envs import CannVectorEnv
vector = CannVectorEnv(json.loads(sys.argv[1]), num_envs=2)
digest = hashlib.sha256()
masks = vector.reset(seed=3)[1]["action_mask"]
rng = np.random.default_rng(0)
for _ in range(25):
    actions = (rng.random(masks.shape) * masks).argmax(axis=1)
    observations, rewards, terminations, _, infos = vector.step(actions)
    masks = infos["action_mask"]
    for array in (*observations.values(), rewards, terminations, masks, infos["time_ns"]):
        digest.update(np.ascontiguousarray(array).tobytes())
print(digest.hexdigest())
"""


@pytest.mark.slow
def test_uncompiled_and_other_hash_seeds_give_the_same() -> None:
    scenario = json.dumps(small("random", noise=0.2))
    digests = set()
    for extra in ({"NUMBA_DISABLE_JIT": "1"}, {"PYTHONHASHSEED": "0"}, {"PYTHONHASHSEED": "7"}):
        run = subprocess.run(
            [sys.executable, "-W", "error", "-c", DIGEST, scenario],
            env={**os.environ, **extra},
            capture_output=True,
            text=True,
            check=False,
        )
        assert run.returncode == 0, run.stderr
        digests.add(run.stdout)
    assert len(digests) == 1
