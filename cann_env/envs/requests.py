"""What may be asked of many environments at once, checked before anything changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from gymnasium.vector import AutoresetMode

from cann_env.envs.arguments import instance_option
from cann_env.units import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray


class ResetRequest(NamedTuple):
    """Which environments to reset (int64), and to which episode; None for the next one of each."""

    rows: NDArray[np.int64]
    instance: int | None


def count_of(num_envs: Any) -> int:
    """The number of environments.

    Raises:
        InputError: No whole number of at least 1.
    """
    if not _whole(num_envs) or num_envs < 1:
        raise InputError(f"num_envs is {num_envs!r}; write a whole number of at least 1")
    return int(num_envs)


def thread_count_of(threads: Any) -> int:
    """The number of threads.

    Raises:
        InputError: No whole number of at least 1.
    """
    if not _whole(threads) or threads < 1:
        raise InputError(f"threads is {threads!r}; write a whole number of at least 1")
    return int(threads)


def autoreset_mode_of(mode: Any) -> AutoresetMode:
    """The mode by itself or by its word.

    Raises:
        InputError: There is no such mode.
    """
    try:
        return AutoresetMode(mode)
    except ValueError:
        known = ", ".join(repr(known.value) for known in AutoresetMode)
        raise InputError(f"autoreset_mode is {mode!r}; write one of {known}") from None


def seeds_of(seed: Any, count: int) -> list[int | None]:
    """The run seed of each environment, None where it goes on.

    Raises:
        InputError: Neither None nor a whole number >= 0, nor one of these for each environment.
    """
    if seed is None or _whole(seed):
        each = [seed] * count
    elif isinstance(seed, Sequence | np.ndarray) and not isinstance(seed, str):
        each = list(seed)
    else:
        raise InputError(f"seed is {seed!r}; write a whole number >= 0, or one for each environment")
    if len(each) != count:
        raise InputError(f"there are {len(each)} seeds; write one for each of the {count} environments")
    for i, one in enumerate(each):
        if one is not None and (not _whole(one) or one < 0):
            raise InputError(f"seed of environment {i} is {one!r}; write a whole number >= 0, or None")
    return [None if one is None else int(one) for one in each]


def reset_request(options: Mapping[str, Any] | None, count: int) -> ResetRequest:
    """What the options of reset ask for; they stay as they are.

    Raises:
        InputError: An option that is not known, or a value that is not right.
    """
    given = dict(options or {})
    unknown = sorted(set(given) - {"instance", "reset_mask"})
    if unknown:
        raise InputError(f"reset option {unknown[0]!r} is not known; there are 'instance' and 'reset_mask'")
    rows = np.arange(count)
    if "reset_mask" in given:
        mask = np.asarray(given.pop("reset_mask"))
        if mask.dtype != np.bool_ or mask.shape != (count,):
            raise InputError(
                f"reset option 'reset_mask' has shape {mask.shape} and type {mask.dtype}; "
                f"write a bool for each of the {count} environments"
            )
        if not mask.any():
            raise InputError("reset option 'reset_mask' is False everywhere; choose at least one environment")
        rows = np.flatnonzero(mask)
    return ResetRequest(rows, instance_option(given))


def action_numbers(actions: Any, count: int, choices: int) -> NDArray[np.integer[Any]]:
    """Actions as an array of whole numbers (N,), whatever their range.

    Raises:
        InputError: Not one whole number for each environment.
    """
    if isinstance(actions, np.ndarray) and actions.shape == (count,) and actions.dtype == np.int64:
        return actions
    try:
        numbers = np.asarray(actions)
    except ValueError:
        raise InputError(f"actions {actions!r} are no plain array; {_wanted(count, choices)}") from None
    if numbers.shape != (count,):
        raise InputError(f"actions have shape {numbers.shape}; {_wanted(count, choices)}")
    if numbers.dtype.kind not in "iu":
        raise InputError(f"actions are of type {numbers.dtype}; {_wanted(count, choices)}")
    return numbers


def wrong_action(actions: Any, i: int, count: int, choices: int) -> InputError:
    """What to say of the action of environment i, which is out of range."""
    number = int(np.asarray(actions)[i])
    return InputError(f"action {number} of environment {i} is out of range; {_wanted(count, choices)}")


def _wanted(count: int, choices: int) -> str:
    return f"write a whole number from 0 to {choices - 1} for each of the {count} environments"


def _whole(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)
