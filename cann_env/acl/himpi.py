"""``acl.himpi``: not simulated; its calls are refused with what to do instead."""

from __future__ import annotations

from typing import Any

from cann_env.acl.calls.refused import refused


def __getattr__(name: str) -> Any:
    return refused("acl.himpi", name, "decode, encode, crop and resize images on the host")
