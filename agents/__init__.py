"""Learning agents on top of the environments, with Stable-Baselines3; run from a checkout.

``python -m agents.train`` trains one and compares it with the schedulers.
"""

from __future__ import annotations

from importlib.util import find_spec

if find_spec("sb3_contrib") is None:
    raise ImportError('the agents need Stable-Baselines3 and sb3-contrib: pip install -e ".[rl]"')
