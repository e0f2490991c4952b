"""Why commands started when they did: the chain that made the makespan, and what each command waited for."""

from __future__ import annotations

from cann_env.waiting.chain import PARTS, Chain, Link, Part, critical_chain
from cann_env.waiting.stalls import Holder, StallOf, holders, stalls

__all__ = ["PARTS", "Chain", "Holder", "Link", "Part", "StallOf", "critical_chain", "holders", "stalls"]
