"""From a graph, a device and options to a program image: needs, kernels, memory, tables, then the image."""

from __future__ import annotations

from cann_env.lowering.image import lower
from cann_env.lowering.memory import aligned_sizes, frugal_order, operand_modes
from cann_env.lowering.needs import Needs, serial_order

__all__ = ["Needs", "aligned_sizes", "frugal_order", "lower", "operand_modes", "serial_order"]
