"""Rows of the kernel table: what each kernel, copy, callback or collective does to the device."""

from __future__ import annotations

from itertools import repeat
from typing import TYPE_CHECKING

from cann_env.device.cost import KernelCost, Roofline, cores_of_class, l2_rate_q20, roofline
from cann_env.device.spec import CLASSES, LINKS
from cann_env.engine import layout as at
from cann_env.graph import Command, CommandKind, CopyKind, Scheme
from cann_env.lowering.classes import named_rows, own_row

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cann_env.device.cost import Demand
    from cann_env.device.spec import DeviceSpec
    from cann_env.graph import Kernel

_COPY_CLASS = {CopyKind.H2D: "h2d", CopyKind.D2H: "d2h", CopyKind.D2D: "sdma"}
_KIND_CLASS = {CommandKind.CALLBACK: "callback", CommandKind.COLLECTIVE: "hcom"}
_CLASS_INDEX = {name: i for i, name in enumerate(CLASSES)}
_KERNEL = CommandKind.KERNEL
_MIX = _CLASS_INDEX["mix"]
_HBM = 1 << LINKS.index("hbm")


class KernelRows:
    """The distinct kernel rows of a graph: what several commands share is priced once.

    Attributes:
        rows: int rows as :mod:`cann_env.engine.layout` has them, none twice for the same kernel.
        classes: Rows of the class table: those of the device, then one for each class and demand of kernels
            that state their own.
    """

    def __init__(self, device: DeviceSpec) -> None:
        self.rows: list[list[int]] = []
        self.classes = named_rows(device)
        self._device = device
        self._places: dict[object, int] = {}
        self._rooflines: dict[str, Roofline] = {}
        self._own: dict[tuple[str, Demand], tuple[int, Roofline]] = {}

    def of_command(self, command: Command, hit: int) -> list[int]:
        """Places in ``rows`` of a command's kernels, in the order in which they run.

        Args:
            command: What runs.
            hit: Most of a kernel's bytes that may be found in L2, in 2**-20.
        """
        if command.kind is _KERNEL:
            return [self._of_kernel(kernel, hit) for kernel in command.kernels]
        key = (command.kind, command.copy, command.size_bytes, command.duration_ns)
        place = self._places.get(key)
        if place is not None:
            return [place]
        if command.kind is CommandKind.COPY:
            return [self._add(key, self._copy_row(command))]
        return [self._add(key, _fixed_row(command))]

    def _of_kernel(self, kernel: Kernel, hit: int) -> int:
        # All requests for one model hold the same kernels; to compare others costs more than to price them.
        key = (id(kernel), hit)
        place = self._places.get(key)
        return self._add(key, self._compute_row(kernel, hit)) if place is None else place

    def _add(self, key: object, row: list[int]) -> int:
        self._places[key] = len(self.rows)
        self.rows.append(row)
        return len(self.rows) - 1

    def _roofline(self, work_class: str) -> Roofline:
        if work_class not in self._rooflines:
            self._rooflines[work_class] = roofline(self._device, work_class)
        return self._rooflines[work_class]

    def _own_class(self, work_class: str, demand: Demand) -> tuple[int, Roofline]:
        """Class of work of kernels that state what their blocks hold, and how fast they go."""
        key = work_class, demand
        if key not in self._own:
            roof = roofline(self._device, work_class, demand)
            self._own[key] = len(self.classes), roof
            self.classes.append(own_row(self._device, _CLASS_INDEX[work_class], demand))
        return self._own[key]

    def _compute_row(self, kernel: Kernel, hit: int) -> list[int]:
        """Row of a kernel that runs on cores."""
        if kernel.demand is not None:
            work, roof = self._own_class(kernel.kernel_class.value, kernel.demand)
            row = self._row_of(kernel, hit, [roof])
            row[at.PK_CLASS] = work
            return row
        return self._row_of(kernel, hit, self._choices(kernel))

    def _row_of(self, kernel: Kernel, hit: int, roofs: Sequence[Roofline]) -> list[int]:
        """Row of a kernel that may run as one class or as two."""
        costs = [roof.of(kernel) for roof in roofs]
        variants = list(map(self._variant, roofs, costs, repeat(kernel.blocks), repeat(hit)))
        first, last = variants[0], variants[-1]
        alone = len(variants) == 1
        return [
            first[0],
            -1 if alone else last[0],
            kernel.blocks,
            1 if kernel.scheme is Scheme.BATCH else 0,
            *first[1],
            *last[1],
            _HBM,
            1,
            min(first[3], last[3]),
            min(first[4], last[4]),
            first[2] if alone else 0,
        ]

    def _choices(self, kernel: Kernel) -> list[Roofline]:
        """The classes that a kernel may run as, the preferred one first."""
        if kernel.fallback is None:
            return [self._roofline(kernel.kernel_class.value)]
        names = [kernel.kernel_class.value, kernel.fallback.value]
        roofs = [self._roofline(name) for name in names if cores_of_class(self._device, name)]
        if kernel.scheme is Scheme.BATCH:
            return [roof for roof in roofs if roof.cores >= kernel.blocks]
        return roofs

    def _variant(
        self, roof: Roofline, cost: KernelCost, blocks: int, hit: int
    ) -> tuple[int, tuple[int, int, int, int, int], int, int, int]:
        """A kernel of known cost as one class of work.

        As much as can be is found in L2, and the kernel has all dies' L2 and one die's cores to itself.

        Returns:
            The class and the figures of the row; the least that one block needs of time (ns) and of HBM
            (q20), and the least time of the whole kernel.
        """
        # Most that one block takes from L2: all cores of its class together load it fully.
        l2_rate = max(cost.rate_q20, l2_rate_q20(self._device) // roof.cores)
        found = -(-cost.bytes_q20 * hit // at.Q20)
        rest = cost.bytes_q20 - found
        moved = -(-(rest * l2_rate + found * cost.rate_q20) // (cost.rate_q20 * l2_rate))
        block = max(cost.compute_ns, moved)
        whole = roof.minimum_ns(cost, blocks, rest)
        waves = -(-blocks // roof.cores)
        least = max(whole, cost.launch_ns + waves * block)
        return _CLASS_INDEX[roof.work_class], _figures(cost, l2_rate), block, rest, least

    def _copy_row(self, command: Command) -> list[int]:
        """Row of a copy: one block on a DMA channel, whose bytes cross its link and the device memory."""
        assert command.copy is not None  # a graph admits no copy without direction
        engine = _COPY_CLASS[command.copy]
        cost = self._roofline(engine).cost(
            flops=0,
            dtype="",
            size_bytes=command.size_bytes,
            blocks=1,
            duration_ns=command.duration_ns or None,
        )
        flow, weight = _HBM, 2
        if command.copy is not CopyKind.D2D:
            flow = 1 << LINKS.index(engine) | (_HBM if self._device.links[engine].shares_hbm else 0)
            weight = 1
        block = max(cost.compute_ns, -(-cost.bytes_q20 // cost.rate_q20))
        figures = _figures(cost, cost.rate_q20)
        return [
            _CLASS_INDEX[engine], -1, 1, 0, *figures, *figures,
            flow, weight, cost.bytes_q20, cost.launch_ns + block, block,
        ]  # fmt: skip


def _figures(cost: KernelCost, l2_rate: int) -> tuple[int, int, int, int, int]:
    return cost.launch_ns, cost.compute_ns, cost.bytes_q20, cost.rate_q20, l2_rate


def _fixed_row(command: Command) -> list[int]:
    """Row of a callback or a collective: one block that takes a given time."""
    figures = [0, command.duration_ns, 0, 1, 1]
    engine = _CLASS_INDEX[_KIND_CLASS[command.kind]]
    return [engine, -1, 1, 0, *figures, *figures, 0, 0, 0, command.duration_ns, command.duration_ns]


def first_mix(row: Sequence[int], classes: Sequence[Sequence[int]]) -> int:
    """1 if a command begins with a mix kernel, 0 if not, 2 if that depends on which class is free."""
    if row[at.PK_FALLBACK] >= 0 and _MIX in (row[at.PK_CLASS], row[at.PK_FALLBACK]):
        return 2
    return classes[row[at.PK_CLASS]][at.PW_MIX]
