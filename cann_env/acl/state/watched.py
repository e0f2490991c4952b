"""Arrays over host memory that a program shares with the device: they say when they are read or written.

An array that was made once and is used again and again tells nothing by being made. This one notices what
goes through numpy; what reads its memory past numpy's hooks (``np.array(x)``, a C library) counts as read
when the array was made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from cann_env.acl.api import site
from cann_env.acl.state.managed import come_to_host
from cann_env.acl.state.memory import Range

if TYPE_CHECKING:
    from collections.abc import Callable

    from cann_env.acl.state.memory import Allocation
    from cann_env.acl.state.order import HostAccess
    from cann_env.acl.state.simulator import Simulator


class _Watch:
    """Where touches of an array, and of those made of it, are told."""

    def __init__(self, run: Simulator, allocation: Allocation, supposed: HostAccess) -> None:
        self._run = run
        self._allocation = allocation
        self._supposed = supposed

    def touch(self, array: np.ndarray[Any, Any], *, writes: bool) -> None:
        """An array is read or written now."""
        allocation, run = self._allocation, self._run
        first, last = _bounds(array)
        base = int(allocation.bytes().ctypes.data)
        inside = base <= first and last <= base + allocation.size
        if first >= last or not inside:
            return
        with run.turn():
            self._supposed.dropped = True
            if allocation.freed:
                run.evidence.misuse(allocation.name, allocation.freed, site())
                return
            run.settle()
            memory = Range(allocation, first - base, last - first)
            come_to_host(run, memory, site())
            run.touch_by_host(memory, writes=writes, site=site(), what="the program")


def _bounds(array: np.ndarray[Any, Any]) -> tuple[int, int]:
    """First address of an array, and one past its last."""
    first = last = int(array.__array_interface__["data"][0])
    if array.size == 0:
        return first, first
    for length, stride in zip(array.shape, array.strides, strict=True):
        if stride < 0:
            first += (length - 1) * stride
        else:
            last += (length - 1) * stride
    return first, last + array.itemsize


class Watched(np.ndarray[Any, Any]):
    """An array that tells when it is used."""

    _watch: _Watch | None

    def __array_finalize__(self, made_of: object) -> None:
        self._watch = getattr(made_of, "_watch", None)

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        if isinstance(found, Watched):
            if np.may_share_memory(_plain(found), _plain(self)):
                return found
            _told(self, writes=False)
            return _plain(found)
        _told(self._at(key), writes=False)
        return found

    def __setitem__(self, key: Any, value: Any) -> None:
        _told(self._at(key), writes=True)
        super().__setitem__(key, _read(value))

    def _at(self, key: Any) -> np.ndarray[Any, Any]:
        """The part of the array that a key names, or all of it."""
        keys = key if isinstance(key, tuple) else (key,)
        if any(part is Ellipsis for part in keys):
            part = _plain(self)[key]
        elif all(isinstance(part, (int, slice, np.integer)) for part in keys):
            part = _plain(self)[(*keys, Ellipsis)]
        else:
            return self
        part = np.asarray(part)
        return _watching(part, self._watch) if np.may_share_memory(part, _plain(self)) else self

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if method == "at" and isinstance(inputs[0], Watched):
            _told(inputs[0], writes=True)
        plain = [_read(value) for value in inputs]
        named = {name: value if name == "out" else _read(value) for name, value in kwargs.items()}
        given = named.get("out")
        if given is not None:
            named["out"] = tuple(_written(value) for value in given)
        result = getattr(ufunc, method)(*plain, **named)
        return given[0] if given is not None and len(given) == 1 else result

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if function in _VIEWS:
            return super().__array_function__(function, types, args, kwargs)
        if function in _WRITERS and args:
            args = (_written(args[0]), *args[1:])
        if isinstance(kwargs.get("out"), Watched):
            kwargs = {**kwargs, "out": _written(kwargs["out"])}
        return function(*_read_all(args), **_read_all(kwargs))

    def __iter__(self) -> Any:
        return (self[i] for i in range(len(self)))


def watched(run: Simulator, memory: Range, array: np.ndarray[Any, Any], supposed: HostAccess) -> Watched:
    """An array over memory that tells what is done to it.

    Args:
        run: The run.
        memory: What it shows.
        array: The array.
        supposed: A read that is taken to have happened until the array tells of one.
    """
    return _watching(array, _Watch(run, memory.allocation, supposed))


def _watching(array: np.ndarray[Any, Any], watch: _Watch | None) -> Watched:
    made = array.view(Watched)
    made._watch = watch
    return made


_WRITERS: Final = (np.copyto, np.put, np.place, np.putmask, np.fill_diagonal, np.put_along_axis)
_VIEWS: Final = (
    np.reshape, np.ravel, np.transpose, np.squeeze, np.expand_dims, np.swapaxes, np.moveaxis, np.split,
    np.array_split, np.shape, np.ndim, np.size, np.shares_memory, np.may_share_memory,
)  # fmt: skip
_READING: Final = (
    "tobytes", "tolist", "copy", "astype", "sum", "mean", "max", "min", "argmax", "argmin", "any", "all",
    "prod", "std", "var", "cumsum", "cumprod", "dot", "item", "tofile", "nonzero", "round", "clip", "repeat",
    "take", "argsort", "flatten", "trace", "choose", "compress", "searchsorted", "dump", "dumps",
    "__repr__", "__str__", "__float__", "__int__", "__bool__", "__complex__", "__index__", "__contains__",
    "__copy__", "__deepcopy__", "__reduce__", "__reduce_ex__", "__format__",
)  # fmt: skip
_WRITING: Final = ("fill", "sort", "partition", "put", "setfield")


def _using(name: str, *, writes: bool) -> Callable[..., Any]:
    def method(self: Watched, *args: Any, **named: Any) -> Any:
        _told(self, writes=writes)
        return getattr(_plain(self), name)(*args, **named)

    method.__name__ = name
    return method


for _name in _READING:
    setattr(Watched, _name, _using(_name, writes=False))
for _name in _WRITING:
    setattr(Watched, _name, _using(_name, writes=True))


def _plain(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return array.view(np.ndarray)


def _told(array: np.ndarray[Any, Any], *, writes: bool) -> None:
    watch = getattr(array, "_watch", None)
    if watch is not None:
        watch.touch(_plain(array), writes=writes)


def _read(value: Any) -> Any:
    if not isinstance(value, Watched):
        return value
    _told(value, writes=False)
    return _plain(value)


def _written(value: Any) -> Any:
    if not isinstance(value, Watched):
        return value
    _told(value, writes=True)
    return _plain(value)


def _read_all(value: Any) -> Any:
    """The same with plain arrays, in lists, tuples and mappings."""
    if isinstance(value, dict):
        return {key: _read_all(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)) and type(value) in (list, tuple):
        return type(value)(_read_all(part) for part in value)
    return _read(value)
