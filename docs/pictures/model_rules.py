"""What the examples of docs/model share: the device of round numbers, and rules computed by hand."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memory_host import Host, span

from cann_env.device.load import load_device
from cann_env.device.spec import LinkSpec
from cann_env.graph import (
    Buffer,
    BufferKind,
    Command,
    CommandGraph,
    CommandKind,
    CopyKind,
    Kernel,
    KernelClass,
    Level,
)
from cann_env.units import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cann_env.schedule import Schedule

ROUND = load_device(Path(__file__).resolve().parent / "round.toml")
TWO_DIES = replace(
    ROUND,
    dies=2,
    links={
        **ROUND.links,
        "die": LinkSpec(bandwidth_bytes_per_s=10**9, efficiency=1.0, latency_ns=5, shares_hbm=True),
    },
)


@dataclass(frozen=True, slots=True)
class Hand:
    """One number of an example, computed by hand.

    Attributes:
        what: What it is, in words.
        formula: Sums, products and quotients of numbers that stand in the device file or in the graph (ns).
        measured: The same, read off the schedule that the engine made.
    """

    what: str
    formula: str
    measured: Callable[[Schedule], int]


@dataclass(frozen=True, slots=True)
class Example:
    """A rule: a tiny graph that shows it, and what it has to come to.

    Attributes:
        name: Of the picture.
        play: Makes the schedule.
        hand: Its numbers.
    """

    name: str
    play: Callable[[], Schedule]
    hand: tuple[Hand, ...]


def value_of(formula: str) -> Fraction:
    """What a formula of whole numbers comes to, exactly.

    Raises:
        InputError: It is no formula of whole numbers with ``+ - * /`` and brackets.
    """
    if not set(formula) <= set("0123456789+-*/() "):
        raise InputError(
            f"formula {formula!r} is no sum of whole numbers; write it with + - * / and brackets"
        )
    exact = "".join(f"F({part})" if part.isdigit() else part for part in _parts(formula))
    return Fraction(eval(exact, {"__builtins__": {}, "F": Fraction}))


def _parts(formula: str) -> Iterator[str]:
    number = ""
    for letter in formula + " ":
        if letter.isdigit():
            number += letter
            continue
        if number:
            yield number
        number = ""
        yield letter


def lines(example: Example) -> Iterator[str]:
    """The numbers of an example as the page has them, the formula and what the engine says.

    Raises:
        InputError: The engine disagrees with the formula.
    """
    schedule = example.play()
    for hand in example.hand:
        by_hand, found = value_of(hand.formula), hand.measured(schedule)
        if by_hand != found:
            raise InputError(
                f"example {example.name!r}: {hand.what}: {hand.formula} = {by_hand}, the engine says {found}"
            )
        shown = hand.formula.replace("*", "\N{MULTIPLICATION SIGN}")
        yield f"{hand.what}: {shown} = {found} ns" if shown != str(found) else f"{hand.what}: {found} ns"


def starts(name: str) -> Callable[[Schedule], int]:
    """When a command starts."""
    return lambda schedule: span(schedule, name)[0]


def ends(name: str) -> Callable[[Schedule], int]:
    """When a command has finished."""
    return lambda schedule: span(schedule, name)[1]


def makespan(schedule: Schedule) -> int:
    """When all is done."""
    return schedule.makespan_ns


# --- words for graphs ---------------------------------------------------------------------------------


def work(
    name: str, flops: int = 100, *, blocks: int = 1, cores: KernelClass = KernelClass.VECTOR, **fields: Any
) -> Kernel:
    """A kernel whose blocks compute for so many nanoseconds each."""
    return Kernel(name=name, kernel_class=cores, blocks=blocks, flops=flops * blocks, **fields)


def run(name: str, *kernels: Kernel, **fields: Any) -> Command:
    """A command of one or more kernels; of one block of 100 ns on a vector core if none is given."""
    return Command(name=name, kind=CommandKind.KERNEL, kernels=kernels or (work(name),), **fields)


def copy(name: str, size: int, direction: CopyKind = CopyKind.H2D, **fields: Any) -> Command:
    """A copy between host and device."""
    return Command(name=name, kind=CommandKind.COPY, copy=direction, size_bytes=size, **fields)


def host_function(name: str, duration_ns: int, **fields: Any) -> Command:
    """A callback."""
    return Command(name=name, kind=CommandKind.CALLBACK, duration_ns=duration_ns, **fields)


def collective(name: str, duration_ns: int, **fields: Any) -> Command:
    """A collective operation."""
    return Command(name=name, kind=CommandKind.COLLECTIVE, duration_ns=duration_ns, **fields)


def weights(name: str, size: int = 400) -> Buffer:
    """Managed memory that lies on the host."""
    return Buffer(name=name, size_bytes=size, kind=BufferKind.MANAGED, level=Level.HOST)


def output(name: str, size: int) -> Buffer:
    """Device memory that a command writes first."""
    return Buffer(name=name, size_bytes=size)


def host(
    name: str, *commands: Command, buffers: tuple[Buffer, ...] = (), device: Any = ROUND, **options: Any
) -> Host:
    """A host thread with a graph, on the device of round numbers."""
    return Host(CommandGraph(name, commands, buffers), device, **options)
