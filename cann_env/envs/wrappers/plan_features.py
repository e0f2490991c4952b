"""A plan as an agent may see it: when each command starts and ends, what holds it up, what it leaves free."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from gymnasium import spaces

from cann_env.engine import layout as at
from cann_env.engine import planned as by
from cann_env.engine.observe import OBS_HIGH
from cann_env.engine.observe_graph import OBS_NODE
from cann_env.envs.spaces import observation_space

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cann_env.envs.spaces import GraphCapacity
    from cann_env.options import RunOptions
    from cann_env.program import Program
    from cann_env.schedulers.edits import Draft, Edits, Played

OBS_PLANNED, OBS_MOVE, OBS_PLAN = 18, 6, 6
_FIXED = slice(4, 14)  # columns of the nodes of a graph that say what a command is


def plan_space(options: RunOptions, capacity: GraphCapacity, moves: int) -> spaces.Dict:
    """What :func:`encode_plan` gives; ``moves`` is absent if there are no rows for them."""
    whole = observation_space(options, capacity)

    def box(length: int) -> spaces.Box:
        return spaces.Box(0.0, OBS_HIGH, (length,), np.float32)

    parts = {
        "commands": box(capacity.nodes * OBS_PLANNED),
        "plan": box(OBS_PLAN),
        "edge_index": whole["edge_index"],
        "edge_mask": whole["edge_mask"],
    }
    if moves:
        parts["moves"] = box(moves * OBS_MOVE)
    return spaces.Dict(parts)


def encode_plan(
    edits: Edits, draft: Draft, played: Played, graph: dict[str, NDArray[np.float32]], moves: int
) -> dict[str, NDArray[np.float32]]:
    """Features of a plan and of what it came to, in fresh arrays; four of the plan's six are left out.

    Args:
        edits: The program, and what can be changed about plans of it.
        draft: The plan.
        played: What it came to.
        graph: The padded graph before anything is decided.
        moves: Rows for moves of buffers.
    """
    program = edits.program
    nodes = graph["nodes"].reshape(-1, OBS_NODE)
    commands = np.zeros((len(nodes), OBS_PLANNED), np.float32)
    count = len(program.graph.commands)
    commands[:count, :8] = _of_commands(edits, draft, played)
    commands[:, 8:] = nodes[:, _FIXED]
    rows = np.zeros((moves, OBS_MOVE), np.float32)
    _fill_moves(program, draft, rows)
    made = int((draft.ids < 0).sum())
    plan = np.zeros(OBS_PLAN, np.float32)
    plan[4:] = np.minimum([played.strayed / count, played.skipped / (made + 1)], OBS_HIGH)
    seen = {
        "commands": np.clip(commands, 0.0, OBS_HIGH).ravel(),
        "plan": plan,
        "edge_index": graph["edge_index"].copy(),
        "edge_mask": graph["edge_mask"].copy(),
    }
    return seen | ({"moves": np.minimum(rows, OBS_HIGH).ravel()} if moves else {})


def _of_commands(edits: Edits, draft: Draft, played: Played) -> NDArray[np.float64]:
    """(n, 8) the columns about the plan."""
    program, image, state = edits.program, edits.program.image, played.state
    count, streams = len(program.graph.commands), program.options.streams
    first = int(image[at.P_STATE_COMMAND])
    table = state[first : first + count * at.SC_WIDTH].reshape(count, at.SC_WIDTH)
    start, finish = table[:, at.SC_START_NS], table[:, at.SC_FINISH_NS]
    before, after = _neighbours(edits, table)
    ready = edits.releases.copy()
    np.maximum.at(ready, after, finish[before])
    freed = np.full(count, finish.max())
    np.minimum.at(freed, before, start[after])
    place = np.empty(count, np.int64)
    mine = draft.ids >= 0
    place[draft.ids[mine]] = np.flatnonzero(mine)
    bound = program.lower_bound_ns
    return np.column_stack(
        [
            np.ones(count),
            start / bound,
            finish / bound,
            (draft.rows[place, by.L_LABEL] + 1) / streams,
            (start - ready) / bound,
            (freed - finish) / bound,
            (place + 1) / len(draft.ids),
            draft.rows[place, by.L_WAKES] / max(int(state[at.S_WAKES]), 1),
        ]
    )


def _neighbours(edits: Edits, table: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Who comes before whom: along dependencies, and from one command of a stream to the next."""
    order = np.lexsort((table[:, at.SC_POSITION], table[:, at.SC_STREAM]))
    follows = table[order[1:], at.SC_STREAM] == table[order[:-1], at.SC_STREAM]
    before = np.concatenate([edits.edges[:, 0], order[:-1][follows]])
    return before, np.concatenate([edits.edges[:, 1], order[1:][follows]])


def _fill_moves(program: Program, draft: Draft, rows: NDArray[np.float32]) -> None:
    sizes = np.array([buffer.size_bytes for buffer in program.graph.buffers], np.float64)
    hbm = int(program.image[at.P_HBM_BYTES])
    for place in np.flatnonzero(draft.ids < 0).tolist():
        number = -1 - int(draft.ids[place])
        if number >= len(rows):
            continue
        rows[number, 0] = rows[number, int(draft.rows[place, by.L_KIND])] = 1.0
        rows[number, 4] = (place + 1) / len(draft.ids)
        rows[number, 5] = sizes[draft.rows[place, by.L_TARGET]] / hbm
