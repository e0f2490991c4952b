"""The L2 of each die, replayed from the rows of a schedule by its own rule: least recently used goes first.

Which bytes lie in L2 follows from the finishes of kernels and of lifts, from what leaves HBM, and from the
starts of kernels. Within one instant the rows do not tell who came first, so the replay keeps every state it
may be in: what finishes and lifts bring in and what is freed in any order (of more than five, only in orders
in which one command follows another or like follows like), then evictions, then starts. What several of them
use at one instant is *equally recent* after that, and where one of those must go first, any may. A kernel's
hit must be what some state has; the states that do not have it are dropped. Should there ever be too many
states, or should at one instant more than five come in that do not fit together, nothing more is asked of
this die.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import chain, permutations
from typing import TYPE_CHECKING, NamedTuple

from cann_env.graph import CommandKind
from cann_env.validate.case import FOREVER, Case, Violation
from cann_env.validate.memory import residency

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from cann_env.graph import Command

State = tuple[frozenset[tuple[int, int]], ...]
"""(buffer, bytes) in groups of the equally recent, the least recent first."""

_MOST_STATES, _MOST_ORDERED, _LARGEST_GROUP = 256, 5, 6


class _Lost(Exception):
    """There are too many states to follow."""


class _Change(NamedTuple):
    """``size_bytes`` of a buffer come in, or it is freed (0 bytes).

    ``owners`` are the commands whose finish does it: one that wrote it, or all last users that end together;
    a lift has a negative number of its own. ``place`` is its place among the operands of a writer.
    """

    owners: tuple[int, ...]
    place: int
    buffer: int
    size_bytes: int


@dataclass
class _Instant:
    """What happens to the L2 of a die at one instant."""

    changes: list[_Change] = field(default_factory=list)
    evicted: list[int] = field(default_factory=list)
    starts: list[tuple[int, int]] = field(default_factory=list)


def _held(state: State) -> dict[int, int]:
    return dict(chain.from_iterable(state))


def _without(state: State, buffers: Iterable[int]) -> State:
    gone = set(buffers)
    kept = (frozenset(entry for entry in group if entry[0] not in gone) for group in state)
    return tuple(group for group in kept if group)


def _shrunk(state: State, excess: int) -> set[State]:
    """Push out ``excess`` bytes; among the equally recent any may be the first."""
    if excess <= 0 or not state:
        return {state}
    oldest, total = state[0], sum(size for _, size in state[0])
    if total <= excess:
        return _shrunk(state[1:], excess - total)
    if len(oldest) > _LARGEST_GROUP:
        raise _Lost
    found: set[State] = set()
    for buffer, size in oldest:
        rest = oldest - {(buffer, size)}
        if size > excess:
            found.add((rest | {(buffer, size - excess)}, *state[1:]))
        else:
            found |= _shrunk((rest, *state[1:]), excess - size)
    return found


def _entered(state: State, buffer: int, size: int, capacity: int) -> set[State]:
    """At least ``size`` bytes of a buffer come in; what is larger than the L2 empties it and is gone."""
    held = _held(state)
    wanted = max(size, held.get(buffer, 0))
    if wanted > capacity:
        return {()}
    others = _without(state, [buffer])
    excess = sum(_held(others).values()) + wanted - capacity
    return {(*kept, frozenset({(buffer, wanted)})) for kept in _shrunk(others, excess)}


def _renewed(state: State, buffers: Sequence[int], *, together: bool) -> State:
    """Make buffers the most recent, one after another or all equally."""
    held = _held(state)
    entries = [(buffer, held[buffer]) for buffer in buffers if buffer in held]
    if not entries:
        return state
    rest = _without(state, [buffer for buffer, _ in entries])
    return (*rest, frozenset(entries)) if together else (*rest, *(frozenset({entry}) for entry in entries))


def _orders(changes: list[_Change]) -> Iterator[Sequence[_Change]]:
    """Orders that may be: all if there are few changes, else those in which one owner follows another."""
    if len(changes) <= _MOST_ORDERED:
        yield from (order for order in permutations(changes) if _may_be(order))
        return
    owners = sorted({owner for change in changes for owner in change.owners})
    for line in (owners, owners[::-1]):
        turn = {owner: at for at, owner in enumerate(line)}
        for style in permutations(range(3)):
            keys = {change: _key(change, turn, style) for change in changes}
            order = sorted(changes, key=keys.__getitem__)
            if _may_be(order):
                yield order


def _key(change: _Change, turn: dict[int, int], style: Sequence[int]) -> tuple[int, ...]:
    """Sort by owner, by whether it is freed, and by place, in the order of importance ``style`` names."""
    parts = (max(turn[owner] for owner in change.owners), int(not change.size_bytes), change.place)
    return tuple(parts[i] for i in style)


def _may_be(order: Sequence[_Change]) -> bool:
    """Nothing is freed before it comes in, and what one command wrote comes in as its operands say."""
    gone: set[int] = set()
    last: dict[int, int] = {}
    for change in order:
        if not change.size_bytes:
            gone.add(change.buffer)
        elif change.buffer in gone or change.place < last.get(change.owners[0], 0):
            return False
        else:
            last[change.owners[0]] = change.place
    return True


def _changed(states: set[State], changes: list[_Change], capacity: int) -> set[State]:
    """All states after the changes of one instant."""
    entering = {change.buffer for change in changes if change.size_bytes}
    present = entering.union(*(_held(state) for state in states))
    changes = [change for change in changes if change.buffer in present]
    together = len({change.owners for change in changes if change.size_bytes}) > 1
    arriving = sum(change.size_bytes for change in changes)
    ample = all(arriving + sum(_held(state).values()) <= capacity for state in states)
    in_then_out = sorted(
        changes, key=lambda change: not change.size_bytes
    )  # nobody gives way: one order will do
    if len(changes) > _MOST_ORDERED and arriving > capacity:
        raise _Lost
    found: set[State] = set()
    for order in [in_then_out] if ample else _orders(changes):
        after = states
        for _, _, buffer, size in order:
            if size:
                after = {new for state in after for new in _entered(state, buffer, size, capacity)}
            else:
                after = {_without(state, [buffer]) for state in after}
        found |= {_renewed(state, sorted(entering), together=True) for state in after} if together else after
        if len(found) > _MOST_STATES:
            raise _Lost
    return found


# --- what the rows say ----------------------------------------------------------------------------------


def _local(case: Case, command: int, names: Iterable[str]) -> list[int]:
    """Buffers at home on the die a command runs on."""
    graph, die = case.schedule.graph, case.die_of(command)
    found = [graph.buffer_index[name] for name in names]
    return [b for b in found if graph.buffers[b].die == die]


def _operands(command: Command) -> list[str]:
    """In the order of the operands: what it reads, then what it only writes."""
    return list(dict.fromkeys((*command.reads, *command.writes)))


def _instants(case: Case) -> dict[int, dict[int, _Instant]]:
    """What happens in each L2, by die and time."""
    found: dict[int, dict[int, _Instant]] = defaultdict(lambda: defaultdict(_Instant))
    _add_kernels(case, found)
    _add_moves(case, found)
    return found


def _add_kernels(case: Case, found: dict[int, dict[int, _Instant]]) -> None:
    buffers = case.schedule.graph.buffers
    for (i, k), rows in case.kernels.items():
        if case.command(i).kind is CommandKind.KERNEL:
            found[case.die_of(i)][rows[0].kernel_start_ns].starts.append((i, k))
    for i, run in enumerate(case.runs):
        command = case.command(i)
        if command.kind is CommandKind.KERNEL and command.writes:
            written = [name for name in _operands(command) if name in command.writes]
            found[case.die_of(i)][run.finish_ns].changes += [
                _Change((i,), place, b, case.unit_bytes(buffers[b]))
                for place, b in enumerate(_local(case, i, written))
            ]


def _add_moves(case: Case, found: dict[int, dict[int, _Instant]]) -> None:
    buffers = case.schedule.graph.buffers
    for n, move in enumerate(case.schedule.transfers):
        if move.cause == "lift" and move.size_bytes and move.finish_ns < FOREVER:
            change = _Change((-1 - n,), 0, move.buffer, move.size_bytes)
            found[buffers[move.buffer].die][move.finish_ns].changes.append(change)
    for row in case.schedule.allocations:
        found[buffers[row.buffer].die][row.free_ns].changes.append(_freed(case, row.buffer, row.free_ns))
    for b, stays in residency(case).items():
        for stay in stays:
            instant = found[buffers[b].die][stay.leave_ns]
            if stay.left == "free":
                instant.changes.append(_freed(case, b, stay.leave_ns))
            elif stay.left:
                instant.evicted.append(b)


def _freed(case: Case, buffer: int, at_ns: int) -> _Change:
    users = case.users[case.schedule.graph.buffers[buffer].name]
    last = tuple(i for i in users if case.runs[i].finish_ns == at_ns)
    return _Change(last or users, len(users), buffer, 0)


def l2_hits(case: Case) -> Iterator[Violation]:
    """Kernels find in L2 what is there when they start, neither more nor less."""
    for row in case.schedule.hits:
        start = case.kernels[row.command, row.kernel][0].kernel_start_ns
        if row.at_ns != start:
            message = (
                f"{case.name(row.command)} says its kernel {row.kernel} found bytes in L2 at {row.at_ns} ns; "
                f"it starts at {start} ns"
            )
            yield Violation("l2-hits", message, (row.command,), row.at_ns)
    if not case.l2_bytes:
        for row in case.schedule.hits:
            message = f"{case.name(row.command)} finds {row.hit_bytes} bytes in L2; there is no L2"
            yield Violation("l2-hits", message, (row.command,), row.at_ns)
        return
    for instants in _instants(case).values():
        yield from _replay(case, instants)


def _replay(case: Case, instants: dict[int, _Instant]) -> Iterator[Violation]:
    states: set[State] = {()}
    for at_ns, instant in sorted(instants.items()):
        try:
            if instant.changes:
                states = _changed(states, instant.changes, case.l2_bytes)
        except _Lost:
            return
        states = {_without(state, instant.evicted) for state in states}
        reading = 0
        used: dict[int, None] = {}
        for i, k in instant.starts:
            reads = _local(case, i, case.command(i).reads)
            agree = {state for state in states if _found(state, reads) == case.hits.get((i, k), 0)}
            if not agree and case.runs[i].start_ns < case.runs[i].finish_ns:  # else its finish may come first
                yield _wrong(case, (i, k), sorted({_found(state, reads) for state in states}), at_ns)
            states = agree or states
            reading += any(_found(state, reads) for state in states)
            used.update(dict.fromkeys(reads))
        states = {_renewed(state, list(used), together=reading > 1) for state in states}


def _found(state: State, buffers: Iterable[int]) -> int:
    held = _held(state)
    return sum(held.get(buffer, 0) for buffer in buffers)


def _wrong(case: Case, kernel: tuple[int, int], possible: list[int], at_ns: int) -> Violation:
    i, k = kernel
    message = (
        f"{case.placed(i)} finds {case.hits.get(kernel, 0)} bytes in L2 when its kernel {k} starts at "
        f"{at_ns} ns; {' or '.join(map(str, possible))} are there"
    )
    return Violation("l2-hits", message, (i,), at_ns)
