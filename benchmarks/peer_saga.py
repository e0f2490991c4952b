"""Tasks a second that SAGA's HEFT schedules, for ``simulate_rate.py`` to set beside its own; prints JSON.

It imports nothing of this project, so that it runs wherever SAGA is installed (``pip install anrg-saga``).
Graphs come in on standard input as JSON, ``{"processors": 8, "graphs": [{"costs": [...], "edges": [[from,
to, size], ...]}, ...]}``, and are scheduled on equal processors joined by equal links. Only ``schedule`` is
timed, not the making of SAGA's own graphs. Arguments: ``[--runs 5]``.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from importlib.metadata import version
from importlib.util import find_spec
from statistics import median
from typing import Any


def problem(graph: dict[str, Any], processors: int) -> tuple[Any, Any]:
    """A network and a task graph as SAGA takes them."""
    from saga import Network, TaskGraph

    names = [f"p{i}" for i in range(processors)]
    links = [(a, b, 1.0) for i, a in enumerate(names) for b in names[i + 1 :]]
    network = Network.create(nodes=[(name, 1.0) for name in names], edges=links)
    tasks = [(f"t{i}", float(cost)) for i, cost in enumerate(graph["costs"])]
    edges = [(f"t{a}", f"t{b}", float(size)) for a, b, size in graph["edges"]]
    return network, TaskGraph.create(tasks=tasks, dependencies=edges)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=5)
    given = parser.parse_args()
    if find_spec("saga") is None:
        print(json.dumps({"missing": "anrg-saga"}))
        return
    from saga.schedulers import HeftScheduler

    asked = json.load(sys.stdin)
    problems = [problem(graph, asked["processors"]) for graph in asked["graphs"]]
    tasks = sum(len(graph["costs"]) for graph in asked["graphs"])
    rates = []
    for _ in range(given.runs):
        began = time.perf_counter()
        for network, graph in problems:
            HeftScheduler().schedule(network, graph)
        rates.append(tasks / (time.perf_counter() - began))
    print(
        json.dumps({"rate": median(rates), "rates": rates, "versions": {"anrg-saga": version("anrg-saga")}})
    )


if __name__ == "__main__":
    main()
