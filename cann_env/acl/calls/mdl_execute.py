"""Executions of models: the whole graph is one submission, its kernels follow each other on one stream.

CANN's default is one stream for each engine, and all kernels of a model are of one engine: those of an
asynchronous execution are in the order of the stream that is given, those of a synchronous one on a stream of
the model's own. Executions of one model never overlap, whatever their streams.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from cann_env.acl import codes
from cann_env.acl.api import call, getter, site
from cann_env.acl.calls.mdl_data import DataBuffer, Dataset
from cann_env.acl.calls.mdl_desc import inputs_of
from cann_env.acl.calls.mdl_load import loaded, part_of
from cann_env.acl.calls.mdl_model import refuse_shape, values_of
from cann_env.acl.calls.mdl_types import thing, whole
from cann_env.acl.calls.rt_device import wait_for
from cann_env.acl.calls.rt_memory import pages, take
from cann_env.acl.codes import Refused
from cann_env.acl.state.memory import Range, Space
from cann_env.acl.state.work import Touch
from cann_env.commands import Command, CommandKind, CopyKind
from cann_env.units import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cann_env.acl.calls.mdl_load import Loaded
    from cann_env.acl.calls.mdl_model import Plan, Shapes
    from cann_env.acl.calls.mdl_types import Tensor
    from cann_env.acl.state.objects import Stream
    from cann_env.acl.state.simulator import Simulator
    from cann_env.acl.state.work import Work


@call(article="aclmdlExecute", differs="Values are those of ONNX's reference evaluator.")
def execute(run: Simulator, model_id: int, input: int, output: int) -> None:
    """Run a model on the buffers of two datasets, and wait until it is done."""
    found = loaded(run, model_id)
    work = _execute(run, found, input, output, found.lane, site(), "mdl.execute")
    wait_for(run, [work.index], f"model {found.model.name}")


@call()
def execute_async(run: Simulator, model_id: int, input: int, output: int, stream: int) -> None:
    """Run a model in the order of a stream."""
    where = run.stream(stream)
    _execute(run, loaded(run, model_id), input, output, where, site(), "mdl.execute_async")


@call()
def execute_v2(run: Simulator, model_id: int, input: int, output: int, stream: int, handle: int) -> None:
    """The same as :func:`execute`; the configuration has no effect."""
    run.stream(stream)
    thing(run, handle, ExecConfig, "configuration")
    found = loaded(run, model_id)
    work = _execute(run, found, input, output, found.lane, site(), "mdl.execute")
    wait_for(run, [work.index], f"model {found.model.name}")


class ExecConfig(dict[int, object]):
    """How a model is to be executed; kept without effect."""


@getter()
def create_exec_config_handle(run: Simulator) -> int:
    """An empty configuration of an execution."""
    handle = run.new_handle()
    run.things[handle] = ExecConfig()
    return handle


@call(initialised=False)
def destroy_exec_config_handle(run: Simulator, handle: int) -> None:
    """End a configuration."""
    thing(run, handle, ExecConfig, "configuration")
    run.bury(handle, "configuration", site())
    del run.things[handle]


@call(initialised=False)
def set_exec_config_opt(run: Simulator, handle: int, attr: int, attr_value: int) -> None:
    """Kept without effect."""
    thing(run, handle, ExecConfig, "configuration")[attr] = attr_value


# Choosing sizes.


@call()
def set_dynamic_batch_size(run: Simulator, model_id: int, dataset: int, index: int, batch_size: int) -> None:
    """Choose the batch size of the executions to come with a dataset."""
    code = codes.GE_DYNAMIC_BATCH_SIZE_INVALID
    _choose(run, model_id, dataset, index, (batch_size,), "dynamic_batch_size", code)


@call()
def set_dynamic_hw_size(
    run: Simulator, model_id: int, dataset: int, index: int, height: int, width: int
) -> None:
    """Choose height and width of the executions to come with a dataset."""
    code = codes.GE_SHAPE_INVALID
    _choose(run, model_id, dataset, index, (height, width), "dynamic_image_size", code)


@call()
def set_input_dynamic_dims(
    run: Simulator, model_id: int, dataset: int, index: int, dims: Mapping[str, Any]
) -> None:
    """Choose all sizes of the executions to come with a dataset, as a list of those of all inputs."""
    found = loaded(run, model_id)
    if not isinstance(dims, dict) or not isinstance(dims.get("dims"), (list, tuple)):
        raise Refused(codes.GE_PARAM_INVALID, f"dims is {dims!r}; pass a dict with the list 'dims'")
    given = tuple(dims["dims"])[: dims.get("dimCount", len(dims["dims"]))]
    slots = [size for tensor in found.model.inputs for size in tensor.shape]
    if len(given) != len(slots) or any(
        size not in (-1, new) for size, new in zip(slots, given, strict=False)
    ):
        raise refuse_shape(f"dims is {list(given)}; the sizes of all inputs are {slots}, -1 is to be chosen")
    gear = tuple(new for size, new in zip(slots, given, strict=True) if size == -1)
    _choose(run, model_id, dataset, index, gear, "dynamic_dims", codes.GE_SHAPE_INVALID)


def _choose(
    run: Simulator, model_id: int, dataset: int, index: int, gear: tuple[int, ...], option: str, code: int
) -> None:
    found, data = loaded(run, model_id), thing(run, dataset, Dataset, "dataset")
    model = found.model
    if model.option != option:
        has = f"{model.option} instead" if model.option else "fixed sizes"
        raise Refused(
            codes.GE_PARAM_INVALID, f"model {model.name!r} was not made with {option}; it has {has}"
        )
    if whole(index, "index") != len(model.inputs):
        raise Refused(
            codes.GE_DYNAMIC_INPUT_LENGTH_INVALID,
            f"index is {index}; sizes are chosen through input {len(model.inputs)}, ask "
            "get_input_index_by_name for ascend_mbatch_shape_data",
        )
    if gear not in model.gears:
        known = "; ".join(",".join(map(str, one)) for one in model.gears)
        raise Refused(code, f"{','.join(map(str, gear))} is none of the sizes to choose from: {known}")
    data.chosen = found.shapes = model.at(gear)


# Executing.


def _execute(
    run: Simulator, found: Loaded, input: int, output: int, where: Stream, line: str, name: str
) -> Work:
    if where.capture is not None:
        raise Refused(
            codes.RT_STREAM_CAPTURED, f"stream {where.handle} is captured; a model inside is not simulated"
        )
    given, results = (thing(run, handle, Dataset, "dataset") for handle in (input, output))
    if run.context().device != found.device:
        raise Refused(
            codes.RT_MODEL_CONTEXT,
            f"model {found.handle} was loaded on device {found.device}, not on {run.context().device}",
        )
    shapes = _shapes(found, given)
    try:
        plan = found.model.plan(shapes)
    except InputError as error:
        raise refuse_shape(str(error)) from error
    model = found.model
    _counted(given, inputs_of(model), "input")
    _counted(results, model.outputs, "output")
    sources = [
        _memory(run, given.buffers[i], tensor, shape, f"input {i}")
        for i, (tensor, shape) in enumerate(zip(model.inputs, shapes, strict=True))
    ]
    targets = [
        _memory(run, results.buffers[i], tensor, shape, f"output {i}", line)
        for i, (tensor, shape) in enumerate(zip(model.outputs, plan.outputs, strict=True))
    ]
    found.shapes = shapes
    run.pay("launch_kernel_ns")
    works = _submit(run, found, plan, sources, targets, where, line, name)
    works[0].begin, works[-1].end = _effects(run, found, plan, sources, targets)
    found.last = works[-1].index
    return works[-1]


def _shapes(found: Loaded, given: Dataset) -> Shapes:
    model = found.model
    if model.gears:
        if given.chosen is None:
            raise Refused(
                codes.GE_DYNAMIC_INPUT_LENGTH_INVALID,
                f"model {model.name!r} has sizes to choose from ({model.option}), and none were chosen for "
                "this dataset",
            )
        return given.chosen
    shapes = list(model.default)
    for place, shape in given.shapes.items():
        if place < len(shapes):
            if len(shape) != len(shapes[place]) or any(size < 1 for size in shape):
                raise refuse_shape(
                    f"input {place} ({model.inputs[place].name!r}) was given the shape {list(shape)}; it has "
                    f"{len(shapes[place])} dimensions of at least 1"
                )
            shapes[place] = shape
    return tuple(shapes)


def _counted(data: Dataset, tensors: Sequence[Tensor], what: str) -> None:
    if len(data.buffers) != len(tensors):
        names = ", ".join(tensor.name for tensor in tensors)
        raise Refused(
            codes.GE_PARAM_INVALID,
            f"the {what} dataset has {len(data.buffers)} buffers; the model has {len(tensors)} {what}s: "
            f"{names}",
        )


def _memory(
    run: Simulator, handle: int, tensor: Tensor, shape: Sequence[int], what: str, line: str = ""
) -> Range:
    """Memory of an input or output; taken from the device if an output has none."""
    buffer: DataBuffer = thing(run, handle, DataBuffer, f"data buffer of {what}")
    need = tensor.bytes_at(shape)
    if line and buffer.address == 0 and buffer.size == 0 and need:
        made = take(run, need, pages(need, 0), line)
        buffer.address, buffer.size = made.address, need
    if buffer.size < need:
        raise Refused(
            codes.GE_PARAM_INVALID,
            f"{what} ({tensor.name!r}) has a buffer of {buffer.size} bytes; it takes {need}: {tensor.dtype} "
            f"{list(shape)}",
        )
    memory = run.memory.range(buffer.address, need, f"{what} ({tensor.name!r})")
    if memory.allocation.space is Space.PAGEABLE and not run.spec.memory.host_shares_dram:
        raise Refused(
            codes.GE_PARAM_INVALID,
            f"{what} ({tensor.name!r}) lies in memory of the host that the device does not reach; copy it to "
            "memory of acl.rt.malloc",
        )
    return memory


def _submit(
    run: Simulator,
    found: Loaded,
    plan: Plan,
    sources: Sequence[Range],
    targets: Sequence[Range],
    where: Stream,
    line: str,
    name: str,
) -> list[Work]:
    """Put the kernels of a model on a stream, behind the execution before."""
    last = run.log[found.last] if found.last >= 0 else None
    if last is not None and last.stream != where.handle and not last.ended:
        where.pending.append(last.index)
    places = {tensor.name: memory for tensor, memory in zip(found.model.inputs, sources, strict=True)}
    rest = list(targets)
    for root, memory in zip(plan.roots, targets, strict=True):
        if root and root not in places:
            places[root] = memory
            rest.remove(memory)
    kernels = plan.kernels or (_passing(sources, targets),)
    works = []
    for place, kernel in enumerate(kernels):
        touches = [Touch(_place(run, found, plan, places, tensor), False) for tensor in kernel.reads]
        touches += [Touch(_place(run, found, plan, places, tensor), True) for tensor in kernel.writes]
        if place == len(kernels) - 1:
            touches += [Touch(memory, True) for memory in rest]
            touches += [Touch(memory, False) for memory in sources] if not plan.kernels else []
        label = f"{found.model.name}/{kernel.name}"
        works.append(run.submit(name, where, kernel, touches, site=line, label=label, inner=place > 0))
    return works


def _passing(sources: Sequence[Range], targets: Sequence[Range]) -> Command:
    """What stands for a model without kernels: its results are moved."""
    size = sum(memory.size for memory in targets) or sum(memory.size for memory in sources)
    return Command(name="move", kind=CommandKind.COPY, copy=CopyKind.D2D, size_bytes=max(size, 1))


def _place(run: Simulator, found: Loaded, plan: Plan, places: Mapping[str, Range], tensor: str) -> Range:
    if tensor in places:
        return places[tensor]
    size = plan.sizes.get(tensor, 0)
    return Range(part_of(run, found, tensor, size), 0, size)


def _effects(
    run: Simulator, found: Loaded, plan: Plan, sources: Sequence[Range], targets: Sequence[Range]
) -> tuple[Any, Any]:
    """An execution reads its inputs when it starts, and its results are there when it ends."""
    held: list[list[np.ndarray[Any, Any]]] = []

    def begin() -> None:
        held.append([memory.view().copy() for memory in sources])

    def end() -> None:
        results = _results(run, found, plan, held.pop())
        for memory, data in zip(targets, results, strict=True):
            memory.view()[:] = np.frombuffer(data, np.uint8)

    return begin, end


def _results(run: Simulator, found: Loaded, plan: Plan, given: list[np.ndarray[Any, Any]]) -> list[bytes]:
    model = found.model
    sizes = [tensor.bytes_at(shape) for tensor, shape in zip(model.outputs, plan.outputs, strict=True)]
    key = [str(plan.shapes).encode(), *(data.tobytes() for data in given)]
    if found.seen is not None and found.seen[0] == key:
        return found.seen[1]
    try:
        if plan.macs > run.values:
            raise ValueError(f"it takes {plan.macs} multiply-adds, and up to {run.values} are computed")
        results = [np.ascontiguousarray(array).tobytes() for array in values_of(plan, model, given)]
        if [len(data) for data in results] != sizes:
            raise ValueError("they have other shapes than the model says")
    except ValueError as error:
        if not found.warned:
            warnings.warn(f"results of model {model.name!r} are zeros: {error}", stacklevel=1)
            found.warned = True
        return [bytes(size) for size in sizes]
    found.seen = key, results
    return results
