"""From a graph, a device and options to a program image: kernels, memory, tables, then the image."""

from __future__ import annotations

from cann_env.lowering.image import lower
from cann_env.lowering.memory import aligned_sizes, frugal_order, operand_modes, serial_demand

__all__ = ["aligned_sizes", "frugal_order", "lower", "operand_modes", "serial_demand"]
