"""One case of a suite: a graph that is made when it is needed, where and how it runs, what is known of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from cann_env.device import DeviceSpec
    from cann_env.graph import CommandGraph
    from cann_env.options import RunOptions


class Instance(NamedTuple):
    """What a case is once its graph has been made.

    Attributes:
        graph: What is to be done.
        device: Where it runs.
        options: How it runs.
        optimum_ns: Its certified optimum: of the makespan, or of the sum of latencies where the options ask
            for that; None where none is known.
    """

    graph: CommandGraph
    device: DeviceSpec
    options: RunOptions
    optimum_ns: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteCase:
    """One instance of a suite.

    Attributes:
        family: Cases of one family are summed up together.
        name: No other case of the suite has it.
        seed, episode: Its realised durations are drawn from these, where its options ask for noise.
        make: Makes the instance; always the same one.
    """

    family: str
    name: str
    seed: int = 0
    episode: int = 0
    make: Callable[[], Instance]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a suite's file leaves to the caller.

    Attributes:
        seed: Added to the seed of every member that draws its instances.
        data: Folder of what is not shipped, or one archive of it; None if there is none.
    """

    seed: int = 0
    data: Path | None = None


class Setting(NamedTuple):
    """What a member's file says beside its own keys.

    Attributes:
        options: Fields of :class:`RunOptions` to replace, from the suite's table and the member's on top.
        where: Begins the message of an error: the file and the member.
    """

    options: Mapping[str, Any]
    where: str
