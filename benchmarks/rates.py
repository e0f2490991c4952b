"""What benchmarks of speed share: environments that are played, the policy, the clock, peers, the machine.

A player holds an environment and what its policy was shown last. :func:`take_turns` plays all players in
turn, several times, so that whatever else the machine does falls on all of them, and keeps the medians.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import subprocess
import time
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import gymnasium
import numba
import numpy as np

from cann_env.scenario import Scenario, load_scenario
from cann_env.units import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

COMMANDS_A_REQUEST = 20.5
"""Of the scenario ``serving`` on average, when each request draws its model."""

CALLS_A_COMMAND = 1.6
"""Steps of each environment that make a run; a random episode of ``serving`` takes 1.5 for each command."""

_BEGINS = 12
"""Episodes that begin for each instance before the clock starts: one in 160,000 is not compiled then."""

_DRAWN = 1024


class Timing(NamedTuple):
    """Steps a second with the policy and without its time; processor time over wall time."""

    rate: float
    alone: float
    cores: float


class Player(Protocol):
    """An environment, or several side by side, with its policy.

    Attributes:
        count: Steps that one call of :meth:`advance` takes.
    """

    count: int

    def choose(self) -> Any:
        """Draw legal actions."""
        ...

    def advance(self, actions: Any) -> None:
        """Step; begin the episodes whose time has come."""
        ...


# --- the policy -----------------------------------------------------------------------------------------


@numba.njit(nogil=True, cache=True)
def draw_legal(masks: NDArray[np.int8], states: NDArray[np.uint64], actions: NDArray[np.int64]) -> None:
    """Draw one legal action for each environment, all equally likely.

    Args:
        masks: int8 (N, A), 1 where an action is legal; at least one is.
        states: uint64 (N,), of the random generators (xorshift), none of them 0; go on.
        actions: int64 (N,), receives what was drawn.
    """
    for row in range(actions.size):
        mask = masks[row]
        legal = np.int64(0)
        for a in range(mask.size):
            legal += mask[a]
        x = states[row]
        x ^= x << np.uint64(13)
        x ^= x >> np.uint64(7)
        x ^= x << np.uint64(17)
        states[row] = x
        left = (np.int64(x >> np.uint64(33)) * legal) >> 31
        action = 0
        while mask[action] == 0 or left > 0:
            left -= mask[action]
            action += 1
        actions[row] = action


def random_states(count: int) -> NDArray[np.uint64]:
    """States of so many generators for :func:`draw_legal`."""
    return np.random.default_rng(0).integers(1, 2**63, count, dtype=np.uint64)


# --- players --------------------------------------------------------------------------------------------


class VectorPlayer:
    """A :class:`~cann_env.envs.CannVectorEnv`.

    Args:
        envs: What is stepped.
        instances: How many different graphs it plays; all are compiled here.

    Attributes:
        over: bool (N,), which episodes ended in the last step.
    """

    def __init__(self, envs: gymnasium.vector.VectorEnv[Any, Any, Any], instances: int) -> None:
        self.envs = envs
        self.count = envs.num_envs
        self._states = random_states(self.count)
        self._actions = np.zeros(self.count, np.int64)
        _, infos = envs.reset(seed=0)
        for _ in range(_BEGINS * instances // self.count):
            _, infos = envs.reset()
        self._masks = infos["action_mask"]
        self.over = np.zeros(self.count, np.bool_)

    def choose(self) -> NDArray[np.int64]:
        """Any legal action."""
        draw_legal(self._masks, self._states, self._actions)
        return self._actions

    def advance(self, actions: NDArray[np.int64]) -> None:
        """Take one step in every environment; those whose episode ends begin another in the same step."""
        _, _, terminated, truncated, infos = self.envs.step(actions)
        self._masks = infos["action_mask"]
        self.over = terminated | truncated


class AdapterPlayer:
    """The same as Stable-Baselines3 sees it, asked for its masks as sb3-contrib asks."""

    def __init__(self, envs: Any, instances: int) -> None:
        self.envs = envs
        self.count = envs.num_envs
        self._states = random_states(self.count)
        self._actions = np.zeros(self.count, np.int64)
        envs.envs.reset(seed=0)  # one run for all: by seed() each would have its own, with graphs of its own
        for _ in range(1 + _BEGINS * instances // self.count):
            envs.reset()
        self._masks = self._asked()

    def choose(self) -> NDArray[np.int64]:
        """Any legal action."""
        draw_legal(self._masks, self._states, self._actions)
        return self._actions

    def advance(self, actions: NDArray[np.int64]) -> None:
        """Take one step in every environment and ask for the masks."""
        self.envs.step(actions)
        self._masks = self._asked()

    def _asked(self) -> NDArray[np.int8]:
        return np.stack(self.envs.env_method("action_masks")).view(np.int8)


class SinglePlayer:
    """One environment, by its own interface."""

    count = 1

    def __init__(self, env: gymnasium.Env[Any, Any], instances: int) -> None:
        self.env = env
        self._states = random_states(1)
        self._actions = np.zeros(1, np.int64)
        _, info = env.reset(seed=0)
        for _ in range(_BEGINS * instances):
            _, info = env.reset()
        self._mask = info["action_mask"]

    def choose(self) -> int:
        """Any legal action."""
        draw_legal(self._mask.reshape(1, -1), self._states, self._actions)
        return int(self._actions[0])

    def advance(self, actions: int) -> None:
        """Take one step, and reset at the end of the episode."""
        _, _, terminated, truncated, info = self.env.step(actions)
        if terminated or truncated:
            _, info = self.env.reset()
        self._mask = info["action_mask"]


class CartPolePlayer:
    """Gymnasium's CartPole, single or vector; both actions are always legal and were drawn beforehand."""

    def __init__(self, environments: int | None) -> None:
        self.count = environments or 1
        self._single = environments is None
        draws = np.random.default_rng(0).integers(2, size=(_DRAWN, self.count))
        self.env: Any
        if environments is None:
            self.env = gymnasium.make("CartPole-v1")
            self._draws: Sequence[Any] = draws[:, 0].tolist()
        else:
            self.env = gymnasium.make_vec(
                "CartPole-v1", num_envs=environments, vectorization_mode="vector_entry_point"
            )
            self._draws = list(draws)
        self._turn = 0
        self.env.reset(seed=0)

    def choose(self) -> Any:
        """The next action drawn."""
        self._turn = (self._turn + 1) % _DRAWN
        return self._draws[self._turn]

    def advance(self, actions: Any) -> None:
        """Take one step; the single one is reset at the end of the episode, the vector resets itself."""
        _, _, terminated, truncated, _ = self.env.step(actions)
        if self._single and (terminated or truncated):
            self.env.reset()


# --- the clock ------------------------------------------------------------------------------------------


def play(player: Player, seconds: float, calls: int) -> Timing:
    """Play for so many seconds, and at least so many calls of ``advance``."""
    clock = time.perf_counter
    policy = 0.0
    done = 0
    busy, began = time.process_time(), clock()
    before = began
    while done < calls or before - began < seconds:
        actions = player.choose()
        policy += clock() - before
        player.advance(actions)
        done += 1
        before = clock()
    spent = before - began
    steps = done * player.count
    return Timing(steps / spent, steps / (spent - policy), (time.process_time() - busy) / spent)


def take_turns(
    players: Mapping[str, tuple[Player, int]], runs: int, seconds: float, begin: Callable[[str], None]
) -> dict[str, Timing]:
    """Play every player in each of so many runs; medians by name.

    Args:
        players: By name, each with the least number of calls of a run.
        runs: How many.
        seconds: Least time of each player in each run.
        begin: Told what is played.
    """
    found: dict[str, list[Timing]] = {name: [] for name in players}
    for player, calls in players.values():
        play(player, seconds / 4, max(1, calls // 4))
    for run in range(runs):
        begin(f"run {run + 1}")
        for name, (player, calls) in players.items():
            found[name].append(play(player, seconds, calls))
    return {name: Timing(*map(median, zip(*each, strict=True))) for name, each in found.items()}


def steps_an_episode(player: VectorPlayer, calls: int) -> float | None:
    """Mean length of an episode under the policy; None if none ends."""
    ended = 0
    for _ in range(calls):
        player.advance(player.choose())
        ended += int(player.over.sum())
    return calls * player.count / ended if ended else None


# --- what is played, and where --------------------------------------------------------------------------


def serving(commands: int, **options: Any) -> dict[str, Any]:
    """The scenario ``serving`` with requests enough for about so many commands; each draws its model."""
    scenario = load_scenario("serving").with_options(**options).to_dict()
    scenario["workload"] |= {"mix": "draw", "requests": max(1, round(commands / COMMANDS_A_REQUEST))}
    return scenario


def mean_commands(scenario: Mapping[str, Any] | str, draws: int) -> float:
    """Commands of a graph, over so many draws."""
    opened = load_scenario(scenario) if isinstance(scenario, str) else Scenario.from_dict(scenario)
    return float(np.mean([len(opened.graph(0, 0, episode).commands) for episode in range(draws)]))


def run_peer(script: str, python: str, words: Sequence[str], given: str = "") -> dict[str, Any]:
    """What a script of this folder prints when another interpreter runs it.

    Returns:
        Its JSON; where a package is not installed there, ``{"missing": name}``.

    Raises:
        InputError: The interpreter cannot be started, or the script fails.
    """
    command = [python, str(Path(__file__).with_name(script)), *words]
    settings = {**os.environ, "OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run(command, input=given, capture_output=True, text=True, check=False, env=settings)
    except OSError as error:
        raise InputError(
            f"{python!r} cannot be started: {error.strerror}; name a Python interpreter"
        ) from error
    if done.returncode != 0:
        raise InputError(f"{script} failed under {python!r}: {done.stderr.strip()[-400:]}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def machine() -> dict[str, str]:
    """Processor, cores, day and versions: what a figure is worth nothing without."""
    packages = {name: version(name) for name in ("cann-env", "gymnasium", "numba", "numpy")}
    return {
        "processor": _processor(),
        "cores": str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "python": platform.python_version(),
        **packages,
    }


def machine_line(found: Mapping[str, str]) -> str:
    """The same in a line."""
    rest = ", ".join(f"{name} {value}" for name, value in found.items() if name not in ("processor", "date"))
    return f"{found['processor']}, {rest}; {found['date']}"


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text("utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
