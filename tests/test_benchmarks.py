"""The benchmarks at a tiny setting: what they print can be read back, and keeps the laws of its table."""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from problem_files import OPTIMA, SM

from cann_env.cli.scores import Score
from cann_env.commands import Buffer, BufferKind, Command, CommandKind, Kernel, KernelClass
from cann_env.device.load import load_device
from cann_env.graph import CommandGraph
from cann_env.options import RunOptions
from cann_env.program import compile_graph
from cann_env.schedulers import ORDERS
from cann_env.schedulers.usage import simulate
from cann_env.units import InputError
from cann_env.workloads.kernels import blocks_at_once

if TYPE_CHECKING:
    from types import ModuleType

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
MIB = 1 << 20


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Import a file of the benchmarks as if it was run from its folder."""
    pytest.importorskip("rich")
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module


def rows_of(
    module: ModuleType, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> list[dict[str, Any]]:
    """What a benchmark prints as JSON; progress goes elsewhere."""
    monkeypatch.setattr(sys, "argv", ["benchmark", *words.split(), "--json"])
    module.main()
    rows: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["rows"]
    return rows


def test_prefetchers_stay_above_the_bound_of_the_links(benchmark, monkeypatch, capsys) -> None:
    module = benchmark("prefetch")
    words = "--graphs transformer-4096 --factors 1.0 0.5 --policies aggressive"
    rows = rows_of(module, words, monkeypatch, capsys)
    assert set(rows[0]) == set(module.Row._fields)
    assert len(rows) == 2 * 2
    assert all(row["bound"] >= 1.0 and row["over_bound"] >= 1.0 for row in rows)
    assert {row["factor"] for row in rows if row["bound"] > module.LINK_BOUND} == {0.5}
    assert all(row["over_lru"] == 1.0 for row in rows if row["policy"] == "on_demand_lru")


@pytest.mark.slow
def test_the_plan_is_near_the_bound_where_commands_set_it(benchmark, monkeypatch, capsys) -> None:
    module = benchmark("prefetch")
    rows = rows_of(module, "--factors 0.7 0.5 --policies migration", monkeypatch, capsys)
    plans = [row for row in rows if row["policy"] == "migration"]
    free = [row for row in plans if row["bound"] <= module.LINK_BOUND]
    assert len(free) >= 2
    assert max(row["over_bound"] for row in free) <= 1.1
    assert max(row["over_bound"] for row in plans) <= 1.35
    assert all(row["over_bound"] >= 1.0 for row in rows)


def chain_of_two(device_memory: int) -> tuple[Any, Any]:
    """Two activations, made one after the other and read in the opposite order, and room for one.

    ::

        make a --> make b --> use b --> use a        a: 64 MiB, b: 64 MiB
    """
    size = 64 * MIB

    def command(name: str, reads: tuple[str, ...], writes: tuple[str, ...]) -> Command:
        kernel = Kernel(name=name, kernel_class=KernelClass.VECTOR, duration_ns=1000)
        return Command(name=name, kind=CommandKind.KERNEL, kernels=(kernel,), reads=reads, writes=writes)

    commands = [
        command("make_a", (), ("a",)),
        command("make_b", (), ("b",)),
        command("use_b", ("b",), ()),
        command("use_a", ("a",), ()),
    ]
    chained = [commands[0]] + [replace(after, after=(before.name,)) for before, after in pairwise(commands)]
    buffers = tuple(Buffer(name=name, size_bytes=size, kind=BufferKind.MANAGED) for name in "ab")
    graph = CommandGraph("two", tuple(chained), buffers)
    options = RunOptions(streams=1, run_ahead=2, l2_bytes=0, hbm_bytes=device_memory)
    wide = replace(options, hbm_bytes=1024 * MIB)
    device = load_device("ascend910b2")
    return compile_graph(graph, device, options), simulate(
        compile_graph(graph, device, wide), ORDERS["single_stream"]()
    )


def test_the_bound_by_hand(benchmark) -> None:
    """28 MiB leave before ``make_b`` starts, and come back behind its end, before ``use_a`` starts.

    ::

        28 MiB out    make_b    28 MiB in    use_a
    """
    link_bound = benchmark("link_bound").link_bound
    program, wide = chain_of_two(100 * MIB)
    found = link_bound(program, wide)
    link = program.device.links["h2d"]
    once = 28 * MIB / (link.bandwidth_bytes_per_s * link.efficiency / 1e9)
    starts = [*(run.start_ns for run in wide.commands), wide.makespan_ns]
    assert found.out_bytes == found.in_bytes == 28 * MIB
    by_hand = once + (starts[2] - starts[1]) + once + (starts[4] - starts[3])
    assert found.bound_ns == pytest.approx(by_hand, abs=5)
    assert found.bound_ns <= simulate(program, ORDERS["single_stream"]()).makespan_ns


def test_the_bound_is_the_time_without_limit_if_all_fits(benchmark) -> None:
    program, wide = chain_of_two(512 * MIB)
    found = benchmark("link_bound").link_bound(program, wide)
    assert (found.bound_ns, found.out_bytes, found.in_bytes) == (wide.makespan_ns, 0, 0)


def test_some_lifting_pays_and_too_much_does_not(benchmark, monkeypatch, capsys) -> None:
    module = benchmark("l2_prefetch")
    small = replace(module.SHAPES["7b-8way-b16"], layers=2)
    monkeypatch.setitem(module.SHAPES, "7b-8way-b16", small)
    rows = rows_of(module, "--graphs 7b-8way-b16 --megabytes 0 0.5 5 18", monkeypatch, capsys)
    assert set(rows[0]) == set(module.Row._fields)
    none, little, good, much = (row["speed"] for row in rows)
    assert none == 1.0
    assert much < 1.0 < little < good
    assert [row["best"] for row in rows] == [False, False, True, False]
    assert all(row["duplicate_speed"] <= row["speed"] + 1e-3 for row in rows)
    assert rows[2]["duplicate_speed"] < good - 0.01


def test_decoding_reads_what_its_weights_hold(benchmark) -> None:
    module = benchmark("decoding")
    cores = blocks_at_once(load_device("ascend910b2"))
    graph = module.decoding(module.DecodeShape(layers=2, devices=4), cores)
    weights = [buffer for buffer in graph.buffers if buffer.name.endswith("/weight")]
    assert sum(buffer.size_bytes for buffer in weights) == 2 * 2 * 4096 * (4 * 4096 + 3 * 11008) // 4
    lifted = {graph.buffers[lift.weight].name.split("/")[1] for lift in module.quiet_lifts(graph)}
    assert lifted == {"qkv", "gate_up", "down"}  # attention, which is heavy, runs right before "out"
    for lift in module.quiet_lifts(graph):
        between = graph.commands[lift.behind + 1 : lift.user]
        assert all(
            c.kind is CommandKind.COLLECTIVE or c.kernels[0].kernel_class is KernelClass.VECTOR
            for c in between
        )


def test_one_prefetch_stream_is_best_over_the_link_from_the_host(benchmark, monkeypatch, capsys) -> None:
    module = benchmark("prefetch_streams")
    monkeypatch.setitem(module.COLD, "cold-1024", replace(module.COLD["cold-1024"], layers=3))
    rows = rows_of(module, "--graphs cold-1024 --streams 1 4 16", monkeypatch, capsys)
    assert set(rows[0]) == set(module.Row._fields)
    for setting in {row["setting"] for row in rows}:
        speeds = [row["speed"] for row in rows if row["setting"] == setting]
        assert speeds[0] == 1.0
        assert speeds == sorted(speeds, reverse=True)
        assert speeds[-1] < 0.98


def test_prefetch_gains_most_where_transfer_and_compute_are_alike(benchmark, monkeypatch, capsys) -> None:
    module = benchmark("cold_weights")
    monkeypatch.setitem(
        module.SHAPES, "transformer-1024", replace(module.SHAPES["transformer-1024"], layers=4)
    )
    words = "--graphs transformer-1024 --tokens 256 8192 65536"
    rows = rows_of(module, words, monkeypatch, capsys)
    assert set(rows[0]) == set(module.Row._fields)
    assert all(row["over_bound"] >= 1.0 and row["gain"] >= row["gain_without_faults"] for row in rows)
    few, alike, many = rows
    assert few["ratio"] > module.LIKE > alike["ratio"] > 1 / module.LIKE > many["ratio"]
    assert alike["gain_without_faults"] >= 1.3
    assert alike["gain_without_faults"] > max(few["gain_without_faults"], many["gain_without_faults"])


def test_rates_are_set_beside_each_other(benchmark, monkeypatch, capsys) -> None:
    module = benchmark("managed_rate")
    rows = rows_of(module, "--graphs transformer --runs 1 --steps 3", monkeypatch, capsys)
    assert set(rows[0]) == set(module.Row._fields)
    (row,) = rows
    assert row["managed_buffers"] == 28
    assert row["ample_ratio"] == pytest.approx(row["device_ample"] / row["managed_ample"])
    assert row["tight_ratio"] == pytest.approx(row["device_tight"] / row["managed_tight"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("prefetch", "--graphs transformer-8192 --factors 0.7 --policies aggressive"),
        ("l2_prefetch", "--graphs 7b-8way-b16 --megabytes 0 4"),
        ("prefetch_streams", "--graphs decode-7b-8way-b16 --streams 1 2"),
        ("cold_weights", "--graphs transformer-1024 --tokens 1024"),
        ("managed_rate", "--graphs transformer --runs 1 --steps 3"),
    ],
)
def test_tables_name_what_was_run(name: str, words: str, benchmark, monkeypatch, capsys) -> None:
    monkeypatch.setattr(sys, "argv", ["benchmark", *words.split()])
    benchmark(name).main()
    printed = capsys.readouterr()
    assert words.split()[1].removeprefix("decode-") in printed.out
    assert "┃" in printed.out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("l2_prefetch", "--graphs 7b-8way-b16 --megabytes 0 4"),
        ("cold_weights", "--graphs transformer-1024 --tokens 1024 2048"),
        ("prefetch_streams", "--graphs decode-7b-8way-b16 --streams 1 2"),
    ],
)
def test_a_sweep_can_be_drawn(name: str, words: str, benchmark, monkeypatch, capsys, tmp_path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "sweep.png"
    monkeypatch.setattr(sys, "argv", ["benchmark", *words.split(), "--plot", str(path)])
    benchmark(name).main()
    assert path.read_bytes().startswith(b"\x89PNG")


# --- schedulers against bounds, optima and a baseline ------------------------------------------------------

TINY = """
[suite]
name = "tiny"
description = "Two small graphs."
[options]
streams = 2
[[members]]
kind = "workload"
family = "{device}"
workload = { kind = "layered", commands = 6, width = 3, traits = { weights = "hbm" } }
devices = ["ascend910b2", "ascend310b1"]
"""


def scored(scheduler: str, case: str, value: int | None, **changes: Any) -> Score:
    """A score against a baseline of 100 ns, with a bound of 80 ns."""
    fields: dict[str, Any] = {
        "family": "f", "case": case, "device": "toy", "calibrated": True, "commands": 2,
        "objective": "makespan",
        "scheduler": scheduler, "value_ns": value, "makespan_ns": value, "bound_ns": 80, "optimum_ns": None,
        "optimum_from": "", "baseline_ns": 100, "seconds": 0.5, "violations": 0, "failure": "",
    }  # fmt: skip
    return Score(**fields | changes)


def test_room_is_where_the_baseline_lies_above_the_bound(benchmark) -> None:
    """Baseline 100: on a and b the bound is 80, on c it is 96. Speedups of x: 2, 0.5, 0.97."""
    page = benchmark("schedulers").room_page(
        [
            *(scored("base", case, 100) for case in "ab"),
            scored("base", "c", 100, bound_ns=96),
            scored("x", "a", 50),
            scored("x", "b", 200),
            scored("x", "c", 103, bound_ns=96),
        ],
        "base",
    )
    assert "2 cases" in page.title
    assert page.rows == [
        ["base", "1.000", "2", "1.000", "0"],
        ["x", "1.000", "2", "0.500", "2"],
    ]


def test_problems_are_held_against_optimum_and_critical_path(benchmark) -> None:
    """Optima 50 and none, paths 40 and 60: 10 % over the one optimum, 37.5 % and 50 % over the paths."""
    module = benchmark("schedulers")
    scores = [
        scored("search:100", "a", 55, optimum_ns=50, optimum_from="case"),
        scored("search:100", "b", 90),
        scored("exact", "a", 50, optimum_ns=50, optimum_from="case"),
        scored("exact", "b", 60, violations=1, optimum_ns=60, optimum_from="bound"),
    ]
    page = module.psplib_page("j2", scores, {"a": 40, "b": 60})
    assert page.rows == [
        ["exact", "0.00%", "1/1", "0", "12.5%", "0.5", "-", "1"],
        ["search:100", "10.0%", "0/1", "0", "43.8%", "0.5", "200", "0"],
    ]
    assert "--data PATH --schedulers a b --baseline a" in module.command_of(
        argparse.Namespace(sections=None, data=Path("x"), schedulers=["a", "b"], baseline="a", seed=0)
    )
    assert "published for 1 problems" in page.notes[0]
    assert module.rate_of("search:seconds=2", 1.0) is None


def test_the_critical_path_is_the_longest(benchmark) -> None:
    """a (5) before b (7) and c (2), c before d (6): 5 + 2 + 6 is longer than 5 + 7."""
    kernels = {"a": (5, ()), "b": (7, ("a",)), "c": (2, ("a",)), "d": (6, ("c",))}
    commands = tuple(
        Command(
            name=name,
            kind=CommandKind.KERNEL,
            kernels=(Kernel(name=name, kernel_class=KernelClass.CUBE, duration_ns=time),),
            after=after,
        )
        for name, (time, after) in kernels.items()
    )
    path = benchmark("schedulers").critical_path_ns
    assert path(CommandGraph("g", commands)) == 13
    loose = replace(commands[0], kernels=(Kernel(name="a", kernel_class=KernelClass.CUBE, flops=9),))
    with pytest.raises(InputError, match="no fixed duration"):
        path(CommandGraph("g", (loose, *commands[1:])))


def test_gaps_to_planted_optima_stand_by_family(benchmark) -> None:
    """1.2 and 1.0 times the optimum in f, 1.5 times in g."""
    optimum = {"optimum_ns": 100, "optimum_from": "case"}
    page = benchmark("schedulers").planted_page(
        [
            scored("x", "a", 144, **optimum),
            scored("x", "b", 100, **optimum),
            scored("x", "c", 150, family="g", **optimum),
            scored("y", "c", None, family="g", seconds=None, **optimum),
        ]
    )
    assert page.columns == ("kernels", "f", "g", "seconds")
    assert page.rows == [["x", "20.0%", "50.0%", "0.5"], ["y", "-", "-", "-"]]


@pytest.mark.slow
def test_tables_of_schedulers_become_a_page_and_come_back_from_rows(
    benchmark, monkeypatch, capsys, tmp_path
) -> None:
    module = benchmark("schedulers")
    (tmp_path / "tiny.toml").write_text(TINY, encoding="utf-8")
    monkeypatch.setattr(module, "SECTIONS", {"networks": (str(tmp_path / "tiny.toml"),)})
    page = tmp_path / "page.md"
    words = f"--schedulers round_robin --baseline single_stream --rows {tmp_path} --markdown {page} --json"
    monkeypatch.setattr(sys, "argv", ["benchmark", *words.split()])
    module.main()
    first = json.loads(capsys.readouterr().out)
    titles = [each["title"] for each in first["networks"]]
    assert len(titles) == 4
    assert titles[0].endswith("2 cases")
    assert titles[-1].startswith("Where single_stream is more than 5% above the bound")
    text = page.read_text(encoding="utf-8")
    for each in first["networks"]:
        assert f"**{each['title']}**" in text
        for row in each["rows"]:
            assert f"| {' | '.join(row)} |" in text
    monkeypatch.setattr(module, "measure", None)
    monkeypatch.setattr(sys, "argv", ["benchmark", *words.split(), "--reuse"])
    module.main()
    assert json.loads(capsys.readouterr().out) == first
    words = f"--schedulers round_robin --baseline round_robin --rows {tmp_path} --reuse --json"
    monkeypatch.setattr(sys, "argv", ["benchmark", *words.split()])
    module.main()
    other = json.loads(capsys.readouterr().out)["networks"][0]
    assert [row[:2] for row in other["rows"]] == [["round_robin", "1.000"]]
    monkeypatch.setattr(sys, "argv", ["benchmark", *words.split(), "--schedulers", "reference"])
    with pytest.raises(SystemExit, match="no rows of reference"):
        module.main()


def test_a_problem_with_a_known_optimum_is_proved(benchmark, monkeypatch, capsys, tmp_path) -> None:
    pytest.importorskip("ortools")
    (tmp_path / "small.sm").write_text(SM, "utf-8")
    (tmp_path / "optimum.csv").write_text(OPTIMA, "utf-8")
    module = benchmark("exact")
    (row,) = rows_of(module, f"--data {tmp_path / 'small.sm'} --seconds 5 --workers 1", monkeypatch, capsys)
    assert (row["least_ns"], row["found_ns"], row["bound_ns"]) == (9000, 9000, 9000)
    assert row["status"] == "optimal"
    wrong = module.Row(**{**row, "bound_ns": 9001})
    assert wrong.against
    assert not module.Row(**row).against
