"""What a graph needs of the memory of a device, and what there is: by buffers, by commands, at the most."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import floor
from typing import TYPE_CHECKING

import numpy as np

from cann_env.engine import layout as at
from cann_env.graph import Level
from cann_env.lowering.memory import (
    Claims,
    Operands,
    aligned_sizes,
    moves,
    operand_modes,
    operands_of,
    peak_need,
    places,
    taken_sizes,
)
from cann_env.units import format_size

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cann_env.device.spec import DeviceSpec
    from cann_env.engine import Image
    from cann_env.graph import CommandGraph
    from cann_env.options import RunOptions

_MOST_BYTES, _MOST_BUFFERS = 1 << 42, 1 << 20  # whatever sums up less in fewer buffers stays below 2**63


@dataclass(frozen=True)
class Needs:
    """What a graph needs of the memory of a device, and what there is.

    Attributes:
        graph, device, options: What runs, where and how.
    """

    graph: CommandGraph
    device: DeviceSpec
    options: RunOptions

    @cached_property
    def sizes(self) -> list[int]:
        """Aligned size of each buffer (bytes)."""
        return aligned_sizes(self.graph, self.device)

    @cached_property
    def moving(self) -> list[bool]:
        """For each buffer whether it migrates."""
        return moves(self.graph, self.device)

    @cached_property
    def placed(self) -> list[bool]:
        """For each buffer whether it gets a place in the address space when it is first written."""
        return places(self.graph, self.moving)

    @cached_property
    def lasting(self) -> NDArray[np.bool_]:
        """For each buffer whether it lies in device memory from the start to the end."""
        comes: NDArray[np.bool_] = np.array(self.moving, bool) | np.array(self.placed, bool)
        return ~comes

    @cached_property
    def taken(self) -> list[int]:
        """Bytes that each buffer takes: what the allocator gives for a place, elsewhere its size."""
        rounded = taken_sizes(self.sizes, self.device, self.options)
        return [
            given if placed else size
            for given, placed, size in zip(rounded, self.placed, self.sizes, strict=True)
        ]

    @cached_property
    def charges(self) -> list[int]:
        """Bytes that each buffer reserves beyond what is reserved for ever."""
        if self.options.pool_bytes is None:
            return self.taken
        return [0 if placed else taken for placed, taken in zip(self.placed, self.taken, strict=True)]

    @cached_property
    def dies(self) -> Image:
        """Home die of each buffer."""
        return np.array([buffer.die for buffer in self.graph.buffers], np.int64)

    @cached_property
    def modes(self) -> list[dict[int, int]]:
        """Buffers of each command and how it uses them."""
        return operand_modes(self.graph, self.placed)

    @cached_property
    def operands(self) -> Operands:
        """The same as arrays."""
        return operands_of(self.modes)

    @cached_property
    def amounts(self) -> NDArray[np.int64]:
        """Bytes that each buffer reserves, bytes that it takes, and places: (3, buffers)."""
        small = sum(self.taken) < _MOST_BYTES and len(self.taken) < _MOST_BUFFERS
        return np.array((self.charges, self.taken, self.placed), np.int64 if small else object)

    @cached_property
    def claims(self) -> list[Claims]:
        """What the commands ask of each die."""
        operands, commands = self.operands, len(self.graph.commands)
        taken = self.amounts[1]
        outputs = operands.mode & at.ALLOCATE != 0
        migrates = np.array(self.moving, bool)[operands.buffer]
        home = self.dies[operands.buffer]
        claims = []
        for die in range(self.device.dies):
            written = operands.at(outputs & (home == die))
            touched = operands.at(migrates & (home == die))
            asked = np.zeros((3, commands), taken.dtype)
            for row, amounts in zip(asked, self.amounts, strict=True):
                np.add.at(row, written.command, amounts[written.buffer])
            largest = np.zeros(commands, taken.dtype)
            np.maximum.at(largest, written.command, taken[written.buffer])
            claims.append(Claims(touched.sums(taken, commands), asked, largest))
        return claims

    def held(self, order: Image, die: int) -> NDArray[np.int64]:
        """What the outputs hold of a die while each command runs, if they run one by one in this order.

        Returns:
            (3, commands): as in :attr:`amounts`, at each place of the order.
        """
        last = self.operands.last_places(order, len(self.taken))
        gone = np.flatnonzero(np.array(self.placed, bool) & (self.dies == die) & (last >= 0))
        change = self.claims[die].outputs[:, order]
        back = last[gone] + 1
        in_time = back < order.size
        for row, amounts in zip(change, self.amounts, strict=True):
            np.subtract.at(row, back[in_time], amounts[gone[in_time]])
        held: NDArray[np.int64] = np.cumsum(change, axis=1)
        return held

    @cached_property
    def peak(self) -> int:
        """Most bytes of one die that are needed at once if nothing ever has to leave."""
        levels = [buffer.level is Level.HBM for buffer in self.graph.buffers]
        return max(
            peak_need(
                self.operands,
                self.amounts[1],
                commands=len(self.graph.commands),
                here=self.dies == die,
                fixed=self.lasting,
                resident=np.array(levels, bool),
            )
            for die in range(self.device.dies)
        )

    @cached_property
    def least(self) -> int:
        """Bytes of a die with which the graph can run one by one in program order, places aside."""
        order = np.array(self.graph.topological_order)
        pool = self.options.pool_bytes or 0
        needs: list[int] = []
        for die in range(self.device.dies):
            demand = self.demand(order, die, self.held(order, die))
            needs += [self.fixed(die) + self.resident(die), *demand.tolist()]
        return pool + max(needs)

    def demand(self, order: Image, die: int, held: NDArray[np.int64]) -> NDArray[np.int64]:
        """Bytes of a die needed while each command runs, if they run one by one in this order.

        Buffers that migrate count while a command uses them; ``held`` is what outputs hold, see :meth:`held`.
        """
        demand: NDArray[np.int64] = held[0] + self.claims[die].managed[order] + self.fixed(die)
        return demand

    @cached_property
    def capacity(self) -> int:
        """Memory of a die in this run (bytes), in whole units of the alignment."""
        factor = self.options.memory_factor
        if factor is None:
            return self.options.hbm_bytes or self.device.memory.hbm_bytes
        unit = self.device.memory.alignment_bytes
        wanted = floor(Fraction(str(factor)) * self.peak)
        return max(wanted - wanted % unit, unit)

    @property
    def there_is(self) -> str:
        """How much memory a die has in this run, and why."""
        options = self.options
        words = (
            f"{self.device.name} has {self.capacity} bytes ({format_size(self.capacity)}) a die in this run"
        )
        if options.memory_factor is not None:
            words += f", {options.memory_factor} times the {self.peak} bytes of 'memory_factor' 1"
        elif options.hbm_bytes is not None:
            words += ", as 'hbm_bytes' says"
        if options.pool_bytes is not None:
            words += f", of which 'pool_bytes' sets {options.pool_bytes} aside for device buffers"
        return words

    @property
    def hint(self) -> str:
        """What would be right."""
        factor = f", that is 'memory_factor' {self.least / self.peak:.3g}" if self.peak else ""
        return f"it needs at least {self.least} bytes{factor}, or more where places are wanting"

    def fixed(self, die: int) -> int:
        """Bytes of device buffers that lie on a die from the start to the end."""
        return self._bytes_of(self.lasting & (self.dies == die))

    def resident(self, die: int) -> int:
        """Bytes of buffers that lie on a die at first and may leave it."""
        return sum(
            size
            for size, moving, buffer in zip(self.sizes, self.moving, self.graph.buffers, strict=True)
            if moving and buffer.die == die and buffer.level is Level.HBM
        )

    def _bytes_of(self, chosen: NDArray[np.bool_]) -> int:
        return sum([self.sizes[b] for b in np.flatnonzero(chosen).tolist()])

    def space(self, die: int) -> int:
        """Size of the address space that is handed out on a die."""
        pool = self.options.pool_bytes
        return self.capacity - self.fixed(die) if pool is None else pool
