"""Nothing is left behind: after random episodes on random graphs all memory, cores and accounts are in order.

Each episode is judged; then the device runs on until nothing moves any more, and every counter of its final
state has to be what the buffers that are still there explain.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache
from itertools import combinations
from typing import TYPE_CHECKING

import numba
import numpy as np
import pytest
from cases import Case, make_case
from episodes import actions_of

from cann_env.engine import layout as at
from cann_env.engine import space
from cann_env.engine.clock import advance_to
from cann_env.engine.jit import pointer
from cann_env.schedule import TransferRun
from cann_env.schedulers.recording import record_schedule
from cann_env.validate import validate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from cann_env.schedule import Schedule

DRAINED = [
    "S_FLIGHT",
    "S_READY",
    "S_PENDING",
    "S_ELIGIBLE",
    "S_GROUPS",
    "S_WAITING",
    "S_WANTED",
    "S_ACTIVE",
    "S_EVENTS",
    "S_HOST_LEFT_NS",
]
BUFFER_DRAINED = ["SB_PINS", "SB_LEAVING", "SB_COMING", "SB_USERS", "SB_UNSTARTED", "SB_LIFTING"]
DIE_DRAINED = [
    "SD_OWED_BYTES",
    "SD_LEAVING_BYTES",
    "SD_OUTPUT_LEFT",
    "SD_TAKEN_LEFT",
    "SD_EARLY_BYTES",
    "SD_CLAIMS",
    "SD_QUEUE",
    "SD_MOVING",
    "SD_LIFT_QUEUE",
    "SD_LIFTS_MOVING",
    "SD_LEAVE_QUEUE",
    "SD_LEAVES_MOVING",
]


@numba.njit
def run_on(p, s):  # type: ignore[no-untyped-def]
    """Let everything end that is still moving."""
    advance_to(pointer(p), pointer(s), at.FAR - 1)


def table(words: NDArray[np.int64], first: int, rows: int, width: int) -> NDArray[np.int64]:
    """Rows of an image."""
    return words[first : first + rows * width].reshape(rows, width)


def left_behind(case: Case, state: NDArray[np.int64]) -> list[str]:
    """What a drained state of a finished episode still holds that it should not."""
    return [
        *(f"{name} {state[getattr(at, name)]}" for name in DRAINED if state[getattr(at, name)]),
        *_of_buffers(case.program.image, state),
        *_of_dies(case.program.image, state),
        *_of_cores(case.program.image, state),
    ]


def _of_buffers(p: NDArray[np.int64], s: NDArray[np.int64]) -> Iterator[str]:
    count = int(p[at.P_BUFFERS])
    fixed = table(p, int(p[at.P_AT_BUFFER]), count, at.PB_WIDTH)
    rows = table(s, int(p[at.P_STATE_BUFFER]), count, at.SB_WIDTH)
    for name in BUFFER_DRAINED:
        if rows[:, getattr(at, name)].any():
            yield f"{name} {rows[:, getattr(at, name)].tolist()}"
    moves = fixed[:, at.PB_MANAGED] == 1
    transient = (fixed[:, at.PB_LEVEL] == at.NOWHERE) & (fixed[:, at.PB_USERS] > 0)
    there = rows[:, at.SB_RESIDENCY]
    if (
        transient & ((there != at.ABSENT) | (rows[:, at.SB_CONTENT] == 1) | (rows[:, at.SB_L2_BYTES] > 0))
    ).any():
        yield "a buffer that nobody needs any more is still there"
    if (moves & (there != at.ABSENT) & (there != at.VALID)).any():
        yield "a buffer is half there"


def _of_dies(p: NDArray[np.int64], s: NDArray[np.int64]) -> Iterator[str]:
    count = int(p[at.P_BUFFERS])
    fixed = table(p, int(p[at.P_AT_BUFFER]), count, at.PB_WIDTH)
    rows = table(s, int(p[at.P_STATE_BUFFER]), count, at.SB_WIDTH)
    stays = (fixed[:, at.PB_MANAGED] == 1) & (rows[:, at.SB_RESIDENCY] == at.VALID)
    static = table(p, int(p[at.P_AT_DIE]), int(p[at.P_DIES]), at.PD_WIDTH)
    for index, die in enumerate(table(s, int(p[at.P_STATE_DIE]), int(p[at.P_DIES]), at.SD_WIDTH)):
        here = fixed[:, at.PB_DIE] == index
        kept = int(fixed[stays & here, at.PB_BYTES].sum())
        places = int(die[at.SD_AT_SPACE])
        whole = int(static[index, at.PD_SPACE_BYTES])
        expected = {
            **dict.fromkeys(DIE_DRAINED, 0),
            "SD_BYTES": int(static[index, at.PD_FIXED_BYTES]) + kept,
            "SD_DEVICE_BYTES": int(static[index, at.PD_FIXED_BYTES]),
            "SD_IDLE": int((stays & here).sum()),
            "SD_IDLE_BYTES": kept,
            "SD_L2_BYTES": int(rows[here, at.SB_L2_BYTES].sum()),
            "SD_HOLE_BYTES": whole,
        }
        for name, value in expected.items():
            if die[getattr(at, name)] != value:
                yield f"die {index}: {name} {die[getattr(at, name)]}, not {value}"
        if die[at.SD_L2_BYTES] > p[at.P_L2_BYTES]:
            yield f"die {index}: more in L2 than it holds"
        hole = space.largest_hole(s, places, int(p[at.P_CLOCKS]))
        if hole != whole or s[places + space.SX_FREE_BYTES] != whole:
            yield f"die {index}: the address space is not free in one piece"


def _of_cores(p: NDArray[np.int64], s: NDArray[np.int64]) -> Iterator[str]:
    dies, kinds = int(p[at.P_DIES]), int(p[at.P_POOLS])
    capacity = table(p, int(p[at.P_AT_POOL]), kinds, at.PP_WIDTH)[:, at.PP_CAPACITY]
    pools = table(s, int(p[at.P_STATE_POOL]), dies * kinds, at.SP_WIDTH)
    if (pools[:, at.SP_FREE] != np.tile(capacity, dies)).any():
        yield f"free cores and channels: {pools[:, at.SP_FREE].tolist()}"
    if pools[:, at.SP_AREA_NS].any():
        yield f"core time that has not started: {pools[:, at.SP_AREA_NS].tolist()}"
    if table(s, int(p[at.P_STATE_CLASS]), dies * int(p[at.P_CLASSES]), at.SW_WIDTH).any():
        yield "a slot is taken"
    links = table(s, int(p[at.P_STATE_LINK]), at.LINK_KINDS, at.SL_WIDTH)
    if links[:, at.SL_BYTES].any():
        yield f"bytes that have not started to move: {links[:, at.SL_BYTES].tolist()}"


def misplaced(case: Case, schedule: Schedule) -> list[str]:
    """Device buffers without one place of their own, and those that lie in the bytes of another."""
    p = case.program.image
    fixed = table(p, int(p[at.P_AT_BUFFER]), int(p[at.P_BUFFERS]), at.PB_WIDTH)
    placed = (
        (fixed[:, at.PB_MANAGED] == 0) & (fixed[:, at.PB_LEVEL] == at.NOWHERE) & (fixed[:, at.PB_USERS] > 0)
    )
    found = []
    if sorted(row.buffer for row in schedule.allocations) != np.flatnonzero(placed).tolist():
        found.append("not every device buffer has one place")
    freed = [row.buffer for row in schedule.transfers if row.cause == "free"]
    if len(set(freed)) < len(freed):
        found.append("a buffer is freed twice")
    for one, other in combinations(schedule.allocations, 2):
        if fixed[one.buffer, at.PB_DIE] != fixed[other.buffer, at.PB_DIE]:
            continue
        apart = one.free_ns <= other.issue_ns or other.free_ns <= one.issue_ns
        beside = (
            one.address + one.size_bytes <= other.address or other.address + other.size_bytes <= one.address
        )
        if not apart and not beside:
            found.append(f"{one} and {other} lie in the same bytes")
    return found


def drained(case: Case) -> tuple[Schedule, NDArray[np.int64]]:
    """The schedule of a random episode, and the state once nothing moves any more."""
    state = case.play()
    schedule = record_schedule(case.program, actions_of(state), noise=case.noise)
    run_on(case.program.image, state)
    return schedule, state


def nothing_is_left_behind(seed: int) -> Schedule:
    case = make_case(seed, most=12)
    schedule, state = drained(case)
    assert validate(schedule) == (), seed
    assert left_behind(case, state) == [], seed
    assert misplaced(case, schedule) == [], seed
    return schedule


@pytest.mark.parametrize("first", range(0, 100, 10))
def test_nothing_is_left_behind(first: int) -> None:
    for seed in range(first, first + 10):
        nothing_is_left_behind(seed)


def test_the_first_hundred_see_everything() -> None:
    """All ways to move, hits, two dies, space that comes late, a place that is used twice."""
    seen: Counter[str] = Counter()
    for seed in range(100):
        case = make_case(seed, most=12)
        schedule = record_schedule(case.program, actions_of(case.play()), noise=case.noise)
        seen.update(row.cause for row in schedule.transfers)
        seen.update(row.call for row in schedule.host)
        seen["hit"] += len(schedule.hits)
        seen["other die"] += sum(row.die > 0 for row in schedule.blocks)
        seen["late"] += sum(row.grant_ns > row.issue_ns for row in schedule.allocations)
        seen["again"] += len(schedule.allocations) - len({row.address for row in schedule.allocations})
    wanted = [
        "fault",
        "prefetch",
        "touch",
        "evict",
        "writeback",
        "free",
        "lift",
        "offload",
        "hit",
        "late",
        "again",
        "other die",
    ]
    assert min(seen[name] for name in wanted) >= 1, seen


@pytest.mark.slow
def test_nothing_is_left_behind_by_five_thousand() -> None:
    for seed in range(1000, 6000):
        nothing_is_left_behind(seed)


# --- and would be found -------------------------------------------------------------------------------


@cache
def example() -> tuple[Case, Schedule, NDArray[np.int64]]:
    """An episode that leaves a managed buffer in HBM and in L2 and had two device buffers."""
    for seed in range(1000):
        case = make_case(seed, most=12)
        schedule, state = drained(case)
        dies = table(
            state, int(case.program.image[at.P_STATE_DIE]), int(case.program.image[at.P_DIES]), at.SD_WIDTH
        )
        if dies[0, at.SD_IDLE] and dies[0, at.SD_L2_BYTES] and len(schedule.allocations) > 1:
            return case, schedule, state
    raise AssertionError("no such episode")


def words_that_count() -> list[tuple[str, str, int]]:
    """Table, column and what to add of every account that is looked at."""
    buffers = [("P_STATE_BUFFER", name, 1) for name in BUFFER_DRAINED]
    dies = ["SD_BYTES", "SD_DEVICE_BYTES", "SD_IDLE", "SD_IDLE_BYTES", "SD_L2_BYTES", "SD_HOLE_BYTES"]
    others = [
        ("P_STATE_POOL", "SP_FREE", -1),
        ("P_STATE_POOL", "SP_AREA_NS", 1),
        ("P_STATE_CLASS", "SW_ACTIVE", 1),
    ]
    return [
        *(("", name, 1) for name in DRAINED),
        *buffers,
        *(("P_STATE_DIE", name, 1) for name in [*DIE_DRAINED, *dies]),
        *others,
        ("P_STATE_LINK", "SL_BYTES", 1),
    ]


@pytest.mark.parametrize(("where", "name", "step"), words_that_count())
def test_a_word_that_is_off_is_noticed(where: str, name: str, step: int) -> None:
    case, _, state = example()
    assert left_behind(case, state) == []
    off = state.copy()
    off[(int(case.program.image[getattr(at, where)]) if where else 0) + getattr(at, name)] += step
    assert left_behind(case, off) != []


def test_a_buffer_that_is_off_is_noticed() -> None:
    """A managed one that is half there; a device buffer not freed; a place that is kept."""
    case, schedule, state = example()
    fixed = table(
        case.program.image,
        int(case.program.image[at.P_AT_BUFFER]),
        len(case.program.graph.buffers),
        at.PB_WIDTH,
    )
    managed = int(np.flatnonzero(fixed[:, at.PB_MANAGED])[0])
    device = schedule.allocations[0].buffer
    for buffer, column, value in (
        (managed, at.SB_RESIDENCY, at.ARRIVING),
        (device, at.SB_CONTENT, 1),
        (device, at.SB_RESIDENCY, at.VALID),
    ):
        off = state.copy()
        off[int(case.program.image[at.P_STATE_BUFFER]) + buffer * at.SB_WIDTH + column] = value
        assert left_behind(case, off) != []
    off = state.copy()
    off[
        int(state[int(case.program.image[at.P_STATE_DIE]) + at.SD_AT_SPACE])
        + space.SX_HEADER
        + space.SX_OWNER
    ] = device
    assert left_behind(case, off) != []


def test_a_place_that_is_off_is_noticed() -> None:
    case, schedule, _ = example()
    one, other = schedule.allocations[:2]
    assert misplaced(case, schedule) == []
    on_top = other._replace(address=one.address, issue_ns=one.issue_ns, free_ns=one.free_ns)
    for rows in ((one, on_top), (one,), (one, other, other)):
        assert misplaced(case, replace(schedule, allocations=(*rows, *schedule.allocations[2:]))) != []
    freed = TransferRun(one.buffer, "free", 1, 1, 1)
    assert misplaced(case, replace(schedule, transfers=(freed, freed))) != []
