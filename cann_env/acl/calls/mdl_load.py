"""Loading and unloading of models."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cann_env.acl import codes
from cann_env.acl import constants as const
from cann_env.acl.api import call, getter, site
from cann_env.acl.calls.mdl_model import OPTIONS, Model
from cann_env.acl.calls.mdl_types import thing, whole
from cann_env.acl.calls.rt_device import wait_for
from cann_env.acl.calls.rt_memory import pages, put_back, take
from cann_env.acl.codes import Refused
from cann_env.acl.state.memory import Range
from cann_env.acl.state.work import Touch
from cann_env.commands import Command, CommandKind, CopyKind
from cann_env.units import InputError
from cann_env.workloads.onnx_model import parse_model, read_model, write_notes

if TYPE_CHECKING:
    from cann_env.acl.calls.mdl_model import Shapes
    from cann_env.acl.state.memory import Allocation
    from cann_env.acl.state.objects import Stream
    from cann_env.acl.state.simulator import Simulator

_ALIGNED: Final = 512


@dataclass(slots=True, eq=False)
class Loaded:
    """A model on a device.

    Attributes:
        handle: As the program knows it.
        model: What it is.
        device: Number of the device.
        lane: The model's own stream, for executions that the host waits for.
        weights, work: Memory of the weights and of what is computed on the way; None if there are none.
        taken: What of it was taken from the device, and goes back when the model is unloaded.
        parts: Memory of each tensor inside of the model.
        shapes: Sizes that were chosen last.
        last: Index of the last piece of work of the last execution; -1 before the first.
        warned: The program was told that results are zeros.
        seen: Inputs and results of the last execution whose results were computed.
        site: Where it was loaded.
    """

    handle: int
    model: Model
    device: int
    lane: Stream
    weights: Allocation | None
    work: Allocation | None
    shapes: Shapes
    site: str
    taken: list[Allocation] = field(default_factory=list)
    parts: dict[str, Allocation] = field(default_factory=dict)
    last: int = -1
    warned: bool = False
    seen: tuple[list[bytes], list[bytes]] | None = None


@dataclass(slots=True, eq=False)
class Config:
    """How a model is to be loaded, by the numbers of ``aclmdlConfigAttr``."""

    options: dict[int, object] = field(default_factory=dict)


def convert_model(
    model: str | Path,
    output: str | Path,
    *,
    input_shape: str = "",
    dynamic_batch_size: str = "",
    dynamic_image_size: str = "",
    dynamic_dims: str = "",
) -> Path:
    """Write an ONNX model with the options that a converter for the device would be given.

    Options are written as for CANN's ATC: ``input_shape="data:-1,3,224,224"`` with
    ``dynamic_batch_size="1,2,4"``. The result is an ONNX file, whatever it is called, that
    ``acl.mdl.load_from_file`` takes in place of an offline model.

    Raises:
        InputError: The model cannot be read, or cannot have these sizes.
    """
    from cann_env.acl.api import simulator

    given = (input_shape, dynamic_batch_size, dynamic_image_size, dynamic_dims)
    notes = {name: text for name, text in zip(OPTIONS, given, strict=True) if text}
    target = Path(output)
    write_notes(Path(model), target, notes)
    try:
        Model(target.stem, read_model(target), simulator().spec)
    except InputError:
        target.unlink()
        raise
    return target


@call(
    1, failed=0,
    differs="Takes ONNX files; those of the device's format (.om) cannot be read. Work is simulated "
    "operator by operator.",
)  # fmt: skip
def load_from_file(run: Simulator, model_path: str) -> int:
    """Load a model; its weights and work get memory of the current device.

    A path that ends in ``.om`` also stands for the ONNX file of the same name beside it, unless the file
    is an ONNX model itself.
    """
    return _load(run, _read(run, model_path), site())


@call(1, failed=0)
def load_from_mem(run: Simulator, model: int, model_size: int) -> int:
    """Load a model that lies in host memory."""
    return _load(run, _read_memory(run, model, model_size), site())


@call(1, failed=0)
def load_from_file_with_mem(
    run: Simulator, model_path: str, work_ptr: int, work_size: int, weight_ptr: int, weight_size: int
) -> int:
    """Load a model into memory of the program; 0 for either address if it is to be taken from the device."""
    return _load(run, _read(run, model_path), site(), (work_ptr, work_size), (weight_ptr, weight_size))


@call(1, failed=0)
def load_from_mem_with_mem(
    run: Simulator,
    model: int,
    model_size: int,
    work_ptr: int,
    work_size: int,
    weight_ptr: int,
    weight_size: int,
) -> int:
    """The same for a model that lies in host memory."""
    read = _read_memory(run, model, model_size)
    return _load(run, read, site(), (work_ptr, work_size), (weight_ptr, weight_size))


@call(2, failed=0)
def query_size(run: Simulator, file_name: str) -> tuple[int, int]:
    """Bytes of work and of weights that a model needs."""
    return _sizes(_read(run, file_name))


@call(2, failed=0)
def query_size_from_mem(run: Simulator, model: int, model_size: int) -> tuple[int, int]:
    """The same for a model that lies in host memory."""
    return _sizes(_read_memory(run, model, model_size))


@call()
def unload(run: Simulator, model_id: int) -> None:
    """Give back what a model took, once its executions are done."""
    found = loaded(run, model_id)
    if found.last >= 0:
        run.advance_to([found.last])
    for allocation in found.taken:
        if not allocation.freed:
            put_back(run, allocation, site())
    run.bury(found.handle, "model", site())
    del run.things[found.handle]


@getter()
def create_config_handle(run: Simulator) -> int:
    """An empty configuration of a load."""
    handle = run.new_handle()
    run.things[handle] = Config()
    return handle


@call(initialised=False)
def destroy_config_handle(run: Simulator, config_handle: int) -> None:
    """End a configuration."""
    thing(run, config_handle, Config, "configuration")
    run.bury(config_handle, "configuration", site())
    del run.things[config_handle]


@call(initialised=False)
def set_config_opt(run: Simulator, config_handle: int, attr: int, attr_value: object) -> None:
    """Set one of ``ACL_MDL_...``; queues are not simulated, and priorities have no effect."""
    found = thing(run, config_handle, Config, "configuration")
    if not isinstance(attr, int) or not 0 <= attr <= 16:
        raise Refused(codes.INVALID_PARAM, f"attr is {attr!r}; pass one of ACL_MDL_, 0 to 16")
    found.options[attr] = attr_value


@call(1, failed=0)
def load_with_config(run: Simulator, config_handle: int) -> int:
    """Load a model as a configuration says."""
    options = thing(run, config_handle, Config, "configuration").options
    kind = options.get(const.ACL_MDL_LOAD_TYPE_SIZET)
    if kind in (const.ACL_MDL_LOAD_FROM_FILE, const.ACL_MDL_LOAD_FROM_FILE_WITH_MEM):
        model = _read(run, options.get(const.ACL_MDL_PATH_PTR))
    elif kind in (const.ACL_MDL_LOAD_FROM_MEM, const.ACL_MDL_LOAD_FROM_MEM_WITH_MEM):
        model = _read_memory(
            run, options.get(const.ACL_MDL_MEM_ADDR_PTR), options.get(const.ACL_MDL_MEM_SIZET)
        )
    else:
        raise Refused(codes.INVALID_PARAM, f"load type is {kind!r}; 1 to 4 are simulated, not queues")
    if kind in (const.ACL_MDL_LOAD_FROM_FILE, const.ACL_MDL_LOAD_FROM_MEM):
        return _load(run, model, site())
    work = options.get(const.ACL_MDL_WORKSPACE_ADDR_PTR, 0), options.get(const.ACL_MDL_WORKSPACE_SIZET, 0)
    weight = options.get(const.ACL_MDL_WEIGHT_ADDR_PTR, 0), options.get(const.ACL_MDL_WEIGHT_SIZET, 0)
    return _load(run, model, site(), work, weight)


def loaded(run: Simulator, model_id: object) -> Loaded:
    """A loaded model of the current device.

    Raises:
        Refused: There is none, or it is on another device, or that was reset.
    """
    found = run.things.get(model_id) if isinstance(model_id, int) else None
    if not isinstance(found, Loaded):
        raise Refused(codes.GE_MODEL_ID_INVALID, f"model {model_id!r} does not exist{run.gone(model_id)}")
    if any(allocation.freed for allocation in found.taken):
        raise Refused(
            codes.GE_MODEL_ID_INVALID, f"device {found.device} was reset since model {model_id} was loaded"
        )
    return found


def read_file(path: object) -> tuple[Path, str]:
    """The ONNX file that a path stands for, and a name for the model.

    Raises:
        Refused: There is none.
    """
    if not isinstance(path, (str, Path)) or not str(path):
        raise Refused(codes.INVALID_PARAM, f"model path is {path!r}; pass the path of an ONNX file")
    given = Path(path)
    twin = given.with_suffix(".onnx")
    if given.suffix == ".om" and twin.is_file() and not _is_onnx(given):
        return twin, given.stem
    if given.is_file():
        return given, given.stem
    beside = f", nor does {str(twin)!r}" if given.suffix == ".om" else ""
    raise Refused(
        codes.GE_MODEL_PATH_INVALID,
        f"model file {str(given)!r} does not exist{beside}; pass an ONNX file, or put it beside the .om file",
    )


def _is_onnx(path: Path) -> bool:
    """Whether a file is an ONNX model, whatever it is called."""
    try:
        read_model(path)
    except InputError:
        return False
    return True


def _read(run: Simulator, path: object) -> Model:
    file, name = read_file(path)
    try:
        return Model(name, read_model(file), run.spec)
    except InputError as error:
        hint = "; offline models are not read, pass the ONNX file they were made of"
        raise Refused(codes.PARSE_MODEL, f"{error}{hint if file.suffix == '.om' else ''}") from error


def _read_memory(run: Simulator, address: object, size: object) -> Model:
    data = run.memory.host_range(address, whole(size, "model_size", 1), "model").view().tobytes()
    try:
        return Model("model", parse_model(data, "what lies in memory", Path.cwd()), run.spec)
    except InputError as error:
        hint = "; offline models are not read, pass the bytes of the ONNX file they were made of"
        raise Refused(codes.PARSE_MODEL, f"{error}{hint}") from error


def _sizes(model: Model) -> tuple[int, int]:
    """Bytes of work and of weights, each at least one piece."""
    plan = model.plan(model.default)
    weights = sum(-(-plan.sizes[name] // _ALIGNED) * _ALIGNED for name in plan.weights)
    return max(plan.work_bytes, _ALIGNED), weights


def _is_none(address: object) -> bool:
    return address is None or (isinstance(address, int) and address == 0)


def _check_given(run: Simulator, model: Model, what: str, need: int, given: tuple[object, object]) -> None:
    """Refuse memory of the program that is none, or too small, before any is taken from the device."""
    if whole(given[1], f"{what}_size") < need:
        raise Refused(
            codes.GE_MODEL_ADDRESS_INVALID,
            f"{what}_size is {given[1]}; model {model.name!r} needs {need} bytes",
        )
    run.memory.range(given[0], given[1], f"{what}_ptr")


def _load(
    run: Simulator,
    model: Model,
    line: str,
    work_given: tuple[object, object] = (0, 0),
    weights_given: tuple[object, object] = (0, 0),
) -> int:
    device = run.context().device
    need_work, need_weights = _sizes(model)
    handle = run.new_handle()
    taken: list[Allocation] = []
    places: list[Allocation | None] = []
    for what, need, given in (("work", need_work, work_given), ("weight", need_weights, weights_given)):
        if not _is_none(given[0]):
            _check_given(run, model, what, need, given)
    for what, need, given in (("work", need_work, work_given), ("weight", need_weights, weights_given)):
        if not _is_none(given[0]):
            places.append(run.memory.range(given[0], given[1], f"{what}_ptr").allocation)
        elif need:
            policy = const.ACL_MEM_MALLOC_HUGE_FIRST
            try:
                allocation = take(run, need, pages(need, policy), line)
            except Refused:
                for earlier in taken:
                    put_back(run, earlier, line)
                raise
            allocation.model = handle
            taken.append(allocation)
            places.append(allocation)
        else:
            places.append(None)
    lane = run.hidden_stream(device, f"model loaded at {line}")
    run.minds.hidden.add(lane.handle)
    found = Loaded(handle, model, device, lane, places[1], places[0], model.default, line, taken=taken)
    run.things[handle] = found
    _bring(run, found, line)
    return handle


def _bring(run: Simulator, found: Loaded, line: str) -> None:
    """Copy the weights, and wait until they are there."""
    plan = found.model.plan(found.model.default)
    size = sum(plan.sizes[name] for name in plan.weights)
    for _ in found.taken:
        run.pay("malloc_ns")
    if size == 0:
        return
    command = Command(name="copy h2d", kind=CommandKind.COPY, copy=CopyKind.H2D, size_bytes=size)
    touches = [Touch(Range(part_of(run, found, name, plan.sizes[name]), 0, plan.sizes[name]), True)
               for name in sorted(plan.weights)]  # fmt: skip
    work = run.submit(
        "mdl.load", run.copy_stream(), command, touches, site=line, label=f"weights of {found.model.name}"
    )
    wait_for(run, [work.index], "loading a model")


def part_of(run: Simulator, found: Loaded, name: str, size: int) -> Allocation:
    """Memory of a tensor inside of a model."""
    part = found.parts.get(name)
    if part is None or part.size < size:
        whole_memory = found.weights if name in found.model.plan(found.shapes).weights else found.work
        if whole_memory is None:
            raise Refused(codes.INTERNAL_ERROR, f"model {found.model.name!r} has no memory for {name!r}")
        part = found.parts[name] = run.memory.part(whole_memory, size)
    return part
