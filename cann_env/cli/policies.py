"""Trained policies as schedulers on the command line.

The package does not know the agents; where they are there, they make a scheduler of a file.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cann_env.units import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence


def use_policies(paths: Sequence[Path]) -> list[str]:
    """Make trained policies known as schedulers, each by the name of its file; returns the names.

    Raises:
        InputError: A file is no policy, its name is taken, or the agents are not there.
    """
    return [_agents().register_policy(path) for path in paths] if paths else []


def with_policies(names: Sequence[str], policies: Sequence[str]) -> list[str]:
    """Schedulers, and each policy that none of them uses already."""
    used = {name.partition(":")[0] for name in names}
    return [*names, *(policy for policy in policies if policy not in used)]


def _agents() -> Any:
    here = str(Path.cwd())
    if (Path(here) / "agents" / "schedulers.py").exists() and here not in sys.path:
        sys.path.append(here)
    try:
        return importlib.import_module("agents.schedulers")
    except ImportError as error:
        raise InputError(
            f"trained policies need the agents ({error}): run this from a checkout of the project, "
            "with its extra: pip install -e '.[rl]'"
        ) from error
