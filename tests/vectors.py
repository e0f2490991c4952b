"""A vector environment beside the single ones that it must equal, step by step, in every mode."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from cann_env.envs import CannEnv, CannVectorEnv
from cann_env.scenario import load_scenario

OWN_RESULTS = frozenset({"episode_return", "_episode_return", "episode_length", "_episode_length"})
MODES = (AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED)


def small(name: str, **options: Any) -> dict[str, Any]:
    """A shipped scenario with little to do."""
    tables = load_scenario(name).to_dict()
    model = {
        "kind": "transformer",
        "layers": 1,
        "hidden": 64,
        "heads": 2,
        "sequences": [8],
        "weights": "host",
    }
    work = {
        "pipeline": {"batches": 4},
        "random": {"least_commands": 4, "most_commands": 14, "families": ["layered", "fork_join"]},
        "serving": {"requests": 2, "models": [model]},
        "serving_arrivals": {"requests": 2, "models": [model]},
    }
    tables["workload"] |= work[name]
    tables["options"] |= {"streams": 3, "run_ahead": 6, **options}
    return tables


def legal(masks: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A random legal action of each row."""
    return (rng.random(masks.shape) * masks).argmax(axis=1)


def mixed(masks: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A random action of each row, most of them legal."""
    wild = rng.integers(masks.shape[1], size=len(masks))
    return np.where(rng.random(len(masks)) < 0.8, legal(masks, rng), wild)


def row_of(observations: dict[str, Any], i: int) -> dict[str, Any]:
    """Row i of every part."""
    return {key: value[i] for key, value in observations.items()}


def assert_row(
    batch: dict[str, Any], row: int, single: dict[str, Any], allowed: frozenset[str] = frozenset()
) -> None:
    """Row ``row`` of a batch has the entries of a single dictionary, bit for bit, and no others."""
    held = {key for key in batch if not key.startswith("_")}
    held = {key for key in held if f"_{key}" not in batch or batch[f"_{key}"][row]}
    assert held - allowed == set(single)
    for key, value in single.items():
        if isinstance(value, dict):
            assert_row(batch[key], row, value)
        else:
            assert batch[key].dtype == np.asarray(value).dtype, key
            assert np.array_equal(batch[key][row], value), (key, row)


def assert_equal(ours: dict[Any, Any], theirs: dict[Any, Any], extra: frozenset[str] = OWN_RESULTS) -> None:
    """Both have the same entries, bit for bit; ours may have extra ones."""
    assert set(ours) - extra == set(theirs) - extra
    assert set(theirs) <= set(ours)
    for key, value in theirs.items():
        if isinstance(value, dict):
            assert_equal(ours[key], value, extra)
        elif isinstance(value, np.ndarray) and value.dtype == object:
            for mine, other in zip(ours[key], value, strict=True):
                assert (mine is None) == (other is None)
                assert other is None or all(np.array_equal(mine[name], other[name]) for name in other)
        else:
            assert ours[key].dtype == value.dtype, key
            assert np.array_equal(ours[key], value), key


class Pair:
    """A vector environment and the single ones that it must equal.

    Args:
        scenario: What they play.
        count: Environments.
        shift: Index of the first single environment.
        vector: Arguments that only the vector environment has.
        arguments: Those of both.
    """

    def __init__(
        self,
        scenario: Any,
        count: int = 2,
        shift: int = 0,
        vector: dict[str, Any] | None = None,
        **arguments: Any,
    ) -> None:
        self.vector = CannVectorEnv(scenario, num_envs=count, **(vector or {}), **arguments)
        self.singles = [CannEnv(scenario, env_index=shift + i, **arguments) for i in range(count)]
        self.mode = self.vector.autoreset_mode
        self.over = np.zeros(count, np.bool_)
        self.ends = 0
        self.truncations = 0

    def reset(self, seed: int) -> None:
        """Begin, all with the same seed."""
        observations, infos = self.vector.reset(seed=seed)
        assert self.vector.observation_space.contains(observations)
        for i, single in enumerate(self.singles):
            observation, info = single.reset(seed=seed)
            assert_row(observations, i, observation)
            assert_row(infos, i, info)
        self.masks = infos["action_mask"].copy()

    def step(self, actions: np.ndarray) -> None:
        """Take a step, and with autoreset disabled begin what is to begin."""
        observations, rewards, terminations, truncations, infos = self.vector.step(actions)
        assert (rewards.dtype, terminations.dtype, truncations.dtype) == (np.float64, np.bool_, np.bool_)
        for i, single in enumerate(self.singles):
            if self.over[i]:
                observation, info = single.reset()
                reward, terminated, truncated = 0.0, False, False
            else:
                observation, reward, terminated, truncated, info = single.step(int(actions[i]))
            assert (rewards[i], terminations[i], truncations[i]) == (reward, terminated, truncated)
            self.over[i] = terminated or truncated
            self.ends += self.over[i]
            self.truncations += truncated
            if self.over[i] and self.mode is AutoresetMode.SAME_STEP:
                observation, info = self._check_end(infos, i, observation, info)
            elif "_final_info" in infos:
                assert infos["_final_info"][i] == infos["_final_obs"][i] == False  # noqa: E712
            extra = OWN_RESULTS if self.over[i] else frozenset()
            assert_row(observations, i, observation)
            assert_row(infos, i, info, frozenset({"final_obs", "final_info"}) | extra)
        assert np.array_equal(self.vector.action_masks(), infos["action_mask"])
        if self.mode is AutoresetMode.DISABLED and self.over.any():
            observations, infos = self._reset_ended()
        self.masks = infos["action_mask"].copy()

    def _check_end(self, infos: dict[str, Any], i: int, observation: Any, info: Any) -> tuple[Any, Any]:
        assert infos["_final_obs"][i] and infos["_final_info"][i]
        assert_row({key: value[None] for key, value in infos["final_obs"][i].items()}, 0, observation)
        assert_row(infos["final_info"], i, info, OWN_RESULTS)
        self.over[i] = False
        return self.singles[i].reset()

    def _reset_ended(self) -> tuple[Any, Any]:
        observations, infos = self.vector.reset(options={"reset_mask": self.over})
        for i in np.flatnonzero(self.over):
            observation, info = self.singles[i].reset()
            assert_row(observations, i, observation)
            assert_row(infos, i, info)
        self.over[:] = False
        return observations, infos

    def play(self, ends: int, seed: int = 5) -> None:
        """Step until so many episodes have ended."""
        rng = np.random.default_rng(seed)
        self.reset(seed)
        while self.ends < ends:
            self.step(mixed(self.masks, rng))
