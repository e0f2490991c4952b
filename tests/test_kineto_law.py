"""Law: a trace of a machine that obeys streams, events and launches, and nothing else, replays exactly."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from cann_env.profiles.kineto import read_kineto
from cann_env.replay import replay
from cann_env.workloads.foreign_device import foreign_device
from cann_env.workloads.from_profiler import from_profiler
from tests.kineto_files import call, launched, stream_wait, write

if TYPE_CHECKING:
    from pathlib import Path

LATENCY_NS = 8_000


class Machine:
    """A host that launches and streams that run, as simple as can be; writes down what a profiler would.

    Attributes:
        events: The trace.
        starts: Of each kernel (ns).
    """

    def __init__(self, rng: random.Random) -> None:
        self.events: list[dict[str, Any]] = []
        self.starts: dict[str, int] = {}
        self._rng = rng
        self._now = self._calls = 0
        self._done: dict[int, int] = {}

    def launch(self, stream: int) -> None:
        """Launch a kernel, which starts when it has arrived and its stream is done."""
        self._pass([1, 2, 5, 40, 150])
        name, length = f"k{len(self.starts)}", self._length([1, 5, 20, 200])
        start = max(self._now + LATENCY_NS, self._done.get(stream, 0))
        times = self._now / 1000, start / 1000, length / 1000
        self.events += launched(name, *times, self._number(), stream)
        self.starts[name] = start
        self._done[stream] = start + length

    def wait(self, stream: int, other: int) -> None:
        """Make a stream wait for what was launched on another one so far."""
        self._pass([1, 5])
        record = self._number()
        self.events.append(call("cudaEventRecord", self._now / 1000, record))
        reached = max(self._done.get(other, 0), self._now + LATENCY_NS)
        self._pass([1])
        self.events.append(stream_wait(self._now / 1000, self._number(), stream, other, record))
        if other in self._done:
            self._done[stream] = max(self._done.get(stream, 0), reached)

    def _number(self) -> int:
        self._calls += 1
        return self._calls

    def _pass(self, choices: list[int]) -> None:
        self._now += self._length(choices)

    def _length(self, choices: list[int]) -> int:
        return self._rng.choice(choices) * 1000 + self._rng.randrange(1000)


@pytest.mark.parametrize("seed", range(8))
def test_an_obedient_machine_replays_exactly(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    machine = Machine(rng)
    streams = [7, 9, 13, 20][: 1 + seed % 4]
    for _ in range(40):
        stream, other = rng.choice(streams), rng.choice(streams)
        if stream != other and rng.random() < 0.3:
            machine.wait(stream, other)
        machine.launch(stream)
    recording = read_kineto(write(tmp_path, machine.events))
    device = foreign_device(recording)
    imported = from_profiler(recording, device=device, profiler_gap_ns=0)
    played = replay(imported, device)
    names = [command.name for command in imported.graph.commands]
    starts = {names[run.command]: run.start_ns for run in played.schedule.commands}
    first, true_first = min(starts.values()), min(machine.starts.values())
    assert {name: start - first for name, start in starts.items()} == {
        name: start - true_first for name, start in machine.starts.items()
    }
    assert played.comparison.delays == 0
    assert played.comparison.error == 0
