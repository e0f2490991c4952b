"""Modelled kernels of a replay last what the cost model says of them in the recorded order."""

from __future__ import annotations

from dataclasses import replace

from cann_env.commands import Command, CommandKind, Kernel, KernelClass, Operand
from cann_env.device import load_device
from cann_env.device.in_order import in_order_ns
from cann_env.replay.prices import priced_in_order

DEVICE = load_device("ascend910b4")
WIDE = Operand((1 << 20,), "float32")
ADD = Kernel(
    name="add",
    kernel_class=KernelClass.VECTOR,
    blocks=40,
    op="Add",
    inputs=(WIDE, Operand((1,), "float32")),
    outputs=(WIDE,),
)


def runs(name: str, *kernels: Kernel) -> Command:
    return Command(name=name, kind=CommandKind.KERNEL, kernels=kernels)


def test_the_order_of_starts_decides_who_finds_what() -> None:
    """The command that is listed first starts last, so it finds what the other one wrote."""
    late, early = priced_in_order([runs("late", ADD), runs("early", ADD)], [900, 100], DEVICE)
    first, second = in_order_ns(DEVICE, [ADD, ADD])
    assert (early.kernels[0].duration_ns, late.kernels[0].duration_ns) == (first, second)
    assert second < first
    assert (late.name, early.name) == ("late", "early")


def test_kernels_of_one_command_run_one_after_another() -> None:
    made = priced_in_order([runs("two", ADD, ADD)], [0], DEVICE)
    assert [kernel.duration_ns for kernel in made[0].kernels] == in_order_ns(DEVICE, [ADD, ADD])


def test_what_is_recorded_stays_as_it_is() -> None:
    """Kernels with a duration, though it is modelled shorter, and whatever is no kernel."""
    measured = runs("measured", replace(ADD, duration_ns=7))
    waits = Command(name="peer", kind=CommandKind.COLLECTIVE, duration_ns=9)
    made = priced_in_order([measured, waits], [0, 1], DEVICE)
    assert made[0] is measured
    assert made[1] is waits


def test_an_output_without_type_is_of_the_type_it_is_read_as() -> None:
    """What a Cast wrote is read as float16 by the next kernel, which finds it in L2 by that."""
    half = Operand((1 << 20,), "float16")
    cast = replace(ADD, op="Cast", inputs=(WIDE,), outputs=(replace(half, dtype=""),))
    relu = replace(ADD, op="Relu", inputs=(half,), outputs=(half,))
    typed = replace(cast, outputs=(half,))
    assert in_order_ns(DEVICE, [cast, relu]) == in_order_ns(DEVICE, [typed, relu])
    assert in_order_ns(DEVICE, [cast, relu])[1] < in_order_ns(DEVICE, [relu])[0]
