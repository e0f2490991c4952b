"""Training steps of real networks: the work the literature counts, a gradient for every weight, memory."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

import pytest
from test_workloads import CORES, before, named

from cann_env.graph import Buffer, BufferKind, CommandGraph, CommandKind, KernelClass, Level
from cann_env.units import InputError
from cann_env.workloads.backward import Placement, Tape, long_sum
from cann_env.workloads.kernels import elementwise, matmul
from cann_env.workloads.sketch import Sketch
from cann_env.workloads.trained import TrainingResnetWorkload, TrainingTransformerWorkload
from cann_env.workloads.training import TrainingShape, training
from cann_env.workloads.training_resnet import ResnetShape, training_resnet
from cann_env.workloads.training_transformer import training_transformer
from cann_env.workloads.transformer import TransformerShape

if TYPE_CHECKING:
    from collections.abc import Callable

SMALL_NET = ResnetShape(blocks=(2, 1), width=8, image=32, batch=2, classes=10)
SMALL = TransformerShape(layers=2, hidden=64, heads=2, sequence=16)
NO_MIX = {**CORES, "mix": 0}
AMONG_OTHERS = Placement(collective_bytes_per_s=10**9)


def buffers(graph: CommandGraph, ending: str) -> list[Buffer]:
    return [buffer for buffer in graph.buffers if buffer.name.endswith(ending)]


def flops(graph: CommandGraph) -> int:
    return sum(kernel.flops for command in graph.commands for kernel in command.kernels)


GRAPHS: dict[str, Callable[[], CommandGraph]] = {
    "resnet": lambda: training_resnet(SMALL_NET, CORES),
    "resnet on many": lambda: training_resnet(SMALL_NET, CORES, placement=AMONG_OTHERS),
    "transformer": lambda: training_transformer(SMALL, CORES),
    "split attention": lambda: training_transformer(SMALL, NO_MIX, vocabulary=100),
    "vocabulary on many": lambda: training_transformer(SMALL, CORES, vocabulary=100, placement=AMONG_OTHERS),
}


@lru_cache
def drawn(name: str) -> CommandGraph:
    return GRAPHS[name]()


# The work the literature counts.


def test_resnet_50_has_its_weights_and_its_multiplications() -> None:
    """25.557 million parameters less 53 120 of normalisations and 1 000 biases; 4.09 GMACs forward at 224."""
    graph = training_resnet(ResnetShape(batch=1), CORES)
    assert sum(buffer.size_bytes for buffer in buffers(graph, "/weight")) == 2 * 25_502_912
    loss = graph.command_index["loss"]
    products = [
        kernel.flops
        for command in graph.commands[:loss]
        for kernel in command.kernels
        if kernel.kernel_class == KernelClass.CUBE
    ]
    assert len(products) == 54
    assert sum(products) == pytest.approx(2 * 4.09e9, rel=0.002)


@pytest.mark.parametrize("batch", [1, 32])
def test_a_step_of_resnet_50_works_three_times_its_forward_pass(batch: int) -> None:
    graph = training_resnet(ResnetShape(batch=batch), CORES)
    assert flops(graph) == pytest.approx(3 * 2 * 4.1e9 * batch, rel=0.1)


@pytest.mark.parametrize("cores", [CORES, NO_MIX])
def test_a_step_of_a_transformer_works_six_times_its_weights_a_token(cores: dict[str, int]) -> None:
    """6 flops a token and weight, and 12 sequence * hidden a token of attention."""
    shape = TransformerShape(layers=3, hidden=1024, heads=16, sequence=1024, batch=2)
    graph = training_transformer(shape, cores)
    parameters = sum(buffer.size_bytes for buffer in buffers(graph, "/weight")) // 2
    assert parameters == 3 * (4 + 3 * 4) * 1024 * 1024
    attention = 3 * 12 * shape.tokens * shape.sequence * shape.hidden
    assert flops(graph) == pytest.approx(6 * shape.tokens * parameters + attention, rel=0.1)


def test_the_three_products_of_a_layer_do_the_same_work() -> None:
    """Also where a stride skips pixels, or attention is split: 2 x 2 * 128^2 * 64 forward, twice back."""
    for graph in (drawn("resnet"), drawn("transformer")):
        work = {command.name: sum(kernel.flops for kernel in command.kernels) for command in graph.commands}
        layers = [name.removesuffix("/weight_grad") for name in work if name.endswith("/weight_grad")]
        assert len(layers) == len(buffers(graph, "/weight"))
        for layer in layers:
            assert work[layer] == work[f"{layer}/weight_grad"] == work.get(f"{layer}/input_grad", work[layer])
    shape = TransformerShape(layers=1, hidden=64, heads=2, sequence=128)
    split = training_transformer(shape, NO_MIX)
    parts = ("scores", "context", "value_grad", "shares_grad", "query_grad", "key_grad")
    assert {named(split, f"l0/attention/{part}").kernels[0].flops for part in parts} == {2 * 128 * 128 * 64}
    whole = training_transformer(shape, CORES)
    assert named(whole, "l0/attention").kernels[0].flops == 2 * (2 * 128 * 128 * 64)
    assert named(whole, "l0/attention/grad").kernels[0].flops == 5 * (2 * 128 * 128 * 64)


# Gradients.


def test_gradients_of_a_bottleneck() -> None:
    """Forward, the first block of a stage; the gradient of its output passes the sum both ways.

    ::

        pool -+- conv1 - norm1 - conv2 - norm2 - conv3 -+- norm3 (adds, activates)
              +- shortcut - shortcut_norm --------------+

        norm3/active_grad -+- norm3/grad - ... - conv1/input_grad -+- pool_grad_sum
                           +- shortcut_norm/grad - shortcut/input_grad
    """
    graph = training_resnet(replace(SMALL_NET, blocks=(1,)), CORES)
    edges = {command.name.replace("s0b0/", ""): before(graph, command.name) for command in graph.commands}
    edges = {name: {other.replace("s0b0/", "") for other in others} for name, others in edges.items()}
    assert edges["norm3"] == {"conv3", "shortcut_norm"}
    assert edges["loss_grad"] == {"classifier/dense", "target"}
    assert edges["classifier/mean/grad"] == {"classifier/dense/input_grad", "norm3"}
    assert edges["norm3/active_grad"] == {"classifier/mean/grad", "norm3"}
    assert edges["norm3/grad"] == {"norm3/active_grad", "conv3"}
    assert edges["conv3/input_grad"] == {"norm3/grad"}
    assert edges["conv3/weight_grad"] == {"norm3/grad", "norm2"}
    assert edges["norm2/grad"] == {"conv3/input_grad", "conv2", "norm2"}
    assert edges["shortcut_norm/grad"] == {"norm3/active_grad", "shortcut"}
    assert edges["stem/pool_grad_sum"] == {"conv1/input_grad", "shortcut/input_grad"}
    assert edges["stem/pool/grad"] == {"stem/pool_grad_sum", "stem/norm"}
    assert edges["stem/conv/weight_grad"] == {"stem/norm/grad", "image"}
    assert edges["stem/conv/optimiser"] == {"stem/conv", "stem/conv/weight_grad"}
    assert "stem/conv/input_grad" not in edges
    conv2 = named(training_resnet(SMALL_NET, CORES), "s1b0/conv2").kernels[0]
    assert (
        conv2.bytes_written == 2 * 2 * 4 * 4 * 16
    )  # two images; the stem leaves 8 x 8 pixels, stride two 4 x 4


def test_gradients_of_a_transformer_layer() -> None:
    """What goes round a sublayer and what comes through it are added; layer 0 has nobody to hand it to."""
    graph = drawn("transformer")
    assert before(graph, "l1/down/input_grad") == {"final_norm/grad"}
    assert before(graph, "l1/down/weight_grad") == {"final_norm/grad", "l1/swiglu"}
    assert before(graph, "l1/swiglu/grad") == {"l1/down/input_grad", "l1/gate_up"}
    assert before(graph, "l1/add1_grad_sum") == {"final_norm/grad", "l1/norm2/grad"}
    assert before(graph, "l1/out/input_grad") == {"l1/add1_grad_sum"}
    assert before(graph, "l1/attention/grad") == {"l1/out/input_grad", "l1/qkv", "l1/attention"}
    assert before(graph, "l0/add2_grad_sum") == {"l1/add1_grad_sum", "l1/norm1/grad"}
    assert before(graph, "l0/qkv/weight_grad") == {"l0/attention/grad", "l0/norm1"}
    names = {command.name for command in graph.commands}
    assert not names & {"tokens_grad_sum", "l0/norm1/grad"}
    assert "l1/norm1/grad" in names


@pytest.mark.parametrize("name", GRAPHS)
def test_every_weight_changes_once_and_after_all_its_users(name: str) -> None:
    graph = drawn(name)
    layers = [buffer.name.removesuffix("/weight") for buffer in buffers(graph, "/weight")]
    writers = Counter(written for command in graph.commands for written in command.writes)
    for layer in layers:
        weight, change = f"{layer}/weight", named(graph, f"{layer}/optimiser")
        assert set(change.writes) == {weight, f"{layer}/moments"}
        assert set(change.reads) == {*change.writes, f"{layer}/weight_grad"}
        assert writers[weight] == writers[f"{layer}/moments"] == 1
        users = {command.name for command in graph.commands if weight in command.reads}
        assert users - {change.name} <= before(graph, change.name)
    assert {kernel.kernel_class for c in graph.commands for kernel in c.kernels} >= {"cube", "vector"}


@pytest.mark.parametrize("name", GRAPHS)
def test_nothing_is_computed_for_nobody(name: str) -> None:
    """The ends of the step are the changes of weights and the loss on the host."""
    graph = drawn(name)
    ends = {graph.commands[i].name for i, after in enumerate(graph.successors) if not after}
    assert ends == {
        "result",
        *(f"{b.name.removesuffix('weight')}optimiser" for b in buffers(graph, "/weight")),
    }


@pytest.mark.parametrize("name", GRAPHS)
def test_what_is_managed_is_read_again_after_the_loss(name: str) -> None:
    """All activations that are kept, the whole weight gradients, and nothing else."""
    graph = drawn(name)
    loss = graph.command_index["loss"]
    again = {read for command in graph.commands[loss + 1 :] for read in command.reads}
    forward = {written for command in graph.commands[:loss] if command.kernels for written in command.writes}
    managed = {b.name for b in graph.buffers if b.kind == BufferKind.MANAGED and b.level == Level.ABSENT}
    grads = {buffer.name for buffer in buffers(graph, "/weight_grad")}
    assert managed == (forward & again) | grads
    assert forward & again
    passing = ("/out", "/down", "/attention/scores", "/shortcut_norm")
    assert forward - again == {written for written in forward if written.endswith(passing)}


@pytest.mark.parametrize(
    ("make", "commands"),
    [
        (lambda: training_resnet(replace(SMALL_NET, blocks=(1,)), CORES), 26 + 18),
        (lambda: training_resnet(replace(SMALL_NET, blocks=(2, 3)), CORES), 20 * 5 + 2 * 6 + 18),
        (lambda: training_resnet(SMALL_NET, CORES, placement=AMONG_OTHERS), 60 + 12 + 18 + 3 * 3 + 2 + 2),
        (lambda: training_transformer(SMALL, CORES), 2 * 28 + 5),
        (lambda: training_transformer(SMALL, NO_MIX), 2 * 34 + 5),
        (lambda: training_transformer(SMALL, CORES, vocabulary=9), 2 * 28 + 9),
        (lambda: training_transformer(SMALL, CORES, placement=AMONG_OTHERS), 2 * 32 + 5),
    ],
)
def test_steps_have_as_many_commands_as_they_say(make: Callable[[], CommandGraph], commands: int) -> None:
    assert len(make().commands) == commands


def test_all_gradients_of_a_tensor_are_summed_at_once() -> None:
    """x is added to itself, then to the sum: y = (x + x) + x gives it thrice the gradient of y, 128 bytes."""
    tape = Tape(Sketch("g"), CORES, Placement())
    source = tape.sketch.upload("in", 128)
    x = tape.linear("x", source, 8, 8, 8)
    tape.loss(tape.add("y", tape.add("twice", x, x), x), 4)
    graph = tape.sketch.graph()
    total = named(graph, "x_grad_sum")
    assert total.reads == ("loss_grad",)
    assert (total.kernels[0].bytes_read, total.kernels[0].flops) == (3 * 128, 2 * 64)
    assert not any(command.name == "twice_grad_sum" for command in graph.commands)
    assert before(graph, "x/weight_grad") == {"x_grad_sum", "in"}


def test_collectives_sum_weight_gradients_in_place() -> None:
    """A gradient of 2 * 64 * 64 bytes at 1 GB/s takes 8192 ns, between its product and the optimiser."""
    graph = drawn("vocabulary on many")
    summed = named(graph, "l0/out/all_reduce")
    assert (summed.kind, summed.duration_ns) == (CommandKind.COLLECTIVE, 2 * 64 * 64)
    assert summed.reads == summed.writes == ("l0/out/weight_grad",)
    assert "l0/out/all_reduce" in before(graph, "l0/out/optimiser")
    assert CommandKind.COLLECTIVE not in {command.kind for command in drawn("transformer").commands}


def test_long_sums_are_split_over_free_cores() -> None:
    """64 x 64 outputs are one tile; a sum of 5000 makes five parts of it, one of 10**6 takes all 24 cores."""
    short, long = (long_sum(matmul("m", 64, n, 64, CORES), n, CORES).blocks for n in (1_000, 5_000))
    assert (short, long) == (1, 5)
    assert long_sum(matmul("m", 64, 10**6, 64, CORES), 10**6, CORES).blocks == 24
    assert long_sum(elementwise("e", 4096 * 30, CORES), 10**6, CORES).blocks == 48


# Memory.


def test_where_the_buffers_of_a_step_lie() -> None:
    usual = drawn("transformer")
    moved = training_transformer(
        SMALL,
        CORES,
        placement=Placement(
            weights=Level.HOST,
            moments=Level.HOST,
            activations=BufferKind.DEVICE,
            gradients=BufferKind.MANAGED,
        ),
    )
    assert usual.commands == moved.commands
    expected = {
        "/weight": ("managed", "hbm", "host"),
        "/moments": ("managed", "hbm", "host"),
        "/weight_grad": ("managed", "absent", "absent"),
    }
    for ending, (kind, level, other) in expected.items():
        assert {(b.kind, b.level) for b in buffers(usual, ending)} == {(kind, level)}
        assert {(b.kind, b.level) for b in buffers(moved, ending)} == {(kind, other)}
    kinds = [
        {b.kind for b in buffers(graph, ending)}
        for graph in (usual, moved)
        for ending in ("/qkv", "/input_grad")
    ]
    assert kinds == [{"managed"}, {"device"}, {"device"}, {"managed"}]
    assert {b.kind for b in usual.buffers if b.name in ("tokens", "target", "loss")} == {"device"}
    assert {b.kind for b in buffers(usual, "/down")} == {"device"}


def test_a_layer_keeps_what_its_gradients_need() -> None:
    """Eight tensors of a token's width 64 and three of its inner width 256, the last norm, two bytes each."""
    graph = drawn("transformer")
    kept = [b for b in graph.buffers if b.kind == BufferKind.MANAGED and b.level == Level.ABSENT]
    size = sum(b.size_bytes for b in kept if not b.name.endswith("/weight_grad"))
    assert size == 2 * 16 * (2 * (8 * 64 + 3 * 256) + 64)
    weights = sum(b.size_bytes for b in buffers(graph, "/weight"))
    assert sum(b.size_bytes for b in buffers(graph, "/moments")) == 4 * weights
    assert sum(b.size_bytes for b in buffers(graph, "/weight_grad")) == weights


def test_the_first_layers_of_a_residual_network_are_the_largest_and_needed_last() -> None:
    graph = training_resnet(ResnetShape(batch=4), CORES)
    size = {buffer.name: buffer.size_bytes for buffer in graph.buffers}
    assert size["stem/conv"] == 2 * 4 * 112 * 112 * 64
    assert size["s3b2/norm3"] == 2 * 4 * 7 * 7 * 2048
    last = {read: i for i, command in enumerate(graph.commands) for read in command.reads}
    order = ["s3b2/conv1", "s2b0/conv1", "s1b0/conv1", "s0b0/conv1", "stem/conv"]
    assert sorted(order, key=last.__getitem__) == order


@pytest.mark.parametrize("collective_ns", [0, 7])
def test_a_plain_step_with_managed_activations_is_the_same_step(collective_ns: int) -> None:
    shape = TrainingShape(layers=3, width=64, tokens=32, collective_ns=collective_ns)
    plain = training(shape, CORES)
    managed = training(shape, CORES, activations=BufferKind.MANAGED)
    assert plain.commands == managed.commands
    theirs = {buffer.name: buffer for buffer in managed.buffers}
    changed = {buffer.name for buffer in plain.buffers if theirs[buffer.name] != buffer}
    assert changed == {f"l{layer}/{part}" for layer in range(3) for part in ("product", "activation")}
    for buffer in plain.buffers:
        if buffer.name in changed:
            assert theirs[buffer.name] == replace(buffer, kind=BufferKind.MANAGED)


def test_an_activation_must_be_written_before_it_is_read() -> None:
    sketch = Sketch("g")
    kernel = elementwise("k", 8, CORES)
    sketch.launch("use", [kernel], [sketch.activation("late", 16)], 16)
    sketch.launch("late", [kernel], [], 16)
    with pytest.raises(InputError, match="'use' reads the buffer 'late', which is absent"):
        sketch.graph()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ResnetShape(blocks=()), "'blocks' is empty; list at least one"),
        (lambda: ResnetShape(blocks=(1, 0)), "'blocks' is 0; write a whole number of at least 1"),
        (lambda: ResnetShape(image=16), "'image' is 16; write at least 32 pixels"),
        (lambda: ResnetShape(batch=0), "'batch' is 0"),
        (lambda: Placement(weights=Level.ABSENT), r"'weights' is 'absent'; write 'host' \(cold\)"),
        (lambda: Placement(moments=Level.ABSENT), r"'moments' is 'absent'; write 'host' \(cold\)"),
        (lambda: Placement(activations="cached"), "'activations' is 'cached'; write 'device' or 'managed'"),
        (lambda: Placement(collective_bytes_per_s=-1), "'collective_bytes_per_s' is -1"),
        (lambda: training_transformer(SMALL, CORES, vocabulary=-1), "'vocabulary' is -1"),
        (lambda: TrainingResnetWorkload(batches=()), "'batches' is empty"),
        (lambda: TrainingResnetWorkload(batches=(4, 0)), "'batches' is 0"),
        (lambda: TrainingTransformerWorkload(sequences=(0,)), "'sequences' is 0"),
        (lambda: TrainingTransformerWorkload(heads=7), "'heads' is 7, which does not divide 'hidden' 1024"),
        (lambda: TrainingTransformerWorkload(moments=Level.ABSENT), "'moments' is 'absent'"),
    ],
)
def test_steps_that_cannot_be_are_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()
