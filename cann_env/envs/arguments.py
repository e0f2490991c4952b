"""What may be asked of an environment, checked before anything changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cann_env.envs.spaces import GraphCapacity, ObservationMode
from cann_env.scenario import Scenario, load_scenario
from cann_env.units import InputError

if TYPE_CHECKING:
    from cann_env.envs.instances import ProgramSource

_MOST_INSTANCES = 65536
_LAST_EPISODE = 2**62


def open_scenario(
    scenario: str | Path | Mapping[str, Any],
    device: str | Path | None,
    options: Mapping[str, Any] | None,
    **named: Any,
) -> Scenario:
    """A scenario by name, path or dictionary, with another device or other options if wanted.

    Args:
        scenario: Which.
        device: Name or path, None for the scenario's.
        options: Run options in place of the scenario's.
        named: Run options that are arguments of their own; None for what ``options`` or the scenario says.

    Raises:
        InputError: One of these is of another type, or cannot be used; or an option is given twice.
    """
    if not isinstance(scenario, str | Path | Mapping):
        raise InputError(f"scenario is {scenario!r}; write a name, the path of a .toml file, or a dictionary")
    if device is not None and not isinstance(device, str | Path):
        raise InputError(f"device is {device!r}; write the name or the path of a device, or None")
    if options is not None and not isinstance(options, Mapping):
        raise InputError(f"options is {options!r}; write a dictionary of run options, or None")
    opened = Scenario.from_dict(scenario) if isinstance(scenario, Mapping) else load_scenario(scenario)
    if device is not None:
        opened = opened.with_device(device)
    changes = dict(options or {})
    for name, value in named.items():
        if value is None:
            continue
        if name in changes:
            raise InputError(f"{name} is {value!r}, and {changes[name]!r} in options; write it in one place")
        changes[name] = value
    return opened.with_options(**changes) if changes else opened


def instances_of(instances: Any) -> int | None:
    """How many graphs a run plays at most, None without a limit.

    Raises:
        InputError: Neither None nor a whole number from 1 to 65536.
    """
    if instances is None:
        return None
    if not _is_count(instances) or instances > _MOST_INSTANCES:
        raise InputError(
            f"instances is {instances!r}; write a whole number from 1 to {_MOST_INSTANCES}, or None for a "
            "new graph in every episode"
        )
    return int(instances)


def env_index_of(env_index: Any) -> int:
    """Which of several environments side by side.

    Raises:
        InputError: No whole number of at least 0.
    """
    if isinstance(env_index, bool) or not isinstance(env_index, int | np.integer) or env_index < 0:
        raise InputError(f"env_index is {env_index!r}; write a whole number, from 0")
    return int(env_index)


def graph_capacity_of(
    source: ProgramSource, observation: str, given: Sequence[int] | None
) -> GraphCapacity | None:
    """Capacity of the graph observation, None if the mode has none.

    Raises:
        InputError: An unknown mode, or a capacity that is not two whole numbers >= 1.
    """
    if observation not in tuple(ObservationMode):
        known = ", ".join(repr(mode.value) for mode in ObservationMode)
        raise InputError(f"observation is {observation!r}; write one of {known}")
    if observation == ObservationMode.WINDOW:
        return None
    if given is None:
        return source.usual_capacity()
    if not isinstance(given, Sequence) or len(given) != 2 or not all(map(_is_count, given)):
        raise InputError(f"graph_capacity is {given!r}; write two whole numbers of at least 1, (N, E)")
    nodes, edges = given
    return GraphCapacity(int(nodes), int(edges))


def _is_count(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and int(value) >= 1


def instance_option(options: Mapping[str, Any] | None) -> int | None:
    """The episode that reset was asked for, None for the next one.

    Raises:
        InputError: Another option, or a value that is no whole number >= 0.
    """
    if not options:
        return None
    unknown = sorted(set(options) - {"instance"})
    if unknown:
        raise InputError(f"reset option {unknown[0]!r} is not known; there is 'instance'")
    value = options["instance"]
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or not 0 <= value < _LAST_EPISODE:
        raise InputError(f"reset option 'instance' is {value!r}; write the number of an episode, from 0")
    return int(value)


def action_number(action: Any, count: int) -> int:
    """An action as a plain number.

    Raises:
        InputError: No whole number from 0 to ``count - 1``.
    """
    if type(action) is int and 0 <= action < count:
        return action
    whole = isinstance(action, int | np.integer) and not isinstance(action, bool)
    if not whole and not (isinstance(action, np.ndarray) and action.ndim == 0 and action.dtype.kind in "iu"):
        raise InputError(f"action {action!r} is no whole number; write one from 0 to {count - 1}")
    number = int(action)
    if not 0 <= number < count:
        raise InputError(f"action {number} is out of range; write one from 0 to {count - 1}")
    return number


def render_mode_of(mode: str | None, known: list[str]) -> str | None:
    """A render mode as it is.

    Raises:
        InputError: There is no such mode.
    """
    if mode is not None and mode not in known:
        raise InputError(f"render_mode is {mode!r}; write one of {', '.join(map(repr, known))} or None")
    return mode
