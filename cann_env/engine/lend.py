"""Arrays that are lent to compiled functions instead of shared with them.

An array that Numba hands from function to function, and every row cut out of it, is counted as held by
one more and one less each time. What is lent is counted for nobody: its owner has to outlive the call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, cast

import numba
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

if TYPE_CHECKING:
    from collections.abc import Callable

Bundle = TypeVar("Bundle")


@intrinsic
def _lend(typing_context: Any, bundle: Any) -> Any:
    """The arrays of a tuple, without the note of who holds them."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        lent = []
        for kind, value in zip(bundle.types, cgutils.unpack_tuple(builder, args[0]), strict=True):  # type: ignore[no-untyped-call]
            make: Any = make_array(kind)  # type: ignore[no-untyped-call]
            array = make(context, builder, value)
            for field in ("meminfo", "parent"):
                setattr(array, field, cgutils.get_null_value(getattr(array, field).type))  # type: ignore[no-untyped-call]
            lent.append(array._getvalue())
        return context.make_tuple(builder, signature.return_type, lent)

    return bundle(bundle), codegen


def _same(bundle: Any) -> Any:
    return bundle


_compiled = numba.njit(_same) is not _same  # False with NUMBA_DISABLE_JIT
lend = cast("Callable[[Bundle], Bundle]", _lend if _compiled else _same)
"""A plain tuple of arrays as it is, in compiled code as loans."""
