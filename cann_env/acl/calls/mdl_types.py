"""Types of numbers and layouts of tensors, as the interface numbers them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from cann_env.acl import codes
from cann_env.acl import constants as const
from cann_env.acl.codes import Refused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cann_env.acl.state.simulator import Simulator


class Type(NamedTuple):
    """A type of numbers: as the interface numbers it, and as numpy holds it."""

    number: int
    held: np.dtype[Any]


TYPES: Final = {
    "float32": Type(const.ACL_FLOAT, np.dtype(np.float32)),
    "float16": Type(const.ACL_FLOAT16, np.dtype(np.float16)),
    "int8": Type(const.ACL_INT8, np.dtype(np.int8)),
    "int32": Type(const.ACL_INT32, np.dtype(np.int32)),
    "uint8": Type(const.ACL_UINT8, np.dtype(np.uint8)),
    "int16": Type(const.ACL_INT16, np.dtype(np.int16)),
    "uint16": Type(const.ACL_UINT16, np.dtype(np.uint16)),
    "uint32": Type(const.ACL_UINT32, np.dtype(np.uint32)),
    "int64": Type(const.ACL_INT64, np.dtype(np.int64)),
    "uint64": Type(const.ACL_UINT64, np.dtype(np.uint64)),
    "float64": Type(const.ACL_DOUBLE, np.dtype(np.float64)),
    "bool": Type(const.ACL_BOOL, np.dtype(np.bool_)),
    "complex64": Type(const.ACL_COMPLEX64, np.dtype(np.complex64)),
    "complex128": Type(const.ACL_COMPLEX128, np.dtype(np.complex128)),
    "bfloat16": Type(const.ACL_BF16, np.dtype(np.uint16)),
}
"""Types by name; bfloat16 is held by the bits."""

NAMES: Final = {kind.number: name for name, kind in TYPES.items()}


class Tensor(NamedTuple):
    """What goes into a model or comes out of it.

    Attributes:
        name: As in the model.
        dtype: One of :data:`TYPES`.
        shape: With -1 for sizes that are chosen for each execution.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]

    def bytes_at(self, shape: Sequence[int]) -> int:
        """Bytes of it at a shape."""
        return math.prod(shape) * TYPES[self.dtype].held.itemsize

    @property
    def format(self) -> int:
        """What a converted model says of its layout."""
        return const.ACL_FORMAT_NCHW if len(self.shape) == 4 else const.ACL_FORMAT_ND


def thing(run: Simulator, handle: object, kind: type[Any], what: str) -> Any:
    """An object of the program by handle.

    Raises:
        Refused: There is none of that kind.
    """
    found = run.things.get(handle) if isinstance(handle, int) else None
    if not isinstance(found, kind):
        raise Refused(codes.INVALID_PARAM, f"{what} {handle!r} does not exist{run.gone(handle)}")
    return found


def whole(value: object, what: str, least: int = 0) -> int:
    """A whole number of a call.

    Raises:
        Refused: It is none, or less than it may be.
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise Refused(codes.INVALID_PARAM, f"{what} is {value!r}; pass a whole number from {least}")
    return value


def text(value: object, what: str) -> str:
    """A string of a call.

    Raises:
        Refused: It is none.
    """
    if not isinstance(value, str):
        raise Refused(codes.INVALID_PARAM, f"{what} is {value!r}; pass a string")
    return value
