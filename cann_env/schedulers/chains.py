"""Covering a graph by chains: transitive closure and reduction, maximum matching; sets are bits of integers.

Vertices are numbered in a topological order: every edge goes from a smaller number to a larger one. A set of
vertices is an int whose bit v is 1 if v is in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def members(chosen: int) -> Iterator[int]:
    """The vertices of a set, ascending."""
    while chosen:
        lowest = chosen & -chosen
        yield lowest.bit_length() - 1
        chosen ^= lowest


def closure(successors: Sequence[int]) -> list[int]:
    """For each vertex the set of those that a path leads to, itself left out."""
    reached = [0] * len(successors)
    for vertex in range(len(successors) - 1, -1, -1):
        beyond = successors[vertex]
        for after in members(successors[vertex]):
            beyond |= reached[after]
        reached[vertex] = beyond
    return reached


def reduction(successors: Sequence[int]) -> list[int]:
    """For each vertex the successors that no other path leads to (the minimum equivalent graph)."""
    reached = closure(successors)
    kept = []
    for after in successors:
        covered = 0
        edges = 0
        for vertex in members(after):
            if not covered >> vertex & 1:
                edges |= 1 << vertex
                covered |= reached[vertex]
        kept.append(edges)
    return kept


def matching(candidates: Sequence[int]) -> list[int]:
    """A maximum matching of the bipartite graph of edges (Kuhn's augmenting paths).

    Args:
        candidates: For each vertex on the left the set of those on the right that it may be matched with.

    Returns:
        For each vertex on the left its partner on the right, -1 for none. Where there is a choice, vertices
        on the left go first in their order and take the smallest partner.
    """
    partner = [-1] * len(candidates)
    owner: dict[int, int] = {}
    taken = 0
    for left, allowed in enumerate(candidates):
        free = allowed & ~taken
        if free:
            right = (free & -free).bit_length() - 1
            partner[left], owner[right] = right, left
            taken |= 1 << right
    for left, allowed in enumerate(candidates):
        if partner[left] < 0 and allowed:
            taken |= _augment(candidates, partner, owner, left, taken)
    return partner


def _augment(
    candidates: Sequence[int], partner: list[int], owner: dict[int, int], root: int, taken: int
) -> int:
    """Match one more vertex if a path allows it; the newly matched vertex on the right, as a set."""
    unseen = ~0
    path: list[tuple[int, int]] = []  # vertices on the left, and on the right that each would take
    left = root
    while True:
        allowed = candidates[left] & unseen
        free = allowed & ~taken
        if free:
            right = (free & -free).bit_length() - 1
            for before, its in [*path, (left, right)]:
                partner[before], owner[its] = its, before
            return 1 << right
        if allowed:
            lowest = allowed & -allowed
            unseen &= ~lowest
            right = lowest.bit_length() - 1
            path.append((left, right))
            left = owner[right]
        elif path:
            left, _ = path.pop()
        else:
            return 0


def chains(partner: Sequence[int]) -> list[int]:
    """For each vertex the number of its chain, where a vertex and its partner share one.

    Chains are numbered in the order of their first vertices.
    """
    chain = [-1] * len(partner)
    count = 0
    for vertex, after in enumerate(partner):
        if chain[vertex] < 0:
            chain[vertex] = count
            count += 1
        if after >= 0:
            chain[after] = chain[vertex]
    return chain
