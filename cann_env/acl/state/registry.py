"""What handles stand for: devices, contexts, streams, events, and which of them is current."""

from __future__ import annotations

import itertools
import threading
from typing import TYPE_CHECKING

from cann_env.acl import codes
from cann_env.acl.codes import Refused
from cann_env.acl.state.epochs import Device
from cann_env.acl.state.objects import Context, Stream

if TYPE_CHECKING:
    from cann_env.acl.state.objects import Event, Notify
    from cann_env.acl.state.pools import Pool
    from cann_env.device.spec import DeviceSpec


class Registry:
    """All objects of a run, by handle.

    Args:
        spec: What every device can do.
        count: Devices of the machine.
    """

    def __init__(self, spec: DeviceSpec, count: int) -> None:
        self.spec = spec
        self.count = count
        self.devices: dict[int, Device] = {}
        self.contexts: dict[int, Context] = {}
        self.streams: dict[int, Stream] = {}
        self.events: dict[int, Event] = {}
        self.notifies: dict[int, Notify] = {}
        self.pools: dict[int, Pool] = {}
        self.things: dict[int, object] = {}
        self.current: dict[int, int] = {}
        self.graveyard: dict[int, tuple[str, str]] = {}
        self.made_streams: dict[int, str] = {}
        self.die = -1
        self.late: tuple[str, str] | None = None
        self.handles = itertools.count(0x1001)

    def new_handle(self) -> int:
        """A number that was never given before."""
        return next(self.handles)

    def bury(self, handle: int, what: str, site: str) -> None:
        """Remember that a handle is gone, for messages."""
        self.graveyard[handle] = what, site

    def gone(self, handle: object) -> str:
        """Why a handle is not known."""
        known = self.graveyard.get(handle) if isinstance(handle, int) else None
        if known is None:
            return ""
        self.late = f"{known[0]} {handle}", known[1]
        return f": that {known[0]} was destroyed at {known[1]}"

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
        self._room_for_stream(device, codes.RT_NO_STREAM_RESOURCE)
        stream = Stream(self.new_handle(), 0, device, site=site, default=True)
        context = Context(self.new_handle(), device, stream.handle, implicit, site=site)
        stream.context = context.handle
        self.streams[stream.handle] = stream
        self.made_streams[stream.handle] = site
        self.contexts[context.handle] = context
        self.current[threading.get_ident()] = context.handle
        return context

    def make_stream(self, priority: int, flags: int, site: str) -> Stream:
        """A stream of the current context.

        Raises:
            Refused: No context, or as many streams as the device can have.
        """
        context = self.context()
        self._room_for_stream(context.device, codes.RT_RESOURCE_ALLOC_FAIL)
        stream = Stream(self.new_handle(), context.handle, context.device, priority, flags, site)
        stream.die = self.die
        self.streams[stream.handle] = stream
        self.made_streams[stream.handle] = site
        return stream

    def _room_for_stream(self, device: int, code: int) -> None:
        """A program that asks for a stream too many is refused by the runtime, the runtime by the driver."""
        spec = self.device(device).spec
        held = sum(stream.device == device for stream in self.streams.values())
        if held >= spec.limits.max_streams:
            raise Refused(
                code,
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
