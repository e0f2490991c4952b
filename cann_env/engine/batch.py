"""Many environments in one call: row i of every array belongs to environment i.

Rows are as wide as the widest instance needs; what lies behind an image's own end is never read. Actions go
in, the states change in place, and what an agent sees of them goes out into arrays that the caller made once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cann_env.engine.foresee import fetch_headers, fetch_rows
from cann_env.engine.jit import kernel
from cann_env.engine.layout import (
    P_STATE_WORDS,
    RUNNING,
    S_STATUS,
)
from cann_env.engine.observe import (
    copy_mask,
    observe,
)
from cann_env.engine.observe_graph import OBS_NODE, observe_graph
from cann_env.engine.step import step

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cann_env.engine import Image


class Views(NamedTuple):
    """What agents see, one row an environment; without the graph its five arrays have no rows.

    Attributes:
        flat: float32 (N, F), see :func:`cann_env.engine.observe.observe`.
        masks: int8 (N, A), 1 where an action is legal.
        nodes, node_mask, edge_index, edge_mask, window: float32 (N, ...), see
            :func:`cann_env.engine.observe_graph.observe_graph`.
    """

    flat: NDArray[np.float32]
    masks: NDArray[np.int8]
    nodes: NDArray[np.float32]
    node_mask: NDArray[np.float32]
    edge_index: NDArray[np.float32]
    edge_mask: NDArray[np.float32]
    window: NDArray[np.float32]


def new_views(rows: int, features: int, actions: int, window: int, graph: tuple[int, int] | None) -> Views:
    """Zeroed arrays for :func:`step_batch` to write to.

    Args:
        rows: Environments (N).
        features: Length of a flat observation (F).
        actions: Length of a mask (A).
        window: Slots of the ready window (K).
        graph: Most commands and edges of the padded graph; None to leave it out.
    """
    nodes, edges = (0, 0) if graph is None else graph
    drawn = 0 if graph is None else rows
    return Views(
        flat=np.zeros((rows, features), np.float32),
        masks=np.zeros((rows, actions), np.int8),
        nodes=np.zeros((drawn, nodes, OBS_NODE), np.float32),
        node_mask=np.zeros((drawn, nodes), np.float32),
        edge_index=np.zeros((drawn, 2, edges), np.float32),
        edge_mask=np.zeros((drawn, edges), np.float32),
        window=np.zeros((drawn, window), np.float32),
    )


@kernel
def _observe_row(p: Image, s: Image, row: int, views: Views) -> None:
    observe(p, s, views.flat[row])
    copy_mask(p, s, views.masks[row])
    if views.nodes.shape[0] > 0:
        observe_graph(
            p,
            s,
            views.nodes[row],
            views.node_mask[row],
            views.edge_index[row],
            views.edge_mask[row],
            views.window[row],
        )


@kernel
def observe_batch(programs: Image, states: Image, rows: Image, views: Views) -> None:
    """Write what agents see of some environments.

    Args:
        programs: int64 (N, any), one program image a row.
        states: int64 (N, any), one state image a row.
        rows: int64, the environments to look at.
        views: Rows of other environments stay as they are.
    """
    for row in rows:
        p = programs[row]
        _observe_row(p, states[row, : p[P_STATE_WORDS]], row, views)


@kernel
def step_batch(programs: Image, states: Image, actions: Image, rises: Image, views: Views) -> None:
    """Take one decision in every environment whose episode is not over, and look at its new state.

    Args:
        programs: int64 (N, any), one program image a row.
        states: int64 (N, any), one state image a row; changed in place.
        actions: int64 (N,).
        rises: int64 (N,), receives by how much each objective rose (ns), 0 where the episode was over.
        views: Rows of environments whose episode was over stay as they are.
    """
    for row in range(actions.size):
        rises[row] = 0
        if row + 2 < actions.size:
            fetch_headers(programs[row + 2], states[row + 2])
        if row + 1 < actions.size:
            fetch_rows(programs[row + 1], states[row + 1], views.flat[row + 1])
        p = programs[row]
        s = states[row, : p[P_STATE_WORDS]]
        if s[S_STATUS] == RUNNING:
            rises[row] = step(p, s, actions[row])
            _observe_row(p, s, row, views)
