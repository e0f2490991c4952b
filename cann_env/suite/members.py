"""Members of a suite: a few lines of a file that stand for many cases, by kind.

Keys in the plural hold several values; a member stands for all their combinations. Its family may hold such
keys in braces: ``family = "onnx {device} {submission}"`` makes a family of each combination of the two.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from string import Formatter
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from cann_env.device import device_names, load_device
from cann_env.graph import Level
from cann_env.options import RunOptions, Submission
from cann_env.scenario import Scenario, load_scenario
from cann_env.suite.case import Instance, SuiteCase
from cann_env.units import InputError
from cann_env.workloads.checks import check_not_empty, check_not_negative, check_sizes
from cann_env.workloads.from_onnx import light_models
from cann_env.workloads.served import OnnxServingWorkload, OnnxWorkload
from cann_env.workloads.serving import ArrivalProcess, Arrivals, Mix

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cann_env.suite.case import Asked, Setting
    from cann_env.workloads.description import Workload


class Member(Protocol):
    """What every kind of member can do."""

    kind: ClassVar[str]
    """What a suite file calls it."""

    def cases(self, asked: Asked, setting: Setting) -> Iterator[SuiteCase]:
        """Its cases, in the order of its keys.

        Raises:
            InputError: It names something that does not exist, or needs what was not given.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioMember:
    """Instances of a scenario.

    Attributes:
        family: Of its cases; ``{scenario}``, ``{device}`` and ``{submission}`` may be used.
        scenario: Name of a shipped scenario, or the path of a ``.toml`` file.
        name: Begins the names of its cases; empty for the scenario's own.
        instances: How many.
        seed: Of the instances.
        devices: Where they run; empty for the scenario's own device.
        submissions: How they are submitted; empty for what the options say.
    """

    kind: ClassVar[str] = "scenario"

    family: str
    scenario: str
    name: str = ""
    instances: int = 1
    seed: int = 0
    devices: tuple[str, ...] = ()
    submissions: tuple[Submission, ...] = ()

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_sizes(instances=self.instances)
        check_not_negative(seed=self.seed)

    def cases(self, asked: Asked, setting: Setting) -> Iterator[SuiteCase]:
        """Instances of the scenario on each device, submitted in each way."""
        scenario = load_scenario(self.scenario).with_options(**setting.options)
        for device, submission in product(self.devices or (None,), self.submissions or (None,)):
            placed = scenario if device is None else scenario.with_device(_known_device(device))
            placed = placed if submission is None else placed.with_options(submission=submission)
            words = {
                "scenario": self.name or scenario.name,
                "device": placed.device.name,
                "submission": placed.options.submission.value,
            }
            yield from drawn(self.family, placed, words, self.instances, self.seed + asked.seed)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadMember:
    """Instances of a workload, described as in a scenario.

    Attributes:
        family: Of its cases; ``{kind}``, ``{device}`` and ``{submission}`` may be used.
        workload: What is drawn or built.
        name: Begins the names of its cases; empty for the workload's kind.
        instances, seed: See :class:`ScenarioMember`.
        devices: Where they run, at least one.
        submissions: See :class:`ScenarioMember`.
    """

    kind: ClassVar[str] = "workload"

    family: str
    workload: Workload
    name: str = ""
    instances: int = 1
    seed: int = 0
    devices: tuple[str, ...]
    submissions: tuple[Submission, ...] = ()

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_sizes(instances=self.instances)
        check_not_negative(seed=self.seed)
        check_not_empty("devices", self.devices)

    def cases(self, asked: Asked, setting: Setting) -> Iterator[SuiteCase]:
        """Instances of the workload on each device, submitted in each way."""
        for device, options in _placements(self.devices, self.submissions, setting):
            name = self.name or self.workload.kind
            scenario = _scenario(name, device, self.workload, options)
            words = {"kind": name, "device": device, "submission": options.submission.value}
            yield from drawn(self.family, scenario, words, self.instances, self.seed + asked.seed)


@dataclass(frozen=True, slots=True, kw_only=True)
class OnnxMember:
    """Single ONNX models.

    Attributes:
        family: Of its cases; ``{model}``, ``{batch}``, ``{weights}``, ``{device}`` and ``{submission}`` may
            be used.
        models: Short names of light models, or paths of ``.onnx`` files.
        batches: Sizes of the batch dimension.
        weights: Where they lie at first.
        devices, submissions: See :class:`WorkloadMember`.
    """

    kind: ClassVar[str] = "onnx"

    family: str
    models: tuple[str, ...]
    batches: tuple[int, ...] = (1,)
    weights: tuple[Level, ...] = (Level.HBM,)
    devices: tuple[str, ...]
    submissions: tuple[Submission, ...] = ()

    def __post_init__(self) -> None:
        """Check that there is something of everything."""
        for key in ("models", "batches", "weights", "devices"):
            check_not_empty(key, getattr(self, key))

    def cases(self, asked: Asked, setting: Setting) -> Iterator[SuiteCase]:
        """Each model at each batch, with its weights in each place, on each device, submitted in each way."""
        _check_models(self.models)
        for device, options in _placements(self.devices, self.submissions, setting):
            for model, batch, weights in product(self.models, self.batches, self.weights):
                workload = OnnxWorkload(model=model, batch=batch, weights=weights)
                words = {
                    "model": Path(model).stem,
                    "batch": f"b{batch}",
                    "weights": weights.value,
                    "device": device,
                    "submission": options.submission.value,
                }
                yield from drawn(self.family, _scenario(words["model"], device, workload, options), words)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingMember:
    """Several requests for several ONNX models at once.

    Attributes:
        family: Of its cases; ``{mix}``, ``{models}`` (how many), ``{requests}``, ``{batch}``, ``{weights}``,
            ``{arrivals}``, ``{device}`` and ``{submission}`` may be used.
        mixes: Models that share the device, one list for each mix.
        requests: How many requests.
        batches, weights: See :class:`OnnxMember`.
        rates_per_s: Mean numbers of requests a second, which arrive independently; 0: all at time zero.
        mix: Which model each request asks for.
        instances, seed: See :class:`ScenarioMember`; mixes without a draw have one instance.
        devices, submissions: See :class:`WorkloadMember`.
    """

    kind: ClassVar[str] = "serving"

    family: str
    mixes: tuple[tuple[str, ...], ...]
    requests: tuple[int, ...]
    batches: tuple[int, ...] = (1,)
    weights: tuple[Level, ...] = (Level.HBM,)
    rates_per_s: tuple[int, ...] = (0,)
    mix: Mix = Mix.CYCLE
    instances: int = 1
    seed: int = 0
    devices: tuple[str, ...]
    submissions: tuple[Submission, ...] = ()

    def __post_init__(self) -> None:
        """Check that there is something of everything."""
        for key in ("mixes", "requests", "batches", "weights", "rates_per_s", "devices"):
            check_not_empty(key, getattr(self, key))
        check_sizes(instances=self.instances)
        check_not_negative(seed=self.seed)

    def cases(self, asked: Asked, setting: Setting) -> Iterator[SuiteCase]:
        """Each mix with each number of requests, and so on through the keys."""
        for mix in self.mixes:
            _check_models(mix)
        keys = (self.mixes, self.requests, self.batches, self.weights, self.rates_per_s)
        for device, options in _placements(self.devices, self.submissions, setting):
            for mix, requests, batch, weights, rate in product(*keys):
                workload = OnnxServingWorkload(
                    models=mix,
                    batch=batch,
                    weights=weights,
                    requests=requests,
                    mix=self.mix,
                    arrivals=ArrivalProcess(
                        kind=Arrivals.POISSON if rate else Arrivals.CLOSED, rate_per_s=rate
                    ),
                )
                name = "+".join(Path(model).stem for model in mix)
                words = {
                    "mix": name,
                    "models": "1 model" if len(mix) == 1 else f"{len(mix)} models",
                    "requests": f"{requests} requests",
                    "batch": f"b{batch}",
                    "weights": weights.value,
                    "arrivals": f"{rate} per s" if rate else "at once",
                    "device": device,
                    "submission": options.submission.value,
                }
                scenario = _scenario(name, device, workload, options)
                instances = 1 if workload.fixed else self.instances
                yield from drawn(self.family, scenario, words, instances, self.seed + asked.seed)


def drawn(
    family: str, scenario: Scenario, words: Mapping[str, str], instances: int = 1, seed: int = 0
) -> Iterator[SuiteCase]:
    """Cases of a scenario.

    Args:
        family: May hold ``words`` in braces.
        scenario: What they are instances of.
        words: What tells them from the member's other cases, by key; they make the names.
        instances: How many.
        seed: Of the instances.

    Raises:
        InputError: The family names a word that does not exist, or all instances would be equal.
    """
    if instances > 1 and scenario.workload.fixed:
        raise InputError(
            f"'instances' is {instances}, but {scenario.name!r} has one, all others would be equal to it"
        )
    for episode in range(instances):
        number = f" #{episode}" if instances > 1 else ""
        yield SuiteCase(
            family=named_family(family, words),
            name=" ".join(words[key] for key in words if key != "models") + number,
            seed=seed,
            episode=episode,
            make=partial(_instance, scenario, seed, episode),
        )


def named_family(family: str, words: Mapping[str, str]) -> str:
    """Put words into the braces of a family's name.

    Raises:
        InputError: A word in braces does not exist.
    """
    try:
        parts = [part[1:] for part in Formatter().parse(family) if part[1] is not None]
        if any(key not in words or layout or conversion for key, layout, conversion in parts):
            raise ValueError
        return family.format_map(words)
    except ValueError:
        known = ", ".join(f"{{{key}}}" for key in words)
        raise InputError(f"'family' is {family!r}; the words in braces can be {known}") from None


def _instance(scenario: Scenario, seed: int, episode: int) -> Instance:
    return Instance(scenario.graph(seed, 0, episode), scenario.device, scenario.options)


def _placements(
    devices: tuple[str, ...], submissions: tuple[Submission, ...], setting: Setting
) -> Iterator[tuple[str, RunOptions]]:
    """Every device with every way of submission; where none is given, the one that the options say."""
    for device, submission in product(devices, submissions or (None,)):
        given: dict[str, Any] = {} if submission is None else {"submission": submission}
        yield _known_device(device), RunOptions(**{**setting.options, **given})


def _known_device(name: str) -> str:
    if name not in device_names():
        raise InputError(f"'devices' holds {name!r}; write some of {', '.join(device_names())}")
    return name


def _check_models(models: tuple[str, ...]) -> None:
    for model in models:
        if not model.endswith(".onnx") and model not in light_models():
            raise InputError(
                f"model {model!r} is not known; write a light model ({', '.join(light_models())}) "
                "or the path of an .onnx file"
            )


def _scenario(name: str, device: str, workload: Workload, options: RunOptions) -> Scenario:
    return Scenario(
        name=name,
        description="A case of a suite.",
        device=load_device(device),
        workload=workload,
        options=options,
    )
