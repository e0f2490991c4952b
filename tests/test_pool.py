"""Graphs of a run: which one an episode plays, what is kept of them, and that it stays bounded."""

from __future__ import annotations

import copy
import gc
import pickle
import resource
import threading
from collections import Counter, deque
from typing import Any

import numpy as np
import pytest
from vectors import Pair, assert_row, legal, small

from cann_env.engine.draw import instance_number, mix
from cann_env.engine.episodes import B_SLOT
from cann_env.envs import CannEnv, CannVectorEnv, EpisodeOverError
from cann_env.envs.instances import InstanceKey, ProgramSource, words_of
from cann_env.envs.pool import enlarged
from cann_env.envs.workers import Workers
from cann_env.scenario import Scenario
from cann_env.units import InputError

WORD = 2**32


def source_of(instances: int | None, name: str = "random") -> ProgramSource:
    return ProgramSource(Scenario.from_dict(small(name)), instances)


# --- which graph --------------------------------------------------------------------------------------


def test_mixing_loses_nothing() -> None:
    """Every step can be undone, so no two words give the same; and one bit changes half of the others."""
    words = range(0, WORD, WORD // 5000)
    mixed = [int(mix(word)) for word in words]
    assert len(set(mixed)) == len(mixed) and all(0 <= word < WORD for word in mixed)
    flipped = [(int(mix(word)) ^ int(mix(word ^ 1))).bit_count() for word in words]
    assert 14 < sum(flipped) / len(flipped) < 18


def test_numbers_are_known() -> None:
    """Worked out apart from the engine, so that they are the same wherever they are computed."""
    assert [int(mix(word)) for word in (0, 1, WORD - 1)] == [0, 0x31251BA7, 0x2028884F]
    assert int(instance_number(0, 0, 1, 256)) == 0x169F7942 % 256
    assert int(instance_number(0, 0, WORD, 256)) == 0x31251BA7 % 256


def test_every_graph_is_played_about_as_often() -> None:
    """6400 episodes and 64 graphs: 100 each, give or take five standard deviations."""
    source = source_of(64)
    numbers = Counter(
        source.number(InstanceKey(seed, index, episode))
        for seed in range(4)
        for index in range(16)
        for episode in range(100)
    )
    assert set(numbers) == set(range(64))
    assert all(50 < count < 150 for count in numbers.values())


def test_neighbours_play_different_sequences() -> None:
    source = source_of(64)
    sequences = {
        tuple(source.number(InstanceKey(seed, index, episode)) for episode in range(8))
        for seed in (0, 1, 2**32, 2**32 + 1, 2**80)
        for index in (0, 1, 2**32)
    }
    assert len(sequences) == 15
    assert words_of(1, 0) != words_of(0, 1)


def test_a_run_plays_no_more_graphs_than_it_may() -> None:
    env = CannEnv(small("random"), instances=3)
    graphs = {}
    for episode in range(20):
        env.reset(seed=4 if episode == 0 else None)
        graphs[repr(env.program.graph)] = env.program
    assert len(graphs) == 3
    numbers = [env.source.number(InstanceKey(4, 0, episode)) for episode in range(20)]
    expected = {repr(env.scenario.graph(4, 0, number)) for number in numbers if number is not None}
    assert set(graphs) == expected


def test_without_a_limit_every_episode_has_a_graph_of_its_own() -> None:
    env = CannEnv(small("random"), instances=None, env_index=2)
    graphs = []
    for episode in range(5):
        env.reset(seed=4 if episode == 0 else None)
        assert env.program.graph == env.scenario.graph(4, 2, episode)
        graphs.append(repr(env.program.graph))
    assert len(set(graphs)) == 5


def test_a_graph_is_compiled_once() -> None:
    env = CannEnv(small("random"), instances=2)
    env.reset(seed=0)
    programs = {id(env.program): env.program}
    for _ in range(10):
        env.reset()
        programs[id(env.program)] = env.program
    assert len(programs) == 2


@pytest.mark.parametrize("instances", [0, -1, 2.0, True, "8", 65537])
def test_wrong_limits_are_refused(instances: Any) -> None:
    for environment in (CannEnv, CannVectorEnv):
        with pytest.raises(
            InputError, match=r"instances is .*; write a whole number from 1 to 65536, or None"
        ):
            environment(small("random"), instances=instances)


@pytest.mark.parametrize("threads", [0, 1.0, True, None])
def test_wrong_numbers_of_threads_are_refused(threads: Any) -> None:
    with pytest.raises(InputError, match=r"threads is .*; write a whole number of at least 1"):
        CannVectorEnv(small("random"), threads=threads)


@pytest.mark.parametrize("index", [-1, 0.5, None])
def test_wrong_indices_are_refused(index: Any) -> None:
    with pytest.raises(InputError, match=r"env_index is .*; write a whole number, from 0"):
        CannEnv(small("random"), env_index=index)


# --- what is kept -------------------------------------------------------------------------------------


def play(vector: CannVectorEnv, masks: np.ndarray, steps: int, rng: np.random.Generator) -> np.ndarray:
    for _ in range(steps):
        masks = vector.step(legal(masks, rng))[4]["action_mask"]
    return masks


def images_of(vector: CannVectorEnv) -> int:
    """Rows of images that belong to a graph."""
    return sum(owner is not None for owner in vector._rows._pool._owners)


def test_images_are_shared() -> None:
    """Six environments and two graphs: two images, however long they play."""
    vector = CannVectorEnv(small("random"), num_envs=6, instances=2)
    masks = vector.reset(seed=0)[1]["action_mask"]
    play(vector, masks, 200, np.random.default_rng(0))
    assert images_of(vector) == 2
    assert vector._rows._pool.images.shape[0] <= 8


def test_a_workload_that_never_varies_has_one_image() -> None:
    vector = CannVectorEnv(small("pipeline"), num_envs=4)
    vector.reset(seed=[1, 2, 3, 4])
    vector.reset(seed=7)
    assert images_of(vector) == 1
    assert len(set(vector._rows.books.book[:, B_SLOT].tolist())) == 1


def test_several_runs_share_the_room() -> None:
    """Four runs of eight graphs each, in the room of 8 + 4 images; each plays what it would play alone."""
    pair = Pair(small("random"), count=4, instances=8)
    seeds = [11, 12, 13, 14]
    pair.vector.reset(seed=seeds)
    for single, seed in zip(pair.singles, seeds, strict=True):
        single.reset(seed=seed)
    rng = np.random.default_rng(0)
    pair.masks = pair.vector.action_masks()
    while pair.ends < 60:
        pair.step(legal(pair.masks, rng))
    assert pair.vector._rows._pool.images.shape[0] <= 12
    assert images_of(pair.vector) == 12


def test_runs_that_nobody_plays_are_dropped() -> None:
    vector = CannVectorEnv(small("random"), num_envs=2, instances=4)
    for seed in range(30):
        vector.reset(seed=seed)
    pool = vector._rows._pool
    assert pool.table.shape[0] <= 4
    assert set(pool._runs) == {29}
    assert images_of(vector) <= 2


def test_the_run_of_an_episode_that_ended_can_still_be_looked_at() -> None:
    """Another seed is set after the end; the schedule of the old one is played again from its key."""
    scenario = small("random", noise=0.1)
    vector, single = CannVectorEnv(scenario, num_envs=2), CannEnv(scenario, env_index=1)
    masks = vector.reset(seed=3)[1]["action_mask"]
    infos: dict[str, Any] = {}
    while not infos.get("_final_info", np.zeros(2))[1]:
        *_, infos = vector.step(masks.argmax(axis=1))
        masks = infos["action_mask"]
    vector.reset(seed=8)
    schedule = vector.schedule(1)
    single.reset(seed=3)
    for action in schedule.actions:
        single.step(action)
    assert single.schedule() == schedule


def test_the_schedule_of_an_episode_that_did_not_finish_is_refused() -> None:
    vector = CannVectorEnv(small("random"), num_envs=1)
    vector.reset(seed=0)
    vector._rows.books.results[0] = 0  # planted: an episode of no steps that did not finish
    with pytest.raises(EpisodeOverError, match="environment 0 has not finished"):
        vector.schedule(0)


def test_a_failed_reset_leaves_no_half_begun_episode() -> None:
    """The first graph fits the graph observation, another one does not."""
    vector = CannVectorEnv(small("random"), num_envs=8, observation="graph", graph_capacity=(9, 400))
    with pytest.raises(InputError, match="pass graph_capacity="):
        vector.reset(seed=0)
    with pytest.raises(EpisodeOverError, match=r"has no episode yet; call reset\(\)"):
        vector.step(np.zeros(8, int))


def test_rows_lie_an_odd_number_of_cache_lines_apart() -> None:
    array = np.arange(6).reshape(2, 3)
    larger = enlarged(array, 3, 20)
    assert larger.shape == (3, 24)
    assert (larger[:2, :3] == array).all() and larger.sum() == array.sum()
    assert enlarged(array, 0, 9).shape == (2, 24)


# --- threads ------------------------------------------------------------------------------------------


def test_threads_share_the_parts_and_end_with_the_environment() -> None:
    before = threading.active_count()
    vector = CannVectorEnv(small("random"), num_envs=7, threads=3)
    masks = vector.reset(seed=0)[1]["action_mask"]
    play(vector, masks, 3, np.random.default_rng(0))
    assert threading.active_count() == before + 2
    vector.close()
    named = [thread for thread in threading.enumerate() if thread.name == "cann-env rows"]
    for thread in named:
        thread.join(timeout=5)
    assert threading.active_count() == before


def test_every_part_is_taken_once() -> None:
    """Ten parts and three that work, over and over: every row is counted, and counted once."""
    workers = Workers(3)
    parts = np.array_split(np.arange(1000), 10)
    for _ in range(50):
        counted = np.zeros(1000, int)

        def call(rows: np.ndarray, counted: np.ndarray = counted) -> tuple[int, ...]:
            counted[rows] += 1
            return int(rows.sum()), rows.size

        assert workers.run(call, parts) == (999 * 500, 1000)
        assert (counted == 1).all()
    workers.close()


def test_more_threads_than_environments_are_not_started() -> None:
    before = set(threading.enumerate())
    vector = CannVectorEnv(small("random"), num_envs=1, threads=4)
    masks = vector.reset(seed=0)[1]["action_mask"]
    play(vector, masks, 3, np.random.default_rng(0))
    assert set(threading.enumerate()) <= before


def test_what_goes_wrong_in_a_thread_is_raised() -> None:
    workers = Workers(2)

    def call(rows: np.ndarray) -> tuple[int, ...]:
        if rows[0] == 1:
            raise ValueError("in the other part")
        return (int(rows.sum()),)

    assert workers.run(call, [np.array([5]), np.array([3, 4])]) == (12,)
    with pytest.raises(ValueError, match="in the other part"):
        workers.run(call, [np.array([5]), np.array([1])])
    assert workers.run(call, [np.array([2]), np.array([3])]) == (5,)
    workers.close()


def test_an_interrupted_call_leaves_nothing_behind() -> None:
    """The caller has not waited for a part of an earlier call; the next call gets what is its own."""
    workers = Workers(2)

    def interrupted(rows: np.ndarray) -> tuple[int, ...]:
        if rows[0] == 0:
            raise KeyboardInterrupt
        return (100,)

    with pytest.raises(KeyboardInterrupt):
        workers.run(interrupted, [np.array([0]), np.array([1])])
    (worker,) = workers._workers
    worker.jobs.put((0, interrupted, deque([np.array([1])])))  # planted: nobody asks for what comes of it
    assert workers.run(lambda rows: (int(rows.sum()),), [np.array([2]), np.array([3])]) == (5,)
    workers.close()


@pytest.mark.parametrize("copied", ["deepcopy", "pickle"])
def test_a_copy_has_threads_of_its_own(copied: str) -> None:
    vector = CannVectorEnv(small("random"), num_envs=5, threads=2, copy=False)
    masks = vector.reset(seed=1)[1]["action_mask"]
    vector.step(masks.argmax(axis=1))
    twin = copy.deepcopy(vector) if copied == "deepcopy" else pickle.loads(pickle.dumps(vector))
    rng = np.random.default_rng(0)
    for _ in range(40):
        actions = legal(vector.action_masks(), rng)
        mine, theirs = vector.step(actions), twin.step(actions)
        for i in range(5):
            assert_row(theirs[0], i, {name: part[i] for name, part in mine[0].items()})
        assert not np.shares_memory(mine[1], theirs[1])
        assert np.array_equal(mine[1], theirs[1])


# --- nothing leaks ------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("how", [{}, {"copy": False, "threads": 2}])
def test_a_million_steps_leave_memory_flat(how: dict[str, Any]) -> None:
    """4000 calls of 256 environments; after a quarter of them less than 4 MB more is ever resident."""
    vector = CannVectorEnv(small("random"), num_envs=256, instances=64, **how)
    rng = np.random.default_rng(0)
    masks = vector.reset(seed=0)[1]["action_mask"]
    masks = play(vector, masks, 1000, rng)
    gc.collect()
    warm_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    play(vector, masks, 3000, rng)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - warm_kb < 4096
    vector.close()
