"""What the engine keeps up to date while it goes on, against what a scan of the whole state finds.

Sums, minima and lists of a state change where something happens, so that a step need not go through
everything. Here each is worked out anew in plain Python after every decision of random episodes. What is
planted: every word that a law is about, changed by one, must break that law. More under ``-m slow``.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pytest
from cases import make_case, running

from cann_env.engine import groups
from cann_env.engine import layout as at
from cann_env.engine.dispatch import dispatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    Numbers = list[int]

SEEDS = (18, 28, 37, 47, 59)


class Look:
    """One instant: program and state as plain lists, and where rows stand in them."""

    def __init__(self, program: Numbers, state: NDArray[np.int64]) -> None:
        self.p = program
        self.s: Numbers = state.tolist()
        self.bytes: Numbers = state.view(np.int8).tolist()

    def rows(self, table: int, count: int, width: int) -> range:
        """First words of the rows of a table of the state."""
        return range(self.p[table], self.p[table] + count * width, width)

    @property
    def buffers(self) -> range:
        return self.rows(at.P_STATE_BUFFER, self.p[at.P_BUFFERS], at.SB_WIDTH)

    @property
    def commands(self) -> range:
        return self.rows(at.P_STATE_COMMAND, self.p[at.P_COMMANDS], at.SC_WIDTH)

    @property
    def streams(self) -> range:
        return self.rows(at.P_STATE_STREAM, self.p[at.P_STREAMS], at.SS_WIDTH)

    @property
    def links(self) -> range:
        return self.rows(at.P_STATE_LINK, self.p[at.P_LINKS], at.SL_WIDTH)

    @property
    def dies(self) -> range:
        return self.rows(at.P_STATE_DIE, self.p[at.P_DIES], at.SD_WIDTH)

    @property
    def groups(self) -> range:
        return self.rows(at.P_STATE_GROUP, self.s[at.S_GROUPS], groups.SG_WIDTH)

    def fixed(self, table: int, index: int, width: int) -> Numbers:
        """A row of the program."""
        first = self.p[table] + index * width
        return self.p[first : first + width]

    def command(self, c: int) -> Numbers:
        return self.fixed(at.P_AT_COMMAND, c, at.PC_WIDTH)

    def buffer(self, b: int) -> Numbers:
        return self.fixed(at.P_AT_BUFFER, b, at.PB_WIDTH)

    def phase(self, c: int) -> int:
        return self.s[self.commands[c] + at.SC_PHASE]

    def ranked(self, rank: int) -> int:
        """The command of a rank."""
        return self.p[self.p[at.P_AT_RANKED] + rank]


# --- buffers that could be lifted into L2 ---------------------------------------------------------------


def could_be_lifted(look: Look, b: int) -> bool:
    """It is in HBM for a known command to read, of which L2 makes a difference, and not up there already."""
    row, fixed = look.buffers[b], look.buffer(b)
    kept = look.s[row : row + at.SB_WIDTH]
    if kept[at.SB_CONTENT] == 0 or kept[at.SB_READS] == 0 or kept[at.SB_RANK] == at.FAR:
        return False
    if fixed[at.PB_MANAGED] == 1 and kept[at.SB_RESIDENCY] != at.VALID:
        return False
    if look.command(look.ranked(kept[at.SB_RANK]))[at.PC_TRAFFIC_BYTES] == 0:
        return False
    most = min(fixed[at.PB_BYTES], look.p[at.P_LIFT_BYTES])
    absent = kept[at.SB_LIFTING] == 0 and kept[at.SB_L2_BYTES] < most
    return absent or look.p[at.P_FREE_MASK] == 1


def liftable(look: Look) -> tuple[Numbers, Numbers]:
    """The list, the most urgent last, buffers of one user by number from the end; then each buffer's rank."""
    first = look.p[at.P_STATE_LIFTABLE]
    kept = look.s[first : first + look.s[at.S_LIFTABLE]]
    kept += [look.s[row + at.SB_LISTED] for row in look.buffers]
    ranks = [-1] * len(look.buffers)
    if look.p[at.P_LIFTS] > 0 and look.p[at.P_LIFT_BYTES] > 0:
        ranks = [
            look.s[row + at.SB_RANK] if could_be_lifted(look, b) else -1 for b, row in enumerate(look.buffers)
        ]
    listed = [b for b, rank in enumerate(ranks) if rank >= 0]
    return kept, sorted(listed, key=lambda b: (ranks[b], b), reverse=True) + ranks


def words_of_liftable(look: Look) -> Iterator[int]:
    first = look.p[at.P_STATE_LIFTABLE]
    yield at.S_LIFTABLE
    yield from range(first, first + look.s[at.S_LIFTABLE])
    yield from (row + at.SB_LISTED for row in look.buffers)


# --- when something happens next ------------------------------------------------------------------------


def soonest(look: Look) -> tuple[Numbers, Numbers]:
    """The next change of stage of a group, the next timer of a stream."""
    changes = (look.s[row + groups.SG_NEXT_NS] for row in look.groups)
    timers = (look.s[row + at.SS_TIMER_NS] for row in look.streams)
    return [look.s[at.S_NEXT_NS], look.s[at.S_TIMER_NS]], [
        min(changes, default=at.FAR),
        min(timers, default=at.FAR),
    ]


def words_of_soonest(look: Look) -> Iterator[int]:
    yield from (at.S_NEXT_NS, at.S_TIMER_NS)


# --- what moves over links ------------------------------------------------------------------------------


def link_sums(look: Look) -> tuple[Numbers, Numbers]:
    """Of each link, its units taken by those that move over it, and what they would take at their caps."""
    kept, found = [], []
    for link, row in enumerate(look.links):
        kept += [look.s[row + at.SL_UNITS], look.s[row + at.SL_WANTED]]
        units = wanted = 0
        for group in look.groups:
            moves = look.s[group + groups.SG_STAGE] == groups.MOVING
            if moves and look.s[group + groups.SG_FLOW] >> link & 1:
                each = look.s[group + groups.SG_HBM_WEIGHT] if link % at.LINK_KINDS == at.LINK_HBM else 1
                units += look.s[group + groups.SG_BLOCKS] * each
                wanted += look.s[group + groups.SG_BLOCKS] * each * look.s[group + groups.SG_CAP]
        found += [units, wanted]
    return kept, found


def words_of_link_sums(look: Look) -> Iterator[int]:
    for row in look.links:
        yield from (row + at.SL_UNITS, row + at.SL_WANTED)


# --- what commands wait for -----------------------------------------------------------------------------


def unfinished(look: Look) -> Numbers:
    return [c for c in range(len(look.commands)) if look.phase(c) != at.DONE]


def missing_bytes(look: Look) -> tuple[Numbers, Numbers]:
    """Of each command that is not done, the bytes it reads that are to come, and those on their way."""
    kept, found = [], []
    for c in unfinished(look):
        kept += [look.s[look.commands[c] + field] for field in (at.SC_COMING_BYTES, at.SC_MOVING_BYTES)]
        coming = moving = 0
        first = look.command(c)[at.PC_OPERAND]
        for i in range(first, first + look.command(c)[at.PC_OPERANDS]):
            operand = look.fixed(at.P_AT_OPERAND, i, at.PO_WIDTH)
            if operand[at.PO_MODE] & at.READ:
                row = look.buffers[operand[at.PO_BUFFER]]
                size = look.buffer(operand[at.PO_BUFFER])[at.PB_BYTES]
                coming += size if look.s[row + at.SB_COMING] == 1 else 0
                moving += size if look.s[row + at.SB_RESIDENCY] == at.ARRIVING else 0
        found += [coming, moving]
    return kept, found


def words_of_missing_bytes(look: Look) -> Iterator[int]:
    for c in unfinished(look):
        yield from (look.commands[c] + at.SC_COMING_BYTES, look.commands[c] + at.SC_MOVING_BYTES)


# --- counts ---------------------------------------------------------------------------------------------


def claims(look: Look) -> tuple[Numbers, Numbers]:
    """Those that wait for space, over all dies."""
    return [look.s[at.S_CLAIMS]], [sum(look.s[row + at.SD_CLAIMS] for row in look.dies)]


def words_of_claims(look: Look) -> Iterator[int]:
    yield at.S_CLAIMS
    yield from (row + at.SD_CLAIMS for row in look.dies)


def cursor(look: Look) -> tuple[Numbers, Numbers]:
    """The first rank that has not started; past the last one if there is none."""
    waiting = (rank for rank in range(len(look.commands)) if look.phase(look.ranked(rank)) < at.STARTED)
    return [look.s[at.S_CURSOR]], [next(waiting, len(look.commands))]


def words_of_cursor(look: Look) -> Iterator[int]:
    yield at.S_CURSOR


# --- the mask of the ready window -----------------------------------------------------------------------


def ready(look: Look) -> Numbers:
    """Commands that are released and whose predecessors have all been issued, by rank."""
    found = []
    for c in map(look.ranked, range(len(look.commands))):
        fixed = look.command(c)
        first = look.p[at.P_AT_PRED] + fixed[at.PC_PRED]
        issued = all(look.phase(u) != at.UNISSUED for u in look.p[first : first + fixed[at.PC_PREDS]])
        if look.phase(c) == at.UNISSUED and fixed[at.PC_RELEASE_NS] <= look.s[at.S_NOW_NS] and issued:
            found.append(c)
    return found


def open_streams(look: Look) -> list[bool]:
    """Streams with room; of idle ones the lowest of each die and priority. One without a name is open."""
    if look.p[at.P_IMPLIED] == 1:
        return [True]
    kinds = [look.fixed(at.P_AT_STREAM, stream, at.PS_WIDTH) for stream in range(len(look.streams))]
    lengths = [look.s[row + at.SS_LENGTH] for row in look.streams]
    idle = [kind if length == 0 else [] for kind, length in zip(kinds, lengths, strict=True)]
    return [
        0 < length < look.p[at.P_QUEUE_DEPTH] or (length == 0 and idle.index(kinds[stream]) == stream)
        for stream, length in enumerate(lengths)
    ]


def says_all(look: Look) -> bool:
    """Whether neither memory nor event ids keep anything from being issued, and it is not over."""
    events = look.s[at.S_EVENTS] + look.p[at.P_STREAMS] - 1 <= look.p[at.P_MAX_EVENTS]
    return look.s[at.S_STATUS] == at.RUNNING and look.p[at.P_AMPLE] == 1 and events


def window_mask(look: Look) -> tuple[Numbers, Numbers]:
    """Each command in the window may go to each open stream, if one more may be in flight."""
    if not says_all(look):
        return [], []
    slots, choices = look.p[at.P_WINDOW], look.p[at.P_CHOICES]
    first = look.p[at.P_STATE_WINDOW]
    shown = look.s[first : first + slots]
    known = shown if look.p[at.P_IMPLIED] == 1 else (ready(look) + [-1] * slots)[:slots]
    flight = sum(at.UNISSUED < look.phase(c) < at.DONE for c in range(len(look.commands)))
    more = flight < look.p[at.P_RUN_AHEAD]
    legal = [int(c >= 0 and more and named) for c in known for named in open_streams(look)]
    marks = 8 * look.p[at.P_STATE_MASK]
    return shown + look.bytes[marks : marks + slots * choices], known + legal


def words_of_window_mask(look: Look) -> Iterator[int]:
    if says_all(look):
        words = -(-look.p[at.P_WINDOW] * look.p[at.P_CHOICES] // 8)
        yield from range(look.p[at.P_STATE_MASK], look.p[at.P_STATE_MASK] + words)


# --- the laws -------------------------------------------------------------------------------------------


class Law(NamedTuple):
    """What the engine keeps and what a scan finds, and the words of a state that are kept."""

    both: Callable[[Look], tuple[Numbers, Numbers]]
    words: Callable[[Look], Iterator[int]]


LAWS = (
    Law(liftable, words_of_liftable),
    Law(soonest, words_of_soonest),
    Law(link_sums, words_of_link_sums),
    Law(missing_bytes, words_of_missing_bytes),
    Law(claims, words_of_claims),
    Law(cursor, words_of_cursor),
    Law(window_mask, words_of_window_mask),
)
each_law = pytest.mark.parametrize("law", LAWS, ids=lambda law: law.both.__name__)


@lru_cache(len(SEEDS))
def states_of(seed: int) -> tuple[Numbers, tuple[NDArray[np.int64], ...]]:
    """The program of a case, and its state at the first decision and after every decision."""
    case = make_case(seed)
    state = case.new_state()
    found = [state.copy()]
    while running(state):
        case.step(state, case.random_action(state))
        found.append(state.copy())
    return case.program.image.tolist(), tuple(found)


def looks(seeds: tuple[int, ...]) -> Iterator[Look]:
    for seed in seeds:
        program, states = states_of(seed)
        yield from (Look(program, state) for state in states)


@each_law
def test_what_is_kept_is_what_is_found(law: Law) -> None:
    seen = set()
    for look in looks(SEEDS):
        kept, found = law.both(look)
        assert kept == found
        seen.add(tuple(kept))
    assert len(seen) > 1  # something is kept, and changes


@each_law
def test_each_word_matters(law: Law) -> None:
    planted = 0
    for seed in SEEDS:
        program, states = states_of(seed)
        for state in states[1::4]:
            for word in law.words(Look(program, state)):
                wrong = state.copy()
                wrong[word] += 1
                kept, found = law.both(Look(program, wrong))
                assert kept != found
                planted += 1
    assert planted > 0


@pytest.mark.slow
def test_what_is_kept_is_what_is_found_at_length() -> None:
    for seed in range(300):
        for look in looks((seed,)):
            for law in LAWS:
                kept, found = law.both(look)
                assert kept == found, (seed, law.both.__name__)


# --- and nothing is left undone -----------------------------------------------------------------------

LISTED = [at.S_GROUPS, at.S_CLAIMS, at.S_ACTIVE, at.S_ELIGIBLE, at.S_PENDING, at.S_WAITING]


@pytest.mark.slow  # the dispatch is compiled by itself
def test_a_device_that_is_settled_has_nothing_to_start() -> None:
    """Dispatch is skipped where nothing has stirred; one more after every decision must not find anything.

    In seed 436 a buffer that is evicted clean makes room for one that has been waiting for it.
    """
    waited = 0
    for seed in (*SEEDS, 436):
        case = make_case(seed, most=14)
        state = case.new_state()
        while running(state):
            case.step(state, case.random_action(state))
            again = state.copy()
            dispatch(case.program.image, again)
            assert (again[LISTED] == state[LISTED]).all(), seed
            waited += int(state[at.S_CLAIMS] > 0)
    assert waited > 0  # somebody had to wait for space
