"""Recordings played again: in the recorded streams and order, or in a better one."""

from cann_env.replay.comparison import Comparison
from cann_env.replay.own_trace import read_trace
from cann_env.replay.play import Replay, replay
from cann_env.workloads.recorded_device import device_of

__all__ = ["Comparison", "Replay", "device_of", "read_trace", "replay"]
