"""The runtime's programming interface, simulated: a program for the device runs, and says what it does.

Names, arguments and return codes are those of CANN's Python binding, so that a program written for a device
runs with ``import cann_env.acl as acl``. Time is simulated, bytes are real.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cann_env.acl import codes, rt, util
from cann_env.acl.api import call, simulate, simulator, strict
from cann_env.acl.article import (
    create_command,
    destroy_command,
    set_command_args,
    submit_command,
    synchronize_command,
)
from cann_env.acl.codes import Refused
from cann_env.acl.constants import *
from cann_env.acl.export import export, run_as
from cann_env.acl.export_acl import acl_program
from cann_env.acl.hazards import Hazard, HazardKind
from cann_env.acl.hazards import hazards as _hazards
from cann_env.acl.kernels import KernelModel, define_kernel
from cann_env.acl.record import record as _record
from cann_env.acl.stand_in import (
    begins,
    graph_order,
    operation,
    reuse_memory,
    use_die,
    wait_until,
)

if TYPE_CHECKING:
    from cann_env.acl.simulator import Simulator
    from cann_env.acl.record import RecordedGraph


@call(initialised=False)
def init(run: Simulator, config_path: str = "") -> None:
    """Begin; the configuration file is not looked at."""
    del config_path
    if run.initialised:
        raise Refused(codes.REPEAT_INITIALIZE, "acl.init was called before")
    run.initialised = True


@call(initialised=False)
def finalize(run: Simulator) -> None:
    """End, once all work is done."""
    if not run.initialised:
        raise Refused(codes.UNINITIALIZE, "acl.finalize was called before acl.init")
    for device in list(run.devices.values()):
        run.advance_to(list(device.works))
    run.initialised = False


def get_recent_err_msg() -> str:
    """What was wrong with the last call that failed; empty if none has."""
    return simulator().message


@call(1, initialised=False)
def get_soc_name(run: Simulator) -> str:
    """Name of the chip."""
    return run.spec.name.replace("ascend", "Ascend", 1)


def hazards() -> list[Hazard]:
    """What is wrong with the current run, see :mod:`cann_env.acl.hazards`."""
    return _hazards(simulator())


def record(name: str = "program", *, device: int = 0) -> RecordedGraph:
    """What the program of the current run gave a device to do, as a graph; see :mod:`cann_env.acl.record`."""
    return _record(simulator(), device=device, name=name)
