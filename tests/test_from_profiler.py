"""From recordings to graphs: what waits for what, what is delay, what is the profiler's, what is guessed."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from cann_env.commands import CommandKind, CopyKind, KernelClass
from cann_env.device.load import load_device
from cann_env.profiles.recording import Recording, TaskKind, Verdict
from cann_env.units import InputError
from cann_env.workloads.from_profiler import Dependencies, Durations, Imported, Role, from_profiler
from cann_env.workloads.recorded_commands import matrix_flops
from cann_env.workloads.recorded_device import device_of
from tests.recordings import COPY, OTHER, PEER, RECORD, WAIT, recorded, task, tensor

COSTS = load_device("ascend910a").dispatch
GAP = COSTS.gap_ns


def after(imported: Imported) -> dict[str, tuple[str, ...]]:
    """What each command waits for, by name."""
    return {command.name: command.after for command in imported.graph.commands}


def delays(imported: Imported, role: Role = Role.DELAY) -> dict[str, int]:
    """Lengths of the commands of one role, by name."""
    pairs = zip(imported.graph.commands, imported.roles, strict=True)
    return {command.name: command.duration_ns for command, own in pairs if own is role}


def noted(imported: Imported, verdict: Verdict, words: str) -> int:
    """How often a finding was counted whose words begin so."""
    return sum(
        count for (own, what), count in imported.report.counts.items() if own is verdict and words in what
    )


def blocked_pair(*, event: str | None = None) -> Recording:
    """Stream 9 waits for stream 4; the wait shows as an instant 20 us after the record.

    ::

        4  |a 100 us|record            |c 10 us|
        9  |b 30 us|              wait||d 50 us|
           0       30       100       120 us
    """
    return recorded(
        task("a", 4, 0, 100),
        task("b", 9, 0, 30),
        task("record", 4, 100.1, 0, RECORD, event=event),
        task("c", 4, 100.2, 10),
        task("wait", 9, 118.9, 0, WAIT, event=event),
        task("d", 9, 119, 50),
    )


def test_streams_and_events_become_edges() -> None:
    """Records and waits are no commands; streams are numbered from 0; nothing is left to delays."""
    imported = from_profiler(blocked_pair())
    assert after(imported) == {"a": (), "b": (), "c": ("a",), "d": ("b", "a")}
    assert [command.stream_hint for command in imported.graph.commands] == [0, 1, 0, 1]
    assert imported.streams == (4, 9)
    assert imported.roles == (Role.WORK,) * 4
    assert noted(imported, Verdict.GUESSED, "event waits") == 1
    names = [imported.recording.tasks[i].name for i in imported.tasks]
    assert names == [command.name for command in imported.graph.commands]


def test_what_is_recorded_stays_with_its_command() -> None:
    """Durations, operators, tensors and work of a kernel; bytes of a copy; length of a wait for a peer."""
    a, b, c = tensor(8, 4), tensor(4, 2), tensor(8, 2)
    imported = from_profiler(
        recorded(
            task("mm", 1, 0, 5, op="MatMulV2", inputs=(a, b), outputs=(c,), blocks=7),
            task("in", 1, 6, 2, COPY, copy=CopyKind.H2D, size_bytes=640),
            task("peer", 1, 9, 4, PEER),
        )
    )
    kernel, copy, peer = imported.graph.commands
    (made,) = kernel.kernels
    assert (made.duration_ns, made.blocks, made.kernel_class) == (5000, 7, KernelClass.CUBE)
    assert (made.op, made.inputs, made.outputs) == ("MatMulV2", (a, b), (c,))
    assert (made.flops, made.bytes_read, made.bytes_written) == (2 * 8 * 4 * 2, 80, 32)
    assert (copy.copy, copy.size_bytes, copy.duration_ns) == (CopyKind.H2D, 640, 2000)
    assert (peer.kind, peer.duration_ns) == (CommandKind.COLLECTIVE, 4000)
    assert imported.roles == (Role.WORK, Role.WORK, Role.PEER)


@pytest.mark.parametrize(
    ("first", "second", "result", "layout", "flops"),
    [
        ((8, 4), (4, 2), (8, 2), "ND", 128),
        ((4, 8), (2, 4), (8, 2), "ND", 128),
        ((3, 8, 4), (3, 4, 2), (3, 8, 2), "ND", 384),
        ((3, 8, 4), (4, 2), (3, 8, 2), "ND", 384),
        ((1, 1, 16, 16), (2, 1, 16, 16), (2, 1, 16, 16), "FRACTAL_NZ", 2 * 16 * 16 * 32),
        ((8,), (8,), (), "ND", 0),
        ((0, 4), (4, 2), (0, 2), "ND", 0),
    ],
)
def test_work_of_matrix_products(
    first: tuple[int, ...], second: tuple[int, ...], result: tuple[int, ...], layout: str, flops: int
) -> None:
    """2·b·m·k·n, whichever way the matrices lie; nothing where the shapes do not tell."""
    operands = [replace(tensor(*shape), layout=layout) for shape in (first, second, result)]
    assert matrix_flops(operands[:2], operands[2:]) == flops


def test_an_id_decides_which_record_a_wait_is_for() -> None:
    """Two records end before the wait; by time it would be the later one, by its id it is the first.

    ::

        1  |a 10|record x
        2  |b 40|record y
        3        wait x .....|c
    """
    tasks = [
        task("a", 1, 0, 10),
        task("record", 1, 10.1, 0, RECORD, event="x"),
        task("b", 2, 0, 40),
        task("record", 2, 40.1, 0, RECORD, event="y"),
        task("wait", 3, 58.9, 0, WAIT, event="x"),
        task("c", 3, 59, 5),
    ]
    assert after(from_profiler(recorded(*tasks)))["delay before wait"] == ("a",)
    nameless = [replace(one, event=None) for one in tasks]
    assert after(from_profiler(recorded(*nameless)))["c"] == ("b",)


def test_a_long_wait_covers_the_time_it_blocked() -> None:
    """Some recorders show a blocked wait as long as it blocked, from before the record on."""
    imported = from_profiler(
        recorded(
            task("a", 1, 0, 100),
            task("record", 1, 100, 0.02, RECORD),
            task("wait", 2, 5, 95.4, WAIT),
            task("b", 2, 100.5, 5),
            chip="Ascend910B2",
        )
    )
    assert after(imported) == {"a": (), "b": ("a",)}


def test_idle_time_that_nothing_explains_becomes_a_delay() -> None:
    """300 us of nothing, of which a gap would pass anyway before the delay and one behind it."""
    imported = from_profiler(recorded(task("a", 1, 0, 10), task("b", 1, 310, 10)))
    assert delays(imported) == {"delay before b": 300_000 - 2 * GAP}
    assert after(imported) == {"a": (), "delay before b": ("a",), "b": ("delay before b",)}
    assert noted(imported, Verdict.GUESSED, "idle times that nothing explains, 0.300 ms") == 1
    finish = dict(zip((c.name for c in imported.graph.commands), imported.finishes_ns, strict=True))
    assert finish["delay before b"] == 310_000


def test_little_idle_time_is_left_to_be_an_error() -> None:
    """To pin every start would be no test of the simulator."""
    imported = from_profiler(recorded(task("a", 1, 0, 10), task("b", 1, 14, 10)))
    assert imported.roles == (Role.WORK, Role.WORK)


def test_without_events_a_start_is_put_down_to_who_came_to_rest_last() -> None:
    """Stream 2 begins when stream 1 has come to rest, not when 3, which works on, ends a task.

    ::

        1  |a 100|
        3  |x 110 |y 100   |
        2           |b
    """
    imported = from_profiler(
        recorded(task("a", 1, 0, 100), task("x", 3, 0, 110), task("y", 3, 110.1, 100), task("b", 2, 150, 5))
    )
    lag = 50_000 - COSTS.record_ns - COSTS.wake_ns
    assert delays(imported) == {"delay before b": lag - GAP}
    assert after(imported)["delay before b"] == ("a",)
    assert noted(imported, Verdict.GUESSED, "waits for the stream that came to rest last") == 1


def test_where_events_are_shown_nobody_else_is_suspected() -> None:
    """The same with a wait in the recording: idle time within a stream is then only idle."""
    rest = from_profiler(
        recorded(task("a", 1, 0, 100), task("x", 2, 0, 10), task("b", 2, 130, 5), task("w", 3, 0, 0, WAIT))
    )
    assert after(rest)["delay before b"] == ("x",)


def test_launches_become_release_times() -> None:
    """The host launched 12 us before an idle stream began, three times; that is the latency of all.

    The second finds its stream busy and says nothing of it.
    """
    launched = [(0, -12), (40, 5), (200, 188), (300, 288)]
    tasks = [task(f"k{i}", 1, start, 30, launch_us=launch) for i, (start, launch) in enumerate(launched)]
    tasks[1] = replace(tasks[1], start_ns=30_110)
    imported = from_profiler(recorded(*tasks))
    assert imported.links.latency_ns == 12_000
    assert [command.release_ns for command in imported.graph.commands] == [0, 17_000, 200_000, 300_000]
    assert Role.DELAY not in imported.roles


def gapped(idle_us: list[float]) -> Recording:
    """Kernels of 10 us with idle time behind each."""
    tasks, at = [], 0.0
    for i, idle in enumerate([*idle_us, 0.0]):
        tasks.append(task(f"k{i}", 1, at, 10))
        at += 10 + idle
    return recorded(*tasks)


def test_a_gap_of_the_profiler_is_found() -> None:
    """Every kernel is followed by some 88 us of idle, whatever comes next: no device does that."""
    imported = from_profiler(gapped([88.2, 88.0, 88.4, 90.0, 88.1, 88.3, 120.0, 88.2]))
    gaps = delays(imported, Role.PROFILER)
    assert len(gaps) == 8
    assert set(gaps.values()) <= set(range(87_500, 88_500))
    assert list(delays(imported)) == ["delay before k7"]


def test_gaps_of_a_foreign_device_are_its_own() -> None:
    """Launched long before, each kernel starts 2 us after the last on a GPU; an Ascend's gaps are known."""
    tasks = [task(f"k{i}", 1, 12 * i, 10, launch_us=-50) for i in range(8)]
    foreign = from_profiler(recorded(*tasks, chip="NVIDIA A100"))
    assert delays(foreign, Role.PROFILER) == {f"profiler before k{i}": 2000 for i in range(1, 8)}
    assert not delays(foreign)
    assert set(from_profiler(recorded(*tasks)).roles) == {Role.WORK}


def test_a_late_host_is_no_profiler() -> None:
    """Every kernel starts 60 us after the last because it was launched only 5 us before it started."""
    tasks = [task(f"k{i}", 1, 70 * i, 10, launch_us=70 * i - 5) for i in range(12)]
    assert set(from_profiler(recorded(*tasks)).roles) == {Role.WORK}


@pytest.mark.parametrize(
    "idle",
    [[30.0, 90.0, 300.0, 55.0, 700.0, 45.0, 150.0, 80.0], [0.1, 88.0, 88.0, 0.1, 88.0, 0.1, 88.0, 0.1]],
)
def test_a_slow_host_is_no_profiler(idle: list[float]) -> None:
    """Idle times of all lengths are the host's, and so are those that not every kernel has."""
    assert not delays(from_profiler(gapped(idle)), Role.PROFILER)


def test_the_gap_of_the_profiler_may_be_given() -> None:
    """0 takes it for unexplained, another length is taken as it is."""
    recording = gapped([88.0] * 8)
    none = from_profiler(recording, profiler_gap_ns=0)
    assert not delays(none, Role.PROFILER)
    assert len(delays(none)) == 8
    half = from_profiler(recording, profiler_gap_ns=44_000)
    assert set(delays(half, Role.PROFILER).values()) == {44_000 - 2 * GAP}
    assert set(delays(half).values()) == {44_000 - GAP}


def test_the_gap_of_the_profiler_runs_while_its_stream_waits() -> None:
    """A task behind it that waits for another stream is not held back for longer."""
    recording = gapped([88.0] * 8)
    late = [
        task("long", 2, 0, 2000, PEER),
        task("record", 2, 2000.1, 0, RECORD),
        task("wait", 1, 2018.8, 0, WAIT),
        task("end", 1, 2019, 5),
    ]
    imported = from_profiler(recorded(*recording.tasks, *late))
    assert after(imported)["profiler before wait"] == ("k8",)
    assert after(imported)["end"] == ("profiler before wait", "long")


def test_subtasks_are_one_command() -> None:
    """Rows of one id that overlap are one task of the stream; rows in a row are not."""
    tasks = [
        task("SDMA", 4, 0, 10, COPY, task_id=7, size_bytes=5),
        task("Notify Wait", 4, 11, 500, PEER, task_id=7),
        task("Notify Wait", 4, 12, 30, PEER, task_id=7),
        task("SDMA", 4, 520, 10, COPY, task_id=7, size_bytes=6),
        task("set", 4, 531, 1, task_id=8),
        task("use", 4, 533, 1, task_id=8),
    ]
    imported = from_profiler(recorded(*tasks))
    assert [command.name for command in imported.graph.commands] == ["SDMA", "set", "use"]
    assert imported.graph.commands[0].duration_ns == 530_000
    assert imported.roles[0] is Role.PEER
    assert noted(imported, Verdict.RECOGNISED, "subtasks put together") == 4


def test_overlapping_tasks_without_ids_are_a_collective() -> None:
    """A stream runs one task at a time: what overlaps there and waits for peers is one, rounding aside.

    ```
    4  |SDMA 10|                    |next 10 (0.2 us before the end of the last)
            |wait 500       |
             |wait 30| |SDMA 10|
    5  |one 10|
            |other 10|              (nobody waits for peers: one after the other)
    ```
    """
    tasks = [
        task("SDMA", 4, 0, 10, COPY, size_bytes=5),
        task("Notify Wait", 4, 9, 500, PEER),
        task("Notify Wait", 4, 12, 30, PEER),
        task("SDMA", 4, 505, 10, COPY, size_bytes=6),
        task("next", 4, 514.8, 10, OTHER),
        task("one", 5, 0, 10, OTHER),
        task("other", 5, 9, 10, OTHER),
    ]
    imported = from_profiler(recorded(*tasks))
    lengths = {command.name: command.duration_ns for command in imported.graph.commands}
    assert lengths == {"SDMA": 515_000, "next": 10_000, "one": 10_000, "other": 10_000}
    assert dict(zip(lengths, imported.roles, strict=True))["SDMA"] is Role.PEER
    assert noted(imported, Verdict.RECOGNISED, "subtasks put together") == 4
    assert noted(imported, Verdict.GUESSED, "overlapping tasks of one stream, queued") == 2


def test_tasks_that_only_span_others_are_left_out() -> None:
    """A row that is there from the first to the last task of its stream does not run before them."""
    inner = [task(f"k{i}", 1, 1 + 10 * i, 9.5) for i in range(4)]
    imported = from_profiler(recorded(task("model", 1, 0, 100, OTHER), *inner))
    assert [command.name for command in imported.graph.commands] == ["k0", "k1", "k2", "k3"]
    assert imported.starts_ns[0] == 0
    assert noted(imported, Verdict.DROPPED, "tasks that only span later ones") == 1
    records = [task("record", 1, 10, 0, RECORD, task_id=i) for i in range(4)]
    assert len(from_profiler(recorded(task("a", 1, 0, 10), *records)).graph.commands) == 1


def test_marks_of_the_profiler_are_left_out() -> None:
    """They lie far outside and would be all of the makespan."""
    imported = from_profiler(recorded(task("PROFILING_ENABLE", 0, 0, 0, OTHER), task("a", 1, 9000, 1)))
    assert imported.starts_ns == (0,)


def test_a_step_is_cut_out() -> None:
    """Times count from its own first task; a step that is not there is refused by name."""
    recording = recorded(
        task("a", 1, 0, 5, step=1), task("b", 1, 100, 5, step=2), task("c", 1, 106, 5, step=2)
    )
    imported = from_profiler(recording, step=2)
    assert [command.name for command in imported.graph.commands] == ["b", "c"]
    assert imported.starts_ns == (0, 6000)
    assert imported.graph.name == "made_up/step 2"
    with pytest.raises(InputError, match="made_up has no step 3; its steps are 1, 2"):
        from_profiler(recording, step=3)


def test_nothing_that_runs_is_refused() -> None:
    """Records and waits alone make no graph."""
    with pytest.raises(InputError, match="holds nothing that runs"):
        from_profiler(recorded(task("r", 1, 0, 0, RECORD)))


def test_another_step_lends_its_causes() -> None:
    """Step 2 is imported with the edge and the delay that step 1 shows, not with its own.

    ::

        step 1                      step 2
        1  |a 100|                  1  |a 150   |
        2          |b at 150        2            |b at 210
    """
    recording = recorded(
        task("a", 1, 0, 100, task_id=1, step=1),
        task("b", 2, 150, 5, task_id=2, step=1),
        task("a", 1, 1000, 150, task_id=1, step=2),
        task("b", 2, 1210, 5, task_id=2, step=2),
    )
    lag = 50_000 - COSTS.record_ns - COSTS.wake_ns - GAP
    assert delays(from_profiler(recording, step=2)) == {"delay before b": lag + 10_000}
    lent = from_profiler(recording, step=2, like=1)
    assert delays(lent) == {"delay before b": lag}
    assert after(lent)["delay before b"] == ("a",)
    first = recorded(*[one for one in recording.tasks if one.step == 1])
    assert from_profiler(recording, step=2, like=first).graph == lent.graph
    stranger = recorded(task("a", 1, 0, 100, task_id=8), task("b", 2, 150, 5, task_id=9))
    alone = from_profiler(recording, step=2, like=stranger)
    assert noted(alone, Verdict.DROPPED, "edges and delays of another step without a counterpart") == 2


def test_modelled_kernels_have_no_time_of_their_own() -> None:
    """But those whose tensors are not known keep theirs, and that is said."""
    x = tensor(64)
    imported = from_profiler(
        recorded(task("a", 1, 0, 5, op="Add", inputs=(x, x), outputs=(x,)), task("b", 1, 6, 5, op="Mul")),
        durations=Durations.MODELLED,
    )
    assert [command.kernels[0].duration_ns for command in imported.graph.commands] == [None, 5000]
    assert noted(imported, Verdict.GUESSED, "kernels without tensors keep their recorded time") == 1


def test_tensors_of_unknown_type_are_small_floats() -> None:
    """Priced as they would be if float16 had been recorded; an absent operand between them stays absent."""

    def modelled(dtype: str) -> Imported:
        inputs = tensor(64, 32, dtype=dtype), tensor(dtype=""), tensor(32, 16, dtype=dtype)
        outputs = (tensor(64, 16, dtype=dtype),)
        made = task("a", 1, 0, 5, op="MatMulV2", inputs=inputs, outputs=outputs)
        return from_profiler(recorded(made), durations=Durations.MODELLED)

    untyped, typed = modelled(""), modelled("float16")
    assert untyped.graph.commands == typed.graph.commands
    assert noted(untyped, Verdict.GUESSED, "not recorded, taken for float16") == 1
    assert noted(typed, Verdict.GUESSED, "not recorded, taken for float16") == 0


def test_what_has_no_price_keeps_its_time() -> None:
    """The first generation multiplies no float64."""
    big = tensor(64, 64, dtype="float64")
    made = task("a", 1, 0, 5, op="MatMulV2", inputs=(big, big), outputs=(big,))
    imported = from_profiler(recorded(made), durations=Durations.MODELLED)
    assert imported.graph.commands[0].kernels[0].duration_ns == 5_000
    assert noted(imported, Verdict.GUESSED, "no price") == 1


def test_tasks_without_a_name_are_called_by_what_they_are() -> None:
    imported = from_profiler(recorded(task("", 1, 0, 5, op="Add"), task("", 1, 6, 5), task("", 1, 12, 5)))
    assert [command.name for command in imported.graph.commands] == ["Add", "kernel", "kernel #2"]


def test_data_take_the_place_of_streams() -> None:
    """b reads what a wrote, c only looks as if it came after b; the copy keeps its place.

    ::

        1  |a  x -> y|b  y -> z|c  w -> v|copy|d  z -> z|
    """
    x, y, z, w, v = (tensor(i) for i in range(2, 7))
    imported = from_profiler(
        recorded(
            task("a", 1, 0, 5, op="Op", inputs=(x,), outputs=(y,)),
            task("b", 1, 6, 5, op="Op", inputs=(y,), outputs=(z,)),
            task("c", 1, 300, 5, op="Op", inputs=(w,), outputs=(v,)),
            task("copy", 1, 306, 5, COPY, copy=CopyKind.H2D, size_bytes=4),
            task("d", 1, 312, 5, op="Op", inputs=(z,), outputs=(z,)),
        ),
        dependencies=Dependencies.INFERRED,
    )
    graph = imported.graph
    before = {
        command.name: {graph.commands[j].name for j in graph.predecessors[i]}
        for i, command in enumerate(graph.commands)
    }
    assert before == {"a": set(), "b": {"a"}, "c": set(), "copy": {"a", "b", "c"}, "d": {"b", "copy"}}
    assert noted(imported, Verdict.GUESSED, "reads of tensors") == 4
    assert Role.DELAY not in imported.roles


def test_order_of_rows_and_origin_of_times_do_not_matter() -> None:
    """The same tasks in any order, and a day later, make the same graph."""
    tasks = list(blocked_pair().tasks)
    expected = from_profiler(recorded(*tasks)).graph
    for seed in range(3):
        random.Random(seed).shuffle(tasks)
        later = [replace(one, start_ns=one.start_ns + 86_400_000_000_123) for one in tasks]
        assert from_profiler(recorded(*later)).graph == expected


def test_a_circle_is_broken_and_noted() -> None:
    """Two waits that each name the other's record never both end; the earlier waits for nobody."""
    imported = from_profiler(
        recorded(
            task("w1", 1, 0, 10, WAIT, event="y"),
            task("a", 1, 10, 5),
            task("r1", 1, 0, 0, RECORD, event="x"),
            task("w2", 2, 0, 10, WAIT, event="x"),
            task("b", 2, 10, 5),
            task("r2", 2, 0, 0, RECORD, event="y"),
        )
    )
    assert len(imported.graph.commands) >= 2


@pytest.mark.parametrize(
    ("more", "device"),
    [
        ({"chip": "Ascend910B2"}, "ascend910b2"),
        ({"chip": "Ascend910A"}, "ascend910a"),
        ({"chip": "", "cube_cores": 24, "vector_cores": 48, "clock_hz": 1_850_000_000}, "ascend910b1"),
        ({"chip": "Ascend910B", "cube_cores": 24, "clock_hz": 1_800_000_000}, "ascend910b2"),
        ({"chip": "Ascend910B", "cube_cores": 24, "clock_hz": 1_850_000_000}, "ascend910b1"),
        ({"chip": "Ascend910B", "cube_cores": 20, "clock_hz": 1_650_000_000}, "ascend910b4"),
        ({"chip": "Ascend910B"}, None),
        ({"chip": "", "name": "run_on_910A_0"}, "ascend910a"),
        ({"chip": "NVIDIA A100"}, None),
    ],
)
def test_devices_are_told_by_chip_cores_and_clock(more: dict[str, object], device: str | None) -> None:
    """A name decides; a family needs cores and clock; what is not known is not guessed."""
    assert device_of(recorded(task("a", 1, 0, 1), **more)) == device


def test_kinds_of_every_word_become_commands() -> None:
    """Nothing that occupied its stream is lost."""
    kinds = [kind for kind in TaskKind if kind not in (RECORD, WAIT, TaskKind.RESET)]
    imported = from_profiler(recorded(*[task(kind.value, 1, 2 * i, 1, kind) for i, kind in enumerate(kinds)]))
    assert [command.name for command in imported.graph.commands] == [kind.value for kind in kinds]
