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
import mmap
import os
import warnings
import weakref
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from cann_env.acl import codes
from cann_env.acl.codes import Refused

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from cann_env.acl.state.work import Work

_DEVICE_BASE: Final = 0x1240_0000_0000
_DEVICE_SPAN: Final = 1 << 40
_MANAGED_BASE: Final = 0x7000_0000_0000_00
_LIBRARY: Final = ctypes.CDLL(None) if os.name == "posix" else None
_KEPT: Final = 4096
_MOST_PAGES: Final = 1 << 28
_KEPT_BYTES: Final = 1 << 30
"""Most objects, and most bytes of them, that are kept alive for programs that kept their address only."""


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
        address, size: First address; bytes the program asked for.
        taken: Bytes that are gone from the device's memory.
        space: See :class:`Space`.
        device: Whose memory; -1 for the host's.
        data: The bytes, made when first touched.
        site: Where the program asked for it.
        racy: Two accesses to it in the work that runs now were not ordered.
        freed, freed_at_ns: Where it was given back, empty while it is held; and when.
        pool: Handle of the pool it came from; 0 for none.
        stream: Stream whose order its life follows; 0 for none.
        on_device: MANAGED: where the bytes are once all that was submitted is done.
        bounded: Where it ends is known; host memory that only copies have named may be larger.
        model: Handle of the model whose weights or work lie in it; 0 for none.
        registered: The program's own host memory, which it pinned.
        prior: Work that used the same place of its pool before it.
        given_back: What else happens when it is given back.
        die, pageable, on_host: Home die, -1 for any; MANAGED: its host side is; what is there is needed.
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
    bounded: bool = True
    model: int = 0
    registered: bool = False
    prior: tuple[Work, ...] = ()
    given_back: Callable[[], None] | None = None
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
        late: What a call has just named although it was freed, and where that was.
    """

    def __init__(self) -> None:
        self.late: tuple[str, str] | None = None
        self.allocations: list[Allocation] = []
        self._starts: list[int] = []
        self._live: list[Allocation] = []
        self._holes: dict[int, list[tuple[int, int]]] = {}
        self._numbers = itertools.count()
        self._kept: deque[tuple[Allocation, object]] = deque()
        self._kept_bytes = 0

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
        try:
            data = np.zeros(size + 64, np.uint8)
        except (MemoryError, ValueError, OverflowError):
            raise Refused(codes.RT_MEMORY_ALLOCATION, f"the host has no {size} bytes left") from None
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
        self._forget_all(address, size)  # of an array that is gone, or a part of this one
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

    def _forget_all(self, address: int, size: int) -> None:
        for old in [old for old in self._live if self._overlaps(old, address, size)]:
            if old.space is Space.PAGEABLE:
                self._forget(old)

    def _forget(self, allocation: Allocation) -> None:
        """The program's own memory is gone, or was never seen whole."""
        if not allocation.freed:
            allocation.freed = "where its array went away"
            self._remove(allocation)

    def undo(self, count: int) -> None:
        """Forget host memory that a failed call named, behind the first so many allocations."""
        while len(self.allocations) > count and self.allocations[-1].site == "unknown":
            self._remove(self.allocations.pop())

    def lend(self, data: bytes, site: str) -> Allocation:
        """Know the bytes of an object of the program, and keep it alive for a while.

        A program may drop the object and keep the address; on a device that goes well as long as nothing
        else takes the memory.
        """
        address, size = int(np.frombuffer(data, np.uint8).ctypes.data) if data else 0, len(data)
        kept = next((known for known, owner in self._kept if owner is data), None)
        if kept is not None and not kept.freed:
            return kept
        self._forget_all(address, size)
        added = Allocation(
            next(self._numbers), address, size, size, Space.PAGEABLE, -1, site, _bytes_at(address, size)
        )
        self._add(added)
        self._kept.append((added, data))
        self._kept_bytes += size
        while len(self._kept) > _KEPT or self._kept_bytes > _KEPT_BYTES:
            oldest, _ = self._kept.popleft()
            self._kept_bytes -= oldest.size
            self._forget(oldest)
        return added

    def part(self, whole: Allocation, size: int) -> Allocation:
        """Memory inside an allocation that programs do not address by itself: a tensor of a model."""
        part = Allocation(next(self._numbers), whole.address, size, 0, whole.space, whole.device, whole.site)
        part.model = whole.model
        return part

    def free(self, allocation: Allocation, site: str, at_ns: int) -> None:
        """Take memory back."""
        allocation.freed, allocation.freed_at_ns = site, at_ns
        self._remove(allocation)
        if allocation.given_back is not None:
            allocation.given_back()
        region = {Space.DEVICE: allocation.device, Space.MANAGED: -2}.get(allocation.space)
        if region is not None:
            self._give_back(region, allocation.address, allocation.taken)

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
            if gone and gone[-1].space is not Space.PAGEABLE:
                self.late = gone[-1].name, gone[-1].freed
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
        if isinstance(address, int) and isinstance(size, int) and size > 0 and address > 4096:
            found = self.find(address)
            grows = found is not None and not found.bounded and address + size > found.address + found.size
            if (found is None or grows) and not self._is_ours(address):
                if not _is_mapped(address, size):
                    raise Refused(
                        codes.RT_PARAM_INVALID,
                        f"{what} 0x{address:x} with {size} bytes is no memory of this process",
                    )
                first = found.address if found is not None else address
                self._forget_all(first, address + size - first)
                data = _bytes_at(first, address + size - first)
                added = Allocation(
                    next(self._numbers), first, data.size, data.size, Space.PAGEABLE, -1, "unknown", data
                )
                added.bounded = False
                self._add(added)
        return self.range(address, size, what)

    def source_range(self, address: object, size: object, what: str) -> Range:
        """Like :meth:`host_range`, for memory that is only read.

        Nobody on a device knows where a host object of the program ends, so that reading past it works.
        What lies there are zeros here, and the program is warned.
        """
        if isinstance(address, int) and isinstance(size, int):
            found = self.find(address)
            if found is not None and found.space is Space.PAGEABLE and found.bounded:
                first = address - found.address
                missing = first + size - found.size
                if missing > 0:
                    warnings.warn(
                        f"{what} 0x{address:x} with {size} bytes ends {missing} bytes behind the object of "
                        f"{found.site}; zeros are read there",
                        stacklevel=4,
                    )
                    data = np.concatenate([found.bytes()[first:], np.zeros(missing, np.uint8)])
                    made = Allocation(
                        next(self._numbers), address, size, size, Space.PAGEABLE, -1, found.site, data
                    )
                    return Range(made, 0, size)
        return self.host_range(address, size, what)

    def _is_ours(self, address: int) -> bool:
        """Whether an address lies where only the runtime gives memory, or gave some and took it back."""
        given = _DEVICE_BASE <= address < _DEVICE_BASE + 16 * _DEVICE_SPAN or address >= _MANAGED_BASE
        return given or any(
            old.freed and old.space is not Space.PAGEABLE and self._overlaps(old, address, 1)
            for old in self.allocations
        )

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


def _is_mapped(address: int, size: int) -> bool:
    """Whether the process may touch so much there; taken as given where the system cannot tell."""
    ask = getattr(_LIBRARY, "mincore", None)
    if ask is None:
        return True
    first = address // mmap.PAGESIZE * mmap.PAGESIZE
    pages = -(-(address + size - first) // mmap.PAGESIZE)
    if pages > _MOST_PAGES:
        return False
    state = (ctypes.c_ubyte * pages)()
    return bool(ask(ctypes.c_void_p(first), ctypes.c_size_t(pages * mmap.PAGESIZE), state) == 0)
