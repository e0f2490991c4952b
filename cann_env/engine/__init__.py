"""The bare core: integers in flat arrays, compiled by Numba. No names, units, files or frameworks.

Use it through :mod:`cann_env.program` and the environments. The public kernels are imported here.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Image: TypeAlias = NDArray[np.int64]
"""A flat int64 array laid out as :mod:`cann_env.engine.layout` says."""
