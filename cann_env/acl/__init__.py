"""The runtime's programming interface, simulated: a program for the device runs, and says what it does.

Names, arguments and return codes are those of CANN's Python binding, so that a program written for a device
runs with ``import cann_env.acl as acl``. Time is simulated, bytes are real.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cann_env.acl import blas, codes, fv, himpi, mdl, media, op, prof, rt, util
from cann_env.acl.api import call, getter, simulate, simulator, site, strict
from cann_env.acl.calls.article import (
    create_command,
    create_kernel_desc,
    destroy_command,
    destroy_kernel_desc,
    load_kernel,
    query_command,
    set_command_args,
    set_kernel_desc_attr,
    submit_command,
    synchronize_command,
)
from cann_env.acl.calls.article_graph import run_graph
from cann_env.acl.calls.article_memory import (
    create_mem_pool,
    destroy_mem_pool,
    free_cached,
    free_to_mem_pool,
    malloc_cached,
    malloc_from_mem_pool,
    mem_prefetch_async,
    retain_cached,
)
from cann_env.acl.calls.mdl_data import (
    create_data_buffer,
    create_tensor_desc,
    data_type_size,
    destroy_data_buffer,
    destroy_tensor_desc,
    float16_to_float,
    float_to_float16,
    get_data_buffer_addr,
    get_data_buffer_size,
    get_data_buffer_size_v2,
    get_tensor_desc_dim,
    get_tensor_desc_dim_v2,
    get_tensor_desc_element_count,
    get_tensor_desc_format,
    get_tensor_desc_name,
    get_tensor_desc_num_dims,
    get_tensor_desc_size,
    get_tensor_desc_type,
    set_tensor_const,
    set_tensor_desc_name,
    set_tensor_format,
    set_tensor_origin_format,
    set_tensor_origin_shape,
    set_tensor_place_ment,
    set_tensor_shape,
    set_tensor_shape_range,
    set_tensor_storage_format,
    set_tensor_storage_shape,
    update_data_buffer,
)
from cann_env.acl.calls.mdl_load import convert_model
from cann_env.acl.calls.refused import refused
from cann_env.acl.calls.stand_in import (
    begins,
    graph_order,
    operation,
    reuse_memory,
    use_die,
    wait_until,
)
from cann_env.acl.checks.hazards import Hazard, HazardKind
from cann_env.acl.checks.hazards import hazards as _hazards
from cann_env.acl.codes import Refused
from cann_env.acl.constants import *
from cann_env.acl.facts import helper
from cann_env.acl.plans.compare import Comparison
from cann_env.acl.plans.compare import compare as _compare
from cann_env.acl.plans.export import export, run_as
from cann_env.acl.plans.export_acl import acl_program
from cann_env.acl.plans.improve import Improvement
from cann_env.acl.plans.improve import improve as _improve
from cann_env.acl.plans.record import record as _record
from cann_env.acl.plans.timeline import save_picture as _save_picture
from cann_env.acl.plans.timeline import save_trace as _save_trace
from cann_env.acl.plans.timeline import timeline as _timeline
from cann_env.acl.state.evidence import note_leaks
from cann_env.acl.state.kernels import KernelModel, define_kernel

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from cann_env.acl.plans.record import RecordedGraph
    from cann_env.acl.state.simulator import Simulator
    from cann_env.schedule import Schedule


@call(initialised=False, article="aclInit", differs="The configuration file is not looked at.")
def init(run: Simulator, config_path: str = "") -> None:
    """Begin."""
    del config_path
    if run.initialised:
        raise Refused(codes.REPEAT_INITIALIZE, "acl.init was called before")
    run.initialised = True


@call(
    initialised=False, article="aclFinalize",
    differs="Waits for all work, and notes what was not given back.",
)  # fmt: skip
def finalize(run: Simulator) -> None:
    """End, once all work is done."""
    _end(run)


def _end(run: Simulator) -> None:
    if not run.initialised:
        raise Refused(codes.UNINITIALIZE, "acl.finalize was called before acl.init")
    for device in list(run.devices.values()):
        run.advance_to(list(device.works))
    note_leaks(run, site())
    run.initialised = False


@helper("aclGetRecentErrMsg", differs="Says what was wrong and what would be right, with the line.")
def get_recent_err_msg() -> str:
    """What was wrong with the last call that failed; empty if none has."""
    return simulator().message


@getter(failed="", c_name="aclrtGetSocName")
def get_soc_name(run: Simulator) -> str:
    """Name of the chip, without a code."""
    return run.spec.name.replace("ascend", "Ascend", 1)


@call(3, failed=0)
def get_version(run: Simulator) -> tuple[int, int, int]:
    """Version of the interface."""
    del run
    return 1, 14, 0


@call(1, initialised=False, failed=0)
def get_device_capability(run: Simulator, device_id: int, device_info: int) -> int:
    """Cube cores (0), vector cores (1), or bytes of the L2 cache (2) of a device."""
    spec = run.device(device_id).spec
    known = {0: spec.pools.get("aic", 0), 1: spec.pools.get("aiv", 0), 2: spec.memory.l2_bytes}
    if device_info not in known:
        raise Refused(codes.INVALID_PARAM, f"device_info is {device_info!r}; pass 0, 1 or 2")
    return known[device_info]


@call(1, initialised=False)
def finalize_reference(run: Simulator) -> int:
    """End, and say how often it was begun besides: never."""
    _end(run)
    return 0


def app_log(log_level: int, message: str) -> None:
    """Accepted without effect: nothing is logged."""


def hazards() -> list[Hazard]:
    """What is wrong with the current run, see :mod:`cann_env.acl.checks.hazards`."""
    return _hazards(simulator())


def record(name: str = "program", *, device: int = 0) -> RecordedGraph:
    """What the program of the current run gave a device to do, as a graph."""
    return _record(simulator(), device=device, name=name)


def timeline(*, device: int = 0) -> Schedule:
    """What a device did in the current run, to be drawn; see :func:`cann_env.acl.plans.timeline.timeline`."""
    return _timeline(simulator(), device=device)


def save_trace(path: str | Path, *, device: int = 0) -> Path:
    """Write the timeline of the current run for Perfetto or MindStudio Insight."""
    return _save_trace(simulator(), path, device=device)


def save_picture(path: str | Path, *, device: int = 0) -> Path:
    """Draw the timeline of the current run; the ending names the format (``.png``, ``.svg``, ``.pdf``)."""
    return _save_picture(simulator(), path, device=device)


def improve(scheduler: str = "reference", *, device: int = 0, streams: int = 8) -> Improvement:
    """How long the work of the current run takes as written, and as a scheduler would have it.

    See :func:`cann_env.acl.plans.improve.improve`.
    """
    return _improve(simulator(), scheduler, device=device, streams=streams)


def compare(schedulers: Sequence[str] = ("reference",), *, device: int = 0, streams: int = 8) -> Comparison:
    """The work of the current run as written, and as several schedulers would have it, as a table.

    See :func:`cann_env.acl.plans.compare.compare`.
    """
    return _compare(simulator(), schedulers, device=device, streams=streams)


_OTHERS = frozenset(
    (
        "get_cann_attribute", "get_cann_attribute_list", "get_cann_version", "get_tensor_desc_address",
        "get_tensor_desc_by_index", "get_tensor_desc_dim_range", "get_version_str",
        "set_tensor_dynamic_input", "set_tensor_value_range", "trans_tensor_desc_format",
    )
)  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _OTHERS:
        return refused("acl", name, "the simulator has no model of what it does")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
