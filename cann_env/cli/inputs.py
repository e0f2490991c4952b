"""What the user named on the command line becomes cases: a graph, a device, options.

A name or path is a scenario (which has many instances), a model (which has one) or a profile (which has as
many as steps); what was asked for beyond that, such as another device, is applied on the way.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cann_env.cli.problems import open_psplib
from cann_env.cli.profile_inputs import is_profile, open_profile_case
from cann_env.device import device_names, load_device
from cann_env.graph import Level
from cann_env.options import RunOptions
from cann_env.scenario import load_scenario, scenario_names
from cann_env.spelling import did_you_mean
from cann_env.units import InputError
from cann_env.workloads.from_onnx import from_onnx, light_models
from cann_env.workloads.from_psplib import is_problem

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cann_env.device import DeviceSpec
    from cann_env.graph import CommandGraph


_PROFILE_FILES = (".csv", ".json", ".json.gz", ".db")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Something to run: instances of a scenario, or one model.

    Attributes:
        name: For tables and file names.
        device: Where it runs.
        options: How it runs.
        instances: How many graphs ``graph`` can make that differ; None if any number.
        graph: Makes the graph of an instance, counted from 0.
    """

    name: str
    device: DeviceSpec
    options: RunOptions
    instances: int | None
    graph: Callable[[int], CommandGraph]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What was asked for beside the name.

    Attributes:
        device: Name or path of a device; None for the scenario's.
        seed: Seed of a scenario's instances.
        options: Fields of :class:`RunOptions` to replace.
        model: Arguments of ``from_onnx`` to pass on; they apply to models only.
    """

    device: str | None
    seed: int
    options: Mapping[str, Any]
    model: Mapping[str, Any]


def open_case(name: str, request: Request) -> Case:
    """Find what ``name`` means.

    Args:
        name: Name of a shipped scenario, path of a scenario (``.toml``), of a model (``.onnx``), of a profile
            (see :func:`~cann_env.profiles.read.read_profile`) or of a scheduling problem (see
            :func:`~cann_env.workloads.from_psplib.from_psplib`), or name of a light model that comes with the
            onnx package.
        request: What was asked for beside it.

    Raises:
        InputError: It means nothing, or something was asked for that does not apply to it.
    """
    if name in scenario_names() or name.endswith(".toml"):
        return _open_scenario(name, request)
    if is_profile(name):
        return _open_profile(name, request)
    if is_problem(name):
        return _open_problem(name, request)
    if name.endswith((".onnx", *_PROFILE_FILES)) and not Path(name).exists():
        raise InputError(
            f"input {name!r} does not exist; {_beside(name)}write the path of a file that is there"
        )
    if name.endswith(".onnx") or Path(name).is_file() or name in _light_models():
        return _open_model(name, request)
    if Path(name).is_dir():
        return _open_profile(name, request)
    known = (*scenario_names(), *_light_models())
    models = ", ".join(_light_models()) or 'none without the onnx package: pip install "cann-env[onnx]"'
    raise InputError(
        f"input {name!r} is not known; {did_you_mean(name, known)}write a scenario "
        f"({', '.join(scenario_names())}), the path of a .toml or .onnx file, of a profile (a folder, .csv, "
        f".json, .json.gz, .db) or of a scheduling problem (.sm, .rcp, .jsp, .json, or <archive>:<member>), "
        f"or a light model ({models})"
    )


def _beside(name: str) -> str:
    """The file of the same folder whose name is most like that of one which does not exist."""
    folder = Path(name).parent
    return did_you_mean(name, [str(path) for path in folder.iterdir()]) if folder.is_dir() else ""


def _open_profile(name: str, request: Request) -> Case:
    found = open_profile_case(name, device=request.device, options=request.options, model=request.model)
    return Case(
        name=found.name, device=found.device, options=found.options, instances=found.steps, graph=found.graph
    )


def _open_problem(name: str, request: Request) -> Case:
    posed = open_psplib(name, device=request.device, options=request.options, model=request.model)
    return Case(
        name=posed.name, device=posed.device, options=posed.options, instances=1, graph=lambda _: posed.graph
    )


def _light_models() -> tuple[str, ...]:
    """Short names of the models in the onnx package; none where that is not installed."""
    try:
        return tuple(light_models())
    except InputError:
        return ()


def _open_scenario(name: str, request: Request) -> Case:
    if request.model:
        options = ", ".join(f"--{key}" for key in request.model)
        raise InputError(f"{options} applies to models; {name!r} is a scenario")
    scenario = load_scenario(name)
    if request.device is not None:
        scenario = scenario.with_device(request.device)
    if request.options:
        scenario = scenario.with_options(**request.options)
    return Case(
        name=scenario.name,
        device=scenario.device,
        options=scenario.options,
        instances=1 if scenario.workload.fixed else None,
        graph=partial(scenario.graph, request.seed, 0),
    )


def _open_model(name: str, request: Request) -> Case:
    if request.device is None:
        raise InputError(f"model {name!r} needs --device; write one of {', '.join(device_names())}")
    device = load_device(request.device)
    graph = from_onnx(name, device, **request.model)
    return Case(
        name=graph.name,
        device=device,
        options=RunOptions(**request.options),
        instances=1,
        graph=lambda _: graph,
    )


def parse_weights(word: str) -> Level:
    """Read where the weights lie.

    Raises:
        InputError: Neither ``host`` nor ``hbm``.
    """
    if word not in (Level.HOST, Level.HBM):
        raise InputError(f"--weights is {word!r}; write host or hbm")
    return Level(word)


def parse_dims(pairs: list[str]) -> dict[str, int]:
    """Read ``["height=224", ...]``.

    Raises:
        InputError: One is not ``name=value`` with a whole number of at least 1, or a name comes twice.
    """
    dims: dict[str, int] = {}
    for pair in pairs:
        name, sign, value = pair.partition("=")
        if not (name and sign and value.isdecimal() and int(value) > 0):
            raise InputError(f"--dims {pair!r} is not a dimension; write name=value, for example height=224")
        if name in dims:
            raise InputError(
                f"--dims gives {name!r} twice, {dims[name]} and {value}; give each dimension once"
            )
        dims[name] = int(value)
    return dims
