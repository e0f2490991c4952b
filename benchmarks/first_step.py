"""How long until the first step: with nothing compiled, and with the compiled engine on disk.

``python benchmarks/first_step.py [--json]`` starts fresh processes with a cache folder of their own and
measures, after the import, making an environment, resetting it and taking one step; beside it the same for
Gymnasium's CartPole, which compiles nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile

_MEASURE = """
import sys, time
import gymnasium
import cann_env.envs
began = time.perf_counter()
env = gymnasium.make(sys.argv[1])
_, info = env.reset(seed=0)
env.step(int(info["action_mask"].argmax()) if "action_mask" in info else 0)
print(time.perf_counter() - began)
"""


def first_step_s(env_id: str, cache: str) -> float:
    """Seconds from the end of the import to the end of the first step, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", _MEASURE, env_id],
        env={**os.environ, "NUMBA_CACHE_DIR": cache},
        check=True,
        capture_output=True,
        text=True,
    )
    return float(done.stdout)


def measure(runs: int) -> dict[str, float]:
    """Seconds by case: cold once, the others as the median of some runs."""
    with tempfile.TemporaryDirectory() as cache:
        cold = first_step_s("cann_env:cann/Pipeline-v0", cache)
        warm = sorted(first_step_s("cann_env:cann/Pipeline-v0", cache) for _ in range(runs))
        peer = sorted(first_step_s("CartPole-v1", cache) for _ in range(runs))
    return {"cold": cold, "warm": warm[runs // 2], "cartpole": peer[runs // 2]}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    seconds = measure(given.runs)
    if given.json:
        print(json.dumps({"rows": [{"case": name, "seconds": value} for name, value in seconds.items()]}))
        return
    print(f"{'case':28} {'seconds':>8} {'x CartPole':>11}")
    for name, title in (
        ("cold", "engine not yet compiled"),
        ("warm", "engine compiled before"),
        ("cartpole", "CartPole-v1"),
    ):
        print(f"{title:28} {seconds[name]:8.3f} {seconds[name] / seconds['cartpole']:11.1f}")


if __name__ == "__main__":
    main()
