"""The best that any decisions come to, found by trying them all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from episodes import legal_actions

from cann_env.engine import layout as at
from cann_env.engine.step import step

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from cann_env.program import Program


def least_makespan(program: Program, known: int) -> int:
    """The least makespan over all sequences of legal decisions, or ``known`` if none is shorter.

    The lower bound of a state, which the tests of the engine hold below every makespan, cuts branches off.
    """
    best = known
    seen: set[bytes] = set()

    def visit(state: NDArray[np.int64]) -> None:
        nonlocal best
        if state[at.S_STATUS] != at.RUNNING:
            if state[at.S_STATUS] == at.FINISHED:
                best = min(best, int(state[at.S_OBJECTIVE_NS]))
            return
        if state[at.S_BOUND_NS] >= best:
            return
        mark = state[: int(state[at.S_AT_ACTION])].copy()
        mark[at.S_STEPS] = 0
        key = mark.tobytes()
        if key in seen:
            return
        seen.add(key)
        for action in legal_actions(program, state):
            branch = state.copy()
            step(program.image, branch, action)
            visit(branch)

    visit(program.new_state())
    return best
