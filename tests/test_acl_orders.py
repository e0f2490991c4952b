"""Random programs: what the detector says of their order, against a closure of its own; and what order means.

A program is drawn as a list of steps. The closure knows a node for every step of the host and one for every
entry of a stream, and edges between them; two accesses are a race if no path joins them.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np
import pytest

import cann_env.acl as acl
from cann_env.acl.state.order import clashes

SIZE, BUFFERS, STREAMS, EVENTS = 256, 4, 3, 3
Step = tuple[object, ...]


@dataclass
class Closure:
    """Which step surely comes before which.

    Attributes:
        ahead: For each node, all nodes before it.
        touches: For each node, buffer, first and last byte, and whether it writes.
    """

    ahead: list[set[int]] = field(default_factory=list)
    touches: list[list[tuple[int, int, int, bool]]] = field(default_factory=list)
    host: int = -1
    streams: dict[int, int] = field(default_factory=dict)
    events: dict[int, int] = field(default_factory=dict)
    notifies: dict[int, list[int]] = field(default_factory=dict)

    def node(self, *before: int) -> int:
        ahead: set[int] = set()
        for other in before:
            if other >= 0:
                ahead |= self.ahead[other] | {other}
        self.ahead.append(ahead)
        self.touches.append([])
        return len(self.ahead) - 1

    def add(self, step: Step) -> int:
        """Add a step; the node of what it does."""
        kind = step[0]
        if kind in ("kernel", "copy in", "copy out", "record", "wait", "tell", "hear"):
            stream = step[1]
            self.host = self.node(self.host)
            waited = [self.events.get(step[2], -1)] if kind == "wait" else []
            if kind == "hear":
                waited = [self.notifies[step[2]].pop(0)]
            at = self.node(self.host, self.streams.get(stream, -1), *waited)
            self.streams[stream] = at
            if kind == "record":
                self.events[step[2]] = at
            if kind == "tell":
                self.notifies.setdefault(step[2], []).append(at)
            self.touches[at] = touched(step)
            return at
        before = {
            "finish": lambda: [self.streams.get(step[1], -1)],
            "finish event": lambda: [self.events.get(step[1], -1)],
            "finish all": lambda: list(self.streams.values()),
            "look": list,
            "change": list,
        }[kind]()
        self.host = self.node(self.host, *before)
        self.touches[self.host] = touched(step)
        return self.host

    def races(self) -> list[tuple[int, int, int]]:
        """Buffer and two nodes that touch a byte of it in common and that nothing orders."""
        found = []
        for j, later in enumerate(self.touches):
            for i in range(j):
                if i in self.ahead[j] or j in self.ahead[i]:
                    continue
                for one in self.touches[i]:
                    for other in later:
                        met = one[0] == other[0] and one[1] < other[2] and other[1] < one[2]
                        if met and (one[3] or other[3]):
                            found.append((one[0], i, j))
        return found


def touched(step: Step) -> list[tuple[int, int, int, bool]]:
    """Buffers 0 to 3 are of the device, 4 to 7 of the host."""
    if step[0] == "kernel":
        _, _, source, target = step
        return [(*source, False), (*target, True)]
    if step[0] in ("copy in", "copy out"):
        _, _, device, host, first, last = step
        into = step[0] == "copy in"
        return [(device, first, last, into), (host, first, last, not into)]
    if step[0] in ("look", "change"):
        return [(step[1], step[2], step[3], step[0] == "change")]
    return []


def span(draw: random.Random) -> tuple[int, int]:
    first = draw.choice((0, 0, 0, 64, 128, 192))
    return first, draw.choice([last for last in (64, 128, 192, 256) if last > first])


def draw_step(draw: random.Random, told: dict[int, int]) -> Step:
    kind = draw.choices(
        ("kernel", "copy in", "copy out", "record", "wait", "tell", "hear", "finish", "finish event",
         "finish all", "look", "change"),
        (6, 2, 2, 4, 4, 1, 2, 1, 1, 0.3, 1, 1),
    )[0]  # fmt: skip
    stream = draw.randrange(STREAMS)
    if kind == "kernel":
        return kind, stream, (draw.randrange(BUFFERS), *span(draw)), (draw.randrange(BUFFERS), *span(draw))
    if kind in ("copy in", "copy out"):
        return kind, stream, draw.randrange(BUFFERS), BUFFERS + draw.randrange(BUFFERS), *span(draw)
    if kind in ("record", "wait"):
        return kind, stream, draw.randrange(EVENTS)
    if kind == "hear" and told.get(0, 0):
        told[0] -= 1
        return kind, stream, 0
    if kind in ("tell", "hear"):
        told[0] = told.get(0, 0) + 1
        return "tell", stream, 0
    if kind == "finish":
        return kind, stream
    if kind == "finish event":
        return kind, draw.randrange(EVENTS)
    if kind == "finish all":
        return (kind,)
    return kind, BUFFERS + draw.randrange(BUFFERS), *span(draw)


class Player:
    """Makes the calls of a program."""

    def __init__(self, device: str, durations: list[int]) -> None:
        self.run = acl.simulate(device)
        acl.init()
        acl.rt.set_device(0)
        self.streams = [acl.rt.create_stream()[0] for _ in range(STREAMS)]
        self.events = [acl.rt.create_event_ex_with_flag(0)[0] for _ in range(EVENTS)]
        self.notify = acl.rt.create_notify(0)[0]
        self.device = [acl.rt.malloc(SIZE, 0)[0] for _ in range(BUFFERS)]
        self.host = [acl.rt.malloc_host(SIZE)[0] for _ in range(BUFFERS)]
        self.views = [acl.util.ptr_to_numpy(host, (SIZE,), "uint8") for host in self.host]
        self.names = {}
        for k, address in enumerate([*self.device, *self.host]):
            self.names[self.run.memory.find(address).number] = k
        self.kernels = []
        binary = acl.rt.binary_load_from_file("kernels.o")[0]
        for k, duration in enumerate(durations):
            acl.define_kernel(
                f"stir{k}", reads=(0, 1), writes=(1,), dtype="uint8", duration_ns=duration, function=stir
            )
            self.kernels.append(acl.rt.binary_get_function(binary, f"stir{k}")[0])
        self.launched = 0
        self.looks: list[int] = []

    def play(self, step: Step) -> None:
        kind = step[0]
        stream = self.streams[step[1]] if kind not in ("finish event", "finish all", "look", "change") else 0
        code = getattr(self, "_" + kind.replace(" ", "_"))(stream, *step[1:])
        assert code in (None, 0), acl.get_recent_err_msg()

    def _kernel(self, stream, _, source, target):
        kernel = self.kernels[self.launched % len(self.kernels)]
        self.launched += 1
        args = [(self.device[b] + first, last - first) for b, first, last in (source, target)]
        return acl.rt.launch_kernel(kernel, 1, [*args, self.launched], None, stream)

    def _copy_in(self, stream, _, device, host, first, last):
        ends = self.device[device] + first, self.host[host - BUFFERS] + first
        return acl.rt.memcpy_async(ends[0], last - first, ends[1], last - first, 1, stream)

    def _copy_out(self, stream, _, device, host, first, last):
        ends = self.device[device] + first, self.host[host - BUFFERS] + first
        return acl.rt.memcpy_async(ends[1], last - first, ends[0], last - first, 2, stream)

    def _record(self, stream, _, event):
        return acl.rt.record_event(self.events[event], stream)

    def _wait(self, stream, _, event):
        return acl.rt.stream_wait_event(stream, self.events[event])

    def _tell(self, stream, *_):
        return acl.rt.record_notify(self.notify, stream)

    def _hear(self, stream, *_):
        return acl.rt.wait_and_reset_notify(self.notify, stream, 0)

    def _finish(self, stream, _):
        return acl.rt.synchronize_stream(stream)

    def _finish_event(self, _, event):
        return acl.rt.synchronize_event(self.events[event])

    def _finish_all(self, _):
        return acl.rt.synchronize_device()

    def _look(self, _, host, first, last):
        self.looks.append(int(self.views[host - BUFFERS][first:last].sum()))

    def _change(self, _, host, first, last):
        self.launched += 1
        self.views[host - BUFFERS][first:last] = self.launched % 251

    def bytes(self) -> list[bytes]:
        """All memory, when all is done, and what the host saw meanwhile."""
        acl.rt.synchronize_device()
        held = [allocation.bytes().tobytes() for allocation in self.run.memory.allocations]
        return [*held, repr(self.looks).encode()]


def stir(source: np.ndarray, target: np.ndarray, number: int) -> None:
    """What comes out depends on every byte that goes in, and on what was there."""
    mixed = int(np.dot(source.astype(np.int64), np.arange(1, source.size + 1)))
    target[:] = (target.astype(np.int64) * 31 + mixed + number) % 256


def check_order(seed: int) -> bool:
    """Play a random program; the detector and the closure must agree on every buffer."""
    draw, told, closure = random.Random(seed), {}, Closure()
    player, nodes = Player("ascend910b2", [2000]), {}
    for _ in range(draw.choice((6, 12, 24))):
        step = draw_step(draw, told)
        before = len(player.run.log)
        node = closure.add(step)
        player.play(step)
        if len(player.run.log) > before:
            nodes[before] = node
    found = clashes(player.run.log, player.run.log, player.run.minds.accesses)
    races = closure.races()
    assert {player.names[clash.allocation.number] for clash in found} == {buffer for buffer, *_ in races}
    pairs = {(buffer, frozenset((i, j))) for buffer, i, j in races}
    for clash in found:
        one, two = clash.first.work, clash.second.work
        if one is not None and two is not None:
            both = frozenset((nodes[one.index], nodes[two.index]))
            assert (player.names[clash.allocation.number], both) in pairs
    return bool(races)


@pytest.mark.parametrize("start", range(0, 60, 10))
def test_the_detector_agrees_with_the_closure(start: int) -> None:
    verdicts = [check_order(seed) for seed in range(start, start + 10)]
    assert len(set(verdicts)) == 2  # some programs are racy, some are not


@pytest.mark.slow
def test_the_detector_agrees_with_the_closure_often() -> None:
    for seed in range(1000, 2000):
        check_order(seed)


def draw_clean(seed: int) -> list[Step]:
    """A random program whose accesses are all ordered: where one is not, streams or the host wait."""
    draw, told, closure, steps = random.Random(seed), {}, Closure(), []

    def add(step: Step) -> None:
        steps.append(step)
        closure.add(step)

    for _ in range(draw.choice((8, 16, 24))):
        step = draw_step(draw, told)
        if step[0] == "wait" and step[2] not in closure.events:
            continue
        for other in streams_to_wait_for(closure, step):
            if step[0] in ("look", "change"):
                add(("finish", other))
            else:
                event = draw.randrange(EVENTS)
                add(("record", other, event))
                add(("wait", step[1], event))
        add(step)
    assert not closure.races()
    return steps


def streams_to_wait_for(closure: Closure, step: Step) -> list[int]:
    """All other streams if the step would meet what nothing orders before it."""
    import copy

    tried = copy.deepcopy(closure)
    tried.add(step)
    if not tried.races():
        return []
    return [stream for stream in closure.streams if stream != step[1] or step[0] in ("look", "change")]


def play_clean(steps: list[Step], device: str, durations: list[int]) -> list[bytes]:
    player = Player(device, durations)
    for step in steps:
        player.play(step)
    found = acl.hazards()
    assert not found, found
    return player.bytes()


MACHINES = ("ascend910b2", "ascend310b1", "ascend310b4")


def check_same_bytes(seed: int) -> None:
    steps, draw = draw_clean(seed), random.Random(seed)
    want = play_clean(steps, "ascend910b2", [2000])
    for machine in MACHINES:
        durations = [draw.choice((1, 10, 100, 1000)) * draw.randrange(100, 1000) for _ in range(7)]
        assert play_clean(steps, machine, durations) == want


@pytest.mark.parametrize("seed", range(8))
def test_without_hazards_bytes_do_not_depend_on_speed(seed: int) -> None:
    check_same_bytes(seed)


@pytest.mark.slow
def test_without_hazards_bytes_do_not_depend_on_speed_often() -> None:
    for seed in range(100, 160):
        check_same_bytes(seed)


def test_with_a_hazard_they_can_depend_on_it() -> None:
    """::

    0  long kernel writes a
    1  short kernel reads a, writes b      nothing orders the two
    """
    steps = [("kernel", 0, (1, 0, 256), (0, 0, 256)), ("kernel", 1, (0, 0, 256), (2, 0, 256))]
    seen = []
    for durations in ([100, 500_000], [500_000, 100]):
        player = Player("ascend910b2", durations)
        for step in steps:
            player.play(step)
        seen.append(player.bytes())
    assert seen[0] != seen[1]


def test_work_waits_for_work_of_other_devices() -> None:
    """::

    device 0  slow ----------------------> slow
    device 1          slow (waits)

    """
    run = acl.simulate("ascend910b2", devices=2)
    acl.init()
    acl.define_kernel("slow", reads=(0,), writes=(0,), duration_ns=3_000_000)
    slow = acl.rt.binary_get_function(acl.rt.binary_load_from_file("k.o")[0], "slow")[0]
    places = []
    for device in range(2):
        acl.rt.set_device(device)
        stream, event = acl.rt.create_stream()[0], acl.rt.create_event_ex_with_flag(0)[0]
        places.append((device, stream, event))
    memory = acl.rt.malloc(64, 0)[0]
    waited = None
    for device, stream, event in (places[0], places[1], places[0]):
        acl.rt.set_device(device)
        if waited is not None:
            assert acl.rt.stream_wait_event(stream, waited) == 0
        assert acl.rt.launch_kernel(slow, 1, [memory], None, stream) == 0
        assert acl.rt.record_event(event, stream) == 0
        waited = event
    assert acl.rt.synchronize_stream(places[0][1]) == 0
    first, second, third = run.log
    assert first.finish_ns <= second.start_ns
    assert second.finish_ns <= third.start_ns
    assert run.clock_ns >= 9_000_000
    assert not acl.hazards()
