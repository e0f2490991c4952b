"""``acl.prof``: not simulated; its calls are refused with what to do instead."""

from __future__ import annotations

from typing import Any

from cann_env.acl.refused import refused


def __getattr__(name: str) -> Any:
    return refused("acl.prof", name, "acl.simulator().schedules() has the times of everything")
