"""The device for recordings of other makers' chips binds nothing, and says where its figures come from."""

from __future__ import annotations

import pytest

from cann_env.commands import CopyKind
from cann_env.device import device_names
from cann_env.profiles.recording import Recording, Task, TaskKind
from cann_env.units import InputError
from cann_env.workloads.foreign_device import (
    foreign_device,
    is_foreign,
    launch_spacing_ns,
    most_at_once,
    queued_gap_ns,
)


def task(
    start: int, length: int, *, stream: int = 7, launch: int | None = None, blocks: int | None = None,
    copy: CopyKind | None = None, size: int = 0,
) -> Task:  # fmt: skip
    return Task(
        name="t", kind=TaskKind.COPY if copy else TaskKind.KERNEL, stream=stream, start_ns=start,
        duration_ns=length, launch_ns=launch, blocks=blocks, copy=copy, size_bytes=size,
    )  # fmt: skip


def recording(*tasks: Task, profiler: str = "Kineto") -> Recording:
    return Recording(name="made", format="", tasks=tasks, chip="Made-up GPU", traits={"profiler": profiler})


def test_only_recordings_of_other_makers_are_foreign() -> None:
    assert is_foreign(recording())
    assert not is_foreign(recording(profiler="msprof"))


def test_cores_hold_the_widest_kernels_of_all_streams_at_once() -> None:
    device = foreign_device(
        recording(
            task(0, 5, blocks=40), task(5, 5, blocks=3), task(0, 9, stream=9, blocks=2), task(0, 9, stream=10)
        )
    )
    assert {device.pools[pool] for pool in ("aic", "aiv", "aicpu")} == {40 + 2 + 1}
    assert device.pools["hcom"] == 3
    assert device.sources["pools.aiv"].kind == "assumed"
    assert (device.title, device.calibrated) == ("Made-up GPU", False)
    assert device.name not in device_names()


def test_copies_go_one_at_a_time_unless_the_recording_shows_more() -> None:
    """Two copies to the device overlap, two from it touch."""
    device = foreign_device(
        recording(
            task(0, 5, copy=CopyKind.H2D),
            task(4, 5, stream=8, copy=CopyKind.H2D),
            task(0, 5, copy=CopyKind.D2H),
            task(5, 5, stream=8, copy=CopyKind.D2H),
        )
    )
    assert (device.pools["h2d"], device.pools["d2h"], device.pools["sdma"]) == (2, 1, 1)


def test_a_link_carries_what_the_fastest_large_copy_needed() -> None:
    """1 MB in 0.1 ms is 10 GB/s; 1 kB in 10 ns says nothing."""
    device = foreign_device(
        recording(
            task(0, 100_000, copy=CopyKind.H2D, size=1_000_000),
            task(100_000, 200_000, copy=CopyKind.H2D, size=1_000_000),
            task(300_000, 10, copy=CopyKind.H2D, size=1_000),
        )
    )
    assert device.links["h2d"].bandwidth_bytes_per_s == 10_000_000_000
    assert device.sources["links.h2d.bandwidth"].kind == "measured"
    assert device.sources["links.d2h.bandwidth"].kind == "assumed"


def test_a_link_of_two_copies_at_once_carries_both() -> None:
    copies = [task(0, 100_000, stream=n, copy=CopyKind.D2H, size=1_000_000) for n in (1, 2)]
    assert foreign_device(recording(*copies)).links["d2h"].bandwidth_bytes_per_s == 20_000_000_000


def test_the_gap_is_the_usual_one_of_those_that_were_queued() -> None:
    """Latency is 4 (launch 0, start 4). Gaps of 3, 2 and 7 were queued; the last reached the device at
    45 + 4, after the one ahead had ended at 48, so that its gap of 2 counts for nothing."""
    queue = [task(4, 6, launch=0), task(13, 9, launch=1), task(24, 10, launch=2), task(41, 7, launch=3)]
    queue.append(task(50, 1, launch=45))
    assert queued_gap_ns([queue]) == 3
    assert foreign_device(recording(*queue)).dispatch.gap_ns == 3
    assert foreign_device(recording(*queue)).sources["dispatch.gap"].kind == "measured"
    assert queued_gap_ns([[task(0, 5), task(7, 2)]]) == 0


def test_long_gaps_are_no_dispatch_unless_there_are_no_others() -> None:
    """Gaps of 2, 2 and 9 us: the last is not the device's. With 9 and 8 us alone the smaller one counts."""
    short = [
        task(0, 1000, launch=0),
        *(task(3000 * i, 1000, launch=0) for i in (1, 2)),
        task(16_000, 1, launch=0),
    ]
    assert queued_gap_ns([short]) == 2000
    assert (
        queued_gap_ns([[task(0, 1000, launch=0), task(10_000, 1000, launch=0), task(19_000, 1, launch=0)]])
        == 8000
    )


def test_neighbours_that_overlap_by_rounding_have_no_gap() -> None:
    assert queued_gap_ns([[task(4, 6, launch=4), task(9, 2, launch=4)]]) == 0


def test_a_call_costs_the_median_time_between_launches() -> None:
    """Launches at 0, 10, 14, 15: steps 10, 4, 1; kernels of one graph launch count once."""
    work = [task(20, 1, launch=at) for at in (14, 0, 10, 15, 15)]
    assert launch_spacing_ns(work) == 4
    assert foreign_device(recording(*work)).host.launch_kernel_ns == 4
    assert launch_spacing_ns([task(0, 1)]) == 0


def test_tasks_that_touch_do_not_run_at_once() -> None:
    assert most_at_once([task(0, 5), task(5, 5), task(5, 0)]) == 1
    assert most_at_once([task(0, 5), task(4, 5), task(3, 3)]) == 3


def test_nothing_to_run_is_refused() -> None:
    mark = Task(name="r", kind=TaskKind.RECORD, stream=1, start_ns=0, duration_ns=0)
    with pytest.raises(InputError, match="made holds nothing that runs"):
        foreign_device(recording(mark))
