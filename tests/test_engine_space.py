"""The address space of a die: best fit, no overlap, and no byte handed out too early.

Drawn cases first, one character a byte (``.`` free, a letter its owner); then random lives of a table beside
a model that knows every single byte.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cann_env.engine import space
from cann_env.engine.jit import pointer

if TYPE_CHECKING:
    from cann_env.engine import Image

Clock = tuple[int, ...]
Row = tuple[int, int, int, Clock]  # address, size, owner, clock
Step = tuple[bool, int, list[int]]  # whether to place, size (or which to remove), clock of the users

AT = 5  # words before the table, which must stay as they are
GUARD = -77
BUFFERS = 24
NAMES = "abcdefghijklmnopqrstuvwxyz"


class Space:
    """A table with guard words around it, and a place for the clock that ``remove`` reads."""

    def __init__(self, size: int, streams: int = 2, buffers: int = BUFFERS) -> None:
        self.streams = streams
        self.end = AT + space.space_words(buffers, streams)
        self.s = np.full(self.end + AT + streams, GUARD, dtype=np.int64)
        space.open_space(self.s, AT, streams, size)

    def place(self, owner: int, size: int) -> int:
        return int(space.place(self.s, AT, self.streams, size, owner))

    def remove(self, owner: int, clock: Clock) -> int:
        self.s[self.end + AT :] = clock
        return int(space.remove(self.s, AT, self.streams, owner, self.end + AT))

    def rows(self) -> list[Row]:
        width = space.SX_CLOCK + self.streams
        begin = AT + space.SX_HEADER
        table = self.s[begin : begin + self.s[AT + space.SX_ROWS] * width].reshape(-1, width)
        return [(row[0], row[1], row[2], tuple(row[space.SX_CLOCK :])) for row in table.tolist()]

    def drawn(self) -> str:
        return "".join(size * ("." if owner < 0 else NAMES[owner]) for _, size, owner, _ in self.rows())

    def free_bytes(self) -> int:
        return int(self.s[AT + space.SX_FREE_BYTES])

    def largest_hole(self) -> int:
        return int(space.largest_hole(self.s, AT, self.streams))

    def guards_hold(self) -> bool:
        return bool((self.s[:AT] == GUARD).all() and (self.s[self.end : self.end + AT] == GUARD).all())


def filled(picture: str, streams: int = 2) -> Space:
    """A space in which the letters of ``picture`` were placed from the low end, and ``-`` is then removed."""
    made = Space(len(picture), streams)
    runs = [(mark, len(list(run))) for mark, run in groupby(picture)]
    for i, (mark, size) in enumerate(runs):
        if mark != ".":
            made.place(NAMES.index(mark) if mark != "-" else 20 + i, size)
    for i, (mark, _) in enumerate(runs):
        if mark == "-":
            made.remove(20 + i, (-1,) * streams)
    return made


# --- drawn cases --------------------------------------------------------------------------------------


def test_the_smallest_hole_that_holds_it_is_taken_at_its_low_end() -> None:
    """Holes of 4, 2, 3 and 3 bytes; three bytes go into the first of the two holes of three::

    aa----bb--cc---d...
    aa----bb--ccEEEd...
    """
    made = filled("aa----bb--cc---d...")
    assert made.drawn() == "aa....bb..cc...d..."
    assert (made.free_bytes(), made.largest_hole()) == (12, 4)
    row = made.place(4, 3)
    assert made.drawn() == "aa....bb..cceeed..."
    assert row == 5 == space.row_of(made.s, AT, 2, 4)
    assert made.rows()[row] == (12, 3, 4, (-1, -1))


def test_the_rest_of_a_hole_stays_behind_the_new_tenant() -> None:
    """One byte goes into the hole of two::

    aa----bb--cc
    aa....bbD.cc
    """
    made = filled("aa----bb--cc")
    assert made.place(3, 1) == 3
    assert made.drawn() == "aa....bbd.cc"
    assert made.free_bytes() == 5


def test_what_no_hole_holds_is_refused_and_nothing_changes() -> None:
    """Six bytes are free, but only four in a row: that is fragmentation::

    aa----bb--cc
    """
    made = filled("aa----bb--cc")
    before = made.s.copy()
    assert (made.free_bytes(), made.largest_hole()) == (6, 4)
    assert made.place(3, 5) == -1
    assert np.array_equal(made.s, before)


def test_an_empty_and_a_full_space_hold_nothing() -> None:
    empty = Space(0)
    assert (empty.place(0, 1), empty.largest_hole(), empty.free_bytes()) == (-1, 0, 0)
    full = Space(3)
    assert full.place(0, 3) == 0
    assert (full.place(1, 1), full.largest_hole(), full.free_bytes()) == (-1, 0, 0)
    assert full.remove(0, (2, 3)) == 3
    assert full.rows() == [(0, 3, -1, (2, 3))]


def test_a_tenant_is_ordered_behind_the_former_users_of_its_bytes_only() -> None:
    """a, b and c were used on other streams up to other positions; D takes all of a and half of b::

    aabbcc      clocks after removal:  a (4, -1)   b (1, 7)   c (9, 9)
    DDD.cc      D waits for            (4, 7), the byte of b that is left keeps (1, 7)
    """
    made = filled("aabbcc")
    for owner, clock in enumerate([(4, -1), (1, 7), (9, 9)]):
        assert made.remove(owner, clock) == 2
    assert made.largest_hole() == 6
    assert made.place(3, 3) == 0
    assert made.rows() == [(0, 3, 3, (4, 7)), (3, 1, -1, (1, 7)), (4, 2, -1, (9, 9))]


def test_a_tenant_may_span_whole_rows_and_leave_nothing() -> None:
    """::

    abcd        clocks after removal:  a (0, 1)   b (2, 0)   c (1, 3)
    EEEd
    """
    made = filled("abcd")
    for owner, clock in enumerate([(0, 1), (2, 0), (1, 3)]):
        made.remove(owner, clock)
    assert made.place(4, 3) == 0
    assert made.rows() == [(0, 3, 4, (2, 3)), (3, 1, 3, (-1, -1))]


def test_a_removed_tenant_hands_on_what_it_waited_for() -> None:
    """A clock only grows: b waited for position 5 of stream 0, and its own users came to 3 of stream 1."""
    made = filled("aa")
    made.remove(0, (5, -1))
    made.place(1, 2)
    made.remove(1, (2, 3))
    assert made.rows() == [(0, 2, -1, (5, 3))]


@pytest.mark.parametrize("order", ["abc", "acb", "bac", "cab", "bca", "cba"])
def test_free_neighbours_with_one_clock_become_one_row(order: str) -> None:
    """a and c come to one clock, b to another, in every order of removal::

    aabccd      a and b stay apart, b and c too
    aabbcd      with one clock for all, one row of five bytes
    """
    apart, joined = filled("aabccd"), filled("aabbcd")
    for name in order:
        apart.remove(NAMES.index(name), (1, 2) if name != "b" else (1, 3))
        joined.remove(NAMES.index(name), (1, 2))
    assert apart.rows() == [
        (0, 2, -1, (1, 2)),
        (2, 1, -1, (1, 3)),
        (3, 2, -1, (1, 2)),
        (5, 1, 3, (-1, -1)),
    ]
    assert joined.rows() == [(0, 5, -1, (1, 2)), (5, 1, 3, (-1, -1))]


def test_the_words_before_the_first_row_are_no_row() -> None:
    """With three streams the header lies where the clock of a row before the first would, word for word."""
    made = Space(4, streams=3)
    made.place(0, 4)
    made.remove(0, (1, 4, 4))  # rows, free bytes, capacity
    assert made.rows() == [(0, 4, -1, (1, 4, 4))]


def test_who_has_no_row_is_not_found_and_frees_nothing() -> None:
    made = filled("aa.")
    before = made.s[: made.end].copy()
    assert space.row_of(made.s, AT, 2, 1) == -1
    assert made.remove(1, (3, 3)) == 0
    assert np.array_equal(made.s[: made.end], before)


def test_as_many_rows_as_the_words_are_for_can_occur() -> None:
    """Four of five bytes placed one by one: four rows and the rest, and not a word of the table is left."""
    made = Space(5, streams=1, buffers=4)
    for owner in range(4):
        assert made.place(owner, 1) == owner
    assert made.drawn() == "abcd."
    assert made.end - AT == space.SX_HEADER + 5 * (space.SX_CLOCK + 1)
    assert made.s[made.end - 1] == -1
    assert made.guards_hold()


def test_a_copy_lives_its_own_life() -> None:
    """A trial on the copy leaves the original alone, and words behind the live part are not copied."""
    made = filled("aab-")
    before = made.s.copy()
    words = made.end - AT
    image = np.concatenate([made.s[:AT], made.s[AT : made.end], np.full(words, GUARD, dtype=np.int64)])
    live = space.SX_HEADER + 3 * (space.SX_CLOCK + 2)
    image[AT + live : AT + words] = 1
    space.copy_space(image, AT, AT + words, 2)
    assert np.array_equal(image[AT + words : AT + words + live], image[AT : AT + live])
    assert (image[AT + words + live :] == GUARD).all()
    assert space.place(image, AT + words, 2, 1, 9) == 2
    assert np.array_equal(image[: AT + live], before[: AT + live])


# --- laws ---------------------------------------------------------------------------------------------


class Bytes:
    """The model: an owner, a clock and all former clocks of every byte by itself."""

    def __init__(self, size: int, streams: int) -> None:
        self.owner = [-1] * size
        self.clock: list[Clock] = [(-1,) * streams] * size
        self.former: list[list[Clock]] = [[] for _ in range(size)]

    def holes(self) -> list[tuple[int, int]]:
        """Size and address of every maximal run of free bytes."""
        runs = groupby(range(len(self.owner)), key=lambda byte: self.owner[byte] < 0)
        found = [list(run) for free, run in runs if free]
        return [(len(run), run[0]) for run in found]

    def place(self, owner: int, size: int) -> int:
        """Address taken, -1 if no hole is large enough."""
        fitting = [hole for hole in self.holes() if hole[0] >= size]
        if not fitting:
            return -1
        address = min(fitting)[1]
        taken = range(address, address + size)
        latest = tuple(max(words) for words in zip(*(self.clock[byte] for byte in taken), strict=True))
        for byte in taken:
            assert self.owner[byte] == -1
            self.owner[byte], self.clock[byte] = owner, latest
        return address

    def remove(self, owner: int, clock: Clock) -> int:
        """Bytes freed."""
        freed = [byte for byte, its in enumerate(self.owner) if its == owner]
        for byte in freed:
            self.owner[byte] = -1
            self.clock[byte] = tuple(map(max, self.clock[byte], clock))
            self.former[byte].append(clock)
        return len(freed)

    def rows(self) -> list[Row]:
        """The fewest rows that tell all of it."""
        found = []
        for (owner, clock), run in groupby(range(len(self.owner)), lambda b: (self.owner[b], self.clock[b])):
            taken = list(run)
            found.append((taken[0], len(taken), owner, clock))
        return found


def lives(streams: int, most: int = 9) -> st.SearchStrategy[list[Step]]:
    clock = st.lists(st.integers(-1, 3), min_size=streams, max_size=streams)
    return st.lists(st.tuples(st.booleans(), st.integers(1, most), clock), max_size=2 * BUFFERS)


def live_once(made: Space, model: Bytes, step: Step, owner: int) -> int:
    """Do one step on both, compare what they say, and return how many buffers have been placed."""
    wanted, number, clock = step
    live = sorted({its for its in model.owner if its >= 0})
    if not wanted and live:
        chosen = live[number % len(live)]
        assert made.remove(chosen, tuple(clock)) == model.remove(chosen, tuple(clock))
    elif wanted and owner < BUFFERS:
        row = made.place(owner, number)
        address = model.place(owner, number)
        assert (row < 0) == (address < 0)
        if row >= 0:
            check_tenant(made.rows()[row], model, (address, number, owner))
            owner += 1
    return owner


def check_tenant(row: Row, model: Bytes, wanted: tuple[int, int, int]) -> None:
    """A new tenant is where best fit says, and behind all that ever used any of its bytes."""
    assert row[:3] == wanted
    for byte in range(row[0], row[0] + row[1]):
        for former in model.former[byte]:
            assert all(own >= its for own, its in zip(row[3], former, strict=True))


@pytest.mark.parametrize("streams", [0, 2])
@settings(deadline=None, max_examples=50)
@given(data=st.data(), size=st.integers(1, 20))
def test_a_table_tells_what_became_of_every_byte(streams: int, data: st.DataObject, size: int) -> None:
    """Rows, holes, clocks and free bytes are those of the model after every step, in the promised words."""
    made, model = Space(size, streams), Bytes(size, streams)
    owner = 0
    for step in data.draw(lives(streams)):
        owner = live_once(made, model, step, owner)
        assert made.rows() == model.rows()
        assert len(made.rows()) <= owner + 1
        assert made.free_bytes() == model.owner.count(-1)
        assert made.largest_hole() == max(model.holes(), default=(0, 0))[0]
        assert made.s[AT + space.SX_CAPACITY_BYTES] == size
        assert made.guards_hold()


@settings(deadline=None, max_examples=30)
@given(lives(1), st.integers(1, 6), st.integers(1, 5))
def test_equal_blocks_never_fragment(steps: list[Step], blocks: int, block: int) -> None:
    """With a capacity of whole blocks, one more is refused only when none is free."""
    made = Space(blocks * block, streams=1)
    live: list[int] = []
    placed = 0
    for wanted, number, clock in steps:
        if wanted and placed < BUFFERS:
            fits = made.free_bytes() >= block
            assert (made.place(placed, block) >= 0) == fits == (len(live) < blocks)
            live += [placed] * fits
            placed += fits
        elif live:
            assert made.remove(live.pop(number % len(live)), tuple(clock)) == block


def _life_step(s: Image, streams: int, size: int, owner: int, clock_at: int) -> int:
    """Place where there is room, else remove buffer ``owner``; the image is a bare pointer in the engine."""
    image = pointer(s)
    row = space.place(image, AT, streams, size, owner)
    if row < 0:
        row = -2 - space.remove(image, AT, streams, owner // 2, clock_at)
    return row


by_pointer_step: Any = numba.njit(_life_step)


def test_arrays_and_bare_pointers_give_one_image() -> None:
    """The engine's form (a pointer) and the caller's (an array) of the same life are equal word for word."""
    by_array, by_pointer = Space(13), Space(13)
    removed = 0
    for owner in range(BUFFERS):
        size = 1 + owner * 5 % 4
        clock_at = by_array.end + AT
        by_array.s[clock_at:] = by_pointer.s[clock_at:] = (owner % 3, owner % 5)
        row = by_array.place(owner, size)
        if row < 0:
            row = -2 - by_array.remove(owner // 2, (owner % 3, owner % 5))
            removed += row < -2
        assert by_pointer_step(by_pointer.s, 2, size, owner, clock_at) == row
        assert np.array_equal(by_array.s, by_pointer.s)
    assert removed > 2
