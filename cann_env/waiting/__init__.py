"""Why commands started when they did: the chain that made the makespan, and what each command waited for."""

from __future__ import annotations

from cann_env.waiting.chain import PARTS, RUNS, Chain, Hop, Link, Part, critical_chain
from cann_env.waiting.delays import Cause, Delay, Stretch, delays
from cann_env.waiting.stalls import Holder, StallOf, holders, stalls

__all__ = [
    "PARTS",
    "RUNS",
    "Cause",
    "Chain",
    "Delay",
    "Holder",
    "Hop",
    "Link",
    "Part",
    "StallOf",
    "Stretch",
    "critical_chain",
    "delays",
    "holders",
    "stalls",
]
