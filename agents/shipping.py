"""Trained policies as files: what they are, their weights, and how they came about; nothing is executed.

A file is a ZIP archive of ``policy.json`` and an array for each weight. Loading one reads numbers and names;
unlike a pickle it runs no code.
"""

from __future__ import annotations

import io
import json
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from agents.policies import GraphPolicy, ScoringPolicy
from cann_env.envs.spaces import GraphCapacity, action_space, observation_space
from cann_env.options import RunOptions, Window
from cann_env.units import InputError

_KINDS: dict[str, type[ScoringPolicy]] = {"rows": ScoringPolicy, "graph": GraphPolicy}
_FACTS = "policy.json"
_NO_POLICY = (
    OSError,
    KeyError,
    TypeError,
    ValueError,
    RuntimeError,
    EOFError,
    zipfile.BadZipFile,
    zlib.error,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """A policy with what is known about it.

    Attributes:
        policy: The networks.
        window: From which commands it chooses.
        commands: How many of them it sees (K).
        facts: How it came about: command, seed, wall time, machine, configuration.
    """

    policy: ScoringPolicy
    window: Window
    commands: int
    facts: dict[str, Any]


def save_policy(trained: Trained, path: str | Path) -> None:
    """Write a policy to a file."""
    policy = trained.policy
    kind = next(name for name, cls in _KINDS.items() if type(policy) is cls)
    head = {
        "kind": kind,
        "width": policy.width,
        "window": trained.window.value,
        "commands": trained.commands,
        "facts": trained.facts,
    }
    path = Path(path)
    draft = path.with_suffix(".part")
    with zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(_FACTS, json.dumps(head, indent=2))
        for name, tensor in policy.named_parameters():  # what two parts share comes once
            data = io.BytesIO()
            np.save(data, tensor.detach().cpu().numpy(), allow_pickle=False)
            archive.writestr(f"{name}.npy", data.getvalue())
    draft.replace(path)


def load_policy(path: str | Path) -> Trained:
    """Read a policy from a file.

    Raises:
        InputError: There is no such file, or it is something else.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            head = json.loads(archive.read(_FACTS))
            arrays = {
                name.removesuffix(".npy"): np.load(io.BytesIO(archive.read(name)), allow_pickle=False)
                for name in archive.namelist()
                if name.endswith(".npy")
            }
        kind, width, window = _KINDS[head["kind"]], int(head["width"]), Window(head["window"])
        policy = _empty(kind, width, window)
        with torch.no_grad():
            for name, tensor in policy.named_parameters():
                tensor.copy_(torch.from_numpy(arrays[name]))
        commands, facts = int(head["commands"]), dict(head["facts"])
    except _NO_POLICY as error:
        raise InputError(
            f"{path}: cannot be read as a trained policy: {error}; write the path of a file that "
            "'python -m agents.train' wrote as policy.zip"
        ) from error
    policy.set_training_mode(False)
    return Trained(policy=policy, window=window, commands=commands, facts=facts)


def _empty(kind: type[ScoringPolicy], width: int, window: Window) -> ScoringPolicy:
    """A policy for the default windows; :func:`agents.policies.fitted` fits it to others."""
    options = RunOptions(window=window)
    graph = GraphCapacity(1, 1) if kind is GraphPolicy else None
    return kind(observation_space(options, graph), action_space(options), lambda _: 0.0, width=width)
