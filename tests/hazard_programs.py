"""Small programs with something wrong in them, and the same put right; see the files in ``acl_hazards``.

Each is written as the change from one to the other: lines behind ``-`` are only in the wrong program, lines
behind ``+`` only in the right one. Lines are named by ``#name`` at their end.
"""

from __future__ import annotations

import ast
import builtins
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cann_env.acl as acl
from cann_env.acl.checks.hazards import Hazard, hazards
from cann_env.acl.program import run_program

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cann_env.acl.state.simulator import Simulator

FOLDER = Path(__file__).parent / "acl_hazards"

BEGIN = """\
import acl, numpy as np
rt, N, H2D, D2H, D2D = acl.rt, 4096, 1, 2, 3
acl.init(); rt.set_device(0)
s1 = rt.create_stream()[0]
s2 = rt.create_stream()[0]
s3 = rt.create_stream()[0]
e1, e2, e3 = [rt.create_event_ex_with_flag(0)[0] for _ in range(3)]
n1, n2, n3 = [rt.create_notify(0)[0] for _ in range(3)]
a = rt.malloc(N, 0)[0]
b = rt.malloc(N, 0)[0]
c = rt.malloc(N, 0)[0]
h = rt.malloc_host(N)[0]
g = rt.malloc_host(N)[0]
x = np.zeros(N, np.uint8)
hv = acl.util.ptr_to_numpy(h, (N,), "uint8")
gv = acl.util.ptr_to_numpy(g, (N,), "uint8")
binary = rt.binary_load_from_file("kernels.o")[0]
put, get, inc, map_, mix, slow = [
    rt.binary_get_function(binary, name)[0] for name in ("put", "get", "inc", "map", "mix", "slow")
]
go, copy, running = rt.launch_kernel, rt.memcpy_async, [True]
def handle(_):
    while running[0]:
        rt.process_report(100)
thread = acl.util.start_thread(handle, 0)[0]
rt.subscribe_report(thread, s1)
"""

END = """\
rt.synchronize_device()
rt.unsubscribe_report(thread, s1); running[0] = False; acl.util.stop_thread(thread)
for memory in (a, b, c): rt.free(memory)
for memory in (h, g): rt.free_host(memory)
for event in (e1, e2, e3): rt.destroy_event(event)
for notify in (n1, n2, n3): rt.destroy_notify(notify)
for stream in (s1, s2, s3): rt.destroy_stream(stream)
rt.reset_device(0)  #end
acl.finalize()  #final
"""


def define_kernels() -> None:
    """The kernels that the programs launch."""

    def fill(out: Any) -> None:
        out[...] = 1

    def mix(one: Any, other: Any, out: Any) -> None:
        size = min(one.size, other.size, out.size)
        out[:size] = one[:size] + other[:size]

    def copy(one: Any, out: Any) -> None:
        size = min(one.size, out.size)
        out[:size] = one[:size] * 3 + 1

    acl.define_kernel("put", writes=(0,), dtype="uint8", function=fill)
    acl.define_kernel("slow", writes=(0,), dtype="uint8", duration_ns=5_000_000)
    acl.define_kernel("get", reads=(0,), dtype="uint8")
    acl.define_kernel("inc", reads=(0,), writes=(0,), dtype="uint8")
    acl.define_kernel("map", reads=(0,), writes=(1,), dtype="uint8", function=copy)
    acl.define_kernel("mix", reads=(0, 1), writes=(2,), dtype="uint8", function=mix)


@dataclass(frozen=True)
class Pair:
    """A wrong program and its twin.

    Attributes:
        name: What it is about.
        wanted: Kind, names of two lines (``-`` for none), and name of the buffer (``-`` for none).
        wrong, right: The programs.
    """

    name: str
    wanted: tuple[tuple[str, str, str, str], ...]
    wrong: str
    right: str

    def expected(self) -> list[tuple[str, int, int, str]]:
        """What is to be found in the wrong program, with lines as numbers; 0 for none."""
        places = {
            line.rpartition("#")[2]: number
            for number, line in enumerate(self.wrong.splitlines(), 1)
            if "  #" in line
        }
        return sorted(
            (kind, places.get(first, 0), places.get(second, 0), "" if buffer == "-" else buffer)
            for kind, first, second, buffer in self.wanted
        )


def pairs() -> list[Pair]:
    """All of them."""
    found = []
    for path in sorted(FOLDER.glob("*.txt")):
        for part in path.read_text().split("== ")[1:]:
            head, _, body = part.partition("\n")
            name, _, wanted = head.rpartition(": ")
            rows = tuple(tuple([*row.split(), "-"][:4]) for row in wanted.split("; "))
            lines = body.splitlines()
            wrong = [line[2:] if line.startswith("- ") else line for line in lines if line[:2] != "+ "]
            right = [line[2:] if line.startswith("+ ") else line for line in lines if line[:2] != "- "]
            texts = [BEGIN + "\n".join(text) + "\n" + END for text in (wrong, right)]
            found.append(Pair(name, rows, *texts))  # type: ignore[arg-type]
    return found


def run_text(text: str, folder: Path, **options: Any) -> tuple[Simulator, list[Hazard]]:
    """Run a program and look at it."""
    define_kernels()
    path = folder / "program.py"
    path.write_text(text)
    run = run_program(path, options.pop("device", "ascend910b2"), **options)
    return run, hazards(run, ended=True)


def named(run: Simulator, text: str, found: Sequence[Hazard]) -> list[tuple[str, int, int, str]]:
    """Hazards as a :class:`Pair` writes them: with lines as numbers, and buffers by the program's names."""
    sites = {allocation.name: allocation.site for allocation in run.memory.allocations}
    lines = text.splitlines()
    rows = []
    for hazard in found:
        buffer = ""
        if hazard.buffer:
            made = lines[_line(sites[hazard.buffer]) - 1]
            buffer = "x" if "numpy_to_ptr" in made else made.partition(" ")[0]
        rows.append((hazard.kind.value, _line(hazard.first), _line(hazard.second), buffer))
    return sorted(rows)


def _line(site: str) -> int:
    return int(site.rpartition(":")[2]) if ":" in site else 0


def mended(text: str, found: Sequence[Hazard]) -> str:
    """A program with the calls that hazards say are missing, on the lines that they name."""
    lines = text.splitlines()
    ends = {node.lineno: node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.stmt)}
    for number, hazard in enumerate(found):
        for step in hazard.steps:
            place = _line(step.site)
            assert place in ends
            line = lines[place - 1].partition("  #")[0]
            call = f"_mend({number}, {step.call!r}, {step.stream})"
            indent = line[: len(line) - len(line.lstrip())]
            if step.side == "before":
                lines[place - 1] = f"{indent}{call}; {line.lstrip()}"
            else:
                lines[place - 1] = f"{line}; {call}"
    return "\n".join(lines) + "\n"


@contextmanager
def mending(before: Simulator) -> Iterator[None]:
    """Within it, programs can make the calls that :func:`mended` adds.

    Args:
        before: The run that named the streams; the same ones have other handles in the next.
    """
    order = list(before.made_streams)
    events: dict[int, int] = {}

    def mend(number: int, call: str, handle: int) -> None:
        run = acl.simulator()
        stream = list(run.made_streams)[order.index(handle)]
        if run.streams[stream].default:
            stream = 0
        if call == "synchronise":
            acl.rt.synchronize_stream(stream)
            return
        if number not in events:
            events[number] = acl.rt.create_event_ex_with_flag(0)[0]
        if call == "record":
            acl.rt.record_event(events[number], stream)
        else:
            acl.rt.stream_wait_event(stream, events[number])

    builtins._mend = mend  # type: ignore[attr-defined]
    try:
        yield
    finally:
        del builtins._mend  # type: ignore[attr-defined]
