"""Descriptions of ONNX models and of serving, where requests for several models share a device.

Models are described like any other workload; serving builds each of them once and merges the requests.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from cann_env.graph import CommandGraph, Level
from cann_env.units import InputError
from cann_env.workloads.checks import check_not_empty, check_sizes, check_weights
from cann_env.workloads.serving import ArrivalProcess, Arrivals, Mix, serve

if TYPE_CHECKING:
    from numpy.random import Generator

    from cann_env.workloads.description import Target, Workload

_MODELS_KEPT = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class OnnxWorkload:
    """See :func:`~cann_env.workloads.from_onnx.from_onnx`.

    Attributes:
        model: Path of a model's file as seen from the working directory, or the short name of a light model
            such as ``resnet50``.
        batch: Size of the inputs' first dimension.
        dtype: Type in which tensors are stored and computed.
        weights: Where they lie at first.
    """

    kind: ClassVar[str] = "onnx"

    model: str
    batch: int = 1
    dtype: str = "float16"
    weights: Level = Level.HOST

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_sizes(batch=self.batch)
        check_weights(self.weights)

    @property
    def fixed(self) -> bool:
        """Always."""
        return True

    def build(self, rng: Generator, target: Target, name: str) -> CommandGraph:
        """Read the model; nothing is drawn."""
        return _read_onnx(self, target, name)


@lru_cache(maxsize=_MODELS_KEPT)
def _read_onnx(workload: OnnxWorkload, target: Target, name: str) -> CommandGraph:
    from cann_env.workloads.from_onnx import from_onnx

    return from_onnx(
        workload.model,
        target.device,
        batch=workload.batch,
        dtype=workload.dtype,
        weights=workload.weights,
        name=name,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingWorkload:
    """See :func:`~cann_env.workloads.serving.serve`.

    Attributes:
        models: Descriptions of what can be asked for, built in this order.
        requests: How many.
        arrivals: When they arrive.
        mix: Which model each asks for.
    """

    kind: ClassVar[str] = "serving"

    models: tuple[Workload, ...]
    requests: int = 6
    arrivals: ArrivalProcess = field(default_factory=ArrivalProcess)
    mix: Mix = Mix.CYCLE

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_not_empty("models", self.models)
        check_sizes(requests=self.requests)
        for model in self.models:
            if isinstance(model, ServingWorkload | OnnxServingWorkload):
                raise InputError(f"'models' holds a workload of kind {model.kind!r}; list its models instead")

    @property
    def fixed(self) -> bool:
        """All models are, none is drawn, and all requests arrive at time zero."""
        drawn = self.mix != Mix.CYCLE or self.arrivals.kind != Arrivals.CLOSED
        return not drawn and all(model.fixed for model in self.models)

    def build(self, rng: Generator, target: Target, name: str) -> CommandGraph:
        """Build the models, then draw which is asked for and when."""
        models = [
            model.build(rng, target, label)
            for model, label in zip(self.models, _labels(self.models), strict=True)
        ]
        return serve(rng, models, self.requests, self.arrivals, mix=self.mix, name=name)


@dataclass(frozen=True, slots=True, kw_only=True)
class OnnxServingWorkload:
    """Serving of ONNX models: a short way to write a serving workload whose models are all files.

    Attributes:
        models: Paths or short names, see :class:`OnnxWorkload`.
        batch, dtype, weights: Of every model, see :class:`OnnxWorkload`.
        requests, arrivals, mix: See :class:`ServingWorkload`.
    """

    kind: ClassVar[str] = "onnx_serving"

    models: tuple[str, ...]
    batch: int = 1
    dtype: str = "float16"
    weights: Level = Level.HOST
    requests: int = 6
    arrivals: ArrivalProcess = field(default_factory=ArrivalProcess)
    mix: Mix = Mix.CYCLE

    def __post_init__(self) -> None:
        """Check the ranges."""
        self.expanded()

    @property
    def fixed(self) -> bool:
        """No model is drawn and all requests arrive at time zero."""
        return self.expanded().fixed

    def expanded(self) -> ServingWorkload:
        """The same workload written out."""
        models = [
            OnnxWorkload(model=model, batch=self.batch, dtype=self.dtype, weights=self.weights)
            for model in self.models
        ]
        return ServingWorkload(
            models=tuple(models), requests=self.requests, arrivals=self.arrivals, mix=self.mix
        )

    def build(self, rng: Generator, target: Target, name: str) -> CommandGraph:
        """Read the models, then draw which is asked for and when."""
        return self.expanded().build(rng, target, name)


def _labels(models: tuple[Workload, ...]) -> list[str]:
    """Names of the models' graphs: the model's file or kind, numbered where it occurs twice."""
    words = [Path(model.model).stem if isinstance(model, OnnxWorkload) else model.kind for model in models]
    counts = Counter(words)
    return [word if counts[word] == 1 else f"{word}#{i}" for i, word in enumerate(words)]
