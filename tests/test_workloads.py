"""Generated workloads: the same graph from the same seed, the shape that was asked for, believable work."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import asdict, replace
from itertools import pairwise
from math import exp
from typing import TYPE_CHECKING

import pytest
from numpy.random import MT19937, PCG64, BitGenerator, Generator

from cann_env.device.cost import kernel_cost, link_rate_q20, minimum_kernel_ns
from cann_env.device.load import load_device
from cann_env.graph import BufferKind, CommandKind, CopyKind, KernelClass, Level, Scheme
from cann_env.units import InputError
from cann_env.workloads.cnn import CnnShape, cnn
from cann_env.workloads.draws import between, chance, exponential, octave, pick_weighted
from cann_env.workloads.generators import chain, fork_join, layered
from cann_env.workloads.kernels import (
    Traits,
    blocks_at_once,
    elementwise,
    flash_attention,
    matmul,
    random_kernel,
)
from cann_env.workloads.pipeline import pipeline
from cann_env.workloads.serving import ArrivalProcess, Arrivals, Mix, release_times, serve
from cann_env.workloads.training import TrainingShape, training
from cann_env.workloads.training_resnet import ResnetShape, training_resnet
from cann_env.workloads.training_transformer import training_transformer
from cann_env.workloads.transformer import TransformerShape, transformer

if TYPE_CHECKING:
    from cann_env.graph import Command, CommandGraph, Kernel

CORES = {"cube": 24, "vector": 48, "mix": 24, "aicpu": 6}
PLAIN = Traits(callback_share=0.0, copy_share=0.0)


def rng(seed: int = 0) -> Generator:
    return Generator(PCG64(seed))


def digest(graph: CommandGraph) -> str:
    """Hash of everything a graph says."""
    text = json.dumps([graph.name, [asdict(c) for c in graph.commands], [asdict(b) for b in graph.buffers]])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def kernels_of(graph: CommandGraph) -> list[Kernel]:
    return [kernel for command in graph.commands for kernel in command.kernels]


def before(graph: CommandGraph, name: str) -> set[str]:
    """Names of a command's direct predecessors."""
    return {graph.commands[i].name for i in graph.predecessors[graph.command_index[name]]}


def named(graph: CommandGraph, name: str) -> Command:
    return graph.commands[graph.command_index[name]]


def samples() -> dict[str, CommandGraph]:
    """One graph of every generator, from seed 7."""
    networks = [
        cnn(rng(7), CnnShape(modules=4, batch=2), CORES),
        transformer(TransformerShape(layers=1, hidden=512, heads=8), CORES, weights=Level.HBM),
    ]
    poisson = ArrivalProcess(kind=Arrivals.POISSON, rate_per_s=5_000)
    return {
        "layered": layered(rng(7), 60, 8, 0.2, CORES),
        "fork_join": fork_join(rng(7), 5, 4, 3, CORES),
        "chain": chain(rng(7), 30, CORES),
        "cnn": networks[0],
        "transformer": networks[1],
        "pipeline": pipeline(batches=4, input_bytes=10, output_bytes=20, flops=30, slots=2, callback_ns=5),
        "training": training(TrainingShape(layers=3, tokens=300, collective_ns=9_000), CORES),
        "training_resnet": training_resnet(ResnetShape(blocks=(1, 1), image=64, batch=2), CORES),
        "training_transformer": training_transformer(TransformerShape(layers=1), CORES, vocabulary=500),
        "serving": serve(rng(7), networks, 5, poisson, mix=Mix.DRAW),
    }


PINNED: dict[str, str] = {
    "layered": "374ff1716dd91b41",
    "fork_join": "767917c4f74451c6",
    "chain": "b0e2ea2e635961f1",
    "cnn": "bb0f0b9da62b48ae",
    "transformer": "92edda35b557a8c6",
    "pipeline": "1c86d2872ae83d9b",
    "training": "5c644b2aa9b7e8d7",
    "training_resnet": "01c6fc6d8df37022",
    "training_transformer": "feb6d793b8e40772",
    "serving": "3cbaf24d21bb5450",
}


def test_the_same_seed_gives_the_same_graph_on_every_machine() -> None:
    assert {name: digest(graph) for name, graph in samples().items()} == PINNED


@pytest.mark.slow
def test_the_hash_seed_of_python_does_not_matter() -> None:
    code = (
        "import json, test_workloads as t;"
        "print(json.dumps({name: t.digest(graph) for name, graph in t.samples().items()}))"
    )
    env = {**os.environ, "PYTHONHASHSEED": "4711", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == PINNED


@pytest.mark.parametrize(
    "make", [lambda r: layered(r, 20, 4, 0.3, CORES), lambda r: cnn(r, CnnShape(), CORES)]
)
def test_another_seed_gives_another_graph(make) -> None:
    assert digest(make(rng(1))) == digest(make(rng(1))) != digest(make(rng(2)))


# Draws.


def test_draws_stay_in_range_and_reach_its_ends() -> None:
    source = rng()
    assert {between(source, 2, 5) for _ in range(200)} == {2, 3, 4, 5}
    assert {octave(source, 1, 5) for _ in range(300)} == {1, 2, 3, 4, 5}
    assert octave(source, 9, 9) == 9


@pytest.mark.parametrize("bits", [PCG64, MT19937])
def test_a_draw_is_the_one_of_numpy(bits: type[BitGenerator]) -> None:
    """Numbers and the state they leave behind, for spans of half a word and of a whole, and around them."""
    ours, numpys = Generator(bits(3)), Generator(bits(3))
    for span in (1, 2, 3, 1000, 2**31, 2**31 + 1, 3 * 2**30, 2**32 - 1, 2**32, 2**32 + 1, 2**62) * 9:
        assert between(ours, -5, span - 6) == numpys.integers(-5, span - 5)
    assert str(ours.bit_generator.state) == str(numpys.bit_generator.state)


def test_an_octave_draw_spreads_over_magnitudes() -> None:
    """From 1 to 1024 there are ten pieces; the top one, half of all values, gets a tenth of the draws."""
    source = rng()
    draws = [octave(source, 1, 1024) for _ in range(5_000)]
    assert sum(draw > 512 for draw in draws) / len(draws) == pytest.approx(0.1, abs=0.015)


def test_chance_and_weights_hold_in_the_mean() -> None:
    source = rng()
    assert sum(chance(source, 0.3) for _ in range(5_000)) / 5_000 == pytest.approx(0.3, abs=0.02)
    counts = Counter(pick_weighted(source, {"a": 3, "b": 0, "c": 1}) for _ in range(4_000))
    assert set(counts) == {"a", "c"}
    assert counts["a"] / 4_000 == pytest.approx(0.75, abs=0.02)
    assert not any(chance(source, 0.0) for _ in range(100))
    assert all(chance(source, 1.0) for _ in range(100))


def test_nothing_can_be_picked_from_weights_of_zero() -> None:
    with pytest.raises(InputError, match=r"none of \['a'\] has a weight above zero"):
        pick_weighted(rng(), {"a": 0})


def test_exponential_draws_have_the_law_of_their_name() -> None:
    """Mean m, and P(X > t) = exp(-t / m) at three places."""
    source = rng()
    draws = [exponential(source, 1_000) for _ in range(6_000)]
    assert sum(draws) / len(draws) == pytest.approx(1_000, rel=0.04)
    for t in (100, 1_000, 2_500):
        assert sum(draw > t for draw in draws) / len(draws) == pytest.approx(exp(-t / 1_000), abs=0.02)


# Kernels.


def test_blocks_at_once_follow_the_pools_of_the_device() -> None:
    assert blocks_at_once(load_device("ascend910b2")) == CORES
    assert blocks_at_once(load_device("ascend310b1")) == {"cube": 1, "vector": 1, "mix": 1, "aicpu": 4}


def test_a_matrix_product_counts_its_work() -> None:
    """(256 x 64) times (64 x 512): 2 x 2 tiles, 2 * 256 * 64 * 512 operations, fp16 operands and result."""
    kernel = matmul("m", 256, 64, 512, CORES)
    assert (kernel.kernel_class, kernel.blocks, kernel.flops) == (KernelClass.CUBE, 4, 16_777_216)
    assert (kernel.bytes_read, kernel.bytes_written) == (2 * (256 * 64 + 64 * 512), 2 * 256 * 512)
    twice = matmul("m", 256, 64, 512, CORES, batch=2)
    assert (twice.blocks, twice.flops, twice.bytes_read) == (8, 2 * kernel.flops, 2 * kernel.bytes_read)


def test_a_pass_and_attention_count_their_work() -> None:
    kernel = elementwise("e", 5_000, CORES, inputs=2, flops_per_element=3)
    assert (kernel.blocks, kernel.flops, kernel.bytes_read, kernel.bytes_written) == (
        2,
        15_000,
        20_000,
        10_000,
    )
    kernel = flash_attention("f", 4, 200, 64, CORES)
    assert (kernel.blocks, kernel.flops, kernel.bytes_written) == (
        8,
        4 * 4 * 200 * 200 * 64,
        2 * 4 * 200 * 64,
    )


def test_kernels_are_cut_for_the_cores_of_the_device() -> None:
    assert matmul("m", 10_000, 64, 10_000, CORES).blocks == 24
    assert elementwise("e", 10**7, CORES).blocks == 48
    assert elementwise("e", 10**7, {**CORES, "vector": 1}).blocks == 1


def test_random_kernels_last_from_two_to_three_hundred_microseconds() -> None:
    device = load_device("ascend910b2")
    source, times, widths = rng(3), [], Counter()
    for _ in range(600):
        kernel = random_kernel(source, "k", Traits(aicpu=0, fallback_share=0.0), CORES)
        cost = kernel_cost(
            device,
            kernel.kernel_class,
            flops=kernel.flops,
            dtype=kernel.dtype,
            size_bytes=kernel.bytes_read + kernel.bytes_written,
            blocks=kernel.blocks,
            duration_ns=None,
        )
        times.append(minimum_kernel_ns(device, kernel.kernel_class, cost, kernel.blocks))
        share = kernel.blocks / CORES[kernel.kernel_class]
        widths["part" if share < 1 else "full" if share == 1 else "waves"] += 1
    assert 1_500 < min(times) < 5_000
    assert 250_000 < max(times) < 330_000
    assert sum(time < 10_000 for time in times) > 100
    assert sum(time > 100_000 for time in times) > 60
    assert widths["part"] > 350 > widths["full"] > 40
    assert widths["waves"] > 20


def test_traits_decide_what_kernels_are_like() -> None:
    source = rng(5)
    some = [
        random_kernel(source, "k", Traits(fallback_share=1.0, batch_share=1.0), CORES) for _ in range(200)
    ]
    assert all(kernel.scheme == Scheme.BATCH for kernel in some)
    assert all(kernel.blocks <= CORES[kernel.kernel_class] for kernel in some)
    pairs = {(kernel.kernel_class, kernel.fallback) for kernel in some}
    assert pairs == {
        (KernelClass.CUBE, None),
        (KernelClass.MIX, None),
        (KernelClass.VECTOR, KernelClass.AICPU),
        (KernelClass.AICPU, KernelClass.VECTOR),
    }
    assert all(kernel.blocks <= CORES["aicpu"] for kernel in some if kernel.fallback)
    only = [random_kernel(source, "k", Traits(vector=0, mix=0, aicpu=0), CORES) for _ in range(20)]
    assert {kernel.kernel_class for kernel in only} == {KernelClass.CUBE}


def test_a_class_the_device_lacks_is_not_drawn() -> None:
    source = rng()
    cores = {**CORES, "mix": 0, "aicpu": 0}
    some = [random_kernel(source, "k", Traits(fallback_share=1.0), cores) for _ in range(100)]
    assert {kernel.kernel_class for kernel in some} == {KernelClass.CUBE, KernelClass.VECTOR}
    assert all(kernel.fallback is None for kernel in some)
    with pytest.raises(InputError, match="weight above zero"):
        random_kernel(source, "k", Traits(cube=0, vector=0, aicpu=0), cores)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cube": -1}, "class weights are .*'cube': -1"),
        ({"cube": 0, "vector": 0, "mix": 0, "aicpu": 0}, "one of them above zero"),
        ({"batch_share": 1.5}, "'batch_share' is 1.5; write a share from 0 to 1"),
        ({"callback_share": 0.6, "copy_share": 0.6}, "'callback_share and copy_share together' is 1.2"),
        ({"weights": Level.ABSENT}, "'weights' is 'absent'; write 'host'"),
        ({"shortest_ns": 9, "longest_ns": 8}, "'shortest_ns' 9 and 'longest_ns' 8 are no range"),
    ],
)
def test_traits_that_cannot_be_are_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        replace(Traits(), **change)


# Random graphs.


def inner(graph: CommandGraph) -> list[str]:
    return [command.name for command in graph.commands if command.name.startswith("c")]


@pytest.mark.parametrize("seed", range(5))
def test_layers_feed_each_other(seed: int) -> None:
    """Longest paths give the layers back: at most ``width`` each, all inner commands joined both ways."""
    graph = layered(rng(seed), 50, 6, 0.2, CORES, traits=PLAIN)
    assert len(inner(graph)) == 50
    depth: dict[str, int] = {}
    for command in graph.commands:
        depth[command.name] = 1 + max((depth[name] for name in before(graph, command.name)), default=-1)
    assert depth["input"] == 0
    layers = Counter(depth[name] for name in inner(graph))
    assert max(layers.values()) <= 6
    assert set(layers) == set(range(1, max(layers) + 1))
    for name in inner(graph):
        assert {depth[parent] for parent in before(graph, name)} == {depth[name] - 1}
    ends = [name for name in inner(graph) if depth[name] == max(layers)]
    outputs = {command.name for command in graph.commands if command.copy == CopyKind.D2H}
    assert outputs == {f"output{name[1:]}" for name in ends}
    childless = [i for i, after in enumerate(graph.successors) if not after]
    assert {graph.commands[i].name for i in childless} == outputs


def test_density_adds_edges() -> None:
    def edges(density: float) -> int:
        graph = layered(rng(1), 60, 8, density, CORES, traits=PLAIN)
        return sum(len(before(graph, name)) for name in inner(graph))

    assert edges(0.0) < edges(0.3) < edges(1.0)


def test_a_smallest_fork_join() -> None:
    """input -> c0 -> c1 -> c2 -> output: one stage with one chain of one command."""
    graph = fork_join(rng(), 1, 1, 1, CORES, traits=PLAIN)
    assert [command.name for command in graph.commands] == ["input", "c0", "c1", "c2", "output2"]
    assert [len(parents) for parents in graph.predecessors] == [0, 1, 1, 1, 1]


@pytest.mark.parametrize("seed", range(5))
def test_forks_join(seed: int) -> None:
    """Between two joins there are only chains: inner commands have one parent, but joins, one a stage."""
    graph = fork_join(rng(seed), 6, 4, 3, CORES, traits=PLAIN)
    names = inner(graph)
    forks = {name for name in names if len(graph.successors[graph.command_index[name]]) > 1}
    joins = {name for name in names if len(before(graph, name)) > 1}
    assert joins
    assert all(len(before(graph, name)) <= 4 for name in names)
    assert 1 + 6 * 2 <= len(names) <= 1 + 6 * (4 * 3 + 1)
    assert len(joins) == len(forks) <= 6
    assert len([command for command in graph.commands if command.copy == CopyKind.D2H]) == 1


def test_a_chain_is_a_chain() -> None:
    graph = chain(rng(), 12, CORES)
    assert [len(parents) for parents in graph.predecessors] == [0] + [1] * 13
    assert [len(children) for children in graph.successors] == [1] * 13 + [0]


def test_shares_of_commands() -> None:
    """All inner commands of a chain become host functions, or copies, or hold two kernels and more."""
    calls = chain(rng(), 10, CORES, traits=Traits(callback_share=1.0, copy_share=0.0))
    assert Counter(command.kind for command in calls.commands) == {
        CommandKind.CALLBACK: 9,
        CommandKind.KERNEL: 1,
        CommandKind.COPY: 2,
    }
    assert all(5_000 <= c.duration_ns <= 50_000 for c in calls.commands if c.kind == CommandKind.CALLBACK)
    assert before(calls, "c3") == {"c2"}
    copies = chain(rng(), 10, CORES, traits=Traits(callback_share=0.0, copy_share=1.0))
    assert Counter(command.copy for command in copies.commands)[CopyKind.D2D] == 9
    assert before(copies, "c9") == {"c8"}
    fused = chain(rng(), 10, CORES, traits=replace(PLAIN, fused_share=1.0))
    assert {len(command.kernels) for command in fused.commands if command.kernels} == {2, 3}
    assert {
        len(command.kernels)
        for command in chain(rng(), 10, CORES, traits=replace(PLAIN, fused_share=0.0)).commands
    } == {0, 1}


@pytest.mark.parametrize(("calls", "copies"), [(1.0, 0.0), (0.0, 1.0), (0.3, 0.4)])
def test_host_functions_and_copies_keep_every_edge(calls: float, copies: float) -> None:
    """At density 1 every command follows all of the layer before, whatever the two are."""
    traits = Traits(callback_share=calls, copy_share=copies)
    graph = layered(rng(2), 40, 5, 1.0, CORES, traits=traits)
    depth: dict[str, int] = {}
    for command in graph.commands:
        depth[command.name] = 1 + max((depth[name] for name in before(graph, command.name)), default=-1)
    for name in inner(graph):
        above = {other for other in inner(graph) if depth[other] == depth[name] - 1}
        assert before(graph, name) == (above or {"input"})
    if calls and copies:
        assert {command.kind for command in graph.commands} == set(CommandKind) - {CommandKind.COLLECTIVE}


@pytest.mark.parametrize("level", [Level.HOST, Level.HBM])
def test_weights_of_random_commands(level: Level) -> None:
    graph = chain(rng(), 12, CORES, traits=replace(PLAIN, weights_share=1.0, weights=level))
    managed = [buffer for buffer in graph.buffers if buffer.kind == BufferKind.MANAGED]
    assert len(managed) == 12
    assert {buffer.level for buffer in managed} == {level}
    assert not any(buffer.size_bytes > 1 << 22 for buffer in managed)
    bare = chain(rng(), 12, CORES, traits=replace(PLAIN, weights_share=0.0))
    assert all(buffer.kind == BufferKind.DEVICE for buffer in bare.buffers)


def test_results_are_what_the_last_kernel_writes() -> None:
    graph = layered(rng(), 30, 5, 0.2, CORES)
    for copy in (command for command in graph.commands if command.copy == CopyKind.D2H):
        writer = named(graph, copy.reads[0])
        size = graph.buffers[graph.buffer_index[copy.reads[0]]].size_bytes
        assert copy.size_bytes == size == writer.kernels[-1].bytes_written <= 1 << 20


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: layered(rng(), 0, 1, 0.1, CORES), "'commands' is 0; write a whole number of at least 1"),
        (lambda: layered(rng(), 5, 1, 1.1, CORES), "'density' is 1.1; write a share from 0 to 1"),
        (lambda: fork_join(rng(), 1, 0, 1, CORES), "'branches' is 0"),
        (lambda: chain(rng(), -3, CORES), "'commands' is -3"),
        (lambda: TransformerShape(hidden=100, heads=16), "'heads' is 16, which does not divide 'hidden' 100"),
        (lambda: TrainingShape(layers=0), "'layers' is 0; write a whole number of at least 1"),
        (
            lambda: TrainingShape(collective_ns=-1),
            "'collective_ns' is -1; write a whole number of at least 0",
        ),
        (lambda: CnnShape(image=16), "'image' is 16; write at least 32 pixels"),
        (lambda: pipeline(batches=1, input_bytes=0, output_bytes=1, flops=1), "'input_bytes' is 0"),
        (lambda: pipeline(batches=1, input_bytes=1, output_bytes=1, flops=1, slots=-1), "'slots' is -1"),
    ],
)
def test_sizes_out_of_range_are_refused(make, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()


# Networks.


def test_a_transformer_layer_has_its_kernels() -> None:
    """Three projections side by side, gate and up side by side, the residual from before the norm."""
    shape = TransformerShape(layers=2, hidden=512, heads=8, sequence=128, batch=2, expansion=4)
    graph = transformer(shape, CORES)
    assert len(graph.commands) == 13 * 2 + 3
    classes = Counter(kernel.kernel_class for kernel in kernels_of(graph))
    assert classes == {KernelClass.CUBE: 14, KernelClass.VECTOR: 11, KernelClass.MIX: 2}
    assert before(graph, "l0/norm1") == {"tokens"}
    assert before(graph, "l0/q") == before(graph, "l0/k") == before(graph, "l0/v") == {"l0/norm1"}
    assert before(graph, "l0/attention") == {"l0/q", "l0/k", "l0/v"}
    assert before(graph, "l0/add1") == {"tokens", "l0/out"}
    assert before(graph, "l0/swiglu") == {"l0/gate", "l0/up"}
    assert before(graph, "l0/add2") == {"l0/add1", "l0/down"}
    assert before(graph, "l1/norm1") == {"l0/add2"}
    weights = [buffer.size_bytes for buffer in graph.buffers if buffer.kind == BufferKind.MANAGED]
    assert sorted(weights) == sorted(2 * ([2 * 512 * 512] * 4 + [2 * 512 * 2048] * 3))
    assert named(graph, "l0/q").kernels[0].flops == 2 * 256 * 512 * 512
    assert named(graph, "l0/attention").kernels[0].flops == 4 * 2 * 128 * 128 * 512
    assert named(graph, "tokens").size_bytes == 2 * 256 * 512
    assert named(graph, "result").size_bytes == 2 * 2 * 512


def test_attention_is_split_where_no_mix_kernel_runs() -> None:
    shape = TransformerShape(layers=1, hidden=512, heads=8, sequence=128)
    graph = transformer(shape, {**CORES, "mix": 0}, weights=Level.HBM)
    assert len(graph.commands) == 15 + 3
    assert KernelClass.MIX not in {kernel.kernel_class for kernel in kernels_of(graph)}
    assert before(graph, "l0/attention/scores") == {"l0/q", "l0/k"}
    assert before(graph, "l0/attention/context") == {"l0/attention/softmax", "l0/v"}
    products = [named(graph, f"l0/attention/{part}").kernels[0].flops for part in ("scores", "context")]
    assert products == [2 * 128 * 128 * 512] * 2
    assert {buffer.level for buffer in graph.buffers if buffer.kind == BufferKind.MANAGED} == {Level.HBM}


def test_an_inception_module_has_four_branches() -> None:
    graph = cnn(rng(), CnnShape(modules=4, batch=2), CORES)
    assert len(graph.commands) == 4 * 8 + 1 + 9
    assert before(graph, "m0/concat") == {"m0/plain", "m0/conv3", "m0/conv5", "m0/project"}
    heads = ("plain", "reduce3", "reduce5", "maxpool")
    assert all(before(graph, f"m1/{head}") == {"m0/concat"} for head in heads)
    assert before(graph, "m3/plain") == {"m3/pool"}
    assert before(graph, "m3/pool") == {"m2/concat"}
    assert named(graph, "image").size_bytes == 2 * 2 * 224 * 224 * 3
    conv = named(graph, "stem/conv1").kernels[0]
    assert conv.flops == 2 * (2 * 112 * 112) * (7 * 7 * 3) * 64
    weights = {
        buffer.name: buffer.size_bytes for buffer in graph.buffers if buffer.kind == BufferKind.MANAGED
    }
    assert set(weights) == {"stem/weight", *(f"m{i}/weight" for i in range(4)), "classifier/weight"}
    assert weights["stem/weight"] == 2 * (7 * 7 * 3 * 64 + 3 * 3 * 64 * 192)
    classes = Counter(kernel.kernel_class for kernel in kernels_of(graph))
    assert classes == {KernelClass.CUBE: 4 * 6 + 3, KernelClass.VECTOR: 4 * 2 + 1 + 4}


def test_a_concatenation_holds_all_branches() -> None:
    graph = cnn(rng(), CnnShape(modules=1), CORES)
    size = {buffer.name: buffer.size_bytes for buffer in graph.buffers}
    assert size["m0/concat"] == sum(size[f"m0/{part}"] for part in ("plain", "conv3", "conv5", "project"))


def test_most_kernels_of_a_small_network_leave_cores_free() -> None:
    graph = cnn(rng(), CnnShape(modules=6), CORES)
    cube = [kernel for kernel in kernels_of(graph) if kernel.kernel_class == KernelClass.CUBE]
    assert any(kernel.blocks == 24 for kernel in cube)
    assert sum(kernel.blocks <= 12 for kernel in cube) > len(cube) // 2


# Training.


def test_a_training_step_of_two_layers() -> None:
    """The weight gradients (w), their sums (s) and the optimiser (o) hang off the backward chain.

    ::

        input - product0 - act0 - product1 - act1 -+- loss - result
                                                   +- loss_grad - a1 -+- i1 - a0 - w0 - s0 - o0
        target is read by loss and loss_grad                          +- w1 - s1 - o1

    Beside the chain, a product's or an activation's backward reads what the forward left; o1 overwrites the
    weights that i1 reads. The gradient of the batch is not computed: there is no i0.
    """
    graph = training(TrainingShape(layers=2, width=256, tokens=128, collective_ns=7), CORES)
    edges = {command.name: before(graph, command.name) for command in graph.commands}
    assert edges == {
        "input": set(),
        "target": set(),
        "l0/product": {"input"},
        "l0/activation": {"l0/product"},
        "l1/product": {"l0/activation"},
        "l1/activation": {"l1/product"},
        "loss": {"l1/activation", "target"},
        "result": {"loss"},
        "loss_grad": {"l1/activation", "target"},
        "l1/activation_grad": {"l1/product", "loss_grad"},
        "l1/weight_grad": {"l0/activation", "l1/activation_grad"},
        "l1/input_grad": {"l1/activation_grad"},
        "l1/all_reduce": {"l1/weight_grad"},
        "l1/optimiser": {"l1/all_reduce", "l1/product", "l1/input_grad"},
        "l0/activation_grad": {"l0/product", "l1/input_grad"},
        "l0/weight_grad": {"input", "l0/activation_grad"},
        "l0/all_reduce": {"l0/weight_grad"},
        "l0/optimiser": {"l0/all_reduce", "l0/product"},
    }
    assert named(graph, "l1/all_reduce").duration_ns == 7
    assert named(graph, "result").size_bytes == 4
    classes = Counter(kernel.kernel_class for kernel in kernels_of(graph))
    assert classes == {KernelClass.CUBE: 2 + 3, KernelClass.VECTOR: 2 + 2 + 2 + 2}


def test_a_training_step_counts_its_work() -> None:
    """Weights 256 x 256: 2 bytes each and 8 of moments, resident; both gradients cost what forward costs."""
    graph = training(TrainingShape(layers=2, width=256, tokens=128), CORES)
    resident = {buffer.name: buffer.size_bytes for buffer in graph.buffers if buffer.level == Level.HBM}
    assert resident == {
        f"l{layer}/{part}": size * 256 * 256
        for layer in range(2)
        for part, size in (("weight", 2), ("moments", 8))
    }
    assert {buffer.kind for buffer in graph.buffers} == {BufferKind.DEVICE}
    products = ("product", "weight_grad", "input_grad")
    assert [named(graph, f"l1/{p}").kernels[0].flops for p in products] == [2 * 128 * 256 * 256] * 3
    assert [named(graph, f"l1/{p}").kernels[0].bytes_written for p in products] == [
        2 * 128 * 256,
        2 * 256 * 256,
        2 * 128 * 256,
    ]
    optimiser = named(graph, "l0/optimiser")
    assert set(optimiser.writes) == {"l0/weight", "l0/moments"}
    assert set(optimiser.reads) == {*optimiser.writes, "l0/weight_grad"}
    kernel = optimiser.kernels[0]
    assert (kernel.bytes_read, kernel.bytes_written) == (12 * 256 * 256, 10 * 256 * 256)


@pytest.mark.parametrize("layers", [1, 5])
def test_a_training_step_without_collectives_has_a_command_less_a_layer(layers: int) -> None:
    alone = training(TrainingShape(layers=layers), CORES)
    among = training(TrainingShape(layers=layers, collective_ns=1), CORES)
    assert (len(alone.commands), len(among.commands)) == (6 * layers + 4, 7 * layers + 4)
    assert CommandKind.COLLECTIVE not in {command.kind for command in alone.commands}
    assert "l0/weight_grad" in before(alone, "l0/optimiser")


# Pipeline.


def test_a_pipeline_of_three_batches() -> None:
    """Each batch is in -> run -> out on buffers of its own; the batches are independent."""
    graph = pipeline(batches=3, input_bytes=100, output_bytes=50, flops=7)
    assert [command.name for command in graph.commands] == [
        f"{part}{i}" for i in range(3) for part in ("in", "run", "out")
    ]
    assert graph.predecessors == ((), (0,), (1,), (), (3,), (4,), (), (6,), (7,))
    assert [command.size_bytes for command in graph.commands[:3]] == [100, 0, 50]
    assert (graph.commands[0].copy, graph.commands[2].copy) == (CopyKind.H2D, CopyKind.D2H)
    kernel = graph.commands[1].kernels[0]
    assert (kernel.flops, kernel.bytes_read, kernel.bytes_written) == (7, 100, 50)
    assert len(graph.buffers) == 6


def test_a_pipeline_with_two_slots_waits_for_the_batch_before_the_last() -> None:
    """in2 overwrites what in0 wrote and run0 read; run2 what run0 wrote and out0 read; in1 waits for none."""
    graph = pipeline(batches=3, input_bytes=100, output_bytes=50, flops=7, slots=2)
    assert len(graph.buffers) == 4
    assert before(graph, "in1") == set()
    assert before(graph, "in2") == {"in0", "run0"}
    assert before(graph, "run2") == {"in2", "run0", "out0"}
    assert before(graph, "out2") == {"run2"}


def test_a_pipeline_with_callbacks() -> None:
    graph = pipeline(batches=2, input_bytes=1, output_bytes=1, flops=1, callback_ns=30)
    assert before(graph, "post1") == {"out1"}
    assert [c.duration_ns for c in graph.commands if c.kind == CommandKind.CALLBACK] == [30, 30]


# Serving.


def test_closed_arrivals_are_all_at_zero() -> None:
    assert release_times(rng(), 4, ArrivalProcess()) == (0, 0, 0, 0)


def test_poisson_arrivals_have_their_rate() -> None:
    """Exponential gaps: their mean is 1 / rate and their standard deviation equals the mean."""
    times = release_times(rng(), 3_000, ArrivalProcess(kind=Arrivals.POISSON, rate_per_s=2_000))
    gaps = [late - early for early, late in pairwise(times)]
    mean = sum(gaps) / len(gaps)
    deviation = (sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) ** 0.5
    assert times[0] == 0
    assert mean == pytest.approx(500_000, rel=0.05)
    assert deviation == pytest.approx(mean, rel=0.06)


def test_bursts_come_together_at_the_same_rate() -> None:
    times = release_times(rng(), 4_000, ArrivalProcess(kind=Arrivals.BURST, rate_per_s=2_000, burst=4))
    assert all(len(set(times[i : i + 4])) == 1 for i in range(0, 4_000, 4))
    assert len(set(times)) == 1_000
    assert times[-1] / 4_000 == pytest.approx(500_000, rel=0.1)


@pytest.mark.parametrize(
    ("process", "message"),
    [
        ({"rate_per_s": 5}, "'rate_per_s' is 5 with 'closed' arrivals"),
        ({"kind": Arrivals.POISSON}, "'rate_per_s' is 0 with 'poisson' arrivals"),
        ({"kind": Arrivals.POISSON, "rate_per_s": 5, "burst": 2}, "'burst' is 2 with 'poisson' arrivals"),
        ({"kind": Arrivals.BURST, "rate_per_s": 5, "burst": 0}, "'burst' is 0"),
    ],
)
def test_arrivals_that_cannot_be_are_refused(process: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ArrivalProcess(**process)


def small(name: str) -> CommandGraph:
    return transformer(TransformerShape(layers=1, hidden=64, heads=2, sequence=16), CORES, name=name)


def test_requests_for_one_model_share_its_weights() -> None:
    """Five requests over two models in turn: three ask for a, two for b; seven weights each, kept once."""
    graph = serve(rng(), [small("a"), small("b")], 5, ArrivalProcess())
    assert len(graph.commands) == 5 * 16
    managed = [buffer.name for buffer in graph.buffers if buffer.kind == BufferKind.MANAGED]
    assert Counter(name.split("/")[0] for name in managed) == {"a": 7, "b": 7}
    readers = [c.request for c in graph.commands if "a/l0/q/weight" in c.reads]
    assert readers == ["r0", "r2", "r4"]
    assert sum(buffer.kind == BufferKind.DEVICE for buffer in graph.buffers) == 5 * 15


def test_commands_carry_request_and_release() -> None:
    process = ArrivalProcess(kind=Arrivals.POISSON, rate_per_s=1_000)
    graph = serve(rng(4), [small("a")], 4, process)
    times = release_times(rng(4), 4, process)
    found = {command.request: command.release_ns for command in graph.commands}
    assert found == {f"r{i}": time for i, time in enumerate(times)}
    assert len(set(times)) == 4


def test_models_can_be_drawn() -> None:
    graph = serve(rng(), [small("a"), small("b")], 40, ArrivalProcess(), mix=Mix.DRAW)
    asked = Counter(
        name.split("/")[0] for c in graph.commands for name in c.reads if name.endswith("l0/q/weight")
    )
    assert set(asked) == {"a", "b"}
    assert asked["a"] != 20


def test_models_need_names_of_their_own() -> None:
    with pytest.raises(InputError, match=r"models are named \['a', 'a'\]; give each model a name of its own"):
        serve(rng(), [small("a"), small("a")], 2, ArrivalProcess())
    with pytest.raises(InputError, match="has no model to serve"):
        serve(rng(), [], 2, ArrivalProcess())


def test_links_carry_what_the_pipeline_scenario_assumes() -> None:
    """The pipeline's proportions rest on about 6 GB/s each way, off the DRAM of the AI core."""
    device = load_device("ascend310b1")
    for link in ("h2d", "d2h"):
        assert link_rate_q20(device, link) / 2**20 == pytest.approx(6.0, rel=0.01)
        assert not device.links[link].shares_hbm
