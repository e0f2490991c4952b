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

from cann_env.acl import codes
from cann_env.acl.codes import Refused
from cann_env.acl.epochs import Device, Epoch, close_device, play_device
from cann_env.acl.evidence import Evidence
from cann_env.acl.memory import AddressSpace
from cann_env.acl.objects import Context, Event, Notify, Record, Signal, Stream
from cann_env.acl.order import HostAccess, told
from cann_env.acl.work import HostCall, Touch, Work
from cann_env.device import load_device
from cann_env.options import Submission

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from cann_env.acl.memory import Range
    from cann_env.acl.order import Clock
    from cann_env.acl.pools import Pool
    from cann_env.acl.threads import Worker
    from cann_env.commands import Command
    from cann_env.device.spec import DeviceSpec
    from cann_env.options import RunOptions

DEFAULT_DEVICE: Final = "ascend910b2"

_EPOCH: Final = 64
"""Pieces of work that are played again rather than set aside."""


class Simulator:
    """Everything that calls of the interface change.

    Args:
        device: Name of a device file, or a device.
        count: Devices of the machine.
        submission: Whether calls take host time (``eager``), or none, as if a graph had been handed over.
        options: How the runtime behaves with a graph that was handed over; None for as it does by itself.
    """

    def __init__(
        self,
        device: str | DeviceSpec = DEFAULT_DEVICE,
        count: int = 8,
        submission: Submission = Submission.EAGER,
        options: RunOptions | None = None,
    ) -> None:
        self.spec = load_device(device) if isinstance(device, str) else device
        self.count = count
        self.submission = Submission(submission)
        self.options = options
        self.die = -1
        self.order: tuple[int, ...] = ()
        self.edges: dict[int, tuple[int, ...]] = {}
        self.releases: dict[int, int] = {}
        self.clock_ns = 0
        self.initialised = False
        self._lock = threading.RLock()
        self._guest = 0
        self.workers: dict[int, Worker] = {}
        self.due: dict[int, list[Callable[[], None]]] = {}
        self.memory = AddressSpace()
        self.seen_by_host: Clock = {}
        self.host_accesses: list[HostAccess] = []
        self.log: list[Work] = []
        self.users: dict[int, list[Work]] = {}
        self.calls: list[HostCall] = []
        self.evidence = Evidence()
        self.devices: dict[int, Device] = {}
        self.contexts: dict[int, Context] = {}
        self.streams: dict[int, Stream] = {}
        self.events: dict[int, Event] = {}
        self.notifies: dict[int, Notify] = {}
        self.pools: dict[int, Pool] = {}
        self.things: dict[int, object] = {}
        self.current: dict[int, int] = {}
        self.graveyard: dict[int, str] = {}
        self.message = ""
        self.handles = itertools.count(0x1001)
        self.record_numbers = itertools.count()

    # Whose turn it is.

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Calls of several threads take turns; a thread that another waits for needs none of its own."""
        if threading.get_ident() == self._guest:
            yield
            return
        with self._lock:
            yield

    @contextmanager
    def guest(self, thread: int) -> Iterator[None]:
        """Within it, the caller only waits for a thread, which may call."""
        before, self._guest = self._guest, thread
        try:
            yield
        finally:
            self._guest = before

    # Who is meant.

    def new_handle(self) -> int:
        """A number that was never given before."""
        return next(self.handles)

    def bury(self, handle: int, what: str, site: str) -> None:
        """Remember that a handle is gone, for messages."""
        self.graveyard[handle] = f"{what} was destroyed at {site}"

    def gone(self, handle: object) -> str:
        """Why a handle is not known."""
        known = self.graveyard.get(handle) if isinstance(handle, int) else None
        return f": that {known}" if known else ""

    def device(self, number: object) -> Device:
        """A device by number, opened when first named.

        Raises:
            Refused: There is none.
        """
        if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < self.count:
            raise Refused(
                codes.RT_INVALID_DEVICE_ID,
                f"device {number!r} does not exist; there are 0 to {self.count - 1}",
            )
        if number not in self.devices:
            self.devices[number] = Device(number, self.spec)
        return self.devices[number]

    def context(self) -> Context:
        """The current context of the calling thread.

        Raises:
            Refused: None is set.
        """
        handle = self.current.get(threading.get_ident(), 0)
        if handle not in self.contexts:
            raise Refused(
                codes.RT_CONTEXT_NULL,
                "this thread has no context; call set_device, create_context or set_context",
            )
        return self.contexts[handle]

    def make_context(self, device: int, *, implicit: bool, site: str) -> Context:
        """A context with its default stream, current for the calling thread."""
        self._room_for_stream(device)
        stream = Stream(self.new_handle(), 0, device, site=site, default=True)
        context = Context(self.new_handle(), device, stream.handle, implicit, site=site)
        stream.context = context.handle
        self.streams[stream.handle] = stream
        self.contexts[context.handle] = context
        self.current[threading.get_ident()] = context.handle
        return context

    def make_stream(self, priority: int, flags: int, site: str) -> Stream:
        """A stream of the current context.

        Raises:
            Refused: No context, or as many streams as the device can have.
        """
        context = self.context()
        self._room_for_stream(context.device)
        stream = Stream(self.new_handle(), context.handle, context.device, priority, flags, site)
        stream.die = self.die
        self.streams[stream.handle] = stream
        return stream

    def _room_for_stream(self, device: int) -> None:
        spec = self.device(device).spec
        held = sum(stream.device == device for stream in self.streams.values())
        if held >= spec.limits.max_streams:
            raise Refused(
                codes.RT_RESOURCE_ALLOC_FAIL,
                f"device {device} ({spec.name}) has {held} streams, default streams included; its limit is "
                f"{spec.limits.max_streams}. Destroy streams that are done, or use them again",
            )

    def stream(self, handle: object) -> Stream:
        """A stream of the current context; 0 or None is its default stream.

        Raises:
            Refused: It does not exist, or belongs to another context.
        """
        context = self.context()
        if handle in (0, None):
            return self.streams[context.default_stream]
        found = self.streams.get(handle) if isinstance(handle, int) else None
        if found is None:
            raise Refused(codes.RT_PARAM_INVALID, f"stream {handle!r} does not exist{self.gone(handle)}")
        if found.context != context.handle:
            raise Refused(
                codes.RT_STREAM_CONTEXT,
                f"stream {handle} was made in context {found.context} at {found.site}, but the current "
                "context is "
                f"{context.handle}; call set_context first",
            )
        return found

    def event(self, handle: object) -> Event:
        """An event.

        Raises:
            Refused: It does not exist.
        """
        found = self.events.get(handle) if isinstance(handle, int) else None
        if found is None:
            raise Refused(codes.RT_PARAM_INVALID, f"event {handle!r} does not exist{self.gone(handle)}")
        return found

    # Submitting.

    def submit(
        self,
        call: str,
        stream: Stream,
        command: Command,
        touches: Sequence[Touch],
        *,
        site: str,
        label: str = "",
    ) -> Work:
        """Put a piece of work at the end of a stream."""
        self._wait_for_room(stream)
        index = len(self.log)
        waits = [*stream.pending]
        for signal in stream.unresolved:
            if signal.after is not None:
                waits += signal.after
        previous = stream.work[-1] if stream.work else -1
        work = Work(
            index, call, stream.device, stream.handle, len(stream.work), command, tuple(waits), self.clock_ns,
            tuple(touches), dict(self.seen_by_host), previous, site=site, label=label or command.name,
        )  # fmt: skip
        work.signals = [signal for signal in stream.unresolved if signal.after is None]
        work.reuse = frozenset(stream.reuse)
        stream.pending, stream.unresolved, stream.reuse = [], [], set()
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

    def _wait_for_room(self, stream: Stream) -> None:
        """The host waits while a stream's queue is full."""
        depth = self.spec.limits.queue_depth
        if len(stream.work) < depth or self.submission is Submission.SINK:
            return  # where calls take no time, the engine hands over when there is room
        oldest = self.log[stream.work[-depth]]
        if not oldest.ended:
            self.advance_to([oldest.index])

    def copy_stream(self) -> Stream:
        """The stream of a device on which synchronous copies run; no program sees it."""
        device = self.device(self.context().device)
        if device.copies is None:
            device.copies = Stream(self.new_handle(), 0, device.number, site="synchronous copies")
        return device.copies

    def pay(self, cost: str) -> None:
        """The host takes the time of a kind of call."""
        if self.submission is Submission.SINK:
            return
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

    def touch_by_host(self, memory: Range, *, writes: bool, site: str, what: str) -> None:
        """The host reads or writes memory now."""
        access = HostAccess(len(self.log), memory, writes, dict(self.seen_by_host), site, what)
        self.host_accesses.append(access)

    def knows(self, stream: Stream) -> Clock:
        """What is done when everything submitted to a stream so far is."""
        return told(self.log, stream.tail, self.seen_by_host)

    # Events.

    def record(self, stream: Stream, site: str) -> Record:
        """What an event recorded on a stream now stands for."""
        after = [*stream.pending, *stream.work[-1:]]
        return Record(
            stream.handle, tuple(after), self.clock_ns, site, next(self.record_numbers),
        )  # fmt: skip

    def resolve(self, signals: Iterable[Signal], record: Record) -> None:
        """A record meets waits that were queued before it."""
        for signal in signals:
            signal.after = record.after
        for device in self.devices.values():
            device.stale = True

    def wait(self, stream: Stream, record: Record) -> None:
        """Further work on a stream waits for what a record stands behind."""
        if record.stream != stream.handle:
            stream.pending += [index for index in record.after if index not in stream.pending]

    # Time.

    def settle(self) -> None:
        """Let happen what happens up to now."""
        for device in self.devices.values():
            play_device(
                device, self.log, self._priority, known=self.submission is Submission.SINK,
                dies={handle: stream.die for handle, stream in self.streams.items()}, options=self.options,
                order=self.order, edges=self.edges, releases=self.releases,
                held=[] if self.options is None else self.memory.plain(),
            )  # fmt: skip
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
        for device in self.devices.values():
            if self._may_close(device) and all(self.log[i].ended for i in device.works):
                close_device(device, self.log)

    def _may_close(self, device: Device) -> bool:
        """Whether what a device did is to be set aside once it is idle.

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

    def _priority(self, handle: int) -> int:
        stream = self.streams.get(handle)
        return 0 if stream is None else stream.priority

    def advance_to(self, indices: Iterable[int]) -> bool:
        """The host waits until work has ended; False if some of it never does."""
        wanted = [self.log[i] for i in indices]
        self.settle()
        while True:
            open_ones = [work for work in wanted if not work.ended]
            if not open_ones:
                return True
            if any(work.index in self.devices[work.device].stuck for work in open_ones):
                return False
            self.clock_ns = max(self.clock_ns, max(work.finish_ns for work in open_ones))
            self.settle()

    def seen(self, work: Iterable[int]) -> None:
        """The host has seen that work has ended."""
        for index in work:
            self.seen_by_host = told(self.log, [index], self.seen_by_host)

    def schedules(self) -> list[tuple[int, Epoch]]:
        """What every device did, in order: its number and what it did each time it was busy."""
        self.settle()
        found = []
        for device in self.devices.values():
            for epoch in [*device.epochs, *([device.current] if device.current else [])]:
                found.append((device.number, epoch))
        return found
