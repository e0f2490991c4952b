"""Programs as graphs: whatever schedule is made of the graph of a program does what the program did.

The graph of a program is scheduled, written as a program and run: all bytes of the host's memory are as they
were left by the program, and a recording of that is the same graph again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from exported import execute, times, times_of

import cann_env.acl as acl
from cann_env.acl.plans.plan import plan_of
from cann_env.graph import CommandKind
from cann_env.options import RunOptions
from cann_env.program import compile_graph
from cann_env.scenario import load_scenario
from cann_env.schedulers import run_scheduler
from cann_env.units import InputError

if TYPE_CHECKING:
    from cann_env.acl.plans.record import RecordedGraph
    from cann_env.schedule import Schedule

N = 1 << 12
H2D, D2H, D2D = acl.ACL_MEMCPY_HOST_TO_DEVICE, acl.ACL_MEMCPY_DEVICE_TO_HOST, acl.ACL_MEMCPY_DEVICE_TO_DEVICE


def ok(result: Any) -> Any:
    """The value of a call that has to work."""
    code = result[-1] if isinstance(result, tuple) else result
    assert code == 0, acl.get_recent_err_msg()
    return result[0] if isinstance(result, tuple) else None


def kernels() -> None:
    """Kernels whose results tell in which order they ran."""
    acl.define_kernel("mix", reads=(0, 1), writes=(2,), dtype="int32", function=_mix, flops=10**7)
    acl.define_kernel("shift", reads=(0,), writes=(0,), dtype="int32", function=_shift)


def _mix(a: Any, b: Any, out: Any) -> None:
    out[:] = a * 3 + b * 5 + 1


def _shift(a: Any, by: int) -> None:
    a[:] = a * 7 + by


class Drawn:
    """A program of random calls in which everything is ordered: each piece of work behind the one before.

    Args:
        seed: Decides it.
        calls: How many.
    """

    def __init__(self, seed: int, calls: int = 25) -> None:
        self._rng = np.random.default_rng(seed)
        self.run = acl.simulate("ascend910b2")
        kernels()
        ok(acl.init())
        ok(acl.rt.set_device(0))
        binary = ok(acl.rt.binary_load_from_file("kernels.o"))
        self._mix = ok(acl.rt.binary_get_function(binary, "mix"))
        self._shift = ok(acl.rt.binary_get_function(binary, "shift"))
        self._streams = [ok(acl.rt.create_stream()) for _ in range(3)]
        self._device = [ok(acl.rt.malloc(N, 0)) for _ in range(3)]
        self._device += [ok(acl.rt.mem_alloc_managed(N, 0)) for _ in range(2)]
        self._host = [ok(acl.rt.malloc_host(N)) for _ in range(2)]
        self._array = np.zeros(N, np.uint8)
        self._host.append(acl.util.numpy_to_ptr(self._array))
        self._event = ok(acl.rt.create_event_ex_with_flag(0))
        for place, address in enumerate(self._host):
            _bytes(address)[:] = (np.arange(N) * (place + 3)) % 251
        self.given = [_bytes(address).copy() for address in self._host]
        for address in self._device:
            self._copy(address, self._host[0], H2D, self._streams[0])
        self._last = self._streams[0]
        for _ in range(calls):
            stream = self._pick(self._streams)
            ok(acl.rt.record_event(self._event, self._last))
            ok(acl.rt.stream_wait_event(stream, self._event))
            self._call(stream)
            self._last = stream
        ok(acl.rt.synchronize_device())
        self.left = [_bytes(address).copy() for address in self._host]

    def _pick(self, things: list[int]) -> int:
        return things[int(self._rng.integers(len(things)))]

    def _copy(self, target: int, source: int, kind: int, stream: int, size: int = N) -> None:
        ok(acl.rt.memcpy_async(target, size, source, size, kind, stream))

    def _call(self, stream: int) -> None:
        a, b, c = (int(i) for i in self._rng.permutation(len(self._device))[:3])
        draw = self._rng.random()
        device, host = self._device, self._pick(self._host)
        if draw < 0.35:
            ok(acl.rt.launch_kernel(self._mix, 4, [device[a], device[b], device[c]], None, stream))
        elif draw < 0.5:
            ok(acl.rt.launch_kernel(self._shift, 1, [(device[a] + 64, 1024), 11], None, stream))
        elif draw < 0.6:
            command = ok(acl.create_command())
            ok(acl.set_command_args(command, self._mix, 2, [device[a], device[b], device[c]]))
            ok(acl.set_command_args(command, self._shift, 1, [device[c], 5]))
            ok(acl.submit_command(command, stream))
        elif draw < 0.7:
            ok(acl.rt.memset_async(device[a], N, 7, 100, stream))
        elif draw < 0.75:
            ok(acl.rt.memcpy2d_async(device[a], 64, device[b] + 32, 128, 32, 9, D2D, stream))
        elif draw < 0.85:
            self._copy(device[a], host, H2D, stream, 1000)
        elif draw < 0.95:
            self._copy(host, device[a], D2H, stream)
        else:
            self._copy(device[a], device[b] + 8, D2D, stream, 500)


def _bytes(address: int) -> Any:
    return acl.util.ptr_to_numpy(address, (N,), "uint8")


def _schedule(graph: RecordedGraph, scheduler: str = "reference", device: str = "ascend910b2") -> Schedule:
    from cann_env.device import load_device

    return run_scheduler(compile_graph(graph, load_device(device), RunOptions(streams=4)), scheduler)


def _again(schedule: Schedule, given: dict[str, Any]) -> tuple[Any, Any]:
    """Run a schedule of a recorded graph; gives the run and what it left in the host's memory, by name."""
    text = acl.export(schedule)
    run = acl.run_as(schedule)
    kernels()
    return run, execute(text, given=given)


@pytest.mark.parametrize("seed", range(12))
def test_every_schedule_of_a_program_leaves_what_the_program_does(seed: int) -> None:
    drawn = Drawn(seed)
    assert acl.hazards() == [] or all(hazard.kind.value == "leak" for hazard in acl.hazards())
    graph = acl.record()
    names = [place.name for place in graph.host]
    in_order = sorted(names, key=lambda name: int(name.lstrip("pinedagbl")))
    all_given = dict(zip(in_order, _of(drawn.given, drawn, in_order), strict=True))
    wanted = dict(zip(in_order, _of(drawn.left, drawn, in_order), strict=True))
    for scheduler in ("reference", "round_robin"):
        schedule = _schedule(graph, scheduler)
        run, left = _again(schedule, all_given)
        assert len(times_of(run)) == len(graph.commands)
        assert times_of(run) == times(schedule)
        for name in in_order:
            assert np.array_equal(left[name], wanted[name]), name


def _of(values: list[Any], drawn: Drawn, names: list[str]) -> list[Any]:
    """Contents of the host's memory, in the order of the names that are in the graph."""
    found = {drawn.run.memory.find(address).name: value  # type: ignore[union-attr]
             for address, value in zip(drawn._host, values, strict=True)}  # fmt: skip
    return [found[name] for name in names]


@pytest.mark.parametrize("seed", range(6))
def test_a_recording_of_the_program_of_a_graph_is_the_graph(seed: int) -> None:
    """Up to names, and to the order in which the commands stand."""
    Drawn(seed)
    first = acl.record()
    schedule = _schedule(first)
    _again(schedule, {})
    second = acl.record()
    order = [taken.target for taken in plan_of(schedule).steps if taken.call == "issue"]
    place = {c: k for k, c in enumerate(order)}
    names: dict[str, str] = {}
    for k, c in enumerate(order):
        old, new = first.commands[c], second.commands[k]
        assert (old.kind, old.kernels, old.copy, old.size_bytes) == (
            new.kind,
            new.kernels,
            new.copy,
            new.size_bytes,
        )
        for before, after in ((old.reads, new.reads), (old.writes, new.writes)):
            assert len(before) == len(after)
            for x, y in zip(before, after, strict=True):
                assert names.setdefault(y, x) == x
        assert set(second.predecessors[k]) == {place[u] for u in first.predecessors[c]}
    levels = {buffer.name: (buffer.size_bytes, buffer.level, buffer.kind) for buffer in first.buffers}
    for buffer in second.buffers:
        assert levels[names[buffer.name]] == (buffer.size_bytes, buffer.level, buffer.kind)


def test_what_touches_no_memory_keeps_its_place() -> None:
    """::

    s1  shift -- call -- shift       the callback stands between them, in every schedule
    """
    acl.simulate("ascend910b2")
    kernels()
    ok(acl.init())
    ok(acl.rt.set_device(0))
    stream, memory = ok(acl.rt.create_stream()), ok(acl.rt.malloc(N, 0))
    shift = ok(acl.rt.binary_get_function(ok(acl.rt.binary_load_from_file("k.o")), "shift"))
    called: list[int] = []
    ok(acl.rt.subscribe_report(0, stream))
    ok(acl.rt.launch_kernel(shift, 1, [memory, 1], None, stream))
    ok(acl.rt.launch_callback(called.append, 1, 1, stream))
    ok(acl.rt.launch_kernel(shift, 1, [memory, 2], None, stream))
    ok(acl.rt.synchronize_stream(stream))
    graph = acl.record()
    assert [command.kind for command in graph.commands] == [
        CommandKind.KERNEL, CommandKind.CALLBACK, CommandKind.KERNEL,
    ]  # fmt: skip
    assert graph.predecessors == ((), (0,), (0, 1))
    schedule = _schedule(graph)
    run, _ = _again(schedule, {})
    assert times_of(run) == times(schedule)


def test_the_order_by_memory_of_the_host_is_kept() -> None:
    """One copy leaves in pinned memory what the next one takes from there."""
    acl.simulate("ascend910b2")
    ok(acl.init())
    ok(acl.rt.set_device(0))
    streams = [ok(acl.rt.create_stream()) for _ in range(2)]
    a, b = (ok(acl.rt.malloc(N, 0)) for _ in range(2))
    host = ok(acl.rt.malloc_host(N))
    event = ok(acl.rt.create_event_ex_with_flag(0))
    ok(acl.rt.memcpy_async(host, N, a, N, D2H, streams[0]))
    ok(acl.rt.record_event(event, streams[0]))
    ok(acl.rt.stream_wait_event(streams[1], event))
    ok(acl.rt.memcpy_async(b, N, host, N, H2D, streams[1]))
    graph = acl.record()
    assert graph.predecessors == ((), (0,))
    assert graph.host[0].pinned and graph.host[0].size == N


def test_executions_of_a_captured_graph_are_recorded_one_by_one() -> None:
    """Three executions of copy, shift, copy: nine commands, and the bytes of all three."""
    acl.simulate("ascend910b2")
    kernels()
    ok(acl.init())
    ok(acl.rt.set_device(0))
    stream, memory, host = ok(acl.rt.create_stream()), ok(acl.rt.malloc(N, 0)), ok(acl.rt.malloc_host(N))
    _bytes(host)[:] = np.arange(N) % 200
    before = _bytes(host).copy()
    shift = ok(acl.rt.binary_get_function(ok(acl.rt.binary_load_from_file("k.o")), "shift"))
    ok(acl.mdl.ri_capture_begin(stream, acl.ACL_MODEL_RI_CAPTURE_MODE_GLOBAL))
    ok(acl.rt.memcpy_async(memory, N, host, N, H2D, stream))
    ok(acl.rt.launch_kernel(shift, 1, [memory, 3], None, stream))
    ok(acl.rt.memcpy_async(host, N, memory, N, D2H, stream))
    graph_of_three = ok(acl.mdl.ri_capture_end(stream))
    for _ in range(3):
        ok(acl.mdl.ri_execute_async(graph_of_three, stream))
    ok(acl.rt.synchronize_stream(stream))
    wanted = _bytes(host).copy()
    assert not np.array_equal(before, wanted)
    graph = acl.record()
    assert len(graph.commands) == 9
    schedule = _schedule(graph)
    run, left = _again(schedule, {graph.host[0].name: before})
    assert np.array_equal(left[graph.host[0].name], wanted)
    assert times_of(run) == times(schedule)


def test_arguments_that_cannot_be_written_are_refused_by_name() -> None:
    acl.simulate("ascend910b2")
    kernels()
    ok(acl.init())
    ok(acl.rt.set_device(0))
    memory = ok(acl.rt.malloc(N, 0))
    shift = ok(acl.rt.binary_get_function(ok(acl.rt.binary_load_from_file("k.o")), "shift"))
    ok(acl.rt.launch_kernel(shift, 1, [memory, np.arange(3)], None, 0))
    with pytest.raises(
        InputError, match=r"command '0:shift' was launched with array\(\[0, 1, 2\]\), which cannot"
    ):
        acl.export(_schedule(acl.record()))


def test_a_program_that_did_nothing_gives_no_graph() -> None:
    acl.simulate("ascend910b2")
    ok(acl.init())
    with pytest.raises(InputError, match="no work to device 0; there is nothing to record"):
        acl.record()


def test_it_is_compared_with_schedules() -> None:
    """Kernels that depend on nothing, all on one stream: schedulers with more streams do better."""
    acl.simulate("ascend910b2")
    acl.define_kernel("busy", writes=(0,), duration_ns=100_000)
    ok(acl.init())
    ok(acl.rt.set_device(0))
    busy = ok(acl.rt.binary_get_function(ok(acl.rt.binary_load_from_file("k.o")), "busy"))
    for _ in range(4):
        ok(acl.rt.launch_kernel(busy, 1, [ok(acl.rt.malloc(N, 0))], None, 0))
    ok(acl.rt.synchronize_device())
    found = acl.compare(("reference", "single_stream"))
    ran, written, best, single = found.rows
    assert [row.name for row in found.rows] == ["as it ran", "as written", "reference", "single_stream"]
    assert ran.makespan_ns >= written.makespan_ns > 400_000
    assert best.makespan_ns < 0.5 * written.makespan_ns
    assert single.makespan_ns >= 400_000
    assert best.ratio == best.makespan_ns / written.makespan_ns
    assert "reference" in str(found) and "as written" in str(found)
    with pytest.raises(InputError, match="schedulers is empty"):
        acl.compare(())


def test_work_of_models_keeps_its_time() -> None:
    """A graph that the article's call cuts up is recorded and exported with stand-ins for its kernels."""
    acl.simulate("ascend910b2")
    ok(acl.init())
    ok(acl.rt.set_device(0))
    command = ok(acl.run_graph(load_scenario("random").graph(0, 0, 3), "heft"))
    ok(acl.synchronize_command(command))
    schedule = _schedule(acl.record(), "round_robin")
    run, _ = _again(schedule, {})
    assert times_of(run) == times(schedule)
