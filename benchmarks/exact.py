"""What can be proved: problems of the literature with known optima, solved exactly and played by the engine.

``python benchmarks/exact.py --data PATH [--every N] [--limit N] [--seconds S] [--workers N] [--json]`` takes
a problem file, an archive of them, or a folder with archives (PSPLIB's ``j30.tar.gz`` and the like, with
their ``optimum.csv`` inside). Each problem is compiled, bounded, solved by CP-SAT within the time limit, and
what was found is played through the engine: a makespan in the table is the engine's, and ``optimal`` means
that it equals a bound that holds for every schedule of the engine. ``against`` counts problems where a bound
lies above the best published makespan, or a schedule below the published bound: there must be none.
"""

from __future__ import annotations

from pathlib import Path
from statistics import fmean, median
from typing import TYPE_CHECKING, NamedTuple

from tables import arguments, number, print_json, print_table, progress

from cann_env.program import compile_graph
from cann_env.solvers.cpsat import Proof, solve
from cann_env.solvers.strong import strong_bounds
from cann_env.workloads.from_psplib import from_psplib, problem_names

if TYPE_CHECKING:
    from collections.abc import Sequence

_ARCHIVES = (".tar.gz", ".tgz", ".tar", ".zip")


class Row(NamedTuple):
    """One problem: published bound and makespan, the engine's bound, the strong one, what was proved, found.

    Times in ns; ``least_ns`` and ``best_ns`` are None where nothing is published.
    """

    problem: str
    commands: int
    least_ns: int | None
    best_ns: int | None
    engine_ns: int
    strong_ns: int
    bound_ns: int
    found_ns: int
    status: str
    seconds: float

    @property
    def against(self) -> bool:
        """Whether this contradicts what is published."""
        above = self.best_ns is not None and self.bound_ns > self.best_ns
        return above or (self.least_ns is not None and self.found_ns < self.least_ns)


def problems(data: Path) -> list[str]:
    """Names of all problems of a file, an archive or a folder with archives."""
    if data.is_dir():
        archives = sorted(path for path in data.iterdir() if path.name.endswith(_ARCHIVES))
        return [name for path in archives for name in problem_names(path)]
    return list(problem_names(data)) if data.name.endswith(_ARCHIVES) else [str(data)]


def row_of(name: str, seconds: float, workers: int) -> Row:
    """Solve one problem."""
    problem = from_psplib(name)
    program = compile_graph(problem.graph, problem.device, problem.options)
    strong = strong_bounds(program).lower_bound_ns
    found = solve(program, seconds=seconds, workers=workers)
    return Row(
        name.rsplit("/", 1)[-1],
        len(problem.graph.commands),
        problem.least_ns,
        problem.best_ns,
        program.lower_bound_ns,
        strong,
        found.bound_ns,
        found.objective_ns or 0,
        str(found.status),
        round(found.seconds, 3),
    )


def _cells(row: Row) -> list[str]:
    units = [row.least_ns, row.best_ns, row.engine_ns, row.strong_ns, row.bound_ns, row.found_ns]
    shown = ["-" if ns is None else f"{ns / 1000:g}" for ns in units]
    return [row.problem, str(row.commands), *shown, row.status, number(row.seconds, 2)]


def _notes(rows: Sequence[Row]) -> list[str]:
    proved = [row for row in rows if row.status == Proof.OPTIMAL]
    known = [row for row in rows if row.best_ns is not None]
    notes = [f"proved {len(proved)} of {len(rows)}; against {sum(row.against for row in rows)}"]
    spent = [row.seconds for row in rows]
    notes.append(f"seconds: median {median(spent):.2f}, largest {max(spent):.2f}, in all {sum(spent):.0f}")
    if known:
        over = {
            "found": [row.found_ns for row in known],
            "strong bound": [row.strong_ns for row in known],
            "engine's bound": [row.engine_ns for row in known],
        }
        best = [row.best_ns or 1 for row in known]
        gaps = [
            f"{name} {100 * fmean(a / b - 1 for a, b in zip(values, best, strict=True)):+.2f} %"
            for name, values in over.items()
        ]
        notes.append(f"mean over the best published: {', '.join(gaps)}")
    return notes


def main() -> None:
    """Run what the command line asks for."""
    parser = arguments(__doc__, device=False)
    parser.add_argument(
        "--data", type=Path, required=True, help="a problem, an archive, or a folder of archives"
    )
    parser.add_argument("--every", type=int, default=1, help="take every so many-th problem")
    parser.add_argument("--limit", type=int, help="take at most so many")
    parser.add_argument("--seconds", type=float, default=60.0, help="time limit of each problem")
    parser.add_argument("--workers", type=int, default=2, help="threads of the solver")
    parser.add_argument("--unproved", action="store_true", help="show only problems that were not proved")
    chosen = parser.parse_args()
    names = problems(chosen.data)[:: chosen.every][: chosen.limit]
    rows = []
    with progress(len(names)) as begin:
        for name in names:
            begin(name.rsplit("/", 1)[-1])
            rows.append(row_of(name, chosen.seconds, chosen.workers))
    if chosen.json:
        print_json(rows=rows)
        return
    shown = [row for row in rows if not chosen.unproved or row.status != Proof.OPTIMAL]
    columns = ("problem", "n", "least", "best", "engine", "strong", "bound", "found", "status", "seconds")
    title = f"Exact, {chosen.seconds:g} s each, {chosen.workers} workers; times in units of the problem"
    print_table(title, columns, [_cells(row) for row in shown], _notes(rows))


if __name__ == "__main__":
    main()
