"""``acl.blas``: not simulated; its calls are refused with what to do instead."""

from __future__ import annotations

from typing import Any

from cann_env.acl.calls.refused import refused


def __getattr__(name: str) -> Any:
    return refused("acl.blas", name, "run products with acl.op (MatMul), or a model")
