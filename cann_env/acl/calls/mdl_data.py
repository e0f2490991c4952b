"""What models and operators are given: pieces of memory, sets of them, descriptions of tensors."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from cann_env.acl import codes
from cann_env.acl.api import call, getter, site
from cann_env.acl.calls.mdl_types import NAMES, TYPES, thing, whole
from cann_env.acl.codes import Refused
from cann_env.acl.facts import helper

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cann_env.acl.calls.mdl_model import Shapes
    from cann_env.acl.state.simulator import Simulator


@dataclass(slots=True, eq=False)
class DataBuffer:
    """An address and how many bytes are meant; both 0 if the runtime is to take the memory."""

    address: int
    size: int


@dataclass(slots=True, eq=False)
class Dataset:
    """Buffers of all inputs or outputs of a model.

    Attributes:
        buffers: Handles, in order.
        shapes: Shapes that were said for some of them, by index.
        chosen: Sizes of all inputs that were chosen; None if none were.
    """

    buffers: list[int] = field(default_factory=list)
    shapes: dict[int, tuple[int, ...]] = field(default_factory=dict)
    descs: dict[int, int] = field(default_factory=dict)
    chosen: Shapes | None = None


@dataclass(slots=True, eq=False)
class TensorDesc:
    """Type, shape and layout of a tensor; ``constant`` is an address and a size."""

    dtype: int
    shape: tuple[int, ...]
    layout: int
    name: str = ""
    constant: tuple[int, int] | None = None
    notes: dict[str, object] = field(default_factory=dict)


@getter()
def create_data_buffer(run: Simulator, data: int, size: int) -> int:
    """A piece of memory for a dataset or an operator."""
    handle = run.new_handle()
    run.things[handle] = DataBuffer(whole(data, "data"), whole(size, "size"))
    return handle


@call(initialised=False)
def destroy_data_buffer(run: Simulator, data_buffer: int) -> None:
    """Forget a buffer; its memory stays."""
    thing(run, data_buffer, DataBuffer, "data buffer")
    run.bury(data_buffer, "data buffer", site())
    del run.things[data_buffer]


@getter()
def get_data_buffer_addr(run: Simulator, data_buffer: int) -> int:
    """Address of a buffer."""
    return int(thing(run, data_buffer, DataBuffer, "data buffer").address)


@getter()
def get_data_buffer_size(run: Simulator, data_buffer: int) -> int:
    """Bytes of a buffer."""
    return int(thing(run, data_buffer, DataBuffer, "data buffer").size)


get_data_buffer_size_v2 = get_data_buffer_size


@call(initialised=False)
def update_data_buffer(run: Simulator, data_buffer: int, data: int, size: int) -> None:
    """Let a buffer mean other memory."""
    found = thing(run, data_buffer, DataBuffer, "data buffer")
    found.address, found.size = whole(data, "data"), whole(size, "size")


@getter()
def create_dataset(run: Simulator) -> int:
    """An empty dataset."""
    handle = run.new_handle()
    run.things[handle] = Dataset()
    return handle


@call(initialised=False)
def destroy_dataset(run: Simulator, dataset: int) -> None:
    """Forget a dataset; its buffers stay."""
    thing(run, dataset, Dataset, "dataset")
    run.bury(dataset, "dataset", site())
    del run.things[dataset]


@call(1, initialised=False)
def add_dataset_buffer(run: Simulator, dataset: int, data_buffer: int) -> int:
    """Put a buffer at the end of a dataset, which is given back."""
    found = thing(run, dataset, Dataset, "dataset")
    thing(run, data_buffer, DataBuffer, "data buffer")
    found.buffers.append(data_buffer)
    return dataset


@getter()
def get_dataset_num_buffers(run: Simulator, dataset: int) -> int:
    """Buffers of a dataset."""
    return len(thing(run, dataset, Dataset, "dataset").buffers)


@getter()
def get_dataset_buffer(run: Simulator, dataset: int, index: int) -> int:
    """A buffer of a dataset; 0 if it has none at that place."""
    found = thing(run, dataset, Dataset, "dataset")
    return int(found.buffers[_place(index, len(found.buffers), "buffers")])


@call(1, initialised=False)
def set_dataset_tensor_desc(run: Simulator, dataset: int, tensor_desc: int, index: int) -> int:
    """Say the shape of an input for the executions to come; type and layout are not used."""
    found = thing(run, dataset, Dataset, "dataset")
    desc = thing(run, tensor_desc, TensorDesc, "tensor description")
    place = _place(index, len(found.buffers), "buffers")
    found.shapes[place], found.descs[place] = desc.shape, tensor_desc
    return dataset


@getter()
def get_dataset_tensor_desc(run: Simulator, dataset: int, index: int) -> int:
    """The description that was set for a buffer of a dataset; 0 if none was."""
    return int(thing(run, dataset, Dataset, "dataset").descs.get(index, 0))


def _place(index: object, count: int, what: str) -> int:
    place = whole(index, "index")
    if place >= count:
        raise Refused(codes.INVALID_PARAM, f"index is {place}; there are {count} {what}, from 0")
    return place


# Descriptions of tensors.


@getter()
def create_tensor_desc(run: Simulator, data_type: int, dims: Sequence[int], format: int) -> int:
    """A description of a tensor."""
    desc = TensorDesc(_type(data_type), _shape(dims), format)
    handle = run.new_handle()
    run.things[handle] = desc
    return handle


@getter(failed=None)
def destroy_tensor_desc(run: Simulator, desc: int) -> None:
    """Forget a description."""
    thing(run, desc, TensorDesc, "tensor description")
    run.bury(desc, "tensor description", site())
    del run.things[desc]


def describes(run: Simulator, desc: object) -> TensorDesc:
    """A description by handle."""
    found: TensorDesc = thing(run, desc, TensorDesc, "tensor description")
    return found


@getter(failed=-1)
def get_tensor_desc_type(run: Simulator, desc: int) -> int:
    """Type of a tensor, one of ``ACL_FLOAT`` ...; -1 if unknown."""
    return describes(run, desc).dtype


@getter(failed=-1)
def get_tensor_desc_format(run: Simulator, desc: int) -> int:
    """Layout of a tensor, one of ``ACL_FORMAT_...``; -1 if unknown."""
    return describes(run, desc).layout


@getter()
def get_tensor_desc_size(run: Simulator, desc: int) -> int:
    """Bytes of a tensor; 0 if a size is not fixed."""
    found = describes(run, desc)
    return _count(found) * size_of_type(found.dtype)


@getter()
def get_tensor_desc_element_count(run: Simulator, desc: int) -> int:
    """Elements of a tensor; 0 if a size is not fixed."""
    return _count(describes(run, desc))


@getter()
def get_tensor_desc_num_dims(run: Simulator, desc: int) -> int:
    """Dimensions of a tensor."""
    return len(describes(run, desc).shape)


@getter(failed=-1)
def get_tensor_desc_dim(run: Simulator, desc: int, index: int) -> int:
    """Size of a dimension; -1 if there is no such."""
    shape = describes(run, desc).shape
    return shape[_place(index, len(shape), "dimensions")]


@call(1, initialised=False, failed=0)
def get_tensor_desc_dim_v2(run: Simulator, desc: int, index: int) -> int:
    """Size of a dimension."""
    shape = describes(run, desc).shape
    return shape[_place(index, len(shape), "dimensions")]


@getter(failed="")
def get_tensor_desc_name(run: Simulator, desc: int) -> str:
    """Name of a tensor."""
    return describes(run, desc).name


@getter(failed=None)
def set_tensor_desc_name(run: Simulator, desc: int, name: str) -> None:
    """Name a tensor."""
    describes(run, desc).name = str(name)


@call(initialised=False)
def set_tensor_shape(run: Simulator, desc: int, dims: Sequence[int]) -> None:
    """Change the shape of a tensor."""
    describes(run, desc).shape = _shape(dims)


@call(initialised=False)
def set_tensor_format(run: Simulator, desc: int, format: int) -> None:
    """Change the layout of a tensor; kept, nothing depends on it."""
    describes(run, desc).layout = format


@call(initialised=False)
def set_tensor_const(run: Simulator, desc: int, data: int, size: int) -> None:
    """Say that a tensor is constant."""
    describes(run, desc).constant = whole(data, "data"), whole(size, "size")


@call(initialised=False)
def set_tensor_storage_shape(run: Simulator, desc: int, dims: Sequence[int]) -> None:
    """Kept without effect: tensors are stored as they are."""
    describes(run, desc).notes["storage_shape"] = _shape(dims)


@call(initialised=False)
def set_tensor_storage_format(run: Simulator, desc: int, format: int) -> None:
    """Kept without effect: tensors are stored as they are."""
    describes(run, desc).notes["storage_format"] = format


set_tensor_origin_shape, set_tensor_origin_format = set_tensor_storage_shape, set_tensor_storage_format


@call(initialised=False)
def set_tensor_place_ment(run: Simulator, desc: int, mem_type: int) -> None:
    """Kept without effect: where a tensor lies is told by its address."""
    describes(run, desc).notes["place"] = mem_type


@call(initialised=False)
def set_tensor_shape_range(run: Simulator, desc: int, dims_range: Sequence[Sequence[int]]) -> None:
    """Kept without effect: shapes are checked when a model is executed."""
    describes(run, desc).notes["range"] = [list(row) for row in dims_range]


@getter()
def data_type_size(run: Simulator, data_type: int) -> int:
    """Bytes of a number of a type; 0 for one that is unknown."""
    del run
    return size_of_type(_type(data_type))


def size_of_type(number: int) -> int:
    """Bytes of a number of a type, by its number."""
    return TYPES[NAMES[number]].held.itemsize if number in NAMES else 0


@helper("aclFloat16ToFloat")
def float16_to_float(value: int) -> float:
    """The number whose bits as float16 are these."""
    return float(np.array(value, np.uint16).view(np.float16))


@helper("aclFloatToFloat16")
def float_to_float16(value: float) -> int:
    """The bits of a number as float16."""
    return int(np.array(value, np.float16).view(np.uint16))


def _count(desc: TensorDesc) -> int:
    return 0 if any(size < 0 for size in desc.shape) else math.prod(desc.shape)


def _type(number: object) -> int:
    if not isinstance(number, int) or (number not in NAMES and number != -1):
        known = ", ".join(f"{key} {name}" for key, name in sorted(NAMES.items()))
        raise Refused(codes.INVALID_PARAM, f"data type is {number!r}; the types are {known}")
    return number


def _shape(dims: object) -> tuple[int, ...]:
    if not isinstance(dims, (list, tuple)) or not all(isinstance(size, (int, np.integer)) for size in dims):
        raise Refused(codes.INVALID_PARAM, f"dims is {dims!r}; pass a list of whole numbers")
    return tuple(int(size) for size in dims)
