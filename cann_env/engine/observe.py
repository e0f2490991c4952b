"""What an agent sees: fixed-shape features of windows, streams and device, written into one flat array.

Times are divided by the lower bound, sizes by capacities, counts by their limits; every feature is cut to
[0, OBS_HIGH]. Order of the parts: commands (K rows), streams (S rows), moves (P rows), device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cann_env.engine.cache import lift_bytes
from cann_env.engine.jit import as_bytes, as_words, constant_pointer, copy_words, kernel, pointer
from cann_env.engine.launch import can_start_now, free_blocks, pool_row
from cann_env.engine.layout import (
    FAR,
    FEATURE_WORDS,
    LINK_D2H,
    LINK_H2D,
    P_AT_BUFFER,
    P_AT_CLASS,
    P_AT_COMMAND,
    P_AT_FEATURE,
    P_AT_KERNEL,
    P_AT_LINK,
    P_AT_POOL,
    P_AT_PRED,
    P_AT_RANKED,
    P_AT_STREAM,
    P_COMMANDS,
    P_DIES,
    P_HBM_BYTES,
    P_HOST_NS,
    P_L2_BYTES,
    P_LATE,
    P_LIFT_RATE,
    P_LIFTS,
    P_MAX_ACTIVE,
    P_PREFETCHES,
    P_RUN_AHEAD,
    P_SLOTS,
    P_STATE_BUFFER,
    P_STATE_COMMAND,
    P_STATE_LINK,
    P_STATE_MASK,
    P_STATE_OPEN,
    P_STATE_POOL,
    P_STATE_PREFETCH,
    P_STATE_STREAM,
    P_STATE_WINDOW,
    P_STEP_BUDGET,
    P_STREAMS,
    P_WINDOW,
    PB_BYTES,
    PB_USERS,
    PB_WIDTH,
    PC_KERNEL,
    PC_MIN_NS,
    PC_OUTPUT_BYTES,
    PC_PRED,
    PC_PREDS,
    PC_RELEASE_NS,
    PC_SUCCS,
    PC_TAIL_NS,
    PC_WIDTH,
    PK_BLOCKS,
    PK_BYTES,
    PK_CLASS,
    PK_FLOW,
    PK_WIDTH,
    PL_RATE,
    PL_WIDTH,
    POOL_H2D,
    PP_CAPACITY,
    PP_WIDTH,
    PS_PRIORITY,
    PS_WIDTH,
    PW_DEMAND,
    PW_NAMED,
    PW_POOL,
    PW_WIDTH,
    Q20,
    S_ACTIVE,
    S_BOUND_NS,
    S_DONE,
    S_FILLED,
    S_FLIGHT,
    S_HOST_LEFT_NS,
    S_ISSUED,
    S_KNOWN_NS,
    S_NOW_NS,
    S_READY,
    S_RELEASED,
    S_SCALE_NS,
    S_STEPS,
    SB_DIRTY,
    SB_RANK,
    SB_UNSTARTED,
    SB_WIDTH,
    SC_COMING_BYTES,
    SC_ESTIMATE_NS,
    SC_MOVING_BYTES,
    SC_PHASE,
    SC_STREAM,
    SC_UNDONE,
    SC_WIDTH,
    SD_BYTES,
    SD_DEVICE_BYTES,
    SD_L2_BYTES,
    SD_QUEUE,
    SL_LOAD,
    SL_WIDTH,
    SP_FREE,
    SP_SCRATCH,
    SP_WIDTH,
    SS_ESTIMATE_NS,
    SS_HEAD,
    SS_LENGTH,
    SS_WIDTH,
    STARTED,
)
from cann_env.engine.memory import die_row

if TYPE_CHECKING:
    from cann_env.engine import Features, Image

# Observation: columns of each part; see the environment's docstring for their meaning.
OBS_COMMAND = 20
OBS_STREAM = 12
OBS_BUFFER = 6
OBS_DEVICE = 24
OBS_HIGH = 10.0  # every feature lies in [0, OBS_HIGH]


@kernel
def _cut(value: float) -> float:
    return min(max(value, 0.0), OBS_HIGH)


@kernel
def _h2d_ns(p: Image, size: int) -> float:
    return size * float(Q20) / p[p[P_AT_LINK] + LINK_H2D * PL_WIDTH + PL_RATE]


@kernel
def fill_features(p: Image, features: Features) -> None:
    """Write what never changes of the observation of each command into its program, once and for all.

    Args:
        p: Program image.
        features: The same words, taken for pairs of float32.
    """
    for c in range(p[P_COMMANDS]):
        at = 2 * (p[P_AT_FEATURE] + c * FEATURE_WORDS)
        fixed = p[P_AT_COMMAND] + c * PC_WIDTH
        row = p[P_AT_KERNEL] + p[fixed + PC_KERNEL] * PK_WIDTH
        work = p[row + PK_CLASS]
        owner = p[P_AT_CLASS] + work * PW_WIDTH
        capacity = p[p[P_AT_POOL] + p[owner + PW_POOL] * PP_WIDTH + PP_CAPACITY]
        blocks = float(p[row + PK_BLOCKS])
        features[at] = 1.0
        named = min(p[owner + PW_NAMED], 6)  # cube, vector, mix, aicpu, h2d, d2h, any other engine
        features[at + 3 + named] = 1.0
        features[at + 10] = _cut(blocks * p[owner + PW_DEMAND] / capacity)
        if p[row + PK_FLOW] & 1:
            hbm = float(p[row + PK_BYTES]) * blocks / p[p[P_AT_LINK] + PL_RATE]
            features[at + 12] = _cut(hbm / max(p[fixed + PC_MIN_NS], 1))
        features[at + 16] = _cut(float(p[fixed + PC_OUTPUT_BYTES]) / p[P_HBM_BYTES])
        features[at + 18] = _cut(p[fixed + PC_SUCCS] / 8.0)


@kernel
def _observe_predecessors(p: Image, s: Image, c: int, obs: Features, at: int, scale: float) -> None:
    """When the predecessors of a command are expected to be done, and the stream of the last of them."""
    fixed = p[P_AT_COMMAND] + c * PC_WIDTH
    stream = -1
    latest = -1
    for edge in range(p[fixed + PC_PRED], p[fixed + PC_PRED] + p[fixed + PC_PREDS]):
        row = p[P_STATE_COMMAND] + p[p[P_AT_PRED] + edge] * SC_WIDTH
        if s[row + SC_ESTIMATE_NS] > latest:
            latest = s[row + SC_ESTIMATE_NS]
            stream = s[row + SC_STREAM]
    obs[at + 14] = _cut((latest - s[S_NOW_NS]) * scale)
    obs[at + 17] = (stream + 1.0) / p[P_STREAMS]


@kernel
def _observe_command(p: Image, s: Image, k: int, obs: Features, scale: float) -> None:
    """One slot of the ready window; all zero where the slot is empty."""
    at = k * OBS_COMMAND
    c = s[p[P_STATE_WINDOW] + k]
    rows = as_words(obs)
    if c < 0:
        for i in range(FEATURE_WORDS):
            rows[k * FEATURE_WORDS + i] = 0
        return
    copy_words(rows, k * FEATURE_WORDS, p, p[P_AT_FEATURE] + c * FEATURE_WORDS, FEATURE_WORDS)
    fixed = p[P_AT_COMMAND] + c * PC_WIDTH
    state = p[P_STATE_COMMAND] + c * SC_WIDTH
    row = p[P_AT_KERNEL] + p[fixed + PC_KERNEL] * PK_WIDTH
    obs[at + 1] = _cut(p[fixed + PC_TAIL_NS] * scale)
    obs[at + 2] = _cut(p[fixed + PC_MIN_NS] * scale)
    free = 0
    for die in range(p[P_DIES]):
        free = max(free, free_blocks(p, s, die, p[row + PK_CLASS]))
    obs[at + 11] = 1.0 if free >= p[row + PK_BLOCKS] else free / float(p[row + PK_BLOCKS])
    if s[state + SC_UNDONE] == 0 and can_start_now(p, s, c):
        obs[at + 13] = 1.0
    if p[fixed + PC_PREDS] > 0:
        _observe_predecessors(p, s, c, obs, at, scale)
    missing = s[state + SC_COMING_BYTES] + s[state + SC_MOVING_BYTES]
    if missing > 0:
        obs[at + 15] = _cut(_h2d_ns(p, missing) * scale)
    obs[at + 19] = _cut((s[S_NOW_NS] - p[fixed + PC_RELEASE_NS]) * scale)


@kernel
def _observe_stream(p: Image, s: Image, stream: int, obs: Features, at: int, scale: float) -> None:
    """One stream: how full it is, when it will be empty, what its head does."""
    row = p[P_STATE_STREAM] + stream * SS_WIDTH
    rows = as_words(obs)
    for i in range(OBS_STREAM // 2):
        rows[at // 2 + i] = 0
    head = s[row + SS_HEAD]
    obs[at] = s[p[P_STATE_OPEN] + stream]
    obs[at + 1] = _cut(float(s[row + SS_LENGTH]) / p[P_RUN_AHEAD])
    obs[at + 11] = p[p[P_AT_STREAM] + stream * PS_WIDTH + PS_PRIORITY] / 8.0
    if head < 0:
        return
    obs[at + 2] = _cut((s[row + SS_ESTIMATE_NS] - s[S_NOW_NS]) * scale)
    obs[at + 3] = 1.0 if s[p[P_STATE_COMMAND] + head * SC_WIDTH + SC_PHASE] == STARTED else 0.0
    kernel_row = p[P_AT_KERNEL] + p[p[P_AT_COMMAND] + head * PC_WIDTH + PC_KERNEL] * PK_WIDTH
    named = p[p[P_AT_CLASS] + p[kernel_row + PK_CLASS] * PW_WIDTH + PW_NAMED]
    obs[at + 4 + min(named, 6)] = 1.0


@kernel
def _move_ns(p: Image, s: Image, slot: int, buffer: int) -> float:
    """How long the move that a slot stands for takes alone, latency aside."""
    size = p[p[P_AT_BUFFER] + buffer * PB_WIDTH + PB_BYTES]
    if slot < p[P_PREFETCHES]:
        return _h2d_ns(p, size)
    if slot < p[P_PREFETCHES] + p[P_LIFTS]:
        return lift_bytes(p, buffer) * float(Q20) / p[P_LIFT_RATE]
    if s[p[P_STATE_BUFFER] + buffer * SB_WIDTH + SB_DIRTY] == 0:
        return 0.0
    return size * float(Q20) / p[p[P_AT_LINK] + LINK_D2H * PL_WIDTH + PL_RATE]


@kernel
def _observe_buffer(p: Image, s: Image, slot: int, obs: Features, at: int, scale: float) -> None:
    """One slot of the prefetch window; all zero where it is empty."""
    for i in range(OBS_BUFFER):
        obs[at + i] = 0.0
    buffer = s[p[P_STATE_PREFETCH] + slot]
    if buffer < 0:
        return
    fixed = p[P_AT_BUFFER] + buffer * PB_WIDTH
    row = p[P_STATE_BUFFER] + buffer * SB_WIDTH
    lifts = p[P_PREFETCHES] <= slot < p[P_PREFETCHES] + p[P_LIFTS]
    obs[at] = 1.0
    obs[at + 1] = _cut(float(p[fixed + PB_BYTES]) / (p[P_L2_BYTES] if lifts else p[P_HBM_BYTES]))
    obs[at + 2] = _cut(_move_ns(p, s, slot, buffer) * scale)
    if s[row + SB_RANK] < FAR:
        user = p[p[P_AT_RANKED] + s[row + SB_RANK]]
        obs[at + 3] = _cut(p[p[P_AT_COMMAND] + user * PC_WIDTH + PC_TAIL_NS] * scale)
        obs[at + 4] = 1.0 if s[p[P_STATE_COMMAND] + user * SC_WIDTH + SC_PHASE] > 0 else 0.0
    if s[S_RELEASED] < p[P_LATE]:  # users still to be released are among those counted
        return
    obs[at + 5] = _cut(float(s[row + SB_UNSTARTED]) / max(p[fixed + PB_USERS], 1))


@kernel
def _observe_device(p: Image, s: Image, obs: Features, at: int, scale: float) -> None:
    """Clocks, pools, links, memory and progress of the whole device."""
    now = s[S_NOW_NS]
    obs[at] = _cut(now * scale)
    hidden = s[S_RELEASED] < p[P_LATE]  # sums over the whole graph would tell of what is still to come
    known = p[P_COMMANDS] - (p[P_LATE] - s[S_RELEASED])
    obs[at + 1] = _cut(((s[S_KNOWN_NS] if hidden else s[S_BOUND_NS]) - now) * scale)
    reserved = 0
    device = 0
    queued = 0
    cached = 0
    for die in range(p[P_DIES]):
        row = die_row(p, s, die)
        reserved += s[row + SD_BYTES]
        device += s[row + SD_DEVICE_BYTES]
        queued += s[row + SD_QUEUE]
        cached += s[row + SD_L2_BYTES]
    obs[at + 2] = _cut(float(cached) / (p[P_L2_BYTES] * p[P_DIES])) if p[P_L2_BYTES] > 0 else 0.0
    obs[at + 3] = 0.0 if hidden else _cut(s[S_HOST_LEFT_NS] / max(p[P_HOST_NS], 1))
    obs[at + 4] = s[S_ISSUED] / max(known, 1)
    obs[at + 5] = s[S_DONE] / max(known, 1)
    obs[at + 6] = _cut(float(s[S_FLIGHT]) / p[P_RUN_AHEAD])
    obs[at + 7] = _cut(float(s[S_ACTIVE]) / p[P_MAX_ACTIVE])
    obs[at + 8] = _cut(float(s[S_READY]) / p[P_WINDOW])
    obs[at + 9] = _cut(float(reserved) / (p[P_HBM_BYTES] * p[P_DIES]))
    obs[at + 10] = _cut(float(device) / (p[P_HBM_BYTES] * p[P_DIES]))
    obs[at + 11] = _cut(float(queued) / max(p[P_PREFETCHES], 1))
    obs[at + 12] = 0.0 if hidden else _cut(float(s[S_STEPS]) / p[P_STEP_BUDGET])
    for pool in range(6):
        capacity = max(p[p[P_AT_POOL] + pool * PP_WIDTH + PP_CAPACITY] * p[P_DIES], 1)
        free = 0
        for die in range(p[P_DIES]):
            free += s[pool_row(p, s, die, pool) + SP_FREE]
        if pool < POOL_H2D:
            area = s[p[P_STATE_POOL] + pool * SP_WIDTH + SP_SCRATCH]
            obs[at + 13 + pool] = free / capacity
            obs[at + 16 + pool] = 0.0 if hidden else _cut(area / capacity * scale)
        else:
            obs[at + 16 + pool] = free / capacity
    for link in range(2):
        left = float(s[p[P_STATE_LINK] + link * SL_WIDTH + SL_LOAD])
        rate = p[p[P_AT_LINK] + link * PL_WIDTH + PL_RATE] * p[P_DIES]
        obs[at + 22 + link] = 0.0 if hidden else _cut(left / rate * scale)


@kernel
def _observe(p: Image, s: Image, obs: Features) -> None:
    scale = 1.0 / s[S_SCALE_NS]
    filled = s[S_FILLED]
    for k in range(filled):
        _observe_command(p, s, k, obs, scale)
    rows = as_words(obs)
    for word in range(filled * FEATURE_WORDS, p[P_WINDOW] * FEATURE_WORDS):
        rows[word] = 0
    at = p[P_WINDOW] * OBS_COMMAND
    for stream in range(p[P_STREAMS]):
        _observe_stream(p, s, stream, obs, at, scale)
        at += OBS_STREAM
    for slot in range(p[P_SLOTS]):
        _observe_buffer(p, s, slot, obs, at, scale)
        at += OBS_BUFFER
    _observe_device(p, s, obs, at, scale)


@kernel
def observe(p: Image, s: Image, obs: Features) -> None:
    """Write the observation of the present state; call it after the state has been assessed.

    Args:
        p: Program image.
        s: State image.
        obs: float32, K*OBS_COMMAND + S*OBS_STREAM + P*OBS_BUFFER + OBS_DEVICE entries.
    """
    _observe(constant_pointer(p), pointer(s), pointer(obs))


@kernel
def _copy_mask(p: Image, s: Image, mask: Features, size: int) -> None:
    first = p[P_STATE_MASK]
    copy_words(as_words(mask), 0, s, first, size // 8)
    marks = as_bytes(s)
    for action in range(size // 8 * 8, size):
        mask[action] = marks[8 * first + action]


@kernel
def copy_mask(p: Image, s: Image, mask: Features) -> None:
    """Write the mask of the present state, 1 where an action is legal.

    Args:
        p: Program image.
        s: State image.
        mask: int8, one entry an action.
    """
    _copy_mask(constant_pointer(p), pointer(s), pointer(mask), mask.size)
