"""Sets of test instances: in distribution, and away from it along one axis at a time.

A set is a family on a device with some of its tables changed. Test instances come from a split of their own,
and one that training has seen, by its digest, is left out.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from agents.families import digest, load_family
from cann_env.device.load import load_device
from cann_env.envs.instances import InstanceKey, realised
from cann_env.paths import config_folder
from cann_env.program import compile_graph
from cann_env.scenario import Scenario
from cann_env.suite.case import Asked, Setting
from cann_env.suite.problems import PlantedMember
from cann_env.units import InputError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from cann_env.engine import Image
    from cann_env.program import Program

_TRIES = 8  # numbers looked at for each instance that is wanted


class Case(NamedTuple):
    """One test instance.

    Attributes:
        number: Within the test split.
        program: Compiled, with the options of its family.
        noise: Realised durations; None for the expected ones.
        optimum_ns: The certified optimum of its objective; None where none is known.
    """

    number: int
    program: Program
    noise: Image | None
    optimum_ns: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TestSet:
    """Some test instances that differ from those of training in one respect.

    Attributes:
        axis: In which respect: ``in distribution``, ``size``, ``family``, ``device``, ``memory``, ``noise``,
            ``streams`` or ``certified``.
        value: By how much, or in what.
        recipe: Whose policies play it: a name under which some were shipped.
        family: Name or path of the family; ``planted`` for problems whose optimum is known by construction.
        device: In place of the family's.
        instances: How many.
        workload: Keys of the family's workload to change.
        options: Keys of its options to change.
    """

    __test__ = False  # pytest

    axis: str
    value: str
    recipe: str
    family: str
    device: str | None
    instances: int
    workload: tuple[tuple[str, Any], ...] = ()
    options: tuple[tuple[str, Any], ...] = ()

    @property
    def name(self) -> str:
        """For people."""
        return " ".join(filter(None, (self.family, self.device, self.value)))

    def cases(self, split_seed: int, trained_on: Collection[str] = ()) -> list[Case]:
        """The instances, those left out that somebody was trained on.

        Args:
            split_seed: Of the test split.
            trained_on: Digests of training instances.
        """
        if self.family == "planted":
            return self._planted(split_seed)
        found: dict[str, Case] = {}
        scenario = _scenario(self)
        for number in range(_TRIES * self.instances):
            if len(found) == self.instances:
                break
            program = compile_graph(scenario.graph(split_seed, 0, number), scenario.device, scenario.options)
            mark = digest(program)
            if mark not in trained_on and mark not in found:
                noise = realised(program, InstanceKey(split_seed, 0, number))
                found[mark] = Case(number, program, noise, None)
        return list(found.values())

    def _planted(self, split_seed: int) -> list[Case]:
        table = dict(self.workload)
        member = PlantedMember(
            family="planted",
            kernels=(int(table["kernels"]),),
            loads=(float(table["loads"]),),
            instances=self.instances,
            seed=split_seed,
        )
        cases = []
        for number, each in enumerate(member.cases(Asked(), Setting({}, "planted"))):
            made = each.make()
            program = compile_graph(made.graph, made.device, made.options)
            cases.append(Case(number, program, None, made.optimum_ns))
        return cases


@lru_cache(maxsize=64)
def _scenario(each: TestSet) -> Scenario:
    scenario = load_family(each.family)
    if each.device is not None:
        scenario = replace(scenario, device=load_device(each.device))
    tables = scenario.to_dict()
    where = f"test set {each.name!r}"
    changed = {
        **tables,
        "workload": {**tables["workload"], **dict(each.workload)},
        "options": {**tables["options"], **dict(each.options)},
    }
    return Scenario.from_dict(changed, where)


def suite_names() -> tuple[str, ...]:
    """Names of the shipped suites, in alphabetical order."""
    return tuple(sorted(path.stem for path in _folder().glob("*.toml")))


def load_tests(name: str) -> list[TestSet]:
    """The sets of a suite.

    Raises:
        InputError: It is not known, or a set of it is not right.
    """
    if name not in suite_names():
        raise InputError(f"suite {name!r} is not known; write one of {', '.join(suite_names())}")
    file = _folder() / f"{name}.toml"
    table = tomllib.loads(file.read_text(encoding="utf-8"))
    return [test for i, each in enumerate(table["sets"]) for test in _read(each, f"{file}: set {i}")]


def _read(table: Mapping[str, Any], where: str) -> list[TestSet]:
    """A set for each device that a table names."""
    known = {"axis", "value", "recipe", "family", "devices", "instances", "workload", "options"}
    for key in table:
        if key not in known:
            raise InputError(f"{where}: key {key!r} is not known; the keys are {', '.join(sorted(known))}")
    for key in ("axis", "recipe", "family", "instances"):
        if key not in table:
            raise InputError(f"{where}: key {key!r} is missing")
    return [
        TestSet(
            axis=table["axis"],
            value=table.get("value", ""),
            recipe=table["recipe"],
            family=table["family"],
            device=device,
            instances=table["instances"],
            workload=_frozen(table.get("workload", {})),
            options=_frozen(table.get("options", {})),
        )
        for device in table.get("devices", [None])
    ]


def _frozen(table: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple((key, tuple(value) if isinstance(value, list) else value) for key, value in table.items())


def _folder() -> Path:
    return config_folder("training") / "tests"
