"""How much of a learner's time the environments take, and what the bridge to Stable-Baselines3 costs.

    python benchmarks/learner_share.py [--envs 64] [--steps 4096] [--json]

MaskablePPO learns on environments side by side, with the settings of ``configs/training/random_ppo.toml``
but for their number. Then the bridge is stepped without a learner, by random legal actions, whose choice is
not counted. A stopwatch inside another tells the call of ``CannVectorEnv``, which also begins the next
episodes, from the Python around it. Needs the extra ``rl``.
"""

from __future__ import annotations

import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from sb3_contrib.common.maskable.utils import get_action_masks
from tables import arguments, print_json, print_table, progress

sys.path.append(str(Path(__file__).parents[1]))

from agents.config import Network, Stage, load_config
from agents.train import new_model
from agents.vec_env import CannVecEnv, make_vec_env

if TYPE_CHECKING:
    from collections.abc import Callable

WARM = 8  # calls before the clock counts


class Row(NamedTuple):
    """Shares of the wall time of a learner, 0 to 1; ``bridge`` is the part of ``environments`` in Python."""

    network: str
    envs: int
    steps: int
    steps_per_s: float
    environments: float
    bridge: float


class BridgeRow(NamedTuple):
    """The bridge without a learner; medians (us) over calls, each for all environments.

    Attributes:
        envs: How many.
        steps_per_s: Of all calls, with the masks of ``action_masks()``.
        listed_steps_per_s: The same with those of sb3-contrib's ``get_action_masks``, which stacks rows.
        step_us: A step.
        python_us: The part of it outside ``CannVectorEnv``.
        masks_us: A call of ``action_masks()``.
        listed_us: A call of ``get_action_masks``.
    """

    envs: int
    steps_per_s: float
    listed_steps_per_s: float
    step_us: float
    python_us: float
    masks_us: float
    listed_us: float


class Stopwatch:
    """Adds up the time inside the methods that it is put around."""

    def __init__(self, thing: Any, *methods: str) -> None:
        self.seconds = 0.0
        for name in methods:
            setattr(thing, name, self._timed(getattr(thing, name)))

    def _timed(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*given: Any, **named: Any) -> Any:
            begin = time.perf_counter()
            try:
                return method(*given, **named)
            finally:
                self.seconds += time.perf_counter() - begin

        return timed


def learner(env_id: str, network: str, count: int, steps: int) -> Row:
    """Let a model learn from at least so many steps, after a rollout that is not counted."""
    config = replace(load_config("random_ppo"), network=Network(network), stages=(Stage.REINFORCE,))
    torch.set_num_threads(config.threads)
    envs = make_vec_env(env_id, count)
    model = new_model(config, envs)
    model.learn(1)
    outside = Stopwatch(envs, "step_wait", "env_method")
    inside = Stopwatch(envs.envs, "step", "action_masks")
    begin, before = time.perf_counter(), model.num_timesteps
    model.learn(steps, reset_num_timesteps=False)
    seconds, taken = time.perf_counter() - begin, model.num_timesteps - before
    bridge = outside.seconds - inside.seconds
    return Row(network, count, taken, taken / seconds, outside.seconds / seconds, bridge / seconds)


def bridge(env_id: str, count: int, calls: int) -> BridgeRow:
    """Step by random legal actions, all calls timed one by one."""
    envs = make_vec_env(env_id, count)
    envs.seed(0)
    envs.reset()
    inside = Stopwatch(envs.envs, "step")
    rng = np.random.default_rng(0)
    rows = [_call(envs, inside, rng) for _ in range(WARM + calls)][WARM:]
    step, python, masks, listed = (1e6 * statistics.median(part) for part in zip(*rows, strict=True))
    mean = 1e6 * statistics.fmean(row[0] for row in rows)  # beginning an episode is work too
    rates = [1e6 * count / (mean + each) for each in (masks, listed)]
    return BridgeRow(count, *rates, step, python, masks, listed)


def _call(envs: CannVecEnv, inside: Stopwatch, rng: np.random.Generator) -> tuple[float, ...]:
    """Seconds of a step, of its Python, of the masks at once, and of the masks as sb3-contrib asks."""
    begin = time.perf_counter()
    masks = envs.action_masks()
    masked = time.perf_counter()
    get_action_masks(envs)
    listed = time.perf_counter()
    actions = (rng.random(masks.shape, dtype=np.float32) * masks).argmax(axis=1)
    before = inside.seconds
    stepping = time.perf_counter()
    envs.step(actions)
    step = time.perf_counter() - stepping
    return step, step - (inside.seconds - before), masked - begin, listed - masked


def main() -> None:
    """Measure and print."""
    parser = arguments(__doc__, device=False)
    parser.add_argument("--env-id", default="cann_env:cann/Serving-v0")
    parser.add_argument("--envs", type=int, default=64, help="beside the learner")
    parser.add_argument("--steps", type=int, default=4096, help="to learn from")
    parser.add_argument("--bridge-envs", type=int, nargs="*", default=[64, 256, 1024])
    parser.add_argument("--calls", type=int, default=200, help="of the bridge by itself")
    given = parser.parse_args()
    rows, bridges = [], []
    with progress(2 + len(given.bridge_envs)) as begin:
        for network in ("rows", "flat"):
            begin(f"learning, {network}")
            rows.append(learner(given.env_id, network, given.envs, given.steps))
        for count in given.bridge_envs:
            begin(f"{count} environments")
            bridges.append(bridge(given.env_id, count, given.calls))
    if given.json:
        print_json(rows=rows, bridges=bridges)
    else:
        show(rows, bridges)


def show(rows: list[Row], bridges: list[BridgeRow]) -> None:
    """Print both tables."""
    shares = [(f"{row.steps_per_s:,.0f}", f"{row.environments:.1%}", f"{row.bridge:.2%}") for row in rows]
    print_table(
        "MaskablePPO: share of wall time in the environments",
        ("network", "envs", "steps/s", "environments", "of it Python"),
        [(row.network, str(row.envs), *share) for row, share in zip(rows, shares, strict=True)],
    )
    print_table(
        "The bridge by itself, a call for all environments",
        ("envs", "steps/s", "listed steps/s", "step us", "Python us", "masks us", "listed masks us"),
        [
            (str(row.envs), *(f"{rate:,.0f}" for rate in row[1:3]), *(f"{part:,.1f}" for part in row[3:]))
            for row in bridges
        ],
        ["listed: masks as sb3-contrib asks for them, one a row, stacked again"],
    )


if __name__ == "__main__":
    main()
