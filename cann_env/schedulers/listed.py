"""Policies that know which command is which: list scheduling in a given order, and the best of several."""

from __future__ import annotations

from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from cann_env.schedulers.policy import EpisodeError, rollout
from cann_env.schedulers.prefetch import IntoL2

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from cann_env.program import Program
    from cann_env.schedulers.policy import Observation, Policy

_STARTABLE, _AWAITED = 13, 15  # columns of the observation of a command
_LENGTH = 1  # column of the observation of a stream


def startable(observation: Observation, *, patient: bool) -> NDArray[np.bool_]:
    """Which slots of the ready window hold what can start now; if patient, with its operands there."""
    commands = observation["commands"]
    there = commands[:, _STARTABLE] > 0
    return there & (commands[:, _AWAITED] == 0) if patient else there


def idle_stream(k: int, observation: Observation, mask: NDArray[np.int8], info: Mapping[str, Any]) -> int:
    """The lowest idle stream that takes the command in a slot; -1 if there is none."""
    choices = int(info["choices"])
    row = mask[k * choices : (k + 1) * choices] > 0
    if choices > 1:
        row = row & (observation["streams"][:, _LENGTH] == 0)
    return int(row.argmax()) if row.any() else -1


def wait_or_first(mask: NDArray[np.int8]) -> int:
    """Wait; where that is not possible, the first legal action."""
    return mask.size - 1 if mask[-1] else int(np.flatnonzero(mask)[0])


@dataclass(slots=True)
class Listed:
    """List scheduling in a given order: only what can start now, on an idle stream, else wait.

    Attributes:
        place: Place of each command in the order.
        patient: Wait for operands that are on their way.
    """

    place: tuple[int, ...]
    patient: bool = False

    def act(self, observation: Observation, mask: NDArray[np.int8], info: Mapping[str, Any]) -> int:
        """Start the first command in the order that can, else wait."""
        ready = startable(observation, patient=self.patient)
        slots = [k for k, c in enumerate(info["ready"].tolist()) if c >= 0 and ready[k]]
        for k in sorted(slots, key=lambda k: self.place[info["ready"][k]]):
            stream = idle_stream(k, observation, mask, info)
            if stream >= 0:
                return int(k * info["choices"] + stream)
        return wait_or_first(mask)


def best_policy(program: Program, policies: Sequence[Policy]) -> Policy:
    """The policy that does best under expected durations, the first of equals, as fresh as it came.

    The best is tried once more with prefetches into L2 where there is one.

    Raises:
        EpisodeError: None of them finishes.
    """
    found: list[tuple[int, int]] = []
    tried = list(policies)

    def play(i: int) -> None:
        with suppress(EpisodeError):
            found.append((rollout(program, deepcopy(tried[i])).objective_ns, i))

    for i in range(len(tried)):
        play(i)
    if found and program.has_l2 and program.options.l2_prefetches > 0:
        tried.append(IntoL2(deepcopy(tried[min(found)[1]])))
        play(len(tried) - 1)
    if not found:
        raise EpisodeError(
            f"none of {len(tried)} ways finishes graph {program.graph.name!r} on {program.device.name}"
        )
    return tried[min(found)[1]]
