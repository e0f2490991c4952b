"""The whole graph as an agent may see it: one row a command, hidden until it is released."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cann_env.engine.jit import kernel
from cann_env.engine.layout import (
    DONE,
    LINK_H2D,
    P_AT_CLASS,
    P_AT_COMMAND,
    P_AT_KERNEL,
    P_AT_LINK,
    P_AT_POOL,
    P_AT_PRED,
    P_COMMANDS,
    P_STATE_COMMAND,
    P_STATE_WINDOW,
    P_STREAMS,
    P_WINDOW,
    PC_KERNEL,
    PC_MIN_NS,
    PC_PRED,
    PC_PREDS,
    PC_RELEASE_NS,
    PC_TAIL_NS,
    PC_WIDTH,
    PK_BLOCKS,
    PK_CLASS,
    PK_WIDTH,
    PL_RATE,
    PL_WIDTH,
    PP_CAPACITY,
    PP_WIDTH,
    PW_DEMAND,
    PW_NAMED,
    PW_POOL,
    PW_WIDTH,
    Q20,
    S_NOW_NS,
    S_SCALE_NS,
    SC_COMING_BYTES,
    SC_MOVING_BYTES,
    SC_PHASE,
    SC_STREAM,
    SC_WIDTH,
    STARTED,
    UNISSUED,
)
from cann_env.engine.observe import (
    OBS_HIGH,
)

if TYPE_CHECKING:
    from cann_env.engine import Features, Image

OBS_NODE = 16


@kernel
def _observe_node(p: Image, s: Image, c: int, row: Features) -> None:
    """Phase (waiting, queued, started, done), tail, duration, class, blocks, missing operands, stream."""
    scale = 1.0 / s[S_SCALE_NS]
    fixed = p[P_AT_COMMAND] + c * PC_WIDTH
    state = p[P_STATE_COMMAND] + c * SC_WIDTH
    kernel_row = p[P_AT_KERNEL] + p[fixed + PC_KERNEL] * PK_WIDTH
    work = p[kernel_row + PK_CLASS]
    owner = p[P_AT_CLASS] + work * PW_WIDTH
    capacity = p[p[P_AT_POOL] + p[owner + PW_POOL] * PP_WIDTH + PP_CAPACITY]
    phase = s[state + SC_PHASE]
    if phase == UNISSUED:
        row[0] = 1.0
    elif phase < STARTED:
        row[1] = 1.0
    elif phase < DONE:
        row[2] = 1.0
    else:
        row[3] = 1.0
    row[4] = min(p[fixed + PC_TAIL_NS] * scale, OBS_HIGH)
    row[5] = min(p[fixed + PC_MIN_NS] * scale, OBS_HIGH)
    row[6 + min(p[owner + PW_NAMED], 6)] = 1.0
    row[13] = min(float(p[kernel_row + PK_BLOCKS]) * p[owner + PW_DEMAND] / capacity, OBS_HIGH)
    rate = float(p[p[P_AT_LINK] + LINK_H2D * PL_WIDTH + PL_RATE])
    row[14] = min(
        (s[state + SC_COMING_BYTES] + s[state + SC_MOVING_BYTES]) * float(Q20) / rate * scale, OBS_HIGH
    )
    row[15] = (s[state + SC_STREAM] + 1.0) / p[P_STREAMS]


@kernel
def observe_graph(
    p: Image,
    s: Image,
    nodes: Features,
    node_mask: Features,
    edge_index: Features,
    edge_mask: Features,
    window: Features,
) -> None:
    """Write the padded graph; all arrays are zeroed first.

    Args:
        p: Program image.
        s: State image.
        nodes: float32 (N, OBS_NODE).
        node_mask: float32 (N,), 1 for a released command.
        edge_index: float32 (2, E), producer above consumer; 0 where ``edge_mask`` is 0.
        edge_mask: float32 (E,), 1 for an edge between released commands.
        window: float32 (K,), node number plus one of each window slot, 0 where it is empty.
    """
    nodes[:] = 0.0
    node_mask[:] = 0.0
    edge_index[:] = 0.0
    edge_mask[:] = 0.0
    now = s[S_NOW_NS]
    commands = p[P_AT_COMMAND]
    for c in range(p[P_COMMANDS]):
        fixed = commands + c * PC_WIDTH
        if p[fixed + PC_RELEASE_NS] > now:
            continue
        node_mask[c] = 1.0
        _observe_node(p, s, c, nodes[c])
        for edge in range(p[fixed + PC_PRED], p[fixed + PC_PRED] + p[fixed + PC_PREDS]):
            producer = p[p[P_AT_PRED] + edge]
            if p[commands + producer * PC_WIDTH + PC_RELEASE_NS] <= now:
                edge_index[0, edge] = producer
                edge_index[1, edge] = c
                edge_mask[edge] = 1.0
    for k in range(p[P_WINDOW]):
        window[k] = s[p[P_STATE_WINDOW] + k] + 1
