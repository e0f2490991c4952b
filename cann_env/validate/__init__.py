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
stall               no waiting time is negative
blocks              the blocks of each kernel add up
class               a kernel ran as its class or its fallback, all of it as one
times               starts, finishes and the rows of one command agree
references          transfers, waits and host calls name what exists, and no wait is listed twice
==================  ===================================================================================

Then everything else, each rule by itself:

==================  ===================================================================================
block-time          a block pays launch, then computes and moves its bytes no faster than a core can
kernel-order        the kernels of a command run one after another
batch               all blocks of a batch kernel start at one instant
capacity            running blocks, and prefetches on their copy channel, fit into each pool
slots               active stream heads, all together
class-slots         active stream heads of one class
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
host-thread         host calls in a row, each as long as it takes; what they issue and prefetch
transfers           managed buffers move no faster than link and faults let them, prefetches in a row
moves               they arrive where they are not and are evicted where they are
use-before-arrival  managed operands are there when a command starts
evicted-in-use      and stay until it has finished
evicted-dirty       what was written is not thrown away
hbm-capacity        what is reserved fits
hbm-peak            the recorded peak is neither below what was reserved nor above what there is
link-bytes          what crosses a link fits its bandwidth
lower-bound         without noise, no makespan below the recorded bound
==================  ===================================================================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cann_env.validate import cores, host, links, memory, order, queues, rows
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
        memory.transfers,
        memory.moves,
        memory.use_before_arrival,
        memory.evictions,
        memory.hbm_capacity,
        links.link_bytes,
        _lower_bound,
    ),
)
"""A rule relies on what the stages before its own have found to be sound."""
