"""Solvers: bounds of what any schedule can reach, and exact schedules.

Importing it makes the scheduler ``exact`` known, see :mod:`cann_env.solvers.exact`.
"""

from __future__ import annotations

from cann_env.solvers.exact import Exact

__all__ = ["Exact"]
