"""Scenarios: a device, a workload and the options of a run, read from ``configs/scenarios/*.toml``.

TOML or a plain dictionary -> :class:`Scenario` -> :class:`~cann_env.graph.CommandGraph`. Which graph it is
depends on the scenario, the seed, the environment index and the episode, and on nothing else.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy import integer
from numpy.random import PCG64, Generator, SeedSequence

from cann_env.device.load import device_names, load_device
from cann_env.options import RunOptions
from cann_env.paths import config_folder
from cann_env.program import compile_graph
from cann_env.spelling import did_you_mean
from cann_env.units import InputError
from cann_env.workloads.description import target_of
from cann_env.workloads.tables import read_table, read_workload, write_table, write_workload

if TYPE_CHECKING:
    from cann_env.device.spec import DeviceSpec
    from cann_env.graph import CommandGraph
    from cann_env.program import Program
    from cann_env.workloads.description import Target, Workload

_INSTANCES_KEPT = 64
_TABLES = ("scenario", "workload", "options")
_MEMORY = ("hbm_bytes", "memory_factor")


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """What is run, on what, and how.

    Attributes:
        name: For people; a shipped scenario is named after its file.
        description: One sentence: what can be learned from it.
        device: The device.
        workload: What is to be done.
        options: How it is run.
    """

    name: str
    description: str
    device: DeviceSpec
    workload: Workload
    options: RunOptions = field(default_factory=RunOptions)

    def graph(self, seed: int = 0, env_index: int = 0, episode: int = 0) -> CommandGraph:
        """Make the instance of one episode.

        Args:
            seed: Of the run.
            env_index: Which of several environments side by side.
            episode: Which episode of that environment.

        Returns:
            The same graph for the same three numbers, on every machine; of a fixed workload, for any.

        Raises:
            InputError: A number is negative, or not whole.
        """
        instance: dict[str, object] = {"seed": seed, "env_index": env_index, "episode": episode}
        for key, value in instance.items():
            if not isinstance(value, int | integer) or value < 0:
                raise InputError(f"{key!r} is {value!r} in scenario {self.name!r}; write a whole number >= 0")
        entropy = (0, 0, 0) if self.workload.fixed else (int(seed), int(env_index), int(episode))
        return _instance(self.workload, target_of(self.device), self.name, entropy)

    def program(self, seed: int = 0, env_index: int = 0, episode: int = 0) -> Program:
        """Compile the instance of one episode for the device, as schedulers take it.

        Args:
            seed: Of the run.
            env_index: Which of several environments side by side.
            episode: Which episode of that environment.

        Raises:
            InputError: A number is negative, or not whole; or the device can never run some work.
            AclError: The device has too few streams or events, or too little memory.
        """
        return compile_graph(self.graph(seed, env_index, episode), self.device, self.options)

    def with_device(self, name_or_path: str | Path) -> Scenario:
        """Give the scenario another device, by name or by the path of a device file."""
        return replace(self, device=load_device(name_or_path))

    def with_options(self, **changes: Any) -> Scenario:
        """Give the scenario other options; enums may be given as words.

        Of ``hbm_bytes`` and ``memory_factor``, which both set the memory, one takes the place of the other.

        Raises:
            InputError: An option is not known or has a wrong value.
        """
        table = {**write_table(self.options), **changes}
        for given, other in (_MEMORY, _MEMORY[::-1]):
            if changes.get(given) is not None and other not in changes:
                table[other] = None
        return replace(self, options=read_table(RunOptions, table, f"scenario {self.name!r}: [options]"))

    def to_dict(self) -> dict[str, Any]:
        """Write the scenario as JSON can hold it; :meth:`from_dict` reads it back.

        Raises:
            InputError: Its device is not a shipped one, so that a name cannot stand for it.
        """
        name = self.device.name
        if name not in device_names() or _shipped_device(name) != self.device:
            raise InputError(
                f"scenario {self.name!r}: its device {name!r} differs from the shipped one; "
                "write it to a device file and keep that beside the scenario"
            )
        return {
            "scenario": {"name": self.name, "description": self.description, "device": name},
            "workload": write_workload(self.workload),
            "options": write_table(self.options),
        }

    @classmethod
    def from_dict(cls, tables: Mapping[str, Any], where: str = "scenario") -> Scenario:
        """Read a scenario from tables laid out as in a scenario file.

        Args:
            tables: ``scenario``, ``workload`` and, unless all options keep their defaults, ``options``.
            where: Begins the message of an error.

        Raises:
            InputError: Names the table, the key, the value, and what would be right.
        """
        return _read(tables, where, Path())


def scenario_names() -> tuple[str, ...]:
    """Names of the shipped scenarios, in alphabetical order."""
    return tuple(sorted(path.stem for path in config_folder("scenarios").glob("*.toml")))


def load_scenario(name_or_path: str | Path) -> Scenario:
    """Read a scenario.

    Args:
        name_or_path: Name of a shipped scenario, for example ``"pipeline"``; or the path of a scenario file,
            which ends in ``.toml``.

    Raises:
        InputError: The name is not known, or the file cannot be used: names the file, the table, the key, the
            value, and what would be right.
    """
    file = _find(name_or_path)
    try:
        tables = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{file}: cannot be read as a scenario file: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{file}: is not UTF-8 text: byte {error.start}: {error.reason}") from error
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{file}: is not valid TOML: {error}") from error
    return _read(tables, str(file), file.parent)


def _find(name_or_path: str | Path) -> Path:
    if isinstance(name_or_path, Path) or name_or_path.endswith(".toml"):
        return Path(name_or_path)
    if name_or_path not in scenario_names():
        raise InputError(
            f"scenario {name_or_path!r} is not known; {did_you_mean(name_or_path, scenario_names())}"
            f"write one of {', '.join(scenario_names())}, "
            "or the path of a .toml file"
        )
    return config_folder("scenarios") / f"{name_or_path}.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Head:
    """The table ``[scenario]``."""

    name: str
    description: str
    device: str


def _read(tables: Mapping[str, Any], where: str, folder: Path) -> Scenario:
    for key, table in tables.items():
        if key not in _TABLES:
            near = did_you_mean(key, _TABLES)
            raise InputError(
                f"{where}: table [{key}] is not known; {near}the tables are {', '.join(_TABLES)}"
            )
        if not isinstance(table, Mapping):
            raise InputError(f"{where}: {key} is {table!r}; it is a table, write [{key}]")
    for key in ("scenario", "workload"):
        if key not in tables:
            raise InputError(f"{where}: table [{key}] is missing")
    head = read_table(_Head, tables["scenario"], f"{where}: [scenario]")
    for key in ("name", "description"):
        if not getattr(head, key).strip():
            raise InputError(f"{where}: [scenario]: key {key!r} is empty; write a few words")
    return Scenario(
        name=head.name,
        description=head.description,
        device=_read_device(head.device, f"{where}: [scenario]", folder),
        workload=read_workload(tables["workload"], f"{where}: [workload]"),
        options=read_table(RunOptions, tables.get("options", {}), f"{where}: [options]"),
    )


def _read_device(device: str, where: str, folder: Path) -> DeviceSpec:
    if device.endswith(".toml"):
        return load_device(folder / device)
    if device not in device_names():
        raise InputError(
            f"{where}: key 'device' is {device!r}; {did_you_mean(device, device_names())}"
            f"write one of {', '.join(device_names())}, "
            "or the path of a .toml file"
        )
    return _shipped_device(device)


@lru_cache
def _shipped_device(name: str) -> DeviceSpec:
    return load_device(name)


@lru_cache(maxsize=_INSTANCES_KEPT)
def _instance(workload: Workload, target: Target, name: str, entropy: tuple[int, int, int]) -> CommandGraph:
    return workload.build(Generator(PCG64(SeedSequence(entropy))), target, name)
