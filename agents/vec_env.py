"""The environments as Stable-Baselines3 wants them: :class:`CannVecEnv` around a :class:`CannVectorEnv`.

Actions go in, one compiled call steps all environments, and arrays come out. Only environments whose episode
ended cost a Python loop, for Stable-Baselines3 takes one dictionary of information for each environment.
"""

from __future__ import annotations

import time
import warnings
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import VecEnv

from cann_env.envs import CannVectorEnv
from cann_env.envs.arguments import instance_option
from cann_env.units import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray
    from stable_baselines3.common.vec_env.base_vec_env import VecEnvIndices, VecEnvStepReturn

    from cann_env.envs import CannEnv

Observations = dict[str, "NDArray[np.float32]"]

_SPACES: Final = ("action_space", "observation_space")
_VALUES: Final = (*_SPACES, "metadata", "program", "render_mode", "scenario", "spec")
_METHODS: Final = ("action_masks", "clone", "get_state", "render", "schedule")


def make_vec_env(env_id: str, n_envs: int, **arguments: Any) -> CannVecEnv:
    """Environments of a registered id, ready for a model of Stable-Baselines3 or sb3-contrib.

    Args:
        env_id: As for ``gymnasium.make_vec``; of this package, or yours with :class:`CannVectorEnv`.
        n_envs: How many, at least 1.
        arguments: Those of :class:`CannVectorEnv`, but for ``num_envs``, ``autoreset_mode`` and ``copy``.

    Raises:
        InputError: An argument that is not right.
    """
    fixed = sorted({"num_envs", "autoreset_mode", "copy"} & set(arguments))
    if fixed:
        raise InputError(f"{fixed[0]!r} is not for make_vec_env; n_envs says how many, the rest is settled")
    return CannVecEnv(gymnasium.make_vec(env_id, num_envs=n_envs, copy=False, **arguments))


class CannVecEnv(VecEnv):
    """A :class:`CannVectorEnv` as a ``VecEnv``; plays what ``DummyVecEnv`` of :class:`CannEnv` plays.

    A model sees what it sees with ``DummyVecEnv`` and ``Monitor``, bit for bit, except that there is
    information at the end of an episode only. Dictionaries are empty until then; at the end they hold what
    :class:`CannEnv` gives in its last step, and

    | Key | Value |
    |---|---|
    | `terminal_observation` | last observation of the episode, a dictionary of float32 vectors |
    | `TimeLimit.truncated` | bool: out of steps, so that the value of that observation still counts |
    | `episode` | `r` return, `l` steps, `t` seconds since the environments were made |

    No ``VecMonitor`` is needed for the log. Whatever a step returns is the caller's to keep and to change:
    nothing is written to again.

    ``seed(7)`` gives environment i the run seed 7 + i, and ``set_options({"instance": k})``, or a list with
    one dictionary for each, picks episodes. Both count for the next ``reset`` alone; without them it begins
    the next episode of each. Environments cannot be stepped or reset one by one, and have nothing to set.

    Args:
        envs: What is stepped; with ``autoreset_mode="SameStep"``, which is its default.
        run_seed: The run seed of all environments, which then differ by their indices alone, so that all play
            graphs of one pool; ``seed`` changes nothing then. None to go by ``seed``.

    Attributes:
        envs: The same.

    Raises:
        InputError: ``envs`` is something else, or of another mode.
    """

    def __init__(self, envs: CannVectorEnv, run_seed: int | None = None) -> None:
        if not isinstance(envs, CannVectorEnv):
            raise InputError(
                f"envs is {envs!r}; pass what gymnasium.make_vec('cann_env:cann/...') returns, or use "
                "make_vec_env(env_id, n_envs)"
            )
        if envs.autoreset_mode is not AutoresetMode.SAME_STEP:
            raise InputError(
                f"autoreset_mode of envs is {envs.autoreset_mode.value!r}; Stable-Baselines3 needs "
                f"{AutoresetMode.SAME_STEP.value!r}"
            )
        self.envs = envs
        self._began_s = time.perf_counter()
        self._actions: NDArray[Any] | None = None
        super().__init__(envs.num_envs, envs.single_observation_space, envs.single_action_space)
        self._run_seed = run_seed
        if run_seed is not None:
            self._seeds = [run_seed] * self.num_envs

    # --- episodes -----------------------------------------------------------------------------------

    def reset(self) -> Observations:
        """Begin the next episode of each environment.

        Raises:
            InputError: A seed or an option that is not right.
        """
        if len(self._options) != self.num_envs:
            raise InputError(
                f"there are {len(self._options)} options; write one dictionary for each of the "
                f"{self.num_envs} environments, or one for all"
            )
        instances = [instance_option(options) for options in self._options]
        wanted = {instance for instance in instances if instance is not None}
        self._actions = None
        observations, infos = self.envs.reset(seed=self._seeds)
        for instance in sorted(wanted):
            mask = np.array([each == instance for each in instances])
            observations, infos = self.envs.reset(options={"instance": instance, "reset_mask": mask})
        self._reset_seeds()
        self._reset_options()
        self.reset_infos = list(_rows_of(infos, np.arange(self.num_envs)))
        return self._fresh(observations)

    def seed(self, seed: int | None = None) -> Sequence[int | None]:
        """Give environment i the run seed ``seed + i`` from the next reset on, unless all share one."""
        return super().seed(seed) if self._run_seed is None else self._seeds

    def step_async(self, actions: NDArray[Any]) -> None:
        """Say what to do next in each environment; ``step_wait`` does it."""
        self._actions = actions

    def step_wait(self) -> VecEnvStepReturn:
        """Take the step: observations, rewards float32 (N,), ends bool (N,), information.

        Raises:
            InputError: No actions were given, or not one whole number of the action space for each.
            EpisodeOverError: ``reset`` was not called yet.
        """
        if self._actions is None:
            raise InputError("step_wait() has nothing to do; call step_async(actions) first")
        actions, self._actions = self._actions, None
        observations, rewards, terminations, truncations, infos = self.envs.step(actions)
        each: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        if "final_info" in infos:
            self._report_ends(each, infos, truncations & ~terminations)
        return self._fresh(observations), rewards.astype(np.float32), terminations | truncations, each

    def action_masks(self) -> NDArray[np.bool_]:
        """True where an action is legal, bool (N, A): at once what ``env_method("action_masks")`` lists."""
        return self.envs.action_masks()

    def close(self) -> None:
        """Close the environments."""
        self.envs.close()

    # --- single environments ------------------------------------------------------------------------

    def get_attr(self, attr_name: str, indices: VecEnvIndices = None) -> list[Any]:
        """What :class:`CannEnv` calls by this name, for each environment; only what does not change it.

        Raises:
            AttributeError: There is no such thing, or it would step or reset one environment alone.
        """
        rows = self._get_indices(indices)
        if attr_name in _METHODS:
            return [partial(self._call, attr_name, row) for row in rows]
        return [self._value(attr_name, row) for row in rows]

    def set_attr(self, attr_name: str, value: Any, indices: VecEnvIndices = None) -> None:
        """Refuse: all environments are made of the same arguments.

        Raises:
            InputError: Always.
        """
        raise InputError(
            f"{attr_name!r} of an environment cannot be set; make other environments with make_vec_env()"
        )

    def env_method(
        self, method_name: str, *method_args: Any, indices: VecEnvIndices = None, **method_kwargs: Any
    ) -> list[Any]:
        """Call a method of single environments; ``schedule`` is that of the episode that ended last.

        Raises:
            AttributeError: There is no such method, or it would step or reset one environment alone.
        """
        if method_name == "action_masks":
            masks = self.action_masks()
            return list(masks if indices is None else masks[list(self._get_indices(indices))])
        methods = self.get_attr(method_name, indices)
        return [method(*method_args, **method_kwargs) for method in methods]

    def env_is_wrapped(
        self, wrapper_class: type[gymnasium.Wrapper[Any, Any, Any, Any]], indices: VecEnvIndices = None
    ) -> list[bool]:
        """True for ``Monitor``, whose work is done here, and False for all others."""
        return [issubclass(wrapper_class, Monitor) for _ in self._get_indices(indices)]

    def get_images(self) -> Sequence[NDArray[np.uint8] | None]:
        """A frame of each environment; None where ``render_mode`` is another than ``rgb_array``."""
        if self.render_mode != "rgb_array":
            warnings.warn(f"render_mode is {self.render_mode!r}; images need 'rgb_array'", stacklevel=2)
            return [None] * self.num_envs
        return list(self.envs.render() or ())

    # --- inside -------------------------------------------------------------------------------------

    def _fresh(self, observations: Observations) -> Observations:
        """Arrays that no later step writes to: models keep the last ones until they have taken the next."""
        if self.envs.copy:
            return observations
        return {name: part.copy() for name, part in observations.items()}

    def _report_ends(
        self, each: list[dict[str, Any]], infos: Mapping[str, Any], cut_off: NDArray[np.bool_]
    ) -> None:
        """Fill in the information of environments whose episode ended."""
        rows = np.flatnonzero(infos["_final_info"])
        seconds = round(time.perf_counter() - self._began_s, 6)
        ends = zip(_rows_of(infos["final_info"], rows), _rows_of(infos, rows), strict=True)
        for row, (end, begin) in zip(rows.tolist(), ends, strict=True):
            end["episode"] = {"r": end.pop("episode_return"), "l": end.pop("episode_length"), "t": seconds}
            last = infos["final_obs"][row]
            end["terminal_observation"] = {name: part.copy() for name, part in last.items()}
            end["TimeLimit.truncated"] = bool(cut_off[row])
            each[row] = end
            self.reset_infos[row] = begin

    def _environment(self, row: int) -> CannEnv:
        return self.envs.environment(range(self.num_envs)[row])

    def _value(self, name: str, row: int) -> Any:
        if name not in _VALUES:
            there = ", ".join(sorted((*_VALUES, *_METHODS)))
            raise AttributeError(
                f"the environments cannot be asked for {name!r} one by one; there are {there}"
            )
        if name == "program":
            return self._environment(row).program
        return getattr(self if name in _SPACES else self.envs, name)

    def _call(self, name: str, row: int, *arguments: Any, **named: Any) -> Any:
        if name == "action_masks":
            return self.action_masks()[row]
        if name == "schedule":
            return self.envs.schedule(row)
        return getattr(self._environment(row), name)(*arguments, **named)


def _rows_of(infos: Mapping[str, Any], rows: NDArray[np.int64]) -> Iterator[dict[str, Any]]:
    """Information of some environments, a dictionary each: plain numbers, and arrays where it has more."""
    columns: dict[str, Sequence[Any]] = {}
    for name, values in infos.items():
        if name.startswith("_") or name in ("final_obs", "final_info"):
            continue
        if isinstance(values, dict):
            columns[name] = list(_rows_of(values, rows))
        else:
            columns[name] = values[rows].tolist() if values.ndim == 1 else list(values[rows])
    for row in zip(*columns.values(), strict=True):
        yield dict(zip(columns, row, strict=True))
