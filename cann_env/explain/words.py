"""An explanation in plain words: one sentence for each thing that is said, without markup."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cann_env.explain.explanation import Group
from cann_env.units import format_time
from cann_env.waiting import Part

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cann_env.explain.advice import Suggestion
    from cann_env.explain.explanation import Explanation, Wait
    from cann_env.waiting import Holder

_NEAR = 0.02

_POOLS = {
    "aic": "the cube cores",
    "aiv": "the vector cores",
    "aicpu": "the AI CPUs",
    "h2d": "the copy engine from host to device",
    "d2h": "the copy engine from device to host",
    "sdma": "the copy engine within the device",
    "callback": "the host's callback thread",
    "hcom": "the collective engine",
}

_LINKS = {
    "link hbm": "the bandwidth of HBM",
    "link h2d": "the link from host to device",
    "link d2h": "the link from device to host",
    "link die": "the link between dies",
}

PART_WORDS = {
    Part.EXECUTING: "executing commands that the next one needs",
    Part.QUEUE: "executing commands that only stood in front in the same stream",
    Part.HELD: "executing commands that the host waited for before it went on",
    Part.CORES: "waiting for cores",
    Part.LINK: "waiting for a copy engine",
    Part.SLOT: "waiting for a place among the active streams",
    Part.MEMORY: "waiting for buffers to arrive",
    Part.EVENT: "latency of events between streams",
    Part.DISPATCH: "gaps between commands of a stream",
    Part.HOST: "calls of the host",
    Part.ARRIVAL: "nothing was released",
}

_GROUPS = {
    Group.KERNELS: "kernels that run one after another",
    Group.COPIES: "copies, and waiting for copy engines: it is bound by a link",
    Group.ORDER: "commands that run only because they stand in front in the same stream",
    Group.HELD: "commands that run while the host waits for them before it goes on",
    Group.CORES: "waiting for cores",
    Group.SLOTS: "waiting for a place among the active streams",
    Group.MEMORY: "waiting for memory: buffers that had to arrive first",
    Group.EVENTS: "events and gaps between commands",
    Group.HOST: "the host, which submits too slowly",
    Group.ARRIVALS: "waiting for work to arrive",
    Group.OTHER: "callbacks and collectives",
}

_CAUSES = {
    "event": "an event",
    "fault": "memory",
    "slot": "a place among the active streams",
    "cores": "cores",
    "dma": "a copy engine",
    "host": "the host to submit it",
}

_CALLS = {
    "issue": "the host was submitting commands",
    "wait": "the host was waiting",
    "prefetch": "the host was asking for prefetches",
    "lift": "the host was asking for lifts into L2",
    "offload": "the host was asking for offloads",
}


def bound_sentence(about: Explanation) -> str:
    """Which bound binds, and how far above it the makespan lies."""
    if about.bound == "critical path":
        what = "the longest chain of commands that need each other"
    elif about.bound == "host":
        what = "the host, which submits every command"
    else:
        what = _POOLS.get(about.bound) or _LINKS.get(about.bound) or f"pool {about.bound}"
    bound = f"No schedule is shorter than {format_time(about.lower_bound_ns)}, because of {what}"
    if about.gap < 0:
        return f"{bound}; by luck of the draw this one is {-about.gap:.1%} below it."
    if about.gap <= _NEAR:
        return f"{bound}; this one is {about.gap:.1%} above it, so there is next to nothing to gain."
    return f"{bound}; this one is {about.gap:.1%} above it."


def held_sentence(about: Explanation) -> str:
    """What the most time of the critical chain goes to."""
    share = about.groups_ns[about.held_up_by] / max(about.makespan_ns, 1)
    return f"Most of its time, {share:.0%}, is {_GROUPS[about.held_up_by]}."


def wait_sentence(wait: Wait) -> str:
    """Who waited how long for what, and who had it."""
    text = (
        f"{wait.command} on stream {wait.stream} waited {format_time(wait.waited_ns)} for "
        f"{_CAUSES[wait.cause]}, from {format_time(wait.start_ns)} on"
    )
    return f"{text}: {_held(wait.held_by)}." if wait.held_by else f"{text}."


def _held(held_by: Sequence[Holder]) -> str:
    words = {"command": "{} ran", "buffer": "{} moved"}
    return ", ".join(
        f"{_CALLS[each.name] if each.what == 'host' else words[each.what].format(each.name)} for "
        f"{format_time(each.held_ns)}"
        for each in held_by
    )


def suggestion_sentence(suggestion: Suggestion) -> str:
    """A change, and what it gains."""
    what = suggestion.what[0].upper() + suggestion.what[1:]
    return f"{what}: {format_time(suggestion.makespan_ns)}, {suggestion.gain:.1%} less."
