"""A run as plain JSON, and back: graph, device, options, decisions and noise, exactly.

The device is kept whole, so that a later edit of a device file does not change what the run was. Records
are written as lists of their fields' values; the names of the fields stand once, in a table of types.
Reading follows the annotations of the same classes and refuses what they do not know.
"""

from __future__ import annotations

import enum
import hashlib
import json
import types
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Union, get_args, get_origin, get_type_hints

from cann_env.device.spec import DeviceSpec
from cann_env.graph import CommandGraph
from cann_env.options import RunOptions
from cann_env.units import InputError

if TYPE_CHECKING:
    from cann_env.schedule import Schedule

FORMAT: Final = "cann_env run"
VERSION: Final = 1
EVENT_NAME: Final = "cann_env_run"
"""Name of the metadata event that carries an archive in a trace that is a list of events."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """All it takes to make a schedule once more.

    Attributes:
        graph, device, options: What was run, on what, and how.
        actions: The decisions, in order.
        noise: Factor on each command's duration, in units of 2**-20.
    """

    graph: CommandGraph
    device: DeviceSpec
    options: RunOptions
    actions: tuple[int, ...]
    noise: tuple[int, ...]


_PARTS: Final[dict[str, Any]] = {
    "graph": CommandGraph,
    "device": DeviceSpec,
    "options": RunOptions,
    "actions": tuple[int, ...],
    "noise": tuple[int, ...],
}
"""What an archive holds, by attribute."""


def archive_of(schedule: Schedule) -> Archive:
    """What made a schedule."""
    return Archive(
        graph=schedule.graph,
        device=schedule.device,
        options=schedule.options,
        actions=schedule.actions,
        noise=schedule.noise,
    )


def to_json(archive: Archive) -> dict[str, Any]:
    """Write an archive as JSON data: dicts with text keys, lists, text, numbers, booleans and None.

    Returns:
        ``format`` and ``version``, ``types`` (names of the fields of each class), one key for each
        attribute of :class:`Archive`, and ``sha256`` of all the rest. Equal archives give equal data.
    """
    body = {
        "format": FORMAT,
        "version": VERSION,
        "types": {kind.__name__: [field.name for field in fields(kind)] for kind in _kinds().values()},
        **{name: _plain(getattr(archive, name)) for name in _PARTS},
    }
    return {**body, "sha256": _digest(body)}


def from_json(data: object) -> Archive:
    """Read what :func:`to_json` wrote.

    A field that the data do not have takes its default, if its class gives it one: it came later.

    Raises:
        InputError: The data are no archive, of another version, altered since they were written, or hold
            something that this version does not know; says what.
    """
    body = _checked_frame(data)
    tables = _checked_types(body["types"])
    return Archive(**{name: _read(hint, body[name], name, tables) for name, hint in _PARTS.items()})


def _checked_frame(data: object) -> dict[str, Any]:
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise InputError(f"archive: the key 'format' must be {FORMAT!r}; this is no archive of a run")
    if data.get("version") != VERSION:
        raise InputError(f"archive: its version is {data.get('version')!r}; this package reads {VERSION}")
    known = ("format", "version", "types", *_PARTS, "sha256")
    for key in data:
        if key not in known:
            raise InputError(f"archive: unknown key {key!r}; it has {', '.join(known)}")
    for key in known:
        if key not in data:
            raise InputError(f"archive: the key {key!r} is missing")
    body = {key: value for key, value in data.items() if key != "sha256"}
    if data["sha256"] != _digest(body):
        raise InputError("archive: it was altered since it was written (its 'sha256' is another one)")
    return body


def _checked_types(table: object) -> dict[type, list[str]]:
    """Names of the fields of each class, in the order in which the data give their values."""
    if not isinstance(table, dict):
        raise InputError(f"archive: 'types' is {table!r}; it must name the fields of each class")
    known = _kinds()
    found = {}
    for name, names in table.items():
        if name not in known:
            raise InputError(f"archive: unknown type {name!r}; there are {', '.join(known)}")
        kind = known[name]
        having = {field.name: field for field in fields(kind)}
        named = isinstance(names, list) and all(isinstance(field, str) for field in names)
        _demand(named, names, f"types.{name}", "a list of names")
        for field in names:
            if field not in having:
                raise InputError(f"archive: a {name} has no field {field!r}; it has {', '.join(having)}")
        for field in having.values():
            required = field.default is MISSING and field.default_factory is MISSING
            if required and field.name not in names:
                raise InputError(f"archive: a {name} needs the field {field.name!r}")
        found[kind] = list(names)
    return found


def _digest(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


# --- out ----------------------------------------------------------------------------------------------


def _plain(value: object) -> Any:
    if isinstance(value, enum.Enum):
        return value.value
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if is_dataclass(value):
        return [_plain(getattr(value, field.name)) for field in fields(value)]
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, Sequence):
        return [_plain(item) for item in value]
    raise InputError(f"archive: {value!r} of type {type(value).__name__} has no place in it")


# --- in -----------------------------------------------------------------------------------------------


@cache
def _hints(kind: type) -> dict[str, Any]:
    """Annotations of the fields of a class, as types."""
    hints = get_type_hints(kind, localns={"Mapping": Mapping, "Sequence": Sequence})
    return {field.name: hints[field.name] for field in fields(kind)}


@cache
def _kinds() -> dict[str, type]:
    """All classes an archive may hold, by name, in the order in which they are met."""
    found: dict[str, type] = {}

    def visit(hint: Any) -> None:
        if is_dataclass(hint) and isinstance(hint, type) and hint.__name__ not in found:
            found[hint.__name__] = hint
            for inner in _hints(hint).values():
                visit(inner)
        for inner in get_args(hint):
            visit(inner)

    for hint in _PARTS.values():
        visit(hint)
    return found


def _read(hint: Any, value: Any, where: str, tables: Mapping[type, list[str]]) -> Any:
    """A value of the type that an annotation names.

    Args:
        hint: The annotation.
        value: What the data hold.
        where: Names the place, for messages.
        tables: Names of the fields of each class, in the order of the data.
    """
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        inner = [option for option in get_args(hint) if option is not type(None)]
        return None if value is None else _read(inner[0], value, where, tables)
    if origin is tuple:
        return _read_tuple(get_args(hint), value, where, tables)
    if origin is Mapping:
        _demand(isinstance(value, dict), value, where, "an object")
        inside = get_args(hint)[1]
        return {key: _read(inside, item, f"{where}.{key}", tables) for key, item in value.items()}
    if is_dataclass(hint):
        return _read_record(hint, value, where, tables)
    return _read_scalar(hint, value, where)


def _read_tuple(
    inside: tuple[Any, ...], value: Any, where: str, tables: Mapping[type, list[str]]
) -> tuple[Any, ...]:
    _demand(isinstance(value, list), value, where, "a list")
    if len(inside) == 2 and inside[1] is Ellipsis:
        inside = (inside[0],) * len(value)
    _demand(len(inside) == len(value), value, where, f"a list of {len(inside)}")
    return tuple(
        [
            _read(hint, item, f"{where}[{i}]", tables)
            for i, (hint, item) in enumerate(zip(inside, value, strict=True))
        ]
    )


def _read_record(kind: Any, value: Any, where: str, tables: Mapping[type, list[str]]) -> Any:
    if kind not in tables:
        raise InputError(f"archive: {where} is a {kind.__name__}, whose fields 'types' does not name")
    names, hints = tables[kind], _hints(kind)
    _demand(isinstance(value, list) and len(value) == len(names), value, where, f"a list of {len(names)}")
    return kind(
        **{
            name: _read(hints[name], item, f"{where}.{name}", tables)
            for name, item in zip(names, value, strict=True)
        }
    )


def _read_scalar(hint: Any, value: Any, where: str) -> Any:
    if issubclass(hint, enum.Enum):
        words = [member.value for member in hint]
        _demand(value in words, value, where, f"one of {', '.join(map(repr, words))}")
        return hint(value)
    if hint is float:
        _demand(type(value) in (int, float), value, where, "a number")
        return value
    _demand(type(value) is hint, value, where, _WORDS[hint])
    return value


_WORDS: Final = {int: "a whole number", str: "text", bool: "true or false"}


def _demand(holds: bool, value: object, where: str, wanted: str) -> None:
    if not holds:
        raise InputError(f"archive: {where} is {str(value)[:80]!r}; it must be {wanted}")
