"""Scenarios: what a file may say, what an error says, which instance an episode gets."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from test_workloads import digest

from cann_env.device.cost import kernel_cost, link_rate_q20, minimum_kernel_ns
from cann_env.device.load import load_device
from cann_env.graph import BufferKind, CommandKind, CopyKind, KernelClass, Level
from cann_env.options import Objective, RunOptions, Submission, Window
from cann_env.program import compile_graph
from cann_env.scenario import Scenario, load_scenario, scenario_names
from cann_env.schedulers import SCHEDULERS, run_scheduler
from cann_env.units import InputError
from cann_env.workloads.description import target_of
from cann_env.workloads.generated import (
    Family,
    ForkJoinWorkload,
    LayeredWorkload,
    PipelineWorkload,
    RandomWorkload,
    TrainingWorkload,
    TransformerWorkload,
)
from cann_env.workloads.kinds import KINDS
from cann_env.workloads.served import OnnxServingWorkload, ServingWorkload
from cann_env.workloads.serving import ArrivalProcess, Arrivals, Mix
from cann_env.workloads.trained import TrainingResnetWorkload, TrainingTransformerWorkload

if TYPE_CHECKING:
    from pathlib import Path

    from cann_env.graph import Buffer, CommandGraph

SHIPPED = (
    "layered",
    "oversubscribed",
    "pipeline",
    "random",
    "serving",
    "serving_arrivals",
    "serving_onnx",
    "training",
    "transformer",
)

GOOD = """
[scenario]
name = "mine"
description = "Something to try."
device = "ascend910b2"

[workload]
kind = "layered"
commands = 20
traits.shortest_ns = "3 us"

[options]
streams = 4
submission = "eager"
hbm_bytes = "2 GiB"
stream_priorities = [0, 0, 1, 1]
"""


def write(folder: Path, text: str, name: str = "mine.toml") -> Path:
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return file


# Files.


def test_a_file_becomes_a_scenario(tmp_path: Path) -> None:
    scenario = load_scenario(write(tmp_path, GOOD))
    assert (scenario.name, scenario.device) == ("mine", load_device("ascend910b2"))
    assert isinstance(scenario.workload, LayeredWorkload)
    assert scenario.workload.commands == 20
    assert scenario.workload.traits.shortest_ns == 3_000
    assert scenario.options == RunOptions(
        streams=4,
        submission=Submission.EAGER,
        hbm_bytes=2 * 2**30,
        stream_priorities=(0, 0, 1, 1),
    )
    assert scenario.options.submission is Submission.EAGER
    assert load_scenario(str(tmp_path / "mine.toml")) == scenario


def test_options_may_be_left_out(tmp_path: Path) -> None:
    text = GOOD[: GOOD.index("[options]")]
    assert load_scenario(write(tmp_path, text)).options == RunOptions()


def test_models_of_a_serving_workload_are_nested(tmp_path: Path) -> None:
    head = GOOD[: GOOD.index("[workload]")]
    text = (
        head
        + """
[workload]
kind = "serving"
requests = 3
mix = "draw"
arrivals = { kind = "burst", rate_per_s = 100, burst = 3 }
models = [{ kind = "chain", commands = 4 }, { kind = "onnx", model = "nets/my.onnx" }, { kind = "chain" }]
"""
    )
    workload = load_scenario(write(tmp_path, text)).workload
    assert isinstance(workload, ServingWorkload)
    assert workload.arrivals == ArrivalProcess(kind=Arrivals.BURST, rate_per_s=100, burst=3)
    assert workload.mix is Mix.DRAW
    assert [model.kind for model in workload.models] == ["chain", "onnx", "chain"]


def test_a_device_file_lies_beside_the_scenario(tmp_path: Path) -> None:
    device = 'extends = "ascend310b1"\ntitle = "Mine"\n'
    write(tmp_path, device, "board.toml")
    scenario = load_scenario(write(tmp_path, GOOD.replace("ascend910b2", "board.toml")))
    assert (scenario.device.name, scenario.device.pools["aic"]) == ("board", 1)
    with pytest.raises(
        InputError, match="device 'board' differs from the shipped one; write it to a device file"
    ):
        scenario.to_dict()
    changed = replace(scenario, device=replace(load_device("ascend310b1"), clock_hz=1))
    with pytest.raises(InputError, match="device 'ascend310b1' differs from the shipped one"):
        changed.to_dict()


WRONG = [
    (
        "[options]",
        "[option]",
        r"mine.toml: table \[option\] is not known; did you mean 'options'\? the tables are scenario, work",
    ),
    (
        "[options]",
        "",
        r"\[workload\] of kind 'layered': key 'streams' is not known; the keys here are commands, width",
    ),
    (
        "streams = 4",
        "stream = 4",
        r"\[options\]: key 'stream' is not known; did you mean 'streams'\? the keys here are .*run_ahead",
    ),
    ("streams = 4", "streams = 0", r"\[options\]: option 'streams' is 0; write a whole number of at least 1"),
    ("streams = 4", "streams = 4.0", r"\[options\]: key 'streams' is 4.0; write a whole number"),
    ("streams = 4", "streams = true", r"\[options\]: key 'streams' is True; write a whole number"),
    ("streams = 4", "noise = '1'", r"\[options\]: key 'noise' is '1'; write a number"),
    ('"eager"', '"lazy"', r"\[options\]: key 'submission' is 'lazy'; write one of eager, sink"),
    ('"2 GiB"', '"2 GB/s"', r"key 'hbm_bytes': size '2 GB/s' has unit 'GB/s'; write one of B, kB"),
    (
        "[0, 0, 1, 1]",
        "[0, 0]",
        r"\[options\]: option 'stream_priorities' has 2 entries; write one for each of the 4",
    ),
    ("[0, 0, 1, 1]", "3", r"key 'stream_priorities' is 3; write a list, each item a whole number"),
    ("[0, 0, 1, 1]", "[0, 0, 1, 'x']", r"key 'stream_priorities', item 3 is 'x'; write a whole number"),
    (
        '"layered"',
        '"layers"',
        r"\[workload\]: key 'kind' is 'layers'; did you mean 'layered'\? write one of chain, cnn, fork_",
    ),
    ('kind = "layered"', "", r"\[workload\]: key 'kind' is missing; write one of chain, cnn"),
    ("commands = 20", "commands = 0", r"kind 'layered': 'commands' is 0; write a whole number of at least 1"),
    (
        "commands = 20",
        "wide = 20",
        r"kind 'layered': key 'wide' is not known; did you mean 'width'\? the keys here are commands, width",
    ),
    (
        '"3 us"',
        '"3 sec"',
        r"key 'traits': key 'shortest_ns': time '3 sec' has unit 'sec'; write one of ns, us",
    ),
    (
        "traits.shortest_ns",
        "traits.shorter_ns",
        r"key 'traits': key 'shorter_ns' is not known; did you mean 'shortest_ns'\? the keys here are cube",
    ),
    ('traits.shortest_ns = "3 us"', "traits = 3", r"key 'traits' is 3; it is a table of keys"),
    (
        '"ascend910b2"',
        '"ascend910z"',
        r"\[scenario\]: key 'device' is 'ascend910z'; did you mean 'ascend910a'\? write .*or the path",
    ),
    ('"ascend910b2"', "7", r"\[scenario\]: key 'device' is 7; write a text in quotes"),
    ('name = "mine"', "", r"\[scenario\]: key 'name' is missing; write a text in quotes"),
    ('"Something to try."', '" "', r"\[scenario\]: key 'description' is empty; write a few words"),
    ("[scenario]", "[scenario", r"mine.toml: is not valid TOML: .*line 2"),
]


@pytest.mark.parametrize(("old", "new", "message"), WRONG, ids=[new or old for old, new, _ in WRONG])
def test_what_is_wrong_in_a_file_is_said(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert GOOD.count(old) == 1
    with pytest.raises(InputError, match=message) as caught:
        load_scenario(write(tmp_path, GOOD.replace(old, new)))
    assert str(tmp_path / "mine.toml") in str(caught.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none.toml: cannot be read as a scenario file: No such file"):
        load_scenario(tmp_path / "none.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match=r"bytes\.toml: is not UTF-8 text: byte 0"):
        load_scenario(tmp_path / "bytes.toml")
    with pytest.raises(
        InputError, match="scenario 'none' is not known; write one of layered, oversubscribed, pipeline, "
    ):
        load_scenario("none")


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({}, r"scenario: table \[scenario\] is missing"),
        ({"scenario": 3}, r"scenario: scenario is 3; it is a table, write \[scenario\]"),
        (
            {"scenario": {"name": "a", "description": "b", "device": "ascend910b2"}},
            r"table \[workload\] is missing",
        ),
    ],
)
def test_dictionaries_are_checked_too(tables: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Scenario.from_dict(tables)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"kind": "serving", "models": []}, "'models' is empty; list at least one"),
        ({"kind": "serving"}, "key 'models' is missing; write a list, each item a table with the key 'kind'"),
        ({"kind": "serving", "models": [3]}, "key 'models', item 0 is 3; it is a table with the key 'kind'"),
        ({"kind": "serving", "models": [{"kind": "cnn", "image": 8}]}, "item 0 of kind 'cnn': 'image' is 8"),
        (
            {"kind": "serving", "models": [{"kind": "onnx_serving", "models": ["a"]}]},
            "'models' holds a workload of kind 'onnx_serving'; list its models instead",
        ),
        (
            {"kind": "random", "families": ["cnn", "rnn"]},
            "key 'families', item 1 is 'rnn'; did you mean 'cnn'\\? write one of layered,",
        ),
        (
            {"kind": "random", "most_commands": 9},
            "'most_commands' is 9; write at least the 40 of 'least_commands'",
        ),
        (
            {"kind": "training", "most_tokens": 9},
            "'most_tokens' is 9; write at least the 256 of 'least_tokens'",
        ),
        ({"kind": "training", "width": 0}, "'width' is 0; write a whole number of at least 1"),
        (
            {"kind": "training", "activations": "host"},
            "key 'activations' is 'host'; write one of device, managed",
        ),
        ({"kind": "training_resnet", "blocks": [1, 0]}, "'blocks' is 0; write a whole number of at least 1"),
        ({"kind": "training_resnet", "moments": "absent"}, "'moments' is 'absent'; write 'host'"),
        (
            {"kind": "training_transformer", "gradients": "hbm"},
            "key 'gradients' is 'hbm'; write one of device",
        ),
        ({"kind": "transformer", "heads": 7}, "'heads' is 7, which does not divide 'hidden' 1024"),
        ({"kind": "transformer", "weights": "absent"}, "'weights' is 'absent'; write 'host'"),
        (
            {"kind": "pipeline", "flops": 1, "input_bytes": 1},
            "key 'output_bytes' is missing; write a whole number",
        ),
        ({"kind": "onnx_serving", "models": ["a"], "requests": 0}, "'requests' is 0"),
        (
            {"kind": "onnx_serving", "models": ["a"], "arrivals": {"kind": "poisson"}},
            "key 'arrivals': 'rate_per_s' is 0",
        ),
    ],
)
def test_workloads_are_checked(table: dict[str, Any], message: str) -> None:
    head = {"name": "a", "description": "b", "device": "ascend910b2"}
    with pytest.raises(InputError, match=message):
        Scenario.from_dict({"scenario": head, "workload": table})


# Round trips and changes.


@pytest.mark.parametrize("name", SHIPPED)
def test_a_scenario_survives_json(name: str) -> None:
    scenario = load_scenario(name)
    assert Scenario.from_dict(json.loads(json.dumps(scenario.to_dict()))) == scenario


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_survives_json(kind: str) -> None:
    needed: dict[str, dict[str, Any]] = {
        "pipeline": {"input_bytes": 3, "output_bytes": "1 KiB", "flops": 0},
        "onnx": {"model": "resnet50"},
        "onnx_serving": {"models": ["resnet50", "vgg19"]},
        "serving": {"models": [{"kind": "random"}, {"kind": "cnn", "batches": [1, 2]}]},
    }
    head = {"name": "a", "description": "b", "device": "ascend310b1"}
    table = {"kind": kind, **needed.get(kind, {})}
    scenario = Scenario.from_dict({"scenario": head, "workload": table})
    assert scenario.workload.kind == kind
    assert Scenario.from_dict(json.loads(json.dumps(scenario.to_dict()))) == scenario


def test_options_can_be_changed() -> None:
    scenario = load_scenario("pipeline")
    changed = scenario.with_options(streams=5, submission="sink", window=Window.STARTABLE, hbm_bytes="1 GiB")
    assert changed.options == replace(
        scenario.options,
        streams=5,
        submission=Submission.SINK,
        window=Window.STARTABLE,
        hbm_bytes=2**30,
    )
    assert changed.options.submission is Submission.SINK
    assert changed.workload is scenario.workload
    with pytest.raises(InputError, match=r"scenario 'pipeline': \[options\]: key 'stream' is not known"):
        scenario.with_options(stream=3)


def test_memory_in_bytes_and_as_a_factor_take_each_others_place() -> None:
    scenario = load_scenario("pipeline").with_options(hbm_bytes="1 GiB")
    factor = scenario.with_options(memory_factor=0.5)
    assert (factor.options.hbm_bytes, factor.options.memory_factor) == (None, 0.5)
    sized = factor.with_options(hbm_bytes=7)
    assert (sized.options.hbm_bytes, sized.options.memory_factor) == (7, None)
    assert factor.with_options(hbm_bytes=None).options == factor.options
    assert factor.with_options(streams=2).options.memory_factor == 0.5
    with pytest.raises(InputError, match="both set the memory; write one of them"):
        scenario.with_options(memory_factor=0.5, hbm_bytes=7)


def test_the_device_can_be_changed() -> None:
    """The kernels of a network are cut for the cores there are."""
    scenario = load_scenario("transformer")
    small = scenario.with_device("ascend310b4")
    assert small.device.name == "ascend310b4"
    assert max(k.blocks for c in scenario.graph().commands for k in c.kernels) == 48
    assert max(k.blocks for c in small.graph().commands for k in c.kernels) == 1


# Instances.


def test_an_instance_depends_on_seed_environment_and_episode() -> None:
    scenario = load_scenario("layered")
    seen = {
        key: digest(scenario.graph(*key))
        for key in [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (2**40, 3, 9)]
    }
    assert len(set(seen.values())) == 5
    again = Scenario.from_dict(scenario.to_dict())
    assert {key: digest(again.graph(*key)) for key in reversed(seen)} == seen
    assert digest(scenario.graph()) == seen[0, 0, 0]
    assert digest(scenario.graph(episode=1)) == seen[0, 0, 1]


def test_a_program_is_that_of_the_instance() -> None:
    """The graph of the same three numbers, on the scenario's device, with its options."""
    scenario = load_scenario("layered").with_options(streams=3)
    program = scenario.program(seed=7, env_index=1, episode=2)
    assert program.graph == scenario.graph(7, 1, 2)
    assert program.graph != scenario.graph()
    assert (program.device, program.options) == (scenario.device, scenario.options)
    by_hand = compile_graph(scenario.graph(7, 1, 2), scenario.device, scenario.options)
    assert program.lower_bound_ns == by_hand.lower_bound_ns
    with pytest.raises(InputError, match="'episode' is -1"):
        scenario.program(episode=-1)


@pytest.mark.parametrize("key", ["seed", "env_index", "episode"])
def test_negative_numbers_name_no_instance(key: str) -> None:
    with pytest.raises(InputError, match=f"'{key}' is -1 in scenario 'layered'; write a whole number >= 0"):
        load_scenario("layered").graph(**{key: -1})


def test_halves_name_no_instance() -> None:
    with pytest.raises(InputError, match=r"'seed' is 1\.5 in scenario 'layered'; write a whole number >= 0"):
        load_scenario("layered").graph(1.5)  # type: ignore[arg-type]


def test_a_fixed_workload_is_built_once() -> None:
    scenario = load_scenario("pipeline")
    assert scenario.workload.fixed
    assert scenario.graph(0, 0, 0) is scenario.graph(5, 1, 7)
    assert load_scenario("layered").graph(0, 0, 4) is load_scenario("layered").graph(0, 0, 4)


def test_which_workloads_are_fixed() -> None:
    layers = LayeredWorkload()
    one, two = TransformerWorkload(), TransformerWorkload(sequences=(128, 256))
    poisson = ArrivalProcess(kind=Arrivals.POISSON, rate_per_s=9)
    assert (one.fixed, two.fixed, layers.fixed, RandomWorkload().fixed) == (True, False, False, False)
    assert TrainingWorkload(least_tokens=64, most_tokens=64).fixed
    assert not TrainingWorkload().fixed
    assert TrainingResnetWorkload().fixed
    assert not TrainingResnetWorkload(batches=(1, 2)).fixed
    assert TrainingTransformerWorkload().fixed
    assert not TrainingTransformerWorkload(sequences=(1, 2)).fixed
    assert ServingWorkload(models=(one,)).fixed
    assert not ServingWorkload(models=(one, two)).fixed
    assert not ServingWorkload(models=(one,), mix=Mix.DRAW).fixed
    assert not ServingWorkload(models=(one,), arrivals=poisson).fixed
    assert OnnxServingWorkload(models=("resnet50",)).fixed


PINNED: dict[str, str] = {
    "layered": "2aba39808a0e0356",
    "oversubscribed": "ac33b7589dcb653e",
    "random": "ece8bf71fab2f870",
    "serving": "689ca6f6dde54628",
    "serving_arrivals": "8fc2858e32cf2f65",
    "training": "5f341152e4afdf4a",
    "transformer": "d6ecc27de689b9c1",
}


def pinned_instances() -> dict[str, str]:
    return {name: digest(load_scenario(name).graph(seed=3, env_index=2, episode=1)) for name in PINNED}


def test_instances_are_the_same_on_every_machine() -> None:
    assert pinned_instances() == PINNED


@pytest.mark.slow
def test_instances_do_not_depend_on_the_hash_seed_of_python() -> None:
    code = "import json, test_scenario as t; print(json.dumps(t.pinned_instances()))"
    env = {**os.environ, "PYTHONHASHSEED": "4711", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == PINNED


def test_a_random_scenario_draws_every_family() -> None:
    """Over forty episodes each family is seen, and its size stays near what was asked for."""
    workload = RandomWorkload(least_commands=30, most_commands=60)
    scenario = replace(load_scenario("random"), workload=workload)
    seen, levels = set(), set()
    for episode in range(40):
        graph = scenario.graph(episode=episode)
        first = graph.commands[1].name
        seen.add({"stem/conv1": "cnn", "l0/norm1": "transformer"}.get(first, "other"))
        levels |= {buffer.level for buffer in graph.buffers if buffer.kind == BufferKind.MANAGED}
        assert 15 <= len(graph.commands) <= 110
    assert seen == {"cnn", "transformer", "other"}
    assert levels == {Level.HOST, Level.HBM}


def test_a_random_workload_keeps_to_its_families() -> None:
    workload = RandomWorkload(families=(Family.CHAIN,), least_commands=10, most_commands=12)
    graph = replace(load_scenario("random"), workload=workload).graph(seed=1)
    assert all(len(before) <= 1 for before in graph.predecessors)


def test_a_random_fork_join_has_about_the_size_asked_for() -> None:
    workload = RandomWorkload(families=(Family.FORK_JOIN,), least_commands=100, most_commands=100)
    scenario = replace(load_scenario("random"), workload=workload)
    sizes = [len(scenario.graph(episode=episode).commands) for episode in range(8)]
    assert sum(sizes) / len(sizes) == pytest.approx(100, rel=0.2)


def test_models_of_one_kind_are_told_apart() -> None:
    models = (TransformerWorkload(), ForkJoinWorkload(), TransformerWorkload(hidden=512, heads=8))
    scenario = replace(load_scenario("serving"), workload=ServingWorkload(models=models, requests=3))
    names = {b.name.split("/")[0] for b in scenario.graph().buffers if b.kind == BufferKind.MANAGED}
    assert names == {"transformer#0", "fork_join", "transformer#2"}


def test_targets_are_equal_if_their_cores_are() -> None:
    first, second = load_device("ascend910b1"), load_device("ascend910b2")
    assert target_of(first) == target_of(second)
    assert hash(target_of(first)) == hash(target_of(second))
    assert target_of(first) != target_of(load_device("ascend910b4"))


# Shipped scenarios.


def test_all_shipped_scenarios_are_there() -> None:
    assert set(SHIPPED) <= set(scenario_names())
    assert list(scenario_names()) == sorted(scenario_names())


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_scenario_says_what_it_teaches(name: str) -> None:
    scenario = load_scenario(name)
    assert scenario.name == name
    assert scenario.description.endswith(".")
    assert scenario.description.count(". ") == 0
    assert scenario.options.streams <= scenario.device.limits.max_concurrent_streams


def test_the_pipeline_keeps_the_proportions_it_states() -> None:
    """Alone on the 310B1 a batch takes 345 us in, 310 us on the AI core, 345 us out: 31 % busy."""
    scenario = load_scenario("pipeline")
    assert isinstance(scenario.workload, PipelineWorkload)
    graph, device = scenario.graph(), scenario.device

    def alone_ns(index: int) -> int:
        command = graph.commands[index]
        kernel = command.kernels[0] if command.kernels else None
        work_class = kernel.kernel_class if kernel else str(command.copy)
        size = kernel.bytes_read + kernel.bytes_written if kernel else command.size_bytes
        flops = kernel.flops if kernel else 0
        cost = kernel_cost(
            device, work_class, flops=flops, dtype="float16", size_bytes=size, blocks=1, duration_ns=None
        )
        return minimum_kernel_ns(device, work_class, cost, 1)

    copy_in, kernel, copy_out = alone_ns(0), alone_ns(1), alone_ns(2)
    assert copy_in == copy_out == pytest.approx(345_000, rel=0.002)
    assert kernel == pytest.approx(310_000, rel=0.002)
    assert kernel / (copy_in + kernel + copy_out) == pytest.approx(0.31, abs=0.002)
    assert len(graph.commands) == 3 * 32
    assert not any(device.links[link].shares_hbm for link in ("h2d", "d2h"))
    assert (scenario.device.name, scenario.options.streams) == ("ascend310b1", 3)
    assert scenario.options.submission is Submission.EAGER


@pytest.mark.parametrize("episode", range(3))
def test_serving_starts_cold_with_everything_at_once(episode: int) -> None:
    scenario = load_scenario("serving")
    graph = scenario.graph(episode=episode)
    requests = {command.request for command in graph.commands}
    assert 80 <= len(graph.commands) <= 140
    assert 4 <= len(requests) <= 6
    assert {command.release_ns for command in graph.commands} == {0}
    weights = [buffer for buffer in graph.buffers if buffer.kind == BufferKind.MANAGED]
    assert {buffer.level for buffer in weights} == {Level.HOST}
    classes = {kernel.kernel_class for command in graph.commands for kernel in command.kernels}
    assert classes >= {KernelClass.CUBE, KernelClass.VECTOR, KernelClass.MIX}
    kinds = {command.copy for command in graph.commands if command.kind == CommandKind.COPY}
    assert kinds == {CopyKind.H2D, CopyKind.D2H}
    assert (scenario.options.streams, scenario.options.submission) == (8, Submission.SINK)


def test_serving_with_arrivals_is_about_latency() -> None:
    scenario = load_scenario("serving_arrivals")
    graph = scenario.graph()
    assert scenario.options.objective is Objective.LATENCY
    assert (
        len({command.release_ns for command in graph.commands})
        == len({c.request for c in graph.commands})
        > 3
    )


def lifetimes(graph: CommandGraph) -> dict[Buffer, range]:
    """Positions in program order from the first use of each buffer to its last."""
    uses: dict[str, list[int]] = {}
    for i, command in enumerate(graph.commands):
        for name in (*command.reads, *command.writes):
            uses.setdefault(name, []).append(i)
    return {b: range(min(uses[b.name]), max(uses[b.name]) + 1) for b in graph.buffers if b.name in uses}


def kept_bytes(graph: CommandGraph, *, kind: BufferKind | None = None) -> int:
    """Most bytes that live at once if every buffer (of a kind) is kept from first to last use."""
    lives = lifetimes(graph)
    return max(
        sum(b.size_bytes for b, life in lives.items() if i in life and kind in (None, b.kind))
        for i in range(len(graph.commands))
    )


def test_a_training_step_has_about_a_hundred_commands_and_a_length_of_its_own() -> None:
    scenario = load_scenario("training")
    graphs = [scenario.graph(episode=episode) for episode in range(12)]
    assert {len(graph.commands) for graph in graphs} == {133}
    sizes = {graph.buffers[graph.buffer_index["tokens"]].size_bytes for graph in graphs}
    assert sizes == {2 * 2048 * 8 * length for length in (2048, 3072, 4096)}
    kinds = {command.kind for command in graphs[0].commands}
    assert kinds == {CommandKind.KERNEL, CommandKind.COPY, CommandKind.COLLECTIVE}


@pytest.mark.parametrize("length", [2048, 3072, 4096])
def test_activations_of_a_training_step_outlive_the_memory(length: int) -> None:
    """They do not fit, but resident buffers do, and what any command moves beside all device buffers.

    Moving out what is too much takes longer than the forward pass, but not twice as long.
    """
    scenario = load_scenario("training")
    assert isinstance(scenario.workload, TrainingTransformerWorkload)
    graph = replace(scenario, workload=replace(scenario.workload, sequences=(length,))).graph()
    need, device = kept_bytes(graph), scenario.device
    assert scenario.options.memory_factor is not None
    memory = int(need * scenario.options.memory_factor)
    loss = graph.command_index["loss"]
    activations = sum(
        b.size_bytes
        for b, life in lifetimes(graph).items()
        if b.kind == BufferKind.MANAGED and b.level == Level.ABSENT and loss in life
    )
    resident = sum(b.size_bytes for b in graph.buffers if b.level == Level.HBM)
    size = {b.name: b.size_bytes for b in graph.buffers if b.kind == BufferKind.MANAGED}
    operands = max(sum(size.get(name, 0) for name in {*c.reads, *c.writes}) for c in graph.commands)
    assert activations > memory > resident
    assert operands + kept_bytes(graph, kind=BufferKind.DEVICE) < 0.5 * memory
    forward_ns = 0
    for command in graph.commands[:loss]:
        for kernel in command.kernels:
            cost = kernel_cost(
                device,
                kernel.kernel_class,
                flops=kernel.flops,
                dtype=kernel.dtype,
                size_bytes=kernel.bytes_read + kernel.bytes_written,
                blocks=kernel.blocks,
                duration_ns=None,
            )
            forward_ns += minimum_kernel_ns(device, kernel.kernel_class, cost, kernel.blocks)
    out_ns = (need - memory) * 2**20 // link_rate_q20(device, "d2h")
    assert 1 < out_ns / forward_ns < 2


def moves(scenario: Scenario, hbm_bytes: int, seed: int) -> Counter[str]:
    """How many weights came in and how many were dropped on a single stream."""
    options = scenario.with_options(hbm_bytes=hbm_bytes).options
    schedule = run_scheduler(compile_graph(scenario.graph(seed), scenario.device, options), "single_stream")
    return Counter("out" if move.cause == "evict" else "in" for move in schedule.transfers)


@pytest.mark.parametrize("seed", range(3))
def test_oversubscribed_weights_are_fetched_again(seed: int) -> None:
    """Weights are near twice the memory: some come in twice; with 4 GiB each comes in once and stays."""
    scenario = load_scenario("oversubscribed")
    graph = scenario.graph(seed)
    weights = [buffer for buffer in graph.buffers if buffer.kind == BufferKind.MANAGED]
    assert scenario.options.memory_factor is not None
    memory = int(kept_bytes(graph) * scenario.options.memory_factor)
    assert 1.7 < sum(buffer.size_bytes for buffer in weights) / memory < 2.0
    assert {buffer.level for buffer in weights} == {Level.HOST}
    tight = moves(scenario, memory, seed)
    assert tight["in"] > len(weights)
    assert tight["out"] > 0
    assert moves(scenario, 2**32, seed) == {"in": len(weights)}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["oversubscribed", "training"])
def test_schedulers_finish_and_the_reference_beats_one_stream(name: str) -> None:
    scenario = load_scenario(name)
    names = [rule for rule in SCHEDULERS if rule not in ("exact", "ios", "search")]  # these take minutes
    for seed in range(7):
        program = compile_graph(scenario.graph(seed), scenario.device, scenario.options)
        spans = {rule: run_scheduler(program, rule).makespan_ns for rule in names}
        assert spans["reference"] <= spans["single_stream"], seed


@pytest.mark.slow
def test_serving_real_networks_asks_for_each_twice() -> None:
    graph = load_scenario("serving_onnx").graph()
    asked = {}
    for command in graph.commands:
        for name in command.reads:
            if name.split("/")[0] in ("resnet50", "inception_v1", "squeezenet"):
                asked[command.request] = name.split("/")[0]
    assert sorted(asked.values()) == ["inception_v1"] * 2 + ["resnet50"] * 2 + ["squeezenet"] * 2
    assert load_scenario("serving_onnx").graph(seed=1) is graph
