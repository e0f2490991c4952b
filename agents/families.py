"""What is played: families of instances on devices, and which of their graphs are for training or for tests.

A family is a scenario: a file of ``configs/training/families``, one that is shipped, or a file of yours. Its
graph number j of a split is ``scenario.graph(seed of the split, 0, j)``. The digest of a compiled instance
tells whether two are the same, whatever their numbers are.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from cann_env.envs.instances import InstanceKey, ProgramSource
from cann_env.options import Window  # noqa: TC001 - dataclasses look the type up
from cann_env.paths import config_folder
from cann_env.scenario import load_scenario, scenario_names
from cann_env.units import InputError

if TYPE_CHECKING:
    from cann_env.program import Program
    from cann_env.scenario import Scenario


@dataclass(frozen=True, slots=True, kw_only=True)
class Play:
    """A family on a device.

    Attributes:
        family: Name of a family or of a shipped scenario, or the path of a scenario file.
        device: Name or path of a device in place of the scenario's.
        instances: Different graphs that training sees at most.
        envs: Environments that play it side by side.
    """

    family: str
    device: str | None = None
    instances: int = 256
    envs: int = 8

    def __post_init__(self) -> None:
        """Check the numbers."""
        for name in ("instances", "envs"):
            if getattr(self, name) < 1:
                raise InputError(f"key {name!r} is {getattr(self, name)}; write a whole number of at least 1")

    @property
    def name(self) -> str:
        """For people: the family, and the device if one is named."""
        return Path(self.family).stem + (f" {Path(self.device).stem}" if self.device else "")

    def scenario(self, window: Window | None = None) -> Scenario:
        """The scenario, with the window that an agent has; None for its own.

        Raises:
            InputError: There is no such family or device.
        """
        return _scenario(self.family, self.device, window)


@lru_cache(maxsize=64)
def _scenario(family: str, device: str | None, window: Window | None) -> Scenario:
    scenario = load_family(family)
    if device is not None:
        scenario = scenario.with_device(device)
    if window is not None:
        scenario = replace(scenario, options=replace(scenario.options, window=window))
    return scenario


def family_names() -> tuple[str, ...]:
    """Names of the families that are shipped for training, in alphabetical order."""
    return tuple(sorted(path.stem for path in (config_folder("training") / "families").glob("*.toml")))


def load_family(name: str) -> Scenario:
    """Read a family by its name, that of a shipped scenario, or the path of a scenario file.

    Raises:
        InputError: There is none.
    """
    if name in family_names():
        return load_scenario(config_folder("training") / "families" / f"{name}.toml")
    if name not in scenario_names() and not name.endswith(".toml"):
        raise InputError(
            f"family {name!r} is not known; write one of {', '.join((*family_names(), *scenario_names()))}, "
            "or the path of a scenario file"
        )
    return load_scenario(name)


def instance(scenario: Scenario, split_seed: int, number: int) -> Program:
    """A compiled graph of a split."""
    return ProgramSource(scenario, kept=1).program(InstanceKey(split_seed, 0, number))


def digest(program: Program) -> str:
    """Sixteen hexadecimal digits that two instances share if and only if they are the same."""
    return hashlib.sha256(program.image.tobytes()).hexdigest()[:16]
