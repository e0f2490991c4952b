"""Exact optima of prefetching over one link into a small memory, for a fixed sequence of unit blocks.

Time goes in slots. In a slot the next request is served if its block is in memory; the link moves one block
at a time, ``fetch`` slots each. A fetch takes its place at once, from a free place or from a block not
being used in this slot, and may begin in any slot. All states that can be reached are kept, slot by slot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

State = tuple[int, frozenset[int], int, int]
"""Requests served, blocks held, the block that moves (-1: none), slots that it takes yet."""


def brute_force(sequence: tuple[int, ...], places: int, fetch: int) -> int:
    """Fewest slots to serve a sequence, over every fetch and every eviction in every slot."""
    blocks = sorted(set(sequence))

    def fetches(at: int, held: frozenset[int]) -> Iterable[tuple[frozenset[int], int]]:
        for block in blocks:
            if block not in held:
                if len(held) < places:
                    yield held, block
                for victim in held - {sequence[at]}:
                    yield held - {victim}, block

    return _fewest_slots(sequence, fetch, fetches)


def optimum(sequence: tuple[int, ...], places: int, fetch: int) -> int:
    """The same by the rules that some optimum obeys (Cao, Felten, Karlin, Li, SIGMETRICS 1995).

    Fetch the next missing block, evict the one whose next use is furthest, and only if that is after the use
    of the one fetched. What remains to decide is when.
    """
    end = len(sequence)
    next_use = [dict.fromkeys(sequence, end)]
    for at in range(end - 1, -1, -1):
        next_use.append({**next_use[-1], sequence[at]: at})
    next_use.reverse()

    def fetches(at: int, held: frozenset[int]) -> Iterable[tuple[frozenset[int], int]]:
        use = next_use[at]
        missing = [b for b in use if b not in held and use[b] < end]
        if not missing:
            return
        block = min(missing, key=use.__getitem__)
        if len(held) < places:
            yield held, block
            return
        victim = max(held, key=lambda b: (use[b], b))
        if use[victim] > use[block]:
            yield held - {victim}, block

    return _fewest_slots(sequence, fetch, fetches)


def _fewest_slots(
    sequence: tuple[int, ...],
    fetch: int,
    fetches: Callable[[int, frozenset[int]], Iterable[tuple[frozenset[int], int]]],
) -> int:
    states: set[State] = {(0, frozenset(), -1, 0)}
    slots = 0
    while not any(at == len(sequence) for at, *_ in states):
        begun = {
            (at, kept, block, fetch)
            for at, held, moving, _ in states
            if moving < 0
            for kept, block in fetches(at, held)
        }
        states = {_serve(sequence, state) for state in states | begun}
        slots += 1
    return slots


def _serve(sequence: tuple[int, ...], state: State) -> State:
    """One slot further."""
    at, held, moving, left = state
    served = sequence[at] in held
    if left == 1:
        return at + served, held | {moving}, -1, 0
    return at + served, held, moving, max(left - 1, 0)
