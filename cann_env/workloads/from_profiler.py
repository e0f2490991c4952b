"""Graphs from profiles: what a device was recorded running, how long, and what it waited for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cann_env.graph import CommandGraph
from cann_env.profiles.recording import Recording, Report, Verdict
from cann_env.workloads.foreign_device import foreign_device, is_foreign, stands_in
from cann_env.workloads.recorded_commands import Pricing
from cann_env.workloads.recorded_data import by_data
from cann_env.workloads.recorded_device import FREE, fitting_devices, likely_device
from cann_env.workloads.recorded_gaps import foreign_gaps, launch_latency, profiler_gaps
from cann_env.workloads.recorded_graph import Writer, Written
from cann_env.workloads.recorded_like import carried_over
from cann_env.workloads.recorded_links import Evidence, find_links
from cann_env.workloads.recorded_role import Dependencies, Durations, Role
from cann_env.workloads.recorded_tasks import entries_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from cann_env.device.spec import DeviceSpec, DispatchSpec
    from cann_env.workloads.recorded_links import Links
    from cann_env.workloads.recorded_tasks import Entry

__all__ = ["Dependencies", "Durations", "Imported", "Role", "from_profiler"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """A graph that was made of a recording, and how the two belong together.

    Attributes:
        graph: In an order of submission; each command has the recorded stream as its ``stream_hint``,
            renumbered from 0 without holes.
        recording: What it was made of.
        tasks: For each command the index in ``recording.tasks`` of the task that it is, or which it delays.
        roles: For each command what it stands for.
        starts_ns, finishes_ns: For each command when it started and finished in the recording, from the start
            of its first task; a delay ends where the task begins.
        streams: The recorded number of each stream of the ``stream_hint``.
        links: What tasks waited for beyond their streams, by position among the tasks that were kept.
        report: What was recognised, guessed and dropped, by the reader too.
    """

    graph: CommandGraph
    recording: Recording
    tasks: tuple[int, ...]
    roles: tuple[Role, ...]
    starts_ns: tuple[int, ...]
    finishes_ns: tuple[int, ...]
    streams: tuple[int, ...]
    links: Links
    report: Report

    def total_ns(self, role: Role) -> int:
        """Time of all commands that stand for one thing, as they go into the graph."""
        return sum(
            command.duration_ns
            for command, own in zip(self.graph.commands, self.roles, strict=True)
            if own is role
        )


def from_profiler(
    source: str | Path | Recording,
    *,
    step: int | None = None,
    durations: Durations = Durations.RECORDED,
    dependencies: Dependencies = Dependencies.RECORDED,
    profiler_gap_ns: int | None = None,
    like: int | Recording | None = None,
    device: DeviceSpec | None = None,
) -> Imported:
    """Make a graph of a profile.

    Each task is a command, but for records, waits and resets of events, which become edges. Idle time that
    neither the stream nor a launch, an event or another stream explains becomes a delay of its own where it
    exceeds :data:`~cann_env.workloads.recorded_links.UNEXPLAINED_NS`.

    Args:
        source: A file or folder (see :func:`cann_env.profiles.read.read_profile`), or what was read of one.
        step: Keep only the tasks of this step; None for all.
        durations: See :class:`Durations`.
        dependencies: See :class:`Dependencies`.
        profiler_gap_ns: Idle time that the profiler puts behind every kernel, 0 for none; None to find out.
        like: Take edges and delays from this other step of the recording, or from this recording of the same
            program; None for the step's own.
        device: Whose gaps and event costs are no delay of their own, and whose cores kernels whose blocks
            were not recorded may use; None for the device that fits the recording, or stands in for it (see
            :mod:`~cann_env.workloads.foreign_device`).

    Raises:
        InputError: The file cannot be read, there is no such step, or nothing is left to run.
    """
    recording = source if isinstance(source, Recording) else _read(source)
    report = Report(dict(recording.report.counts), dict(recording.report.examples))
    device = device or _device_of(recording)
    dispatch = FREE if device is None else device.dispatch
    entries = entries_of(recording, step, report)
    foreign = not fitting_devices(recording) and not stands_in(device)
    links = _links(entries, dispatch, profiler_gap_ns, foreign, report)
    if like is not None:
        model, chosen = (like, None) if isinstance(like, Recording) else (recording, like)
        others = entries_of(model, chosen, Report())
        found = _links(others, dispatch, profiler_gap_ns, foreign, Report())
        found = carried_over(found, others, entries, report)
        links = replace(found, profiler=links.profiler, latency_ns=links.latency_ns)
    _note(links, report)
    streams = tuple(sorted({entry.task.stream for entry in entries}))
    pricing = Pricing(Durations(durations) is Durations.RECORDED, device, report)
    written = Writer(entries, links, dispatch, streams, pricing).write()
    graph = CommandGraph(_name(recording, step), tuple(written.commands))
    if Dependencies(dependencies) is Dependencies.INFERRED:
        graph, written = by_data(graph, written, report)
    return _joined(recording, entries, written, graph, streams, links, report)


def _read(source: str | Path) -> Recording:
    from cann_env.profiles.read import read_profile

    return read_profile(source)


def _device_of(recording: Recording) -> DeviceSpec | None:
    """The device that a recording is most likely of, or what stands in for one of another maker."""
    return foreign_device(recording) if is_foreign(recording) else likely_device(recording)


def _links(
    entries: Sequence[Entry], dispatch: DispatchSpec, gap_ns: int | None, foreign: bool, report: Report
) -> Links:
    profiler = profiler_gaps(entries, gap_ns, report)
    if foreign:
        profiler = foreign_gaps(entries, report) | profiler
    return find_links(entries, dispatch, profiler, launch_latency(entries, profiler, report))


def _note(links: Links, report: Report) -> None:
    words = {
        Evidence.RECORDED: (Verdict.RECOGNISED, "event waits, by the event's id"),
        Evidence.EVENT: (Verdict.GUESSED, "event waits, by the time of a record"),
        Evidence.REST: (Verdict.GUESSED, "waits for the stream that came to rest last"),
    }
    for evidence, (verdict, what) in words.items():
        count = sum(1 for edge in links.edges if edge.evidence is evidence)
        if count:
            report.note(verdict, what, count=count)
    if links.delays:
        behind = {edge.task for edge in links.edges}
        known = [idle for i, idle in links.delays.items() if i in behind]
        free = [idle for i, idle in links.delays.items() if i not in behind]
        for what, idle in (("beyond what an edge explains", known), ("that nothing explains", free)):
            if idle:
                text = f"idle times {what}, {sum(idle) / 1e6:.3f} ms in all"
                report.note(Verdict.GUESSED, text, count=len(idle))


def _name(recording: Recording, step: int | None) -> str:
    return recording.name if step is None else f"{recording.name}/step {step}"


def _joined(
    recording: Recording,
    entries: Sequence[Entry],
    written: Written,
    graph: CommandGraph,
    streams: tuple[int, ...],
    links: Links,
    report: Report,
) -> Imported:
    starts, finishes = [], []
    for i, role, command in zip(written.entries, written.roles, written.commands, strict=True):
        task = entries[i].task
        if role in (Role.DELAY, Role.PROFILER):
            finishes.append(entries[i].moment_ns)
            starts.append(max(0, entries[i].moment_ns - command.duration_ns))
        else:
            starts.append(task.start_ns)
            finishes.append(task.finish_ns)
    return Imported(
        graph=graph,
        recording=recording,
        tasks=tuple(entries[i].number for i in written.entries),
        roles=tuple(written.roles),
        starts_ns=tuple(starts),
        finishes_ns=tuple(finishes),
        streams=streams,
        links=links,
        report=report,
    )
