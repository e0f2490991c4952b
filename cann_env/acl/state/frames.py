"""Frames of device memory that are broken into small pages: why huge pages run out before memory does.

Memory is given in pages. A page of 2 MiB needs a frame of 2 MiB that nobody uses a part of; pages of 4 KiB
come from frames that are broken already, the one broken first at first, and break another if those are full.
"""

from __future__ import annotations

from typing import Final

PAGE: Final = 4 << 10
FRAME: Final = 2 << 20
_PAGES: Final = FRAME // PAGE


class Frames:
    """Broken frames of a device, with the free pages of each."""

    def __init__(self) -> None:
        self._free: dict[int, int] = {}
        self._next = 0
        self._loose = 0

    @property
    def loose_bytes(self) -> int:
        """Free bytes in frames of which a part is used."""
        return self._loose * PAGE

    def take(self, size: int) -> dict[int, int]:
        """Take bytes in pages of 4 KiB; gives how many pages of which frame, for :meth:`give_back`."""
        pages = -(-size // PAGE)
        held: dict[int, int] = {}
        for frame in list(self._free):
            if not pages:
                break
            part = min(pages, self._free[frame])
            self._change(frame, -part)
            held[frame] = part
            pages -= part
        while pages:
            part, frame = min(pages, _PAGES), self._next
            self._next += 1
            self._change(frame, _PAGES - part)
            held[frame] = part
            pages -= part
        return held

    def give_back(self, held: dict[int, int]) -> None:
        """Give pages back; a frame of which nothing is used is whole again."""
        for frame, pages in held.items():
            self._change(frame, pages)

    def _change(self, frame: int, pages: int) -> None:
        before = self._free.pop(frame, 0)
        free = before + pages
        self._loose -= before
        if 0 < free < _PAGES:
            self._free[frame] = free
            self._loose += free
