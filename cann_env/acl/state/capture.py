"""Captures: what is submitted to a stream is kept, to be executed as a whole later.

A capture begins on one stream. Another stream takes part once it waits for an event that was recorded on a
stream that does, and all of them must have been waited for when it ends.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from cann_env.acl import codes
from cann_env.acl import constants as const
from cann_env.acl.codes import Refused
from cann_env.acl.state.work import Work

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cann_env.acl.state.objects import Stream
    from cann_env.acl.state.work import Touch
    from cann_env.commands import Command

_RELAXED: Final = const.ACL_MODEL_RI_CAPTURE_MODE_RELAXED
_OF_THREAD: Final = const.ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL


class Piece(NamedTuple):
    """What was submitted once, and is executed each time.

    Attributes:
        work: As it was submitted; it has no index.
        lane: Handle of its stream.
        after: Places of the pieces before it, on its stream and by events.
    """

    work: Work
    lane: int
    after: tuple[int, ...]


@dataclass(slots=True, eq=False)
class Capture:
    """A capture, while it goes on.

    Attributes:
        handle: Of the instance that will come of it.
        origin: The stream on which it began.
        mode: What other calls are refused meanwhile.
        thread: Who began it.
        site: Where.
        pieces: What was submitted so far.
        lanes: The streams that take part.
    """

    handle: int
    origin: Stream
    mode: int
    thread: int
    site: str
    pieces: list[Piece] = field(default_factory=list)
    lanes: list[Stream] = field(default_factory=list)
    _last: dict[int, int] = field(default_factory=dict)
    _pending: dict[int, list[int]] = field(default_factory=dict)

    def add(
        self, call: str, stream: Stream, command: Command, touches: Sequence[Touch], site: str, label: str
    ) -> Work:
        """Keep a piece of work."""
        before = self.tail(stream)
        work = Work(
            -1, call, stream.device, stream.handle, len(self.pieces), command, (), 0, tuple(touches),
            site=site, label=label or command.name,
        )  # fmt: skip
        self._pending[stream.handle] = []
        self._last[stream.handle] = len(self.pieces)
        self.pieces.append(Piece(work, stream.handle, before))
        return work

    def tail(self, stream: Stream) -> tuple[int, ...]:
        """Places of the pieces that are done when all of a stream is, as far as it is captured."""
        last = self._last.get(stream.handle)
        return (*self._pending.get(stream.handle, ()), *(() if last is None else (last,)))

    def wait(self, stream: Stream, places: Iterable[int]) -> None:
        """Further pieces of a stream, which takes part from now on, come after others."""
        if stream.capture is None:
            stream.capture = self
            self.lanes.append(stream)
        pending = self._pending.setdefault(stream.handle, [])
        pending += [place for place in places if place not in pending]

    def unjoined(self) -> list[Stream]:
        """Streams that the first one does not wait for at the end."""
        known = self._closure(self.tail(self.origin))
        return [lane for lane in self.lanes if not known.issuperset(self.tail(lane))]

    def _closure(self, places: Iterable[int]) -> set[int]:
        found: set[int] = set()
        waiting = list(places)
        while waiting:
            place = waiting.pop()
            if place not in found:
                found.add(place)
                waiting += self.pieces[place].after
        return found

    def close(self) -> None:
        """Its streams are as before."""
        for lane in self.lanes:
            lane.capture = None


@dataclass(slots=True)
class Captures:
    """All captures that go on, by handle, and the modes that threads set for themselves."""

    open: dict[int, Capture] = field(default_factory=dict)
    modes: dict[int, int] = field(default_factory=dict)

    def refuse_unsafe(self, what: str) -> None:
        """Refuse a call that would wait for the device in the midst of a capture.

        Raises:
            Refused: A capture goes on whose mode forbids that to this thread.
        """
        thread = threading.get_ident()
        own = self.modes.get(thread)
        for capture in self.open.values():
            if capture.mode == _RELAXED or own == _RELAXED:
                continue
            if capture.thread != thread and _OF_THREAD in (capture.mode, own):
                continue
            raise Refused(
                codes.RT_CAPTURE_MODE_BLOCK_ASYNC,
                f"{what} waits for the device, which the capture begun at {capture.site} forbids; do it "
                "before or after, or capture in the relaxed mode",
            )

    def refuse_captured(self, stream: Stream, what: str) -> None:
        """Refuse to wait for, or ask about, a stream that is captured.

        Raises:
            Refused: It is.
        """
        if stream.capture is not None:
            raise Refused(
                codes.RT_CAPTURE_MODE_BLOCK_ASYNC,
                f"{what} of stream {stream.handle}, which is captured since {stream.capture.site}: nothing "
                "of it runs before the capture ends and is executed",
            )
