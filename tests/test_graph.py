"""Graphs: dependencies, order, round trips, merging, and every fault that must be refused."""

from __future__ import annotations

from dataclasses import fields, replace

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cann_env.graph import (
    Buffer,
    BufferKind,
    Command,
    CommandGraph,
    CommandKind,
    CopyKind,
    HostMemory,
    Kernel,
    KernelClass,
    Level,
    Operand,
    from_networkx,
    merge_requests,
)
from cann_env.units import InputError

ADD = Kernel(name="add", kernel_class=KernelClass.VECTOR, flops=8, bytes_read=32, bytes_written=16)


def compute(name: str, **fields: object) -> Command:
    return Command(name=name, kind=CommandKind.KERNEL, **{"kernels": (ADD,), **fields})


def pipeline() -> CommandGraph:
    """Two inputs are added and scaled in place; the second input is overwritten meanwhile.

    ::

        load_a --a--\\
                     add --c--> scale --c--> store
        load_b --b--/
             \\        \\
              `-(waw)--`-(war)--> reload (writes b)     mark comes after reload only
    """
    return CommandGraph(
        "pipeline",
        (
            Command(name="load_a", kind=CommandKind.COPY, copy=CopyKind.H2D, size_bytes=16, writes=("a",)),
            Command(
                name="load_b",
                kind=CommandKind.COPY,
                copy=CopyKind.H2D,
                size_bytes=16,
                host_memory=HostMemory.PAGEABLE,
                writes=("b",),
            ),
            compute("add", reads=("a", "b", "w"), writes=("c",), request="r0", stream_hint=3),
            compute("scale", reads=("c",), writes=("c",), release_ns=5),
            Command(name="store", kind=CommandKind.COPY, copy=CopyKind.D2H, size_bytes=16, reads=("c",)),
            Command(name="reload", kind=CommandKind.COPY, copy=CopyKind.D2D, size_bytes=16, writes=("b",)),
            Command(name="mark", kind=CommandKind.CALLBACK, duration_ns=9, after=("reload",)),
        ),
        (
            Buffer(name="a", size_bytes=16),
            Buffer(name="b", size_bytes=16),
            Buffer(name="c", size_bytes=16, die=1),
            Buffer(name="w", size_bytes=64, kind=BufferKind.MANAGED, level=Level.HOST),
        ),
    )


def test_dependencies_follow_data_and_after() -> None:
    """The seven commands drawn at ``pipeline``: read after write, write after write, write after read."""
    graph = pipeline()
    assert graph.predecessors == ((), (), (0, 1), (2,), (3,), (1, 2), (5,))
    assert graph.successors == ((2,), (2, 5), (3, 5), (4,), (), (6,), ())


def test_order_takes_the_smallest_index_that_is_free() -> None:
    """Command 0 waits for 2 by ``after``, so the order is 1, 2, 0, 3, not program order."""
    graph = CommandGraph("g", (compute("p", after=("r",)), compute("q"), compute("r"), compute("s")))
    assert graph.topological_order == (1, 2, 0, 3)
    assert graph.topological_order is graph.topological_order


@st.composite
def graphs(draw: st.DrawFn) -> CommandGraph:
    """Any sound graph of at most eight commands over four buffers."""
    resident = draw(st.sets(st.sampled_from("wxyz")))
    levels = {name: Level.HBM if name in resident else Level.ABSENT for name in "wxyz"}
    commands: list[Command] = []
    written = set(resident)
    for i in range(draw(st.integers(1, 8))):
        reads = tuple(sorted(draw(st.sets(st.sampled_from(sorted(written)))))) if written else ()
        writes = tuple(sorted(draw(st.sets(st.sampled_from("wxyz"), max_size=2))))
        written.update(writes)
        commands.append(compute(f"c{i}", reads=reads, writes=writes))
    count = len(commands)
    pairs = draw(st.sets(st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)), max_size=4))
    for i, j in sorted(pairs):
        if i < j:
            commands[j] = replace(commands[j], after=(*commands[j].after, f"c{i}"))
    buffers = tuple(Buffer(name=name, size_bytes=8, level=level) for name, level in levels.items())
    return CommandGraph("random", tuple(commands), buffers)


@settings(max_examples=25, deadline=None)
@given(graphs())
def test_laws_of_order_and_round_trip(graph: CommandGraph) -> None:
    place = {command: position for position, command in enumerate(graph.topological_order)}
    assert sorted(place) == list(range(len(graph.commands)))
    assert all(place[i] < place[j] for j, before in enumerate(graph.predecessors) for i in before)
    shown = graph.to_networkx()
    assert set(shown.edges) == {
        (graph.commands[i].name, graph.commands[j].name)
        for j, before in enumerate(graph.predecessors)
        for i in before
    }
    assert from_networkx(shown) == graph


def test_round_trip_of_every_kind_of_command() -> None:
    graph = pipeline()
    assert from_networkx(graph.to_networkx()) == graph
    assert graph.to_networkx().nodes["add"]["stream_hint"] == 3
    assert graph.to_networkx().graph == {"name": "pipeline", "buffers": graph.buffers}


def test_networkx_edge_without_data_becomes_after() -> None:
    """``b -> a`` is drawn by hand against program order; the graph must keep it."""
    drawn = nx.DiGraph(name="drawn")
    drawn.add_node("a", kind=CommandKind.KERNEL, kernels=(ADD,))
    drawn.add_node("b", kind=CommandKind.KERNEL, kernels=(ADD,))
    drawn.add_edge("b", "a")
    graph = from_networkx(drawn)
    assert graph.commands[0].after == ("b",)
    assert graph.topological_order == (1, 0)


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"kind": CommandKind.KERNEL, "colour": "red"}, "graph 'drawn', node 'a' has the attribute 'colour'"),
        ({"kernels": (ADD,)}, "graph 'drawn', node 'a' has no attribute 'kind'; give it a CommandKind"),
    ],
)
def test_networkx_node_that_is_no_command(attributes: dict[str, object], message: str) -> None:
    drawn = nx.DiGraph(name="drawn")
    drawn.add_node("a", **attributes)
    with pytest.raises(InputError) as caught:
        from_networkx(drawn)
    assert message in str(caught.value)


def test_merged_requests_keep_their_shape_and_share_weights() -> None:
    """Two requests for one model: no edge between them, one copy of ``w``, two of everything else."""
    graph = pipeline()
    merged = merge_requests("mix", [("r1", graph, 0), ("r2", graph, 1_000)])
    count = len(graph.commands)
    assert merged.predecessors[:count] == graph.predecessors
    assert merged.predecessors[count:] == tuple(tuple(i + count for i in p) for p in graph.predecessors)
    assert [b.name for b in merged.buffers] == ["r1/a", "r1/b", "r1/c", "pipeline/w", "r2/a", "r2/b", "r2/c"]
    assert merged.commands[2].reads == ("r1/a", "r1/b", "pipeline/w")
    assert merged.commands[-1].after == ("r2/reload",)
    assert {c.request for c in merged.commands[:count]} == {"r1"}
    assert [c.release_ns for c in merged.commands if c.name.endswith("/scale")] == [5, 1_005]


def test_merged_requests_can_keep_their_own_weights() -> None:
    graph = pipeline()
    merged = merge_requests("mix", [("r1", graph, 0), ("r2", graph, 0)], share_managed=False)
    assert len(merged.buffers) == 2 * len(graph.buffers)


def test_a_managed_buffer_that_is_written_is_not_shared() -> None:
    """A cache each request writes would chain the requests if it were one buffer."""
    cache = Buffer(name="cache", size_bytes=8, kind=BufferKind.MANAGED, level=Level.HOST)
    graph = CommandGraph("g", (compute("a", reads=("cache",), writes=("cache",)),), (cache,))
    merged = merge_requests("mix", [("r1", graph, 0), ("r2", graph, 0)])
    assert [b.name for b in merged.buffers] == ["r1/cache", "r2/cache"]
    assert merged.predecessors == ((), ())


@pytest.mark.parametrize("names", [("r1", "r2"), ("pipeline", "r"), ("g", "g/x")])
def test_a_merged_graph_is_the_one_that_is_checked_as_a_whole(names: tuple[str, str]) -> None:
    """Also where a request is named like a model, so its own buffers stand beside shared weights."""
    other = replace(pipeline(), name="g", commands=pipeline().commands[:3])
    merged = merge_requests("mix", [(names[0], pipeline(), 3), (names[1], other, 7)])
    whole = CommandGraph(merged.name, merged.commands, merged.buffers)
    assert (merged, merged.predecessors) == (whole, whole.predecessors)
    assert (merged.successors, merged.topological_order) == (whole.successors, whole.topological_order)
    changed = {"name", "reads", "writes", "after", "release_ns", "request"}
    for before, after in zip((*pipeline().commands, *other.commands), merged.commands, strict=True):
        for field in {each.name for each in fields(Command)} - changed:
            assert getattr(before, field) == getattr(after, field)


def test_requests_that_meet_in_a_buffer_wait_for_each_other() -> None:
    """Request ``m`` writes its own managed buffer ``m/w``; the graph ``m`` has weights of that name."""
    w = Buffer(name="w", size_bytes=8, kind=BufferKind.MANAGED, level=Level.HOST)
    writes = CommandGraph("other", (compute("a", writes=("w",)),), (w,))
    reads = CommandGraph("m", (compute("a", reads=("w",)),), (w,))
    merged = merge_requests("mix", [("m", writes, 0), ("r", reads, 0)])
    assert merged.predecessors == ((), (0,))


def _with_weights(size: int) -> CommandGraph:
    weights = Buffer(name="w", size_bytes=size, kind=BufferKind.MANAGED, level=Level.HOST)
    return CommandGraph("model", (compute("a", reads=("w",)),), (weights,))


@pytest.mark.parametrize(
    ("requests", "message"),
    [
        ([("r", pipeline(), 0), ("r", pipeline(), 0)], "graph 'mix': two requests are named 'r'"),
        ([("r1", _with_weights(8), 0), ("r2", _with_weights(16), 0)], "the buffer 'model/w' is Buffer("),
        ([], "graph 'mix' has no commands"),
        ([("r", pipeline(), -6)], "release_ns is -6"),
        ([("r", pipeline(), 2**50)], f"release_ns is {2**50 + 5}"),
        (
            [("a", CommandGraph("g", (compute("b/c"),)), 0), ("a/b", CommandGraph("h", (compute("c"),)), 0)],
            "two commands are named 'a/b/c'",
        ),
    ],
)
def test_requests_that_cannot_be_merged(requests: list[tuple[str, CommandGraph, int]], message: str) -> None:
    with pytest.raises(InputError) as caught:
        merge_requests("mix", requests)
    assert message in str(caught.value)


X = Buffer(name="x", size_bytes=8, level=Level.HBM)
LOAD = Command(name="load", kind=CommandKind.COPY, copy=CopyKind.H2D, size_bytes=8, writes=("x",))
SLEEP = Command(name="sleep", kind=CommandKind.CALLBACK, duration_ns=5)

FAULTS = {
    "no commands": ((), (), "graph 'g' has no commands; it needs at least one"),
    "two commands of one name": ((compute("a"), compute("a")), (), "two commands are named 'a'; give each"),
    "two buffers of one name": ((compute("a"),), (X, X), "two buffers are named 'x'; give each"),
    "empty name": ((compute(""),), (), "a command is named ''; a name is a text"),
    "unknown buffer read": ((compute("a", reads=("y",)),), (X,), "'a': reads names the buffer 'y', which is"),
    "unknown buffer written": (
        (compute("a", writes=("y",)),),
        (X,),
        "'a': writes names the buffer 'y', which",
    ),
    "buffer read twice": (
        (compute("a", reads=("x", "x")),),
        (X,),
        "reads names the buffer 'x' twice; name it",
    ),
    "unknown command": (
        (compute("a", after=("z",)),),
        (),
        "'a': after names the command 'z', which is unknown",
    ),
    "waits for itself": ((compute("a", after=("a",)),), (), "a command cannot wait for itself, remove it"),
    "names as text": ((compute("a", reads="x"),), (X,), "'a': reads is 'x'; write a tuple"),
    "kind as text": ((replace(SLEEP, kind="nap"),), (), "kind is 'nap'; write one of CommandKind.KERNEL,"),
    "no blocks": (
        (compute("a", kernels=(replace(ADD, blocks=0),)),),
        (),
        "kernel 'add': blocks is 0; write a",
    ),
    "negative flops": ((compute("a", kernels=(replace(ADD, flops=-1),)),), (), "flops is -1; write a whole"),
    "negative bytes": (
        (compute("a", kernels=(replace(ADD, bytes_read=-2),)),),
        (),
        "bytes_read is -2; write",
    ),
    "half a byte": ((compute("a", kernels=(replace(ADD, bytes_written=0.5),)),), (), "bytes_written is 0.5;"),
    "no time": (
        (compute("a", kernels=(replace(ADD, duration_ns=0),)),),
        (),
        "duration_ns is 0; write a whole",
    ),
    "own fallback": (
        (compute("a", kernels=(replace(ADD, fallback=KernelClass.VECTOR),)),),
        (),
        "kernel 'add': fallback is 'vector', the kernel's own class; write another class or None",
    ),
    "unknown scheme": (
        (compute("a", kernels=(replace(ADD, scheme="all"),)),),
        (),
        "one of Scheme.NORMAL, Sc",
    ),
    "no kernels": ((compute("a", kernels=()),), (), "'a': a kernel command has kernels (); give one kernel"),
    "no direction": (
        (replace(LOAD, copy=None),),
        (X,),
        "'load': a copy command has copy None; give a CopyKi",
    ),
    "copy of nothing": (
        (replace(LOAD, size_bytes=0),),
        (X,),
        "a copy command has size_bytes 0; give its byt",
    ),
    "negative copy": (
        (replace(LOAD, size_bytes=-8),),
        (X,),
        "'load': size_bytes is -8; write a whole number",
    ),
    "callback of no time": (
        (replace(SLEEP, duration_ns=0),),
        (),
        "a callback command has duration_ns 0; give",
    ),
    "negative callback": ((replace(SLEEP, duration_ns=-5),), (), "'sleep': duration_ns is -5; write a whole"),
    "kernels on a copy": ((replace(LOAD, kernels=(ADD,)),), (X,), "a copy command has kernels (Kernel(name="),
    "bytes on a kernel": ((compute("a", size_bytes=4),), (), "a kernel command has size_bytes 4; leave it 0"),
    "copy of negative time": (
        (replace(LOAD, duration_ns=-7),),
        (X,),
        "'load': duration_ns is -7; write a whole",
    ),
    "time on a kernel": (
        (compute("a", duration_ns=7),),
        (),
        "a kernel command has duration_ns 7; leave it 0",
    ),
    "pageable on the device": (
        (replace(LOAD, copy=CopyKind.D2D, host_memory=HostMemory.PAGEABLE),),
        (X,),
        "host_memory is 'pageable', but only a copy to or from the host has a host side; leave it 'pinned'",
    ),
    "negative release": ((compute("a", release_ns=-1),), (), "'a': release_ns is -1; write a whole number"),
    "true release": ((compute("a", release_ns=True),), (), "'a': release_ns is True; write a whole number"),
    "release in a fortnight": (
        (compute("a", release_ns=2**50 + 1),),
        (),
        "'a': release_ns is 1125899906842625; write a whole number (int) from 0 to 2**50 ns (13 days)",
    ),
    "callback of a fortnight": (
        (replace(SLEEP, duration_ns=2**50 + 1),),
        (),
        "'sleep': duration_ns is 1125899906842625; write a whole number (int) from 1 to 2**50 ns (13 days)",
    ),
    "kernel of a fortnight": (
        (compute("a", kernels=(replace(ADD, duration_ns=2**50 + 1),)),),
        (),
        "kernel 'add': duration_ns is 1125899906842625; write a whole number (int) from 1 to 2**50 ns (13",
    ),
    "too many blocks": (
        (compute("a", kernels=(replace(ADD, blocks=2**20 + 1),)),),
        (),
        "kernel 'add': blocks is 1048577; write a whole number (int) from 1 to 2**20",
    ),
    "too much work": (
        (compute("a", kernels=(replace(ADD, flops=2**60 + 1),)),),
        (),
        "flops is 1152921504606846977; write a whole number (int) from 0 to 2**60",
    ),
    "too large a copy": (
        (replace(LOAD, size_bytes=2**60 + 1),),
        (X,),
        "'load': size_bytes is 1152921504606846977; write a whole number (int) from 1 to 2**60",
    ),
    "too large a buffer": (
        (compute("a"),),
        (replace(X, size_bytes=2**60 + 1),),
        "buffer 'x': size_bytes is 1152921504606846977; write a whole number (int) from 1 to 2**60",
    ),
    "negative stream": ((compute("a", stream_hint=-1),), (), "'a': stream_hint is -1; write a whole number"),
    "empty buffer": ((compute("a"),), (replace(X, size_bytes=0),), "buffer 'x': size_bytes is 0; write a"),
    "negative die": ((compute("a"),), (replace(X, die=-1),), "buffer 'x': die is -1; write a whole number"),
    "device buffer on the host": (
        (compute("a"),),
        (replace(X, level=Level.HOST),),
        "buffer 'x': level is 'host', unreachable for a device buffer; write 'absent' or 'hbm'",
    ),
    "unknown host memory": (
        (compute("a"),),
        (replace(X, host_memory="pinned"),),
        "buffer 'x': host_memory is 'pinned'; write one of HostMemory.PINNED, HostMemory.PAGEABLE",
    ),
    "managed buffer read before written": (
        (compute("a", reads=("x",)), LOAD),
        (replace(X, kind=BufferKind.MANAGED, level=Level.ABSENT),),
        "command 'a' reads the buffer 'x', which is absent and no command before it in program order writes",
    ),
    "managed buffer read by its first writer": (
        (compute("a", reads=("x",), writes=("x",)),),
        (replace(X, kind=BufferKind.MANAGED, level=Level.ABSENT),),
        "command 'a' reads the buffer 'x', which is absent and no command before it in program order writes",
    ),
    "read before written": (
        (compute("a", reads=("x",)), LOAD),
        (replace(X, level=Level.ABSENT),),
        "command 'a' reads the buffer 'x', which is absent and no command before it in program order writes",
    ),
    "cycle by after": (
        (compute("z"), compute("c", after=("b",)), compute("a", after=("c",)), compute("b", after=("a",))),
        (),
        "commands wait for each other in a cycle: c -> a -> b -> c; remove one",
    ),
    "cycle by after and data": (
        (replace(LOAD, after=("use",)), compute("use", reads=("x",)), compute("late", after=("use",))),
        (X,),
        "in a cycle: load -> use -> load; remove one of these dependencies",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_refused_by_name(fault: str) -> None:
    commands, buffers, message = FAULTS[fault]
    with pytest.raises(InputError) as caught:
        CommandGraph("g", commands, buffers)
    assert str(caught.value).startswith("graph 'g'")
    assert message in str(caught.value)


def test_the_rows_of_faults_start_from_sound_parts() -> None:
    """Without its planted fault every part is accepted, so each row fails for its own reason."""
    CommandGraph("g", (LOAD, SLEEP, compute("a", reads=("x",), after=("sleep",))), (X,))


@pytest.mark.parametrize("memory", HostMemory)
@pytest.mark.parametrize("level", Level)
def test_managed_buffers_start_at_every_level(level: Level, memory: HostMemory) -> None:
    """One that lies nowhere at first is written, then read; the others may be read at once."""
    buffer = replace(X, kind=BufferKind.MANAGED, level=level, host_memory=memory)
    commands = (LOAD, compute("a", reads=("x",)))
    assert CommandGraph("g", commands, (buffer,)).predecessors == ((), (0,))
    if level != Level.ABSENT:
        CommandGraph("g", commands[1:], (buffer,))


def test_the_largest_values_are_accepted() -> None:
    largest = replace(ADD, duration_ns=2**50, blocks=2**20, flops=2**60, bytes_read=2**60)
    commands = (
        replace(LOAD, size_bytes=2**60, release_ns=2**50),
        replace(SLEEP, duration_ns=2**50),
        compute("a", kernels=(largest,)),
    )
    CommandGraph("g", commands, (replace(X, size_bytes=2**60),))


NUMBERS = {
    Buffer: ("size_bytes", "die"),
    Kernel: ("blocks", "flops", "bytes_read", "bytes_written", "duration_ns"),
    Command: ("size_bytes", "duration_ns", "release_ns"),
}
MEMBERS = {
    Buffer: ("kind", "level", "host_memory"),
    Kernel: ("kernel_class", "scheme"),
    Command: ("kind", "copy", "host_memory"),
}
SOUND = (X, ADD, LOAD, SLEEP, compute("run"))


def _graph_with(thing: Buffer | Kernel | Command) -> CommandGraph:
    if isinstance(thing, Buffer):
        return CommandGraph("g", (SLEEP,), (thing,))
    return CommandGraph("g", (compute("a", kernels=(thing,)) if isinstance(thing, Kernel) else thing,), (X,))


@pytest.mark.parametrize("thing", SOUND, ids=lambda thing: thing.name)
def test_a_number_is_an_int_in_range_and_a_member_no_text(thing: Buffer | Kernel | Command) -> None:
    """Every field of everything: what looks like the right value is refused as well, and named."""
    assert _graph_with(thing)
    for field in NUMBERS[type(thing)]:
        value = getattr(thing, field)
        for wrong in (True, 1.0, float(value or 0) + 0.5, "1", -1, 2**61):
            with pytest.raises(InputError, match=f"{thing.name}.*{field}"):
                _graph_with(replace(thing, **{field: wrong}))
    for field in MEMBERS[type(thing)]:
        for wrong in (str(getattr(thing, field)), "other", 0):
            with pytest.raises(InputError, match=f"{thing.name}.*{field}"):
                _graph_with(replace(thing, **{field: wrong}))


def test_a_command_has_no_fields_of_another_kind() -> None:
    for command, field, value in (
        (SLEEP, "kernels", (ADD,)),
        (SLEEP, "size_bytes", 8),
        (LOAD, "kernels", (ADD,)),
        (compute("run"), "duration_ns", 5),
    ):
        with pytest.raises(InputError, match=f"{command.name}.*{field}"):
            _graph_with(replace(command, **{field: value}))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"op": 7}, r"kernel 'add': op is 7; write the operator's type"),
        ({"inputs": [Operand((2,))]}, r"inputs is \[Operand.*; write a tuple of Operand"),
        ({"outputs": ((2, 3),)}, r"outputs holds \(2, 3\); write Operand\(shape, dtype, layout\)"),
        ({"outputs": (Operand((2, -1)),)}, r"outputs holds Operand\(shape=\(2, -1\)"),
        ({"inputs": (Operand((2,), dtype=None),)}, r"inputs holds Operand"),
    ],
)
def test_operands_of_a_kernel_are_checked(change: dict[str, object], said: str) -> None:
    sound = replace(ADD, op="Add", inputs=(Operand((8,), "float32"), Operand(())), outputs=(Operand((8,)),))
    CommandGraph("g", (compute("a", kernels=(sound,)),))
    with pytest.raises(InputError, match=said):
        CommandGraph("g", (compute("a", kernels=(replace(sound, **change),)),))
