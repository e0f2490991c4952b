"""What the shell may complete values with: names of what ships; paths are left to the shell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cann_env.acl.plans.export import FORMS
from cann_env.device import device_names
from cann_env.options import RunOptions
from cann_env.scenario import scenario_names
from cann_env.schedulers import ORDERS, PREFETCHERS, SCHEDULERS
from cann_env.suite import suite_names
from cann_env.workloads.kinds import KINDS

if TYPE_CHECKING:
    from collections.abc import Iterable


def _beginning(incomplete: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]


def scenarios(incomplete: str) -> list[str]:
    """Shipped scenarios."""
    return _beginning(incomplete, scenario_names())


def devices(incomplete: str) -> list[str]:
    """Shipped devices."""
    return _beginning(incomplete, device_names())


def suites(incomplete: str) -> list[str]:
    """Shipped suites."""
    return _beginning(incomplete, suite_names())


def schedulers(incomplete: str) -> list[str]:
    """Schedulers; behind ``ORDER+`` the prefetchers that can be joined with it."""
    order, plus, _ = incomplete.partition("+")
    if plus and order in ORDERS:
        return _beginning(incomplete, (f"{order}+{name}" for name in PREFETCHERS))
    return _beginning(incomplete, SCHEDULERS)


def scheduler_lists(incomplete: str) -> list[str]:
    """The last of several schedulers with commas between them; ``all`` stands alone."""
    before, comma, last = incomplete.rpartition(",")
    found = [f"{before}{comma}{name}" for name in schedulers(last)]
    return found if comma else [*found, *_beginning(incomplete, ("all",))]


def kinds(incomplete: str) -> list[str]:
    """Kinds of workloads."""
    return _beginning(incomplete, KINDS)


def forms(incomplete: str) -> list[str]:
    """Forms in which a plan is exported."""
    return _beginning(incomplete, FORMS)


def settings(incomplete: str) -> list[str]:
    """Keys of options, each with the sign that its value follows."""
    return _beginning(incomplete, (f"{name}=" for name in RunOptions.__dataclass_fields__))
