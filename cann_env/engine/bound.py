"""The optimistic makespan B of a partial schedule, whose increase is the negative reward.

B is the largest of: the earliest end of every path through what is in flight, ready or still to be
released (with the stream order decided so far, real times where they are known, missing operands and the
host); the core time left per pool; the bytes left per link; the submission time left on the host. Work is
counted at the speed it would have alone. At time zero B is the lower bound of the instance, at the end it
is the makespan.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cann_env.engine.arithmetic import ceil_div
from cann_env.engine.groups import (
    COMPUTING,
    LAUNCHING,
    SG_BLOCKS,
    SG_BYTES,
    SG_CAP,
    SG_COMMAND,
    SG_COMPUTE_NS,
    SG_EXPECTED_NS,
    SG_FLOW,
    SG_HBM_WEIGHT,
    SG_L2_BYTES,
    SG_L2_CAP,
    SG_NEXT_NS,
    SG_ORIGIN,
    SG_RATE,
    SG_REF_NS,
    SG_REMOTE_BYTES,
    SG_STAGE,
    SG_WIDTH,
)
from cann_env.engine.jit import kernel
from cann_env.engine.launch import add_to_pools, kernel_row
from cann_env.engine.layout import (
    DONE,
    FAR,
    LINK_H2D,
    LINK_HBM,
    LINK_KINDS,
    P_AT_CLASS,
    P_AT_COMMAND,
    P_AT_KERNEL,
    P_AT_LATE,
    P_AT_LINK,
    P_AT_POOL,
    P_AT_PRED,
    P_AT_REQUEST,
    P_DIES,
    P_LATE,
    P_LATENCY,
    P_LINK_LATENCY_NS,
    P_POOLS,
    P_REQUESTS,
    P_STATE_COMMAND,
    P_STATE_FLIGHT,
    P_STATE_GROUP,
    P_STATE_LINK,
    P_STATE_PENDING,
    P_STATE_POOL,
    P_STATE_READY,
    P_STATE_REQUEST,
    P_STATE_STREAM,
    P_STREAMS,
    PC_HOST_NS,
    PC_KERNEL,
    PC_KERNELS,
    PC_MIN_NS,
    PC_PRED,
    PC_PREDS,
    PC_REQUEST,
    PC_TAIL_NS,
    PC_WIDTH,
    PK_AREA_NS,
    PK_FLOW,
    PK_HBM_WEIGHT,
    PK_LEAST_BYTES,
    PK_MIN_NS,
    PK_WIDTH,
    PL_RATE,
    PL_WIDTH,
    PP_CAPACITY,
    PP_WIDTH,
    PR_BEST_NS,
    PR_RELEASE_NS,
    PR_WIDTH,
    PU_REST_NS,
    PU_WIDTH,
    PW_DEMAND,
    PW_POOL,
    PW_WIDTH,
    Q20,
    S_FLIGHT,
    S_GROUPS,
    S_HOST_LEFT_NS,
    S_HOST_NS,
    S_KNOWN_NS,
    S_NOW_NS,
    S_PENDING,
    S_READY,
    S_RELEASED,
    SC_BEGIN_NS,
    SC_COMING_BYTES,
    SC_ESTIMATE_NS,
    SC_KERNEL,
    SC_KERNEL_NS,
    SC_NOISE,
    SC_PENDING,
    SC_PHASE,
    SC_SLOT,
    SC_STREAM,
    SC_UNDONE,
    SC_WIDTH,
    SL_BYTES,
    SL_LOAD,
    SL_WIDTH,
    SP_AREA_NS,
    SP_SCRATCH,
    SP_WIDTH,
    SR_BOUND_NS,
    SR_LEFT,
    SR_WIDTH,
    SS_ESTIMATE_NS,
    SS_HEAD,
    SS_TIMER_NS,
    SS_WIDTH,
    STARTED,
)
from cann_env.engine.trace import (
    T_FAULT,
    T_PREFETCH,
)

if TYPE_CHECKING:
    from cann_env.engine import Image


@kernel
def bytes_left(s: Image, group: int) -> int:
    """q20 that each block of a group still has to move at this instant."""
    if s[group + SG_STAGE] == COMPUTING:
        return 0
    if s[group + SG_STAGE] == LAUNCHING:
        return s[group + SG_BYTES]
    return max(s[group + SG_BYTES] - s[group + SG_RATE] * (s[S_NOW_NS] - s[group + SG_REF_NS]), 0)


@kernel
def group_end(p: Image, s: Image, group: int) -> int:
    """When a group ends if nobody shares its bandwidth from now on.

    Where durations are drawn, nobody knows them before the end: then the expected end counts, or now.
    """
    c = s[group + SG_COMMAND]
    if c >= 0 and s[p[P_STATE_COMMAND] + c * SC_WIDTH + SC_NOISE] != Q20:
        return max(s[group + SG_EXPECTED_NS], s[S_NOW_NS])
    left = bytes_left(s, group)
    if left == 0:
        return s[group + SG_COMPUTE_NS]
    begin = s[group + SG_NEXT_NS] if s[group + SG_STAGE] == LAUNCHING else s[S_NOW_NS]
    moved = begin + ceil_div(left, s[group + SG_CAP])
    if s[group + SG_REMOTE_BYTES] > 0:
        moved += ceil_div(s[group + SG_REMOTE_BYTES], s[group + SG_CAP])
    if s[group + SG_L2_BYTES] > 0:
        moved += ceil_div(s[group + SG_L2_BYTES], s[group + SG_L2_CAP])
    return max(s[group + SG_COMPUTE_NS], moved)


@kernel
def _must_move(p: Image, s: Image, group: int) -> bool:
    """Whether the bytes of a group have to move before the end, and how many they are is known."""
    c = s[group + SG_COMMAND]
    if c >= 0:
        return s[p[P_STATE_COMMAND] + c * SC_WIDTH + SC_NOISE] == Q20
    return s[group + SG_ORIGIN] == T_FAULT or s[group + SG_ORIGIN] == T_PREFETCH


@kernel
def _add_area(p: Image, s: Image, work: int, area: int) -> None:
    add_to_pools(p, s, p[P_STATE_POOL] + SP_SCRATCH, work, area)


@kernel
def _add_bytes(p: Image, s: Image, group: int, left: int) -> None:
    """Count the bytes that each block of a group has left on the links it crosses, dies together."""
    total = left * s[group + SG_BLOCKS]
    flow = s[group + SG_FLOW]
    kind = 0
    while flow > 0:
        if flow & 1:
            weight = s[group + SG_HBM_WEIGHT] if kind == LINK_HBM else 1
            s[p[P_STATE_LINK] + kind * SL_WIDTH + SL_LOAD] += total * weight
        flow >>= 1
        kind = kind + 1 if kind < LINK_KINDS - 1 else 0


@kernel
def _count_running(p: Image, s: Image) -> None:
    """Put what runs into the scratch sums of pools and links, and estimate the end of each command."""
    now = s[S_NOW_NS]
    for pool in range(p[P_POOLS]):
        row = p[P_STATE_POOL] + pool * SP_WIDTH
        s[row + SP_SCRATCH] = s[row + SP_AREA_NS]
    for kind in range(LINK_KINDS):
        row = p[P_STATE_LINK] + kind * SL_WIDTH
        s[row + SL_LOAD] = s[row + SL_BYTES]
    groups = p[P_STATE_GROUP]
    for group in range(groups, groups + s[S_GROUPS] * SG_WIDTH, SG_WIDTH):
        if s[group + SG_COMMAND] >= 0:
            s[p[P_STATE_COMMAND] + s[group + SG_COMMAND] * SC_WIDTH + SC_ESTIMATE_NS] = now
    for i in range(s[S_PENDING]):
        s[p[P_STATE_COMMAND] + s[p[P_STATE_PENDING] + i] * SC_WIDTH + SC_ESTIMATE_NS] = now
    for group in range(groups, groups + s[S_GROUPS] * SG_WIDTH, SG_WIDTH):
        end = group_end(p, s, group)
        left = bytes_left(s, group)
        c = s[group + SG_COMMAND]
        if left > 0 and _must_move(p, s, group):
            _add_bytes(p, s, group, left)
        if c >= 0:
            state = p[P_STATE_COMMAND] + c * SC_WIDTH
            s[state + SC_ESTIMATE_NS] = max(s[state + SC_ESTIMATE_NS], end)
            _add_area(p, s, s[state + SC_SLOT], s[group + SG_BLOCKS] * (end - now))
    for i in range(s[S_PENDING]):
        _count_pending(p, s, s[p[P_STATE_PENDING] + i])


@kernel
def _count_pending(p: Image, s: Image, c: int) -> None:
    """Blocks that wait for a core: they need at least their waves from now on."""
    state = p[P_STATE_COMMAND] + c * SC_WIDTH
    row = kernel_row(p, s, c)
    work = s[state + SC_SLOT]
    if work < 0:  # a later kernel of its command that has not begun
        s[state + SC_ESTIMATE_NS] = max(s[state + SC_ESTIMATE_NS], s[S_NOW_NS] + p[row + PK_MIN_NS])
        return
    block = p[row + PK_AREA_NS]
    if block == 0:
        return
    owner = p[P_AT_CLASS] + work * PW_WIDTH
    at_once = p[p[P_AT_POOL] + p[owner + PW_POOL] * PP_WIDTH + PP_CAPACITY] // p[owner + PW_DEMAND]
    begin = s[S_NOW_NS]
    if s[state + SC_NOISE] == Q20:
        begin = max(begin, s[state + SC_BEGIN_NS])
    end = begin + ceil_div(s[state + SC_PENDING], at_once) * block
    s[state + SC_ESTIMATE_NS] = max(s[state + SC_ESTIMATE_NS], end)
    _add_area(p, s, work, s[state + SC_PENDING] * block)
    left = p[row + PK_LEAST_BYTES] * s[state + SC_PENDING]
    for kind in range(LINK_KINDS):
        if (p[row + PK_FLOW] >> kind) & 1:
            weight = p[row + PK_HBM_WEIGHT] if kind == LINK_HBM else 1
            s[p[P_STATE_LINK] + kind * SL_WIDTH + SL_LOAD] += left * weight


@kernel
def _operands_by(p: Image, s: Image, c: int) -> int:
    """Earliest instant at which the missing managed operands of a command can have arrived."""
    now = s[S_NOW_NS]
    missing = s[p[P_STATE_COMMAND] + c * SC_WIDTH + SC_COMING_BYTES]
    if missing == 0:
        return now
    rate = p[p[P_AT_LINK] + LINK_H2D * PL_WIDTH + PL_RATE] * p[P_DIES]
    return now + p[P_LINK_LATENCY_NS] + ceil_div(missing * Q20, rate)


@kernel
def _after_predecessors(p: Image, s: Image, c: int, start: int) -> int:
    """``start`` or the estimated end of the last unfinished predecessor, whichever is later."""
    if s[p[P_STATE_COMMAND] + c * SC_WIDTH + SC_UNDONE] == 0:
        return start
    fixed = p[P_AT_COMMAND] + c * PC_WIDTH
    for edge in range(p[fixed + PC_PRED], p[fixed + PC_PRED] + p[fixed + PC_PREDS]):
        producer = p[P_STATE_COMMAND] + p[p[P_AT_PRED] + edge] * SC_WIDTH
        if s[producer + SC_PHASE] != DONE:
            start = max(start, s[producer + SC_ESTIMATE_NS])
    return start


@kernel
def _estimate_flight(p: Image, s: Image, c: int) -> int:
    """Estimate the end of a command in flight; returns the earliest end of the paths through it."""
    fixed = p[P_AT_COMMAND] + c * PC_WIDTH
    state = p[P_STATE_COMMAND] + c * SC_WIDTH
    stream = p[P_STATE_STREAM] + s[state + SC_STREAM] * SS_WIDTH
    if s[state + SC_PHASE] == STARTED:
        end = s[state + SC_ESTIMATE_NS]
        if s[state + SC_SLOT] >= 0:  # its waves and bytes take their time from the kernel's own start
            end = max(end, s[state + SC_KERNEL_NS] + p[kernel_row(p, s, c) + PK_MIN_NS])
        first = p[fixed + PC_KERNEL]
        for later in range(first + s[state + SC_KERNEL] + 1, first + p[fixed + PC_KERNELS]):
            end += p[p[P_AT_KERNEL] + later * PK_WIDTH + PK_MIN_NS]
    else:
        start = _operands_by(p, s, c)
        if s[stream + SS_TIMER_NS] < FAR and s[stream + SS_HEAD] == c:
            start = max(start, s[stream + SS_TIMER_NS])
        start = max(start, s[stream + SS_ESTIMATE_NS])
        end = _after_predecessors(p, s, c, start) + p[fixed + PC_MIN_NS]
    s[state + SC_ESTIMATE_NS] = end
    s[stream + SS_ESTIMATE_NS] = end
    return end + p[fixed + PC_TAIL_NS] - p[fixed + PC_MIN_NS]


@kernel
def _paths(p: Image, s: Image) -> int:
    """Earliest end of all paths; also the earliest end of each request that has begun."""
    latest = s[S_NOW_NS]
    for stream in range(p[P_STREAMS]):
        s[p[P_STATE_STREAM] + stream * SS_WIDTH + SS_ESTIMATE_NS] = latest
    for i in range(s[S_FLIGHT]):  # in order of submission
        c = s[p[P_STATE_FLIGHT] + i]
        end = _estimate_flight(p, s, c)
        if p[P_LATENCY] == 1:
            _raise_request(p, s, p[p[P_AT_COMMAND] + c * PC_WIDTH + PC_REQUEST], end)
        latest = max(latest, end)
    for i in range(s[S_READY]):
        c = s[p[P_STATE_READY] + i]
        fixed = p[P_AT_COMMAND] + c * PC_WIDTH
        start = max(s[S_HOST_NS] + p[fixed + PC_HOST_NS], _operands_by(p, s, c))
        end = _after_predecessors(p, s, c, start) + p[fixed + PC_TAIL_NS]
        if p[P_LATENCY] == 1:
            _raise_request(p, s, p[fixed + PC_REQUEST], end)
        latest = max(latest, end)
    s[S_KNOWN_NS] = latest
    if s[S_RELEASED] < p[P_LATE]:
        latest = max(latest, p[p[P_AT_LATE] + s[S_RELEASED] * PU_WIDTH + PU_REST_NS])
    return latest


@kernel
def _raise_request(p: Image, s: Image, request: int, end: int) -> None:
    row = p[P_STATE_REQUEST] + request * SR_WIDTH
    s[row + SR_BOUND_NS] = max(s[row + SR_BOUND_NS], end)


@kernel
def optimistic_makespan(p: Image, s: Image) -> int:
    """B of the present state in nanoseconds; also refreshes the estimates of commands and requests."""
    if p[P_LATENCY] == 1:
        for request in range(p[P_REQUESTS]):
            row = p[P_STATE_REQUEST] + request * SR_WIDTH
            if s[row + SR_LEFT] > 0:
                s[row + SR_BOUND_NS] = 0
    _count_running(p, s)
    now = s[S_NOW_NS]
    bound = max(_paths(p, s), now)
    if s[S_HOST_LEFT_NS] > 0:
        bound = max(bound, s[S_HOST_NS] + s[S_HOST_LEFT_NS])
    for pool in range(p[P_POOLS]):
        area = s[p[P_STATE_POOL] + pool * SP_WIDTH + SP_SCRATCH]
        capacity = p[p[P_AT_POOL] + pool * PP_WIDTH + PP_CAPACITY] * p[P_DIES]
        if area > 0:
            bound = max(bound, now + ceil_div(area, capacity))
    for kind in range(LINK_KINDS):
        left = s[p[P_STATE_LINK] + kind * SL_WIDTH + SL_LOAD]
        rate = p[p[P_AT_LINK] + kind * PL_WIDTH + PL_RATE] * p[P_DIES]
        if left > 0:
            bound = max(bound, now + ceil_div(left, rate))
    return bound


@kernel
def objective(p: Image, s: Image, bound: int) -> int:
    """What the reward telescopes: B, or the sum over requests of their optimistic latencies (ns)."""
    if p[P_LATENCY] == 0:
        return bound
    total = 0
    for request in range(p[P_REQUESTS]):
        fixed = p[P_AT_REQUEST] + request * PR_WIDTH
        row = p[P_STATE_REQUEST] + request * SR_WIDTH
        latency = p[fixed + PR_BEST_NS]
        if s[row + SR_LEFT] == 0:  # noise may have made it faster than its best
            latency = s[row + SR_BOUND_NS] - p[fixed + PR_RELEASE_NS]
        elif p[fixed + PR_RELEASE_NS] <= s[S_NOW_NS]:
            latency = max(latency, s[row + SR_BOUND_NS] - p[fixed + PR_RELEASE_NS])
        total += latency
    return total
