"""A device file with every key: the values of a device to start from, each marked as assumed.

Meanings come from the docstrings of the device's classes, units and bounds from the table of keys.
"""

from __future__ import annotations

from decimal import Decimal
from itertools import groupby
from typing import TYPE_CHECKING, Final

from cann_env.device.keys import FLAG, KEYS, PRODUCT, STREAMING, Key
from cann_env.device.load import device_values
from cann_env.device.spec import (
    ASSUMED,
    ClassSpec,
    DeviceSpec,
    DispatchSpec,
    HostSpec,
    LimitSpec,
    LinkSpec,
    MemorySpec,
    ProductSpec,
    StreamingSpec,
)
from cann_env.docstrings import notes_of, summary_of
from cann_env.templates.lines import comment, value

if TYPE_CHECKING:
    from collections.abc import Mapping

LIKE: Final = "ascend910b2"

_DIGITS = 6

_SPECS: Final[dict[str, type]] = {
    PRODUCT: ProductSpec,
    STREAMING: StreamingSpec,
    "classes": ClassSpec,
    "links": LinkSpec,
    "memory": MemorySpec,
    "limits": LimitSpec,
    "host": HostSpec,
    "dispatch": DispatchSpec,
}
"""Which class the keys of a table fill."""

_HEAD = """\
# A device: what a chip can do, started from {like}. Every value is one that somebody has to stand behind:
# "source" is "measured", "documented" or "{assumed}", "note" says by what. All say "{assumed}" until
# you know better.
# Use it:   cann-env compare pipeline --device {file}
# In a scenario beside this file:   device = "{file}"

# What it is sold as.
title = {title}
# true if recorded traces of it exist that the values were fitted to.
calibrated = false
"""


def device_template(name: str, like: str = LIKE) -> str:
    """Write a device file.

    Args:
        name: Of the device: the file's without its ending.
        like: Name or path of the device whose values it starts with.

    Raises:
        InputError: There is no such device.
    """
    values = device_values(like)
    head = _HEAD.format(like=like, assumed=ASSUMED, file=f"{name}.toml", title=value(name))
    lines = [head.rstrip("\n")]
    for group, keys in groupby(KEYS.values(), key=lambda key: _group(key.path)):
        lines += ["", *_heading(group)]
        said = None
        for key in keys:
            notes = comment(_notes(key))
            lines += [*(notes if notes != said else []), _entry(key, values, like)]
            said = notes
    return "\n".join(lines) + "\n"


def meaning(path: str) -> str:
    """What a key of a device file means."""
    spec, field = _filled(path)
    note = notes_of(spec)[field]
    return f"{note.partition('. ')[0].rstrip('.')}." if spec is DeviceSpec else note


def _filled(path: str) -> tuple[type, str]:
    """The class and the field that a key fills; of a rate or a demand the field that holds all of them."""
    top = path.rpartition(".")[0]
    parent = top.rpartition(".")[2]
    if parent in ("demand", "flops_per_cycle"):
        return ClassSpec, parent
    if top == "pools":
        return DeviceSpec, "pools"
    spec = next((each for group, each in _SPECS.items() if top == group), None)
    spec = spec or _SPECS.get(top.partition(".")[0], DeviceSpec)
    return spec, KEYS[path].field


def _group(path: str) -> str:
    """The table of TOML in which a key stands; demands and rates stand with their class."""
    words = path.split(".")[:-1]
    return ".".join(words[:-1] if words[-1:] and words[-1] in ("demand", "flops_per_cycle") else words)


def _heading(group: str) -> list[str]:
    if not group:
        return []
    spec = _SPECS.get(group) or _SPECS.get(group.partition(".")[0])
    about = "" if spec is None else summary_of(spec)
    return [*comment(about), f"[{group}]"] if about else [f"[{group}]"]


def _notes(key: Key) -> str:
    """What a key means, its units and its bound."""
    bound = "" if key.unit is FLAG else f"; {key.bound.words}"
    return f"{meaning(key.path)} (in {', '.join(key.unit.scale)}{bound})"


def _entry(key: Key, values: Mapping[str, int | float], like: str) -> str:
    """A key with its value; one that the device to start from leaves out is a comment."""
    given = values.get(key.path)
    word = key.path.removeprefix(f"{_group(key.path)}.")
    if given is not None:
        number, unit = _written(given, key)
        return f"{word} = {_leaf(number, unit, f'as of {like}')}"
    none = "0" if ".demand." in key.path else "1"
    leaf = _leaf("false" if key.unit is FLAG else none, next(iter(key.unit.scale)), "replace it")
    return f"# {word} = {leaf}"


def _leaf(number: str, unit: str, note: str) -> str:
    return f'{{ value = {number}, unit = "{unit}", source = "{ASSUMED}", note = {value(note)} }}'


def _written(given: int | float, key: Key) -> tuple[str, str]:
    """A value and its unit, the largest in which it has few digits."""
    if isinstance(given, bool):
        return value(given), next(iter(key.unit.scale))
    exact = Decimal(repr(given))
    for unit, scale in sorted(key.unit.scale.items(), key=lambda item: -item[1]):
        number = (exact / scale).normalize()
        if number >= 1 and len(number.as_tuple().digits) <= _DIGITS and number * scale == exact:
            return f"{number:f}", unit
    return f"{exact.normalize():f}", next(unit for unit, scale in key.unit.scale.items() if scale == 1)
