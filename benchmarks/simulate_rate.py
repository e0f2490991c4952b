"""Commands a second of simulating a fixed plan, with and without transfers, beside list schedulers.

``python benchmarks/simulate_rate.py [--commands 100 1000 5000] [--scheduler per_engine] [--runs 5]
[--seconds 1.0] [--saga-python PATH] [--json] [--quick]``

A plan is the list of all decisions that a scheduler took for a random layered graph, waits included. It is
run again and again on a copy of the state before the first decision, the copying included, on one core,
without a trace. Graphs take turns, and so do the settings; figures are medians of all runs.

Transfers are copies and migrations of weights, which share the link from the host as kernels share the
memory's bandwidth. In "none" all weights lie on the device and nothing but the first input and the last
outputs is copied; in "some" a quarter of the commands read weights from the host and a few are copies; in
"each" all commands read weights of their own from the host. The table says how many transfers there are.

Beside it stand two list schedulers that simulate far less (one task a processor, a fixed delay an edge): a
plain one on networkx, which is part of this file, and HEFT of SAGA (``peer_saga.py``) by the interpreter
that ``--saga-python`` names, by default this one. Both get the same commands with their durations, and edges
that take as long as their bytes take over the link from the host; eight processors.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import networkx as nx
import numpy as np
from rates import machine, machine_line, run_peer, take_turns
from tables import arguments, number, print_json, print_table, progress, ratio

from cann_env.device.load import load_device
from cann_env.engine.step import run_actions
from cann_env.graph import CommandKind, Level
from cann_env.options import RunOptions
from cann_env.program import compile_graph
from cann_env.schedulers import decide, make_scheduler, record_schedule
from cann_env.workloads.generators import layered
from cann_env.workloads.kernels import Traits, blocks_at_once

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cann_env.device.spec import DeviceSpec
    from cann_env.program import Program

TRAITS = {
    "none": Traits(weights=Level.HBM, copy_share=0.0, callback_share=0.0),
    "some": Traits(),
    "each": Traits(weights_share=1.0),
}
PROCESSORS = 8
TARGET = 1_000_000
TARGET_COMMANDS = 1000
_WIDTH, _DENSITY = 12, 0.2
_COPIES = ("fault", "prefetch", "writeback", "lift")


class Row(NamedTuple):
    """Commands a second of graphs of one size, and of the schedulers beside them; None for one left out."""

    transfers: str
    commands: float
    transfers_a_command: float
    decisions_a_command: float
    rate: float
    cores: float
    listing: float
    saga: float | None
    over_listing: float
    over_saga: float | None


class Plan(NamedTuple):
    """A graph ready to be simulated, and what the list schedulers see of it.

    Attributes:
        program: The graph, compiled.
        actions: Decisions, int64.
        transfers: Copies and migrations that happen.
        costs: Duration of each command in the plan (ns).
        edges: From, to, and how long what is handed over takes over the link from the host (ns).
    """

    program: Program
    actions: Any
    transfers: int
    costs: list[int]
    edges: list[tuple[int, int, int]]


def make_plan(commands: int, transfers: str, seed: int, device: DeviceSpec, scheduler: str) -> Plan:
    """Draw a graph and let a scheduler decide."""
    rng = np.random.Generator(np.random.PCG64(seed))
    cores = blocks_at_once(device)
    graph = layered(rng, commands, _WIDTH, _DENSITY, cores, traits=TRAITS[transfers])
    program = compile_graph(graph, device, RunOptions())
    outcome = decide(program, make_scheduler(scheduler))
    schedule = record_schedule(program, outcome.actions)
    moved = sum(run.cause in _COPIES for run in schedule.transfers)
    copied = sum(command.kind is CommandKind.COPY for command in graph.commands)
    costs = [0] * len(graph.commands)
    for run in schedule.commands:
        costs[run.command] = max(1, run.finish_ns - run.start_ns)
    link = device.links["h2d"]
    per_ns = link.bandwidth_bytes_per_s * link.efficiency / 1e9
    sizes = {buffer.name: buffer.size_bytes for buffer in graph.buffers}
    edges = []
    for c, before in enumerate(graph.predecessors):
        for b in before:
            shared = set(graph.commands[b].writes) & set(graph.commands[c].reads)
            bytes_ = 0 if transfers == "none" else sum(sizes[name] for name in shared)
            edges.append((b, c, int(bytes_ / per_ns)))
    actions = np.asarray(outcome.actions, np.int64)
    return Plan(program, actions, moved + copied, costs, edges)


# --- players --------------------------------------------------------------------------------------------


class PlanPlayer:
    """Simulates plans one after another; a step is a command."""

    def __init__(self, plans: Sequence[Plan]) -> None:
        self.count = sum(len(plan.costs) for plan in plans)
        self._parts = [
            (plan.program.image, base, base.copy(), plan.actions)
            for plan in plans
            for base in [plan.program.new_state()]
        ]

    def choose(self) -> None:
        """Nothing: the plans are there."""

    def advance(self, actions: None) -> None:
        """Simulate all plans."""
        for image, base, state, decisions in self._parts:
            np.copyto(state, base)
            run_actions(image, state, decisions)


class ListPlayer:
    """Schedules the same graphs with :func:`list_schedule`; a step is a command."""

    def __init__(self, plans: Sequence[Plan]) -> None:
        self.count = sum(len(plan.costs) for plan in plans)
        self._graphs = [as_networkx(plan) for plan in plans]

    def choose(self) -> None:
        """Nothing: the scheduler decides."""

    def advance(self, actions: None) -> None:
        """Schedule all graphs."""
        for graph in self._graphs:
            list_schedule(graph, PROCESSORS)


def as_networkx(plan: Plan) -> nx.DiGraph[int]:
    """Commands with ``cost`` and edges with ``delay``."""
    graph: nx.DiGraph[int] = nx.DiGraph()
    for c, cost in enumerate(plan.costs):
        graph.add_node(c, cost=cost)
    for a, b, delay in plan.edges:
        graph.add_edge(a, b, delay=delay)
    return graph


def list_schedule(graph: nx.DiGraph[int], processors: int) -> dict[int, tuple[int, int, int]]:
    """Put each task, longest path to the end first, where it finishes first.

    Args:
        graph: Tasks with ``cost``, edges with ``delay`` (paid between different processors).
        processors: How many, all equal.

    Returns:
        Processor, start and finish of each task.
    """
    tail: dict[int, int] = {}
    for task in reversed(list(nx.topological_sort(graph))):
        after = max((edge["delay"] + tail[child] for child, edge in graph.adj[task].items()), default=0)
        tail[task] = graph.nodes[task]["cost"] + after
    free = [0] * processors
    placed: dict[int, tuple[int, int, int]] = {}
    for task in sorted(tail, key=lambda task: (-tail[task], task)):
        before = [(*placed[parent], edge["delay"]) for parent, edge in graph.pred[task].items()]
        best = (0, 0)
        for p in range(processors):
            start = free[p]
            for other, _, finish, delay in before:
                ready = finish if other == p else finish + delay
                start = max(start, ready)
            if p == 0 or start < best[0]:
                best = (start, p)
        start, p = best
        free[p] = start + graph.nodes[task]["cost"]
        placed[task] = (p, start, free[p])
    return placed


# --- what is measured -----------------------------------------------------------------------------------


def measure(given: Any, begin: Callable[[str], None]) -> tuple[list[Row], dict[str, Any]]:
    """Simulate everything; the rows, and what SAGA's script said last."""
    device = load_device(given.device)
    settings = [(transfers, commands) for commands in given.commands for transfers in TRAITS]
    plans: dict[tuple[str, int], list[Plan]] = {}
    for transfers, commands in settings:
        begin(f"planning {commands}, transfers: {transfers}")
        seeds = range(max(2, given.total // commands))
        plans[transfers, commands] = [
            make_plan(commands, transfers, seed, device, given.scheduler) for seed in seeds
        ]
    players: dict[str, tuple[Any, int]] = {}
    for key in settings:
        players[f"plan {key}"] = PlanPlayer(plans[key]), 1
        players[f"list {key}"] = ListPlayer(plans[key]), 1
    timings = take_turns(players, given.runs, given.seconds, begin)
    rows, saga = [], {}
    for transfers, commands in settings:
        begin(f"SAGA {commands}, transfers: {transfers}")
        own = plans[transfers, commands]
        if "missing" not in saga and commands <= given.saga_most:
            saga = run_saga(own, given.saga_python, given.runs)
        saga_rate = saga.get("rate") if commands <= given.saga_most else None
        timing, listing = (timings[f"{what} {(transfers, commands)}"] for what in ("plan", "list"))
        total = sum(len(plan.costs) for plan in own)
        rows.append(
            Row(
                transfers,
                total / len(own),
                sum(plan.transfers for plan in own) / total,
                sum(plan.actions.size for plan in own) / total,
                timing.rate,
                timing.cores,
                listing.rate,
                saga_rate,
                timing.rate / listing.rate,
                ratio(timing.rate, saga_rate),
            )
        )
    return rows, saga


def run_saga(plans: Sequence[Plan], python: str, runs: int) -> dict[str, Any]:
    """Let SAGA schedule the first graphs."""
    graphs = [{"costs": plan.costs, "edges": plan.edges} for plan in plans[:2]]
    asked = json.dumps({"processors": PROCESSORS, "graphs": graphs})
    return run_peer("peer_saga.py", python, ["--runs", str(runs)], asked)


def show(rows: Sequence[Row], saga: dict[str, Any], found: dict[str, str]) -> None:
    """One line a setting."""
    columns = ["transfers", "commands", "transfers each", "decisions each", "commands/s", "cores"]
    columns += ["networkx list/s", "SAGA HEFT/s", "x networkx", "x SAGA"]
    lines = [
        [
            row.transfers,
            f"{row.commands:,.0f}",
            number(row.transfers_a_command, 2),
            number(row.decisions_a_command, 2),
            f"{row.rate:,.0f}",
            number(row.cores, 2),
            f"{row.listing:,.0f}",
            "-" if row.saga is None else f"{row.saga:,.0f}",
            number(row.over_listing, 1),
            number(row.over_saga, 1),
        ]
        for row in rows
    ]
    notes = [machine_line(found)]
    if "missing" in saga:
        notes.append(
            f"SAGA: {saga['missing']!r} is not installed for the interpreter that was named; "
            "name another one: --saga-python PATH"
        )
    elif saga:
        notes.append(", ".join(f"{name} {version}" for name, version in saga["versions"].items()))
    aimed = [row for row in rows if row.transfers != "none" and 0.9 < row.commands / TARGET_COMMANDS < 1.1]
    for row in aimed:
        verdict = "reached" if row.rate >= TARGET else "missed"
        notes.append(
            f"Aim of {TARGET:,} at {TARGET_COMMANDS:,} commands, transfers {row.transfers}: {verdict}."
        )
    print_table("Commands a second, one core", columns, lines, notes)


def main() -> None:
    """Measure and print."""
    parser = arguments(__doc__)
    parser.add_argument("--commands", type=int, nargs="+", default=[100, 1000, 5000])
    parser.add_argument("--scheduler", default="per_engine", help="whose plans are simulated")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each setting and run")
    parser.add_argument("--total", type=int, default=4000, help="commands of all graphs of a size together")
    parser.add_argument("--saga-python", default=sys.executable, help="interpreter that has anrg-saga")
    parser.add_argument("--saga-most", type=int, default=1000, help="commands beyond which SAGA is left out")
    parser.add_argument("--quick", action="store_true", help="tiny: shows that it works, and no more")
    given = parser.parse_args()
    if given.quick:
        given.commands, given.runs, given.seconds, given.total = [20, 40], 1, 0.0, 40
    with progress(2 * len(TRAITS) * len(given.commands) + given.runs) as begin:
        rows, saga = measure(given, begin)
    if given.json:
        print_json(rows=rows, saga=saga, machine=machine())
        return
    show(rows, saga, machine())


if __name__ == "__main__":
    main()
