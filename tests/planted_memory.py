"""Faults in the use of memory, one each: the rule it breaks, what is wrong, and the schedule."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hand_made import GONE, W0, W1, W2, edited, squeeze
from hand_made_cache import (
    WITH_L2,
    asked,
    copied,
    crowd,
    forgotten,
    in_part,
    lift,
    lifted,
    lifted_in_vain,
    lifted_output,
    pushed_out,
    renewed,
    tied,
    too_large,
    touched,
    two_lifts,
)
from hand_made_late import (
    IN_LINE,
    LEAVING,
    NO_SPACE,
    asked_once,
    leaves_beside_copy,
    space_comes_late,
    taken_again,
    under_way,
)
from hand_made_memory import (
    BACK,
    FREED,
    SAVED,
    TOUCHED,
    at,
    beside_copy_out,
    beside_weight,
    born,
    classes,
    exact,
    granted,
    half_remote,
    in_blocks,
    in_the_call,
    multiple,
    offloaded,
    on_both_dies,
    remote,
    shared,
    slow_weight,
    spilled,
    split,
    swapped,
    tenants,
    two_lanes,
    two_saved,
)
from toys import toy_device

from cann_env.options import Allocator, RunOptions
from cann_env.schedule import FAR, CacheHit, Stall, TransferRun

if TYPE_CHECKING:
    from collections.abc import Callable

    from cann_env.schedule import Schedule

    Fault = tuple[str, str, Callable[[], Schedule]]


def place(schedule: Schedule, row: int = 0, **values: int) -> Schedule:
    return edited(schedule, "allocations", row, **values)


def twice(schedule: Schedule, field: str) -> Schedule:
    """The schedule with all rows of a kind double."""
    return replace(schedule, **{field: getattr(schedule, field) * 2})


SLOW_WAY_BACK = toy_device(links={"d2h": {"latency_ns": 6}})
SLOW_PORT = replace(
    WITH_L2, classes={**WITH_L2.classes, "sdma": replace(WITH_L2.classes["sdma"], bytes_per_cycle=2.0)}
)

ROWS: list[Fault] = [
    (
        "references",
        "a device buffer is freed like a managed one",
        lambda: tenants(transfers=(at(0, "free", 221),)),
    ),
    ("references", "a place of no buffer", lambda: place(tenants(), buffer=9)),
    ("references", "a place of no command", lambda: place(tenants(), command=9)),
    ("references", "a place below zero", lambda: place(tenants(), address=-64)),
    (
        "references",
        "a place for what migrates",
        lambda: replace(spilled(), allocations=tenants().allocations[:1]),
    ),
    ("references", "a hit of no kernel", lambda: edited(lifted(), "hits", 0, kernel=1)),
    ("references", "a hit of no command", lambda: edited(lifted(), "hits", 0, command=4)),
    ("references", "a hit of nothing", lambda: edited(lifted(), "hits", 0, hit_bytes=0)),
    ("references", "a hit told twice", lambda: twice(lifted(), "hits")),
    ("references", "a call for no buffer", lambda: edited(asked(), "host", 0, target=1)),
    ("references", "an unknown call", lambda: edited(asked(), "host", 0, call="magic")),
]

MANAGED: list[Fault] = [
    ("transfers", "a write-back faster than the link", lambda: two_saved(110, 179, 247)),
    ("transfers", "a write-back without its own latency", lambda: replace(two_saved(), device=SLOW_WAY_BACK)),
    ("transfers", "two write-backs at once", lambda: two_saved(110, 110, 243, channels=2)),
    ("transfers", "the write-back chosen later goes first", lambda: two_saved(111, 111, 180, first_ns=180)),
    (
        "transfers",
        "a touch takes time",
        lambda: born(1, TransferRun(0, "touch", 0, 0, 1), at(0, "free", 111)),
    ),
    ("transfers", "two prefetches in one lane", lambda: two_lanes(RunOptions(prefetch_streams=1))),
    ("transfers", "what host and device share moves", lambda: shared(W0._replace(start_ns=0))),
    ("capacity", "two prefetches on one channel", lambda: two_lanes(channels=1)),
    ("capacity", "a write-back and a copy on one channel", lambda: beside_copy_out(channels=1)),
    ("link-bytes", "a write-back beside a copy", lambda: beside_copy_out(242)),
    (
        "moves",
        "comes back before it has gone",
        lambda: spilled(TOUCHED, SAVED, TransferRun(0, "fault", 178, 178, 247), FREED),
    ),
    ("moves", "comes from where it never was", lambda: born(69, W0, at(0, "free", 179))),
    (
        "moves",
        "is asked for from where it never was",
        lambda: born(69, W0._replace(cause="prefetch"), at(0, "free", 179)),
    ),
    ("moves", "is touched and read", lambda: squeeze(at(0, "touch", 69), W1, GONE, W2)),
    (
        "moves",
        "is touched after all writers",
        lambda: replace(two_saved(), transfers=(*two_saved().transfers, at(0, "touch", 300))),
    ),
    ("moves", "the host's buffer is freed", lambda: squeeze(W0, W1, GONE._replace(cause="free"), W2)),
    (
        "moves",
        "is written back before it is written",
        lambda: born(
            100, TOUCHED, TransferRun(0, "writeback", 10, 10, 79), at(0, "touch", 100), at(0, "free", 210)
        ),
    ),
    (
        "use-before-arrival",
        "used while it is written back",
        lambda: spilled(TOUCHED, SAVED, BACK._replace(finish_ns=370), FREED),
    ),
    (
        "evicted-in-use",
        "written back while it is written",
        lambda: spilled(TOUCHED, SAVED._replace(reserve_ns=109), BACK, FREED),
    ),
    ("evicted-in-use", "freed while it is read", lambda: spilled(TOUCHED, SAVED, BACK, at(0, "free", 478))),
    ("evicted-dirty", "its only copy is thrown away", lambda: offloaded_by_eviction()),
    ("leak", "never freed", lambda: born(0, TOUCHED)),
    ("leak", "freed late", lambda: born(0, TOUCHED, at(0, "free", 111))),
    ("leak", "written back when nobody needs it", lambda: born(0, TOUCHED, SAVED)),
    ("hbm-capacity", "comes while the other is still there", lambda: swapped(1)),
    ("hbm-capacity", "granted while the other is still there", lambda: granted(178)),
    ("hbm-capacity", "an output beside a weight", lambda: beside_weight(127)),
    (
        "hbm-capacity",
        "a pool beside two weights",
        lambda: squeeze(options=RunOptions(hbm_bytes=128, pool_bytes=64)),
    ),
    ("hbm-capacity", "a multiple that is too small", lambda: multiple(1.99)),
]

LATE: list[Fault] = [
    ("references", "evicted when all is over", lambda: taken_again(at(0, "evict", FAR))),
    ("references", "begins after the end of time", lambda: under_way(LEAVING._replace(finish_ns=FAR + 1))),
    (
        "transfers",
        "both move at the end",
        lambda: under_way(LEAVING, IN_LINE._replace(start_ns=170), channels=2),
    ),
    ("transfers", "moves too fast before the end", lambda: under_way(LEAVING._replace(finish_ns=218))),
    ("capacity", "a channel that is not free again", lambda: leaves_beside_copy(channels=1)),
    (
        "moves",
        "comes back before the end",
        lambda: under_way(LEAVING, TransferRun(0, "fault", 170, FAR, FAR)),
    ),
    (
        "hbm-capacity",
        "moves into what others have not left",
        lambda: under_way(LEAVING, IN_LINE, NO_SPACE._replace(reserve_ns=170, start_ns=170)),
    ),
    ("use-before-arrival", "never arrives", lambda: swapped_never()),
    ("evicted-in-use", "evicted when a command starts", lambda: taken_again(at(0, "evict", 0))),
    (
        "evicted-in-use",
        "taken again and evicted again",
        lambda: taken_again(*taken_again().transfers, at(0, "evict", 1)),
    ),
    ("host-thread", "gets its space late without need", lambda: space_comes_late(190)),
    ("host-thread", "a fault leaves its call to a prefetch", lambda: asked_once()),
]

PLACES: list[Fault] = [
    ("allocation", "no place", lambda: replace(tenants(), allocations=tenants().allocations[1:])),
    ("allocation", "no place for what is shared", lambda: replace(shared(), allocations=())),
    ("allocation", "starts before its bytes are there", lambda: granted(180)),
    ("allocation", "granted before it is asked for", lambda: place(split(), 1, grant_ns=109)),
    ("allocation", "another command's", lambda: place(tenants(), command=1)),
    ("allocation", "chosen at another time", lambda: place(split(), 1, issue_ns=111, grant_ns=111)),
    ("allocation", "chosen before the call", lambda: in_the_call(116, early_ns=1)),
    ("allocation", "use after free", lambda: place(tenants(), free_ns=220)),
    ("allocation", "a leak", lambda: place(tenants(), 1, free_ns=332)),
    ("allocation", "less than the size class", lambda: classes(taken=576)),
    ("allocation", "a size class without a pool", lambda: classes(allocator=Allocator.MALLOC)),
    ("allocation", "not a whole block", lambda: place(in_blocks(), size_bytes=576)),
    ("allocation", "less than it asks for", lambda: place(exact(), size_bytes=512)),
    (
        "allocation",
        "less than the least class",
        lambda: replace(
            tenants(), device=toy_device(memory={"pool_min_block_bytes": 128}), options=RunOptions(streams=4)
        ),
    ),
    ("address-space", "two in one place", lambda: place(split(), 2, address=128)),
    ("address-space", "above the end", lambda: place(tenants(), 1, address=64)),
    ("address-space", "among the resident", lambda: place(classes(), address=0)),
    (
        "address-space",
        "above the pool",
        lambda: replace(in_blocks(), options=RunOptions(pool_block_bytes=200, pool_bytes=599)),
    ),
    ("reuse-wait", "ordered by luck", lambda: tenants(("a", "c"), ("a", "b"))),
    ("reuse-wait", "one of two waits", lambda: split(waits=[("a", "b")])),
    ("reuse-wait", "waits for none", lambda: split(waits=[])),
    ("host-stall", "too little", lambda: tenants(stall=Stall(0, 0, 0, 0, 0, 220))),
    ("host-stall", "too much", lambda: tenants(stall=Stall(0, 0, 0, 0, 0, 222))),
    ("host-thread", "a pageable weight does not block", lambda: slow_weight(68)),
    ("host-thread", "a pageable offload does not block", lambda: offloaded(pageable=True)),
    ("host-thread", "a short offload", lambda: offloaded(call_ns=1)),
    ("host-thread", "an offload that does not leave then", lambda: offloaded(at_ns=121)),
    ("host-thread", "a lift nobody asked for", lambda: asked(1)),
    ("host-thread", "a short lift", lambda: edited(asked(), "host", 0, end_ns=3)),
]

DIES: list[Fault] = [
    ("dies", "on the die of another stream", lambda: remote(die=0)),
    ("dies", "a stream that was moved", lambda: on_both_dies(stream_dies=(0, 0, 0, 0), hbm_bytes=128)),
    ("capacity", "two kernels on one die", lambda: on_both_dies(0, stream_dies=(0, 0, 0, 0), hbm_bytes=128)),
    ("block-time", "faster than the link between dies", lambda: remote(137)),
    ("block-time", "faster than both parts in a row", lambda: half_remote(105)),
    ("link-bytes", "two blocks on the link between dies", lambda: remote(137, blocks=2)),
]

CACHE: list[Fault] = [
    ("block-time", "faster than L2", lambda: lifted(62)),
    ("block-time", "hits are not free", lambda: lifted(47)),
    ("block-time", "faster than L2 and HBM in a row", lambda: in_part(finish_ns=86)),
    ("block-time", "faster than without hits", lambda: copied(finish_ns=211)),
    ("link-bytes", "L2 faster than it is", lambda: crowd(49)),
    ("link-bytes", "two lifts faster than HBM", lambda: two_lifts(68)),
    ("capacity", "two lifts on one channel", lambda: two_lifts(channels=1)),
    ("lifts", "two lifts in one lane", lambda: two_lifts(lanes=1)),
    ("lifts", "faster than HBM", lambda: lifted(row=lift(0, 0, 36))),
    ("lifts", "faster than the port of a channel", lambda: lifted(device=SLOW_PORT)),
    ("lifts", "before a touched buffer is written", lambda: touched(109)),
    ("lifts", "less than it should", lambda: lifted(87, 64, lift(0, 0, 37, 64))),
    ("lifts", "more than the cap", lambda: lifted(options=RunOptions(l2_prefetch_bytes=64))),
    ("lifts", "no L2", lambda: lifted(111, 0, options=RunOptions(l2_bytes=0))),
    ("lifts", "before it is written", lambda: lifted_output(109)),
    ("lifts", "after it is freed", lambda: lifted_output(140)),
    ("allocation", "a lift that is over keeps nothing", lambda: lifted_in_vain(188)),
    ("l2-hits", "more than there is", lambda: pushed_out(128)),
    ("l2-hits", "less than there is", lambda: lifted(87, 64)),
    ("l2-hits", "nothing though it is there", lambda: lifted(111, 0)),
    ("l2-hits", "at another time", lambda: edited(lifted(), "hits", 0, at_ns=36)),
    ("l2-hits", "no L2", lambda: lifted(options=RunOptions(l2_bytes=0), transfers=())),
    ("l2-hits", "the most recent gives way", lambda: renewed(128)),
    ("l2-hits", "survives what is too large", lambda: too_large(128)),
    ("l2-hits", "what no order leaves", lambda: tied(96, 96)),
    ("l2-hits", "both came first", lambda: tied(128, 128)),
    ("l2-hits", "a copy enters", lambda: copied(128, 164)),
    ("l2-hits", "it stays when its buffer leaves", lambda: forgotten(128, 426)),
    ("l2-hits", "a lift that is not over", lambda: early_reader()),
]


def swapped_never() -> Schedule:
    """What the last command reads is under way to the end."""
    *before, come = swapped().transfers
    return replace(swapped(), transfers=(*before, come._replace(finish_ns=FAR)))


def offloaded_by_eviction() -> Schedule:
    """What the host's word moves out was written."""
    schedule = offloaded()
    return replace(schedule, transfers=(*schedule.transfers[:1], at(0, "evict", 120)))


def early_reader() -> Schedule:
    """The kernel starts when the lift has a nanosecond to go."""
    schedule = edited(lifted(62), "commands", 0, start_ns=36)
    schedule = edited(schedule, "blocks", 0, start_ns=36, kernel_start_ns=36)
    return replace(schedule, hits=(CacheHit(0, 0, 36, 128),))


PLANTED_MEMORY = ROWS + MANAGED + LATE + PLACES + DIES + CACHE
