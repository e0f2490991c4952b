"""What environments tell beside observations: fixed keys and types; of many, with a mask beside every key.

Arrays of the engine go in, dictionaries as Gymnasium wants them come out. A mask says for which
environments the entry of the same name holds; where it does not, the entry is zero.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cann_env.engine.episodes import (
    FACT_EPISODE,
    FACT_INVALID,
    FACT_NOW_NS,
    FACTS,
    R_BOUND_NS,
    R_EPISODE,
    R_FINISHED,
    R_HBM_PEAK,
    R_INVALID,
    R_MAKESPAN_NS,
    R_STEPS,
    SUM_REWARD,
    TERMS,
)
from cann_env.engine.layout import (
    FINISHED,
    RUNNING,
    S_HBM_PEAK,
    S_INVALID,
    S_NOW_NS,
    S_STATUS,
    S_STEPS,
)
from cann_env.envs.reward import RewardTerms
from cann_env.envs.spaces import encode_mask

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from cann_env.engine import Image
    from cann_env.engine.episodes import Books
    from cann_env.program import Program


def info_of(
    program: Program, state: Image, head: list[int], *, episode: int, terms: RewardTerms
) -> dict[str, Any]:
    """What a single environment tells of a state.

    Args:
        program: What is played.
        state: Where it stands.
        head: The header of the state as plain numbers.
        episode: Which episode of its run it is.
        terms: Sums of the reward terms so far.
    """
    info: dict[str, Any] = {
        "action_mask": encode_mask(program, state),
        "time_ns": head[S_NOW_NS],
        "invalid_actions": head[S_INVALID],
        "episode_index": episode,
    }
    if head[S_STATUS] != RUNNING:
        info["schedule"] = ending_of(program, head)
        info["terms"] = terms._asdict()
    return info


def ending_of(program: Program, head: list[int]) -> dict[str, Any]:
    """What the last step tells of the schedule, by the header of the state at its end."""
    return {
        "makespan_ns": head[S_NOW_NS],
        "lower_bound_ns": program.lower_bound_ns,
        "steps": head[S_STEPS],
        "peak_hbm_bytes": head[S_HBM_PEAK],
        "finished": head[S_STATUS] == FINISHED,
    }


def masked(values: Mapping[str, Any], mask: NDArray[np.bool_]) -> dict[str, Any]:
    """The entries, each followed by the mask; dictionaries within have it at both storeys."""
    told: dict[str, Any] = {}
    for key, value in values.items():
        told[key] = masked(value, mask) if isinstance(value, dict) else value
        told[f"_{key}"] = mask
    return told


def facts_of(masks: NDArray[np.int8], facts: NDArray[np.int64]) -> dict[str, Any]:
    """What every step tells."""
    return {
        "action_mask": masks,
        "time_ns": facts[FACT_NOW_NS],
        "invalid_actions": facts[FACT_INVALID],
        "episode_index": facts[FACT_EPISODE],
    }


def results_of(books: Books, rows: NDArray[np.int64]) -> dict[str, Any]:
    """What the episodes of some environments came to, which have just ended; in fresh arrays."""
    results, totals = only(books.results, rows), only(books.sums, rows)[TERMS:]
    return {
        "schedule": {
            "makespan_ns": results[R_MAKESPAN_NS],
            "lower_bound_ns": results[R_BOUND_NS],
            "steps": results[R_STEPS],
            "peak_hbm_bytes": results[R_HBM_PEAK],
            "finished": results[R_FINISHED] == 1,
        },
        "terms": dict(zip(RewardTerms._fields, totals, strict=False)),  # the reward itself comes behind them
        "episode_return": totals[SUM_REWARD],
        "episode_length": results[R_STEPS].copy(),
    }


def last_facts(books: Books, rows: NDArray[np.int64], masks: NDArray[np.int8]) -> dict[str, Any]:
    """What :func:`facts_of` would have told of episodes that have ended and been followed by others."""
    last = np.zeros_like(masks)
    last[rows] = masks[rows]
    facts = np.zeros((FACTS, len(masks)), np.int64)
    for fact, result in ((FACT_NOW_NS, R_MAKESPAN_NS), (FACT_INVALID, R_INVALID), (FACT_EPISODE, R_EPISODE)):
        facts[fact, rows] = books.results[rows, result]
    return facts_of(last, facts)


def only(figures: NDArray[Any], rows: NDArray[np.int64]) -> NDArray[Any]:
    """Figures of some environments, one row a figure, zero for all others."""
    some = np.zeros(figures.shape[::-1], figures.dtype)
    some[:, rows] = figures[rows].T
    return some


def last_observations(
    parts: Mapping[str, NDArray[np.float32]], rows: NDArray[np.int64], count: int
) -> NDArray[np.object_]:
    """Objects (N,): for each of these environments a dictionary of its row of the parts, for others None."""
    last = np.empty(count, dtype=object)
    for j, i in enumerate(rows.tolist()):
        last[i] = {name: part[j] for name, part in parts.items()}
    return last
