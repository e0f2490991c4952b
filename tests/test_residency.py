"""What L2 holds when a recorded kernel starts, by hand, and what its time becomes by that."""

from __future__ import annotations

from dataclasses import replace

from cann_env.device import load_device
from cann_env.device.cost import cost_of, minimum_kernel_ns
from cann_env.device.cost_vector import alone_ns, vector_model
from cann_env.device.in_order import in_order_ns
from cann_env.device.products import operand_bytes
from cann_env.device.residency import found_bytes
from cann_env.device.work import work_of
from cann_env.graph import Kernel, KernelClass, Operand


def tensor(*shape: int, dtype: str = "float16") -> Operand:
    return Operand(shape, dtype)


def kernel(op: str, inputs: tuple[Operand, ...], outputs: tuple[Operand, ...], blocks: int = 4) -> Kernel:
    return Kernel(
        name=op, kernel_class=KernelClass.VECTOR, blocks=blocks, op=op, inputs=inputs, outputs=outputs
    )


def test_what_was_written_is_found_while_there_is_room() -> None:
    """L2 of 40 bytes; x, y of 16 bytes each, then z of 24 pushes out x and nothing of y.

    ::

        make x, make y, read x and y: 32 found; make z of 24: 16 + 16 + 24 = 56, so x goes (y was read last);
        read y: 16 found; read x: none.
    """
    x, y, z = tensor(8), tensor(4, dtype="float32"), tensor(6, dtype="float32")
    order = [
        kernel("Fill", (), (x,)), kernel("Fill", (), (y,)), kernel("Mul", (x, y), ()),
        kernel("Fill", (), (z,)), kernel("Relu", (y,), ()), kernel("Relu", (x,), ()),
    ]  # fmt: skip
    assert found_bytes(order, 40) == [0, 0, 32, 0, 16, 0]


def test_the_last_victim_loses_only_a_part() -> None:
    """20 bytes hold 4 of the first 16 after 16 more were written."""
    x, y = tensor(8), tensor(4, dtype="float32")
    order = [kernel("Fill", (), (x,)), kernel("Fill", (), (y,)), kernel("Relu", (x,), ())]
    assert found_bytes(order, 20) == [0, 0, 4]


def test_two_inputs_of_a_kind_are_two_tensors() -> None:
    """One addend was written, the other was not; of two that were, both are found."""
    x = tensor(8)
    make, add = kernel("Fill", (), (x,)), kernel("Add", (x, x), ())
    assert found_bytes([make, add], 100) == [0, 16]
    assert found_bytes([make, make, add], 100) == [0, 0, 32]


def test_a_tensor_that_was_read_keeps_its_shape() -> None:
    """It may be read in another shape the first time, for it may be a view; after that it is known."""
    make = kernel("Fill", (), (tensor(4, 2),))
    order = [make, *(kernel("Relu", (tensor(*shape),), ()) for shape in ((8,), (8,), (2, 4)))]
    assert found_bytes(order, 100) == [0, 16, 16, 0]


def test_of_what_is_larger_than_l2_its_size_stays() -> None:
    order = [kernel("Fill", (), (tensor(100),)), kernel("Relu", (tensor(100),), ())]
    assert found_bytes(order, 60) == [0, 60]
    assert found_bytes(order, 0) == [0, 0]


def test_a_kernel_that_uses_up_l2_itself_finds_less() -> None:
    """L2 of 40 bytes, x of 16 in it: 200 bytes touched are five times that, 16 x (2 - 5 / 4) = 12 found."""
    x, wide = tensor(8), tensor(92)
    order = [kernel("Fill", (), (x,)), kernel("Mul", (x,), (wide,)), kernel("Fill", (), (x,))]
    assert found_bytes([*order[:1], kernel("Mul", (x,), (tensor(8),))], 40) == [0, 16]
    assert found_bytes(order, 40) == [0, 12, 0]
    assert found_bytes([*order[:1], kernel("Mul", (x,), (tensor(500),))], 40) == [0, 0]


# --- in a known order ---------------------------------------------------------------------------------


def test_in_a_known_order_l2_is_as_it_leaves_it() -> None:
    """The second addition finds what the first wrote; what was measured stands; others have own models."""
    device = load_device("ascend910b4")
    x = tensor(1 << 20, dtype="float32")
    add = kernel("Add", (x, x), (x,), 40)
    times_ns = in_order_ns(device, [add, add, replace(add, duration_ns=5), replace(add, op="")])
    model = vector_model(device)
    assert model is not None
    assert times_ns[0] == alone_ns(model, work_of(add), 40)
    assert times_ns[1] == alone_ns(model, work_of(add), 40, operand_bytes(x)) < times_ns[0]
    assert times_ns[2] == 5
    plain = cost_of(device, "vector", replace(add, op=""))
    assert times_ns[3] == minimum_kernel_ns(device, "vector", plain, 40)
