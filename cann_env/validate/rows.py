"""Are the rows of a schedule well formed? Only then does it mean anything to judge its times."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from cann_env.device.cost import cores_of_class
from cann_env.graph import BufferKind, Command, CommandKind
from cann_env.validate.case import FOREVER, Q20, Case, Violation, work_classes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cann_env.schedule import BlockRun, Schedule

_AT_ONE_INSTANT = ("touch", "evict", "free")
_CAUSES = ("fault", "prefetch", "writeback", "lift", *_AT_ONE_INSTANT)


def exactly_once(schedule: Schedule) -> Iterator[Violation]:
    """Every command of the graph has one row and one noise factor, and no other command has any."""
    commands = schedule.graph.commands
    seen = Counter(run.command for run in schedule.commands)
    for i in sorted(seen.keys() | set(range(len(commands)))):
        if not 0 <= i < len(commands):
            yield Violation(
                "exactly-once", f"a row names command {i}; the graph has {len(commands)}", (i,), 0
            )
        elif seen[i] != 1:
            yield Violation("exactly-once", f"command {commands[i].name!r} ran {seen[i]} times", (i,), 0)
    if len(schedule.noise) != len(commands):
        yield Violation(
            "exactly-once", f"{len(schedule.noise)} noise factors for {len(commands)} commands", (), 0
        )


def noise(case: Case) -> Iterator[Violation]:
    """Noise factors are positive, and without noise in the options every one of them is one."""
    sigma = case.schedule.options.noise
    for i, factor in enumerate(case.schedule.noise):
        if factor < 1 or (sigma == 0 and factor != Q20):
            right = f"{Q20}, since the options ask for no noise," if sigma == 0 else "at least 1"
            message = f"{case.name(i)} has the noise factor {factor} in units of 2**-20; {right} is right"
            yield Violation("noise", message, (i,), 0)


def stall(case: Case) -> Iterator[Violation]:
    """Nobody waits for less than no time; rows of waiting, if there are any, sum to what is recorded."""
    summed: Counter[str] = Counter()
    for row in case.schedule.waiting:
        summed[row.cause] += row.finish_ns - row.start_ns
    for cause, waited in case.schedule.stall._asdict().items():
        if waited < 0:
            yield Violation("stall", f"commands wait {waited} ns for {cause}; at least 0 is right", (), 0)
        elif summed and cause != "host" and summed[cause] != waited:
            message = f"rows of waiting for {cause} sum to {summed[cause]} ns; {waited} ns are recorded"
            yield Violation("stall", message, (), 0)


def blocks(case: Case) -> Iterator[Violation]:
    """The blocks of every kernel add up, and no row belongs to a kernel or a die that does not exist."""
    commands, dies = case.schedule.graph.commands, case.schedule.device.dies
    expected = {(i, k): count for i, command in enumerate(commands) for k, count in _parts(command)}
    ran: Counter[tuple[int, int]] = Counter()
    for row in case.schedule.blocks:
        if (row.command, row.kernel) not in expected:
            message = f"a row has blocks of kernel {row.kernel} of command {row.command}; there is none"
            yield Violation("blocks", message, (row.command,), row.start_ns)
        elif row.blocks < 1 or not 0 <= row.die < dies:
            message = f"{case.name(row.command)} has a row of {row.blocks} blocks on die {row.die} of {dies}"
            yield Violation("blocks", message, (row.command,), row.start_ns)
        ran[row.command, row.kernel] += row.blocks
    for (i, k), count in expected.items():
        if ran[i, k] != count:
            message = f"{case.name(i)} ran {ran[i, k]} blocks of its kernel {k}; it has {count}"
            yield Violation("blocks", message, (i,), case.runs[i].start_ns)


def _parts(command: Command) -> list[tuple[int, int]]:
    if command.kind is CommandKind.KERNEL:
        return [(k, kernel.blocks) for k, kernel in enumerate(command.kernels)]
    return [(0, 1)]


def references(case: Case) -> Iterator[Violation]:
    """Rows that name commands or buffers name such as exist and can do that; no wait and no hit is double."""
    yield from _transfers(case)
    yield from _allocations(case)
    yield from _hits(case)
    yield from _waits(case)
    graph = case.schedule.graph
    buffers = dict.fromkeys(("prefetch", "lift", "offload"), len(graph.buffers))
    targets = {"issue": len(graph.commands), **buffers}
    for call in case.schedule.host:
        named = call.call == "wait" or 0 <= call.target < targets.get(call.call, 0)
        if not (named and 0 <= call.start_ns <= call.end_ns):
            yield Violation("references", f"{call} is no call of this run", (), call.start_ns)


def _transfers(case: Case) -> Iterator[Violation]:
    graph = case.schedule.graph
    for row in case.schedule.transfers:
        exists = 0 <= row.buffer < len(graph.buffers)
        in_order = 0 <= row.reserve_ns <= row.start_ns <= row.finish_ns <= FOREVER
        happened = row.finish_ns < FOREVER or row.cause not in _AT_ONE_INSTANT
        if not (exists and in_order and happened and row.cause in _CAUSES):
            yield Violation("references", f"{row} is no transfer of this graph", (), row.start_ns)
        elif row.cause != "lift" and graph.buffers[row.buffer].kind is not BufferKind.MANAGED:
            message = f"{row} moves buffer {graph.buffers[row.buffer].name!r}, which is not managed"
            yield Violation("references", message, (), row.start_ns)


def _allocations(case: Case) -> Iterator[Violation]:
    graph = case.schedule.graph
    for row in case.schedule.allocations:
        exists = 0 <= row.buffer < len(graph.buffers) and 0 <= row.command < len(graph.commands)
        sound = row.address >= 0 and row.size_bytes > 0 and 0 <= row.issue_ns <= row.free_ns
        if not (exists and sound):
            yield Violation("references", f"{row} is no allocation of this graph", (), row.issue_ns)
        elif not case.is_placed(graph.buffers[row.buffer]):
            message = f"{row} is of buffer {graph.buffers[row.buffer].name!r}, which nobody allocates"
            yield Violation("references", message, (), row.issue_ns)


def _hits(case: Case) -> Iterator[Violation]:
    commands = case.schedule.graph.commands
    times = Counter((row.command, row.kernel) for row in case.schedule.hits)
    for row in case.schedule.hits:
        kernels = len(commands[row.command].kernels) if 0 <= row.command < len(commands) else 0
        once = times[row.command, row.kernel] == 1
        if not (0 <= row.kernel < kernels and row.hit_bytes > 0 and once):
            message = f"{row} is not the only row of a kernel of this graph that finds something in L2"
            yield Violation("references", message, (), row.at_ns)


def _waits(case: Case) -> Iterator[Violation]:
    count = len(case.schedule.graph.commands)
    for wait, times in Counter(case.schedule.waits).items():
        if not all(0 <= i < count for i in wait):
            yield Violation("references", f"{wait} joins no two commands of this graph", (), 0)
        elif times > 1:
            producer, consumer = wait
            message = f"{case.placed(consumer)} waits {times} times for {case.placed(producer)}, not once"
            yield Violation("references", message, (producer, consumer), 0)


def classes(case: Case) -> Iterator[Violation]:
    """A kernel runs as its class or its fallback, all of it as the same, and the device has that class."""
    device = case.schedule.device
    for (i, k), rows in case.kernels.items():
        kernels = case.command(i).kernels
        own = kernels[k].demand if kernels else None
        allowed = [
            name
            for name in work_classes(case.command(i), k)
            if name in device.classes and cores_of_class(device, name, own)
        ]
        ran = sorted({row.work_class for row in rows})
        if len(ran) != 1 or ran[0] not in allowed:
            message = (
                f"{case.name(i)} ran its kernel {k} as {' and '.join(ran)}; "
                f"one of {', '.join(allowed) or 'no class of this device'} would be right"
            )
            yield Violation("class", message, (i,), rows[0].start_ns)


def times(case: Case) -> Iterator[Violation]:
    """Nothing ends before it starts or starts before time zero, and the rows of a command agree."""
    for (i, k), rows in case.kernels.items():
        first = min(row.start_ns for row in rows)
        for row in rows:
            if not 0 <= row.start_ns <= row.finish_ns or row.kernel_start_ns != first:
                message = (
                    f"{case.name(i)} has blocks of kernel {k} from {row.start_ns} to {row.finish_ns} ns in a "
                    f"kernel said to start at {row.kernel_start_ns} ns; its first blocks start at {first} ns"
                )
                yield Violation("times", message, (i,), row.start_ns)
    spans = _spans(case.schedule.blocks)
    for i, run in enumerate(case.runs):
        start, finish = spans[i]
        if (run.start_ns, run.finish_ns) != (start, finish) or run.issue_ns < 0:
            message = (
                f"{case.name(i)} says issued at {run.issue_ns} ns, ran from {run.start_ns} to "
                f"{run.finish_ns} ns; its blocks ran from {start} to {finish} ns"
            )
            yield Violation("times", message, (i,), run.start_ns)


def _spans(rows: tuple[BlockRun, ...]) -> dict[int, tuple[int, int]]:
    spans: dict[int, tuple[int, int]] = {}
    for row in rows:
        start, finish = spans.get(row.command, (row.start_ns, row.finish_ns))
        spans[row.command] = (min(start, row.start_ns), max(finish, row.finish_ns))
    return spans
