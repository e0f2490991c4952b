"""Files to start from: scenarios and devices with every key, its unit, its meaning and its default."""

from __future__ import annotations

from cann_env.templates.device import device_template
from cann_env.templates.scenario import scenario_template

__all__ = ["device_template", "scenario_template"]
