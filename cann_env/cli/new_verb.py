"""``cann-env new``: a scenario or a device file to start from, with every key and what it means."""

from pathlib import Path
from typing import Annotated

import typer

from cann_env.cli import completion, help_texts
from cann_env.cli.options import Json
from cann_env.cli.printing import print_json
from cann_env.cli.verbs import Verbs, add_verb
from cann_env.device import load_device
from cann_env.templates import device_template, scenario_template
from cann_env.templates.device import LIKE
from cann_env.templates.scenario import DEVICE, KIND
from cann_env.units import InputError

new = typer.Typer(cls=Verbs, no_args_is_help=True, rich_markup_mode="rich")

Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME", help="Name or path of the file; .toml is put behind it.", show_default=False
    ),
]


def new_scenario(
    name: Name,
    kind: Annotated[
        str,
        typer.Option(metavar="KIND", help="Kind of the workload.", autocompletion=completion.kinds),
    ] = KIND,
    device: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Device, or path of a device file as seen from the scenario's.",
            autocompletion=completion.devices,
        ),
    ] = DEVICE,
    as_json: Json = False,
) -> None:
    """Write a scenario file: every key of its kind and every option, with unit, meaning and default.

    It runs as it stands. A file that is there already is not overwritten. The exit code is 0, or 2 if the
    file cannot be written.
    """
    path = _free(name)
    load_device(path.parent / device if device.endswith(".toml") else device)
    _write(path, scenario_template(path.stem, kind, device), ("run", "explain", "compare"), as_json)


def new_device(
    name: Name,
    like: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Device whose values it starts with, or the path of a device file.",
            autocompletion=completion.devices,
        ),
    ] = LIKE,
    as_json: Json = False,
) -> None:
    """Write a device file: every value with unit and meaning, marked as assumed until you know better.

    It is used as it stands. A file that is there already is not overwritten. The exit code is 0, or 2 if the
    file cannot be written.
    """
    path = _free(name)
    _write(path, device_template(path.stem, like), ("compare pipeline --device",), as_json)


def _free(name: str) -> Path:
    """The path of a new file.

    Raises:
        InputError: The file is there already, its folder is not, or the name is empty.
    """
    path = Path(name if name.endswith(".toml") else f"{name}.toml")
    if not path.stem.strip() or path.name == ".toml":
        raise InputError(f"name {name!r} is empty; write a name such as mine")
    if not path.resolve().parent.is_dir():
        raise InputError(f"file {str(path)!r} cannot be written: its folder does not exist")
    if path.exists():
        raise InputError(f"file {str(path)!r} is there already; write another name, or remove it")
    return path


def _write(path: Path, text: str, verbs: tuple[str, ...], as_json: bool) -> None:
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise InputError(f"file {str(path)!r} cannot be written: {error.strerror}") from error
    nexts = [f"cann-env {verb} {path}" for verb in verbs]
    if as_json:
        print_json({"file": str(path), "next": nexts})
        return
    typer.echo(f"Wrote {path}. Edit it, then:")
    for command in nexts:
        typer.echo(f"  {command}")


add_verb(new, "scenario", new_scenario, panel=None, epilog=help_texts.NEW_SCENARIO)
add_verb(new, "device", new_device, panel=None, epilog=help_texts.NEW_DEVICE)
