"""Pages of the environments, from the contract in the docstring of ``CannEnv`` and the live environments.

``python docs/tools/environment_pages.py`` writes ``docs/environments/*.md``; with ``--pictures`` it also
draws the schedule that the reference scheduler makes of an instance of each. Nothing on them is written by
hand.
"""

from __future__ import annotations

import argparse
import inspect
import re
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

import gymnasium
from gymnasium import spaces

from cann_env import ENVIRONMENTS
from cann_env.engine.layout import P_HBM_BYTES, P_STEP_BUDGET
from cann_env.envs import CannEnv
from cann_env.options import RunOptions, Window
from cann_env.render.gantt import gantt
from cann_env.scenario import load_scenario
from cann_env.schedulers import decide, make_scheduler, run_scheduler
from cann_env.units import format_size

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cann_env.program import Program

DOCS = Path(__file__).resolve().parent.parent
NOTE = "<!-- Written by docs/tools/environment_pages.py; do not edit. -->\n"
SECTION = re.compile(r"^## (.+)$", re.MULTILINE)
OWN = ("Rewards", "Starting State", "Episode End", "Information", "Arguments", "Version History")
"""Sections of the docstring that every page repeats as they are."""


def sections() -> dict[str, str]:
    """The contract by its headings; what stands before the first is called ``""``."""
    parts = SECTION.split(inspect.getdoc(CannEnv) or "")
    texts = dict(zip(["", *parts[1::2]], parts[::2], strict=True))
    return {name: re.sub(r":\w+:`([^`]*)`", r"`\1`", text).strip() for name, text in texts.items()}


def page_name(env_id: str) -> str:
    """``cann/Pipeline-v0`` is told on ``pipeline.md``."""
    return re.sub(r"^cann/|-v\d+$", "", env_id).lower()


def table(head: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> str:
    """A table of Markdown."""
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(str, row))} |" for row in lines)


def actions(options: RunOptions) -> Iterator[tuple[str, str, str]]:
    """Ranges of the numbers of actions, with their names and meanings."""
    startable = options.window is Window.STARTABLE
    streams, first = 1 if startable else options.streams, options.commands
    first *= streams
    named = "`k`" if startable else f"`{streams}*k + s`"
    yield (
        f"{named}, 0 to {first - 1}",
        "issue",
        "submit window command k" + ("" if startable else " to stream s"),
    )
    for count, what in (
        (options.prefetches, "move window buffer p from the host into HBM"),
        (options.l2_prefetches, "copy window buffer p from HBM into L2"),
        (options.offloads, "move window buffer p from HBM to the host"),
    ):
        if count:
            yield f"`{first} + p`, {first} to {first + count - 1}", "prefetch", what
            first += count
    yield f"`{first}`", "wait", "until something completes, arrives or is released"


def observations(space: spaces.Dict, options: RunOptions) -> Iterator[tuple[str, ...]]:
    """Every part of the observation, with its live shape and bounds."""
    slots = {"commands": options.commands, "streams": options.streams, "moves": options.slots}
    for key, part in space.items():
        assert isinstance(part, spaces.Box)
        (size,) = part.shape
        rows = f"{slots[key]} rows of {size // slots[key]}" if key in slots else f"{size} figures"
        yield f"`{key}`", str(part.shape), f"{part.low.min():g}", f"{part.high.max():g}", rows


def set_options(options: RunOptions) -> Iterator[tuple[str, str]]:
    """What the scenario sets, the sizes of the windows included."""
    usual, sizes = RunOptions(), ("streams", "commands", "prefetches", "l2_prefetches", "offloads")
    for field in fields(RunOptions):
        value = getattr(options, field.name)
        if field.name in sizes or value != getattr(usual, field.name):
            yield f"`{field.name}`", f"`{value}`"


def first_instance(env_id: str) -> Program:
    """What is played first where every episode has a graph of its own, as in ``cann-env scenarios``."""
    env = gymnasium.make(f"cann_env:{env_id}", instances=None)
    env.reset(seed=0)
    program: Program = env.unwrapped.program
    return program


def headroom(program: Program) -> tuple[str, str]:
    """A single stream and the reference scheduler over the bound."""
    single, reference = (
        decide(program, make_scheduler(name)).objective_ns / program.norm_ns
        for name in ("single_stream", "reference")
    )
    return f"{single:.3f}", f"{reference:.3f}"


def environment_page(env_id: str) -> str:
    """The page of one environment."""
    scenario = load_scenario(ENVIRONMENTS[env_id])
    env = gymnasium.make(f"cann_env:{env_id}")
    assert isinstance(env.observation_space, spaces.Dict)
    program, options = first_instance(env_id), scenario.options
    hbm = format_size(int(program.image[P_HBM_BYTES]))
    commands, buffers = len(program.graph.commands), len(program.graph.buffers)
    contract = sections()
    parts = ", ".join(f"`{key}` {part.shape}" for key, part in env.observation_space.items())
    single, reference = headroom(program)
    device = f"[`{scenario.device.name}`](../../configs/devices/{scenario.device.name}.toml)"
    name = ENVIRONMENTS[env_id]
    head = [
        ("import", f'`gymnasium.make("cann_env:{env_id}")`'),
        ("many at once", f'`gymnasium.make_vec("cann_env:{env_id}", num_envs=8)`'),
        ("action space", f"`{env.action_space}`"),
        ("observation space", f"`Dict` of float32: {parts}"),
        ("device", device if scenario.device.calibrated else f"{device} (numbers assumed)"),
        ("scenario", f"[`{name}`](../../configs/scenarios/{name}.toml)"),
        ("instance", f"{commands} commands, {buffers} buffers, HBM {hbm}"),
        ("a single stream over the bound", single),
        ("the reference scheduler over the bound", reference),
    ]
    body = [
        f"# {env_id}\n\n{NOTE}\n{scenario.description}",
        table(("", ""), head),
        f"![The schedule of the reference scheduler](../pictures/environments/{page_name(env_id)}.png)",
        "*The schedule that `reference` makes of the instance that `scenario.graph()` gives, the same that "
        "`cann-env scenarios` measures; sizes and ratios above are of this instance too.*",
        f"## Description\n\n{contract['Description']}",
        "## Action Space\n\n"
        + table(("number", "name", "meaning"), actions(options))
        + "\n\nWhich are legal, and what becomes of one that is not: [the contract](index.md#action-space).",
        "## Observation Space\n\n"
        + table(("key", "shape", "low", "high", "rows"), observations(env.observation_space, options))
        + "\n\nWhat each column means: [the contract](index.md#observation-space).",
        "## Options\n\nWhat this scenario sets; all others have "
        "[their defaults](../files.md#options).\n\n" + table(("option", "value"), set_options(options)),
    ]
    for section in OWN:
        text = contract[section]
        if section == "Episode End":
            text += f"\n\nFor the instance above it is {int(program.image[P_STEP_BUDGET])} steps."
        if section == "Arguments":
            text = text.replace('`"pipeline"`', f'`"{name}"`')
        body.append(f"## {section}\n\n{text}")
    return "\n\n".join(body) + "\n"


def overview() -> str:
    """The page of the contract and of all environments."""
    contract = sections()
    rows = []
    for env_id, name in ENVIRONMENTS.items():
        scenario = load_scenario(name)
        rows.append(
            (f"[`{env_id}`]({page_name(env_id)}.md)", f"`{scenario.device.name}`", scenario.description)
        )
    first = next(iter(ENVIRONMENTS))
    body = [
        f"# Environments\n\n{NOTE}\n{contract['']}",
        f'```python\nimport gymnasium\n\nenv = gymnasium.make("cann_env:{first}")\n```',
        "Any scenario file of yours can be played through any of these ids: "
        '`gymnasium.make("cann_env:cann/Random-v0", scenario="mine.toml")`.',
        table(("id", "device", "what can be learned"), rows),
        "What follows is the contract of all of them, as it stands in the docstring of "
        "[`CannEnv`](../api/environments.md).",
        *(f"## {name}\n\n{text}" for name, text in contract.items() if name),
    ]
    return "\n\n".join(body) + "\n"


def pages() -> dict[str, str]:
    """All pages by the names of their files."""
    return {"index.md": overview(), **{f"{page_name(i)}.md": environment_page(i) for i in ENVIRONMENTS}}


def draw(env_id: str, folder: Path) -> Path:
    """The schedule that the reference scheduler makes of the instance on the page."""
    path = folder / f"{page_name(env_id)}.png"
    gantt(run_scheduler(first_instance(env_id), "reference"), path, width_inches=10.0, dpi=100)
    return path


def main() -> None:
    """Write the pages, and the pictures if asked to."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pictures", action="store_true", help="draw them too")
    given = parser.parse_args()
    for name, text in pages().items():
        (DOCS / "environments" / name).write_text(text, encoding="utf-8")
    if given.pictures:
        folder = DOCS / "pictures" / "environments"
        folder.mkdir(parents=True, exist_ok=True)
        for env_id in ENVIRONMENTS:
            draw(env_id, folder)


if __name__ == "__main__":
    main()
