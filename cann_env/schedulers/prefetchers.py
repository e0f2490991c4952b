"""Prefetchers by name: how each wraps an order of issue, and which options it is meant for."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from cann_env.options import Eviction, PrefetchMask
from cann_env.schedulers.feedback import Feedback
from cann_env.schedulers.migration import Migration
from cann_env.schedulers.paging import CircularPool, Conservative
from cann_env.schedulers.prefetch import Aggressive, AtOnce, DoNoHarm, LookAhead
from cann_env.spelling import did_you_mean
from cann_env.units import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cann_env.options import RunOptions
    from cann_env.schedulers.policy import Chooser, Policy

_OFFLOADS = 32
_STRICT = {"prefetch_mask": PrefetchMask.STRICT}


@dataclass(frozen=True, slots=True)
class Prefetcher:
    """A way to prefetch, for any order of issue.

    Attributes:
        wrap: Makes a scheduler of a policy that issues and waits.
        options: Fields of :class:`~cann_env.options.RunOptions` that it is meant for. It also runs, and does
            what they allow, with any others; but what is meant for the strict mask may fetch in circles under
            the free one, until the episode runs out of steps.
    """

    wrap: Callable[[Policy], Policy | Chooser]
    options: Mapping[str, Any] = field(default_factory=dict)

    def adapt(self, options: RunOptions) -> RunOptions:
        """Options with those fields set as they are meant to be."""
        return replace(options, **self.options)


def _on_demand(order: Policy) -> Policy:
    return order


PREFETCHERS: dict[str, Prefetcher] = {
    "on_demand_lru": Prefetcher(_on_demand, {"eviction": Eviction.LRU}),
    "on_demand": Prefetcher(_on_demand),
    "at_once": Prefetcher(AtOnce, {"prefetch_mask": PrefetchMask.FREE, "eviction": Eviction.LRU}),
    "look_ahead_2": Prefetcher(lambda order: LookAhead(order, 2), _STRICT),
    "look_ahead_4": Prefetcher(lambda order: LookAhead(order, 4), _STRICT),
    "look_ahead_8": Prefetcher(lambda order: LookAhead(order, 8), _STRICT),
    "do_no_harm": Prefetcher(DoNoHarm, _STRICT),
    "aggressive": Prefetcher(Aggressive, _STRICT),
    "conservative": Prefetcher(Conservative),
    "circular_pool": Prefetcher(CircularPool),
    "migration": Prefetcher(Migration, {"offloads": _OFFLOADS}),
    "feedback": Prefetcher(Feedback, {"offloads": _OFFLOADS}),
}
"""All prefetchers; the first fetches on demand and evicts what was used last the longest ago."""


def check_slots(name: str, options: RunOptions) -> None:
    """Refuse a prefetcher that could only fetch on demand, for want of slots to prefetch from.

    Args:
        name: One of :data:`PREFETCHERS`.
        options: Those of the program it is to run on.

    Raises:
        InputError: There are no slots, and it does not fetch on demand by intent.
    """
    if options.prefetches == 0 and PREFETCHERS[name].wrap is not _on_demand:
        raise InputError(
            f"option 'prefetches' is 0, which switches prefetching off; prefetcher {name!r} needs at least 1 "
            "(or take 'on_demand')"
        )


def make_prefetcher(name: str, order: Policy) -> Policy | Chooser:
    """A prefetcher by name, around a policy that issues and waits.

    Raises:
        InputError: No prefetcher of that name; lists those there are.
    """
    if name not in PREFETCHERS:
        near = did_you_mean(name, PREFETCHERS)
        raise InputError(f"prefetcher {name!r} is not known; {near}there are {', '.join(PREFETCHERS)}")
    return PREFETCHERS[name].wrap(order)
