"""A run as plain JSON and back: nothing is lost, nothing unknown is taken."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from cases import make_case
from episodes import actions_of
from toys import toy_device, toy_diamond, vector

from cann_env.archive import Archive, archive_of, from_json, to_json
from cann_env.device import device_names, load_device
from cann_env.graph import CommandGraph, Kernel, KernelClass, Operand
from cann_env.options import RunOptions, Submission
from cann_env.program import compile_graph
from cann_env.schedulers.recording import record_schedule
from cann_env.units import InputError

if TYPE_CHECKING:
    from collections.abc import Callable


def an_archive(graph: CommandGraph | None = None) -> Archive:
    return Archive(
        graph=graph or toy_diamond(),
        device=toy_device(),
        options=RunOptions(streams=2, submission=Submission.EAGER, stream_priorities=(0, 3), noise=0.25),
        actions=(0, 3, 1),
        noise=(1 << 20,) * 4,
    )


def through_text(archive: Archive) -> Archive:
    return from_json(json.loads(json.dumps(to_json(archive))))


@pytest.mark.parametrize("seed", range(12))
def test_random_runs_come_back_and_run_the_same(seed: int) -> None:
    """Graph, device, options, decisions and noise are equal, and so is every row of what they make."""
    case = make_case(seed, own=seed % 2 == 1)
    schedule = record_schedule(case.program, actions_of(case.play()), noise=case.noise)
    found = through_text(archive_of(schedule))
    assert found == archive_of(schedule)
    program = compile_graph(found.graph, found.device, found.options)
    assert record_schedule(program, found.actions, noise=found.noise) == schedule


@pytest.mark.parametrize("name", device_names())
def test_shipped_devices_come_back_whole(name: str) -> None:
    device = load_device(name)
    found = through_text(replace(an_archive(), device=device))
    assert found.device == device
    assert found.device.pool_names == device.pool_names


def test_types_of_fields_survive() -> None:
    """Enums stay enums, tuples tuples, None None, and what a kernel reads and writes is kept."""
    kernel = Kernel(
        name="mm",
        kernel_class=KernelClass.CUBE,
        demand=(("aic", 2), ("aiv", 1)),
        op="MatMulV2",
        inputs=(Operand((4, 8), "float16", "ND"), Operand((), "float32")),
        outputs=(Operand((4, 4), "bfloat16", "FRACTAL_NZ"),),
    )
    graph = CommandGraph("one", (replace(vector("a"), kernels=(kernel,), stream_hint=3), vector("b")))
    found = through_text(an_archive(graph))
    assert found == an_archive(graph)
    back = found.graph.commands[0].kernels[0]
    assert isinstance(back.kernel_class, KernelClass)
    assert back.fallback is None
    assert back.inputs[1].shape == ()
    assert found.graph.commands[1].stream_hint is None
    assert isinstance(found.options.submission, Submission)


def test_equal_archives_give_equal_text() -> None:
    assert json.dumps(to_json(an_archive())) == json.dumps(to_json(an_archive()))


def test_a_field_that_came_later_takes_its_default() -> None:
    """Kernels written before they had operands are read as kernels without any."""
    data = to_json(an_archive())
    names = data["types"]["Kernel"]
    gone = [names.index(name) for name in ("op", "inputs", "outputs")]
    data["types"]["Kernel"] = [name for i, name in enumerate(names) if i not in gone]
    commands = data["types"]["Command"].index("kernels")
    for command in data["graph"][1]:
        command[commands] = [[v for i, v in enumerate(k) if i not in gone] for k in command[commands]]
    assert from_json(sealed(data)) == an_archive()


def sealed(data: dict[str, Any]) -> dict[str, Any]:
    """Data whose sum fits again, as a careful forger would leave them."""
    from cann_env.archive import _digest

    body = {key: value for key, value in data.items() if key != "sha256"}
    return {**body, "sha256": _digest(body)}


def unknown_field(data: dict[str, Any]) -> None:
    data["types"]["Kernel"].append("colour")


def no_name(data: dict[str, Any]) -> None:
    data["types"]["Kernel"].append({})


def missing_field(data: dict[str, Any]) -> None:
    data["types"]["Buffer"].remove("size_bytes")


def unknown_type(data: dict[str, Any]) -> None:
    data["types"]["Wheel"] = ["name"]


def no_type(data: dict[str, Any]) -> None:
    del data["types"]["Command"]


def wrong_word(data: dict[str, Any]) -> None:
    data["options"][data["types"]["RunOptions"].index("submission")] = "lazy"


def wrong_number(data: dict[str, Any]) -> None:
    data["graph"][1][0][data["types"]["Command"].index("release_ns")] = 1.5


def not_a_boolean(data: dict[str, Any]) -> None:
    data["actions"][1] = True


def too_short(data: dict[str, Any]) -> None:
    data["graph"][1][0].pop()


def unsound(data: dict[str, Any]) -> None:
    data["graph"][1][0][0] = data["graph"][1][1][0]


FAULTS: tuple[tuple[Callable[[dict[str, Any]], None], str], ...] = (
    (unknown_field, "a Kernel has no field 'colour'"),
    (no_name, r"types\.Kernel is .*; it must be a list of names"),
    (missing_field, "a Buffer needs the field 'size_bytes'"),
    (unknown_type, "unknown type 'Wheel'"),
    (no_type, r"graph\.commands\[0\] is a Command, whose fields 'types' does not name"),
    (wrong_word, "options.submission is 'lazy'; it must be one of 'eager', 'sink'"),
    (wrong_number, r"graph\.commands\[0\]\.release_ns is '1.5'; it must be a whole number"),
    (not_a_boolean, r"actions\[1\] is 'True'; it must be a whole number"),
    (too_short, r"graph\.commands\[0\] is .*; it must be a list of"),
    (unsound, "graph 'diamond'.*'b'"),
)


@pytest.mark.parametrize(("plant", "words"), FAULTS)
def test_what_is_unknown_or_wrong_is_refused_by_name(
    plant: Callable[[dict[str, Any]], None], words: str
) -> None:
    data = copy.deepcopy(to_json(an_archive()))
    plant(data)
    with pytest.raises(InputError, match=words):
        from_json(sealed(data))
    with pytest.raises(InputError, match="altered since it was written"):
        from_json(data)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format": "a poem"}, "this is no archive of a run"),
        ({"version": 2}, "its version is 2; this package reads 1"),
        ({"more": 1}, "unknown key 'more'"),
    ],
)
def test_frames_of_other_kinds_are_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        from_json({**to_json(an_archive()), **change})


def test_missing_parts_and_garbage_are_refused() -> None:
    data = to_json(an_archive())
    del data["noise"]
    with pytest.raises(InputError, match="the key 'noise' is missing"):
        from_json(data)
    for garbage in (None, [], "text", 7, {}):
        with pytest.raises(InputError, match="no archive of a run"):
            from_json(garbage)
