"""The smallest changes that mend a hazard: calls to be added, and where."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cann_env.acl.state.order import Access, Clash
    from cann_env.acl.state.simulator import Simulator


@dataclass(frozen=True, slots=True)
class Step:
    """A call to be added.

    Attributes:
        call: ``record`` or ``wait`` (of one new event), or ``synchronise``.
        stream: On which stream, by handle.
        side: ``before`` or ``after`` a line.
        site: The line.
        name: The stream, for people.
    """

    call: str
    stream: int
    side: str
    site: str
    name: str

    def __str__(self) -> str:
        calls = {
            "record": f"acl.rt.record_event(event, {self.name})",
            "wait": f"acl.rt.stream_wait_event({self.name}, event)",
            "synchronise": f"acl.rt.synchronize_stream({self.name})",
        }
        return f"{calls[self.call]} {self.side} {self.site}"

    @staticmethod
    def synchronise(run: Simulator, stream: int, side: str, site: str) -> Step:
        """The host waits for a stream."""
        return Step("synchronise", stream, side, site, _name(run, stream))

    @staticmethod
    def pair(run: Simulator, first: int, behind: str, second: int, ahead: str) -> tuple[Step, ...]:
        """One stream waits for another."""
        return (
            Step("record", first, "after", behind, _name(run, first)),
            Step("wait", second, "before", ahead, _name(run, second)),
        )


def in_order_of(run: Simulator, clash: Clash) -> tuple[Step, ...]:
    """Calls that order two accesses."""
    first, second = clash.first, clash.second
    stream, behind = _end_of(first)
    if clash.reused:
        stream, behind = clash.allocation.stream, clash.allocation.site
    if stream < 0:
        # Only a thread whose function the stream does not wait for: the program has to wait for it itself.
        return ()
    if second.callback is not None:
        return Step.pair(run, stream, behind, second.callback.stream, second.callback.site)
    if second.stream < 0 or second.stream in run.minds.hidden:
        return (Step.synchronise(run, stream, "before", second.site),)
    if first.work is not None and second.work is not None:
        graphs = first.work.launched, second.work.launched
        if graphs[0] is not None and graphs[1] is not None and graphs[0][:2] == graphs[1][:2]:
            # Both are of one graph, whose events have to be captured with it.
            return Step.pair(run, graphs[0][2], first.site, graphs[1][2], second.site)
    ahead, later = _placed(second)
    return Step.pair(run, stream, behind, later, ahead)


def _placed(access: Access) -> tuple[str, int]:
    """The line and the stream that a piece of work was submitted by."""
    launched = access.work.launched if access.work is not None else None
    return launched[:2] if launched is not None else (access.site, access.stream)


def _end_of(access: Access) -> tuple[int, str]:
    """The stream and the line behind which an access is over."""
    if access.callback is not None:
        blocks = bool(access.callback.told)
        return (access.callback.stream if blocks else -1), access.callback.site
    site, stream = _placed(access)
    return stream, site


def synchronised(run: Simulator, stream: int, site: str) -> tuple[Step, ...]:
    """The host waits for a stream right behind a line."""
    return (Step.synchronise(run, stream, "after", site),)


def told(steps: Sequence[Step]) -> str:
    """For people."""
    if not steps:
        return "launch the callback with block_type 1, and synchronise its stream before the second line"
    head = "with a new event: " if steps[0].call == "record" else "call "
    return head + ", then ".join(map(str, steps))


def _name(run: Simulator, stream: int) -> str:
    """A stream by its handle, and where it was made."""
    found = run.streams.get(stream)
    made = run.made_streams.get(stream) if found is None else found.site
    default = found is not None and found.default
    return "0" if default else f"stream {stream}" + (f" of {made}" if made else "")
