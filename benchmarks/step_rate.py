"""Steps a second of the environments under a random legal policy, beside other environments.

``python benchmarks/step_rate.py [--environments 64 256 1024] [--threads 1 2] [--runs 5] [--seconds 1.0]
[--instances 256] [--jumanji-python PATH] [--json] [--quick]``

Everything is played with full observations and masks, ends of episodes and the begin of the next ones
included; graphs differ from episode to episode and are compiled before the clock starts (what one costs is
printed by itself). Environments take turns, a second each, and figures are medians of all runs. "Alone" is
the rate without the policy's own time, "cores" the processor time over the wall time: below 0.95 with one
thread, the machine had other things to do, and the run is best repeated.

Gymnasium's CartPole is made and stepped in the same way, with actions drawn beforehand. Jumanji's JobShop
runs right afterwards in a process of its own (``peer_jumanji.py``) by the interpreter that
``--jumanji-python`` names, by default this one.
"""

from __future__ import annotations

import sys
import time
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import gymnasium
from rates import (
    CALLS_A_COMMAND,
    CartPolePlayer,
    Player,
    Timing,
    VectorPlayer,
    machine,
    machine_line,
    run_peer,
    steps_an_episode,
    take_turns,
)
from step_cases import LONG, QUICK, Case, Sizes, cases, make_player
from tables import arguments, number, print_json, print_table, progress, ratio

from cann_env.program import compile_graph
from cann_env.scenario import Scenario

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

_FRESH_SEED = 1_000_000


class Row(NamedTuple):
    """What was found.

    Attributes:
        commands: Of a graph, on average.
        rate, alone: Steps a second with the policy and without its time.
        cores: Processor time over wall time.
        over_serving: Rate over that of as many Serving environments on one thread.
        over_cartpole: Over that of as many CartPoles, or of the single one.
        over_jumanji, over_jumanji_pool: Over ticks of Jumanji's JobShop, by what follows an episode's end.
    """

    case: str
    kind: str
    environments: int
    threads: int
    commands: float | None
    rate: float
    alone: float
    cores: float
    over_serving: float | None
    over_cartpole: float | None
    over_jumanji: float | None
    over_jumanji_pool: float | None


# --- what is measured -----------------------------------------------------------------------------------


class Peers(NamedTuple):
    """Rates to compare with: by number of environments (0: the single one), and Jumanji's rows."""

    serving: dict[int, float]
    cartpole: dict[int, float]
    jumanji: dict[str, Any]

    def of_jumanji(self, reset: str) -> dict[str, Any] | None:
        """The fastest row of a kind."""
        rows = [row for row in self.jumanji.get("rows", ()) if row["reset"] == reset]
        return max(rows, key=lambda row: row["rate"], default=None)


def measure(
    found: Sequence[Case], given: argparse.Namespace, begin: Callable[[str], None]
) -> tuple[list[Row], dict[str, Any]]:
    """Play everything; the rows, and what Jumanji's script gave."""
    players: dict[str, tuple[Player, int]] = {}
    for case in found:
        begin(f"compiling: {case.name}, {case.kind}, {case.environments}")
        players[case.key] = make_player(case), 1 if given.quick else round(CALLS_A_COMMAND * case.commands)
    poles = sorted({0, *(case.environments for case in found if case.kind != "single")})
    players |= {f"CartPole {count}": (CartPolePlayer(count or None), 1) for count in poles}
    timings = take_turns(players, given.runs, given.seconds, begin)
    begin("Jumanji")
    words = ["--environments", *map(str, given.jumanji_environments), "--runs", str(given.runs)]
    jumanji = run_peer("peer_jumanji.py", given.jumanji_python, [*words, "--seconds", str(given.seconds)])
    peers = Peers(
        {case.environments: timings[case.key].rate for case in found if case.plain},
        {count: timings[f"CartPole {count}"].rate for count in poles},
        jumanji,
    )
    rows = [row_of(case, timings[case.key], peers) for case in found]
    for count in poles:
        kind = "vector" if count else "single"
        timing = timings[f"CartPole {count}"]
        rows.append(Row("CartPole-v1", kind, count or 1, 1, None, *timing, None, None, None, None))
    return rows, jumanji


def instance_facts(case: Case, calls: int, draws: int) -> dict[str, float | None]:
    """What an episode of a case is like, and what it takes to draw and compile its graph (ms, medians)."""
    player = VectorPlayer(gymnasium.make_vec(case.env_id, num_envs=case.environments, **case.settings), 0)
    steps = steps_an_episode(player, calls)
    opened = Scenario.from_dict(case.settings["scenario"])
    drawn, compiled = [], []
    for episode in range(draws):
        began = time.perf_counter()
        graph = opened.graph(_FRESH_SEED, 0, episode)
        between = time.perf_counter()
        compile_graph(graph, opened.device, opened.options)
        drawn.append(1e3 * (between - began))
        compiled.append(1e3 * (time.perf_counter() - between))
    return {
        "steps_an_episode": steps,
        "commands_a_step": ratio(case.commands, steps),
        "draw_ms": median(drawn),
        "compile_ms": median(compiled),
    }


def row_of(case: Case, timing: Timing, peers: Peers) -> Row:
    """A row with its ratios; a single environment stands beside the single CartPole and beside no batch."""
    single = case.kind == "single"
    wrapped, pooled = (peers.of_jumanji(reset) for reset in ("wrapper", "pool"))
    beside = not single and case.threads == 1
    return Row(
        case.name,
        case.kind,
        case.environments,
        case.threads,
        case.commands,
        *timing,
        None if single else ratio(timing.rate, peers.serving[case.environments]),
        ratio(timing.rate, peers.cartpole[0 if single else case.environments]),
        ratio(timing.rate, wrapped["rate"]) if beside and wrapped else None,
        ratio(timing.rate, pooled["rate"]) if beside and pooled else None,
    )


# --- what is printed ------------------------------------------------------------------------------------


class Target(NamedTuple):
    """A figure that was aimed at."""

    name: str
    least: float
    found: float | None


def one_of(rows: Sequence[Row], case: str, kind: str, environments: int | None = None) -> list[Row]:
    """Rows of a case on one thread."""
    return [
        row
        for row in rows
        if (row.case, row.kind, row.threads) == (case, kind, 1) and environments in (None, row.environments)
    ]


def best(rows: Sequence[Row]) -> Row | None:
    """The fastest row."""
    return max(rows, key=lambda row: row.rate, default=None)


def targets(rows: Sequence[Row]) -> list[Target]:
    """What was aimed at, beside what was found."""
    headline = best(one_of(rows, "Serving", "vector"))
    adapter = best(one_of(rows, "Serving", "adapter"))
    (single,) = one_of(rows, "Serving", "single")
    (long,) = one_of(rows, LONG, "vector")
    (usual,) = one_of(rows, "Serving", "vector", long.environments)
    gains = [
        row.rate / one.rate
        for row in rows
        if row.threads == 2
        for one in one_of(rows, row.case, row.kind, row.environments)
    ]
    return [
        Target("steps a second, one thread", 500_000, headline and headline.rate),
        Target("the same, wished for", 1_000_000, headline and headline.rate),
        Target("over Jumanji's JobShop", 5.0, headline and headline.over_jumanji),
        Target("two threads over one", 1.8, max(gains, default=None)),
        Target("long graphs over usual ones", 0.6, long.rate / usual.rate),
        Target("single over single CartPole", 1 / 3, single.over_cartpole),
        Target("steps a second, SB3 adapter", 300_000, adapter and adapter.rate),
    ]


def show(
    rows: Sequence[Row], facts: dict[str, float | None], jumanji: dict[str, Any], found: dict[str, str]
) -> None:
    """The table of rates, Jumanji's own, and the figures aimed at."""
    columns = ["case", "as", "envs", "threads", "commands", "steps/s", "alone", "cores"]
    columns += ["x Serving", "x CartPole", "x Jumanji", "x pooled"]
    lines = [
        [
            row.case,
            row.kind,
            str(row.environments),
            str(row.threads),
            number(row.commands, 0),
            f"{row.rate:,.0f}",
            f"{row.alone:,.0f}",
            number(row.cores, 2),
            *(number(value, 2) for value in row[-4:]),
        ]
        for row in rows
    ]
    notes = [
        machine_line(found),
        "A step is one decision, with reward, full observation and mask; nothing here calls BLAS.",
        f"An episode takes {number(facts['steps_an_episode'], 0)} steps, a step issues "
        f"{number(facts['commands_a_step'], 2)} commands on average (Serving). An instance that is new takes "
        f"{number(facts['draw_ms'], 1)} ms to draw and {number(facts['compile_ms'], 1)} ms to compile.",
    ]
    print_table("Steps a second", columns, lines, notes)
    show_jumanji(jumanji, rows, facts)
    aims = [
        [aim.name, _figure(aim.least), "-" if aim.found is None else _figure(aim.found), _verdict(aim)]
        for aim in targets(rows)
    ]
    print_table("Figures aimed at", ["", "least", "found", ""], aims)


def show_jumanji(jumanji: dict[str, Any], rows: Sequence[Row], facts: dict[str, float | None]) -> None:
    """Jumanji's rows, tick by tick and placement by placement; or that it is not there."""
    if "missing" in jumanji:
        print(
            f"Jumanji: {jumanji['missing']!r} is not installed for the interpreter that was named; "
            "pip install jumanji there, or name another one: --jumanji-python PATH\n"
        )
        return
    headline = best(one_of(rows, "Serving", "vector"))
    commands = headline.rate * (facts["commands_a_step"] or 0.0) if headline else 0.0
    lines = []
    for row in jumanji["rows"]:
        placed = row["rate"] * row["placed_a_tick"]
        lines.append(
            [
                f"{row['reset']}, {row['environments']} envs",
                f"{row['rate']:,.0f}",
                number(row["cores"], 2),
                number(row["ticks_an_episode"], 0),
                f"{placed:,.0f}",
                number(ratio(commands or None, placed), 2),
            ]
        )
    columns = [
        "JobShop",
        "ticks/s",
        "cores",
        "ticks an episode",
        "placements/s",
        "commands/s over placements/s",
    ]
    versions = ", ".join(f"{name} {value}" for name, value in jumanji["versions"].items())
    notes = [f"{versions}, in its own process, XLA on one thread; the policy's time is in it."]
    print_table("Jumanji, by what follows an episode's end", columns, lines, notes)


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.2f}"


def _verdict(aim: Target) -> str:
    if aim.found is None:
        return "not measured"
    return "reached" if aim.found >= aim.least else "missed"


def main() -> None:
    """Measure and print."""
    parser = arguments(__doc__, device=False)
    parser.add_argument("--environments", type=int, nargs="+", default=[64, 256, 1024])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each case and run")
    parser.add_argument("--instances", type=int, default=256, help="different graphs of a case")
    parser.add_argument("--jumanji-python", default=sys.executable, help="interpreter that has Jumanji")
    parser.add_argument("--jumanji-environments", type=int, nargs="+", default=[64, 512])
    parser.add_argument("--quick", action="store_true", help="tiny: shows that it works, and no more")
    given = parser.parse_args()
    sizes = Sizes(given.instances, min(64, given.instances), 100, 1000)
    if given.quick:
        sizes = QUICK
        given.environments, given.runs, given.seconds, given.jumanji_environments = [2], 1, 0.0, [2]
    found = cases(given.environments, given.threads, sizes)
    with progress(len(found) + given.runs + 2) as begin:
        rows, jumanji = measure(found, given, begin)
        begin("new instances")
        facts = instance_facts(found[0], round(8 * found[0].commands), sizes.draws)
    if given.json:
        print_json(rows=rows, targets=targets(rows), facts=facts, jumanji=jumanji, machine=machine())
        return
    show(rows, facts, jumanji, machine())


if __name__ == "__main__":
    main()
