"""Checks that several workloads share; each raises an InputError that names the parameter and its value."""

from __future__ import annotations

from cann_env.graph import Level
from cann_env.units import InputError


def check_sizes(**sizes: int) -> None:
    """Check that every size is a whole number of at least 1.

    Raises:
        InputError: Names the size.
    """
    _check_whole(sizes, 1)


def check_not_negative(**sizes: int) -> None:
    """Check that every size is a whole number of at least 0.

    Raises:
        InputError: Names the size.
    """
    _check_whole(sizes, 0)


def check_shares(**shares: float) -> None:
    """Check that every share lies between 0 and 1.

    Raises:
        InputError: Names the share.
    """
    for name, share in shares.items():
        if not 0.0 <= share <= 1.0:
            raise InputError(f"{name!r} is {share!r}; write a share from 0 to 1")


def check_weights(level: Level, name: str = "weights") -> None:
    """Check that weights, or what goes with them, start where data can lie.

    Raises:
        InputError: They would start nowhere.
    """
    if level not in (Level.HOST, Level.HBM):
        raise InputError(f"{name!r} is {level.value!r}; write 'host' (cold) or 'hbm' (resident)")


def check_not_empty(name: str, values: tuple[object, ...]) -> None:
    """Check that a list has an item.

    Raises:
        InputError: Names the list.
    """
    if not values:
        raise InputError(f"{name!r} is empty; list at least one")


def _check_whole(sizes: dict[str, int], least: int) -> None:
    for name, size in sizes.items():
        if not isinstance(size, int) or isinstance(size, bool) or size < least:
            raise InputError(f"{name!r} is {size!r}; write a whole number of at least {least}")
