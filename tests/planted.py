"""One fault each in an otherwise sound schedule: the rule it breaks, what is wrong, and the schedule."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hand_made import (
    CALLS,
    GONE,
    W0,
    W1,
    W2,
    batched,
    chain,
    diamond,
    eager,
    edited,
    fallback,
    faulting,
    fetched,
    fork,
    freed,
    fused,
    grouped,
    joined,
    late,
    mixed,
    moved,
    noisy,
    one_weight,
    pageable,
    pair,
    resident,
    squeeze,
    submitted,
    waiting,
    waves,
    whole_units,
    woken,
)
from hand_made_links import beside, copies, crowded, enormous, inside, one_mover, two_movers
from toys import copy_out, cube, mix, toy_device, vector

from cann_env.graph import CommandGraph
from cann_env.options import Allocator, RunOptions
from cann_env.schedule import EventWait, HostCall, Stall, TransferRun, Waiting

if TYPE_CHECKING:
    from collections.abc import Callable

    from cann_env.schedule import Schedule

NO_CUBE = toy_device(classes={"cube": {"demand": {}}})
ONE_SLOT = toy_device(limits={"max_concurrent_streams": 1})
ONE_VECTOR = toy_device(classes={"vector": {"max_active": 1}})
ONE_EVENT = toy_device(limits={"max_events": 1})
TWO_ENTRIES = toy_device(limits={"queue_depth": 2})
NO_PREFETCH = toy_device(memory={"managed_prefetch": False, "fault_ns": 0})
TWO_CHANNELS = toy_device(pools={"h2d": 2}, memory={"fault_ns": 0})
SLOW_HBM = {"h2d": {"shares_hbm": True}, "hbm": {"bandwidth_bytes_per_s": 500_000_000}}


def when(row: TransferRun, at_ns: int) -> TransferRun:
    """The same eviction at another time."""
    return row._replace(reserve_ns=at_ns, start_ns=at_ns, finish_ns=at_ns)


def dirty() -> Schedule:
    """k0 writes the weight that is thrown away after it."""
    graph = squeeze().graph
    commands = (replace(graph.commands[0], writes=("w0",)), *graph.commands[1:])
    return replace(squeeze(), graph=CommandGraph("dirty", commands, graph.buffers))


PLANTED: list[tuple[str, str, Callable[[], Schedule]]] = [
    ("exactly-once", "a lost row", lambda: replace(chain(), commands=chain().commands[:2])),
    (
        "exactly-once",
        "a double row",
        lambda: replace(chain(), commands=chain().commands + pair().commands[:1]),
    ),
    ("exactly-once", "a row of no command", lambda: edited(chain(), "commands", 0, command=7)),
    ("exactly-once", "noise of another graph", lambda: chain(noise=(2**20,))),
    ("noise", "twice as fast for no reason", lambda: chain(noise=(2**20, 2**19, 2**20))),
    ("noise", "no time at all", lambda: replace(noisy(), noise=(0,))),
    ("stall", "less than no waiting", lambda: chain(stall=Stall(0, 0, -1, 0, 0))),
    (
        "stall",
        "rows of waiting that do not sum up",
        lambda: chain(waiting=(Waiting(1, "cores", 110, 111),), stall=Stall(0, 0, 0, 2, 0)),
    ),
    ("blocks", "a lost wave", lambda: waves(blocks=waves().blocks[:2])),
    ("blocks", "a double wave", lambda: waves(blocks=waves().blocks + waves().blocks[2:])),
    ("blocks", "no such kernel", lambda: edited(chain(), "blocks", 0, kernel=1)),
    ("blocks", "no such die", lambda: edited(chain(), "blocks", 0, die=1)),
    (
        "references",
        "a wait for nothing",
        lambda: replace(diamond(), waits=(*diamond().waits, EventWait(0, 9))),
    ),
    ("references", "a wait listed twice", lambda: replace(diamond(), waits=diamond().waits * 2)),
    ("references", "no such buffer", lambda: squeeze(W0, W1, GONE, W2, W2._replace(buffer=9))),
    ("references", "an unknown cause", lambda: squeeze(W0._replace(cause="magic"), W1, GONE, W2)),
    ("references", "a device buffer moves", lambda: diamond(transfers=(W0,))),
    ("references", "a call of no command", lambda: eager(*CALLS, HostCall("issue", 5, 20, 25))),
    ("class", "vector work on a cube core", lambda: edited(chain(), "blocks", 0, work_class="cube")),
    ("class", "neither class nor fallback", lambda: fallback("aicpu", "aicpu")),
    ("class", "one kernel as two classes", lambda: fallback("cube", "vector")),
    ("class", "no such core here", lambda: replace(waves(), device=NO_CUBE)),
    ("times", "ends before it starts", lambda: moved(chain(), "a", 5, 4)),
    ("times", "starts before time zero", lambda: moved(chain(), "a", -1, 110)),
    ("times", "command and blocks disagree", lambda: edited(chain(), "commands", 1, start_ns=112)),
    ("times", "kernel and blocks disagree", lambda: edited(chain(), "blocks", 0, kernel_start_ns=1)),
    ("block-time", "faster than its arithmetic", lambda: moved(chain(), "a", 0, 109)),
    ("block-time", "faster than its bytes", lambda: one_mover(41)),
    ("block-time", "faster than its noise", lambda: noisy(164)),
    ("block-time", "faster than the link", lambda: inside(36)),
    ("block-time", "works during launch", lambda: joined(109)),
    ("kernel-order", "second kernel too early", lambda: fused(109)),
    ("batch", "one block late", lambda: batched(1)),
    ("capacity", "three blocks on two cores", lambda: pair(cube("a", blocks=2), cube("b"))),
    ("capacity", "vector beside two mix blocks", lambda: pair(mix("a", blocks=2), vector("b"))),
    ("capacity", "two copies, one engine", lambda: copies(pools={"h2d": 1})),
    ("capacity", "a copy and a prefetch, one channel", lambda: beside(channels=1)),
    ("slots", "two heads, one slot", lambda: pair(vector("a"), cube("b"), device=ONE_SLOT)),
    ("class-slots", "two heads of a class, one slot", lambda: pair(device=ONE_VECTOR)),
    ("streams", "a stream too many", lambda: diamond(options=RunOptions(streams=1, run_ahead=9))),
    ("streams", "a number too high", lambda: edited(pair(), "commands", 1, stream=4)),
    ("stream-order", "no gap", lambda: moved(chain(), "b", 110, 220)),
    ("stream-order", "no time to switch to mix", lambda: mixed(2)),
    ("stream-order", "a hole in the queue", lambda: edited(chain(), "commands", 2, position=3)),
    ("dependency", "consumer too early", lambda: moved(diamond(), "c", 109, 319)),
    ("dependency", "event not waited for", lambda: pair(waits=[("a", "b")])),
    ("event-time", "record and wake take time", lambda: woken(115)),
    ("event-time", "a satisfied wait takes time", lambda: waiting(204)),
    ("missing-wait", "right times by luck", lambda: diamond(waits=[("a", "c")])),
    ("release", "issued before it is known", lambda: late(4)),
    ("issue-order", "starts before its issue", lambda: edited(pair(), "commands", 0, issue_ns=1)),
    ("issue-order", "a queue overtaken", lambda: edited(chain(), "commands", 1, issue_ns=3)),
    ("issue-order", "issued before what it needs", lambda: edited(diamond(), "commands", 1, issue_ns=3)),
    ("run-ahead", "three in flight, two allowed", lambda: chain(options=RunOptions(streams=4, run_ahead=2))),
    ("queue-depth", "three queued, two entries", lambda: chain(device=TWO_ENTRIES)),
    ("events", "two ids held, one exists", lambda: fork(device=ONE_EVENT)),
    ("events", "an id taken while it is waited for", lambda: freed(109)),
    ("host-thread", "two calls at once", lambda: eager(CALLS[0], HostCall("issue", 1, 4, 10), *CALLS[2:])),
    ("host-thread", "a short issue", lambda: eager(CALLS[0], HostCall("issue", 1, 6, 10), *CALLS[2:])),
    ("host-thread", "a short copy with its allocation", lambda: submitted(0)),
    ("host-thread", "a short kernel with its wait", lambda: submitted(1)),
    ("host-thread", "a short callback", lambda: submitted(2)),
    ("host-thread", "a short collective with both", lambda: submitted(3)),
    ("host-thread", "a short copy without either", lambda: submitted(4)),
    ("host-thread", "a short allocation", lambda: submitted(3, allocator=Allocator.MALLOC)),
    ("host-thread", "a short wait", lambda: edited(eager(), "host", 2, end_ns=11)),
    ("host-thread", "a short prefetch", lambda: fetched(1)),
    ("host-thread", "a prefetch of another time", lambda: fetched(reserve_ns=1)),
    ("host-thread", "a prefetch nobody asked for", lambda: edited(fetched(), "host", 0, call="wait")),
    ("host-thread", "never issued", lambda: eager(*CALLS[:3])),
    ("host-thread", "issued outside its call", lambda: edited(eager(), "commands", 1, issue_ns=11)),
    ("host-thread", "a pageable copy does not block", lambda: pageable(72)),
    ("host-thread", "not even in sink mode", lambda: pageable(72, RunOptions(streams=4))),
    ("transfers", "faster than the link", lambda: squeeze(W0._replace(start_ns=1), W1, GONE, W2)),
    ("transfers", "faster than on demand", lambda: faulting(173)),
    ("transfers", "faster than one fault", lambda: grouped(153)),
    ("transfers", "less than whole units", lambda: whole_units(132)),
    ("transfers", "two prefetches at once", lambda: two_prefetches()),
    ("transfers", "prefetch where there is none", lambda: squeeze(device=NO_PREFETCH)),
    (
        "moves",
        "arrives where it is",
        lambda: squeeze(W0, W1, GONE, W2, TransferRun(2, "fault", 300, 300, 369)),
    ),
    ("moves", "leaves where it is not", lambda: squeeze(when(GONE, 9)._replace(buffer=2), W0, W1, GONE, W2)),
    ("use-before-arrival", "never fetched", lambda: squeeze(W0, W1, GONE)),
    ("use-before-arrival", "still on its way", lambda: squeeze(W0, W1, GONE, W2._replace(finish_ns=292))),
    ("evicted-in-use", "while it is read", lambda: squeeze(W0, W1, when(GONE, 178), W2)),
    ("evicted-in-use", "as its reader starts", lambda: one_weight(69, W0, when(GONE, 69))),
    ("evicted-in-use", "while it arrives", lambda: one_weight(138, W0, when(GONE, 30), moved_fetch(69))),
    ("evicted-dirty", "written and thrown away", dirty),
    ("hbm-capacity", "evicted too late", lambda: squeeze(W0, W1, when(GONE, 180), W2)),
    ("hbm-capacity", "resident buffers count", lambda: resident(63)),
    ("hbm-peak", "a peak played down", lambda: squeeze(peak_hbm_bytes=127)),
    ("hbm-peak", "a peak above the memory", lambda: squeeze(peak_hbm_bytes=129)),
    ("link-bytes", "HBM faster than it is", lambda: two_movers(73)),
    ("link-bytes", "two copies on one link", lambda: copies(132)),
    ("link-bytes", "two copies late in a stretch", lambda: crowded(305)),
    ("link-bytes", "a little too fast", lambda: crowded(404)),
    ("link-bytes", "the same on the way back", lambda: crowded(404, copy_out)),
    ("link-bytes", "terabytes a little too fast", lambda: enormous(1)),
    ("link-bytes", "copies load a slow HBM", lambda: copies(260, links=SLOW_HBM)),
    ("link-bytes", "a copy beside a prefetch", lambda: beside(132)),
    ("lower-bound", "faster than possible", lambda: chain(lower_bound_ns=333)),
]


def moved_fetch(at_ns: int) -> TransferRun:
    """The weight w0, fetched at another time."""
    return TransferRun(0, "fault", at_ns, at_ns, at_ns + 69)


def two_prefetches() -> Schedule:
    """w0 and w1 prefetched together, at half the speed each."""
    both = [TransferRun(i, "prefetch", 0, 0, 138) for i in (0, 1)]
    schedule = squeeze(*both, GONE._replace(reserve_ns=290, start_ns=290, finish_ns=290))
    graph = CommandGraph("two", schedule.graph.commands[:2], schedule.graph.buffers)
    schedule = replace(schedule, graph=graph, commands=schedule.commands[:2], blocks=schedule.blocks[:2])
    schedule = replace(schedule, device=TWO_CHANNELS)
    return moved(moved(replace(schedule, noise=schedule.noise[:2]), "k0", 138, 248), "k1", 249, 359)
