"""Turn a list of actions into a :class:`Schedule`: run it once more with the trace switched on."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cann_env.device.spec import CLASSES
from cann_env.engine import layout as at
from cann_env.engine import trace
from cann_env.engine.groups import SG_BLOCKS, SG_BUFFER, SG_COMMAND, SG_ORIGIN, SG_START_NS, SG_WIDTH
from cann_env.engine.step import run_actions
from cann_env.schedule import (
    Allocation,
    BlockRun,
    CacheHit,
    CommandRun,
    EventWait,
    HostCall,
    Schedule,
    Stall,
    TransferRun,
    Waiting,
)
from cann_env.schedulers.policy import EpisodeError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cann_env.engine import Image
    from cann_env.program import Program


class Progress(NamedTuple):
    """Rows of an episode so far; what still runs has a finish of -1."""

    blocks: tuple[BlockRun, ...]
    runs: tuple[CommandRun, ...]
    streams: int
    now_ns: int


_MOVES = {
    trace.T_FAULT: "fault",
    trace.T_PREFETCH: "prefetch",
    trace.T_WRITEBACK: "writeback",
    trace.T_LIFT: "lift",
}
_INSTANTS = {trace.T_EVICT: "evict", trace.T_TOUCH: "touch", trace.T_FREE: "free"}
_CALLS = {
    trace.T_HOST_ISSUE: "issue",
    trace.T_HOST_PREFETCH: "prefetch",
    trace.T_HOST_LIFT: "lift",
    trace.T_HOST_OFFLOAD: "offload",
    trace.T_HOST_WAIT: "wait",
}


def record_schedule(program: Program, actions: tuple[int, ...], *, noise: Image | None = None) -> Schedule:
    """Replay actions and keep what happened.

    Raises:
        EpisodeError: The actions do not finish the graph.
    """
    state = _traced(program, np.asarray(actions, np.int64), noise)
    if state[at.S_STATUS] != at.FINISHED:
        raise EpisodeError(
            f"{len(actions)} actions do not finish graph {program.graph.name!r} on {program.device.name}"
        )
    first = int(state[at.S_AT_TRACE])
    rows = state[first : first + int(state[at.S_TRACE_ROWS]) * trace.T_WIDTH].reshape(-1, trace.T_WIDTH)
    commands = len(program.graph.commands)
    factors = np.full(commands, at.Q20) if noise is None else noise
    stall = state[at.S_STALL_EVENT_NS : at.S_STALL_HOST_NS + 1].tolist()
    return Schedule(
        graph=program.graph,
        device=program.device,
        options=program.options,
        actions=tuple(actions),
        commands=_command_runs(rows),
        blocks=_block_runs(program, rows, _dies(program, state)),
        transfers=_transfer_runs(rows, _under_way(program, state)),
        waits=tuple(EventWait(*row[1:3].tolist()) for row in rows if row[0] == trace.T_WAIT),
        host=tuple(
            HostCall(_CALLS[int(row[0])], *row[1:4].tolist()) for row in rows if int(row[0]) in _CALLS
        ),
        stall=Stall(*stall),
        lower_bound_ns=program.lower_bound_ns,
        peak_hbm_bytes=int(state[at.S_HBM_PEAK]),
        noise=tuple(int(factor) for factor in factors),
        allocations=_allocations(program, rows),
        hits=tuple(CacheHit(*row[1:5].tolist()) for row in rows if row[0] == trace.T_HIT),
        waiting=_waiting(rows),
    )


def record_rows(program: Program, actions: tuple[int, ...], *, noise: Image | None = None) -> Progress:
    """Replay the first actions of an episode and keep what happened up to now."""
    state = _traced(program, np.asarray(actions, np.int64), noise)
    first = int(state[at.S_AT_TRACE])
    rows = state[first : first + int(state[at.S_TRACE_ROWS]) * trace.T_WIDTH].reshape(-1, trace.T_WIDTH)
    running = _running(program, state)
    commands = len(program.graph.commands)
    place = int(program.image[at.P_STATE_COMMAND])
    table = state[place : place + commands * at.SC_WIDTH].reshape(commands, at.SC_WIDTH)
    fields = [at.SC_STREAM, at.SC_POSITION, at.SC_ISSUE_NS, at.SC_START_NS]
    started = [
        CommandRun(*(int(c), *table[c, fields].tolist(), -1))
        for c in np.flatnonzero(table[:, at.SC_PHASE] == at.STARTED)
    ]
    return Progress(
        blocks=_block_runs(program, np.concatenate([rows, running]), _dies(program, state)),
        runs=(*_command_runs(rows), *started),
        streams=program.options.streams,
        now_ns=int(state[at.S_NOW_NS]),
    )


_OF_BLOCKS = (SG_BLOCKS, SG_START_NS, SG_ORIGIN)
_OF_TRANSFERS = (SG_ORIGIN, SG_BUFFER, SG_START_NS)


def _running(program: Program, state: Image) -> NDArray[np.int64]:
    """Trace rows of the blocks that run now, as they would be written if they ended at -1."""
    first, count = int(program.image[at.P_STATE_GROUP]), int(state[at.S_GROUPS])
    groups = state[first : first + count * SG_WIDTH].reshape(count, SG_WIDTH)
    commands = int(program.image[at.P_STATE_COMMAND])
    rows = []
    for group in groups[groups[:, SG_COMMAND] >= 0]:
        c = int(group[SG_COMMAND])
        place = commands + c * at.SC_WIDTH
        code = int(state[place + at.SC_KERNEL]) * 2 + int(state[place + at.SC_VARIANT])
        blocks, start, opened = (int(group[i]) for i in (SG_BLOCKS, SG_START_NS, SG_ORIGIN))
        rows.append([trace.T_BLOCKS, c, code, blocks, start, -1, opened])
    return np.asarray(rows, np.int64).reshape(len(rows), trace.T_WIDTH)


def _traced(program: Program, actions: Image, noise: Image | None) -> Image:
    """Run actions with a trace that is large enough, found by trying."""
    rows = 8 * len(program.graph.commands) + 64
    while True:
        state = program.new_state(noise, trace_rows=rows)
        run_actions(program.image, state, actions)
        wanted = int(state[at.S_TRACE_ROWS])
        if wanted <= int(state[at.S_TRACE_CAPACITY]):
            return state
        rows = wanted


def _command_runs(rows: NDArray[np.int64]) -> tuple[CommandRun, ...]:
    runs = (CommandRun(*row[1:7].tolist()) for row in rows if row[0] == trace.T_COMMAND)
    return tuple(sorted(runs, key=lambda run: (run.start_ns, run.stream, run.position)))


def _waiting(rows: NDArray[np.int64]) -> tuple[Waiting, ...]:
    """What heads waited for; attempts in a row that lacked the same thing are one."""
    merged: list[Waiting] = []
    found = rows[rows[:, 0] == trace.T_STALL][:, 1:5]
    for command, cause, start, finish in found[np.lexsort((found[:, 2], found[:, 0]))].tolist():
        word = Stall._fields[cause]
        last = merged[-1] if merged else None
        if last is not None and (last.command, last.cause, last.finish_ns) == (command, word, start):
            merged[-1] = last._replace(finish_ns=finish)
        else:
            merged.append(Waiting(command, word, start, finish))
    return tuple(sorted(merged, key=lambda row: (row.start_ns, row.command)))


def _block_runs(program: Program, rows: NDArray[np.int64], die: dict[int, int]) -> tuple[BlockRun, ...]:
    """Rows of blocks.

    Args:
        program: What ran.
        rows: Trace rows.
        die: Die of each command.
    """
    image = program.image
    runs = []
    for row in rows[rows[:, 0] == trace.T_BLOCKS]:
        c, code, blocks, begin, end, opened = row[1:7].tolist()
        kernel, variant = divmod(code, 2)
        first = int(image[int(image[at.P_AT_COMMAND]) + c * at.PC_WIDTH + at.PC_KERNEL])
        place = int(image[at.P_AT_KERNEL]) + (first + kernel) * at.PK_WIDTH + at.PK_CLASS + variant
        owner = int(image[at.P_AT_CLASS]) + int(image[place]) * at.PW_WIDTH
        work_class = CLASSES[int(image[owner + at.PW_NAMED])]
        runs.append(BlockRun(c, kernel, work_class, blocks, die[c], begin, end, opened))
    return tuple(sorted(runs, key=lambda run: (run.start_ns, run.command, run.kernel, run.finish_ns)))


def _transfer_runs(rows: NDArray[np.int64], under_way: list[TransferRun]) -> tuple[TransferRun, ...]:
    runs = list(under_way)
    for row in rows:
        kind = int(row[0])
        if kind in _MOVES:
            runs.append(TransferRun(int(row[1]), _MOVES[kind], *row[2:6].tolist()))
        elif kind in _INSTANTS:
            buffer, instant = row[1:3].tolist()
            runs.append(TransferRun(buffer, _INSTANTS[kind], instant, instant, instant))
    return tuple(sorted(runs, key=lambda run: (run.start_ns, run.finish_ns, run.buffer)))


def _under_way(program: Program, state: Image) -> list[TransferRun]:
    """Write-backs and lifts that still move, or wait for their turn, when the run is over.

    Nothing comes from the host then: whatever was asked for had a reader, and that has started.
    """
    moving = _moving(program, state)
    begun = {b: start for cause, b, start in moving if cause == trace.T_WRITEBACK}
    first, count = int(program.image[at.P_STATE_BUFFER]), len(program.graph.buffers)
    table = state[first : first + count * at.SB_WIDTH].reshape(count, at.SB_WIDTH)
    runs = [
        TransferRun(b, "lift", start, start, at.FAR, _lift_bytes(program, b))
        for cause, b, start in moving
        if cause == trace.T_LIFT
    ]
    for b in _lifts_in_line(program, state):
        runs.append(TransferRun(b, "lift", at.FAR, at.FAR, at.FAR, _lift_bytes(program, b)))
    for b in np.flatnonzero(table[:, at.SB_LEAVING]).tolist():
        leave = int(table[b, at.SB_LEAVE_NS])
        runs.append(TransferRun(b, "writeback", leave, begun.get(b, at.FAR), at.FAR))
    return runs


def _moving(program: Program, state: Image) -> list[tuple[int, int, int]]:
    """``(cause, buffer, start)`` of each transfer that is under way."""
    first, count = int(program.image[at.P_STATE_GROUP]), int(state[at.S_GROUPS])
    groups = state[first : first + count * SG_WIDTH].reshape(count, SG_WIDTH)
    rows = groups[groups[:, SG_COMMAND] < 0][:, list(_OF_TRANSFERS)]
    return [(cause, buffer, start) for cause, buffer, start in rows.tolist()]


def _lifts_in_line(program: Program, state: Image) -> list[int]:
    """Buffers that wait to be lifted into L2, one die after the other; one may be in line twice."""
    first, dies = int(program.image[at.P_STATE_DIE]), int(program.image[at.P_DIES])
    table = state[first : first + dies * at.SD_WIDTH].reshape(dies, at.SD_WIDTH)
    waiting = []
    for place, count in table[:, [at.SD_AT_LIFTS, at.SD_LIFT_QUEUE]].tolist():
        waiting += state[place : place + count].tolist()
    return waiting


def _lift_bytes(program: Program, buffer: int) -> int:
    image = program.image
    size = int(image[int(image[at.P_AT_BUFFER]) + buffer * at.PB_WIDTH + at.PB_BYTES])
    return min(size, int(image[at.P_LIFT_BYTES]))


def _allocations(program: Program, rows: NDArray[np.int64]) -> tuple[Allocation, ...]:
    """Where device buffers lay; one that was not freed by the end is held to the end of time."""
    released = {int(row[1]): int(row[2]) for row in rows if row[0] == trace.T_RELEASE}
    image = program.image
    found = []
    for row in rows[rows[:, 0] == trace.T_ALLOCATE]:
        buffer, command, address, issue, grant = row[1:6].tolist()
        size = int(image[int(image[at.P_AT_BUFFER]) + buffer * at.PB_WIDTH + at.PB_TAKEN])
        free = released.get(buffer, at.FAR)
        found.append(Allocation(buffer, command, address, size, issue, grant, free))
    return tuple(found)


def _dies(program: Program, state: Image) -> dict[int, int]:
    """Die of each command that has been issued."""
    image = program.image
    first = int(image[at.P_AT_STREAM])
    place = int(program.image[at.P_STATE_COMMAND])
    commands = len(program.graph.commands)
    streams = state[place : place + commands * at.SC_WIDTH].reshape(commands, at.SC_WIDTH)[:, at.SC_STREAM]
    return {
        c: int(image[first + int(stream) * at.PS_WIDTH + at.PS_DIE])
        for c, stream in enumerate(streams)
        if stream >= 0
    }
