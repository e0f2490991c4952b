"""Memory that programs can address: of devices, of the host, managed, and the bytes in it.

Addresses are whole numbers, as in the Python binding. Device and managed memory lie in an address space of
the simulator, host memory that the runtime gives lies where numpy put it. All have real bytes behind them,
so that copies move data.
"""

from __future__ import annotations

import bisect
import ctypes
import enum
import itertools
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from cann_env.acl import codes
from cann_env.acl.codes import Refused

if TYPE_CHECKING:
    from numpy.typing import NDArray

_DEVICE_BASE: Final = 0x1240_0000_0000
_DEVICE_SPAN: Final = 1 << 40
_MANAGED_BASE: Final = 0x7000_0000_0000_00


class Space(enum.StrEnum):
    """Where memory lies: in the device, on the host (pinned or pageable), or where the runtime moves it."""

    DEVICE = "device"
    PINNED = "pinned"
    PAGEABLE = "pageable"
    MANAGED = "managed"


@dataclass(slots=True, eq=False)
class Allocation:
    """A piece of memory.

    Attributes:
        number: Counts allocations; names the buffer.
        address: First address.
        size: Bytes the program asked for.
        taken: Bytes that are gone from the device's memory.
        space: See :class:`Space`.
        device: Whose memory; -1 for the host's.
        data: The bytes, made when first touched.
        site: Where the program asked for it.
        racy: Two accesses to it in the work that runs now were not ordered.
        freed: Where it was given back; empty while it is held.
        freed_at_ns: When.
        pool: Handle of the pool it came from; 0 for none.
        stream: Stream whose order its life follows; 0 for none.
        on_device: MANAGED: where the bytes are once all that was submitted is done.
        die: Home die; -1 if the program did not say.
        pageable: MANAGED: its host side is.
        on_host: MANAGED: what lies on the host is needed, even if work writes all of it first.
    """

    number: int
    address: int
    size: int
    taken: int
    space: Space
    device: int
    site: str
    data: NDArray[np.uint8] | None = None
    racy: bool = False
    freed: str = ""
    freed_at_ns: int = 0
    pool: int = 0
    stream: int = 0
    on_device: bool = False
    die: int = -1
    pageable: bool = False
    on_host: bool = False

    @property
    def name(self) -> str:
        """For tables and messages."""
        return f"{self.space.value}{self.number}"

    def bytes(self) -> NDArray[np.uint8]:
        """The bytes behind it; device memory holds zeros until something is written."""
        if self.data is None:
            self.data = np.zeros(self.size, np.uint8)
        return self.data


@dataclass(frozen=True, slots=True)
class Range:
    """Bytes of an allocation, as a call names them."""

    allocation: Allocation
    first: int
    size: int

    @property
    def last(self) -> int:
        """One past the last byte."""
        return self.first + self.size

    def view(self) -> NDArray[np.uint8]:
        """The bytes themselves."""
        return self.allocation.bytes()[self.first : self.last]


class AddressSpace:
    """All memory that a program knows, by address.

    Attributes:
        allocations: Everything ever given, in order.
    """

    def __init__(self) -> None:
        self.allocations: list[Allocation] = []
        self._starts: list[int] = []
        self._live: list[Allocation] = []
        self._holes: dict[int, list[tuple[int, int]]] = {}
        self._numbers = itertools.count()
        self._kept: dict[int, object] = {}

    def device(self, device: int, size: int, taken: int, site: str) -> Allocation:
        """Give device memory; the caller has checked that there is enough."""
        base = _DEVICE_BASE + device * _DEVICE_SPAN
        address = self._place(device, base, _DEVICE_SPAN, taken)
        return self._add(Allocation(next(self._numbers), address, size, taken, Space.DEVICE, device, site))

    def managed(self, device: int, size: int, site: str) -> Allocation:
        """Give memory that host and device share, on the host at first."""
        taken = -(-size // (2 << 20)) * (2 << 20)
        address = self._place(-2, _MANAGED_BASE, _DEVICE_SPAN, taken)
        return self._add(Allocation(next(self._numbers), address, size, taken, Space.MANAGED, device, site))

    def pinned(self, size: int, site: str) -> Allocation:
        """Give host memory that the device reaches by itself."""
        data = np.zeros(size + 64, np.uint8)
        skew = -data.ctypes.data % 64
        data = data[skew : skew + size]
        return self._add(
            Allocation(next(self._numbers), data.ctypes.data, size, size, Space.PINNED, -1, site, data)
        )

    def pageable(self, array: NDArray[Any], site: str) -> Allocation:
        """Know a host array of the program, as long as it lives.

        Args:
            array: Contiguous; only its address is kept.
            site: Where it was handed over.
        """
        address, size = int(array.ctypes.data), int(array.nbytes)
        known = self.find(address)
        if known is not None and address + size <= known.address + known.size:
            return known
        for old in [old for old in self._live if self._overlaps(old, address, size)]:
            self._forget(old)  # of an array that is gone, or a part of this one
        # Not a reference to the array: it may go, and its memory be used for another.
        data = _bytes_at(address, size)
        added = self._add(
            Allocation(next(self._numbers), address, size, size, Space.PAGEABLE, -1, site, data)
        )
        owner = array
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        weakref.finalize(owner, self._forget, added)
        return added

    def _forget(self, allocation: Allocation) -> None:
        """The program's own memory is gone, or was never seen whole."""
        if not allocation.freed:
            allocation.freed = "where its array went away"
            self._remove(allocation)

    def keep(self, address: int, owner: object) -> None:
        """Keep a Python object alive whose memory the program addresses."""
        self._kept[address] = owner

    def free(self, allocation: Allocation, site: str, at_ns: int) -> None:
        """Take memory back."""
        allocation.freed, allocation.freed_at_ns = site, at_ns
        self._remove(allocation)
        region = {Space.DEVICE: allocation.device, Space.MANAGED: -2}.get(allocation.space)
        if region is not None:
            self._give_back(region, allocation.address, allocation.taken)

    def plain(self) -> list[Allocation]:
        """Memory of devices, and what is shared with them, that is held and that no pool gave."""
        spaces = (Space.DEVICE, Space.MANAGED)
        return [found for found in self._live if found.space in spaces and not found.pool]

    def find(self, address: int) -> Allocation | None:
        """The memory that an address lies in."""
        place = bisect.bisect_right(self._starts, address) - 1
        if place < 0:
            return None
        found = self._live[place]
        return found if address < found.address + max(found.size, 1) else None

    def range(self, address: object, size: object, what: str) -> Range:
        """Bytes that a call names.

        Raises:
            Refused: Not whole numbers, memory that is not (or no longer) allocated, or more than there is.
        """
        if not isinstance(address, int) or isinstance(address, bool) or address <= 0:
            raise Refused(
                codes.RT_PARAM_INVALID, f"{what} is {address!r}; pass an address that an allocation gave"
            )
        if not isinstance(size, int) or isinstance(size, bool) or size < 0:
            raise Refused(
                codes.RT_PARAM_INVALID, f"size of {what} is {size!r}; pass a whole number of bytes from 0"
            )
        found = self.find(address)
        if found is None:
            gone = [old for old in self.allocations if old.freed and self._overlaps(old, address, 1)]
            why = f"was freed at {gone[-1].freed}" if gone else "was never allocated"
            raise Refused(codes.RT_PARAM_INVALID, f"{what} 0x{address:x} {why}")
        first = address - found.address
        if first + size > found.size:
            raise Refused(
                codes.RT_PARAM_INVALID,
                f"{what} 0x{address:x} with {size} bytes ends behind its allocation {found.name} of "
                f"{found.size} "
                f"bytes ({first} of them before it)",
            )
        return Range(found, first, size)

    def host_range(self, address: object, size: object, what: str) -> Range:
        """Like :meth:`range`, but host memory that the runtime never saw is taken as pageable."""
        if isinstance(address, int) and isinstance(size, int) and size > 0 and self.find(address) is None:
            gone = any(old.freed and self._overlaps(old, address, 1) for old in self.allocations)
            known = _DEVICE_BASE <= address < _DEVICE_BASE + 16 * _DEVICE_SPAN or address >= _MANAGED_BASE
            if not gone and not known and address > 4096:
                data = _bytes_at(address, size)
                self._add(
                    Allocation(next(self._numbers), address, size, size, Space.PAGEABLE, -1, "unknown", data)
                )
        return self.range(address, size, what)

    def _add(self, allocation: Allocation) -> Allocation:
        place = bisect.bisect_left(self._starts, allocation.address)
        self._starts.insert(place, allocation.address)
        self._live.insert(place, allocation)
        self.allocations.append(allocation)
        return allocation

    def _remove(self, allocation: Allocation) -> None:
        place = self._live.index(allocation)
        del self._live[place], self._starts[place]

    @staticmethod
    def _overlaps(old: Allocation, address: int, size: int) -> bool:
        return old.address < address + size and address < old.address + max(old.size, 1)

    def _place(self, region: int, base: int, span: int, size: int) -> int:
        """The lowest of the smallest holes that are large enough."""
        holes = self._holes.setdefault(region, [(base, span)])
        size = max(size, 64)
        fitting = [(length, start) for start, length in holes if length >= size]
        if not fitting:
            raise Refused(codes.RT_MEMORY_ALLOCATION, f"no address range of {size} bytes is left")
        length, start = min(fitting)
        place = holes.index((start, length))
        step = -(-size // 64) * 64
        holes[place : place + 1] = [(start + step, length - step)] if length > step else []
        return start

    def _give_back(self, region: int, address: int, size: int) -> None:
        holes = self._holes[region]
        step = -(-max(size, 64) // 64) * 64
        place = bisect.bisect_left(holes, (address, 0))
        holes.insert(place, (address, step))
        merged: list[tuple[int, int]] = []
        for start, length in holes:
            if merged and merged[-1][0] + merged[-1][1] == start:
                merged[-1] = merged[-1][0], merged[-1][1] + length
            else:
                merged.append((start, length))
        self._holes[region] = merged


def _bytes_at(address: int, size: int) -> NDArray[np.uint8]:
    """Bytes of host memory that someone else holds."""
    return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))
