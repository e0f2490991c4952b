"""The environments under Stable-Baselines3: equal to ``DummyVecEnv``, and all that its callers rely on."""

from __future__ import annotations

import copy
import importlib
import json
import pickle
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("sb3_contrib")

from sb3_contrib import MaskablePPO  # noqa: E402
from sb3_contrib.common.maskable.evaluation import evaluate_policy  # noqa: E402
from sb3_contrib.common.maskable.utils import get_action_masks, is_masking_supported  # noqa: E402
from stable_baselines3.common.monitor import Monitor  # noqa: E402
from stable_baselines3.common.vec_env import DummyVecEnv, VecMonitor, VecNormalize  # noqa: E402

from agents.vec_env import CannVecEnv, make_vec_env  # noqa: E402
from cann_env.envs import CannEnv, CannVectorEnv, EpisodeOverError  # noqa: E402
from cann_env.scenario import load_scenario  # noqa: E402
from cann_env.units import InputError  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "learning.md"


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Networks this small only lose by more."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def small(**options: Any) -> dict[str, Any]:
    """Random graphs of a few commands, a new one in every episode."""
    tables = load_scenario("random").to_dict()
    tables["workload"] |= {"least_commands": 3, "most_commands": 8, "families": ["layered", "fork_join"]}
    tables["options"] |= {"streams": 3, "commands": 4, "run_ahead": 6, **options}
    return tables


def made(count: int = 2, **arguments: Any) -> CannVecEnv:
    return CannVecEnv(CannVectorEnv(small(), num_envs=count, **arguments))


def model_for(envs: Any, **arguments: Any) -> MaskablePPO:
    """A small model that has learned nothing yet."""
    return MaskablePPO(
        "MultiInputPolicy", envs, seed=3, batch_size=16, policy_kwargs={"net_arch": [8]}, **arguments
    )


def dummy(scenario: Any, count: int, **arguments: Any) -> DummyVecEnv:
    """What the environments must equal."""
    return DummyVecEnv(
        [lambda i=i: Monitor(CannEnv(scenario, env_index=i, **arguments)) for i in range(count)]
    )


def mixed(masks: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A random action of each row, most of them legal."""
    wild = rng.integers(masks.shape[1], size=len(masks))
    legal = (rng.random(masks.shape) * masks).argmax(axis=1)
    return np.where(rng.random(len(masks)) < 0.8, legal, wild)


def first_legal(envs: Any) -> np.ndarray:
    return get_action_masks(envs).argmax(axis=1)


def assert_same(one: Any, other: Any) -> None:
    """Equal to the bit and of the same type, all the way down."""
    assert type(one) is type(other)
    if isinstance(one, dict):
        assert set(one) == set(other)
        for key in one:
            assert_same(one[key], other[key])
    elif isinstance(one, np.ndarray):
        assert one.dtype == other.dtype
        assert np.array_equal(one, other)
    else:
        assert one == other


def play_to_an_end(envs: Any) -> tuple[int, list[dict[str, Any]]]:
    """Take the first legal action until an episode ends: of which environment, and the information."""
    while True:
        _, _, dones, infos = envs.step(first_legal(envs))
        if dones.any():
            return int(dones.argmax()), infos


# --- equal to DummyVecEnv -----------------------------------------------------------------------------


@pytest.mark.parametrize("given_copy", [True, False])
@pytest.mark.parametrize("observation", ["window", "graph"])
def test_plays_what_dummy_vec_env_plays(observation: str, given_copy: bool) -> None:
    """Observations, rewards, ends and masks of each step; all information at the end of each episode."""
    capacity = (40, 120) if observation == "graph" else None
    arguments = {"observation": observation, "graph_capacity": capacity}
    envs = CannVecEnv(CannVectorEnv(small(noise=0.2), num_envs=3, copy=given_copy, **arguments))
    others = dummy(small(noise=0.2), 3, **arguments)
    assert envs.observation_space == others.observation_space
    assert envs.action_space == others.action_space
    assert envs.seed(7) == others.seed(7) == [7, 8, 9]
    assert_same(dict(envs.reset()), dict(others.reset()))
    rng = np.random.default_rng(0)
    ends = 0
    while ends < 5:
        masks = get_action_masks(envs)
        assert_same(masks, get_action_masks(others))
        assert_same(masks, envs.action_masks())
        actions = mixed(masks, rng)
        ours, theirs = envs.step(actions), others.step(actions)
        assert_same(dict(ours[0]), dict(theirs[0]))
        assert_same(ours[1], theirs[1])
        assert_same(ours[2], theirs[2])
        assert (ours[1].dtype, ours[2].dtype, type(ours[3]), len(ours[3])) == (np.float32, np.bool_, list, 3)
        for row in range(3):
            if not ours[2][row]:
                assert ours[3][row] == {}
                continue
            ends += 1
            mine, others_own = (dict(infos[row]["episode"]) for infos in (ours[3], theirs[3]))
            assert mine.pop("t") >= 0.0
            others_own.pop("t")
            assert mine == pytest.approx(others_own, abs=1e-6)
            assert_same({**ours[3][row], "episode": 0}, {**theirs[3][row], "episode": 0})
            assert_same(envs.reset_infos[row], others.reset_infos[row])


def test_seeds_and_options_count_for_one_reset() -> None:
    """Seeds, then none, then options for all, then another for each, with seeds, then none again."""
    envs, others = made(3), dummy(small(), 3)
    for prepare in (
        lambda each: each.seed(3),
        lambda each: None,
        lambda each: each.set_options({"instance": 4}),
        lambda each: (each.seed(9), each.set_options([{"instance": 2}, {}, {"instance": 0}])),
        lambda each: None,
    ):
        prepare(envs)
        prepare(others)
        assert_same(dict(envs.reset()), dict(others.reset()))
        assert [info["episode_index"] for info in envs.reset_infos] == [
            info["episode_index"] for info in others.reset_infos
        ]
        for mine, other in zip(envs.reset_infos, others.reset_infos, strict=True):
            assert_same(mine, other)


def test_a_model_learns_the_same_from_both() -> None:
    """The same draws, the same parameters, and the same episodes in the log, without ``VecMonitor``."""

    def trained(envs: Any) -> MaskablePPO:
        return model_for(envs, n_steps=16, n_epochs=2).learn(64)

    ours, theirs = trained(made()), trained(dummy(small(), 2))
    for name, value in theirs.policy.state_dict().items():
        assert torch.equal(ours.policy.state_dict()[name], value), name
    logs = [[(e["r"], e["l"]) for e in model.ep_info_buffer] for model in (ours, theirs)]
    assert len(logs[0]) > 2
    assert np.allclose(*logs, atol=1e-6)


# --- ends ---------------------------------------------------------------------------------------------


def test_only_ends_by_the_step_budget_are_called_truncated(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environments below are made to swap their two kinds of end for one of two episodes."""
    envs = made()
    envs.seed(0)
    envs.reset()
    row, infos = play_to_an_end(envs)
    assert infos[row]["TimeLimit.truncated"] is False
    step = envs.envs.step

    def swapped(actions: np.ndarray) -> Any:
        observations, rewards, terminations, truncations, found = step(actions)
        return observations, rewards, truncations, terminations, found

    monkeypatch.setattr(envs.envs, "step", swapped)
    row, infos = play_to_an_end(envs)
    assert infos[row]["TimeLimit.truncated"] is True
    assert set(infos[row]["terminal_observation"]) == set(envs.observation_space.spaces)


@pytest.mark.parametrize("given_copy", [True, False])
def test_nothing_that_was_returned_is_written_to(given_copy: bool) -> None:
    """Models add the last observation to their buffers after the next step was taken."""
    envs = made(copy=given_copy)
    envs.seed(0)
    kept = [(envs.reset(), get_action_masks(envs), envs.env_method("action_masks"))]
    as_it_was = copy.deepcopy(kept)
    ends = 0
    while ends < 2:
        results = envs.step(first_legal(envs))
        ends += int(results[2].sum())
        kept.append((*results, get_action_masks(envs)))
        as_it_was.append(copy.deepcopy(kept[-1]))
    for now, then in zip(kept, as_it_was, strict=True):
        for one, other in zip(now, then, strict=True):
            for mine, its in zip(one, other, strict=True) if isinstance(one, list) else [(one, other)]:
                assert_same(mine, its)


def test_whatever_is_returned_may_be_changed() -> None:
    """``MaskablePPO`` adds to rewards in place, wrappers write into information: no later step knows."""
    envs, twin = made(), made()
    for each in (envs, twin):
        each.seed(0)
        each.reset()
    ends = 0
    while ends < 2:
        actions = first_legal(envs)
        observations, rewards, dones, infos = envs.step(actions)
        assert_same(rewards, twin.step(actions)[1])
        ends += int(dones.sum())
        for part in observations.values():
            part[...] = np.nan
        rewards[...], dones[...] = np.nan, True
        for info in infos:
            assert "mark" not in info
            info["mark"] = 1
    assert_same(dict(envs.step(first_legal(envs))[0]), dict(twin.step(first_legal(twin))[0]))


# --- single environments ------------------------------------------------------------------------------


def test_masks_are_found_before_and_after_reset() -> None:
    envs = made(3)
    assert is_masking_supported(envs)
    assert is_masking_supported(VecNormalize(envs, norm_obs=False))
    envs.reset()
    masks = envs.action_masks()
    assert (masks.dtype, masks.shape) == (np.bool_, (3, envs.action_space.n))
    assert_same(np.stack(envs.env_method("action_masks", indices=[2, 0])), masks[[2, 0]])
    assert_same(envs.env_method("action_masks", indices=1)[0], masks[1])
    assert_same(envs.get_attr("action_masks", 1)[0](), masks[1])


def test_single_environments_can_be_looked_at() -> None:
    envs = made(3)
    assert envs.get_attr("scenario", [0, 2]) == [envs.envs.scenario] * 2
    assert envs.get_attr("render_mode") == [None] * 3
    assert envs.get_attr("action_space", 0) == [envs.action_space]
    envs.seed(2)
    envs.reset()
    (program,) = envs.get_attr("program", 1)
    single = CannEnv(small(), env_index=1)
    single.reset(seed=3)
    assert program.graph == single.program.graph
    assert envs.env_method("clone", indices=1)[0].program is program
    row, infos = play_to_an_end(envs)
    (schedule,) = envs.env_method("schedule", indices=row)
    assert schedule.makespan_ns == infos[row]["schedule"]["makespan_ns"]


@pytest.mark.parametrize("name", ["step", "reset", "set_state", "close", "difficulty"])
def test_what_would_change_one_environment_alone_is_refused(name: str) -> None:
    """Silence would be worse: a copy would be changed and thrown away."""
    envs = made()
    envs.reset()
    assert not envs.has_attr(name)
    with pytest.raises(AttributeError, match=f"'{name}' one by one; there are action_masks, "):
        envs.env_method(name)
    with pytest.raises(InputError, match=f"'{name}' of an environment cannot be set"):
        envs.set_attr(name, 1)


def test_statistics_count_as_those_of_monitor_and_evaluation_needs_no_other() -> None:
    envs = made()
    assert envs.env_is_wrapped(Monitor) == [True, True]
    assert envs.env_is_wrapped(gymnasium.wrappers.TimeLimit, indices=0) == [False]
    model = model_for(envs, n_steps=8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        returns, lengths = evaluate_policy(model, envs, n_eval_episodes=3, return_episode_rewards=True)
    assert len(returns) == len(lengths) == 3
    assert max(returns) < 0.0 < min(lengths)


def test_pictures_come_from_the_environments() -> None:
    pytest.importorskip("PIL")
    envs = made(render_mode="rgb_array")
    envs.reset()
    one, other = envs.get_images()
    assert one.shape == other.shape
    assert envs.render().shape == (2 * one.shape[0], *one.shape[1:])
    with pytest.warns(UserWarning, match="render_mode is None; images need 'rgb_array'"):
        assert made().get_images() == [None, None]


# --- wrappers, models, processes ----------------------------------------------------------------------


def test_wrappers_keep_what_they_need() -> None:
    """``VecNormalize`` writes into terminal observations and keeps the raw ones for a step."""
    envs, plain = made(), made()
    wrapped = VecNormalize(envs, norm_reward=False)
    for each in (wrapped, plain):
        each.seed(0)
        each.reset()
    ends = 0
    while not ends:
        actions = first_legal(plain)
        seen, _, dones, infos = wrapped.step(actions)
        raw, _, _, plain_infos = plain.step(actions)
        assert_same(dict(wrapped.get_original_obs()), raw)
        ends = int(dones.sum())
    row = int(dones.argmax())
    last = plain_infos[row]["terminal_observation"]
    assert_same(infos[row]["terminal_observation"], wrapped.normalize_obs(last))
    assert not np.array_equal(seen["device"], raw["device"])


def test_vec_monitor_finds_what_is_already_there() -> None:
    with pytest.warns(UserWarning, match="already wrapped with a `Monitor`"):
        wrapped = VecMonitor(made(), info_keywords=("time_ns",))
    plain = made()
    for each in (wrapped, plain):
        each.seed(0)
        each.reset()
    row, infos = play_to_an_end(wrapped)
    _, plain_infos = play_to_an_end(plain)
    found, own = infos[row]["episode"], plain_infos[row]["episode"]
    assert (found["l"], found["time_ns"]) == (own["l"], infos[row]["time_ns"])
    assert found["r"] == pytest.approx(own["r"], abs=1e-5)


def test_a_saved_model_goes_on(tmp_path: Path) -> None:
    model = model_for(made(), n_steps=8, n_epochs=1).learn(16)
    model.save(tmp_path / "model.zip")
    again = MaskablePPO.load(tmp_path / "model.zip", env=made())
    again.learn(16, reset_num_timesteps=False)
    assert again.num_timesteps == 32


def test_a_pickled_copy_plays_on_alike() -> None:
    envs = made()
    envs.seed(0)
    envs.reset()
    for _ in range(3):
        envs.step(first_legal(envs))
    twin = pickle.loads(pickle.dumps(envs))
    for _ in range(20):
        actions = first_legal(envs)
        ours, theirs = envs.step(actions), twin.step(actions)
        assert_same(ours[0], theirs[0])
        assert_same(ours[1], theirs[1])


# --- mistakes -----------------------------------------------------------------------------------------


def test_environments_without_the_bridge_fail_as_the_page_says() -> None:
    """Stable-Baselines3 takes a vector environment of Gymnasium for one of OpenAI Gym."""
    vector = CannVectorEnv(small(), num_envs=2)
    with pytest.raises(ValueError, match="not a Gymnasium") as error:
        MaskablePPO("MultiInputPolicy", vector)
    assert str(error.value) in PAGE.read_text("utf-8").replace("\n", " ")


def test_other_environments_and_modes_are_refused() -> None:
    with pytest.raises(InputError, match=r"envs is <.*>; pass what gymnasium\.make_vec"):
        CannVecEnv(CannEnv(small()))
    with pytest.raises(InputError, match="of envs is 'NextStep'; Stable-Baselines3 needs 'SameStep'"):
        made(autoreset_mode="NextStep")
    with pytest.raises(InputError, match="'copy' is not for make_vec_env"):
        make_vec_env("cann/Random-v0", 2, copy=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([{"instance": 1}], "there are 1 options; write one dictionary for each of the 2 environments"),
        ({"reset_mask": [True, False]}, "'reset_mask' is not known; there is 'instance'"),
        ([{}, {"instance": -1}], "'instance' is -1"),
    ],
)
def test_wrong_options_are_refused(options: Any, message: str) -> None:
    envs = made()
    envs.set_options(options)
    with pytest.raises(InputError, match=message):
        envs.reset()


def test_steps_need_actions_and_an_episode() -> None:
    envs = made()
    with pytest.raises(InputError, match=r"call step_async\(actions\) first"):
        envs.step_wait()
    with pytest.raises(EpisodeOverError, match="reset"):
        envs.step(np.zeros(2, np.int64))
    envs.reset()
    envs.step_async(first_legal(envs))
    envs.reset()
    with pytest.raises(InputError, match=r"call step_async\(actions\) first"):
        envs.step_wait()
    envs.step(first_legal(envs))
    with pytest.raises(InputError, match=r"call step_async\(actions\) first"):
        envs.step_wait()
    with pytest.raises(InputError, match="actions have shape"):
        envs.step(np.zeros(3, np.int64))


@pytest.mark.slow
def test_shares_of_a_learner_add_up(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The bridge is a part of the environments, and these of the whole; one step is more than its Python."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    module = importlib.import_module("learner_share")
    line = "--env-id cann/Pipeline-v0 --envs 2 --steps 64 --bridge-envs 1 3 --calls 4 --json"
    monkeypatch.setattr(sys, "argv", ["benchmark", *line.split()])
    module.main()
    printed = json.loads(capsys.readouterr().out)
    assert [set(row) for row in printed["rows"]] == [set(module.Row._fields)] * 2
    assert all(0.0 < row["bridge"] < row["environments"] < 1.0 for row in printed["rows"])
    assert all(row["steps"] == 64 for row in printed["rows"])
    assert [row["envs"] for row in printed["bridges"]] == [1, 3]
    assert all(0.0 < row["python_us"] < row["step_us"] for row in printed["bridges"])
