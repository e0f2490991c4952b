"""The judge: checks a finished schedule against its graph and its device, in plain Python.

A :class:`~cann_env.schedule.Schedule` goes in, violations come out. No code and no table is shared with
the engine that made the schedule: the judge reads the graph in names and works out every limit again.
One thing it does not work out again: what a kernel or a copy costs alone and what a link carries come
from :mod:`cann_env.device.cost`, which the compiler of programs uses too, so an error there goes unseen.

It asks whether the device could have done this, not whether it would have. Out of scope are arbitration
(which of several eligible stream heads starts first) and work conservation (whether something waits
though everything it needs is free, or moves slower than it could).

First the rows must be well formed; if they are not, only that is reported:

==================  ===================================================================================
rule                what it demands
==================  ===================================================================================
exactly-once        each command has one row and one noise factor
noise               factors are positive, and exactly one where the options ask for no noise
stall               no waiting time is negative, rows of waiting sum to what is recorded
blocks              the blocks of each kernel add up
class               a kernel ran as its class or its fallback, all of it as one
times               starts, finishes and the rows of one command agree
references          transfers, allocations, hits, waits and host calls name what exists; no wait and no hit is
                    listed twice
==================  ===================================================================================

Then everything else, each rule by itself:

==================  ===================================================================================
rule                what it demands
==================  ===================================================================================
block-time          a block pays launch, then computes and moves its bytes no faster than a core can: those
                    at home, those of another die, those in L2, in a row
dies                commands run on the die of their stream
kernel-order        the kernels of a command run one after another
batch               all blocks of a batch kernel start at one instant
capacity            running blocks, and prefetches, write-backs and lifts on their channels, fit into each
                    pool of a die
slots               active stream heads of a die, all together
class-slots         active stream heads of a die and class
streams             only streams that the run may use
stream-order        FIFO, with the dispatch gap between two commands
dependency          a command starts after what it needs or waits for has finished
event-time          event records, waits and wakes take their time
missing-wait        streams and event waits alone order every dependency
release             nothing is issued before its release time
issue-order         issued before started, in stream order, after what it needs
run-ahead           commands issued and not finished
queue-depth         the same for each stream
events              event ids held from a consumer's issue until its waits are surely over
host-thread         host calls in a row, each as long as it takes; what they issue, prefetch and offload
host-stall          the recorded wait for the host is the sum over commands, exactly
transfers           managed buffers move no faster than link and faults let them, as many prefetches at once
                    as may, write-backs one by one in their order; nothing moves where memory is shared
lifts               of what is in HBM with its content, as large as the cap says, no faster than a channel
moves               they arrive where they are not, from where they are, and leave where they are
use-before-arrival  managed operands are there when a command starts
evicted-in-use      and stay until it has finished
evicted-dirty       what was written is written back, not thrown away
leak                what is absent at first and managed is freed when its last user finishes, or the lift
                    that is then under way
hbm-capacity        what is reserved on a die fits, and so does what lies there
hbm-peak            the recorded peak is neither below what was reserved nor above what there is
allocation          each device buffer that is absent at first has one place, as large as the allocator
                    makes it, from the call that issues its first writer to the finish of its last
                    user, or of the lift that is then under way
address-space       places lie where they may, and no two have a byte at one time
reuse-wait          in sink mode streams and event waits alone keep who writes to a place behind all who
                    used it before
l2-hits             a kernel finds in L2 what a replay finds there
link-bytes          what crosses a link of a die, or comes from its L2, fits the bandwidth
lower-bound         without noise, no makespan below the recorded bound
==================  ===================================================================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cann_env.validate import cache, cores, host, links, memory, order, queues, rows, space, transfers
from cann_env.validate.case import Q20, Case, Violation
from cann_env.validate.order import Hazard, hazards

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from cann_env.schedule import Schedule

__all__ = ["Hazard", "Violation", "hazards", "validate"]


def validate(schedule: Schedule) -> tuple[Violation, ...]:
    """Check a finished schedule.

    Args:
        schedule: Times in nanoseconds, indices into its graph.

    Returns:
        All violations by time and rule; empty if the device could have run this.

    Raises:
        InputError: The device gives no cost for a kernel in the class it ran as (an unknown ``dtype``).
    """
    found = list(rows.exactly_once(schedule))
    if not found:
        case = Case(schedule)
        found = next((found for stage in _STAGES if (found := _judge(case, stage))), [])
    return tuple(sorted(found, key=lambda v: (v.at_ns, v.rule, v.commands)))


def _lower_bound(case: Case) -> Iterator[Violation]:
    schedule = case.schedule
    if all(factor == Q20 for factor in schedule.noise) and schedule.makespan_ns < schedule.lower_bound_ns:
        message = (
            f"the makespan is {schedule.makespan_ns} ns; the recorded bound says at least "
            f"{schedule.lower_bound_ns} ns"
        )
        yield Violation("lower-bound", message, (), schedule.makespan_ns)


def _judge(case: Case, rules: Sequence[Callable[[Case], Iterator[Violation]]]) -> list[Violation]:
    return [violation for rule in rules for violation in rule(case)]


_STAGES = (
    (rows.noise, rows.stall, rows.blocks, rows.references),
    (rows.classes,),
    (rows.times,),
    (
        cores.block_time,
        cores.dies,
        cores.kernel_order,
        cores.batch,
        cores.capacity,
        cores.slots,
        cores.class_slots,
        queues.streams,
        queues.stream_order,
        queues.dependency,
        queues.event_time,
        order.missing_waits,
        queues.release,
        queues.issue_order,
        queues.run_ahead,
        queues.queue_depth,
        queues.events,
        host.host_thread,
        host.host_stall,
        transfers.transfers,
        transfers.lifts,
        memory.moves,
        memory.use_before_arrival,
        memory.evictions,
        memory.leaks,
        memory.hbm_capacity,
        space.allocations,
        space.address_space,
        space.reuse_waits,
        cache.l2_hits,
        links.link_bytes,
        _lower_bound,
    ),
)
"""A rule relies on what the stages before its own have found to be sound."""
