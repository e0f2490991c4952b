"""Every kind of workload by its name; :mod:`cann_env.workloads.tables` reads descriptions by this table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cann_env.workloads.generated import (
    ChainWorkload,
    CnnWorkload,
    ForkJoinWorkload,
    LayeredWorkload,
    PipelineWorkload,
    PlantedWorkload,
    RandomWorkload,
    TrainingWorkload,
    TransformerWorkload,
)
from cann_env.workloads.served import OnnxServingWorkload, OnnxWorkload, ServingWorkload
from cann_env.workloads.trained import TrainingResnetWorkload, TrainingTransformerWorkload

if TYPE_CHECKING:
    from cann_env.workloads.description import Workload

KINDS: dict[str, type[Workload]] = {
    description.kind: description
    for description in (
        ChainWorkload,
        CnnWorkload,
        ForkJoinWorkload,
        LayeredWorkload,
        OnnxServingWorkload,
        OnnxWorkload,
        PipelineWorkload,
        PlantedWorkload,
        RandomWorkload,
        ServingWorkload,
        TrainingWorkload,
        TrainingResnetWorkload,
        TrainingTransformerWorkload,
        TransformerWorkload,
    )
}
"""Descriptions by kind, in alphabetical order."""
