"""The bare core: integers in flat arrays, compiled by Numba. No names, units, files or frameworks.

Data flows one way: a program image and a state image go in, the state changes, features come out. Use it
through :mod:`cann_env.program` and the environments.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Image: TypeAlias = NDArray[np.int64]
"""A flat int64 array laid out as :mod:`cann_env.engine.layout` says."""

Features: TypeAlias = NDArray[Any]
"""A flat array of float32 (observation) or int8 (mask) that the caller owns."""
