"""Ticks a second of Jumanji's JobShop, for ``step_rate.py`` to set beside its own; prints JSON.

It imports nothing of this project, so that it runs wherever Jumanji is installed:
``python benchmarks/peer_jumanji.py [--environments 64 512] [--runs 5] [--seconds 1.0]``.

Environments are batched by ``vmap``, and a whole rollout is one compiled call (``scan``). A tick sets all
ten machines; the policy draws for each of them one of its legal jobs, or none. Two ways to go on after the
end of an episode are measured: Jumanji's own wrapper, which draws a new instance, and one that makes it
faster and is nearer to how ``step_rate.py`` counts: a start state out of a pool drawn beforehand.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from importlib.metadata import version
from importlib.util import find_spec
from statistics import median
from typing import Any

SETTINGS = {
    "NPROC": "1",
    "OMP_NUM_THREADS": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
}
"""One thread for XLA; read while jax is imported."""

RESETS = ("wrapper", "pool")
_TICKS = 64
_POOL = 256


def chosen(mask: Any, draw: Any) -> Any:
    """For each machine the legal job whose place was drawn."""
    import jax.numpy as jnp

    places = jnp.cumsum(mask, axis=-1)
    return jnp.argmax(places > (draw * places[..., -1]).astype(jnp.int32)[..., None], axis=-1)


def pooled_step(environments: int, key: Any) -> tuple[Any, Any]:
    """First states, and a step after which environments that ended stand at a state of the pool."""
    import jax
    import jax.numpy as jnp
    from jumanji.environments import JobShop

    env = JobShop()
    pool = jax.vmap(env.reset)(jax.random.split(key, _POOL))

    def step(state: Any, action: Any, key: Any) -> Any:
        state, timestep = jax.vmap(env.step)(state, action)
        over = timestep.last()
        numbers = jax.random.randint(key, (environments,), 0, _POOL)

        def pick(new: Any, old: Any) -> Any:
            return jnp.where(over.reshape(over.shape + (1,) * (old.ndim - 1)), new[numbers], old)

        state, moved = jax.tree.map(pick, pool, (state, timestep))
        return state, moved.replace(step_type=timestep.step_type)

    first = jnp.arange(environments) % _POOL
    return jax.tree.map(lambda leaf: leaf[first], pool), step


def wrapped_step(environments: int, key: Any) -> tuple[Any, Any]:
    """First states, and a step of Jumanji's own wrappers."""
    import jax
    from jumanji.environments import JobShop
    from jumanji.wrappers import AutoResetWrapper, VmapWrapper

    env = VmapWrapper(AutoResetWrapper(JobShop()))
    return env.reset(jax.random.split(key, environments)), lambda state, action, key: env.step(state, action)


def make_rollout(reset: str, environments: int) -> tuple[Any, Any]:
    """A compiled rollout of ``_TICKS`` ticks, and what it starts from."""
    import jax

    make = pooled_step if reset == "pool" else wrapped_step
    key = jax.random.key(0)
    first, step = make(environments, key)

    def tick(carry: Any, _: None) -> tuple[Any, Any]:
        state, timestep, key = carry
        key, drawn, fresh = jax.random.split(key, 3)
        mask = timestep.observation.action_mask
        action = chosen(mask, jax.random.uniform(drawn, mask.shape[:-1]))
        placed = (action < mask.shape[-1] - 1).sum()
        state, timestep = step(state, action, fresh)
        return (state, timestep, key), (placed, timestep.last().sum())

    def rollout(carry: Any) -> tuple[Any, Any]:
        carry, counts = jax.lax.scan(tick, carry, None, length=_TICKS)
        return carry, jax.tree.map(lambda count: count.sum(), counts)

    return jax.jit(rollout), (*first, key)


def measure(reset: str, environments: int, runs: int, seconds: float) -> dict[str, Any]:
    """Ticks a second, and what a tick does."""
    import jax

    rollout, carry = make_rollout(reset, environments)
    for _ in range(3):
        carry, counts = jax.block_until_ready(rollout(carry))
    rates, cores = [], []
    placed = ended = ticks = 0
    for _ in range(runs):
        calls = 0
        began, busy = time.perf_counter(), time.process_time()
        while calls == 0 or time.perf_counter() - began < seconds:
            carry, counts = jax.block_until_ready(rollout(carry))
            placed, ended = placed + int(counts[0]), ended + int(counts[1])
            calls += 1
        spent = time.perf_counter() - began
        cores.append((time.process_time() - busy) / spent)
        rates.append(calls * _TICKS * environments / spent)
        ticks += calls * _TICKS * environments
    return {
        "reset": reset,
        "environments": environments,
        "rates": rates,
        "rate": median(rates),
        "cores": median(cores),
        "placed_a_tick": placed / ticks,
        "ticks_an_episode": ticks / max(ended, 1),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--environments", type=int, nargs="+", default=[64, 512])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each run")
    given = parser.parse_args()
    os.environ.update(SETTINGS)
    for name in ("jax", "jumanji"):
        if find_spec(name) is None:
            print(json.dumps({"missing": name}))
            return
    rows = [
        measure(reset, count, given.runs, given.seconds) for reset in RESETS for count in given.environments
    ]
    print(json.dumps({"rows": rows, "versions": {name: version(name) for name in ("jumanji", "jax")}}))


if __name__ == "__main__":
    main()
