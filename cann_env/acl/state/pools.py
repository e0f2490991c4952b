"""Pools of device memory whose allocations live in the order of streams.

A pool takes memory from the device when it has no place that fits, and keeps it. A place that was given
back is used again at once by the stream that gave it back, by another stream where an event orders the two,
or where the work before it has ended; else the pool grows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cann_env.acl import codes
from cann_env.acl.codes import Refused

if TYPE_CHECKING:
    from cann_env.acl.state.memory import Allocation
    from cann_env.acl.state.order import Clock
    from cann_env.acl.state.work import Work


@dataclass(slots=True)
class Place:
    """A piece of a pool that nobody holds: what is known once it may be used again, and last users."""

    size: int
    stream: int
    clock: Clock
    users: tuple[Work, ...] = ()


@dataclass(slots=True, eq=False)
class Pool:
    """A pool.

    Attributes:
        handle: As the program knows it.
        device: Number of the device.
        block: Sizes are rounded up to multiples of it.
        reserved: Bytes taken from the device.
        used: Bytes given out.
        site: Where it was made.
        fixed: It never grows.
        places: What is free, by the order in which it was given back.
        live: What is given out.
        served: How many allocations found a place without asking the device.
    """

    handle: int
    device: int
    block: int
    reserved: int
    site: str
    fixed: bool = False
    used: int = 0
    places: list[Place] = field(default_factory=list)
    live: list[Allocation] = field(default_factory=list)
    served: int = 0

    def rounded(self, size: int) -> int:
        """Bytes that an allocation takes."""
        return -(-size // self.block) * self.block

    def fitting(self, size: int, stream: int, known: Clock) -> Place | None:
        """The smallest free piece that fits and is free for a stream that knows so much."""
        free = [
            place
            for place in self.places
            if place.size >= size
            and (place.stream == stream or all(known.get(s, -1) >= p for s, p in place.clock.items()))
        ]
        return min(free, key=lambda place: place.size, default=None)


def refuse_growth(pool: Pool, size: int, free: int) -> Refused:
    """Neither the pool nor the device has so much."""
    return Refused(
        codes.RT_MEMORY_ALLOCATION,
        f"pool {pool.handle} (made at {pool.site}) cannot give {size} bytes: {pool.used} of its "
        f"{pool.reserved} bytes "
        f"are held, no free piece fits, and the device has {free} bytes left",
    )
