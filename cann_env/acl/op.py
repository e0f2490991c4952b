"""``acl.op``: single operators.

Elementwise operators, casts, products of matrices and the largest along an axis are computed; others run if
the program says what they cost and do, with ``define_kernel`` under the name of the operator.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from cann_env.acl import codes
from cann_env.acl.api import call, getter, site
from cann_env.acl.calls.mdl_data import DataBuffer, TensorDesc, describes
from cann_env.acl.calls.mdl_types import NAMES, TYPES, thing
from cann_env.acl.calls.op_table import OPERATORS
from cann_env.acl.calls.refused import refused
from cann_env.acl.calls.rt_kernel import launch
from cann_env.acl.codes import Refused
from cann_env.acl.state.kernels import KERNELS, KernelModel
from cann_env.device.cost import cores_of_class
from cann_env.graph import Kernel, KernelClass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cann_env.acl.state.simulator import Simulator

_TILE = 8192
"""Elements of a block of a vector kernel: 16 KiB of float16."""


@dataclass(slots=True, eq=False)
class Attributes:
    """Attributes of an operator, by name."""

    values: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Operator:
    """An operator that was looked up: type, descriptions of inputs and outputs, attributes."""

    kind: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    attributes: int


@call()
def set_model_dir(run: Simulator, model_dir: str) -> None:
    """Accepted without effect: operators are looked up by name."""
    del run, model_dir


@call()
def load(run: Simulator, model: int, model_size: int) -> None:
    """Accepted without effect: operators are looked up by name."""
    del run, model, model_size


@call()
def set_max_op_queue_num(run: Simulator, num: int) -> None:
    """Accepted without effect."""
    del run, num


@getter()
def create_attr(run: Simulator) -> int:
    """Empty attributes."""
    handle = run.new_handle()
    run.things[handle] = Attributes()
    return handle


@getter(failed=None)
def destroy_attr(run: Simulator, attr: int) -> None:
    """Forget attributes."""
    thing(run, attr, Attributes, "attributes")
    run.bury(attr, "attributes", site())
    del run.things[attr]


@call(initialised=False)
def set_attr_int(run: Simulator, attr: int, attr_name: str, attr_value: Any) -> None:
    """Set an attribute."""
    thing(run, attr, Attributes, "attributes").values[str(attr_name)] = attr_value


set_attr_bool = set_attr_float = set_attr_string = set_attr_data_type = set_attr_int
set_attr_list_bool = set_attr_list_int = set_attr_list_float = set_attr_list_string = set_attr_int
set_attr_list_list_int = set_attr_list_data_type = set_attr_int


@call(1, failed=0)
def create_handle(
    run: Simulator, op_type: str, input_desc: Sequence[int], output_desc: Sequence[int], op_attr: int
) -> int:
    """Look an operator up once, to be executed many times."""
    _check(op_type)
    handle = run.new_handle()
    run.things[handle] = Operator(op_type, tuple(input_desc), tuple(output_desc), op_attr)
    return handle


@call(1, failed=0)
def create_handle_for_cast(run: Simulator, src_desc: int, dst_desc: int, truncate: int) -> int:
    """The same for a cast."""
    del truncate
    handle = run.new_handle()
    run.things[handle] = Operator("Cast", (src_desc,), (dst_desc,), 0)
    return handle


@getter(failed=None)
def destroy_handle(run: Simulator, handle: int) -> None:
    """Forget an operator that was looked up."""
    thing(run, handle, Operator, "operator")
    run.bury(handle, "operator", site())
    del run.things[handle]


@call()
def execute_with_handle(
    run: Simulator, handle: int, inputs: Sequence[int], outputs: Sequence[int], stream: int
) -> None:
    """Run an operator that was looked up, in the order of a stream."""
    found: Operator = thing(run, handle, Operator, "operator")
    _run(run, found.kind, found.inputs, inputs, found.outputs, outputs, found.attributes, stream)


@call()
def execute(
    run: Simulator,
    op_type: str,
    input_desc: Sequence[int],
    inputs: Sequence[int],
    output_desc: Sequence[int],
    outputs: Sequence[int],
    attr: int,
    stream: int,
) -> None:
    """Run an operator in the order of a stream."""
    _run(run, op_type, input_desc, inputs, output_desc, outputs, attr, stream)


execute_v2 = execute


@call()
def compile_and_execute(
    run: Simulator,
    op_type: str,
    input_desc: Sequence[int],
    inputs: Sequence[int],
    output_desc: Sequence[int],
    outputs: Sequence[int],
    attr: int,
    engine_type: int,
    compile_flag: int,
    op_path: str,
    stream: int,
) -> None:
    """The same as :func:`execute`: nothing is compiled."""
    del engine_type, compile_flag, op_path
    _run(run, op_type, input_desc, inputs, output_desc, outputs, attr, stream)


@call()
def cast(
    run: Simulator, src_desc: int, src_buffer: int, dst_desc: int, dst_buffer: int, truncate: int, stream: int
) -> None:
    """Change the type of numbers, in the order of a stream."""
    del truncate
    _run(run, "Cast", [src_desc], [src_buffer], [dst_desc], [dst_buffer], 0, stream)


def _check(op_type: object) -> None:
    if not isinstance(op_type, str) or (KERNELS.find(op_type) is None and op_type not in OPERATORS):
        known = ", ".join(sorted({*OPERATORS, *KERNELS.names()}))
        raise Refused(
            codes.RT_FEATURE_NOT_SUPPORT,
            f"operator {op_type!r} is not simulated; say what it costs and does with define_kernel (known: "
            f"{known})",
        )


def _run(
    run: Simulator,
    op_type: str,
    input_desc: Sequence[int],
    inputs: Sequence[int],
    output_desc: Sequence[int],
    outputs: Sequence[int],
    attr: int,
    stream: int,
) -> None:
    where = run.stream(stream)
    _check(op_type)
    if len(input_desc) != len(inputs) or len(output_desc) != len(outputs):
        raise Refused(
            codes.INVALID_PARAM,
            f"operator {op_type!r} got {len(input_desc)} descriptions for {len(inputs)} inputs and "
            f"{len(output_desc)} for {len(outputs)} outputs",
        )
    descs = [describes(run, desc) for desc in (*input_desc, *output_desc)]
    places = [_place(run, buffer, desc) for buffer, desc in zip((*inputs, *outputs), descs, strict=True)]
    attributes = dict(thing(run, attr, Attributes, "attributes").values) if attr else {}
    model = KERNELS.find(op_type) or _model(op_type, descs, len(inputs), attributes)
    most = max(math.prod(desc.shape) for desc in descs)
    cores = max(cores_of_class(run.spec, model.kernel_class), 1)
    launch(run, model, min(-(-most // _TILE), cores), places, where, site())


def _place(run: Simulator, buffer: int, desc: TensorDesc) -> tuple[int, int]:
    found: DataBuffer = thing(run, buffer, DataBuffer, "data buffer")
    need = math.prod(desc.shape) * TYPES[NAMES[desc.dtype]].held.itemsize
    if found.size < need:
        raise Refused(
            codes.INVALID_PARAM,
            f"data buffer {buffer} has {found.size} bytes; {NAMES[desc.dtype]} {list(desc.shape)} takes "
            f"{need}",
        )
    return found.address, need


def _model(op_type: str, descs: Sequence[TensorDesc], inputs: int, attributes: dict[str, Any]) -> KernelModel:
    """What an operator of the table costs and does, at these shapes."""
    operator = OPERATORS[op_type]
    types = [TYPES[NAMES[desc.dtype]].held for desc in descs]
    shapes = [desc.shape for desc in descs]

    def function(*data: np.ndarray[Any, Any]) -> None:
        arrays = [
            part.view(np.uint8)[: math.prod(shape) * kind.itemsize].view(kind).reshape(shape)
            for part, shape, kind in zip(data, shapes, types, strict=True)
        ]
        results = operator.function(arrays[:inputs], attributes)
        for target, value in zip(arrays[inputs:], results, strict=True):
            target[...] = np.asarray(value).reshape(target.shape)

    sizes = [math.prod(shape) * kind.itemsize for shape, kind in zip(shapes, types, strict=True)]
    kernel = Kernel(
        name=op_type,
        kernel_class=KernelClass.CUBE if operator.cube else KernelClass.VECTOR,
        flops=operator.flops(shapes[:inputs], shapes[inputs:]),
        dtype=_arithmetic(NAMES[descs[0].dtype], cube=operator.cube),
        bytes_read=sum(sizes[:inputs]),
        bytes_written=sum(sizes[inputs:]),
    )
    return KernelModel(
        name=op_type,
        reads=tuple(range(inputs)),
        writes=tuple(range(inputs, len(descs))),
        kernel_class=kernel.kernel_class,
        dtype="uint8",
        exact=kernel,
        function=function,
    )


def _arithmetic(dtype: str, *, cube: bool) -> str:
    """The type at whose rate numbers are computed."""
    rates = ("float16", "bfloat16", "float32", "int8")
    return dtype if dtype in (rates if cube else (*rates, "int16", "int32", "int64", "bool")) else "float32"


def __getattr__(name: str) -> Any:
    return refused("acl.op", name, "operators are run with execute_v2, by name")
