"""What ``cann-env replay --json`` says: the figures of the tables, and all that they sum up."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from cann_env.cli.replay_tables import total_row

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cann_env.cli.replay_tables import Played
    from cann_env.replay.comparison import Overlap


def json_of(played: Sequence[Played]) -> dict[str, Any]:
    """What ``--json`` says of replays: a row a step, and the total."""
    return {"rows": [_json_row(each) for each in played], "total": total_row(played)}


def _json_row(each: Played) -> dict[str, Any]:
    compared = each.replay.comparison
    return {
        "step": each.step,
        "commands": len(each.replay.schedule.commands),
        "recorded_ns": compared.recorded_ns,
        "simulated_ns": compared.simulated_ns,
        "error": compared.error,
        "starts": asdict(compared.starts),
        "starts_between_waits": asdict(compared.starts_between_waits),
        "segments": [{**segment._asdict(), "error": segment.error} for segment in compared.segments],
        "operators": [asdict(row) for row in compared.operators],
        "gaps": [
            {"pair": row.pair, "recorded": asdict(row.recorded), "simulated": asdict(row.simulated)}
            for row in compared.gaps
        ],
        "overlap_recorded": _json_overlap(compared.overlap_recorded),
        "overlap_simulated": _json_overlap(compared.overlap_simulated),
        "peers": compared.peers,
        "peer_ns": compared.peer_ns,
        "delays": compared.delays,
        "delay_ns": compared.delay_ns,
        "profiler_ns": compared.profiler_ns,
        "path": {**asdict(compared.path), "pinned": compared.path.pinned},
        "recorded_edges": compared.recorded_edges,
        "event_edges": compared.event_edges,
        "rest_edges": compared.rest_edges,
        "report": each.replay.imported.report.rows(),
        "violations": len(each.violations),
    }


def _json_overlap(overlap: Overlap) -> dict[str, float]:
    return dict(overlap._asdict())
