"""The benchmarks at a tiny setting: what they print can be read back, and keeps the laws of its table."""

from __future__ import annotations

import importlib
import json
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from problem_files import OPTIMA, SM

from cann_env.commands import Buffer, BufferKind, Command, CommandKind, Kernel, KernelClass
from cann_env.device.load import load_device
from cann_env.graph import CommandGraph
from cann_env.options import RunOptions
from cann_env.program import compile_graph
from cann_env.schedulers import ORDERS
from cann_env.schedulers.usage import simulate
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
