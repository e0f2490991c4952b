"""A schedule drawn by hand, and a reader that takes a trace apart as a viewer does."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace
from typing import Any, NamedTuple

from toys import (
    copy_in,
    copy_out,
    kernel_command,
    managed,
    mix,
    toy_device,
    toy_kernel,
    vector,
)

from cann_env.graph import Buffer, CommandGraph, Level
from cann_env.options import RunOptions
from cann_env.render.trace import Process, chrome_trace
from cann_env.schedule import (
    FAR,
    Allocation,
    BlockRun,
    CommandRun,
    EventWait,
    HostCall,
    Schedule,
    Stall,
    TransferRun,
)


def drawn_schedule() -> Schedule:
    """Four commands on two streams, one managed buffer.

    ::

        ns         0      1000    2001    3001      4000
        host       |i|i|i|i|p|
        stream 0   |load  ||fused: a | b   |
        stream 1              |mix |        |out    |
                                1500-2500
        from host  |w 0-500|                 ^3500 w leaves, clean
        events     load -> mix, fused -> out

    ``a`` is a cube kernel of one block, ``b`` a vector kernel of four blocks, two of which start at 2500.
    """
    fused = (toy_kernel("cube", 990), toy_kernel("vector", 990, blocks=4))
    commands = (
        copy_in("load", 995, writes=("x",)),
        kernel_command("net/fused", *fused, reads=("x",), writes=("y",)),
        mix("net/mix", 990, reads=("x", "w"), writes=("z",), request="r1"),
        copy_out("out", 600, reads=("y",)),
    )
    buffers = (
        Buffer(name="x", size_bytes=1000),
        Buffer(name="y", size_bytes=600),
        Buffer(name="z", size_bytes=1),
        managed("w", 2048, Level.HOST),
    )
    return Schedule(
        graph=CommandGraph("drawn", commands, buffers),
        device=toy_device(memory={"hbm_bytes": 1 << 20, "alignment_bytes": 512}),
        options=RunOptions(streams=2),
        actions=(),
        commands=(
            CommandRun(0, 0, 0, 0, 0, 1000),
            CommandRun(1, 0, 1, 10, 1001, 3001),
            CommandRun(2, 1, 0, 20, 1400, 2500),
            CommandRun(3, 1, 1, 30, 3001, 4000),
        ),
        blocks=(
            BlockRun(0, 0, "h2d", 1, 0, 0, 1000, 0),
            BlockRun(1, 0, "cube", 1, 0, 1001, 2001, 1001),
            BlockRun(2, 0, "mix", 1, 0, 1500, 2500, 1500),
            BlockRun(1, 1, "vector", 2, 0, 2001, 3001, 2001),
            BlockRun(1, 1, "vector", 2, 0, 2500, 3001, 2001),
            BlockRun(3, 0, "d2h", 1, 0, 3001, 4000, 3001),
        ),
        transfers=(TransferRun(3, "prefetch", 0, 0, 500), TransferRun(3, "evict", 3500, 3500, 3500)),
        allocations=(
            Allocation(0, 0, 0, 1024, 0, 0, 3001),
            Allocation(1, 1, 1024, 1024, 10, 10, 4000),
            Allocation(2, 2, 2048, 512, 20, 20, 2500),
        ),
        waits=(EventWait(0, 2), EventWait(1, 3)),
        host=(
            *(HostCall("issue", i, 10 * i, 10 * (i + 1)) for i in range(4)),
            HostCall("prefetch", 3, 40, 45),
            HostCall("wait", -1, 45, 500),
        ),
        stall=Stall(0, 0, 0, 100, 0),
        lower_bound_ns=3200,
        peak_hbm_bytes=1024 + 1024 + 512 + 2048,
        noise=(1 << 20,) * 4,
    )


def spilling_schedule() -> Schedule:
    """One kernel on each of two dies; memory of all causes around them, some of it to the end and beyond.

    ::

        ns         0    100     200     300     400     500      1000
        host       |i|i|lift b|offload w|
        stream 0   |k0 0 ------------------------------------------ |   on die 0
        stream 1   |k1 0 -------- 400 |                                 on die 1
        w (die 0)  in HBM at first | to host 200 -- 400 |
        a (die 0)  touched at 0    | to host 250, waits | 400 ------>
        o (die 0)            reserved 200, there 400 | ..... freed at 1000
        b (die 1)  | fault 0 - 100 | lift 100-300 |
        c (die 1)  | fault 0 ------- 200 | evicted at 300
        d (die 1)  touched at 0 | freed at 400
        l (die 1)                                          lift waits
    """
    names = ("w", "a", "b", "c", "d")
    levels = (Level.HBM, Level.ABSENT, Level.HOST, Level.HOST, Level.ABSENT)
    buffers = (
        *(
            replace(managed(name, 1000, level), die=0 if i < 2 else 1)
            for i, (name, level) in enumerate(zip(names, levels, strict=True))
        ),
        Buffer(name="o", size_bytes=600),
        Buffer(name="l", size_bytes=2048, level=Level.HBM, die=1),
    )
    commands = (
        vector("k0", 990, reads=("w",), writes=("a", "o")),
        vector("k1", 390, reads=("b", "c", "l"), writes=("d",)),
    )
    return Schedule(
        graph=CommandGraph("spilling", commands, buffers),
        device=toy_device(dies=2, memory={"hbm_bytes": 2048, "alignment_bytes": 512, "l2_bytes": 4096}),
        options=RunOptions(streams=2),
        actions=(),
        commands=(CommandRun(0, 0, 0, 5, 0, 1000), CommandRun(1, 1, 0, 10, 0, 400)),
        blocks=(BlockRun(0, 0, "vector", 1, 0, 0, 1000, 0), BlockRun(1, 0, "vector", 1, 1, 0, 400, 0)),
        transfers=(
            TransferRun(1, "touch", 0, 0, 0),
            TransferRun(4, "touch", 0, 0, 0),
            TransferRun(2, "fault", 0, 0, 100),
            TransferRun(3, "fault", 0, 0, 200),
            TransferRun(2, "lift", 100, 100, 300, 512),
            TransferRun(0, "writeback", 200, 200, 400),
            TransferRun(3, "evict", 300, 300, 300),
            TransferRun(4, "free", 400, 400, 400),
            TransferRun(1, "writeback", 250, 400, FAR),
            TransferRun(6, "lift", FAR, FAR, FAR, 512),
        ),
        allocations=(Allocation(5, 0, 0, 1024, 200, 400, 1000),),
        waits=(),
        host=(
            HostCall("issue", 0, 0, 5),
            HostCall("issue", 1, 5, 10),
            HostCall("lift", 2, 10, 15),
            HostCall("offload", 0, 200, 205),
            HostCall("lift", 6, 205, 210),
        ),
        stall=Stall(0, 0, 0, 0, 0),
        lower_bound_ns=1000,
        peak_hbm_bytes=4096,
        noise=(1 << 20,) * 2,
    )


class Slice(NamedTuple):
    """A slice as read back, in whole nanoseconds."""

    start: int
    end: int
    name: str
    args: dict[str, Any]


class Arrow(NamedTuple):
    """An arrow as read back, with the slices it is bound to."""

    category: str
    tail: Slice
    head: Slice
    leave: int
    arrive: int


def nanoseconds(us: float | str) -> int:
    """A time as viewers read it: some round the thousandfold, some cut it off, and both must agree.

    Of text they take the whole part and the fraction apart.
    """
    if isinstance(us, str):
        whole, fraction = us.split(".")
        assert len(fraction) == 3, "not three decimals"
        return int(whole) * 1000 + nanoseconds(float(f"0.{fraction}"))
    assert int(us * 1000) == round(us * 1000), "nanoseconds were lost"
    assert abs(us * 1000 - round(us * 1000)) < 0.1, "nanoseconds were lost"
    return round(us * 1000)


class Trace:
    """What a viewer would show: slices by track, arrows bound to slices, counters."""

    def __init__(self, data: dict[str, Any] | list[Any]) -> None:
        self.processes: dict[str, int] = {}
        self.tracks: dict[tuple[int, int], str] = {}
        self.slices: dict[tuple[int, int], list[Slice]] = defaultdict(list)
        self.counters: dict[tuple[int, str], list[tuple[int, int]]] = defaultdict(list)
        self._open: dict[tuple[int, int], list[Slice]] = defaultdict(list)
        self._tails: dict[tuple[str, int], tuple[Slice, int]] = {}
        self.arrows: list[Arrow] = []
        self._now = -1
        for event in data if isinstance(data, list) else data["traceEvents"]:
            getattr(self, f"_on_{event['ph']}")(event)
        assert not self._tails, "an arrow starts and does not end"

    def _time(self, event: dict[str, Any]) -> int:
        time = nanoseconds(event["ts"])
        assert time >= self._now, "events are not ordered"
        self._now = time
        return time

    def _on_M(self, event: dict[str, Any]) -> None:
        if event["name"] == "process_name":
            self.processes[event["args"]["name"]] = event["pid"]
        if event["name"] == "thread_name":
            self.tracks[event["pid"], event["tid"]] = event["args"]["name"]

    def _on_X(self, event: dict[str, Any]) -> None:
        track = event["pid"], event["tid"]
        assert track in self.tracks, "a slice on a track without a name"
        start = self._time(event)
        new = Slice(start, start + nanoseconds(event["dur"]), event["name"], event.get("args", {}))
        stack = self._open[track]
        while stack and stack[-1].end <= start:
            stack.pop()
        assert not stack or new.end <= stack[-1].end, f"{new} sticks out of {stack[-1]}"
        stack.append(new)
        self.slices[track].append(new)

    def _top(self, event: dict[str, Any]) -> tuple[Slice, int]:
        """The slice that was opened last on the track, as viewers take it; it must be open still."""
        time = self._time(event)
        under = [s for s in self._open[event["pid"], event["tid"]] if s.start <= time]
        under = [s for s in under if time < s.end or s.start == s.end == time]
        assert under, "an arrow that touches no slice"
        return under[-1], time

    def _on_s(self, event: dict[str, Any]) -> None:
        key = event["cat"], event["id"]
        assert key not in self._tails
        self._tails[key] = self._top(event)

    def _on_f(self, event: dict[str, Any]) -> None:
        assert event["bp"] == "e"
        tail, leave = self._tails.pop((event["cat"], event["id"]))
        head, arrive = self._top(event)
        self.arrows.append(Arrow(event["cat"], tail, head, leave, arrive))

    def arrows_of(self, category: str) -> list[Arrow]:
        """The arrows of a category."""
        return [arrow for arrow in self.arrows if arrow.category == category]

    def _on_C(self, event: dict[str, Any]) -> None:
        (value,) = event["args"].values()
        self.counters[event["pid"], event["name"]].append((self._time(event), value))

    def on(self, process: Process, track: str) -> list[Slice]:
        """The slices of the track with this name."""
        (key,) = [k for k, name in self.tracks.items() if k[0] == process and name == track]
        return self.slices[key]


def read(schedule: Schedule) -> Trace:
    return Trace(json.loads(json.dumps(chrome_trace(schedule))))
