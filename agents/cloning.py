"""Behaviour cloning: a policy learns to take the decisions that were taken in given episodes.

Decisions become examples by playing the episodes once more, all side by side. The value is fitted as well,
to the rewards that followed, so that PPO begins with a critic that knows the problem.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from cann_env.envs.batch import Batch
from cann_env.units import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from agents.policies import ScoringPolicy
    from cann_env.envs.spaces import GraphCapacity
    from cann_env.program import Program

_SIDE_BY_SIDE = 256
_NUMBERS = ("edge_index", "window")  # parts that float16 would spoil in graphs of more than 2048 commands


class Examples(NamedTuple):
    """Decisions, and what was seen when they were taken.

    Attributes:
        seen: The parts of the observation, float16 (n, length) each, which keeps three digits; float32 where
            they name nodes by number.
        masks: bool (n, actions).
        actions: int64 (n,).
        returns: float32 (n,), sum of the rewards from this decision on.
    """

    seen: dict[str, NDArray[np.floating[Any]]]
    masks: NDArray[np.bool_]
    actions: NDArray[np.int64]
    returns: NDArray[np.float32]


def examples(
    programs: Sequence[Program],
    episodes: Sequence[Sequence[int]],
    capacity: GraphCapacity | None = None,
) -> Examples:
    """Play episodes once more and keep every decision that was a choice.

    Args:
        programs: What was played.
        episodes: The decisions, an episode for each program.
        capacity: Of the padded graph, None to leave it out.
    """
    parts = []
    for first in range(0, len(programs), _SIDE_BY_SIDE):
        some = slice(first, first + _SIDE_BY_SIDE)
        parts.append(_examples(programs[some], episodes[some], capacity))
    return joined(parts)


def joined(parts: Sequence[Examples]) -> Examples:
    """Several sets of examples as one."""
    seen = {name: np.concatenate([part.seen[name] for part in parts]) for name in parts[0].seen}
    masks, actions, returns = (np.concatenate([part[i] for part in parts]) for i in (1, 2, 3))
    return Examples(seen, masks, actions, returns)


def _examples(
    programs: Sequence[Program], episodes: Sequence[Sequence[int]], capacity: GraphCapacity | None
) -> Examples:
    batch = Batch(programs, capacity=capacity)
    steps = []
    gained = np.zeros(len(programs))
    place = 0
    while batch.running.size:
        rows = batch.running
        actions = np.array([episodes[i][place] for i in rows])
        masks = batch.masks()
        choice = masks.sum(1) > 1
        seen = {
            name: part[choice].astype(np.float32 if name in _NUMBERS else np.float16)
            for name, part in batch.observations().items()
        }
        steps.append((seen, masks[choice], actions[choice], rows[choice], gained[rows[choice]].copy()))
        gained[rows] += batch.step(actions)
        place += 1
    seen = {name: np.concatenate([step[0][name] for step in steps]) for name in steps[0][0]}
    masks, actions, rows, before = (np.concatenate([step[i] for step in steps]) for i in (1, 2, 3, 4))
    return Examples(seen, masks, actions, (gained[rows] - before).astype(np.float32))


def clone(
    policy: ScoringPolicy,
    given: Examples,
    *,
    epochs: int,
    batch_size: int,
    learning_rate: float,
    seed: int,
    watch: Callable[[int, int, float], None] | None = None,
) -> list[float]:
    """Learn to decide as in the examples.

    Args:
        policy: Changed in place.
        given: What was decided.
        epochs: Passes over the examples.
        batch_size: Examples of an update.
        learning_rate: At the beginning; falls to a tenth along half a cosine.
        seed: Of the order of the examples.
        watch: Told how many of how many updates are done, and the latest loss.

    Returns:
        The mean loss of each pass: minus the logarithm of the probability given to what was decided.

    Raises:
        InputError: There is no example.
    """
    rng = np.random.default_rng(seed)
    count = len(given.actions)
    if count == 0:
        raise InputError("there is nothing to clone; give episodes in which something was to be chosen")
    updates = epochs * -(-count // batch_size)
    optimiser = torch.optim.Adam(policy.parameters(), lr=learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, updates, learning_rate / 10)
    policy.set_training_mode(True)
    losses, done = [], 0
    for _ in range(epochs):
        total = 0.0
        for rows in np.array_split(rng.permutation(count), -(-count // batch_size)):
            seen = {
                name: torch.from_numpy(part[rows].astype(np.float32)) for name, part in given.seen.items()
            }
            values, likelihood, _ = policy.evaluate_actions(
                seen, torch.from_numpy(given.actions[rows]), given.masks[rows]
            )
            error = (values.flatten() - torch.from_numpy(given.returns[rows])).square().mean()
            loss = -likelihood.mean()
            optimiser.zero_grad()
            (loss + 0.5 * error).backward()
            torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
            optimiser.step()
            schedule.step()
            total += loss.item() * len(rows)
            done += 1
            if watch is not None:
                watch(done, updates, loss.item())
        losses.append(total / count)
    policy.set_training_mode(False)
    return losses
