"""From a graph, a device and options to a program image: needs, a serial order, tables, then the image."""

from __future__ import annotations

from cann_env.lowering.image import lower
from cann_env.lowering.needs import Needs
from cann_env.lowering.serial import serial_run

__all__ = ["Needs", "lower", "serial_run"]
