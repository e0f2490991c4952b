"""What ``cann-env optimise`` says: schedules beside the replay, what is promised, what stands in the way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.markup import escape

from cann_env.cli.tables import plain_table, verdict
from cann_env.metrics import metrics
from cann_env.replay.limits import longest_chain, shares_of
from cann_env.units import format_time
from cann_env.workloads.recorded_role import Dependencies

if TYPE_CHECKING:
    from rich.table import Table

    from cann_env.replay.optimise import Asked, Attempt, Optimised


def attempt_table(found: Optimised) -> Table:
    """Every schedule beside the replay of the recording; all of them simulated."""
    table = plain_table(
        "Simulated schedules", "scheduler", "makespan", "x replay", "over bound", "streams", "events",
        "AI core busy", "judge",
    )  # fmt: skip
    for attempt in found.attempts:
        figures = metrics(attempt.schedule)
        table.add_row(
            escape(attempt.scheduler),
            format_time(figures.makespan_ns),
            f"{ratio(found, attempt):.3f}",
            f"{figures.makespan_ns / found.lower_bound_ns - 1:.1%}",
            str(figures.streams),
            str(figures.events),
            f"{figures.ai_core_busy:.1%}",
            verdict(len(attempt.violations)),
        )
    table.caption = "x replay: over the simulated replay of the recording, not over the recording itself."
    return table


def ratio(found: Optimised, attempt: Attempt) -> float:
    """Makespan of an attempt over that of the baseline, which is simulated too."""
    return attempt.schedule.makespan_ns / max(found.baseline.makespan_ns, 1)


def baseline_lines(found: Optimised, asked: Asked) -> list[str]:
    """What was recorded, what its replay takes, and what schedulers may change."""
    compared = found.replay.comparison
    starts = compared.starts_between_waits
    lines = [
        f"recorded {format_time(compared.recorded_ns)}; its replay in the simulator "
        f"{format_time(compared.simulated_ns)} ({compared.error:+.2%}), nine of ten starts between external "
        f"waits within {format_time(starts.p90_ns)}",
    ]
    if asked.dependencies is Dependencies.INFERRED:
        lines.append(
            "dependencies are inferred: GUESSED by shape and type of tensors; check them before following "
            "such a plan"
        )
        lines.append(
            "delays that nothing explains and gaps of the profiler are left out; without them the replay "
            f"takes {format_time(found.baseline.makespan_ns)}, to which all is compared"
        )
    else:
        lines.append("dependencies are recorded: the order of each stream and the events between them")
    launched = any(command.release_ns for command in found.imported.graph.commands)
    if asked.submission is not None:
        dropped = "recorded launch times are dropped" if launched else "no launch times were recorded"
        lines.append(f"{dropped}; submission {asked.submission.value}")
    elif launched:
        lines.append("nothing is submitted before its recorded launch; --submission drops that")
    return lines


def promise(found: Optimised, *, guessed: bool) -> str:
    """The gain beside the simulator's error, and whether it is promised."""
    replayed = found.baseline.makespan_ns
    part = found.error_ns / replayed
    error = f"the simulator's own error here is {format_time(found.error_ns)} ({part:.2%})"
    if found.gain_ns == 0:
        return f"No gain: no schedule is shorter than the simulated replay ({error})."
    gain = (
        f"{escape(found.best.scheduler)} is {format_time(found.gain_ns)} ({found.gain_ns / replayed:.2%}) "
        "shorter than the simulated replay"
    )
    if not found.promised:
        return f"[yellow]Nothing is promised:[/yellow] {gain}, no more than {error.replace(' is ', ', ')}."
    return f"[green]Gain{_provided(found, guessed=guessed)}:[/green] {gain}; {error}.{_of_submission(found)}"


def _provided(found: Optimised, *, guessed: bool) -> str:
    """What has to hold for a gain: nobody recorded it."""
    conditions = []
    edges = guessed_edges(found)
    if guessed:
        conditions.append("the guessed dependencies hold and no delays come back")
    elif edges:
        conditions.append(f"the guessed edges between streams ({edges}) are all there are")
    if _gained_by_submission(found) > 0:
        conditions.append("the host submits as fast as assumed")
    return f", if {' and '.join(conditions)}" if conditions else ""


def guessed_edges(found: Optimised) -> int:
    """Edges between streams of what was scheduled that are known by times only."""
    compared = found.replay.comparison
    return compared.event_edges + compared.rest_edges


def _of_submission(found: Optimised) -> str:
    """Says how much of a gain comes from another way of submitting alone."""
    alone = _gained_by_submission(found)
    if alone <= 0 or found.best is found.attempts[0]:
        return " All of it comes from the submission." if alone > 0 else ""
    return f" Of it {format_time(alone)} comes from the submission alone, in the recorded order."


def _gained_by_submission(found: Optimised) -> int:
    return found.baseline.makespan_ns - found.attempts[0].schedule.makespan_ns


def limits(found: Optimised) -> dict[str, int]:
    """What the chain that ends last in the best schedule spends its time on (ns)."""
    return shares_of(longest_chain(found.best.schedule, found.imported.roles))


def limit_table(found: Optimised) -> Table:
    """What bounds the best schedule."""
    makespan = max(found.best.schedule.makespan_ns, 1)
    table = plain_table(f"What bounds {escape(found.best.scheduler)}", "its last chain", "time", "part")
    for what, ns in limits(found).items():
        table.add_row(what, format_time(ns), f"{ns / makespan:.1%}")
    table.caption = (
        f"No schedule of these commands is shorter than {format_time(found.lower_bound_ns)} (lower bound)."
    )
    return table


def source_of(profile: str, found: Optimised, asked: Asked) -> dict[str, Any]:
    """What a plan says of where it comes from: the profile, how it was imported, and who made the plan."""
    return {
        "profile": profile,
        **_imported(found, asked),
        "scheduler": found.best.scheduler,
        "gain_ns": found.gain_ns,
        "error_ns": found.error_ns,
        "promised": found.promised,
    }


def _imported(found: Optimised, asked: Asked) -> dict[str, Any]:
    """How the profile was taken, the same in a plan and in ``--json``."""
    return {
        "step": asked.step,
        "durations": asked.durations.value,
        "dependencies": asked.dependencies.value,
        "guessed": asked.dependencies is Dependencies.INFERRED,
        "guessed_edges": guessed_edges(found),
        "submission": None if asked.submission is None else asked.submission.value,
    }


def json_of(found: Optimised, asked: Asked) -> dict[str, Any]:
    """What ``--json`` says."""
    compared = found.replay.comparison
    return {
        **_imported(found, asked),
        "recorded_ns": compared.recorded_ns,
        "replay_ns": found.replay.schedule.makespan_ns,
        "baseline_ns": found.baseline.makespan_ns,
        "replay_error": compared.error,
        "lower_bound_ns": found.lower_bound_ns,
        "rows": [_json_row(found, attempt) for attempt in found.attempts],
        "best": found.best.scheduler,
        "gain_ns": found.gain_ns,
        "error_ns": found.error_ns,
        "promised": found.promised,
        "bounded_by_ns": limits(found),
    }


def _json_row(found: Optimised, attempt: Attempt) -> dict[str, Any]:
    figures = metrics(attempt.schedule)
    return {
        "scheduler": attempt.scheduler,
        "makespan_ns": figures.makespan_ns,
        "ratio_to_baseline": ratio(found, attempt),
        "gap": figures.makespan_ns / found.lower_bound_ns - 1,
        "streams": figures.streams,
        "events": figures.events,
        "ai_core_busy": figures.ai_core_busy,
        "stall_ns": figures.stall_ns,
        "violations": len(attempt.violations),
    }
