"""Dumps of what models compute: accepted, and nothing is written."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Final

from cann_env.acl.api import call
from cann_env.acl.calls.mdl_types import text

if TYPE_CHECKING:
    from cann_env.acl.state.simulator import Simulator

_NOTHING: Final = "Nothing is written."


@call(differs=_NOTHING)
def init_dump(run: Simulator) -> None:
    """Begin to dump."""
    del run


@call(differs=_NOTHING)
def set_dump(run: Simulator, dump_cfg_path: str) -> None:
    """Say what is dumped where."""
    text(dump_cfg_path, "dump_cfg_path")
    if "acl.mdl.set_dump" not in run.refused:
        run.refused.add("acl.mdl.set_dump")
        warnings.warn("acl.mdl.set_dump writes no dump: ask for outputs of the model instead", stacklevel=3)


@call(differs=_NOTHING)
def finalize_dump(run: Simulator) -> None:
    """End dumping."""
    del run
