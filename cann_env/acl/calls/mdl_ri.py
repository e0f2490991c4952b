"""Captured graphs: what a program submits between two calls becomes an instance that is executed as a whole.

The Python binding has no such calls yet; they are named and shaped as it would: ``aclmdlRICaptureBegin`` is
``acl.mdl.ri_capture_begin``. An execution costs the host one launch, however much was captured.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cann_env.acl import codes
from cann_env.acl import constants as const
from cann_env.acl.api import call, site
from cann_env.acl.calls.rt_device import wait_for
from cann_env.acl.codes import Refused
from cann_env.acl.state.capture import Capture, Piece
from cann_env.acl.state.order import join

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cann_env.acl.state.objects import Stream
    from cann_env.acl.state.simulator import Simulator
    from cann_env.acl.state.work import Work

_MODES = (
    const.ACL_MODEL_RI_CAPTURE_MODE_GLOBAL,
    const.ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL,
    const.ACL_MODEL_RI_CAPTURE_MODE_RELAXED,
)
_WITHOUT = ("ascend310b", "ascend910a")
"""Chips whose runtime cannot capture, by the beginning of their names."""


@dataclass(slots=True, eq=False)
class Instance:
    """A captured graph.

    Attributes:
        handle: As the program knows it.
        device: Number of the device.
        pieces: What is executed, in the order in which it was submitted.
        end: Places of the pieces that are done when all of it is.
        origin: Handle of the stream on which the capture began.
        lanes: Streams of the instance's own, one for each other stream that took part, by its handle.
        own: Stream of executions that the host waits for.
        site: Where the capture began.
        name: For people.
        last: Indices of the work that ends the last execution.
    """

    handle: int
    device: int
    pieces: tuple[Piece, ...]
    end: tuple[int, ...]
    origin: int
    lanes: dict[int, Stream]
    own: Stream
    site: str
    name: str = ""
    last: list[int] = field(default_factory=list)


@call()
def ri_capture_begin(run: Simulator, stream: int, mode: int = 0) -> None:
    """Keep what is submitted to a stream from now on, instead of running it.

    Args:
        run: The run.
        stream: Any but a default stream.
        mode: Which calls that wait for the device are refused meanwhile: those of all threads (0), of this
            thread (1), of none (2).
    """
    where = run.stream(stream)
    if run.spec.name.startswith(_WITHOUT):
        raise Refused(codes.RT_FEATURE_NOT_SUPPORT, f"{run.spec.name} cannot capture graphs")
    if mode not in _MODES:
        raise Refused(codes.RT_PARAM_INVALID, f"mode is {mode!r}; pass 0 (global), 1 (thread) or 2 (relaxed)")
    if where.default:
        raise Refused(
            codes.RT_STREAM_CAPTURE_IMPLICIT, "default streams are not captured; make a stream of your own"
        )
    if where.capture is not None:
        raise Refused(
            codes.RT_STREAM_CAPTURED, f"stream {stream} is captured already, since {where.capture.site}"
        )
    capture = Capture(run.new_handle(), where, mode, threading.get_ident(), site())
    capture.lanes.append(where)
    where.capture = run.captures.open[capture.handle] = capture


@call(1, failed=0)
def ri_capture_end(run: Simulator, stream: int) -> int:
    """End a capture, on the stream on which it began; every other stream must have been waited for."""
    where = run.stream(stream)
    capture = where.capture
    if capture is None:
        raise Refused(codes.RT_STREAM_NOT_CAPTURED, f"stream {stream} is not captured; begin first")
    if capture.origin is not where:
        raise Refused(
            codes.RT_STREAM_CAPTURE_UNMATCHED,
            f"the capture that stream {stream} takes part in began on stream {capture.origin.handle} at "
            f"{capture.site}; end it there",
        )
    relaxed = capture.mode == const.ACL_MODEL_RI_CAPTURE_MODE_RELAXED
    if not relaxed and capture.thread != threading.get_ident():
        raise Refused(
            codes.RT_STREAM_CAPTURE_WRONG_THREAD, f"the capture begun at {capture.site} is another thread's"
        )
    loose = capture.unjoined()
    if loose:
        raise Refused(
            codes.RT_STREAM_UNJOINED,
            f"stream {loose[0].handle} takes part in the capture begun at {capture.site} and was not waited "
            f"for since its last work; record an event on it and let stream {stream} wait for it",
        )
    del run.captures.open[capture.handle]
    capture.close()
    device = where.device
    others = [lane for lane in capture.lanes if lane is not where]
    run.things[capture.handle] = Instance(
        capture.handle,
        device,
        tuple(capture.pieces),
        capture.tail(where),
        where.handle,
        {lane.handle: _lane(run, lane.priority, device, capture.site) for lane in others},
        _lane(run, where.priority, device, capture.site),
        capture.site,
    )
    return capture.handle


def _lane(run: Simulator, priority: int, device: int, line: str) -> Stream:
    return run.hidden_stream(device, f"graph captured at {line}", priority)


@call(2, failed=0)
def ri_capture_get_info(run: Simulator, stream: int) -> tuple[int, int]:
    """Whether a stream is captured (0 no, 1 yes), and the instance that will come of it."""
    capture = run.stream(stream).capture
    if capture is None:
        return const.ACL_MODEL_RI_CAPTURE_STATUS_NONE, 0
    return const.ACL_MODEL_RI_CAPTURE_STATUS_ACTIVE, capture.handle


@call(1, failed=0)
def ri_capture_thread_exchange_mode(run: Simulator, mode: int) -> int:
    """Set what captures forbid to this thread; gives back what was set before, 0 at first."""
    if mode not in _MODES:
        raise Refused(codes.RT_PARAM_INVALID, f"mode is {mode!r}; pass 0 (global), 1 (thread) or 2 (relaxed)")
    before = run.captures.modes.get(threading.get_ident(), 0)
    run.captures.modes[threading.get_ident()] = mode
    return before


@call()
def ri_execute_async(run: Simulator, model_ri: int, stream: int) -> None:
    """Execute a captured graph in the order of a stream."""
    found, where = _instance(run, model_ri), run.stream(stream)
    if where.capture is not None:
        raise Refused(
            codes.RT_STREAM_CAPTURED,
            f"stream {stream} is captured; a graph inside of one is not simulated",
        )
    if where.device != found.device:
        raise Refused(
            codes.RT_MODEL_CONTEXT,
            f"the graph is of device {found.device}, the stream of {where.device}",
        )
    _replay(run, found, where)


@call()
def ri_execute(run: Simulator, model_ri: int, timeout: int = -1) -> None:
    """Execute a captured graph, and wait until it is done; the time limit is not looked at."""
    del timeout
    found = _instance(run, model_ri)
    _replay(run, found, found.own)
    wait_for(run, list(found.last), f"graph {model_ri}")


@call()
def ri_destroy(run: Simulator, model_ri: int) -> None:
    """Forget a captured graph; refused while it is being executed."""
    found = _instance(run, model_ri)
    run.settle()
    if not all(run.log[i].ended for i in found.last):
        raise Refused(
            codes.RT_MODEL_RUNNING, f"graph {model_ri} is being executed; synchronise before it is destroyed"
        )
    run.bury(found.handle, "graph", site())
    del run.things[found.handle]


@call()
def ri_set_name(run: Simulator, model_ri: int, name: str) -> None:
    """Name a captured graph."""
    _instance(run, model_ri).name = str(name)


@call(1)
def ri_get_name(run: Simulator, model_ri: int) -> str:
    """Name of a captured graph; empty if it was given none."""
    return _instance(run, model_ri).name


@call()
def ri_debug_print(run: Simulator, model_ri: int) -> None:
    """Print what was captured, a line each."""
    found = _instance(run, model_ri)
    for place, piece in enumerate(found.pieces):
        after = ", ".join(map(str, piece.after)) or "-"
        print(f"{place}: {piece.work.label} stream {piece.lane} after {after} ({piece.work.site})")


def _instance(run: Simulator, handle: object) -> Instance:
    if handle in run.captures.open:
        raise Refused(codes.RT_MODEL_CAPTURED, f"graph {handle} is being captured; end the capture first")
    found = run.things.get(handle) if isinstance(handle, int) else None
    if not isinstance(found, Instance):
        raise Refused(codes.RT_PARAM_INVALID, f"graph {handle!r} does not exist{run.gone(handle)}")
    return found


def _replay(run: Simulator, found: Instance, where: Stream) -> None:
    """Submit all of a graph at once, behind what is on the stream and the execution before."""
    run.pay("launch_kernel_ns")
    open_ends = [i for i in found.last if not run.log[i].ended and run.log[i].stream != where.handle]
    where.pending += [i for i in open_ends if i not in where.pending]
    before, signals, known = list(where.tail), list(where.unresolved), dict(where.known)
    made: list[int] = []
    begun: set[int] = set()
    for place, piece in enumerate(found.pieces):
        lane = where if piece.lane == found.origin else found.lanes[piece.lane]
        if lane is not where and piece.lane not in begun:
            lane.pending += before
            lane.unresolved += signals
            join(lane.known, known)
        begun.add(piece.lane)
        needed = [made[j] for j in piece.after if found.pieces[j].lane != piece.lane]
        lane.pending += [i for i in needed if i not in lane.pending]
        again = _again(run, piece.work, lane, inner=place > 0)
        again.launched = site(), where.handle, piece.lane
        made.append(again.index)
    found.last = _ends(found, made, where)


def _ends(found: Instance, made: Sequence[int], where: Stream) -> list[int]:
    """What a replay ends with; the stream goes on behind it."""
    ends = [made[j] for j in found.end]
    where.pending += [
        made[j] for j in found.end if found.pieces[j].lane != found.origin and made[j] not in where.pending
    ]
    return ends or list(where.tail)


def _again(run: Simulator, piece: Work, lane: Stream, *, inner: bool) -> Work:
    work = run.submit(
        piece.call, lane, piece.command, piece.touches, site=piece.site, label=piece.label, inner=inner
    )
    work.prefetch = piece.prefetch
    work.kernels, work.value, work.shape = piece.kernels, piece.value, piece.shape

    def act(which: str) -> Any:
        def acting() -> None:
            # What happens was made for the piece: it asks that one when and behind what it runs.
            piece.start_ns, piece.waits, piece.previous = work.start_ns, work.all_waits, work.previous
            getattr(piece, which)()

        return acting

    work.begin = act("begin") if piece.begin is not None else None
    work.end = act("end") if piece.end is not None else None
    return work
