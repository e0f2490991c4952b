"""All schedulers by name.

A name may carry an argument behind a colon: ``load_balance:4`` allocates to four streams, ``search:9000``
tries nine thousand schedules and ``search:seconds=2`` searches for two seconds. Any order of issue can be
joined with any prefetcher: ``eager+migration`` issues like ``eager`` and moves buffers by a migration plan.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from cann_env.schedulers.cann import BY_STREAMS, CANN
from cann_env.schedulers.online import (
    Chained,
    Eager,
    JustInTime,
    PerEngine,
    Random,
    RoundRobin,
    SingleStream,
)
from cann_env.schedulers.prefetchers import PREFETCHERS, make_prefetcher
from cann_env.schedulers.reference import Reference
from cann_env.schedulers.rules import RULES
from cann_env.schedulers.search import Search
from cann_env.schedulers.streams import STREAMS
from cann_env.spelling import did_you_mean
from cann_env.units import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from cann_env.schedulers.policy import Deciding, Policy, Scheduler

SCHEDULERS: dict[str, Scheduler] = {
    "single_stream": lambda seed: SingleStream(),
    "round_robin": lambda seed: RoundRobin(),
    "per_engine": lambda seed: PerEngine(),
    "random": lambda seed: Random(np.random.default_rng(seed)),
    **CANN,
    **STREAMS,
    **RULES,
    "reference": lambda seed: Reference(),
    "search": lambda seed: Search(seed=seed),
}

SHORT_LIST = (
    "single_stream",
    "round_robin",
    "per_engine",
    "cann_autotune",
    "nimble",
    "opara",
    "heft",
    "reference",
    "search",
)
"""Schedulers that are compared unless others are asked for."""

ORDERS: dict[str, Callable[[], Policy]] = {
    "single_stream": SingleStream,
    "round_robin": RoundRobin,
    "per_engine": PerEngine,
    "just_in_time": JustInTime,
    "chained": Chained,
    "eager": Eager,
}
"""Orders of issue, which never prefetch, for use with one of :data:`PREFETCHERS`."""


def _with_streams(name: str) -> Callable[[str, int], Deciding]:
    def make(argument: str, seed: int) -> Deciding:
        if not _is_whole(argument):
            raise InputError(
                f"scheduler '{name}:{argument}' has the argument {argument!r}; write a number of streams, "
                f"e.g. '{name}:4'"
            )
        return BY_STREAMS[name](int(argument))(seed)

    return make


def _search(argument: str, seed: int) -> Deciding:
    key, _, value = argument.rpartition("=")
    if key in ("", "schedules") and _is_whole(value):
        return Search(schedules=int(value), seed=seed)
    seconds = read_seconds(value) if key == "seconds" else None
    if seconds is not None:
        return Search(schedules=None, seconds=seconds, seed=seed)
    raise InputError(
        f"scheduler 'search:{argument}' has the argument {argument!r}; write a number of schedules, e.g. "
        "'search:20000', or a time, e.g. 'search:seconds=2'"
    )


def _is_whole(text: str) -> bool:
    return re.fullmatch(r"[0-9]{1,18}", text) is not None


def read_seconds(text: str) -> float | None:
    """A time from the argument of a scheduler, digits with or without a point; None if it is none."""
    return float(text) if re.fullmatch(r"[0-9]{1,18}(\.[0-9]*)?|\.[0-9]+", text) else None


ARGUMENTS: dict[str, Callable[[str, int], Deciding]] = {
    **{name: _with_streams(name) for name in BY_STREAMS},
    "search": _search,
}
"""Schedulers that take an argument: from that and a seed to the scheduler."""


def register(name: str, make: Scheduler, *, argument: Callable[[str, int], Deciding] | None = None) -> None:
    """Make a scheduler of one's own known by name, to run and compare it as any other.

    Args:
        name: Without ``+``, ``:`` and commas, which have a meaning in names.
        make: From a seed to a policy, chooser, assigner or planner.
        argument: From what stands behind a colon, and a seed, to the same; None if it takes no argument.

    Raises:
        InputError: The name holds one of these characters, or something else goes by it.
    """
    if not name or set(name) & set("+:, "):
        raise InputError(f"a scheduler cannot be named {name!r}; leave out '+', ':', commas and spaces")
    known = SCHEDULERS.get(name)
    if (name in ORDERS and known is None) or name in PREFETCHERS or known not in (None, make):
        raise InputError(f"a scheduler named {name!r} is known already; choose another name")
    SCHEDULERS[name] = make
    if argument is not None:
        ARGUMENTS[name] = argument


def is_scheduler(name: str) -> bool:
    """Whether :func:`make_scheduler` knows a name; its argument may still be wrong."""
    order, _, prefetcher = name.partition("+")
    if name in SCHEDULERS or (order in ORDERS and prefetcher in PREFETCHERS):
        return True
    return ":" in name and name.partition(":")[0] in ARGUMENTS


def check_scheduler(name: str) -> None:
    """Refuse a name that :func:`make_scheduler` does not know, and an argument that it does not take.

    Raises:
        InputError: No scheduler of that name; lists those there are. Or what is wrong with the argument.
    """
    if is_scheduler(name):
        if name not in SCHEDULERS and ":" in name:
            make_scheduler(name)
        return
    base, colon, _ = name.partition(":")
    if colon and base in SCHEDULERS:
        raise InputError(
            f"scheduler {base!r} takes no argument, but {name!r} has one; those that do are "
            f"{', '.join(ARGUMENTS)}"
        )
    known = did_you_mean(name, _known(name)) + (
        f"there are {', '.join(SCHEDULERS)}; or join one of {', '.join(ORDERS)} by '+' with one of "
        f"{', '.join(PREFETCHERS)}"
    )
    if name in ORDERS:
        raise InputError(
            f"scheduler {name!r} is an order of issue, which exists only joined with a prefetcher, e.g. "
            f"'{name}+aggressive'; {known}"
        )
    if name in PREFETCHERS:
        raise InputError(
            f"scheduler {name!r} is a prefetcher, which exists only joined with an order of issue, e.g. "
            f"'eager+{name}'; {known}"
        )
    raise InputError(f"scheduler {name!r} is not known; {known}")


def _known(name: str) -> list[str]:
    """Names that a mistyped one may stand for, with its argument or its prefetcher if it has one."""
    if "+" in name:
        return [f"{order}+{each}" for order in ORDERS for each in PREFETCHERS]
    argument = name.partition(":")[2]
    return [f"{each}:{argument}" for each in ARGUMENTS] if argument else [*SCHEDULERS]


def make_scheduler(name: str, seed: int = 0) -> Deciding:
    """A scheduler by name: one of :data:`SCHEDULERS`, one with an argument, or an order and a prefetcher.

    Raises:
        InputError: No scheduler of that name; lists those there are. Or what is wrong with its argument.
    """
    base, colon, argument = name.partition(":")
    if colon and base in ARGUMENTS:
        return ARGUMENTS[base](argument, seed)
    if name in SCHEDULERS:
        return SCHEDULERS[name](seed)
    check_scheduler(name)
    order, _, prefetcher = name.partition("+")
    return make_prefetcher(prefetcher, ORDERS[order]())
