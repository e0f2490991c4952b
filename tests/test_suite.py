"""Suites: what a file may say, what an error says, which cases come of it."""

from __future__ import annotations

import tarfile
from typing import TYPE_CHECKING

import numpy as np
import pytest
from problem_files import OPTIMA, SM

from cann_env.device import load_device
from cann_env.options import Objective, Submission
from cann_env.program import compile_graph
from cann_env.scenario import load_scenario
from cann_env.suite import Asked, load_suite, suite_names
from cann_env.units import InputError
from cann_env.workloads.description import target_of
from cann_env.workloads.served import OnnxWorkload

if TYPE_CHECKING:
    from pathlib import Path

GOOD = """
[suite]
name = "mine"
description = "Something to try."

[options]
commands = 64

[[members]]
kind = "workload"
family = "layers"
devices = ["ascend310b1"]
workload = { kind = "layered", commands = 8, width = 3 }
"""


@pytest.fixture(scope="module")
def onnx() -> None:
    """Import the package once, so that no single test pays for it."""
    pytest.importorskip("onnx")
    OnnxWorkload(model="squeezenet").build(
        np.random.default_rng(0), target_of(load_device("ascend310b1")), "squeezenet"
    )


@pytest.fixture
def written(tmp_path: Path):
    """Writes a suite file and gives its path."""

    def write(text: str) -> str:
        file = tmp_path / "mine.toml"
        file.write_text(text, encoding="utf-8")
        return str(file)

    return write


def test_shipped_suites_are_named_after_their_files() -> None:
    assert suite_names() == (
        "generated",
        "onnx",
        "oversubscribed",
        "planted",
        "psplib",
        "serving",
        "smoke",
        "standard",
        "training",
    )
    for name in suite_names():
        assert load_suite(name).name == name


@pytest.mark.thorough
@pytest.mark.parametrize("name", sorted({*suite_names()} - {"psplib"}))
def test_every_case_of_a_shipped_suite_compiles(name: str, onnx) -> None:
    """Psplib is not all there. As few commands of training steps are in flight as in the scenario itself."""
    cases = load_suite(name).cases()
    assert cases
    for case in cases:
        graph, device, options, _ = case.make()
        assert options.commands >= min(64, len(graph.commands))
        few = options.in_flight_limit < min(256, len(graph.commands))
        assert few == case.name.startswith(("training ", "resnet step "))
        assert compile_graph(graph, device, options).norm_ns >= 1


def test_keys_in_the_plural_multiply(written, onnx) -> None:
    """Two models, two batches, two devices, two ways: 16 cases in four families of four."""
    text = """
[suite]
name = "mine"
description = "Something to try."
[options]
run_ahead = 99
[[members]]
kind = "onnx"
family = "{device} {submission}"
models = ["squeezenet", "alexnet"]
batches = [1, 8]
devices = ["ascend310b1", "ascend910b2"]
submissions = ["eager", "sink"]
options = { streams = 3 }
"""
    cases = load_suite(written(text)).cases()
    assert len({case.name for case in cases}) == len(cases) == 16
    families = [case.family for case in cases]
    assert {family: families.count(family) for family in families} == {
        "ascend310b1 eager": 4,
        "ascend310b1 sink": 4,
        "ascend910b2 eager": 4,
        "ascend910b2 sink": 4,
    }
    assert [case.name for case in cases[:5]] == [
        "squeezenet b1 hbm ascend310b1 eager",
        "squeezenet b8 hbm ascend310b1 eager",
        "alexnet b1 hbm ascend310b1 eager",
        "alexnet b8 hbm ascend310b1 eager",
        "squeezenet b1 hbm ascend310b1 sink",
    ]
    _, device, options, optimum = cases[1].make()
    assert device.name == "ascend310b1"
    assert (options.submission, options.run_ahead, options.streams) == (Submission.EAGER, 99, 3)
    assert optimum is None


def test_serving_mixes_multiply_and_only_draws_have_instances(written, onnx) -> None:
    """One mix, two numbers of requests, at once (one instance) and drawn arrivals (three): 2 + 6."""
    text = """
[suite]
name = "mine"
description = "Something to try."
[[members]]
kind = "serving"
family = "{models} {arrivals}"
mixes = [["squeezenet", "alexnet"]]
requests = [2, 4]
rates_per_s = [0, 5000]
instances = 3
devices = ["ascend910b2"]
options = { objective = "latency" }
"""
    cases = load_suite(written(text)).cases()
    assert [case.family for case in cases] == [
        "2 models at once",
        *["2 models 5000 per s"] * 3,
        "2 models at once",
        *["2 models 5000 per s"] * 3,
    ]
    graphs = [case.make().graph for case in cases]
    asked = [{command.request for command in graph.commands} for graph in graphs]
    assert [len(names) for names in asked] == [2] * 4 + [4] * 4
    releases = [tuple(sorted({command.release_ns for command in graph.commands})) for graph in graphs]
    assert len(set(releases[1:4])) == 3
    assert releases[0] == (0,)
    assert cases[0].make().options.objective is Objective.LATENCY


def test_a_scenario_keeps_what_the_suite_does_not_say(written) -> None:
    text = """
[suite]
name = "mine"
description = "Something to try."
[options]
commands = 64
[[members]]
kind = "scenario"
family = "{scenario}"
scenario = "pipeline"
submissions = ["sink"]
"""
    (case,) = load_suite(written(text)).cases()
    graph, device, options, _ = case.make()
    shipped = load_scenario("pipeline")
    assert case.family == "pipeline"
    assert (options.streams, options.run_ahead) == (shipped.options.streams, shipped.options.run_ahead)
    assert (options.commands, options.submission) == (64, Submission.SINK)
    assert device == shipped.device
    assert len(graph.commands) == len(shipped.graph().commands)


def test_instances_are_those_of_their_seed(written) -> None:
    """The caller's seed is added to the member's: 2 + 0 and 0 + 2 give the same graphs."""
    file = written(GOOD + "instances = 2\n")
    seeded = written(GOOD + "instances = 2\nseed = 2\n")
    graphs = [case.make().graph for case in load_suite(seeded).cases()]
    file = written(GOOD + "instances = 2\n")
    again = [case.make().graph for case in load_suite(file).cases(Asked(seed=2))]
    other = [case.make().graph for case in load_suite(file).cases()]
    assert graphs == again
    assert len({*map(str, (*graphs, *other))}) == 4


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("[options]", "[option]", ("table [option] is not known", "suite, options, members")),
        ('name = "mine"', "", ("[suite]", "'name' is missing", "a text in quotes")),
        ("commands = 64", "command = 64", ("[options]", "'command' is not known", "commands, prefetches")),
        ("commands = 64", "commands = 0", ("[options]", "'commands' is 0", "at least 1")),
        ('kind = "workload"', 'kind = "work"', ("[[members]] 1", "'work'", "onnx, planted")),
        ('kind = "workload"', "", ("[[members]] 1", "'kind' is missing", "onnx, planted")),
        ("family =", "familly =", ("[[members]] 1", "'familly' is not known", "family, workload")),
        ('"layers"', '"{model}"', ("[[members]] 1", "'{model}'", "{kind}, {device}, {submission}")),
        ('"layers"', '"{0}"', ("'{0}'", "{kind}, {device}, {submission}")),
        ('"layers"', '"{kind:>99999999999}"', ("'{kind:>99999999999}'", "{kind}, {device}")),
        ('"layers"', '"{kind[0]}"', ("'{kind[0]}'", "{kind}, {device}")),
        ('["ascend310b1"]', '["ascend310"]', ("'devices' holds 'ascend310'", "ascend310b1")),
        ('["ascend310b1"]', "[]", ("'devices' is empty", "at least one")),
        ('"layered"', '"layerd"', ("'workload'", "'layerd'", "layered")),
        ('kind = "workload"', 'kind = "workload"\ninstances = 0', ("'instances' is 0", "at least 1")),
        (
            'kind = "workload"',
            'kind = "workload"\noptions = { stream = 2 }',
            ("[members.options]", "'stream' is not known", "streams"),
        ),
        (
            'kind = "workload"',
            'kind = "workload"\nsubmissions = ["lazy"]',
            ("'submissions', item 0 is 'lazy'", "eager, sink"),
        ),
        ("[[members]]", "[members]", ("[[members]] is missing", "at least one member")),
    ],
)
def test_an_error_names_file_place_and_what_would_be_right(
    old: str, new: str, words: tuple[str, ...], written
) -> None:
    assert old in GOOD
    file = written(GOOD.replace(old, new, 1))
    with pytest.raises(InputError) as error:
        load_suite(file).cases()
    for word in ("mine.toml", *words):
        assert word in str(error.value)


def test_an_unknown_model_is_refused_before_anything_runs(written, onnx) -> None:
    text = GOOD.partition("[[members]]")[0] + (
        '[[members]]\nkind = "onnx"\nfamily = "f"\nmodels = ["resnet51"]\ndevices = ["ascend310b1"]\n'
    )
    with pytest.raises(InputError, match=r"mine.toml: \[\[members\]\] 1.*'resnet51' is not known.*resnet50"):
        load_suite(written(text)).cases()


def test_two_cases_of_one_name_are_refused(written) -> None:
    member = GOOD[GOOD.index("[[members]]") :]
    with pytest.raises(InputError, match=r"members\]\] 2.*two cases are named 'layered ascend310b1 sink'"):
        load_suite(written(GOOD + member)).cases()
    assert len(load_suite(written(GOOD + member + 'name = "others"\n')).cases()) == 2


def test_equal_instances_are_refused(written) -> None:
    text = GOOD.partition("[[members]]")[0] + (
        '[[members]]\nkind = "scenario"\nfamily = "f"\nscenario = "pipeline"\ninstances = 2\n'
    )
    with pytest.raises(InputError, match=r"'instances' is 2, but 'pipeline' has one"):
        load_suite(written(text)).cases()


def test_an_unknown_suite_lists_the_known_ones() -> None:
    with pytest.raises(InputError, match=r"'smok' is not known; did you mean 'smoke'\? write one of .*smoke"):
        load_suite("smok")


@pytest.mark.parametrize(("content", "words"), [(b"\xff", "is not UTF-8"), (b"a = = 1", "is not valid TOML")])
def test_a_file_that_is_no_toml_is_named(content: bytes, words: str, tmp_path: Path) -> None:
    file = tmp_path / "broken.toml"
    file.write_bytes(content)
    with pytest.raises(InputError, match=words) as error:
        load_suite(file)
    assert str(file) in str(error.value)
    with pytest.raises(InputError, match="cannot be read as a suite file"):
        load_suite(tmp_path / "none.toml")


# --- problems with known optima -------------------------------------------------------------------------

SETS = """
[suite]
name = "mine"
description = "Something to try."
[[members]]
kind = "psplib"
family = "{set}"
sets = ["j2"]
"""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder with a folder of four problems, one of which has a published optimum."""
    folder = tmp_path / "data" / "j2"
    folder.mkdir(parents=True)
    for name in ("j2_1", "j2_2", "j2_3", "j2_10"):
        (folder / f"{name}.sm").write_text(SM, encoding="utf-8")
    (folder / "optimum.csv").write_text(OPTIMA.replace("small.sm", "j2_2.sm"), encoding="utf-8")
    return folder.parent


def test_problems_come_from_the_folder_of_the_caller(written, data: Path) -> None:
    suite = load_suite(written(SETS))
    cases = suite.cases(Asked(data=data))
    assert [(case.family, case.name) for case in cases] == [
        ("j2", "j2_1"),
        ("j2", "j2_2"),
        ("j2", "j2_3"),
        ("j2", "j2_10"),
    ]
    assert [case.make().optimum_ns for case in cases] == [None, 9000, None, None]
    assert cases[0].make().options.streams == len(cases[0].make().graph.commands)


def test_problems_come_from_an_archive_as_well(written, data: Path) -> None:
    with tarfile.open(data / "j3.tar.gz", "w:gz") as archive:
        archive.add(data / "j2", "j3")
    cases = load_suite(written(SETS.replace('["j2"]', '["j3"]'))).cases(Asked(data=data))
    assert [case.name for case in cases] == ["j2_1", "j2_2", "j2_3", "j2_10"]
    assert [case.make().optimum_ns for case in cases] == [None, 9000, None, None]
    both = load_suite(written(SETS.replace('["j2"]', '["j2", "j3"]')))
    given = both.cases(Asked(data=data / "j3.tar.gz"))
    assert [case.family for case in given] == ["j3"] * 4
    with pytest.raises(InputError, match=r"'.*optimum.csv' is none of the sets j2, j3"):
        both.cases(Asked(data=data / "j2" / "optimum.csv"))


def test_some_problems_are_taken_at_equal_distances(written, data: Path) -> None:
    """Two of four: the first and the third."""
    file = written(SETS + "instances = 2\noptions = { streams = 3 }\n")
    cases = load_suite(file).cases(Asked(data=data))
    assert [case.name for case in cases] == ["j2_1", "j2_3"]
    assert cases[0].make().options.streams == 3
    with pytest.raises(InputError, match="'instances' is 5, but there are 4"):
        load_suite(written(SETS + "instances = 5\n")).cases(Asked(data=data))


def test_missing_problems_are_asked_for(written, data: Path) -> None:
    with pytest.raises(InputError, match=r"not shipped.*j2\.tar\.gz.*--data PATH"):
        load_suite(written(SETS)).cases()
    with pytest.raises(InputError, match=r"no set 'j2'.*j2\.tar\.gz"):
        load_suite(written(SETS)).cases(Asked(data=data / "j2"))


def test_planted_problems_bring_their_optimum(written) -> None:
    """Two sizes, two shares of loads, two draws: eight problems of 100 us each, no two alike."""
    text = """
[suite]
name = "mine"
description = "Something to try."
[[members]]
kind = "planted"
family = "{kernels}, {loads}"
kernels = [6, 9]
loads = [0.0, 1.0]
aiv = 4
length = 100
instances = 2
"""
    suite = load_suite(written(text))
    made = [case.make() for case in suite.cases()]
    assert len(made) == 8
    assert [len(each.graph.commands) for each in made] == [6] * 4 + [9] * 4
    assert [bool(each.graph.buffers) for each in made] == [False, False, True, True] * 2
    assert {each.optimum_ns for each in made} == {100_000}
    assert (made[0].device.pools["aic"], made[0].device.pools["aiv"]) == (8, 4)
    assert len({str(each.graph) for each in made}) == 8
    assert [case.family for case in suite.cases()][::2] == [
        "6, no loads",
        "6, loads 1",
        "9, no loads",
        "9, loads 1",
    ]
    other = [case.make().graph for case in suite.cases(Asked(seed=1))]
    assert not {str(graph) for graph in other} & {str(each.graph) for each in made}
    for old, new, message in (
        ("aiv = 4", "aic = 0", "'aic' and 'aiv' are both 0"),
        ("[6, 9]", "[6, -1]", "'kernels' is -1; write a whole number of at least 1"),
        ("[0.0, 1.0]", "[0.0, 1.5]", "'loads' is 1.5; write a share"),
        ("[0.0, 1.0]", "[nan]", "'loads' is nan; write a share"),
    ):
        with pytest.raises(InputError, match=rf"mine\.toml: \[\[members\]\] 1 .*{message}"):
            load_suite(written(text.replace(old, new)))
