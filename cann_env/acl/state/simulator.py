"""One run of a program: its clock, its devices, what it submitted, and what came of it.

The host has a clock that calls advance. Work goes to streams; where the program has to know when it ends (a
synchronisation, a query, an elapsed time), the engine plays what a device was given since it was last idle,
and what should have happened to the bytes by then happens.
"""

from __future__ import annotations

import itertools
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from cann_env.acl.state.capture import Captures
from cann_env.acl.state.cuts import set_aside
from cann_env.acl.state.epochs import Device, Epoch, hear_from_others, play_device
from cann_env.acl.state.evidence import Evidence
from cann_env.acl.state.memory import AddressSpace
from cann_env.acl.state.minds import Minds
from cann_env.acl.state.objects import Record, Signal, Stream
from cann_env.acl.state.order import join, told, waits_of
from cann_env.acl.state.registry import Registry
from cann_env.acl.state.score import Runtime
from cann_env.acl.state.work import HostCall, Touch, Work
from cann_env.device import load_device
from cann_env.options import Submission
from cann_env.units import format_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from cann_env.acl.state.memory import Range
    from cann_env.acl.state.order import Clock, HostAccess
    from cann_env.acl.state.threads import Worker
    from cann_env.commands import Command
    from cann_env.device.spec import DeviceSpec
    from cann_env.options import RunOptions

DEFAULT_DEVICE: Final = "ascend910b2"
VALUES: Final = 200_000_000
"""Multiply-adds of a model up to which its results are computed; numpy takes about a second for so many."""

_ENDLESS_NS: Final = 24 * 3600 * 1_000_000_000
"""Simulated time after which a program is taken to run for ever, unless said otherwise: a day."""


class EndlessError(BaseException):
    """A program that does not end; no ``except Exception`` of its own keeps it going."""


_EPOCH: Final = 64
"""Pieces of work that are played again rather than set aside."""


class Simulator(Registry):
    """Everything that calls of the interface change.

    Args:
        device: Name of a device file, or a device.
        count: Devices of the machine.
        submission: Whether calls take host time (``eager``), or none, as if a graph had been handed over.
        values: Most multiply-adds of a model whose results are computed.
        options: How the runtime behaves with a graph that was handed over; None for as it does by itself.
    """

    def __init__(
        self,
        device: str | DeviceSpec = DEFAULT_DEVICE,
        count: int = 8,
        submission: Submission = Submission.EAGER,
        values: int = VALUES,
        options: RunOptions | None = None,
    ) -> None:
        super().__init__(load_device(device) if isinstance(device, str) else device, count)
        self.submission = Submission(submission)
        self.values = values
        self.runtime = Runtime(self.submission is Submission.SINK, options)
        self.clock_ns = 0
        self.latest_ns = _ENDLESS_NS
        self.initialised = False
        self._lock = threading.RLock()
        self.visitor, self.home = 0, threading.get_ident()
        self.workers: dict[int, Worker] = {}
        self.due: dict[int, list[Callable[[], None]]] = {}
        self.memory = AddressSpace()
        self.minds = Minds()
        self.log: list[Work] = []
        self.users: dict[int, list[Work]] = {}
        self.calls: list[HostCall] = []
        self.evidence = Evidence()
        self.cached: dict[int, int] = {}
        self.message = ""
        self.last_error = 0
        self.refused: set[str] = set()
        self.captures = Captures()
        self.parameters: dict[str, int] = {}
        self.record_numbers = itertools.count()

    # Whose turn it is.

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Calls of several threads take turns; a thread that another waits for needs none of its own."""
        if threading.get_ident() == self.visitor:
            yield
            return
        with self._lock:
            yield

    @contextmanager
    def guest(self, thread: int) -> Iterator[None]:
        """Within it, the caller only waits for a thread, which may call."""
        before, self.visitor = self.visitor, thread
        try:
            yield
        finally:
            self.visitor = before

    def limit(self) -> None:
        """Called by every call.

        Raises:
            EndlessError: The program goes on for longer than it may, see :attr:`latest_ns`.
        """
        if self.clock_ns > self.latest_ns:
            raise EndlessError(
                f"the program is still running after {format_time(self.latest_ns)} of simulated time; "
                "something in it never gets done"
            )

    # Submitting.

    @property
    def seen_by_host(self) -> Clock:
        """What the thread of the host that runs now has seen done."""
        return self.minds.clock

    def submit(
        self,
        call: str,
        stream: Stream,
        command: Command,
        touches: Sequence[Touch],
        *,
        site: str,
        label: str = "",
        inner: bool = False,
    ) -> Work:
        """Put a piece of work at the end of a stream; inside of a graph it takes no entry of the queue.

        On a stream that is captured it becomes a piece of the capture instead, which has no index.
        """
        if stream.capture is not None:
            return stream.capture.add(call, stream, command, touches, site, label)
        stream.inner += inner
        if not inner:
            self._wait_for_room(stream)
        index = len(self.log)
        previous = stream.work[-1] if stream.work else -1
        work = Work(
            index, call, stream.device, stream.handle, len(stream.work), command, tuple(stream.pending),
            self.clock_ns, tuple(touches), self._known_at(stream), previous, site=site,
            label=label or command.name, loose=frozenset(stream.loose),
        )  # fmt: skip
        work.signals = list(stream.unresolved)
        work.reuse = frozenset(stream.reuse)
        stream.pending, stream.unresolved, stream.known, stream.loose = [], [], {}, set()
        stream.reuse = set()
        self.log.append(work)
        stream.work.append(index)
        device = self.device(stream.device)
        if not device.works:
            device.peak_bytes = device.used_bytes
        device.works.append(index)
        device.stale = True
        for touch in work.touches:
            self.users.setdefault(touch.range.allocation.number, []).append(work)
        return work

    def _known_at(self, stream: Stream) -> Clock:
        """What is known at the end of a stream beside its work: by the host, and by what it waits for."""
        clock = self.minds.step()
        join(clock, self._behind_waits(stream))
        return clock

    def _behind_waits(self, stream: Stream) -> Clock:
        """What is known at the end of a stream because it has passed its waits."""
        return {**stream.known, waits_of(stream.handle): stream.waits} if stream.waits else stream.known

    def _wait_for_room(self, stream: Stream) -> None:
        """The host waits while a stream's queue is full."""
        depth = self.spec.limits.queue_depth
        if len(stream.work) - stream.inner < depth or self.submission is Submission.SINK:
            return  # where calls take no time, the engine hands over when there is room
        oldest = self.log[stream.work[-depth]]
        if not oldest.ended:
            self.advance_to([oldest.index])

    def copy_stream(self) -> Stream:
        """The stream of a device on which synchronous copies run; no program sees it."""
        device = self.device(self.context().device)
        if device.copies is None:
            device.copies = self.hidden_stream(device.number, "synchronous copies")
            self.minds.hidden.add(device.copies.handle)
        return device.copies

    def hidden_stream(self, device: int, site: str, priority: int = 0) -> Stream:
        """A stream that no program knows."""
        stream = Stream(self.new_handle(), 0, device, priority, site=site, hidden=True)
        return stream

    def pay(self, cost: str) -> None:
        """The host takes the time of a kind of call."""
        if self.submission is not Submission.SINK:
            self.spend(cost)

    def spend(self, cost: str) -> None:
        """The same where calls take no time otherwise, so that asking again and again has an end."""
        source = self.spec.host if hasattr(self.spec.host, cost) else self.spec.memory
        self.clock_ns += int(getattr(source, cost))

    def abandon(self, stream: Stream) -> None:
        """Work of a stream that has not begun never will."""
        device = self.device(stream.device)
        dropped = {i for i in stream.work if not self.log[i].begun and not self.log[i].ended}
        device.works = [i for i in device.works if i not in dropped]
        stream.work = [i for i in stream.work if i not in dropped]
        stream.pending, stream.unresolved = [], []
        for index in dropped:
            self.log[index].begun = self.log[index].ended = True
            self.log[index].touches = ()
            self.log[index].start_ns = self.log[index].finish_ns = self.clock_ns
        device.stale = True

    def over(self) -> Clock:
        """What has ended by now, whether or not the host has seen it."""
        reached: Clock = {}
        for work in self.log:
            if work.ended:
                reached[work.stream] = max(reached.get(work.stream, -1), work.position)
        return reached

    def is_over(self, clock: Clock) -> bool:
        """Whether all that a clock tells has ended by now."""
        reached = self.over()
        return all(reached.get(stream, -1) >= position for stream, position in clock.items())

    def touch_by_host(
        self, memory: Range, *, writes: bool, site: str, what: str, alone: bool = False
    ) -> HostAccess:
        """The host reads or writes memory now; with ``alone``, not as one with what it touched before."""
        return self.minds.touch(len(self.log), memory, writes=writes, site=site, what=what, alone=alone)

    def knows(self, stream: Stream) -> Clock:
        """What is done when everything submitted to a stream so far is."""
        clock = told(self.log, stream.tail, self.seen_by_host)
        join(clock, self._behind_waits(stream))
        for signal in stream.unresolved:
            join(clock, signal.known)
        return clock

    # Events.

    def record(self, stream: Stream, site: str) -> Record:
        """What an event recorded on a stream now stands for."""
        return Record(
            stream.handle, tuple(stream.tail), self.clock_ns, site, next(self.record_numbers),
            self._known_at(stream),
        )  # fmt: skip

    def resolve(self, signals: Iterable[Signal], record: Record) -> None:
        """A record meets waits that were queued before it."""
        for signal in signals:
            signal.after, signal.known, signal.at_ns = record.after, record.known, record.at_ns
        for device in self.devices.values():
            device.stale = True

    def wait(self, stream: Stream, record: Record, *, notify: bool = False) -> None:
        """Further work on a stream waits for what a record stands behind."""
        stream.waits += 1
        join(stream.known, record.known)
        if record.stream == stream.handle:
            return
        fresh = [index for index in record.after if index not in stream.pending]
        stream.pending += fresh
        if notify:
            stream.loose |= set(fresh)
        else:
            stream.loose -= set(record.after)

    def wait_ahead(self, stream: Stream, signal: Signal) -> None:
        """Further work on a stream waits for what is not recorded yet."""
        stream.waits += 1
        stream.unresolved.append(signal)

    # Time.

    def settle(self) -> None:
        """Let happen what happens up to now."""
        while self._let_happen():
            """A function of the program took time or submitted work, so that the rest comes out anew."""

    def _play(self) -> None:
        """Find out when everything starts and ends; devices that wait for each other take some rounds."""
        devices = list(self.devices.values())
        while any(device.stale and device.works for device in devices):
            for device in devices:
                play_device(device, self.log, self.streams, self.runtime, self.memory.allocations)
            for device in devices if len(devices) > 1 else ():
                hear_from_others(device, self.log)

    def _let_happen(self) -> bool:
        self._play()
        pending = [self.log[i] for device in self.devices.values() for i in device.works]
        moments: list[tuple[int, int, int]] = []
        for work in pending:
            if work.finish_ns < 0:
                continue
            if not work.begun and work.start_ns <= self.clock_ns:
                moments.append((work.start_ns, 1, work.index))
            if not work.ended and work.finish_ns <= self.clock_ns:
                moments.append((work.finish_ns, 0, work.index))
        for _, begins, index in sorted(moments):
            self._happen(self.log[index], begins=bool(begins))
            if any(device.stale for device in self.devices.values()):
                return True
        for device in self.devices.values():
            if self._may_close(device):
                set_aside(device, self.log, self.streams, self.runtime)
        return False

    def _may_close(self, device: Device) -> bool:
        """Whether what a device did is to be set aside as far as that can be.

        To play it all again takes longer and longer, but what lay in its cache is forgotten. A graph that was
        handed over is played as a whole.
        """
        return self.submission is Submission.EAGER and len(device.works) >= _EPOCH

    def _happen(self, work: Work, *, begins: bool) -> None:
        if begins and not work.begun:
            work.begun = True
            if work.begin is not None:
                work.begin()
        elif not begins and not work.ended:
            self._happen(work, begins=True)
            work.ended = True
            if work.end is not None:
                work.end()

    def to_next(self, limit_ns: int | None) -> bool:
        """Let time pass until something happens, but not beyond a limit; False if nothing will any more."""
        self.settle()
        works = [self.log[i] for device in self.devices.values() for i in device.works]
        moments = [w.start_ns for w in works if not w.begun and w.start_ns >= 0]
        moments += [w.finish_ns for w in works if not w.ended and w.finish_ns >= 0]
        if limit_ns is not None:
            moments = [at for at in moments if at <= limit_ns]
        if not moments:
            self.clock_ns = max(self.clock_ns, limit_ns or 0)
            return False
        self.clock_ns = max(self.clock_ns, min(moments))
        self.settle()
        return True

    def advance_to(self, indices: Iterable[int]) -> bool:
        """The host waits until work has ended; False if some of it never does."""
        wanted = [self.log[i] for i in indices]
        self.settle()
        while True:
            open_ones = [work for work in wanted if not work.ended]
            if not open_ones:
                return True
            if any(w.finish_ns <= self.clock_ns or w.index in self.device(w.device).stuck for w in open_ones):
                return False
            self.clock_ns = max(self.clock_ns, max(work.finish_ns for work in open_ones))
            self.settle()

    def seen(self, work: Iterable[int]) -> None:
        """The host has seen that work has ended."""
        self.learn(told(self.log, work, self.seen_by_host))

    def learn(self, clock: Clock) -> None:
        """The host has seen more."""
        self.minds.learn(clock)
        self.evidence.known(self.seen_by_host, self)

    def seen_stream(self, stream: Stream) -> None:
        """The host has seen that all of a stream is done."""
        self.learn(self.knows(stream))

    def schedules(self) -> list[tuple[int, Epoch]]:
        """What every device did, in order: its number and what it did each time it was busy."""
        self.settle()
        found = []
        for device in self.devices.values():
            for epoch in [*device.epochs, *([device.current] if device.current else [])]:
                found.append((device.number, epoch))
        return found
