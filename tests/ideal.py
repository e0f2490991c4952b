"""Toy devices on which nothing costs time but the kernels, and a graph that crowds their memory."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from toys import toy_device, vector

from cann_env.device.spec import CLASSES
from cann_env.graph import Buffer, CommandGraph
from cann_env.options import RunOptions
from cann_env.program import compile_graph

if TYPE_CHECKING:
    from cann_env.program import Program

IDEAL = toy_device(
    pools={"aiv": 4},
    dispatch={"gap_ns": 0, "mix_switch_ns": 0},
    limits={"max_concurrent_streams": 16},
    classes={name: {"max_active": 16} for name in CLASSES},
)
"""Nothing costs time but the kernels."""

ROOMY = replace(IDEAL, pools={**IDEAL.pools, "aiv": 16})
"""The same with a core for everybody."""


def crowded() -> Program:
    """Room for 256 bytes; ``big`` has a long path behind it, but becomes ready when four others hold it all.

    ::

        p 0-110 -> big, 192 bytes -> end, long
        s0 to s5: 300, 280, 260, 240, 220, 200 ns, 64 bytes each
    """
    smalls = {f"s{i}": 290 - 20 * i for i in range(6)}
    commands = (
        vector("p"),
        vector("big", writes=("xbig",), after=("p",)),
        vector("end", 2000, after=("big",)),
        *(vector(name, length, writes=(f"x{name}",)) for name, length in smalls.items()),
    )
    buffers = (
        Buffer(name="xbig", size_bytes=192),
        *(Buffer(name=f"x{name}", size_bytes=64) for name in smalls),
    )
    graph = CommandGraph("crowded", commands, buffers)
    return compile_graph(graph, ROOMY, RunOptions(streams=9, hbm_bytes=256))
