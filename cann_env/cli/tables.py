"""Tables for people: results and specs in, Rich tables out, cut into pieces where the terminal is narrow."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from cann_env.device.spec import ASSUMED
from cann_env.render.palette import POOL_TITLES
from cann_env.render.rows import command_classes, kernel_spans
from cann_env.units import format_bandwidth, format_size, format_time

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cann_env.cli.headroom import Headroom
    from cann_env.cli.results import Summary
    from cann_env.device import DeviceSpec
    from cann_env.schedule import Schedule

_CORE_POOLS = ("aic", "aiv", "aicpu")
_GAP = 2
_LINK_TITLES = {
    "h2d": "host to device",
    "d2h": "device to host",
    "die": "die to die",
    "hbm": "HBM",
    "l2": "L2",
}
_STALLS = ("event", "fault", "slot", "cores", "dma", "host")


def plain_table(title: str, first: str, *others: str) -> Table:
    """A table without lines whose first column stands left and all others right."""
    table = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=None,
        pad_edge=False,
        padding=(0, _GAP, 0, 0),
    )
    table.add_column(first, overflow="fold")
    for name in others:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def pieces(table: Table, width: int) -> Iterator[Table]:
    """The table, if it fits; else several that share its columns out and begin with its first one each.

    Args:
        table: One made here. Its title goes to the first piece, its caption to none.
        width: Columns of the terminal.
    """
    sizes = [
        max(Text.from_markup(str(cell)).cell_len for cell in (column.header, *column.cells))
        for column in table.columns
    ]
    groups: list[list[int]] = [[]]
    for index in range(1, len(sizes)):
        wider = sum(sizes[i] + _GAP for i in (0, *groups[-1])) + sizes[index]
        if groups[-1] and wider > width:
            groups.append([])
        groups[-1].append(index)
    for number, group in enumerate(groups):
        chosen = [table.columns[i] for i in (0, *group)]
        piece = plain_table(
            str(table.title) if number == 0 else "", *(str(column.header) for column in chosen)
        )
        for row in zip(*(column.cells for column in chosen), strict=True):
            piece.add_row(*row)
        yield piece


def verdict(violations: int) -> str:
    """What the judge says, in a word or two, with colour."""
    return f"[red]{violations} wrong[/red]" if violations else "[green]ok[/green]"


def comparison_tables(title: str, summaries: Sequence[Summary]) -> Iterator[Table]:
    """How schedulers compare: the result, then its figures."""
    table = plain_table(
        title, "scheduler", "makespan", "x single", "over bound", "AI core busy", "peak HBM", "judge"
    )
    for each in summaries:
        table.add_row(
            each.scheduler,
            format_time(each.makespan_ns),
            f"{each.ratio:.3f}",
            f"{each.gap:.1%}",
            f"{each.ai_core_busy:.1%}",
            format_size(each.peak_hbm_bytes),
            verdict(len(each.violations)),
        )
    yield table
    yield from figure_tables(summaries)


def figure_tables(summaries: Sequence[Summary]) -> Iterator[Table]:
    """Latencies if there are several requests, the use of pools, the stalls."""
    if summaries[0].requests > 1:
        yield latency_table(summaries)
    yield utilisation_table(summaries)
    yield stall_table({each.scheduler: each.stall_ns for each in summaries})


def latency_table(summaries: Sequence[Summary]) -> Table:
    """How long requests took, from their release to the finish of their last command."""
    table = plain_table(f"Latency of {summaries[0].requests} requests", "scheduler", "mean", "9 of 10 within")
    for each in summaries:
        table.add_row(each.scheduler, format_time(each.latency_mean_ns), format_time(each.latency_p90_ns))
    return table


def utilisation_table(summaries: Sequence[Summary]) -> Table:
    """Share of each pool's core time and of each link's bytes in use; what nobody used is left out."""
    pools = [pool for pool in _CORE_POOLS if any(each.utilisation[pool] > 0 for each in summaries)]
    links = [link for link in _LINK_TITLES if any(each.link_utilisation[link] > 0 for each in summaries)]
    titles = [*(POOL_TITLES[pool] for pool in pools), *(_LINK_TITLES[link] for link in links)]
    table = plain_table("Utilisation of cores and links", "scheduler", *titles)
    for each in summaries:
        shares = [
            *(each.utilisation[pool] for pool in pools),
            *(each.link_utilisation[link] for link in links),
        ]
        table.add_row(each.scheduler, *(f"{share:.1%}" for share in shares))
    return table


def stall_table(rows: dict[str, dict[str, float]]) -> Table:
    """How long commands waited, summed, by what they waited for."""
    table = plain_table("Stall, summed over commands", "scheduler", *_STALLS)
    for name, row in rows.items():
        table.add_row(name, *(format_time(row[cause]) for cause in _STALLS))
    return table


def command_table(schedule: Schedule) -> Table:
    """The commands of a schedule by class of work: how many, how long altogether, on average, at most."""
    classes = command_classes(kernel_spans(schedule.blocks))
    times: dict[str, list[int]] = defaultdict(list)
    for run in schedule.commands:
        times[classes[run.command]].append(run.finish_ns - run.start_ns)
    table = plain_table("Commands", "class", "commands", "time", "mean", "longest")
    for name, spans in sorted(times.items(), key=lambda item: -sum(item[1])):
        table.add_row(
            name,
            str(len(spans)),
            format_time(sum(spans)),
            format_time(sum(spans) / len(spans)),
            format_time(max(spans)),
        )
    return table


def device_row(device: DeviceSpec) -> dict[str, Any]:
    """What ``--json`` says of a device: names, counts, hertz, bytes, bytes a second."""
    return {
        "name": device.name,
        "title": device.title,
        "dies": device.dies,
        "clock_hz": device.clock_hz,
        "pools": dict(device.pools),
        "hbm_bytes": device.memory.hbm_bytes,
        "hbm_bandwidth_bytes_per_s": device.links["hbm"].bandwidth_bytes_per_s,
        "max_streams": device.limits.max_streams,
        "max_concurrent_streams": device.limits.max_concurrent_streams,
        "calibrated": device.calibrated,
    }


def device_table(devices: Sequence[DeviceSpec]) -> Table:
    """The shipped devices."""
    table = plain_table("Devices", "name", "dies", "aic/aiv/cpu", "GHz", "HBM", "bandwidth", "streams")
    for device in devices:
        table.add_row(
            device.label,
            str(device.dies),
            "/".join(str(device.pools[pool]) for pool in ("aic", "aiv", "aicpu")),
            f"{device.clock_hz / 1e9:.2f}",
            format_size(device.memory.hbm_bytes),
            format_bandwidth(device.links["hbm"].bandwidth_bytes_per_s),
            f"{device.limits.max_concurrent_streams}/{device.limits.max_streams}",
        )
    table.caption = (
        "Cores, HBM and bandwidth are per die. Streams: active at once / created. "
        f"{ASSUMED.capitalize()}: no recording of this chip exists, its latencies are scaled."
    )
    return table


def headroom_table(rows: Sequence[Headroom]) -> Table:
    """The shipped scenarios and what can be gained in each."""
    table = plain_table(
        "Scenarios", "name", "device", "commands", "streams", "single/bound", "reference/bound"
    )
    for row in rows:
        table.add_row(
            row.scenario,
            row.device if row.calibrated else f"{row.device} ({ASSUMED})",
            str(row.commands),
            str(row.streams),
            f"{row.single_over_bound:.3f}",
            f"{row.reference_over_bound:.3f}",
        )
    return table
