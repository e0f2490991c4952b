"""Reads suites: a list of members and the options that all of them share.

TOML -> :class:`Suite` -> :class:`~cann_env.suite.case.SuiteCase`. Which cases a suite has depends on its
file, the seed and the data given by the caller, and on nothing else.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cann_env.options import RunOptions
from cann_env.paths import config_folder
from cann_env.spelling import did_you_mean
from cann_env.suite.case import Asked, Setting
from cann_env.suite.members import OnnxMember, ScenarioMember, ServingMember, WorkloadMember
from cann_env.suite.problems import PlantedMember, PsplibMember
from cann_env.units import InputError
from cann_env.workloads.tables import read_table, write_table

if TYPE_CHECKING:
    from cann_env.suite.case import SuiteCase
    from cann_env.suite.members import Member

MEMBERS: dict[str, type[Member]] = {
    member.kind: member
    for member in (OnnxMember, PlantedMember, PsplibMember, ScenarioMember, ServingMember, WorkloadMember)
}
"""Kinds of members by name, in alphabetical order. Another kind is another entry."""

_TABLES = ("suite", "options", "members")


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """A list of members.

    Attributes:
        name: For people; a shipped suite is named after its file.
        description: One sentence: what is compared on it.
        members: Each with what it says beside its own keys.
    """

    name: str
    description: str
    members: tuple[tuple[Member, Setting], ...]

    def cases(self, asked: Asked | None = None) -> tuple[SuiteCase, ...]:
        """All cases, in the order of the file.

        Args:
            asked: What the file leaves to the caller; None for nothing.

        Raises:
            InputError: A member names something that does not exist or needs what was not given, or two cases
                have one name.
        """
        asked = asked or Asked()
        found: dict[str, SuiteCase] = {}
        for member, setting in self.members:
            try:
                for case in member.cases(asked, setting):
                    if case.name in found:
                        raise InputError(
                            f"two cases are named {case.name!r}; leave one out, or give a member another name"
                        )
                    found[case.name] = case
            except InputError as error:
                raise InputError(f"{setting.where}: {error}") from error
        return tuple(found.values())


def suite_names() -> tuple[str, ...]:
    """Names of the shipped suites, in alphabetical order."""
    return tuple(sorted(path.stem for path in config_folder("suites").glob("*.toml")))


def load_suite(name_or_path: str | Path) -> Suite:
    """Read a suite.

    Args:
        name_or_path: Name of a shipped suite, for example ``"smoke"``; or the path of a suite file, which
            ends in ``.toml``.

    Raises:
        InputError: The name is not known, or the file cannot be used: names the file, the member, the key,
            the value, and what would be right.
    """
    file = _find(name_or_path)
    try:
        tables = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{file}: cannot be read as a suite file: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{file}: is not UTF-8 text: byte {error.start}: {error.reason}") from error
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{file}: is not valid TOML: {error}") from error
    return _read(tables, str(file))


def _find(name_or_path: str | Path) -> Path:
    if isinstance(name_or_path, Path) or name_or_path.endswith(".toml"):
        return Path(name_or_path)
    if name_or_path not in suite_names():
        raise InputError(
            f"suite {name_or_path!r} is not known; {did_you_mean(name_or_path, suite_names())}"
            f"write one of {', '.join(suite_names())}, "
            "or the path of a .toml file"
        )
    return config_folder("suites") / f"{name_or_path}.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Head:
    """The table ``[suite]``."""

    name: str
    description: str


def _read(tables: Mapping[str, Any], where: str) -> Suite:
    for key in tables:
        if key not in _TABLES:
            near = did_you_mean(key, _TABLES)
            raise InputError(
                f"{where}: table [{key}] is not known; {near}the tables are {', '.join(_TABLES)}"
            )
    if "suite" not in tables:
        raise InputError(f"{where}: table [suite] is missing")
    head = read_table(_Head, tables["suite"], f"{where}: [suite]")
    shared = _read_options(tables.get("options", {}), {}, f"{where}: [options]")
    members = tables.get("members", [])
    if not isinstance(members, list) or not members:
        raise InputError(f"{where}: [[members]] is missing; a suite has at least one member")
    return Suite(
        name=head.name,
        description=head.description,
        members=tuple(
            _read_member(table, shared, f"{where}: [[members]] {number}")
            for number, table in enumerate(members, start=1)
        ),
    )


def _read_member(table: object, shared: Mapping[str, Any], where: str) -> tuple[Member, Setting]:
    if not isinstance(table, Mapping):
        raise InputError(f"{where} is {table!r}; it is a table with the keys 'kind' and 'family'")
    kinds = ", ".join(MEMBERS)
    if "kind" not in table:
        raise InputError(f"{where}: key 'kind' is missing; write one of {kinds}")
    kind = table["kind"]
    if not isinstance(kind, str) or kind not in MEMBERS:
        near = did_you_mean(kind, MEMBERS)
        raise InputError(f"{where}: key 'kind' is {kind!r}; {near}write one of {kinds}")
    where = f"{where} of kind {kind!r}"
    rest = {key: value for key, value in table.items() if key not in ("kind", "options")}
    options = _read_options(table.get("options", {}), shared, f"{where}: [members.options]")
    return read_table(MEMBERS[kind], rest, where), Setting(options, where)


def _read_options(table: object, shared: Mapping[str, Any], where: str) -> dict[str, Any]:
    """What the file says of the options, checked, on top of what all members share."""
    own = read_table(RunOptions, table, where)
    written = write_table(own)
    given = {key: written[key] for key in table} if isinstance(table, Mapping) else {}
    return {**shared, **given}
