"""Descriptions of models: inputs, outputs, and the sizes they may have."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cann_env.acl import codes
from cann_env.acl.api import call, getter, site
from cann_env.acl.calls.mdl_load import Loaded, loaded, read_file
from cann_env.acl.calls.mdl_model import CHOICE, Model
from cann_env.acl.calls.mdl_types import TYPES, Tensor, thing, whole
from cann_env.acl.codes import Refused
from cann_env.units import InputError
from cann_env.workloads.onnx_model import parse_model, read_model

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cann_env.acl.state.simulator import Simulator


@dataclass(slots=True, eq=False)
class Desc:
    """A description: of a model, once it was filled; of a loaded one if it was filled by its handle."""

    model: Model | None = None
    loaded: Loaded | None = None


@getter()
def create_desc(run: Simulator) -> int:
    """An empty description."""
    handle = run.new_handle()
    run.things[handle] = Desc()
    return handle


@call(initialised=False)
def destroy_desc(run: Simulator, model_desc: int) -> None:
    """Forget a description; the model stays."""
    thing(run, model_desc, Desc, "model description")
    run.bury(model_desc, "model description", site())
    del run.things[model_desc]


@call()
def get_desc(run: Simulator, model_desc: int, model_id: int) -> None:
    """Fill a description with what there is to know of a loaded model."""
    desc = thing(run, model_desc, Desc, "model description")
    desc.loaded = loaded(run, model_id)
    desc.model = desc.loaded.model


@call()
def get_desc_from_file(run: Simulator, model_desc: int, model_path: str) -> None:
    """Fill a description from a file that is not loaded."""
    desc = thing(run, model_desc, Desc, "model description")
    file, name = read_file(model_path)
    desc.model, desc.loaded = _read(run, read_model, file, name), None


@call()
def get_desc_from_mem(run: Simulator, model_desc: int, model: int, model_size: int) -> None:
    """Fill a description from a model in host memory."""
    desc = thing(run, model_desc, Desc, "model description")
    data = run.memory.host_range(model, whole(model_size, "model_size", 1), "model").view().tobytes()

    def parse(folder: Path) -> Any:
        return parse_model(data, "what lies in memory", folder)

    desc.model, desc.loaded = _read(run, parse, Path.cwd(), "model"), None


def _read(run: Simulator, reader: Any, path: Path, name: str) -> Model:
    try:
        return Model(name, reader(path), run.spec)
    except InputError as error:
        raise Refused(codes.PARSE_MODEL, str(error)) from error


def model_of(run: Simulator, model_desc: object) -> Model:
    """The model that a description was filled with.

    Raises:
        Refused: There is no such description, or it is empty.
    """
    desc = thing(run, model_desc, Desc, "model description")
    if desc.model is None:
        raise Refused(codes.INVALID_PARAM, f"model description {model_desc} is empty; call get_desc first")
    model: Model = desc.model
    return model


def inputs_of(model: Model) -> tuple[Tensor, ...]:
    """All inputs of a model, the one through which sizes are chosen last."""
    if not model.gears:
        return model.inputs
    choices = sum(size == -1 for tensor in model.inputs for size in tensor.shape)
    lengths = {"dynamic_batch_size": 1, "dynamic_image_size": 2}
    shape = (lengths.get(model.option, _all_sizes(model) if choices else 1),)
    return (*model.inputs, Tensor(CHOICE, "int32", shape))


def _all_sizes(model: Model) -> int:
    return sum(len(tensor.shape) for tensor in model.inputs)


def input_size(model: Model, index: int) -> int:
    """Bytes of an input at its fixed or largest size."""
    tensor = inputs_of(model)[index]
    shape = tensor.shape
    if index < len(model.inputs):
        gears = [model.at(gear)[index] for gear in model.gears] or [model.default[index]]
        shape = max(gears, key=math.prod)
    return tensor.bytes_at(shape)


def output_size(model: Model, index: int) -> int:
    """Bytes of an output at its fixed or largest size."""
    tensor = model.outputs[index]
    gears = [model.plan(model.at(gear)).outputs[index] for gear in model.gears] or [tensor.shape]
    return max(tensor.bytes_at(shape) for shape in gears)


def _at(things: Sequence[Any], index: object, what: str) -> int:
    place = whole(index, "index")
    if place >= len(things):
        raise Refused(codes.INVALID_PARAM, f"index is {place}; the model has {len(things)} {what}, from 0")
    return place


@getter()
def get_num_inputs(run: Simulator, model_desc: int) -> int:
    """Inputs of a model, the one through which sizes are chosen included."""
    return len(inputs_of(model_of(run, model_desc)))


@getter()
def get_num_outputs(run: Simulator, model_desc: int) -> int:
    """Outputs of a model."""
    return len(model_of(run, model_desc).outputs)


@getter()
def get_input_size_by_index(run: Simulator, model_desc: int, index: int) -> int:
    """Bytes of an input; at its largest where its size is chosen."""
    model = model_of(run, model_desc)
    return input_size(model, _at(inputs_of(model), index, "inputs"))


@getter()
def get_output_size_by_index(run: Simulator, model_desc: int, index: int) -> int:
    """Bytes of an output; at its largest where its size is chosen."""
    model = model_of(run, model_desc)
    return output_size(model, _at(model.outputs, index, "outputs"))


def _dims(name: str, shape: Sequence[int]) -> dict[str, object]:
    return {"name": name, "dimCount": len(shape), "dims": list(shape)}


@call(1, initialised=False, failed={})
def get_input_dims(run: Simulator, model_desc: int, index: int) -> dict[str, object]:
    """Name and shape of an input; -1 for sizes that are chosen."""
    inputs = inputs_of(model_of(run, model_desc))
    tensor = inputs[_at(inputs, index, "inputs")]
    return _dims(tensor.name, tensor.shape)


get_input_dims_v2 = get_input_dims


@call(1, initialised=False, failed={})
def get_output_dims(run: Simulator, model_desc: int, index: int) -> dict[str, object]:
    """Name and shape of an output; its largest where sizes are chosen."""
    model = model_of(run, model_desc)
    place = _at(model.outputs, index, "outputs")
    return _dims(output_name(model, place), model.outputs[place].shape)


@call(1, initialised=False, failed={})
def get_cur_output_dims(run: Simulator, model_desc: int, index: int) -> dict[str, object]:
    """Name and shape of an output at the sizes that were chosen last; its largest before that."""
    model = model_of(run, model_desc)
    place = _at(model.outputs, index, "outputs")
    filled = thing(run, model_desc, Desc, "model description").loaded
    shapes = model.default if filled is None else filled.shapes
    return _dims(output_name(model, place), model.plan(shapes).outputs[place])


@call(1, initialised=False, failed={})
def get_input_dims_range(run: Simulator, model_desc: int, index: int) -> dict[str, object]:
    """Least and largest size of each dimension of an input."""
    model = model_of(run, model_desc)
    place = _at(model.inputs, index, "inputs")
    shapes = [model.at(gear)[place] for gear in model.gears] or [model.default[place]]
    return {
        "rangeCount": len(shapes[0]),
        "range": [[min(sizes), max(sizes)] for sizes in zip(*shapes, strict=True)],
    }


def output_name(model: Model, index: int) -> str:
    """Name of an output as a converted model has it: node, place among its outputs, tensor."""
    name = model.outputs[index].name
    for node in model.source.nodes:
        if name in node.outputs:
            return f"{node.name}:{node.outputs.index(name)}:{name}"
    return name


@getter(failed="")
def get_input_name_by_index(run: Simulator, model_desc: int, index: int) -> str:
    """Name of an input."""
    inputs = inputs_of(model_of(run, model_desc))
    return inputs[_at(inputs, index, "inputs")].name


@getter(failed="")
def get_output_name_by_index(run: Simulator, model_desc: int, index: int) -> str:
    """Name of an output, as ``node:place:tensor``."""
    model = model_of(run, model_desc)
    return output_name(model, _at(model.outputs, index, "outputs"))


@call(1, initialised=False, failed=0)
def get_input_index_by_name(run: Simulator, model_desc: int, name: str) -> int:
    """Place of an input; ``ascend_mbatch_shape_data`` is the one through which sizes are chosen."""
    names = [tensor.name for tensor in inputs_of(model_of(run, model_desc))]
    if name not in names:
        raise Refused(
            codes.INVALID_PARAM, f"input {name!r} does not exist; the inputs are {', '.join(names)}"
        )
    return names.index(name)


@call(1, initialised=False, failed=0)
def get_output_index_by_name(run: Simulator, model_desc: int, name: str) -> int:
    """Place of an output, by its whole name or that of its tensor."""
    model = model_of(run, model_desc)
    names = [tensor.name for tensor in model.outputs]
    for place, short in enumerate(names):
        if name in (short, output_name(model, place)):
            return place
    raise Refused(codes.INVALID_PARAM, f"output {name!r} does not exist; the outputs are {', '.join(names)}")


@getter(failed="")
def get_tensor_real_name(run: Simulator, model_desc: int, name: str) -> str:
    """The name itself: none is shortened."""
    model_of(run, model_desc)
    return name


@getter(failed=-1)
def get_input_format(run: Simulator, model_desc: int, index: int) -> int:
    """Layout of an input: NCHW for four dimensions, else ND."""
    inputs = inputs_of(model_of(run, model_desc))
    return inputs[_at(inputs, index, "inputs")].format


@getter(failed=-1)
def get_output_format(run: Simulator, model_desc: int, index: int) -> int:
    """Layout of an output: NCHW for four dimensions, else ND."""
    outputs = model_of(run, model_desc).outputs
    return outputs[_at(outputs, index, "outputs")].format


@getter(failed=-1)
def get_input_data_type(run: Simulator, model_desc: int, index: int) -> int:
    """Type of an input, one of ``ACL_FLOAT`` ...."""
    inputs = inputs_of(model_of(run, model_desc))
    return TYPES[inputs[_at(inputs, index, "inputs")].dtype].number


@getter(failed=-1)
def get_output_data_type(run: Simulator, model_desc: int, index: int) -> int:
    """Type of an output, one of ``ACL_FLOAT`` ...."""
    outputs = model_of(run, model_desc).outputs
    return TYPES[outputs[_at(outputs, index, "outputs")].dtype].number


# Sizes to choose from.


@call(1, initialised=False, failed={})
def get_dynamic_batch(run: Simulator, model_desc: int) -> dict[str, object]:
    """The batch sizes there are to choose from; none if they are not chosen."""
    model = model_of(run, model_desc)
    batches = [gear[0] for gear in model.gears] if model.option == "dynamic_batch_size" else []
    return {"batchCount": len(batches), "batch": batches}


@call(1, initialised=False, failed={})
def get_dynamic_hw(run: Simulator, model_desc: int, index: int = -1) -> dict[str, object]:
    """The heights and widths there are to choose from; none if they are not chosen."""
    del index
    model = model_of(run, model_desc)
    sizes = [list(gear) for gear in model.gears] if model.option == "dynamic_image_size" else []
    return {"hwCount": len(sizes), "hw": sizes}


@call(1, initialised=False, failed=0)
def get_input_dynamic_gear_count(run: Simulator, model_desc: int, index: int = -1) -> int:
    """How many sets of sizes there are to choose from with ``set_input_dynamic_dims``."""
    del index
    model = model_of(run, model_desc)
    return len(model.gears) if model.option == "dynamic_dims" else 0


@call(1, initialised=False, failed=None)
def get_input_dynamic_dims(
    run: Simulator, model_desc: int, index: int, gear_count: int
) -> list[dict[str, object]]:
    """The sets themselves, each with every size of all inputs."""
    del index
    model = model_of(run, model_desc)
    gears = model.gears if model.option == "dynamic_dims" else ()
    if whole(gear_count, "gear_count") > len(gears):
        raise Refused(codes.INVALID_PARAM, f"gear_count is {gear_count}; the model has {len(gears)} sets")
    return [_dims("", [size for shape in model.at(gear) for size in shape]) for gear in gears[:gear_count]]


@call(2, failed=0)
def get_aipp_type(run: Simulator, model_id: int, index: int) -> tuple[int, int]:
    """0: no input is preprocessed by the model."""
    _at(loaded(run, model_id).model.inputs, index, "inputs")
    return 0, 0xFFFF_FFFF


@call(1)
def get_first_aipp_info(run: Simulator, model_id: int, index: int) -> None:
    """Refused: no input is preprocessed by the model."""
    loaded(run, model_id)
    raise Refused(codes.GE_AIPP_NOT_EXIST, f"input {index} of model {model_id} is not preprocessed by it")
