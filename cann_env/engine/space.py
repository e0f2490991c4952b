"""The address space of one die: who has which bytes, and what must end before they are used again.

The table lies at ``s[at]``, as ``SX_`` says: a header, then rows in address
order without gaps. A row is free or owned by one buffer. A *hole* is a maximal run of adjacent free rows;
these differ in their clocks, so that a new tenant is ordered behind the former users of its own bytes only.

Clocks are rows of ``streams`` words, the last position in each stream or -1. With ``streams`` 0 there are
none, and every hole is one row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cann_env.engine.jit import kernel

if TYPE_CHECKING:
    from cann_env.engine import Image

# Address space of a die: a header, then rows in address order; a row is SX_CLOCK + streams words wide.
(SX_ROWS, SX_FREE_BYTES, SX_CAPACITY_BYTES, SX_HEADER) = range(4)
(SX_ADDRESS, SX_SIZE, SX_OWNER, SX_CLOCK) = range(4)  # owner: -1 free, else a buffer


@kernel
def space_words(buffers: int, streams: int) -> int:
    """Words of a table in which at most ``buffers`` placements ever happen.

    It never has more than ``buffers + 1`` rows: it starts with one; a placement turns the rows it spans, at
    least one, into its own and perhaps the rest of the last, so it adds one at most; a removal adds none.
    """
    return SX_HEADER + (buffers + 1) * (SX_CLOCK + streams)


@kernel
def open_space(s: Image, at: int, streams: int, size: int) -> None:
    """Make everything one free row of ``size`` >= 0 bytes that no command has used."""
    s[at + SX_ROWS] = 1
    s[at + SX_FREE_BYTES] = size
    s[at + SX_CAPACITY_BYTES] = size
    row = at + SX_HEADER
    s[row + SX_ADDRESS] = 0
    s[row + SX_SIZE] = size
    s[row + SX_OWNER] = -1
    for i in range(streams):
        s[row + SX_CLOCK + i] = -1


@kernel
def copy_space(s: Image, source: int, target: int, streams: int) -> None:
    """Copy the table at ``source`` to ``target``, as far as it is in use."""
    for i in range(SX_HEADER + s[source + SX_ROWS] * (SX_CLOCK + streams)):
        s[target + i] = s[source + i]


@kernel
def row_of(s: Image, at: int, streams: int, owner: int) -> int:
    """Index of the row that buffer ``owner`` has, -1 if it has none."""
    row = at + SX_HEADER
    for r in range(s[at + SX_ROWS]):
        if s[row + SX_OWNER] == owner:
            return r
        row += SX_CLOCK + streams
    return -1


@kernel
def largest_hole(s: Image, at: int, streams: int) -> int:
    """Bytes of the largest hole, 0 if there is none."""
    largest = 0
    hole = 0
    row = at + SX_HEADER
    for _ in range(s[at + SX_ROWS]):
        hole = hole + s[row + SX_SIZE] if s[row + SX_OWNER] < 0 else 0
        largest = max(largest, hole)
        row += SX_CLOCK + streams
    return largest


@kernel
def spare_bytes(s: Image, at: int, streams: int, size: int) -> int:
    """Bytes of all holes beyond ``size`` each.

    Where no hole takes ``size`` bytes, each of the holes there were is cut into pieces below that: one more
    than the blocks placed in it. So what was placed is at least the spare bytes less ``size`` for each block.
    """
    spare = 0
    hole = 0
    row = at + SX_HEADER
    for r in range(s[at + SX_ROWS]):
        hole = hole + s[row + SX_SIZE] if s[row + SX_OWNER] < 0 else 0
        row += SX_CLOCK + streams
        if hole > size and (r + 1 == s[at + SX_ROWS] or s[row + SX_OWNER] >= 0):
            spare += hole - size
    return spare


@kernel
def _best_hole(s: Image, at: int, streams: int, size: int) -> int:
    """First row of the smallest hole that holds ``size`` bytes, the lowest among equals, or -1."""
    rows = s[at + SX_ROWS]
    width = SX_CLOCK + streams
    best = -1
    best_bytes = s[at + SX_CAPACITY_BYTES] + 1
    first = 0
    while first < rows:
        hole = 0
        last = first
        row = at + SX_HEADER + first * width
        while last < rows and s[row + SX_OWNER] < 0:
            hole += s[row + SX_SIZE]
            last += 1
            row += width
        if size <= hole < best_bytes:
            best = first
            best_bytes = hole
        first = last + 1
    return best


@kernel
def _shift(s: Image, at: int, streams: int, r: int, by: int) -> None:
    """Move row ``r`` and all behind it ``by`` rows up or, if negative, down over the rows before it."""
    width = SX_CLOCK + streams
    begin = at + SX_HEADER + r * width
    words = (s[at + SX_ROWS] - r) * width
    step = by * width
    for i in range(words):
        word = begin + (words - 1 - i if by > 0 else i)
        s[word + step] = s[word]
    s[at + SX_ROWS] += by


@kernel
def place(s: Image, at: int, streams: int, size: int, owner: int) -> int:
    """Give buffer ``owner`` the low end of the best hole for ``size`` > 0 bytes.

    The rows it spans become one, with the latest of their clocks in each stream; the rest of the last row
    stays behind it with its own clock.

    Returns:
        Index of its row, or -1 (and nothing changes) if no hole is large enough.
    """
    first = _best_hole(s, at, streams, size)
    if first < 0:
        return -1
    width = SX_CLOCK + streams
    own = at + SX_HEADER + first * width
    address = s[own + SX_ADDRESS]
    kept = first  # the first row that stays free
    row = own
    missing = size
    while missing > 0:
        for i in range(SX_CLOCK, width):
            s[own + i] = max(s[own + i], s[row + i])
        taken = min(missing, s[row + SX_SIZE])
        missing -= taken
        s[row + SX_ADDRESS] += taken
        s[row + SX_SIZE] -= taken
        if s[row + SX_SIZE] == 0:
            kept += 1
            row += width
    if kept != first + 1:
        _shift(s, at, streams, kept, first + 1 - kept)
    s[own + SX_ADDRESS] = address
    s[own + SX_SIZE] = size
    s[own + SX_OWNER] = owner
    s[at + SX_FREE_BYTES] -= size
    return first


@kernel
def _alike(s: Image, at: int, streams: int, r: int) -> bool:
    """Whether row ``r`` and the next exist, are both free and have the same clock."""
    if r < 0 or r + 1 >= s[at + SX_ROWS]:
        return False
    width = SX_CLOCK + streams
    row = at + SX_HEADER + r * width
    if s[row + SX_OWNER] >= 0 or s[row + width + SX_OWNER] >= 0:
        return False
    same = True
    for i in range(SX_CLOCK, width):
        same &= s[row + i] == s[row + width + i]
    return bool(same)


@kernel
def remove(s: Image, at: int, streams: int, owner: int, s_clock: int) -> int:
    """Free the row of buffer ``owner``; its bytes may be used again behind its clock and ``s[s_clock]``.

    Free neighbours with the same clock become one row with it.

    Args:
        s: State image.
        at: Offset of the table.
        streams: Words of a clock.
        owner: A buffer.
        s_clock: Offset of the clock of its users.

    Returns:
        Bytes freed, 0 if it has no row.
    """
    r = row_of(s, at, streams, owner)
    if r < 0:
        return 0
    width = SX_CLOCK + streams
    row = at + SX_HEADER + r * width
    freed = s[row + SX_SIZE]
    s[row + SX_OWNER] = -1
    s[at + SX_FREE_BYTES] += freed
    for i in range(streams):
        s[row + SX_CLOCK + i] = max(s[row + SX_CLOCK + i], s[s_clock + i])
    for _ in range(2):  # with the next row, then with the one before
        if _alike(s, at, streams, r):
            s[row + SX_SIZE] += s[row + width + SX_SIZE]
            _shift(s, at, streams, r + 2, -1)
        r -= 1
        row -= width
    return freed
