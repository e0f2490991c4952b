"""The Gymnasium environment: its contract in words and in spaces, episodes, snapshots, rendering, endings."""

from __future__ import annotations

import copy
import json
import os
import pickle
import re
import subprocess
import sys
import warnings
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env, data_equivalence
from toys import toy_chain, toy_device, toy_squeeze, vector

from cann_env import ENVIRONMENTS, InputError
from cann_env.engine import layout as at
from cann_env.engine import observe as observation
from cann_env.engine.observe_graph import OBS_NODE
from cann_env.envs import CannEnv, EpisodeOverError
from cann_env.envs.instances import ProgramSource
from cann_env.envs.reward import RewardTerms, reward_terms
from cann_env.graph import CommandGraph
from cann_env.lowering import Needs
from cann_env.scenario import Scenario, load_scenario
from cann_env.units import MemoryAllocationError
from cann_env.validate import validate

if TYPE_CHECKING:
    from cann_env.workloads.description import Target

IDS = sorted(ENVIRONMENTS)
MODES = ["window", "graph"]
EVERY = [(env_id, mode) for env_id in IDS for mode in MODES]


def make(env_id: str = "cann/Pipeline-v0", **arguments: Any) -> CannEnv:
    env = gymnasium.make(env_id, **arguments).unwrapped
    assert isinstance(env, CannEnv)
    return env


@dataclass(frozen=True)
class Fixed:
    """A workload that is always the same graph."""

    graph: CommandGraph
    fixed: bool = True

    def build(self, rng: np.random.Generator, target: Target, name: str) -> CommandGraph:
        return self.graph


TOY_OPTIONS = {"streams": 4, "submission": "sink", "run_ahead": None, "prefetches": 4, "l2_prefetches": 0}


def env_of(graph: CommandGraph, **options: Any) -> CannEnv:
    """An environment that plays one graph on the toy device."""
    env = CannEnv(options={**TOY_OPTIONS, **options})
    env.scenario = Scenario(
        name="toy",
        description="A toy.",
        device=toy_device(),
        workload=Fixed(graph),  # type: ignore[arg-type]
        options=env.scenario.options,
    )
    env.source = ProgramSource(env.scenario)
    return env


def legal(info: dict[str, Any]) -> np.ndarray:
    return np.flatnonzero(info["action_mask"])


def play(env: CannEnv, rng: np.random.Generator, **reset: Any) -> list[Any]:
    """Everything an episode of random legal actions gives, step by step."""
    given: list[Any] = [env.reset(**reset)]
    done = False
    options = env.unwrapped.program.options  # type: ignore[attr-defined]
    while not done:
        choices = legal(given[-1][-1])
        if given[-1][0]["device"][12] > 0.5:  # half the steps are gone: leave buffers alone
            moves = int(env.action_space.n) - 1 - options.slots  # type: ignore[attr-defined]
            others = choices[(choices < moves) | (choices >= moves + options.slots)]
            choices = others if others.size else choices
        given.append(env.step(int(rng.choice(choices))))
        done = given[-1][2] or given[-1][3]
    return given


def same(a: Any, b: Any) -> bool:
    return bool(data_equivalence(a, b, exact=True))


# --- what the checkers of others say ------------------------------------------------------------------


@pytest.mark.parametrize(("env_id", "mode"), EVERY)
def test_gymnasium_finds_nothing_to_warn_about(env_id: str, mode: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(gymnasium.make(env_id, observation=mode).unwrapped)


@pytest.fixture(scope="session")
def sb3_check_env() -> Any:
    return pytest.importorskip("stable_baselines3.common.env_checker").check_env


@pytest.mark.parametrize(("env_id", "mode"), EVERY)
def test_stable_baselines_finds_nothing_to_warn_about(env_id: str, mode: str, sb3_check_env: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sb3_check_env(gymnasium.make(env_id, observation=mode))


@pytest.mark.parametrize(("env_id", "mode"), EVERY)
def test_a_specification_survives_json(env_id: str, mode: str) -> None:
    """Made again from text, it plays the same episode."""
    env = gymnasium.make(env_id, observation=mode, options={"commands": 5})
    text = env.spec.to_json()
    json.loads(text)
    again = gymnasium.make(gymnasium.envs.registration.EnvSpec.from_json(text))
    assert again.spec == env.spec
    assert again.observation_space == env.observation_space
    assert again.action_space == env.action_space
    assert same(again.reset(seed=3), env.reset(seed=3))


@pytest.mark.parametrize("env_id", IDS)
def test_environments_are_registered(env_id: str) -> None:
    spec = gymnasium.spec(env_id)
    assert spec.kwargs == {"scenario": ENVIRONMENTS[env_id]}
    assert gymnasium.make(f"cann_env:{env_id}").spec.id == env_id


@pytest.mark.slow
def test_environments_are_registered_by_importing_the_package() -> None:
    code = "import gymnasium; print(gymnasium.make('cann_env:cann/Pipeline-v0').spec.id)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "cann/Pipeline-v0"


# --- the contract in words ----------------------------------------------------------------------------

CONTRACT = CannEnv.__doc__ or ""


def section(title: str) -> str:
    return CONTRACT.split(f"## {title}\n")[1].split("\n    ## ")[0]


def table(text: str, *columns: str) -> list[dict[str, str]]:
    """Rows of the table with these first columns."""
    lines = [line.strip() for line in text.splitlines()]
    heads = [i for i, line in enumerate(lines) if line.startswith("| " + " | ".join(columns))]
    assert len(heads) == 1, columns
    names = [cell.strip() for cell in lines[heads[0]].strip("|").split("|")]
    rows = []
    for line in lines[heads[0] + 2 :]:
        if not line.startswith("|"):
            break
        rows.append(dict(zip(names, [cell.strip() for cell in line.strip("|").split("|")], strict=True)))
    return rows


def number(text: str, sizes: dict[str, int]) -> int:
    """Value of a product and sum of sizes, such as ``K*S + P + 1``."""
    assert re.fullmatch(r"[A-Z0-9*+ ]+", text), text
    total = 0
    for term in text.split("+"):
        product = 1
        for factor in term.split("*"):
            product *= int(factor) if factor.strip().isdigit() else sizes[factor.strip()]
        total += product
    return total


def sizes_of(env: CannEnv) -> dict[str, int]:
    options = env.scenario.options
    sizes = {"K": options.commands, "S": options.streams, "P": options.slots}
    if env.graph_capacity is not None:
        sizes |= {"N": env.graph_capacity.nodes, "E": env.graph_capacity.edges}
    return sizes


@pytest.mark.parametrize("window", ["issuable", "startable"])
@pytest.mark.parametrize("env_id", IDS)
def test_the_table_of_actions_is_the_action_space(env_id: str, window: str) -> None:
    env = make(env_id, options={"window": window, "prefetches": 1, "l2_prefetches": 2, "offloads": 0})
    sizes = sizes_of(env)
    if window == "startable":
        sizes["S"] = 1  # as the text says
    text = section("Action Space")
    stated = re.search(r"`Discrete\(([^)]*)\)`", text)
    assert stated
    assert env.action_space == gymnasium.spaces.Discrete(number(stated.group(1), sizes))
    rows = {row["Name"]: row["Num"].strip("`") for row in table(text, "Num", "Name")}
    assert rows == {"issue": "k*S + s", "prefetch": "K*S + p", "wait": "K*S + P"}
    assert number(rows["wait"], sizes) == env.action_space.n - 1


def stated_boxes(env: CannEnv) -> dict[str, gymnasium.spaces.Box]:
    """The observation space as the tables state it."""
    sizes = sizes_of(env)
    first, *more = section("Observation Space").split('With `observation="graph"`')
    rows = table(first, "Key", "Shape", "Low", "High")
    if env.graph_capacity is not None:
        rows += table(more[0], "Key", "Shape", "Low", "High")
    boxes = {}
    for row in rows:
        shape = re.fullmatch(r"\((.+),\)", row["Shape"])
        assert shape
        low, high = number(row["Low"], sizes), number(row["High"], sizes)
        boxes[row["Key"].strip("`")] = gymnasium.spaces.Box(
            low, high, (number(shape.group(1), sizes),), np.float32
        )
    if not sizes["P"]:
        assert "absent if P is 0" in next(row["Meaning"] for row in rows if row["Key"] == "`moves`")
        del boxes["moves"]
    return boxes


@pytest.mark.parametrize("prefetches", [0, 3])
@pytest.mark.parametrize(("env_id", "mode"), EVERY)
def test_the_tables_of_observations_are_the_observation_space(
    env_id: str, mode: str, prefetches: int
) -> None:
    slots = {"prefetches": prefetches, "l2_prefetches": prefetches, "offloads": 0}
    env = make(env_id, observation=mode, options=slots)
    assert env.observation_space == gymnasium.spaces.Dict(stated_boxes(env))


@pytest.mark.parametrize(
    ("part", "width"),
    [
        ("commands", observation.OBS_COMMAND),
        ("streams", observation.OBS_STREAM),
        ("moves", observation.OBS_BUFFER),
        ("device", observation.OBS_DEVICE),
        ("nodes", OBS_NODE),
    ],
)
def test_every_column_is_described_once(part: str, width: int) -> None:
    text = " ".join(section("Observation Space").split())
    listed = re.search(rf"Columns of `{part}`: (.*?)\.(?: Columns| With|$)", text)
    assert listed
    items = [re.match(r"(\d+)(?:-(\d+))? ", item.strip()) for item in listed.group(1).split(";")]
    assert all(items)
    columns = [c for item in items if item for c in range(int(item[1]), int(item[2] or item[1]) + 1)]
    assert columns == list(range(width))


def test_the_table_of_arguments_is_the_signature() -> None:
    stated = {
        row["Argument"].strip("`"): row["Default"].strip('`"')
        for row in table(section("Arguments"), "Argument", "Default")
    }
    parameters = list(signature(CannEnv.__init__).parameters.values())[1:]
    assert stated == {parameter.name: str(parameter.default) for parameter in parameters}
    modes = next(
        row["Meaning"] for row in table(section("Arguments"), "Argument") if "render" in row["Argument"]
    )
    assert re.findall(r'`"(\w+)"`', modes) == CannEnv.metadata["render_modes"]


def test_info_holds_what_is_listed() -> None:
    env = make()
    given = play(env, np.random.default_rng(0), seed=0)
    listed = re.findall(r"`(\w+)`", section("Information").split("The timeline")[0])
    first, last = given[1][-1], given[-1][-1]
    assert listed[:4] == list(first)
    assert listed[4:] == ["schedule", *last["schedule"], "terms"]
    assert list(last) == [*first, "schedule", "terms"]
    named = [row["Term"].strip("`") for row in table(section("Rewards"), "Term", "When")]
    assert named == list(last["terms"]) == list(RewardTerms._fields)


# --- episodes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("env_id", "mode"), EVERY)
def test_the_same_seed_and_actions_give_the_same_episode(env_id: str, mode: str) -> None:
    first, second = make(env_id, observation=mode), make(env_id, observation=mode)
    given = play(first, np.random.default_rng(1), seed=7)
    assert same(play(second, np.random.default_rng(1), seed=7), given)
    assert all(step[0] in first.observation_space for step in given)


def test_arrays_are_fresh() -> None:
    """What was given stays as it was when the episode goes on."""
    env = make(observation="graph")
    observation, info = env.reset(seed=0)
    kept = copy.deepcopy((observation, info))
    env.step(int(legal(info)[0]))
    assert same((observation, info), kept)


@pytest.mark.parametrize("env_id", IDS)
def test_the_instance_of_an_episode_does_not_depend_on_what_was_done(env_id: str) -> None:
    """One plays two episodes, the other gives up at once: in the third both play the same graph and noise."""
    options = {"noise": 0.2}
    a, b = make(env_id, options=options), make(env_id, options=options)
    play(a, np.random.default_rng(0), seed=5)
    play(a, np.random.default_rng(1))
    b.reset(seed=5)
    b.reset()
    assert same(a.reset(), b.reset())
    assert a.program.graph == b.program.graph
    assert (a.get_state().noise == b.get_state().noise).all()
    assert a.get_state().key == (5, 0, 2)


def test_instances_vary_with_seed_index_and_episode() -> None:
    env = make("cann/Random-v0")
    graphs = []
    for seed, index, episode in [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1)]:
        env = make("cann/Random-v0", env_index=index)
        env.reset(seed=seed, options={"instance": episode})
        graphs.append(env.program.graph)
    assert len({repr(graph) for graph in graphs}) == 4


def test_noise_varies_though_the_graph_does_not() -> None:
    env = make("cann/Pipeline-v0", options={"noise": 0.2})
    env.reset(seed=0)
    first = env.get_state()
    env.reset()
    assert env.program is first.program
    assert (env.get_state().noise != first.noise).any()


def test_an_instance_can_be_picked() -> None:
    """Episode 2 by number, then 3 follows."""
    a, b = make("cann/Random-v0"), make("cann/Random-v0")
    a.reset(seed=4)
    a.reset()
    third, fourth = a.reset(), a.reset()
    options = {"instance": 2}
    assert same(b.reset(seed=4, options=options), third)
    assert options == {"instance": 2}
    assert same(b.reset(), fourth)
    assert fourth[1]["episode_index"] == 3


def test_without_a_seed_runs_differ_and_go_on() -> None:
    a, b = make("cann/Random-v0"), make("cann/Random-v0")
    a.reset()
    b.reset()
    assert a.get_state().key.seed != b.get_state().key.seed
    seed = a.get_state().key.seed
    a.reset()
    assert a.get_state().key == (seed, 0, 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"instance": -1}, "reset option 'instance' is -1; write the number of an episode, from 0"),
        ({"instance": 1.0}, "reset option 'instance' is 1.0; write the number of an episode, from 0"),
        ({"instance": True}, "reset option 'instance' is True; write the number of an episode, from 0"),
        ({"seed": 1}, "reset option 'seed' is not known; there is 'instance'"),
    ],
)
def test_wrong_reset_options_change_nothing(options: dict[str, Any], message: str) -> None:
    env, untouched = make("cann/Random-v0"), make("cann/Random-v0")
    env.reset(seed=1)
    untouched.reset(seed=1)
    with pytest.raises(InputError, match=re.escape(message)):
        env.reset(seed=9, options=options)
    assert same(env.reset(), untouched.reset())


@pytest.mark.parametrize("env_id", IDS)
def test_the_return_is_the_gap(env_id: str) -> None:
    env = make(env_id)
    given = play(env, np.random.default_rng(2), seed=2)
    outcome = given[-1][-1]["schedule"]
    bound = outcome["lower_bound_ns"]
    total = sum(step[1] for step in given[1:])
    assert abs(total + (outcome["makespan_ns"] - bound) / bound) < 1e-9
    schedule = env.schedule()
    assert validate(schedule) == ()
    assert schedule.makespan_ns == outcome["makespan_ns"]
    assert schedule.lower_bound_ns == bound
    assert schedule.peak_hbm_bytes == outcome["peak_hbm_bytes"]
    assert len(schedule.actions) == outcome["steps"] == len(given) - 1
    assert not given[-1][-1]["action_mask"].any()


# --- what is not allowed ------------------------------------------------------------------------------


def test_an_illegal_action_is_replaced_counted_and_penalised() -> None:
    """a -> b: at time zero only a to stream 0 is legal, so naming stream 1 does that all the same."""
    env, twin = (env_of(toy_chain(2), invalid_penalty=0.25) for _ in range(2))
    env.reset(seed=0)
    twin.reset(seed=0)
    wrong, right = env.step(1), twin.step(0)
    assert wrong[1] == right[1] - 0.25
    assert same(wrong[0], right[0])
    assert (wrong[-1]["invalid_actions"], right[-1]["invalid_actions"]) == (1, 0)
    last = env.step(0)
    assert last[-1]["terms"]["invalid"] == -0.25
    assert last[-1]["invalid_actions"] == 1


def test_masks_are_given_as_numbers_and_as_truth_values() -> None:
    env = env_of(toy_chain(2))
    _, info = env.reset(seed=0)
    assert info["action_mask"].dtype == np.int8
    assert env.action_masks().dtype == np.bool_
    assert (env.action_masks() == info["action_mask"]).all()
    assert np.flatnonzero(env.action_masks()).tolist() == [0]
    info["action_mask"][:] = 0  # a copy
    assert env.action_masks().any()


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (1.0, "action 1.0 is no whole number; write one from 0 to 68"),
        (True, "action True is no whole number; write one from 0 to 68"),
        (None, "action None is no whole number; write one from 0 to 68"),
        ("0", "action '0' is no whole number; write one from 0 to 68"),
        (np.zeros(1, np.int64), "action array([0]) is no whole number; write one from 0 to 68"),
        (np.float32(0), "action np.float32(0.0) is no whole number; write one from 0 to 68"),
        (-1, "action -1 is out of range; write one from 0 to 68"),
        (69, "action 69 is out of range; write one from 0 to 68"),
    ],
)
def test_what_is_no_action_is_refused(action: Any, message: str) -> None:
    env = env_of(toy_chain(2))
    env.reset(seed=0)
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        env.step(action)
    assert env.get_state().state[at.S_STEPS] == 0


@pytest.mark.parametrize("action", [0, np.int64(0), np.uint8(0), np.array(0)])
def test_every_form_of_a_whole_number_is_an_action(action: Any) -> None:
    env = env_of(toy_chain(2))
    env.reset(seed=0)
    assert env.step(action)[-1]["invalid_actions"] == 0


def test_there_must_be_an_episode() -> None:
    env = env_of(toy_chain(1))
    for question in (lambda: env.step(0), env.action_masks, env.schedule, env.get_state):
        with pytest.raises(EpisodeOverError, match=r"there is no episode yet; call reset\(\) first"):
            question()
    env.reset(seed=0)
    with pytest.raises(EpisodeOverError, match="has not finished"):
        env.schedule()
    assert env.step(0)[2]
    with pytest.raises(EpisodeOverError, match=r"the episode is over; call reset\(\) before step\(\)"):
        env.step(0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"observation": "pixels"}, "observation is 'pixels'; write one of 'window', 'graph'"),
        ({"render_mode": "svg"}, "render_mode is 'svg'; write one of 'ansi', 'rgb_array', 'human' or None"),
        (
            {"observation": "graph", "graph_capacity": (0, 5)},
            "graph_capacity is (0, 5); write two whole numbers of at least 1",
        ),
        ({"options": {"stream": 3}}, "key 'stream' is not known"),
        ({"scenario": "pipelin"}, "scenario 'pipelin' is not known"),
        ({"device": "ascend"}, "'ascend'"),
        ({"memory_factor": 0}, "option 'memory_factor' is 0.0; write a number above 0"),
        ({"memory_factor": float("nan")}, "option 'memory_factor' is nan; write a number above 0"),
        ({"memory_factor": "half"}, "key 'memory_factor' is 'half'; write a number"),
        ({"prefetch_mask": "loose"}, "key 'prefetch_mask' is 'loose'; write one of strict, free"),
        ({"prefetch_mask": 3}, "key 'prefetch_mask' is 3; write one of strict, free"),
        (
            {"memory_factor": 0.5, "options": {"memory_factor": 0.6}},
            "memory_factor is 0.5, and 0.6 in options; write it in one place",
        ),
        (
            {"memory_factor": 0.5, "options": {"hbm_bytes": "1 GiB"}},
            "options 'memory_factor' (0.5) and 'hbm_bytes' (1073741824) both set the memory; write one",
        ),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        CannEnv(**arguments)


@pytest.mark.parametrize("env_id", IDS)
def test_memory_and_mask_are_arguments_of_every_environment(env_id: str) -> None:
    env = gymnasium.make(f"cann_env:{env_id}", memory_factor=2.5, prefetch_mask="free")
    changed = CannEnv(ENVIRONMENTS[env_id], options={"memory_factor": 2.5, "prefetch_mask": "free"})
    assert env.unwrapped.scenario == changed.scenario
    assert changed.scenario.options.memory_factor == 2.5
    assert changed.scenario.options.prefetch_mask == "free"
    again = gymnasium.make(gymnasium.envs.registration.EnvSpec.from_json(env.spec.to_json()))
    assert again.unwrapped.scenario == changed.scenario


def test_memory_is_set_in_bytes_or_as_a_factor() -> None:
    """Oversubscribed has a factor; bytes take its place, as a factor takes that of a scenario's bytes."""
    sized = CannEnv("oversubscribed", options={"hbm_bytes": "28 MiB"}).scenario
    assert (sized.options.hbm_bytes, sized.options.memory_factor) == (28 << 20, None)
    again = CannEnv(sized.to_dict(), memory_factor=0.5).scenario.options
    assert (again.hbm_bytes, again.memory_factor) == (None, 0.5)
    kept = CannEnv("oversubscribed", options={"hbm_bytes": None}).scenario.options
    assert kept.memory_factor == load_scenario("oversubscribed").options.memory_factor


def test_a_graph_that_does_not_fit_the_observation_is_refused() -> None:
    env = CannEnv("pipeline", observation="graph", graph_capacity=(10, 1000))
    with pytest.raises(InputError, match=r"has 96 commands .* pass graph_capacity=\(96, "):
        env.reset(seed=0)


# --- snapshots ----------------------------------------------------------------------------------------


def advanced(env_id: str, steps: int, mode: str = "window") -> tuple[CannEnv, np.random.Generator]:
    """An environment in mid-episode, and the generator that played it."""
    env = make(env_id, observation=mode, options={"noise": 0.1})
    rng = np.random.default_rng(steps)
    _, info = env.reset(seed=steps)
    for _ in range(steps):
        info = env.step(int(rng.choice(legal(info))))[-1]
    return env, rng


def go_on(env: CannEnv, steps: int, seed: int) -> list[Any]:
    """The next steps with random legal actions, over the ends of episodes."""
    rng = np.random.default_rng(seed)
    given = []
    for _ in range(steps):
        done = not env.action_masks().any()
        given.append(env.reset() if done else env.step(int(rng.choice(np.flatnonzero(env.action_masks())))))
    return given


@pytest.mark.parametrize("copied", ["clone", "deepcopy", "pickle"])
@pytest.mark.parametrize("env_id", IDS)
def test_a_copy_takes_200_equal_steps(env_id: str, copied: str) -> None:
    env, _ = advanced(env_id, 11)
    make_copy = {
        "clone": lambda: env.clone(),
        "deepcopy": lambda: copy.deepcopy(env),
        "pickle": lambda: pickle.loads(pickle.dumps(env)),
    }[copied]
    first, second = make_copy(), make_copy()
    go_on(first, 30, seed=99)  # another future, which must not matter
    expected = go_on(env, 200, seed=1)
    assert same(go_on(second, 200, seed=1), expected)


@pytest.mark.parametrize("env_id", IDS)
def test_a_snapshot_can_be_restored_again_and_again(env_id: str) -> None:
    """Also into another environment of the same kind; reward terms and the next episode come with it."""
    env, _ = advanced(env_id, 11)
    snapshot = env.get_state()
    before = snapshot.state.copy()
    expected = go_on(env, 200, seed=1)
    for other in (env, make(env_id, options={"noise": 0.1})):
        other.set_state(snapshot)
        assert same(go_on(other, 200, seed=1), expected)
    assert (snapshot.state == before).all()


def test_a_snapshot_of_another_kind_is_refused() -> None:
    env, other = make(options={"commands": 4}), make()
    env.reset(seed=0)
    with pytest.raises(InputError, match="under other options"):
        other.set_state(env.get_state())


# --- rendering ----------------------------------------------------------------------------------------


def test_ansi_shows_streams_and_progress() -> None:
    env = make(render_mode="ansi")
    _, info = env.reset(seed=0)
    empty = env.render()
    for _ in range(30):
        info = env.step(int(legal(info)[0]))[-1]
    drawn = env.render()
    assert isinstance(empty, str)
    assert isinstance(drawn, str)
    assert [line.split("|")[0].strip() for line in drawn.splitlines()[:4]][1:] == [
        "stream 0",
        "stream 1",
        "stream 2",
    ]
    assert drawn != empty


def test_rgb_frames_have_one_size() -> None:
    env = make(render_mode="rgb_array")
    env.reset(seed=0)
    first = env.render()
    env.step(0)
    second = env.render()
    assert isinstance(first, np.ndarray)
    assert isinstance(second, np.ndarray)
    assert (first.dtype, first.ndim, first.shape[2]) == (np.uint8, 3, 3)
    assert first.shape == second.shape
    assert (first != second).any()


def test_human_prints_after_every_step(capsys: pytest.CaptureFixture[str]) -> None:
    env = make(render_mode="human")
    env.reset(seed=0)
    first = capsys.readouterr().out
    env.step(0)
    second = capsys.readouterr().out
    assert first.count("stream 0") == second.count("stream 0") == 1
    assert env.render() is None


def test_rendering_without_a_mode_warns() -> None:
    env = make()
    env.reset(seed=0)
    with pytest.warns(UserWarning, match="render_mode='ansi'"):
        assert env.render() is None


def test_rendering_changes_nothing() -> None:
    a, b = make(render_mode="ansi"), make()
    for env in (a, b):
        env.reset(seed=0)
    for action in (0, 1, 0, 2):
        a.render()
        assert same(a.step(action), b.step(action))


# --- endings ------------------------------------------------------------------------------------------


def test_the_step_budget_truncates() -> None:
    """Twenty weights and room for one: prefetched in turn, the least urgent first, they waste the budget."""
    env = env_of(toy_squeeze(20), hbm_bytes=64, prefetches=20)
    _, info = env.reset(seed=0)
    issues = 16 * 4
    steps, ended, truncated = 0, False, False
    while not (ended or truncated):
        moves = [action for action in legal(info) if issues <= action < issues + 20]
        waits = [action for action in legal(info) if action == issues + 20]
        action = int((moves[-1:] or waits or list(legal(info)))[0])
        _, reward, ended, truncated, info = env.step(action)
        steps += 1
    assert (ended, truncated, steps) == (False, True, 4 * (20 + 20))
    assert info["schedule"]["finished"] is False
    assert info["terms"]["failure"] == reward
    assert info["action_mask"].any()
    rest = 19 * (110 + 133 - 20)  # at the least: what is not done, one by one
    assert reward <= -rest / env.program.norm_ns
    with pytest.raises(EpisodeOverError):
        env.step(int(legal(info)[0]))


def test_running_out_of_memory_costs_more_than_any_finished_episode() -> None:
    """No legal action leads there, so memory is taken away behind the runtime's back."""
    env = env_of(toy_squeeze(2))
    _, info = env.reset(seed=0)
    state = env._now.state  # type: ignore[union-attr]
    state[int(env.program.image[at.P_STATE_DIE]) + at.SD_BYTES] = env.program.image[at.P_HBM_BYTES]
    total, ended = 0.0, False
    while not ended:
        _, reward, ended, _, info = env.step(int(legal(info)[0]))
        total += reward
    assert info["schedule"]["finished"] is False
    assert info["terms"]["failure"] < 0.0
    assert abs(total - sum(info["terms"].values())) < 1e-9
    longest = 2 * 110 + 2 * 1000  # both kernels, and far more than two faults
    assert total < -(longest - 399) / 399
    with pytest.raises(EpisodeOverError, match="has not finished"):
        env.schedule()


def test_reward_terms_add_up() -> None:
    """30 ns more of 100, one illegal action; then the same as a failure."""
    terms = reward_terms(30, 100, illegal=1, penalty=0.5, failed=False)
    assert terms == RewardTerms(progress=-0.3, invalid=-0.5, failure=0.0)
    assert terms.total == -0.8
    failed = reward_terms(30, 100, illegal=0, penalty=0.5, failed=True)
    assert failed == RewardTerms(progress=0.0, invalid=0.0, failure=-0.3)
    assert terms.plus(failed) == RewardTerms(progress=-0.3, invalid=-0.5, failure=-0.3)


def test_a_latency_objective_rewards_the_sum_of_latencies() -> None:
    """Requests r and q of 110 ns on the same four cores: latencies 110 and 220 instead of 110 each."""
    commands = tuple(vector(name, blocks=4, request=name) for name in "rq")
    env = env_of(CommandGraph("requests", commands), objective="latency")
    env.reset(seed=0)
    total = env.step(0)[1] + env.step(1)[1]
    assert abs(total + (110 + 220 - 220) / 220) < 1e-9


def least_hbm(env: CannEnv) -> int:
    """Bytes that the present graph needs even one command at a time."""
    return Needs(env.program.graph, env.program.device, env.program.options).least


@pytest.mark.parametrize("scenario", ["pipeline", "serving", "transformer"])
def test_legal_actions_never_run_out_of_memory(scenario: str) -> None:
    """With no byte more than one command at a time needs, or the fewest percent more that find places."""
    env = CannEnv(scenario)
    env.reset(seed=0)
    for percent in range(100, 200, 5):
        tight = CannEnv(scenario, options={"hbm_bytes": least_hbm(env) * percent // 100})
        try:
            tight.reset(seed=0)
        except MemoryAllocationError:
            continue
        break
    given = play(tight, np.random.default_rng(0), seed=0)
    assert given[-1][-1]["schedule"]["finished"]
    assert given[-1][-1]["schedule"]["peak_hbm_bytes"] <= tight.program.options.hbm_bytes
    assert given[-1][-1]["invalid_actions"] == 0
    assert validate(tight.schedule()) == ()


# --- processes ----------------------------------------------------------------------------------------

DIGEST = """
import hashlib, gymnasium, numpy as np
total = hashlib.sha256()
for env_id in {ids!r}:
    env = gymnasium.make("cann_env:" + env_id, observation="graph", options={{"noise": 0.2}}).unwrapped
    rng = np.random.default_rng(0)
    for seed in (3, None):
        given = env.reset(seed=seed)
        issues = env.action_space.n - 1 - env.program.options.slots
        done = False
        while not done:
            for key, value in sorted(given[0].items()):
                total.update(value.tobytes())
            mask = given[-1]["action_mask"].copy()
            if given[0]["device"][12] > 0.5 and (mask[-1] or mask[:issues].any()):
                mask[issues:-1] = 0  # half the steps are gone: leave buffers alone
            given = env.step(int(rng.choice(np.flatnonzero(mask))))
            total.update(repr(given[1]).encode())
            done = given[2] or given[3]
        total.update(repr(env.schedule()).encode())
print(total.hexdigest())
"""


@pytest.mark.slow
def test_environments_are_the_same_in_every_process() -> None:
    digests = set()
    for hash_seed in ("0", "1", "7"):
        done = subprocess.run(
            [sys.executable, "-c", DIGEST.format(ids=IDS)],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=True,
        )
        digests.add(done.stdout)
    assert len(digests) == 1
