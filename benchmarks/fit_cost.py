"""Fits the cost model to recorded kernels, and says how far off it is on recordings it has not seen.

``python benchmarks/fit_cost.py --data DIR [--json] [--write]``. Every kernel belongs to one family; a family
fits its constants and predicts. Each recording is left out in turn: its chip is then known by its data sheet
only, its constants are those fitted to the others. Further tables also forget what is known of operators that
only that recording has, leave out whole chips, or a fifth of the shapes; the last fits everything.
``--write`` prints the lines of the device files. Errors are absolute and relative, of the modelled time of a
kernel that has the die to itself.

Another family joins by a module with ``NAME`` and ``fit(samples)``, named in :data:`FAMILIES`.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, NamedTuple, Protocol

import fit_aicpu
import fit_attention
import fit_cube
import fit_vector
from bandwidths import bandwidths
from kernel_samples import MATMUL_LIKE, load_samples
from tables import arguments, number, print_json, print_table, progress

from cann_env.device import work
from cann_env.device.families import SIMPLE
from cann_env.device.load import load_device
from cann_env.device.products import product_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from fit_cube import FitRow
    from kernel_samples import Sample

FOLDS = 5
LONG_NS = 5000
"""Longer kernels have a line of their own: of shorter ones, launch is most."""

LARGEST = 12
"""Rows of the table of single products."""


class Fitted(Protocol):
    """A family whose constants are known."""

    def predict(self, samples: Sequence[Sample]) -> list[int | None]:
        """Modelled times (ns) of the kernels of one recording; None for those of other families."""

    def rows(self) -> list[FitRow]:
        """The constants, for people and for the device files."""


class Family(Protocol):
    """A module that fits one family."""

    NAME: str

    def fit(self, samples: Sequence[Sample]) -> Fitted:
        """Fit to recordings; kernels of other families are passed over."""


class Row(NamedTuple):
    """Errors of the kernels of one file and operator; ``*`` stands for all."""

    file: str
    op: str
    kernels: int
    shapes: int
    median: float
    p90: float
    total: float


class ProductRow(NamedTuple):
    """One product of matrices: measured, and modelled without and with its recording, alone on the die."""

    chip: str
    op: str
    shape: str
    dtype: str
    measured_us: float
    left_out_us: float
    fitted_us: float
    of_peak: float
    of_peak_fitted: float


class Priced(NamedTuple):
    """A recorded kernel, which family priced it, and for how long."""

    sample: Sample
    family: str
    modelled_ns: int

    @property
    def error(self) -> float:
        """Absolute and relative."""
        return abs(self.modelled_ns / self.sample.duration_ns - 1)

    @property
    def shape(self) -> object:
        """What kernels of one recording have in common that differ in nothing the model sees."""
        kernel = self.sample.kernel
        return self.sample.file, kernel.op, kernel.blocks, kernel.inputs, kernel.outputs


FAMILIES: tuple[Family, ...] = (fit_cube, fit_attention, fit_vector, fit_aicpu)


def main() -> None:
    """Read the arguments, fit, and print."""
    parser = arguments(__doc__, device=False)
    parser.add_argument("--data", type=Path, required=True, help="folder with recordings that name shapes")
    parser.add_argument("--write", action="store_true", help="print the constants as lines of device files")
    options = parser.parse_args()
    with progress(6) as begin:
        begin("all recordings")
        samples = load_samples(options.data)
        fitted = {family.NAME: family.fit(samples) for family in FAMILIES}
        if options.write:
            write(fitted.values())
            return
        seen = price(fitted, samples)
        begin("one recording left out")
        unseen = left_out(samples, lambda sample: sample.file)
        begin("one recording and its operators left out")
        unseen_operators = left_out(samples, lambda sample: sample.file, operators_too=True)
        begin("one chip left out")
        unseen_chip = left_out(samples, lambda sample: sample.chip)
        begin("a fifth of the shapes left out")
        unseen_shapes = left_out(samples, fold_of(samples))
    constants = [row for one in fitted.values() for row in one.rows()]
    tables = {
        "one recording left out": summary(unseen),
        "one recording and its operators left out": summary(unseen_operators, by_op=False),
        "one chip left out": summary(unseen_chip, by_op=False),
        "a fifth of the shapes left out": summary(unseen_shapes, by_op=False),
        "nothing left out": summary(seen, by_op=False),
    }
    table = products(unseen, seen)
    if options.json:
        errors = {title.replace(" ", "_"): rows for title, rows in tables.items()}
        print_json(constants=constants, **errors, products=table, bandwidths=bandwidths(unseen, seen))
        return
    _print("constants", constants)
    for title, rows in tables.items():
        _print(f"errors, {title}", rows)
    _print("the longest products of matrices", table)
    _print("bandwidth of vector kernels", bandwidths(unseen, seen))


def _print(title: str, rows: Sequence[NamedTuple]) -> None:
    columns = [name.replace("_", " ") for name in rows[0]._fields] if rows else []
    print_table(title, columns, [[_text(value) for value in row] for row in rows])


def left_out(
    samples: Sequence[Sample], part_of: Callable[[Sample], object], *, operators_too: bool = False
) -> list[Priced]:
    """Kernels priced by constants that were fitted without the part they are in.

    Args:
        samples: All kernels.
        part_of: What is left out together.
        operators_too: Also forget how much operators compute that only that part has.
    """
    priced: list[Priced] = []
    for part in dict.fromkeys(map(part_of, samples)):
        known = [sample for sample in samples if part_of(sample) != part]
        elsewhere = {sample.kernel.op for sample in known}
        own = {sample.kernel.op for sample in samples} - elsewhere if operators_too else set()
        with unlearnt(own):
            fitted = {family.NAME: family.fit(known) for family in FAMILIES}
            priced += [one for one in price(fitted, samples) if part_of(one.sample) == part]
    return priced


@contextmanager
def unlearnt(operators: Collection[str]) -> Iterator[None]:
    """Within it, vector operators compute as little as the simplest, in one phase."""
    table = work.FAMILIES
    work.FAMILIES = {
        op: replace(family, cycles=SIMPLE.cycles, phases=SIMPLE.phases) if op in operators else family
        for op, family in table.items()
    }
    try:
        yield
    finally:
        work.FAMILIES = table


def fold_of(samples: Sequence[Sample]) -> Callable[[Sample], int]:
    """Deals the shapes of each recording to :data:`FOLDS` parts, in the order in which they first appear.

    Recordings of one chip that hold the same shapes get them into the same part.
    """
    folds: dict[object, int] = {}
    counts: dict[str, int] = defaultdict(int)
    for sample in samples:
        key = _shape_on_chip(sample)
        if key not in folds:
            folds[key] = counts[sample.chip] % FOLDS
            counts[sample.chip] += 1
    return lambda sample: folds[_shape_on_chip(sample)]


def _shape_on_chip(sample: Sample) -> object:
    return sample.chip, sample.kernel.op, sample.kernel.inputs, sample.kernel.outputs


def price(fitted: dict[str, Fitted], samples: Sequence[Sample]) -> list[Priced]:
    """Every kernel that a family prices."""
    files: dict[str, list[Sample]] = defaultdict(list)
    for sample in samples:
        files[sample.file].append(sample)
    return [
        Priced(sample, name, modelled)
        for inside in files.values()
        for name, one in fitted.items()
        for sample, modelled in zip(inside, one.predict(inside), strict=True)
        if modelled is not None and sample.duration_ns > 0
    ]


def summary(priced: Iterable[Priced], *, by_op: bool = True) -> list[Row]:
    """Errors by family, file and operator."""
    groups: dict[tuple[str, str], list[Priced]] = defaultdict(list)
    for one in priced:
        kernel = one.sample.kernel
        for file in ("all files", one.sample.file):
            groups[file, f"{one.family}, all"].append(one)
            groups[file, "every kernel"].append(one)
        if one.sample.duration_ns > LONG_NS:
            groups["all files", f"{one.family}, over 5 us"].append(one)
            groups[one.sample.file, f"{one.family}, over 5 us"].append(one)
        if by_op:
            groups[one.sample.file, kernel.op].append(one)
    return [_row(file, op, inside) for (file, op), inside in sorted(groups.items())]


def _row(file: str, op: str, inside: Sequence[Priced]) -> Row:
    errors = sorted(one.error for one in inside)
    recorded = sum(one.sample.duration_ns for one in inside)
    total = sum(one.modelled_ns for one in inside) / recorded - 1
    shapes = len({one.shape for one in inside})
    return Row(file, op, len(inside), shapes, median(errors), errors[int(0.9 * (len(errors) - 1))], total)


def products(unseen: Sequence[Priced], seen: Sequence[Priced]) -> list[ProductRow]:
    """The longest products of matrices of each chip: measured, and modelled without and with their file."""
    fitted = _by_shape(seen)
    rows = []
    counts: dict[str, int] = defaultdict(int)
    for shape, inside in sorted(_by_shape(unseen).items(), key=lambda item: -_measured(item[1])):
        sample = inside[0].sample
        product = product_of(sample.kernel)
        if product is None or counts[sample.chip] == LARGEST:
            continue
        counts[sample.chip] += 1
        measured, device = _measured(inside), load_device(sample.chip)
        flops = 2 * product.batch * product.rows * product.columns * product.depth
        peak = device.pools["aic"] * device.classes["cube"].flops_per_cycle["float16"] * device.clock_hz / 1e9
        batch = f"{product.batch} x " if product.batch > 1 else ""
        modelled = fitted[shape][0].modelled_ns
        rows.append(
            ProductRow(
                sample.chip,
                sample.kernel.op,
                f"{batch}{product.rows} x {product.depth} x {product.columns}",
                product.dtype,
                measured / 1000,
                inside[0].modelled_ns / 1000,
                modelled / 1000,
                flops / measured / peak,
                flops / modelled / peak,
            )
        )
    return sorted(rows, key=lambda row: row.chip)


def _by_shape(priced: Iterable[Priced]) -> dict[object, list[Priced]]:
    groups: dict[object, list[Priced]] = defaultdict(list)
    for one in priced:
        if one.sample.kernel.op in MATMUL_LIKE:
            groups[one.shape].append(one)
    return groups


def _measured(inside: Sequence[Priced]) -> float:
    return median(one.sample.duration_ns for one in inside)


def write(fitted: Iterable[Fitted]) -> None:
    """Print the constants as lines of device files, chip by chip."""
    for one in fitted:
        for row in one.rows():
            source, _, note = row.source.partition(": ")
            print(
                f"{row.chip}: {row.key} = {{ value = {row.value:g}, "
                f'unit = "{row.unit}", source = "{source}", note = "{note}" }}'
            )


def _text(value: object) -> str:
    return number(value) if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main()
