"""Kernels: loading, looking up, launching; and functions of the host that streams call."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from cann_env.acl import codes
from cann_env.acl import constants as const
from cann_env.acl.api import call, site
from cann_env.acl.calls.arguments import unpacked
from cann_env.acl.codes import Refused
from cann_env.acl.state.kernels import KERNELS, KernelModel, Part, of_program
from cann_env.acl.state.work import Touch
from cann_env.commands import Command, CommandKind, Kernel, KernelClass

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from cann_env.acl.state.memory import Range
    from cann_env.acl.state.objects import Stream
    from cann_env.acl.state.simulator import Simulator
    from cann_env.acl.state.work import Work


class Binary(NamedTuple):
    """A loaded file of kernels."""

    path: str


class Function(NamedTuple):
    """A kernel of a loaded file."""

    binary: int
    model: KernelModel


@call(
    1,
    differs="The file is not read: kernels that were defined with acl.define_kernel stand for those in "
    "it.",
)  # fmt: skip
def binary_load_from_file(run: Simulator, path: str, options: object = None) -> int:
    """Load a file of kernels; those that were defined stand for what is in it, whatever the file."""
    del options
    if not isinstance(path, (str, Path)) or not str(path):
        raise Refused(codes.RT_PARAM_INVALID, f"path is {path!r}; pass the path of a kernel binary")
    handle = run.new_handle()
    run.things[handle] = Binary(str(path))
    return handle


@call(c_name="aclrtBinaryUnLoad")
def binary_unload(run: Simulator, binary: int) -> None:
    """Unload a file of kernels."""
    _thing(run, binary, Binary, "binary")
    run.bury(binary, "binary", site())
    del run.things[binary]


@call(1, differs="Finds kernels that were defined with acl.define_kernel.")
def binary_get_function(run: Simulator, binary: int, name: str) -> int:
    """A kernel of a loaded file, by name."""
    _thing(run, binary, Binary, "binary")
    model = KERNELS.find(name)
    if model is None:
        known = ", ".join(KERNELS.names()) or "none"
        raise Refused(
            codes.RT_PARAM_INVALID,
            f"kernel {name!r} is not known; say what it costs with define_kernel (known: {known})",
        )
    handle = run.new_handle()
    run.things[handle] = Function(binary, model)
    return handle


@call(
    differs="Arguments are a list of addresses and values instead of a packed block of bytes; the size is "
    "not looked at.",
)  # fmt: skip
def launch_kernel(
    run: Simulator, function: int, blocks: int, args: Sequence[Any], args_size: object = None, stream: int = 0
) -> None:
    """Launch a kernel on a stream.

    Args:
        run: The run.
        function: The kernel, as :func:`binary_get_function` gave it.
        blocks: Logical blocks; cut to the limit of cores of the stream or device, if there is one.
        args: Addresses and other arguments in the kernel's order; a pair of address and size says how many
            bytes it touches, an address alone all up to the end of its allocation.
            Or the address of host memory where all of them lie, 8 bytes each.
        args_size: Bytes of that; not looked at otherwise.
        stream: Where.
    """
    where, model = run.stream(stream), _thing(run, function, Function, "function").model
    if isinstance(args, int):
        args = unpacked(run, args, args_size)
    launch(run, model, blocks, args, where, site())


@call(differs="The configuration is a mapping; of its attributes the scheme is simulated.")
def launch_kernel_with_config(
    run: Simulator,
    function: int,
    blocks: int,
    stream: int,
    cfg: object,
    args: Sequence[Any],
    reserve: object = None,
) -> None:
    """The same with a launch configuration: a mapping whose ``scheme`` may be ``batch``."""
    del reserve
    model = _thing(run, function, Function, "function").model
    if isinstance(args, int):
        args = unpacked(run, args, 8)
    launch(run, with_config(model, cfg), blocks, args, run.stream(stream), site())


_SCHEME: Final = 1
"""Number of the attribute of a launch that says whether all blocks start together."""


def with_config(model: KernelModel, cfg: object) -> KernelModel:
    """A kernel as a launch configuration wants it."""
    from dataclasses import replace

    from cann_env.commands import Scheme

    if cfg is None:
        return model
    if isinstance(cfg, (list, tuple)):
        batch = any(one.get("id") == _SCHEME and one.get("value") for one in cfg)
        return replace(model, scheme=Scheme.BATCH) if batch else model
    if not isinstance(cfg, dict) or not set(cfg) <= {"scheme"}:
        raise Refused(codes.RT_PARAM_INVALID, f"configuration is {cfg!r}; pass None or {{'scheme': 'batch'}}")
    if cfg.get("scheme", "normal") not in tuple(Scheme):
        raise Refused(codes.RT_PARAM_INVALID, f"scheme is {cfg['scheme']!r}; pass 'normal' or 'batch'")
    return replace(model, scheme=Scheme(cfg.get("scheme", "normal")))


def launch(
    run: Simulator, model: KernelModel, blocks: int, args: Sequence[Any], where: Stream, line: str
) -> Work:
    """Submit a launch."""
    return launch_together(run, [Part(model, blocks, tuple(args))], where, line, "rt.launch_kernel")


def launch_together(run: Simulator, parts: Sequence[Part], where: Stream, line: str, call_name: str) -> Work:
    """Submit kernels as one piece of work, back to back: one call, one entry of the queue."""
    kernels: list[Kernel] = []
    touches: list[Touch] = []
    acts: list[tuple[Callable[[], None], Callable[[], None]]] = []
    launched: list[tuple[Part, dict[int, Range]]] = []
    for part in parts:
        blocks = limited(run, part.model, part.blocks, where)
        ranges = ranges_of(run, part.model, part.args)
        kernels.append(part.model.kernel({place: r.size for place, r in ranges.items()}, blocks))
        touches += touches_of(part.model, ranges)
        launched.append((part, ranges))
        if part.model.function is not None:
            acts.append(effects(part.model, part.args, ranges))
    run.pay("launch_kernel_ns")
    label = "+".join(part.model.name for part in parts)
    command = Command(name=label, kind=CommandKind.KERNEL, kernels=tuple(kernels))
    work = run.submit(call_name, where, command, touches, site=line, label=label)
    work.kernels = tuple(launched)
    if len(acts) == 1:
        work.begin, work.end = acts[0]
    elif acts:
        work.end = lambda: _one_after_another(acts)
    return work


def _one_after_another(acts: Sequence[tuple[Callable[[], None], Callable[[], None]]]) -> None:
    """Of kernels that run back to back each sees what the ones before it wrote."""
    for begin, end in acts:
        begin()
        end()


def limited(run: Simulator, model: KernelModel, blocks: object, where: Stream) -> int:
    """Blocks of a launch, cut to the limit of cores that applies."""
    if not isinstance(blocks, int) or isinstance(blocks, bool) or not 0 < blocks <= 1 << 20:
        raise Refused(
            codes.RT_PARAM_INVALID, f"blocks of kernel {model.name!r} is {blocks!r}; pass 1 or more"
        )
    kind = const.ACL_RT_DEV_RES_VECTOR_CORE
    if model.kernel_class is not KernelClass.VECTOR:
        kind = const.ACL_RT_DEV_RES_CUBE_CORE
    limit = where.cores.get(kind, run.device(where.device).limits.get(kind))
    return blocks if limit is None or model.kernel_class is KernelClass.AICPU else min(blocks, limit)


def ranges_of(run: Simulator, model: KernelModel, args: Sequence[Any]) -> dict[int, Range]:
    """Memory that a launch names, by the place of the argument."""
    ranges: dict[int, Range] = {}
    for place in sorted({*model.reads, *model.writes}):
        if not isinstance(args, (list, tuple)) or place >= len(args):
            raise Refused(
                codes.RT_PARAM_INVALID, f"kernel {model.name!r} has no argument {place}; {args!r} was passed"
            )
        what = f"argument {place} of kernel {model.name!r}"
        given = args[place]
        if isinstance(given, (tuple, list)) and len(given) == 2:
            ranges[place] = run.memory.range(given[0], given[1], what)
            continue
        first = run.memory.range(given, 0, what)
        ranges[place] = run.memory.range(given, first.allocation.size - first.first, what)
    return ranges


def touches_of(model: KernelModel, ranges: dict[int, Range]) -> list[Touch]:
    """Accesses of a launch: reads first."""
    return [
        *(Touch(ranges[place], False) for place in model.reads),
        *(Touch(ranges[place], True) for place in model.writes),
    ]


def effects(
    model: KernelModel, args: Sequence[Any], ranges: dict[int, Range]
) -> tuple[Callable[[], None], Callable[[], None]]:
    """What a launch does to the bytes: it reads when it starts, and what it wrote is there when it ends."""
    held: dict[int, NDArray[np.uint8]] = {}

    def begin() -> None:
        values: list[Any] = list(args)
        for place, memory in ranges.items():
            held[place] = memory.view().copy()
            values[place] = _typed(held[place], model, place)
        if model.function is not None:
            of_program(model.function, *values)

    def end() -> None:
        for place in model.writes:
            ranges[place].view()[:] = held[place]
        held.clear()

    return begin, end


def _typed(data: NDArray[np.uint8], model: KernelModel, place: int) -> NDArray[Any]:
    dtype = np.dtype("float32" if model.dtype == "bfloat16" else model.dtype)
    whole = data[: data.size // dtype.itemsize * dtype.itemsize].view(dtype)
    shape = model.shapes.get(place)
    return whole if shape is None else whole[: int(np.prod(shape))].reshape(shape)


def _thing(run: Simulator, handle: object, kind: type[Any], what: str) -> Any:
    found = run.things.get(handle) if isinstance(handle, int) else None
    if not isinstance(found, kind):
        raise Refused(codes.RT_PARAM_INVALID, f"{what} {handle!r} does not exist{run.gone(handle)}")
    return found
