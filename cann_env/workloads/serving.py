"""Serving: several requests for several models arrive at one device.

Graphs of the models and a seeded arrival process go in, one merged :class:`~cann_env.graph.CommandGraph`
comes out, in which every command carries its request and its release time, and all requests for one model
share its weights.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cann_env.graph import merge_requests
from cann_env.units import NS_PER_S, InputError
from cann_env.workloads.checks import check_sizes
from cann_env.workloads.draws import exponential, pick

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.random import Generator

    from cann_env.graph import CommandGraph


class Arrivals(enum.StrEnum):
    """When requests arrive.

    ``closed``: all at time zero. ``poisson``: independently, at a mean rate. ``burst``: in groups of a fixed
    size, the groups at exponential distances, at the same mean rate of requests.
    """

    CLOSED = "closed"
    POISSON = "poisson"
    BURST = "burst"


class Mix(enum.StrEnum):
    """Which model a request asks for: each in turn, or one drawn at random."""

    CYCLE = "cycle"
    DRAW = "draw"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrivalProcess:
    """An arrival process.

    Attributes:
        kind: See :class:`Arrivals`.
        rate_per_s: Mean number of requests a second; 0 exactly when all arrive at time zero.
        burst: Requests that arrive together; 1 unless the kind is ``burst``.
    """

    kind: Arrivals = Arrivals.CLOSED
    rate_per_s: int = 0
    burst: int = 1

    def __post_init__(self) -> None:
        """Check that the numbers fit the kind."""
        closed = self.kind == Arrivals.CLOSED
        if closed and self.rate_per_s != 0:
            raise InputError(
                f"'rate_per_s' is {self.rate_per_s} with 'closed' arrivals, which are all at time zero; "
                "leave it out, or write arrivals 'poisson' or 'burst'"
            )
        if not closed and not 1 <= self.rate_per_s <= NS_PER_S:
            raise InputError(
                f"'rate_per_s' is {self.rate_per_s} with {self.kind.value!r} arrivals; "
                f"write a number of requests a second from 1 to {NS_PER_S}"
            )
        check_sizes(burst=self.burst)
        if self.kind != Arrivals.BURST and self.burst != 1:
            raise InputError(
                f"'burst' is {self.burst} with {self.kind.value!r} arrivals; "
                "leave it out, or write arrivals 'burst'"
            )


def release_times(rng: Generator, requests: int, process: ArrivalProcess) -> tuple[int, ...]:
    """Draw when each request arrives.

    Returns:
        Times in ns, not falling; the first is 0, since time begins with the first request.
    """
    check_sizes(requests=requests)
    if process.kind == Arrivals.CLOSED:
        return (0,) * requests
    mean_ns = process.burst * NS_PER_S // process.rate_per_s
    times = [0]
    for i in range(1, requests):
        gap = exponential(rng, mean_ns) if i % process.burst == 0 else 0
        times.append(times[-1] + gap)
    return tuple(times)


def serve(
    rng: Generator,
    models: Sequence[CommandGraph],
    requests: int,
    process: ArrivalProcess,
    *,
    mix: Mix = Mix.CYCLE,
    name: str = "serving",
) -> CommandGraph:
    """Make the graph of ``requests`` requests, named ``r0``, ``r1``, ... by arrival.

    Args:
        rng: Draws the models, if they are drawn, then the arrivals.
        models: What can be asked for; each has a graph name of its own, by which its weights are shared.
        requests: How many, at least 1.
        process: When they arrive.
        mix: Which model each asks for.
        name: Of the graph.

    Raises:
        InputError: There is no model, two have one name, or ``requests`` is out of range.
    """
    names = [model.name for model in models]
    if not names:
        raise InputError(f"graph {name!r} has no model to serve; give at least one")
    if len(set(names)) < len(names):
        raise InputError(f"graph {name!r}: the models are named {names}; give each model a name of its own")
    check_sizes(requests=requests)
    if mix == Mix.CYCLE:
        asked = [models[i % len(models)] for i in range(requests)]
    else:
        asked = [pick(rng, models) for _ in range(requests)]
    times = release_times(rng, requests, process)
    return merge_requests(
        name, [(f"r{i}", model, time) for i, (model, time) in enumerate(zip(asked, times, strict=True))]
    )
