"""Frozen dataclasses from and to the plain tables of TOML and JSON.

A table's keys are the fields of the class, its values are checked against the fields' types. Sizes and times
may be written with a unit (``"20 MiB"``, ``"5 us"``) where the field ends in ``_bytes`` or ``_ns``. A
workload's table names its kind. Every error names the place, the key, the value, and what would be right.
"""

from __future__ import annotations

import enum
import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from cann_env.spelling import did_you_mean
from cann_env.units import InputError, parse_size_bytes, parse_time_ns
from cann_env.workloads.description import Workload
from cann_env.workloads.kinds import KINDS

T = TypeVar("T")

_UNITS = {"_bytes": parse_size_bytes, "_ns": parse_time_ns}
_PLAIN = {
    bool: ("true or false", (bool,)),
    int: ("a whole number", (int,)),
    float: ("a number", (int, float)),
    str: ("a text in quotes", (str,)),
}


def read_workload(table: object, where: str) -> Workload:
    """Read a description of any kind; its table has the key ``kind`` beside the fields of the kind.

    Raises:
        InputError: See the module.
    """
    if not isinstance(table, Mapping):
        raise InputError(f"{where} is {table!r}; it is a table with the key 'kind'")
    kinds = ", ".join(KINDS)
    if "kind" not in table:
        raise InputError(f"{where}: key 'kind' is missing; write one of {kinds}")
    kind = table["kind"]
    if not isinstance(kind, str) or kind not in KINDS:
        near = did_you_mean(kind, KINDS)
        raise InputError(f"{where}: key 'kind' is {kind!r}; {near}write one of {kinds}")
    rest = {key: value for key, value in table.items() if key != "kind"}
    return read_table(KINDS[kind], rest, f"{where} of kind {kind!r}")


def write_workload(workload: Workload) -> dict[str, Any]:
    """Write a description as :func:`read_workload` reads it."""
    return {"kind": workload.kind, **write_table(workload)}


def read_table(cls: type[T], table: object, where: str) -> T:
    """Read a dataclass.

    Args:
        cls: What to make.
        table: Its fields by name; fields with a default may be left out.
        where: Begins the message of an error.

    Raises:
        InputError: See the module.
    """
    if not isinstance(table, Mapping):
        raise InputError(f"{where} is {table!r}; it is a table of keys")
    hints = get_type_hints(cls, localns={"Workload": Workload})
    known = [each for each in fields(cast("Any", cls)) if each.init]
    names = [each.name for each in known]
    for key in table:
        if key not in names:
            near = did_you_mean(key, names)
            raise InputError(f"{where}: key {key!r} is not known; {near}the keys here are {', '.join(names)}")
    for each in known:
        if each.name not in table and each.default is MISSING and each.default_factory is MISSING:
            raise InputError(f"{where}: key {each.name!r} is missing; write {_words(hints[each.name])}")
    values = {key: _read(hints[key], value, f"{where}: key {key!r}", key) for key, value in table.items()}
    try:
        return cls(**values)
    except InputError as error:
        raise InputError(f"{where}: {error}") from error


def read_field(cls: type[Any], key: str, value: object, where: str) -> Any:
    """Read one field of a dataclass; what holds only between fields is not checked.

    Raises:
        InputError: See the module.
    """
    names = [each.name for each in fields(cast("Any", cls)) if each.init]
    if key not in names:
        near = did_you_mean(key, names)
        raise InputError(f"{where}: key {key!r} is not known; {near}the keys here are {', '.join(names)}")
    hints = get_type_hints(cls, localns={"Workload": Workload})
    return _read(hints[key], value, f"{where}: key {key!r}", key)


def write_table(record: object) -> dict[str, Any]:
    """Write a dataclass as :func:`read_table` reads it, with every field."""
    return {each.name: _write(getattr(record, each.name)) for each in fields(cast("Any", record))}


def _read(hint: Any, value: object, where: str, key: str) -> Any:
    if get_origin(hint) in (types.UnionType, Union):
        if value is None:
            return None
        (hint,) = (each for each in get_args(hint) if each is not type(None))
    if get_origin(hint) is tuple:
        if not isinstance(value, list | tuple):
            raise InputError(f"{where} is {value!r}; write {_words(hint)}")
        item = get_args(hint)[0]
        return tuple(_read(item, each, f"{where}, item {i}", key) for i, each in enumerate(value))
    if hint is Workload:
        return read_workload(value, where)
    if is_dataclass(hint):
        return read_table(cast("type[Any]", hint), value, where)
    if issubclass(hint, enum.StrEnum):
        return _read_member(hint, value, where)
    return _read_plain(hint, value, where, key)


def _read_member(members: type[enum.StrEnum], value: object, where: str) -> enum.StrEnum:
    if not isinstance(value, str) or value not in tuple(members):
        near = did_you_mean(value, members)
        raise InputError(f"{where} is {value!r}; {near}write {_words(members)}")
    return members(value)


def _read_plain(hint: type, value: object, where: str, key: str) -> Any:
    unit = next((suffix for suffix in _UNITS if key.endswith(suffix)), None)
    if hint is int and unit and isinstance(value, str):
        try:
            return _UNITS[unit](value)
        except InputError as error:
            raise InputError(f"{where}: {error}") from error
    allowed = _PLAIN[hint][1]
    if not isinstance(value, allowed) or (isinstance(value, bool) and hint is not bool):
        raise InputError(f"{where} is {value!r}; write {_words(hint)}")
    return hint(value)


def words_of(cls: type[Any], key: str) -> str:
    """Say what the value of a field looks like, with the unit that its name tells."""
    hint = get_type_hints(cls, localns={"Workload": Workload})[key]
    if key.endswith("_bytes_per_s"):
        return "bytes a second"
    for suffix, unit in (
        ("_bytes", 'bytes, or a size such as "20 MiB"'),
        ("_ns", 'ns, or a time such as "5 us"'),
    ):
        if key.endswith(suffix):
            return unit
    return _words(hint)


def _words(hint: Any) -> str:
    """Say what a value of a type looks like."""
    if get_origin(hint) in (types.UnionType, Union):
        return _words(get_args(hint)[0])
    if get_origin(hint) is tuple:
        return f"a list, each item {_words(get_args(hint)[0])}"
    if hint is Workload:
        return "a table with the key 'kind'"
    if hint in _PLAIN:
        return _PLAIN[hint][0]
    if isinstance(hint, type) and issubclass(hint, enum.StrEnum):
        return f"one of {', '.join(hint)}"
    return "a table of keys"


def _write(value: object) -> Any:
    if isinstance(value, enum.StrEnum):
        return value.value
    if isinstance(value, tuple):
        return [_write(each) for each in value]
    if type(value) in KINDS.values():
        return write_workload(cast("Workload", value))
    if is_dataclass(value) and not isinstance(value, type):
        return write_table(value)
    return value
