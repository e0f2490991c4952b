"""Devices: what a system-on-chip can do, and what work costs on it."""

from cann_env.device.load import device_names, load_device
from cann_env.device.spec import DeviceSpec

__all__ = ["DeviceSpec", "device_names", "load_device"]
