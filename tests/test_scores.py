"""Comparisons over suites: verdicts, means, failures, certified optima, the CSV file, the picture."""

from __future__ import annotations

import csv
import json
import math
import signal
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import pytest
from toys import cube, kernel_command, toy_device, toy_kernel
from typer.testing import CliRunner, Result

from cann_env.cli import compare_suite, suites
from cann_env.cli.app import app
from cann_env.cli.score_files import csv_rows, partial_path
from cann_env.cli.score_tables import COLUMNS, columns_of, explanation, suite_tables
from cann_env.cli.scores import Score, by_family, nearest_rank, row_of, standings, verdict
from cann_env.cli.suites import Contest, run_suite, score_case, with_seconds
from cann_env.graph import CommandGraph, Scheme
from cann_env.options import Objective, RunOptions
from cann_env.program import compile_graph
from cann_env.render.comparison import Point, comparison
from cann_env.schedulers import SCHEDULERS, EpisodeError
from cann_env.schedulers.online import SingleStream
from cann_env.suite import Asked, Instance, SuiteCase
from cann_env.units import InputError
from cann_env.validate import Violation

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SUITE = """
[suite]
name = "tiny"
description = "Two small graphs."
[options]
streams = 2
[[members]]
kind = "workload"
family = "layers"
workload = { kind = "layered", commands = 6, width = 3, traits = { weights = "hbm" } }
devices = ["ascend910b2"]
[[members]]
kind = "workload"
family = "pipes"
workload = { kind = "pipeline", batches = 3, input_bytes = "1 MiB", output_bytes = "1 MiB", flops = 1000000 }
devices = ["ascend310b1"]
"""

PLANTED = Score(
    family="f",
    case="a",
    device="toy",
    calibrated=True,
    commands=2,
    objective="makespan",
    scheduler="base",
    value_ns=100,
    makespan_ns=100,
    bound_ns=50,
    optimum_ns=None,
    optimum_from="",
    baseline_ns=100,
    seconds=1.0,
    violations=0,
    failure="",
)


def planted(scheduler: str, case: str, value: int | None, **fields: Any) -> Score:
    """A score against a baseline of 100 ns."""
    failure = "it ran out of steps" if value is None else ""
    fields = {"seconds": None if value is None else 1.0, "failure": failure, **fields}
    return replace(PLANTED, scheduler=scheduler, case=case, value_ns=value, makespan_ns=value, **fields)


TABLE = [
    planted("good", "a", 50, optimum_ns=40, seconds=2.0),
    planted("good", "b", 200, family="g", seconds=4.0),
    planted("good", "c", 80, family="g", optimum_ns=80),
    planted("base", "a", 100, optimum_ns=40),
    planted("base", "b", 100, family="g"),
    planted("base", "c", 100, family="g", optimum_ns=80),
    planted("lame", "a", None, optimum_ns=40),
    planted("lame", "b", 100, family="g", violations=2),
    planted("lame", "c", None, family="g", optimum_ns=80),
]
"""Three schedulers on three cases; the bound is 50 ns everywhere.

::

    case   family  good  base  lame   optimum
    a      f         50   100     -        40
    b      g        200   100   100         -
    c      g         80   100     -        80
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder of a test, with a small suite in it."""
    (tmp_path / "tiny.toml").write_text(SUITE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module", autouse=True)
def compiled(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Load the compiled engine once, so that no single test pays for it."""
    file = tmp_path_factory.mktemp("warm") / "tiny.toml"
    file.write_text(SUITE, encoding="utf-8")
    CliRunner().invoke(app, ["compare", "--suite", str(file), "--json"])


def call(*words: str) -> Result:
    """Compare on the small suite, with a single stream unless another baseline is asked for."""
    baseline = () if "--baseline" in words else ("--baseline", "single_stream")
    return CliRunner().invoke(
        app, ["compare", "--suite", "tiny.toml", *baseline, *words], env={"COLUMNS": "80", "NO_COLOR": "1"}
    )


def test_schedulers_are_set_against_the_tuner_of_cann_unless_told_otherwise() -> None:
    words = ["compare", "--suite", "tiny.toml", "--schedulers", "single_stream", "--json"]
    data = json.loads(CliRunner().invoke(app, words).stdout)
    assert data["baseline"] == "cann_autotune"
    assert [row["scheduler"] for row in data["rows"]] == ["single_stream", "cann_autotune"] * 2
    assert {row["ratio"] for row in data["rows"] if row["scheduler"] == "cann_autotune"} == {1.0}


# --- verdicts and means ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "baseline", "expected"),
    [
        (100, 105, "win"),
        (1000, 1049, "tie"),
        (100, 100, "tie"),
        (100, 98, "tie"),
        (1000, 979, "loss"),
        (20, 21, "win"),
        (50, 49, "tie"),
    ],
)
def test_thresholds_are_met_at_the_edge(value: int, baseline: int, expected: str) -> None:
    """1.05 itself is a win, 0.98 itself is still a tie."""
    assert verdict(value, baseline) == expected


def test_a_verdict_needs_both() -> None:
    assert verdict(None, 100) == verdict(100, None) == ""


def test_standings_are_those_computed_by_hand() -> None:
    """See :data:`TABLE`. Ratios of good: 0.5, 2, 0.8; their product is 0.8.

    Over the bound: 1, 4, 1.6 times; over the optimum, where there is one: 1.25 and 1 times.
    """
    good, base, lame = standings(TABLE)
    assert [each.scheduler for each in (good, base, lame)] == ["good", "base", "lame"]
    assert good.ratio == pytest.approx(0.8 ** (1 / 3))
    assert good.ratio_median == 0.8
    assert good.ratio_p90 == 2.0
    assert good.gap == pytest.approx(6.4 ** (1 / 3) - 1)
    assert good.optimum_gap == pytest.approx(math.sqrt(1.25) - 1)
    assert (good.optima, good.wins, good.ties, good.losses) == (2, 2, 0, 1)
    assert good.seconds == pytest.approx(7 / 3)
    assert (base.ratio, base.wins, base.ties, base.losses) == (1.0, 0, 3, 0)
    assert base.optimum_gap == pytest.approx(math.sqrt(2.5 * 1.25) - 1)


def test_what_failed_is_counted_and_in_no_mean() -> None:
    """One case of three is left to lame, a tie with the baseline at twice the bound."""
    lame = standings(TABLE)[-1]
    assert (lame.cases, lame.failures, lame.compared, lame.violations) == (3, 2, 1, 2)
    assert (lame.ratio, lame.gap, lame.seconds) == (1.0, 1.0, 1.0)
    assert (lame.optimum_gap, lame.optima, lame.ties) == (None, 0, 1)


def test_without_the_baseline_there_is_no_ratio_but_a_gap() -> None:
    (alone,) = standings([planted("x", "a", 75, baseline_ns=None)])
    assert (alone.ratio, alone.compared, alone.gap) == (None, 0, 0.5)
    never, last = planted("never", "a", None), planted("ok", "a", 200)
    assert [each.scheduler for each in standings([never, last])] == ["ok", "never"]


def test_nearest_rank() -> None:
    assert nearest_rank(list(range(1, 11)), 9, 10) == 9
    assert nearest_rank(list(range(1, 12)), 9, 10) == 10
    assert nearest_rank([7], 9, 10) == 7


def test_tables_say_what_the_standings_say() -> None:
    overall, first, second = suite_tables("Suite tiny", TABLE)
    assert overall.title == "Suite tiny, 3 cases"
    assert (first.title, second.title) == ("f, 1 case", "g, 2 cases")
    for table, rows in ((overall, TABLE), (second, by_family(TABLE)["g"])):
        expected = standings(rows)
        titles = columns_of(expected)
        assert [str(column.header) for column in table.columns] == titles
        for column, title in zip(table.columns, titles, strict=True):
            assert list(column.cells) == [COLUMNS[title](each) for each in expected]
    cells = {str(column.header): list(column.cells) for column in overall.columns}
    assert cells["ratio"] == ["0.928", "1.000", "1.000"]
    assert cells["to optimum"] == ["11.8% (2)", "76.8% (2)", "-"]
    assert cells["W/T/L"] == ["2/0/1", "0/3/0", "0/1/0"]
    assert cells["failed"] == ["0/3", "0/3", "2/3"]
    assert [cell.split("]")[1].split("[")[0] for cell in cells["judge"]] == ["ok", "ok", "2 wrong"]


def test_tables_say_where_numbers_are_assumed() -> None:
    scores = [replace(score, device="d1", calibrated=score.family != "g") for score in TABLE]
    _, first, second = suite_tables("Suite tiny", scores)
    assert (first.title, second.title) == ("f, 1 case", "g (assumed), 2 cases")
    assert explanation("base", scores).endswith("No recording exists of d1: all numbers there are assumed.")
    assert "assumed" not in explanation("base", TABLE)


def test_columns_that_say_nothing_are_left_out() -> None:
    titles = columns_of(standings([planted("x", "a", 75)]))
    assert not {"to optimum", "failed", "judge"} & set(titles)
    assert {"ratio", "to bound", "seconds"} <= set(titles)


# --- running --------------------------------------------------------------------------------------------


def two(**fields: Any) -> SuiteCase:
    """Two kernels of 1 us each on a device with two cores and two streams: 1 us at best, 2 us in a row."""
    device = toy_device(pools={"aic": 2})
    graph = CommandGraph("two", (cube("a", 990), cube("b", 990)))
    instance = Instance(graph, device, RunOptions(streams=2, **fields.pop("options", {})), **fields)
    return SuiteCase(family="toys", name="two", make=lambda: instance)


CONTEST = Contest(schedulers=("single_stream", "round_robin"), baseline="single_stream")


def test_a_score_is_what_the_engine_says() -> None:
    single, robin = score_case(two(), CONTEST)
    assert (single.family, single.case, single.device, single.commands) == ("toys", "two", "toy", 2)
    assert robin.value_ns == robin.makespan_ns == robin.bound_ns
    assert single.value_ns == robin.baseline_ns > robin.value_ns
    assert single.ratio == 1.0
    assert (single.violations, single.failure) == (0, "")
    assert single.seconds is not None
    assert single.seconds > 0


def test_gaps_are_to_the_strongest_bound() -> None:
    """Two kernels of two blocks that start at once exclude each other on three cores: 2 us, area says 4/3."""
    wide = toy_kernel("cube", 990, blocks=2, scheme=Scheme.BATCH)
    kernels = [kernel_command(name, wide) for name in "ab"]
    instance = Instance(
        CommandGraph("two", tuple(kernels)), toy_device(pools={"aic": 3}), RunOptions(streams=2)
    )
    (score,) = score_case(
        SuiteCase(family="toys", name="two", make=lambda: instance),
        Contest(schedulers=("round_robin",), baseline="round_robin"),
    )
    program = compile_graph(instance.graph, instance.device, instance.options)
    assert score.bound_ns == score.value_ns == 2 * 1000
    assert program.norm_ns < score.bound_ns


def test_a_schedule_that_meets_the_bound_certifies_it() -> None:
    single, robin = score_case(two(), CONTEST)
    assert (single.optimum_ns, single.optimum_from) == (robin.value_ns, "bound")
    assert robin.optimum_gap == 0.0
    assert single.optimum_gap == pytest.approx(single.value_ns / robin.value_ns - 1)
    (alone,) = score_case(two(), Contest(schedulers=("single_stream",), baseline="single_stream"))
    assert (alone.optimum_ns, alone.optimum_from, alone.optimum_gap) == (None, "", None)


def test_a_case_brings_its_optimum_and_nothing_may_be_below_it() -> None:
    honest = score_case(two(optimum_ns=900), CONTEST)
    assert [(row.optimum_ns, row.optimum_from, row.violations) for row in honest] == [(900, "case", 0)] * 2
    single, robin = score_case(two(optimum_ns=honest[1].value_ns + 1), CONTEST)
    assert (single.violations, robin.violations) == (0, 1)


@pytest.mark.parametrize(("proven", "found"), [(0, True), (-1, False)])
def test_a_solver_certifies_what_somebody_reached(
    proven: int, found: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One stream takes two kernels in a row. A solver proves that nothing is faster, or nearly so."""
    (alone,) = score_case(two(), Contest(schedulers=("single_stream",), baseline="single_stream"))

    class Proving(SingleStream):
        proven_bound_ns = alone.value_ns + proven

    monkeypatch.setitem(SCHEDULERS, "proving", lambda seed: Proving())
    contest = Contest(schedulers=("single_stream", "proving"), baseline="single_stream")
    expected = (alone.value_ns, "solver") if found else (None, "")
    assert [(row.optimum_ns, row.optimum_from) for row in score_case(two(), contest)] == [expected] * 2
    latency = two(options={"objective": Objective.LATENCY})
    assert score_case(latency, contest)[0].optimum_ns is None


def test_a_scheduler_that_fails_is_a_row_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    class Lost(SingleStream):
        def act(self, observation: Any, mask: Any, info: Any) -> int:
            raise EpisodeError("lost its way")

    monkeypatch.setitem(SCHEDULERS, "lost", lambda seed: Lost())
    no_slots = two(options={"prefetches": 0, "l2_prefetches": 0})
    names = ("lost", "eager+aggressive", "single_stream")
    lost, prefetching, single = score_case(no_slots, Contest(schedulers=names, baseline="single_stream"))
    assert lost.failure == "lost its way"
    assert "prefetch" in prefetching.failure
    for row in (lost, prefetching):
        assert row.value_ns is row.seconds is row.ratio is row.gap is row.makespan_ns is None
        assert row_of(row)["verdict"] == ""
    assert single.value_ns is not None
    assert single.failure == ""


def test_a_graph_that_the_device_refuses_is_a_row_for_each() -> None:
    graph = CommandGraph("wide", (cube("a", 990),))
    instance = Instance(graph, toy_device(), RunOptions(streams=4000))
    case = SuiteCase(family="f", name="wide", make=lambda: instance)
    for row in score_case(case, CONTEST):
        assert "4000 streams" in row.failure
        assert row.bound_ns is row.value_ns is None


def test_a_baseline_that_fails_leaves_the_others_their_gaps() -> None:
    no_slots = two(options={"prefetches": 0, "l2_prefetches": 0})
    names = ("eager+aggressive", "single_stream")
    _, single = score_case(no_slots, Contest(schedulers=names, baseline="eager+aggressive"))
    assert single.ratio is None
    assert single.gap is not None


def test_progress_says_what_runs() -> None:
    said: list[str] = []
    found = list(run_suite([two()], CONTEST, begin=said.append, step=lambda: said.append("done")))
    assert [len(rows) for rows in found] == [2]
    assert said == ["two · single_stream", "done", "two · round_robin", "done"]


def test_time_goes_to_those_that_can_use_it() -> None:
    assert with_seconds("search", 2.0) == "search:seconds=2"
    assert with_seconds("search", 0.25) == "search:seconds=0.25"
    assert with_seconds("search", 1e7) == "search:seconds=10000000"
    assert with_seconds("exact", 1234.567) == "exact:seconds=1234.567"
    assert with_seconds("search", None) == "search"
    assert with_seconds("search:5000", 2.0) == "search:5000"
    assert with_seconds("reference", 2.0) == "reference"


def test_loading_takes_none_of_the_time_that_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with a number of schedules, which on something small may take as long as on a case."""
    loaded: list[str] = []
    monkeypatch.setattr(suites, "decide", lambda _, scheduler: loaded.append(scheduler))
    monkeypatch.setattr(suites, "make_scheduler", lambda name, seed: name)
    names = ("single_stream", "search:seconds=900", "search:9000000")
    suites._load(Contest(schedulers=names, baseline="single_stream"))
    assert loaded == ["single_stream", "search:seconds=0.5"]


def test_a_graph_that_cannot_be_made_names_its_case() -> None:
    def make() -> Instance:
        raise InputError("it has no kernels")

    case = SuiteCase(family="f", name="hollow", make=make)
    with pytest.raises(InputError, match="case 'hollow': it has no kernels"):
        score_case(case, CONTEST)


# --- files ----------------------------------------------------------------------------------------------


def test_csv_has_one_row_for_each_score(folder: Path) -> None:
    path = folder / "rows.csv"
    with csv_rows(path) as write:
        write(TABLE[:4])
        assert not path.exists()
        write(TABLE[4:])
    assert not partial_path(path).exists()
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(TABLE)
    for row, score in zip(rows, TABLE, strict=True):
        expected = {key: "" if value is None else str(value) for key, value in row_of(score).items()}
        assert row == expected


def test_interrupted_csv_leaves_what_was_finished_beside_the_old_file(folder: Path) -> None:
    path = folder / "rows.csv"
    path.write_text("old", encoding="utf-8")
    with pytest.raises(KeyboardInterrupt), csv_rows(path) as write:
        write(TABLE[:3])
        raise KeyboardInterrupt
    assert path.read_text(encoding="utf-8") == "old"
    lines = partial_path(path).read_text(encoding="utf-8").splitlines()
    assert len(lines) == 4
    assert partial_path(path).name == "rows.csv.partial"


def test_a_comparison_that_never_began_leaves_no_csv(folder: Path) -> None:
    with pytest.raises(InputError), csv_rows(folder / "rows.csv"):
        raise InputError("wrong")
    assert not list(folder.glob("rows*"))
    with pytest.raises(InputError, match="cannot be written"), csv_rows(folder / "none" / "rows.csv"):
        pass


def test_an_interrupted_comparison_says_where_its_rows_are(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def one_then_stop(*args: Any) -> Iterator[list[Score]]:
        found = run_suite(*args)
        yield next(found)
        raise KeyboardInterrupt

    monkeypatch.setattr(compare_suite, "run_suite", one_then_stop)
    result = call("--schedulers", "single_stream,round_robin", "--csv", "rows.csv")
    assert result.exit_code != 0
    assert "rows of 1 of 2 cases are in rows.csv.partial" in " ".join(result.stderr.split())
    assert len((folder / "rows.csv.partial").read_text(encoding="utf-8").splitlines()) == 3
    assert not (folder / "rows.csv").exists()


# --- the command ----------------------------------------------------------------------------------------


def test_json_holds_the_numbers_of_the_tables() -> None:
    names = ("--schedulers", "round_robin")
    result = call(*names, "--json")
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    data = json.loads(result.stdout)
    assert (data["suite"], data["baseline"]) == ("tiny", "single_stream")
    scores = [Score(**{key: row[key] for key in asdict(PLANTED)}) for row in data["rows"]]
    assert data["rows"] == [row_of(score) for score in scores]
    assert data["overall"] == [asdict(each) for each in standings(scores)]
    assert list(data["families"]) == ["layers", "pipes"]
    printed = [line.split() for line in call(*names).stdout.splitlines()]
    for each in (*data["overall"], *data["families"]["layers"], *data["families"]["pipes"]):
        cells = [f"{each[key]:.3f}" for key in ("ratio", "ratio_median", "ratio_p90")]
        assert [each["scheduler"], *cells] in [words[:4] for words in printed]


def test_tables_fit_eighty_columns_and_name_the_baseline() -> None:
    result = call("--schedulers", "round_robin", "--baseline", "per_engine")
    assert result.exit_code == 0, result.output
    assert "Suite tiny, 2 cases" in result.stdout
    words = " ".join(result.stdout.split())
    assert "over that of per_engine" in words
    assert "The judge found nothing wrong in 4 schedules." in words
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_a_violation_makes_the_exit_code_one(monkeypatch: pytest.MonkeyPatch) -> None:
    fault = Violation("slots", "planted", (0,), 0)
    monkeypatch.setattr(suites, "validate", lambda schedule: (fault,))
    result = call("--schedulers", "single_stream")
    assert result.exit_code == 1
    assert "2 wrong" in result.stdout
    assert "The judge found 2 violations in 2 schedules." in " ".join(result.stdout.split())
    assert "single_stream on layered ascend910b2 sink: the judge counts 1 wrong" in " ".join(
        result.stdout.split()
    )


def test_a_failing_scheduler_is_named_with_its_reason(folder: Path) -> None:
    text = SUITE.replace("streams = 2", "streams = 2\nprefetches = 0\nl2_prefetches = 0")
    (folder / "tiny.toml").write_text(text, encoding="utf-8")
    result = call("--schedulers", "single_stream,eager+aggressive")
    assert result.exit_code == 0
    assert "2/2" in result.stdout
    assert "eager+aggressive on pipeline ascend310b1 sink: " in " ".join(result.stdout.split())


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("pipes.toml",), "leave out pipes.toml"),
        (("--streams", "2", "--batch", "4"), "leave out --streams, --batch"),
        (("--instances", "1"), "leave out --instances"),
        (("--device", "ascend310b1"), "leave out --device"),
        (("--schedulers", "heat"), "'heat' is not known"),
        (("--baseline", "heat"), "'heat' is not known"),
        (("--csv", "none/rows.csv"), "its folder does not exist"),
        (("--csv", "."), "it is a folder"),
        (("--csv", ""), "it is a folder"),
        (("--picture", "folder.png"), "it is a folder"),
        (("--picture", "p.gif"), "--picture is 'p.gif'; write a name that ends in .png"),
        (("--jobs", "0"), "greater than or equal to 1"),
    ],
)
def test_what_a_suite_cannot_use_is_refused(words: tuple[str, ...], expected: str, folder: Path) -> None:
    (folder / "folder.png").mkdir()
    result = call(*words)
    assert result.exit_code == 2
    assert expected in " ".join(result.stderr.split())


@pytest.mark.parametrize("words", [("--csv", "r.csv"), ("--baseline", "reference"), ("--seconds", "1")])
def test_what_is_for_suites_needs_one(words: tuple[str, ...]) -> None:
    result = CliRunner().invoke(app, ["compare", "--scenario", "pipeline", *words])
    assert result.exit_code == 2
    assert f"{words[0]} is for suites" in result.stderr


@pytest.mark.slow
def test_several_processes_find_the_same_rows() -> None:
    names = ("--schedulers", "round_robin,reference", "--json")
    one, two_jobs = (json.loads(call(*names, "--jobs", jobs).stdout)["rows"] for jobs in ("1", "2"))
    assert len(one) == 6
    for row in (*one, *two_jobs):
        del row["seconds"]
    assert one == two_jobs


def test_an_interrupt_ends_the_processes_without_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    """What each process runs first leaves it to the system, which prints nothing, to end it."""
    given: dict[str, Any] = {}

    def pool(*_: Any, **options: Any) -> Any:
        given.update(options)
        raise KeyboardInterrupt

    monkeypatch.setattr(suites, "ProcessPoolExecutor", pool)
    with pytest.raises(KeyboardInterrupt):
        next(suites.run_suite_apart("tiny.toml", Asked(), 1, CONTEST, 2))
    before = signal.getsignal(signal.SIGINT)
    try:
        given["initializer"](*given["initargs"])
        assert signal.getsignal(signal.SIGINT) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGINT, before)


# --- the picture ----------------------------------------------------------------------------------------


def points(scores: list[Score]) -> list[Point]:
    return [Point(each.family, each.case, each.scheduler, each.ratio) for each in scores]


def drawn(scores: list[Score], **fields: Any) -> Any:
    pytest.importorskip("matplotlib")
    return comparison(points(scores), title="Three", baseline="base", win=1.05, loss=0.98, **fields)


@pytest.mark.slow
def test_the_picture_holds_a_dot_for_each_ratio_and_a_bar_at_each_mean() -> None:
    figure = drawn(TABLE)
    everything, profiles, *families = figure.axes
    assert [axes.get_title(loc="left") for axes in families] == ["f (1)", "g (2)"]
    assert [label.get_text() for label in everything.get_yticklabels()] == ["good", "base", "lame"]
    dots = [collection.get_offsets()[:, 0].tolist() for collection in everything.collections]
    assert [[pytest.approx(x) for x in row] for row in ([0.5, 2.0, 0.8], [1.0] * 3, [1.0])] == dots
    bars = [line.get_xdata()[0] for line in everything.lines if line.get_linewidth() > 2]
    assert bars == pytest.approx([0.8 ** (1 / 3), 1.0, 1.0])
    assert [text.get_text() for text in profiles.get_legend().get_texts()] == ["good", "base", "lame"]


@pytest.mark.slow
def test_the_picture_has_the_resolution_that_was_asked_for() -> None:
    assert drawn(TABLE, dpi=61).dpi == 61
    assert drawn(TABLE).dpi == 130


@pytest.mark.slow
def test_profiles_end_at_the_share_of_cases_within_the_factor() -> None:
    """Over the best: good 1, 2 and 1; base 2, 1 and 1.25; lame only 1."""
    profiles = drawn(TABLE).axes[1]
    lines = {line.get_label(): line for line in profiles.lines}

    def at(name: str, factor: float) -> float:
        xs, ys = lines[name].get_data()
        return [y for x, y in zip(xs, ys, strict=True) if x <= factor][-1]

    assert [at("good", x) for x in (1.0, 1.9, 2.0)] == pytest.approx([2 / 3, 2 / 3, 1.0])
    assert [at("base", x) for x in (1.0, 1.3, 2.0)] == pytest.approx([1 / 3, 2 / 3, 1.0])
    assert [at("lame", x) for x in (1.0, 2.0)] == pytest.approx([1 / 3, 1 / 3])


@pytest.mark.slow
def test_the_command_draws(folder: Path) -> None:
    pytest.importorskip("matplotlib")
    result = call("--schedulers", "round_robin", "--picture", "p.png", "--csv", "r.csv")
    assert result.exit_code == 0, result.output
    assert (folder / "p.png").read_bytes().startswith(b"\x89PNG")
    assert "Picture   p.png" in result.stdout
    assert "Rows      r.csv" in result.stdout


def test_a_picture_of_nothing_is_refused() -> None:
    with pytest.raises(InputError, match="nothing to draw"):
        comparison(points([TABLE[-1]]), title="None", baseline="base", win=1.05, loss=0.98)
