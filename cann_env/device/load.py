"""Reads device files: TOML -> readings (value and source by dotted key) -> :class:`DeviceSpec`.

A file gives every value as ``{ value = 24, unit = "cores", source = "documented", note = "..." }``. It
may start with ``extends = "ascend910b2"`` (a shipped device, or the path of another file) and then
needs only the keys it changes. What may stand in a file is the table in :mod:`cann_env.device.keys`.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from cann_env.device.keys import FLAG, KERNEL_CLASSES, KEYS, PRODUCT, STREAMING, Key
from cann_env.device.spec import (
    CLASSES,
    LINKS,
    POOLS,
    ClassSpec,
    DeviceSpec,
    DispatchSpec,
    HostSpec,
    LimitSpec,
    LinkSpec,
    MemorySpec,
    ProductSpec,
    Source,
    StreamingSpec,
)
from cann_env.paths import config_folder
from cann_env.spelling import did_you_mean
from cann_env.units import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

SOURCE_KINDS = ("measured", "documented", "assumed")

_LEAF = ("value", "unit", "source", "note")
_SMALLEST, _LARGEST, _DIGITS = Decimal("1e-9"), 2**53, 30
_GROUPS = frozenset(
    path.rsplit(".", cut)[0] for path in KEYS for cut in range(1, path.count(".") + 1) if "." in path
)


@dataclass(slots=True)
class _Readings:
    """What a file says, or a file on top of the one it extends."""

    file: Path
    title: str | None = None
    calibrated: bool | None = None
    values: dict[str, Any] = field(default_factory=dict)
    sources: dict[str, Source] = field(default_factory=dict)

    def fail(self, key: str, problem: str) -> NoReturn:
        raise InputError(f"{self.file}: {key}: {problem}")


def device_names() -> tuple[str, ...]:
    """Names of the shipped devices, in alphabetical order."""
    return tuple(sorted(path.stem for path in config_folder("devices").glob("*.toml")))


def load_device(name_or_path: str | Path) -> DeviceSpec:
    """Read a device.

    Args:
        name_or_path: Name of a shipped device in any case, for example ``"ascend910b2"``; or the path of
            a device file, which ends in ``.toml``. The device is named after its file.

    Raises:
        InputError: The name is not known, or the file cannot be used: names the file, the dotted key,
            and what would be right.
    """
    readings = _read(_find(name_or_path, Path()), ())
    _check(readings)
    return _build(readings)


def device_values(name_or_path: str | Path) -> Mapping[str, int | float]:
    """The values of a device file by dotted key, each in the unit of the field that it fills.

    Raises:
        InputError: As :func:`load_device`.
    """
    readings = _read(_find(name_or_path, Path()), ())
    _check(readings)
    return readings.values


def _find(name_or_path: str | Path, folder: Path) -> Path:
    if isinstance(name_or_path, Path) or name_or_path.lower().endswith(".toml"):
        return folder / name_or_path
    name = name_or_path.lower()
    if name not in device_names():
        raise InputError(
            f"device {name_or_path!r} is not known; {did_you_mean(name, device_names())}"
            f"write one of {', '.join(device_names())}, "
            "or the path of a .toml file"
        )
    return config_folder("devices") / f"{name}.toml"


def _parse(file: Path) -> dict[str, Any]:
    try:
        text = file.read_text(encoding="utf-8")
        return tomllib.loads(text, parse_float=_decimal)
    except OSError as error:
        raise InputError(f"{file}: cannot be read as a device file: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{file}: is not UTF-8 text: byte {error.start}: {error.reason}") from error
    except tomllib.TOMLDecodeError as error:
        lines = text.splitlines() or [""]
        end = f"at line {len(lines)}, column {len(lines[-1]) + 1}"
        message = str(error).replace("at end of document", end)
        raise InputError(f"{file}: is not valid TOML: {message}") from error


def _decimal(text: str) -> Decimal:
    """A number as written; one whose exponent no decimal can hold is no number."""
    try:
        return Decimal(text)
    except InvalidOperation:
        return Decimal("NaN")


def _read(file: Path, above: tuple[Path, ...]) -> _Readings:
    """Readings of ``file`` on top of those of the file it extends; ``above`` are the files that extend it."""
    if file.resolve() in above:
        raise InputError(f"{file}: extends: the files extend each other in a circle; one must be complete")
    tree = _parse(file)
    readings = _Readings(file)
    base = tree.pop("extends", None)
    if base is not None:
        if not isinstance(base, str):
            readings.fail("extends", f"is {base!r}; write a device name or the path of a .toml file")
        readings = _read(_find(base, file.parent), (*above, file.resolve()))
        readings.file = file
    _take_words(readings, tree)
    _walk(readings, tree, "")
    return readings


def _take_words(readings: _Readings, tree: dict[str, Any]) -> None:
    """Take the two entries that are not values: what the device is sold as, and whether it was calibrated."""
    title = tree.pop("title", readings.title)
    if not isinstance(title, str) or not title:
        readings.fail("title", f"is {title!r}; write what the device is sold as, in quotes")
    calibrated = tree.pop("calibrated", readings.calibrated)
    if not isinstance(calibrated, bool):
        readings.fail(
            "calibrated", f"is {calibrated!r}; write true if recorded traces of it exist, else false"
        )
    readings.title, readings.calibrated = title, calibrated


def _walk(readings: _Readings, tree: dict[str, Any], prefix: str) -> None:
    for word, node in tree.items():
        path = prefix + word
        if path in KEYS:
            _read_value(readings, KEYS[path], node)
        elif path not in _GROUPS:
            readings.fail(path, f"is not a key of a device file; {_known(prefix, word)}")
        elif isinstance(node, dict):
            _walk(readings, node, path + ".")
        else:
            readings.fail(path, f"is {node!r}; it is a table of keys")


def _known(prefix: str, word: str) -> str:
    words = dict.fromkeys(path.removeprefix(prefix).split(".")[0] for path in KEYS if path.startswith(prefix))
    kind = "pools" if prefix.endswith(".demand.") else "keys"
    return f"{did_you_mean(word, words)}the known {kind} here are {', '.join(words)}"


def _read_value(readings: _Readings, key: Key, node: Any) -> None:
    if not isinstance(node, dict) or set(node) != set(_LEAF):
        unit = next(iter(key.unit.scale))
        readings.fail(
            key.path,
            f'is {_show(node)}; write {{ value = ..., unit = "{unit}", source = "...", note = "..." }}',
        )
    readings.sources[key.path] = _source(readings, key, node)
    unit, value = node["unit"], node["value"]
    if not isinstance(unit, str) or unit not in key.unit.scale:
        near = did_you_mean(unit, key.unit.scale)
        readings.fail(key.path, f"has unit {unit!r}; {near}write one of {', '.join(key.unit.scale)}")
    if key.unit is FLAG:
        if not isinstance(value, bool):
            readings.fail(key.path, f"has value {value!r}; write true or false")
        readings.values[key.path] = value
        return
    readings.values[key.path] = _amount(readings, key, value, unit)


def _source(readings: _Readings, key: Key, node: dict[str, Any]) -> Source:
    kind = node["source"]
    if kind not in SOURCE_KINDS:
        near = did_you_mean(kind, SOURCE_KINDS)
        readings.fail(key.path, f"has source {kind!r}; {near}write one of {', '.join(SOURCE_KINDS)}")
    if not isinstance(node["note"], str) or not node["note"].strip():
        readings.fail(key.path, f"has note {node['note']!r}; say in a few words where the value comes from")
    return Source(kind=node["source"], note=node["note"])


def _amount(readings: _Readings, key: Key, value: Any, unit: str) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | Decimal) or not Decimal(value).is_finite():
        readings.fail(key.path, f"has value {_show(value)}; write a number")
    number = Decimal(value)
    if not key.bound.accepts(number):
        readings.fail(key.path, f"has value {value}; write a number {key.bound.words}")
    sane = abs(number.adjusted()) <= _DIGITS
    amount = number * key.unit.scale[unit] if sane else number
    if number and not (sane and _SMALLEST <= amount <= _LARGEST):
        readings.fail(key.path, f"has value {value} {unit}; no device is like that, is the unit right?")
    if not key.unit.whole:
        return float(amount)
    if amount != int(amount):
        smallest = next(iter(key.unit.scale))
        readings.fail(key.path, f"has value {value} {unit}; write a whole number of {smallest}")
    return int(amount)


def _show(node: Any) -> str:
    if isinstance(node, dict):
        return f"a table with {', '.join(node) or 'nothing'}"
    return str(node) if isinstance(node, Decimal) else repr(node)


def _check(readings: _Readings) -> None:
    """Check what no single key can: that nothing is missing, and that the values fit each other."""
    values = readings.values
    for key in KEYS.values():
        missing = key.path not in values
        if missing and (not key.optional or (key.path.startswith("links.die.") and values["dies"] > 1)):
            unit = next(iter(key.unit.scale))
            readings.fail(
                key.path,
                f'is missing; write {{ value = ..., unit = "{unit}", source = "...", note = "..." }}',
            )
    for name in CLASSES:
        _check_class(readings, name)
    for table in (PRODUCT, STREAMING):
        _check_table(readings, table)
    most = values["limits.max_streams"]
    if values["limits.max_concurrent_streams"] > most:
        active = values["limits.max_concurrent_streams"]
        readings.fail("limits.max_concurrent_streams", f"is {active}, more than the {most} of max_streams")


def _check_class(readings: _Readings, name: str) -> None:
    top = f"classes.{name}"
    demand = {pool: readings.values.get(f"{top}.demand.{pool}") for pool in POOLS}
    if all(cores is None for cores in demand.values()):
        readings.fail(f"{top}.demand", "is missing; name a pool, with value 0 if the device cannot run it")
    for pool, cores in demand.items():
        held = readings.values[f"pools.{pool}"]
        if cores is not None and cores > held:
            readings.fail(
                f"{top}.demand.{pool}",
                f"has value {cores}, but pool {pool!r} has {held} (pools.{pool}); write at most that",
            )
    if name in KERNEL_CLASSES and any(demand.values()) and not _under(readings, f"{top}.flops_per_cycle"):
        readings.fail(f"{top}.flops_per_cycle", "is missing; give the rate of at least one dtype")


def _check_table(readings: _Readings, table: str) -> None:
    """A file says all of how products of matrices, or work on tensors, go, or nothing."""
    given = _under(readings, table)
    for path, key in KEYS.items():
        if given and path.startswith(f"{table}.") and path not in readings.values:
            unit = next(iter(key.unit.scale))
            leaf = f'{{ value = ..., unit = "{unit}", source = "...", note = "..." }}'
            readings.fail(path, f"is missing, but the file gives others of its table; write {leaf}")


def _under(readings: _Readings, group: str) -> dict[str, Any]:
    """Values directly in a group, by the last word of their key."""
    prefix = group + "."
    return {path.removeprefix(prefix): v for path, v in readings.values.items() if path.startswith(prefix)}


def _fields(readings: _Readings, group: str) -> dict[str, Any]:
    """Values directly in a group, by the field they fill."""
    words = {word for word in _under(readings, group) if "." not in word}
    return {KEYS[f"{group}.{word}"].field: readings.values[f"{group}.{word}"] for word in words}


def _build(readings: _Readings) -> DeviceSpec:
    return DeviceSpec(
        name=readings.file.stem,
        title=str(readings.title),
        dies=readings.values["dies"],
        clock_hz=readings.values["clock"],
        pools={pool: readings.values[f"pools.{pool}"] for pool in POOLS},
        classes={name: _build_class(readings, name) for name in CLASSES},
        links=_build_links(readings),
        memory=MemorySpec(**_fields(readings, "memory")),
        limits=LimitSpec(**_fields(readings, "limits")),
        host=HostSpec(**_fields(readings, "host")),
        dispatch=DispatchSpec(**_fields(readings, "dispatch")),
        sources={path: readings.sources[path] for path in KEYS if path in readings.sources},
        calibrated=bool(readings.calibrated),
    )


def _build_class(readings: _Readings, name: str) -> ClassSpec:
    """An engine has no cost model of its own: its speed is its link's, its fixed cost that link's latency."""
    top = f"classes.{name}"
    engine = {
        "compute_efficiency": 1.0,
        "bytes_per_cycle": 0.0,
        "launch_base_ns": 0,
        "launch_per_block_ns": 0,
    }
    demand = _under(readings, f"{top}.demand")
    return ClassSpec(
        demand={pool: demand[pool] for pool in POOLS if demand.get(pool)},
        flops_per_cycle=_under(readings, f"{top}.flops_per_cycle"),
        **{**engine, **_fields(readings, top)},
        product=_build_product(readings) if PRODUCT.startswith(f"{top}.") else None,
        streaming=_build_streaming(readings) if STREAMING.startswith(f"{top}.") else None,
    )


def _build_product(readings: _Readings) -> ProductSpec | None:
    fields = _fields(readings, PRODUCT)
    return ProductSpec(**fields) if fields else None


def _build_streaming(readings: _Readings) -> StreamingSpec | None:
    fields = _fields(readings, STREAMING)
    return StreamingSpec(**fields) if fields else None


def _build_links(readings: _Readings) -> dict[str, LinkSpec]:
    """Links by name; a package of one die has no die link, and what would cross it stays in its HBM."""
    links = {
        name: LinkSpec(**{"shares_hbm": False, **_fields(readings, f"links.{name}")})
        for name in LINKS
        if f"links.{name}.bandwidth" in readings.values
    }
    links.setdefault("die", links["hbm"])
    return links
