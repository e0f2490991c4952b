"""A call that fails takes nothing and no time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from onnx_files import node, write_model

import cann_env.acl as acl

if TYPE_CHECKING:
    from pathlib import Path

    from cann_env.acl.state.simulator import Simulator

rt = acl.rt


def begin() -> Simulator:
    """A device in use."""
    run = acl.simulate("ascend910b2")
    assert acl.init() == 0
    assert rt.set_device(0) == 0
    return run


def test_a_refused_wait_takes_no_time() -> None:
    """An event of the older kind that recorded nothing cannot be waited for."""
    run = begin()
    stream, event = rt.create_stream()[0], rt.create_event()[0]
    before = run.clock_ns
    assert rt.stream_wait_event(stream, event) == 107000
    assert run.clock_ns == before


def test_a_model_that_does_not_get_its_weights_takes_no_memory_for_its_work(tmp_path: Path) -> None:
    """Work memory is to come from the device, and the program's memory for weights is too small, or none."""
    path = tmp_path / "net.onnx"
    write_model(
        path, [node("MatMul", "x w", "y")], {"x": [8, 64]}, ["y"], {"w": np.ones((64, 64), np.float32)}
    )
    run = begin()
    own = rt.malloc(4096, 0)[0]
    used, count = run.device(0).used_bytes, len(run.memory.allocations)
    for weight, size, code in ((own, 1, 145007), (own, None, 100000), ([1], 1 << 20, 107000)):
        assert acl.mdl.load_from_file_with_mem(str(path), 0, 0, weight, size) == (0, code)
        assert (run.device(0).used_bytes, len(run.memory.allocations)) == (used, count)
