"""Who ended a wait: the command that gave back what was lacking, the buffers that moved meanwhile."""

from __future__ import annotations

from collections import defaultdict
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cann_env.schedule import BlockRun, Schedule, TransferRun, Waiting


class Givers:
    """The rows of a schedule by when they ended, so that many waits can be looked up."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule

    @cached_property
    def _ending(self) -> Mapping[int, list[BlockRun]]:
        ending: dict[int, list[BlockRun]] = defaultdict(list)
        for block in self._schedule.blocks:
            ending[block.finish_ns].append(block)
        return ending

    @cached_property
    def _done(self) -> Mapping[int, list[int]]:
        done: dict[int, list[int]] = defaultdict(list)
        for run in self._schedule.commands:
            done[run.finish_ns].append(run.command)
        return done

    @cached_property
    def _first(self) -> Mapping[int, BlockRun]:
        """The first blocks of each command."""
        first: dict[int, BlockRun] = {}
        for block in self._schedule.blocks:
            first.setdefault(block.command, block)
        return first

    @cached_property
    def _arriving(self) -> Mapping[int, list[TransferRun]]:
        arriving: dict[int, list[TransferRun]] = defaultdict(list)
        for move in self._schedule.transfers:
            if move.finish_ns > move.start_ns:
                arriving[move.finish_ns].append(move)
        return arriving

    @cached_property
    def _moves(self) -> Mapping[int, list[TransferRun]]:
        """The moves of each buffer that take time."""
        moves: dict[int, list[TransferRun]] = defaultdict(list)
        for move in self._schedule.transfers:
            if move.finish_ns > move.start_ns:
                moves[move.buffer].append(move)
        return moves

    def command(self, wait: Waiting) -> int | None:
        """The command that gave back what a head waited for, just when the wait was over.

        None where no command did, and where it is not for cores, a copy engine or a place among the active
        streams.
        """
        own = self._first.get(wait.command)
        if own is None or wait.cause not in ("slot", "cores", "dma"):
            return None
        ended = [each for each in self._ending.get(wait.finish_ns, ()) if each.command != wait.command]
        if wait.cause == "slot":
            alike = [b.command for b in ended if (b.work_class, b.die) == (own.work_class, own.die)]
            done = [c for c in self._done.get(wait.finish_ns, ()) if c != wait.command]
            return min(alike or done, default=None)
        wanted = set(self._schedule.demand_of(own))
        gave = [b for b in ended if b.die == own.die and wanted.intersection(self._schedule.demand_of(b))]
        return min((block.command for block in gave), default=None)

    def buffers(self, command: int, start_ns: int, finish_ns: int) -> tuple[int, ...]:
        """The buffers that moved while a head waited for memory.

        Those are its operands; where none of them moved, what arrived when the wait was over.
        """
        graph = self._schedule.graph
        named = graph.commands[command]
        own = [graph.buffer_index[name] for name in dict.fromkeys((*named.reads, *named.writes))]
        moved = tuple(
            sorted(
                b
                for b in own
                if any(m.start_ns < finish_ns and m.finish_ns > start_ns for m in self._moves.get(b, ()))
            )
        )
        return moved or self.arrived(finish_ns)

    def arrived(self, at_ns: int) -> tuple[int, ...]:
        """The buffers that arrived somewhere at an instant."""
        return tuple(sorted({move.buffer for move in self._arriving.get(at_ns, ())}))
