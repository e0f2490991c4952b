"""A scenario file with every key: what is set, and as comments what could be.

Meanings come from the docstrings of the classes that read the file, so that they are those of the code.
"""

from __future__ import annotations

import enum
import importlib
import inspect
import re
from dataclasses import MISSING, fields, is_dataclass
from typing import TYPE_CHECKING, Any, Final, get_type_hints

from cann_env.docstrings import notes_of, plain, summary_of
from cann_env.options import RunOptions
from cann_env.spelling import did_you_mean
from cann_env.templates.lines import comment, field_names, is_table, value
from cann_env.units import InputError
from cann_env.workloads.description import Workload
from cann_env.workloads.generated import CnnWorkload, LayeredWorkload
from cann_env.workloads.kinds import KINDS
from cann_env.workloads.tables import words_of, write_table

if TYPE_CHECKING:
    from collections.abc import Mapping

KIND: Final = "layered"
DEVICE: Final = "ascend910b2"

_REFERENCE = re.compile(r":(?:func|class):`~([\w.]+)`")

_NEEDED: Final[dict[str, dict[str, Any]]] = {
    "onnx": {"model": "squeezenet"},
    "onnx_serving": {"models": ("squeezenet",)},
    "pipeline": {"input_bytes": 2 << 20, "output_bytes": 2 << 20, "flops": 2_000_000_000},
    "serving": {"models": (LayeredWorkload(commands=12), CnnWorkload(modules=1, image=64))},
}
"""Values of keys that have no default, by kind: small ones, so that a first run takes no time."""

_EXAMPLES: Final[dict[str, Any]] = {
    "run_ahead": 32,
    "pool_bytes": "2 GiB",
    "pool_block_bytes": "2 MiB",
    "hbm_bytes": "16 GiB",
    "memory_factor": 0.8,
    "l2_bytes": "32 MiB",
    "l2_prefetch_bytes": "4 MiB",
}
"""What to write for options whose default is to leave them out."""

_HEAD = """\
# A scenario: what is run, on which device, and how.
# Run it:           cann-env run {file}
# Explain it:       cann-env explain {file}
# Compare it:       cann-env compare {file}
# In Python:        gymnasium.make("cann_env:cann/Random-v0", scenario="{file}")

[scenario]
# For tables and pictures.
name = {name}
# One sentence: what can be learned from it.
description = {description}
# A shipped device (cann-env devices lists them), or the path of a device file beside this one.
device = {device}
"""


def scenario_template(name: str, kind: str = KIND, device: str = DEVICE) -> str:
    """Write a scenario file.

    Args:
        name: Of the scenario.
        kind: Kind of the workload.
        device: Name of a device, or path of a device file as seen from the scenario's.

    Raises:
        InputError: The kind is not known.
    """
    if kind not in KINDS:
        raise InputError(
            f"kind {kind!r} is not known; {did_you_mean(kind, KINDS)}write one of {', '.join(KINDS)}"
        )
    workload = KINDS[kind](**_NEEDED.get(kind, {}))
    head = _HEAD.format(
        file=f"{name}.toml",
        name=value(name),
        description=value(f"A workload of kind {kind}."),
        device=value(device),
    )
    lines = [
        head,
        "[workload]",
        *comment(
            f"One of {', '.join(KINDS)}; each has keys of its own: cann-env new scenario NAME --kind KIND"
        ),
        f"kind = {value(kind)}",
        *_table(workload, "workload", meanings(type(workload))),
        "",
        "[options]",
        *comment(
            "Every option with its default; take away the # in front of one to change it. Of two that set "
            "one thing, such as memory_factor and hbm_bytes, at most one may be given."
        ),
        *_options(),
    ]
    return "\n".join(lines) + "\n"


def meanings(cls: type[Any]) -> Mapping[str, str]:
    """What each field of a description means: as its class says, or the shape or generator it refers to."""
    doc = "\n".join(each.__doc__ or "" for each in reversed(cls.__mro__) if each is not object)
    found: dict[str, str] = {}
    for path in _REFERENCE.findall(doc):
        module, _, name = path.rpartition(".")
        thing = getattr(importlib.import_module(module), name)
        found |= notes_of(thing)
        for shape in _shapes(thing, cls):
            found |= notes_of(shape)
    return {**found, **notes_of(cls)}


def _shapes(thing: object, cls: type[Any]) -> list[type[Any]]:
    """Dataclasses among the types of a function's parameters, as its room or that of a class knows them."""
    if not inspect.isfunction(thing):
        return []
    room = {
        **vars(importlib.import_module(cls.__module__)),
        **vars(importlib.import_module(thing.__module__)),
    }
    named = [room.get(str(each.annotation)) for each in inspect.signature(thing).parameters.values()]
    return [each for each in named if isinstance(each, type) and is_dataclass(each)]


def _table(record: Any, path: str, notes: Mapping[str, str]) -> list[str]:
    """The fields of a record, then those of its tables."""
    lines: list[str] = []
    defaults = {each.name: each.default for each in fields(record)}
    for key in field_names(record):
        given = getattr(record, key)
        if is_table(given):
            lines += _inner(given, f"{path}.{key}", notes[key])
            continue
        needed = " It has no default." if defaults[key] is MISSING else ""
        lines += comment(f"{_note(type(record), key, notes)} ({words_of(type(record), key)}){needed}")
        lines.append(f"{key} = {value(given)}")
    return lines


def _note(cls: type[Any], key: str, notes: Mapping[str, str]) -> str:
    """What a field means; what it refers to in place of the reference, where that is a set of words."""
    hint = get_type_hints(cls, localns={"Workload": Workload})[key]
    if notes[key].startswith("See ") and isinstance(hint, type) and issubclass(hint, enum.StrEnum):
        return plain(inspect.getdoc(hint) or "")
    return notes[key]


def _inner(given: Any, path: str, note: str) -> list[str]:
    if isinstance(given, tuple):
        lines = ["", *comment(f"{note} Each is a workload of any kind, with the keys of that kind.")]
        for each in given:
            lines += ["", f"[[{path}]]", *_changed(each)]
        return lines
    about = f"{note} {summary_of(type(given))}"
    return ["", *comment(about), f"[{path}]", *_table(given, path, notes_of(type(given)))]


def _changed(workload: Workload) -> list[str]:
    """A workload in short: its kind and what differs from the defaults."""
    usual = write_table(type(workload)(**_NEEDED.get(workload.kind, {})))
    own = {key: each for key, each in write_table(workload).items() if each != usual[key]}
    return [f"kind = {value(workload.kind)}", *(f"{key} = {value(each)}" for key, each in own.items())]


def _options() -> list[str]:
    notes, defaults = notes_of(RunOptions), RunOptions()
    lines: list[str] = []
    for key in field_names(defaults):
        given = getattr(defaults, key)
        example = _EXAMPLES[key] if given is None else given
        left_out = " Left out by default." if given is None else ""
        note = re.sub(r"\bNone (for|to)\b", r"left out \1", _note(RunOptions, key, notes))
        lines += comment(f"{note} ({words_of(RunOptions, key)}){left_out}")
        lines.append(f"# {key} = {value(example)}")
    return lines
