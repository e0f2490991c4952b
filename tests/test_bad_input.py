"""One table of wrong inputs and the error that each gives: it names the object, the value, and what is right.

The rooms test their own refusals in depth; this page shows what a user sees.
"""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING, Any, NamedTuple

import gymnasium
import numpy as np
import pytest
from random_graphs import random_graph
from toys import copy_in, cube, managed, toy_chain, toy_device, toy_kernel, toy_squeeze, vector

from cann_env.device import load_device
from cann_env.envs import CannEnv, EpisodeOverError
from cann_env.graph import Buffer, BufferKind, Command, CommandGraph, CommandKind, Level, Scheme
from cann_env.options import RunOptions
from cann_env.paths import config_folder
from cann_env.program import compile_graph
from cann_env.scenario import Scenario, load_scenario
from cann_env.schedulers import run_scheduler
from cann_env.units import AclError, InputError, parse_bandwidth, parse_size_bytes, parse_time_ns

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Wrong(NamedTuple):
    """A wrong input: what is tried, and what its error must say."""

    what: str
    attempt: Callable[[Path], object]
    says: tuple[str, ...]
    error: type[Exception] = InputError


def graph(*commands: Command, buffers: tuple[Buffer, ...] = ()) -> CommandGraph:
    return CommandGraph("g", commands, buffers)


def device_file(folder: Path, text: str) -> object:
    path = folder / "chip.toml"
    path.write_text(text)
    return load_device(path)


def changed_device(folder: Path, old: str, new: str) -> object:
    text = (config_folder("devices") / "ascend910b2.toml").read_text()
    assert old in text
    return device_file(folder, text.replace(old, new, 1))


def scenario(**changes: Any) -> Scenario:
    tables: dict[str, Any] = {
        "scenario": {"name": "s", "description": "d", "device": "ascend910b2"},
        "workload": {"kind": "layered"},
        "options": {},
    }
    for dotted, value in changes.items():
        table, key = dotted.split("__")
        tables[table][key] = value
    return Scenario.from_dict(tables)


def stepped(action: object) -> object:
    env = CannEnv("layered")
    env.reset(seed=0)
    return env.step(action)  # type: ignore[arg-type]


def onnx_model(folder: Path, *, truncated: bool = False, dims: tuple[object, ...] = (1, 8)) -> object:
    onnx = pytest.importorskip("onnx")
    from cann_env.workloads.from_onnx import from_onnx

    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    x = helper.make_tensor_value_info("x", kind, dims)
    y = helper.make_tensor_value_info("y", kind, None)
    model = helper.make_model(helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "m", [x], [y]))
    path = folder / "m.onnx"
    data = model.SerializeToString()
    path.write_bytes(data[: len(data) // 2] if truncated else data)
    return from_onnx(path, load_device("ascend910b2"))


def empty_model(folder: Path) -> object:
    """A valid model that hands its input on: it is whole, there is just nothing to run."""
    onnx = pytest.importorskip("onnx")
    from cann_env.workloads.from_onnx import from_onnx

    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, (1, 8))
    model = onnx.helper.make_model(onnx.helper.make_graph([], "m", [x], [x]))
    onnx.checker.check_model(model)
    path = folder / "m.onnx"
    path.write_bytes(model.SerializeToString())
    return from_onnx(path, load_device("ascend910b2"))


def unknown_operator(folder: Path) -> object:
    onnx = pytest.importorskip("onnx")
    from cann_env.workloads.from_onnx import from_onnx

    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    x = helper.make_tensor_value_info("x", kind, (1, 8))
    y = helper.make_tensor_value_info("y", kind, (1, 8))
    node = helper.make_node("Frobnicate", ["x"], ["y"], name="n0", domain="my.ops")
    model = helper.make_model(helper.make_graph([node], "m", [x], [y]))
    model.opset_import.append(helper.make_opsetid("my.ops", 1))
    path = folder / "m.onnx"
    path.write_bytes(model.SerializeToString())
    return from_onnx(path, load_device("ascend910b2"))


def make_env(**kwargs: Any) -> object:
    return gymnasium.make("cann_env:cann/Random-v0", **kwargs)


CHAIN = toy_chain(3)
TABLE = [
    Wrong("time without unit", lambda _: parse_time_ns("12"), ("'12'", "us")),
    Wrong("size with a unit of time", lambda _: parse_size_bytes("4 ms"), ("'ms'", "MiB")),
    Wrong("bandwidth without per second", lambda _: parse_bandwidth("4 GB"), ("'GB'", "GB/s")),
    Wrong("unknown device", lambda _: load_device("ascend910b9"), ("ascend910b9", "ascend910b2")),
    Wrong(
        "device with a negative value",
        lambda f: changed_device(f, "hbm = { value = 64", "hbm = { value = -64"),
        ("chip.toml", "memory.hbm", "-64"),
    ),
    Wrong(
        "device with a wrong unit",
        lambda f: changed_device(f, 'hbm = { value = 64, unit = "GiB"', 'hbm = { value = 64, unit = "us"'),
        ("chip.toml", "memory.hbm", "'us'", "GiB"),
    ),
    Wrong(
        "device with an unknown key",
        lambda f: changed_device(f, "[memory]\n", '[memory]\ncolour = { value = 1, unit = "B" }\n'),
        ("chip.toml", "memory.colour"),
    ),
    Wrong("device that is no TOML", lambda f: device_file(f, "a = = 1"), ("chip.toml", "line 1")),
    Wrong(
        "device with keys missing",
        lambda f: device_file(f, 'title = "x"'),
        ("chip.toml", "calibrated", "write true"),
    ),
    Wrong("unknown scenario", lambda _: load_scenario("pipelin"), ("pipelin", "pipeline")),
    Wrong("scenario with an unknown key", lambda _: scenario(options__stream=3), ("'stream'", "streams")),
    Wrong(
        "scenario with a wrong value", lambda _: scenario(options__streams=0), ("streams", "0", "at least 1")
    ),
    Wrong("scenario with a wrong type", lambda _: scenario(options__streams="3"), ("streams", "'3'")),
    Wrong("scenario with an unknown kind", lambda _: scenario(workload__kind="x"), ("'x'", "pipeline")),
    Wrong("scenario with a wrong choice", lambda _: scenario(options__window="all"), ("'all'", "startable")),
    Wrong("noise out of range", lambda _: RunOptions(noise=-1.0), ("noise", "-1.0", "from 0 to 2")),
    Wrong(
        "priorities for other streams",
        lambda _: RunOptions(streams=3, stream_priorities=(0, 1)),
        ("stream_priorities", "2 entries", "3 streams"),
    ),
    *(
        Wrong(
            f"too much of {name}",
            lambda _, name=name, most=most: RunOptions(**{name: most + 1}),
            (f"'{name}'", str(most + 1), f"at most {says}"),
        )
        for name, most, says in (
            ("streams", 4096, "4096"),
            ("commands", 4096, "4096"),
            ("prefetches", 4096, "4096"),
            ("run_ahead", 2**60, "2**60"),
            ("hbm_bytes", 2**60, "2**60"),
        )
    ),
    Wrong("graph without commands", lambda _: graph(), ("'g'", "at least one")),
    Wrong(
        "graph with a cycle",
        lambda _: graph(vector("a", after=("c",)), vector("b", after=("a",)), vector("c", after=("b",))),
        ("->", "a", "b", "c"),
    ),
    Wrong("unknown buffer", lambda _: graph(vector("a", reads=("x",))), ("'a'", "'x'")),
    Wrong("unknown command", lambda _: graph(vector("a", after=("z",))), ("'a'", "'z'")),
    Wrong("two commands of one name", lambda _: graph(vector("a"), vector("a")), ("'a'", "of its own")),
    Wrong("release in a fortnight", lambda _: graph(vector("a", release_ns=2**51)), ("'a'", "13 days")),
    Wrong("no blocks", lambda _: graph(vector("a", blocks=0)), ("blocks is 0", "from 1")),
    Wrong(
        "device buffer on the host",
        lambda _: graph(
            vector("a", reads=("x",)),
            buffers=(Buffer(name="x", size_bytes=1, kind=BufferKind.DEVICE, level=Level.HOST),),
        ),
        ("'x'", "host"),
    ),
    Wrong(
        "kernel without kernels",
        lambda _: graph(Command(name="a", kind=CommandKind.KERNEL)),
        ("'a'", "kernel"),
    ),
    Wrong(
        "class the device lacks",
        lambda _: compile_graph(graph(cube("a")), toy_device(pools={"aic": 0})),
        ("'a'", "'cube'", "toy"),
    ),
    Wrong(
        "batch kernel wider than its pool",
        lambda _: compile_graph(
            graph(
                Command(
                    name="a",
                    kind=CommandKind.KERNEL,
                    kernels=(toy_kernel("cube", 10, blocks=3, scheme=Scheme.BATCH),),
                )
            ),
            toy_device(),
        ),
        ("'a'", "3 blocks", "2 cores"),
    ),
    Wrong(
        "working set over the memory",
        lambda _: compile_graph(toy_squeeze(2, 512), toy_device(), RunOptions(hbm_bytes=256)),
        ("207001", "512", "256", "'k0'"),
        AclError,
    ),
    Wrong(
        "more bytes than can be counted",
        lambda _: compile_graph(
            graph(*(copy_in(f"c{i}", 2**40) for i in range(5))), toy_device(memory={"hbm_bytes": 2**50})
        ),
        ("'g'", "'h2d'", "split"),
    ),
    Wrong(
        "resident buffers over the memory",
        lambda _: compile_graph(
            graph(vector("a", reads=("w",)), buffers=(managed("w", 512, Level.HBM),)),
            toy_device(),
            RunOptions(hbm_bytes=256),
        ),
        ("207001", "512", "256"),
        AclError,
    ),
    Wrong(
        "more streams than the device creates",
        lambda _: compile_graph(CHAIN, toy_device(), RunOptions(streams=17)),
        ("207005", "17", "16"),
        AclError,
    ),
    Wrong(
        "more events than the device has",
        lambda _: compile_graph(
            graph(copy_in("a"), copy_in("b"), vector("c", after=("a", "b"))),
            toy_device(limits={"max_events": 1}),
        ),
        ("207007", "'c'", "2", "1"),
        AclError,
    ),
    Wrong(
        "noise of another length",
        lambda _: compile_graph(CHAIN, toy_device()).new_state([1]),
        ("noise", "1 entries", "3 commands"),
    ),
    Wrong(
        "unknown scheduler",
        lambda _: run_scheduler(compile_graph(CHAIN, toy_device()), "heft9"),
        ("'heft9'", "reference"),
    ),
    Wrong("unknown observation", lambda _: CannEnv("layered", observation="x"), ("'x'", "'graph'")),
    Wrong("unknown render mode", lambda _: CannEnv("layered", render_mode="x"), ("'x'", "'ansi'")),
    Wrong("scenario that is none", lambda _: CannEnv(None), ("scenario is None", "a name", ".toml")),
    Wrong("scenario that is a number", lambda _: CannEnv(3), ("scenario is 3", "a name", ".toml")),
    Wrong("device that is a number", lambda _: CannEnv("layered", device=3), ("device is 3", "name")),
    Wrong("options that are a list", lambda _: CannEnv("layered", options=[3]), ("options is [3]", "dict")),
    *(
        Wrong(
            f"graph capacity {given!r}",
            lambda _, given=given: CannEnv("layered", observation="graph", graph_capacity=given),
            (f"graph_capacity is {given!r}", "two whole numbers"),
        )
        for given in (5, (5,), (5, 0), (5, 2.5), ("a", "b"), "ab", (5, 6, 7), (True, 4))
    ),
    Wrong("unknown argument of make", lambda _: make_env(options={"foo": 1}), ("foo", "streams")),
    Wrong("graph that does not fit", lambda _: _tight().reset(seed=0), ("graph_capacity", "commands")),
    Wrong("unknown reset option", lambda _: _fresh().reset(options={"episode": 1}), ("episode", "instance")),
    Wrong("negative instance", lambda _: _fresh().reset(options={"instance": -1}), ("-1", "from 0")),
    Wrong("step before reset", lambda _: _fresh().step(0), ("reset()",), EpisodeOverError),
    Wrong("schedule too early", lambda _: _begun().schedule(), ("terminated",), EpisodeOverError),
    Wrong("action that is a fraction", lambda _: stepped(1.5), ("1.5", "whole number")),
    Wrong("action that is text", lambda _: stepped("1"), ("'1'", "whole number")),
    Wrong("action that is a list", lambda _: stepped([1]), ("[1]", "whole number")),
    Wrong("action that is none", lambda _: stepped(None), ("None", "whole number")),
    Wrong("action out of range", lambda _: stepped(10**6), ("1000000", "from 0 to")),
    Wrong("truncated model", lambda f: onnx_model(f, truncated=True), ("m.onnx",)),
    Wrong("model without operators", empty_model, ("m.onnx", "has no operators")),
    Wrong("model with a dynamic shape", lambda f: onnx_model(f, dims=(1, "n")), ("'x'", "'n'", "dims")),
    Wrong("model with an unknown operator", unknown_operator, ("'n0'", "Frobnicate", "fallback")),
]


def _fresh() -> CannEnv:
    return CannEnv("layered")


def _begun() -> CannEnv:
    env = _fresh()
    env.reset(seed=0)
    return env


def _tight() -> CannEnv:
    return CannEnv("layered", observation="graph", graph_capacity=(2, 1))


@pytest.mark.parametrize("wrong", TABLE, ids=[wrong.what for wrong in TABLE])
def test_wrong_input_is_refused_with_a_helpful_error(wrong: Wrong, tmp_path: Path) -> None:
    with pytest.raises(wrong.error) as caught:
        wrong.attempt(tmp_path)
    message = str(caught.value)
    missing = [part for part in wrong.says if part not in message]
    assert not missing, f"{wrong.what}: {missing} not in {message!r}"


def test_the_table_is_long_enough() -> None:
    assert len(TABLE) >= 25
    assert len({wrong.what for wrong in TABLE}) == len(TABLE)


def test_good_twins_are_accepted() -> None:
    """The same calls with right input raise nothing, so the table tests the input and not the call."""
    scenario(options__streams=3)
    graph(vector("a"), vector("b", after=("a",)))
    compile_graph(toy_squeeze(2, 512), toy_device(), RunOptions(hbm_bytes=512))
    RunOptions(streams=4096, commands=4096, prefetches=4096, run_ahead=2**60, hbm_bytes=2**60)
    CannEnv("layered", device="ascend910b1", observation="graph", graph_capacity=(np.int64(5), 4))
    compile_graph(random_graph(np.random.default_rng(0)), toy_device())
    assert tomllib.loads("a = 1") == {"a": 1}
    assert stepped(np.int64(0))
