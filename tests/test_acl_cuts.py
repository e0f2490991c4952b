"""What a busy device did is set aside piece by piece, and nothing comes out differently for it."""

from __future__ import annotations

from itertools import pairwise

import pytest

import cann_env.acl as acl
from cann_env.acl.state import cuts
from cann_env.waiting import RUNS, critical_chain, delays

rt = acl.rt
SIZE = 4 << 20


def pipeline(rounds: int, depth: int, duration_ns: int | None) -> list[tuple[int, int]]:
    """Copies in, kernels and copies out on three streams; the host waits ``depth`` rounds behind.

    The device is never idle. Times of all work come back.
    """
    acl.simulate("ascend910b2")
    acl.define_kernel("scale", reads=(0,), writes=(1,), dtype="float32", duration_ns=duration_ns)
    acl.init()
    rt.set_device(0)
    streams = [rt.create_stream()[0] for _ in range(3)]
    moved, scaled, done = ([rt.create_event_ex_with_flag(0)[0] for _ in range(depth)] for _ in range(3))
    ins, outs = ([rt.malloc(SIZE, 0)[0] for _ in range(depth)] for _ in range(2))
    host = rt.malloc_host(SIZE)[0]
    kernel = rt.binary_get_function(rt.binary_load_from_file("k.o")[0], "scale")[0]
    for i in range(rounds):
        k = i % depth
        if i >= depth:
            rt.synchronize_event(done[k])
        rt.memcpy_async(ins[k], SIZE, host, SIZE, 1, streams[0])
        rt.record_event(moved[k], streams[0])
        rt.stream_wait_event(streams[1], moved[k])
        rt.launch_kernel(kernel, 8, [ins[k], outs[k]], None, streams[1])
        rt.record_event(scaled[k], streams[1])
        rt.stream_wait_event(streams[2], scaled[k])
        rt.memcpy_async(outs[k], SIZE // 2, ins[k], SIZE // 2, 3, streams[2])
        rt.record_event(done[k], streams[2])
    rt.synchronize_device()
    assert acl.timeline().commands[-1].finish_ns > 0
    return [(work.start_ns, work.finish_ns) for work in acl.simulator().log]


@pytest.mark.slow
@pytest.mark.parametrize(("depth", "duration_ns"), [(2, None), (4, None), (3, 300_000)])
def test_a_cut_changes_no_time(monkeypatch: pytest.MonkeyPatch, depth: int, duration_ns: int | None) -> None:
    """The same program, with the past cut off again and again, and never."""
    made: list[bool] = []
    real = cuts._cut

    def counted(*args: object) -> bool:
        made.append(real(*args))  # type: ignore[arg-type]
        return made[-1]

    monkeypatch.setattr(cuts, "_cut", counted)
    short = pipeline(100, depth, duration_ns)
    assert any(made)
    monkeypatch.setattr(cuts, "_cut", lambda *args: False)
    assert pipeline(100, depth, duration_ns) == short


def test_what_does_not_come_out_the_same_is_not_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Were times only nearly the same, the past would stay."""
    made: list[bool] = []
    monkeypatch.setattr(cuts, "_LONG", 24)
    monkeypatch.setattr(cuts, "_KEPT", 4)
    real = cuts._cut

    def moved(*args: object) -> bool:
        made.append(real(*args))  # type: ignore[arg-type]
        return made[-1]

    monkeypatch.setattr(cuts, "_cut", moved)
    monkeypatch.setattr(cuts, "_starts", lambda epoch: dict.fromkeys(epoch.works, -1_000_000))
    pipeline(40, 2, 50_000)
    assert made and not any(made)


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_the_chain_and_the_waits_of_a_program_have_no_gaps(depth: int) -> None:
    """What heads waited for comes along with the epochs; the host's calls stand on the program's clock."""
    pipeline(8, depth, None)
    schedule = acl.timeline()
    waited = sum(row.finish_ns - row.start_ns for row in schedule.waiting if row.cause == "event")
    assert waited == schedule.stall.event
    ends = [0, *(link.finish_ns for link in critical_chain(schedule).links)]
    assert [link.start_ns for link in critical_chain(schedule).links] == ends[:-1]
    assert ends[-1] == schedule.makespan_ns
    for hop in critical_chain(schedule).hops:
        assert hop.part in RUNS
    for run, delay in zip(sorted(schedule.commands), delays(schedule), strict=True):
        assert all(one.finish_ns == next_.start_ns for one, next_ in pairwise(delay.stretches))
        assert not delay.stretches or delay.stretches[-1].finish_ns == run.start_ns
