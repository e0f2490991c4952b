"""Scheduling problems from files: what is read, what is refused, and that the engine reaches the optimum."""

from __future__ import annotations

import gzip
import json
import tarfile
import zipfile
import zlib
from typing import TYPE_CHECKING

import pytest
from episodes import times
from problem_files import JOB_SHOP, OPTIMA, RCP, SHOPS, SM

from cann_env.cli.inputs import Request, open_case
from cann_env.program import compile_graph
from cann_env.schedulers.assignment import Assignment, Launch, Rule, carry_out
from cann_env.schedulers.recording import record_schedule
from cann_env.solvers.bounds import lower_bounds
from cann_env.tasks import tasks_of
from cann_env.units import InputError
from cann_env.validate import validate
from cann_env.workloads.from_psplib import from_psplib, is_problem, problem_names
from cann_env.workloads.project import Activity, Optimum, Project, pose
from cann_env.workloads.project_files import (
    job_shop,
    read_job_shop,
    read_job_shop_json,
    read_optima,
    read_rcp,
    read_sm,
)

if TYPE_CHECKING:
    from pathlib import Path

    from cann_env.schedule import Schedule
    from cann_env.workloads.project import PosedProblem


def started(problem: PosedProblem, starts: dict[str, int]) -> Schedule:
    """The schedule in which each activity is issued at a given time."""
    program = compile_graph(problem.graph, problem.device, problem.options)
    starts_ns = tuple(starts[command.name] * 1000 for command in problem.graph.commands)
    order = tuple(sorted(range(len(starts_ns)), key=lambda i: starts_ns[i]))
    assignment = Assignment(order=order, starts_ns=starts_ns, rule=Rule(launch=Launch.JUST_IN_TIME))
    result = carry_out(program, assignment)
    assert result.strayed == 0
    return record_schedule(program, result.plan.actions)


# --- projects -----------------------------------------------------------------------------------------


def test_a_project_becomes_kernels_that_hold_pools() -> None:
    posed = pose(read_sm(SM, "small.sm"), Optimum(least=9, best=9))
    kernels = {command.name: command.kernels[0] for command in posed.graph.commands}
    assert {name: (kernel.duration_ns, kernel.demand) for name, kernel in kernels.items()} == {
        "job 2": (3000, (("aic", 2), ("aiv", 1))),
        "job 3": (4000, (("aic", 3),)),
        "job 4": (2000, (("aiv", 3),)),
        "job 5": (2000, (("aic", 2),)),
    }
    assert {command.name: command.after for command in posed.graph.commands}["job 5"] == ("job 2",)
    assert (posed.device.pools["aic"], posed.device.pools["aiv"]) == (4, 3)
    assert (posed.options.streams, posed.options.commands, posed.options.run_ahead) == (4, 4, 4)
    assert posed.optimum_ns == 9000


def test_the_engine_reaches_the_optimum_exactly() -> None:
    """As drawn beside the file; the longest path takes 5, the area of the first resource 22 / 4."""
    posed = pose(read_sm(SM, "small.sm"))
    schedule = started(posed, {"job 2": 0, "job 5": 3, "job 4": 3, "job 3": 5})
    assert validate(schedule) == ()
    assert times(schedule) == {
        "job 2": (0, 3000),
        "job 5": (3000, 5000),
        "job 4": (3000, 5000),
        "job 3": (5000, 9000),
    }
    found = lower_bounds(posed.graph, posed.device, posed.options)
    assert (found.critical_path_ns, found.area_ns["aic"], found.area_ns["aiv"]) == (5000, 5500, 3000)


def test_what_does_not_fit_waits_for_its_resource() -> None:
    """Issued together at time zero, job 3 waits for the first resource and job 4 for the second."""
    schedule = started(pose(read_sm(SM, "small.sm")), dict.fromkeys(["job 2", "job 3", "job 4", "job 5"], 0))
    assert validate(schedule) == ()
    spans = times(schedule)
    assert spans["job 2"] == (0, 3000)
    assert min(spans["job 3"][0], spans["job 4"][0]) >= 3000


def test_a_milestone_between_hands_on_its_predecessors() -> None:
    """``a -> m -> n -> b`` with two milestones: b comes after a."""
    project = Project(
        name="milestones",
        capacities=(1,),
        activities=(
            Activity(name="b", duration=2, units=(1,), after=(2,)),
            Activity(name="m", duration=0, units=(0,), after=(3,)),
            Activity(name="n", duration=0, units=(0,), after=(1,)),
            Activity(name="a", duration=1, units=(0,)),
        ),
    )
    posed = pose(project)
    assert [(command.name, command.after) for command in posed.graph.commands] == [("b", ("a",)), ("a", ())]
    assert posed.graph.commands[1].kernels[0].demand == (("callback", 1),)  # it holds no resource


def test_more_resources_than_named_pools_get_pools_of_their_own() -> None:
    """Nine machines; the tasks that solvers see hold them too."""
    posed = pose(job_shop("wide", [[(machine, 1) for machine in range(9)]] * 2, 9))
    assert [posed.device.pools[f"resource{i}"] for i in (7, 8, 9)] == [1, 1, 1]
    program = compile_graph(posed.graph, posed.device, posed.options)
    tasks = tasks_of(program)
    at = tasks.resources.index("resource9")
    assert tasks.demand[:, at].tolist() == [0] * 8 + [1] + [0] * 8 + [1]
    assert tasks.capacity[at] == 1
    starts = {f"job {j} step {k}": j + k for j in range(2) for k in range(9)}
    assert started(posed, starts).makespan_ns == 10_000


# --- formats ------------------------------------------------------------------------------------------


def test_patterson_says_the_same() -> None:
    assert read_rcp(RCP, "small.rcp") == read_sm(SM, "small.sm")


def test_a_job_shop_reaches_its_optimum() -> None:
    posed = pose(read_job_shop(JOB_SHOP, "two.jsp"))
    starts = {"job 0 step 0": 0, "job 1 step 0": 0, "job 0 step 1": 4, "job 1 step 1": 4}
    schedule = started(posed, starts)
    assert validate(schedule) == ()
    assert schedule.makespan_ns == 6000


def test_job_shops_come_as_json_too() -> None:
    shop, known = read_job_shop_json(SHOPS, "all.json", "two")
    assert shop == read_job_shop(JOB_SHOP, "two.jsp")
    assert known == Optimum(least=6, best=6)
    assert read_job_shop_json(SHOPS, "all.json", "open")[1] == Optimum(least=5, best=7)
    alone = json.dumps(json.loads(SHOPS)["two"])
    assert read_job_shop_json(alone, "two.json") == (shop, known)


def test_optima_may_be_open() -> None:
    assert read_optima(OPTIMA, "optimum.csv") == {
        "small.sm": Optimum(least=9, best=9),
        "open.sm": Optimum(least=8, best=9),
        "best.sm": Optimum(least=None, best=9),
    }


# --- files --------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The small project, its optimum, and archives of both."""
    inner = tmp_path / "set"
    inner.mkdir()
    for name, text in (("small.sm", SM), ("small10.sm", SM), ("optimum.csv", OPTIMA), ("all.json", SHOPS)):
        (inner / name).write_text(text, "utf-8")
    with tarfile.open(tmp_path / "set.tar.gz", "w:gz") as tar:
        tar.add(inner, "set")
    with zipfile.ZipFile(tmp_path / "set.zip", "w") as file:
        for path in inner.iterdir():
            file.write(path, f"set/{path.name}")
    return tmp_path


@pytest.mark.parametrize("name", ["set/small.sm", "set.tar.gz:small.sm", "set.zip:set/small.sm"])
def test_files_and_members_of_archives_open_alike(folder: Path, name: str) -> None:
    found = from_psplib(f"{folder}/{name}")
    assert found == pose(read_sm(SM, "small.sm"), Optimum(least=9, best=9))
    assert from_psplib(f"{folder}/{name}", Optimum(best=10)).best_ns == 10_000


@pytest.mark.parametrize("name", ["set/all.json:open", "set.tar.gz:all.json:open"])
def test_one_of_several_job_shops_opens(folder: Path, name: str) -> None:
    found = from_psplib(f"{folder}/{name}")
    assert (found.least_ns, found.best_ns, found.optimum_ns) == (5000, 7000, None)


def test_an_archive_lists_its_problems(folder: Path) -> None:
    names = problem_names(folder / "set.tar.gz")
    assert [name.rsplit(":", 1)[1] for name in names] == ["all.json", "small.sm", "small10.sm"]
    assert all(is_problem(name) for name in names)
    assert not is_problem("pipeline")


def test_the_command_line_opens_a_problem(folder: Path) -> None:
    asked = Request(device=None, seed=0, options={"streams": 2}, model={})
    case = open_case(f"{folder}/set/small.sm", asked)
    assert (case.name, case.instances, case.options.streams) == ("small", 1, 2)
    assert len(case.graph(0).commands) == 4
    for wrong, message in (({"device": "ascend310b1"}, "--device"), ({"model": {"weights": 1}}, "--weights")):
        fields = {"device": None, "seed": 0, "options": {}, "model": {}} | wrong
        with pytest.raises(InputError, match=message):
            open_case(f"{folder}/set/small.sm", Request(**fields))  # type: ignore[arg-type]


def test_a_damaged_archive_is_refused_as_a_whole(folder: Path) -> None:
    """Also where the problem that is asked for came through: nothing says that its numbers did."""
    (folder / "set.tar").write_bytes(gzip.decompress((folder / "set.tar.gz").read_bytes()))
    plain = (folder / "set.tar").read_bytes()
    for damaged in (
        gzip.compress(plain)[:-4],
        gzip.compress(plain).replace(zlib.crc32(plain).to_bytes(4, "little"), bytes(4)),
    ):
        (folder / "bad.tar.gz").write_bytes(damaged)
        with pytest.raises(InputError, match=r"archive '.*bad\.tar\.gz' cannot be read"):
            from_psplib(f"{folder}/bad.tar.gz:small.sm")
    whole = (folder / "set.zip").read_bytes()
    directory = whole.find(b"PK\x01\x02")
    for at, other in ((8, 1), (10, 99)):  # a member with a password, and one of an unknown compression
        damaged = whole[: directory + at] + bytes([other]) + whole[directory + at + 1 :]
        (folder / "bad.zip").write_bytes(damaged[: at - 2] + bytes([other]) + damaged[at - 1 :])
        with pytest.raises(InputError, match=r"archive '.*bad\.zip' cannot be read"):
            problem_names(folder / "bad.zip")


def test_links_in_archives_are_not_followed(folder: Path) -> None:
    link = tarfile.TarInfo("link.sm")
    link.type, link.linkname = tarfile.SYMTYPE, "nowhere.sm"
    with tarfile.open(folder / "links.tar", "w") as tar:
        tar.addfile(link)
        tar.add(folder / "set" / "small.sm", "small.sm")
    assert [name.rpartition(":")[2] for name in problem_names(folder / "links.tar")] == ["small.sm"]
    with pytest.raises(InputError, match=r"has no member 'link\.sm'"):
        from_psplib(f"{folder}/links.tar:link.sm")


@pytest.mark.parametrize("name", ["", ".", "a\0.sm"])
def test_paths_that_cannot_be_are_refused(name: str) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        from_psplib(name)


def test_a_cycle_in_a_file_names_the_file(folder: Path) -> None:
    (folder / "loop.rcp").write_text("1 1  1  1 1 1 1", "utf-8")
    with pytest.raises(InputError, match=r"loop\.rcp: .* in a cycle"):
        from_psplib(folder / "loop.rcp")


def test_files_that_are_not_there_are_named(folder: Path) -> None:
    for name, message in (
        ("none.sm", "none.sm' cannot be read"),
        ("none.zip:a.sm", "none.zip' cannot be read"),
        ("set.zip:a.sm", "no member 'a.sm'; write .*set.zip:<member>"),
        ("set/all.json:three", "holds no job shop 'three'; write .* two, open"),
        ("set.zip:optimum.csv", r"of no known format; write one of \.sm"),
    ):
        with pytest.raises(InputError, match=message):
            from_psplib(f"{folder}/{name}")


# --- what is refused ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("jobs (incl. supersource/sink ):  6", "", "no line 'jobs"),
        ("nonrenewable              :  0", "nonrenewable              :  1", "nonrenewable resources"),
        ("   2        1          1 ", "   2        3          1 ", "line 20: job 2 has 3 modes"),
        (
            "   2        1          1           5",
            "   2        1          2           5",
            "line 20: has 4 numbers",
        ),
        (
            "   3        1          1           6",
            "   3        1          1           7",
            "line 21: .*successor 7",
        ),
        (
            "  3      1     4       3 ",
            "  3      1     4       5 ",
            "line 31: asks for 5 .*resource 1, which has 4",
        ),
        ("  3      1     4       3 ", "  3      1    -4       3 ", "line 31: has the number -4"),
        ("  3      1     4       3 ", "  3      1     x       3 ", "line 31: 'x' is not a whole number"),
        ("  4      1     2       0    3\n", "", "line 34: section 'REQUESTS/DURATIONS:' ends after 5"),
        ("    4    3\n", "", "line 38: section 'RESOURCEAVAILABILITIES:' ends after 0"),
        ("    4    3\n", "    4\n", "line 38: has 1 numbers"),
        ("RESOURCEAVAILABILITIES", "RESOURCES LEFT", "no section 'RESOURCEAVAILABILITIES:'"),
    ],
)
def test_a_bad_psplib_file_is_refused_with_its_line(old: str, new: str, message: str) -> None:
    assert SM.count(old) == 1
    with pytest.raises(InputError, match=rf"bad\.sm.*{message}"):
        read_sm(SM.replace(old, new), "bad.sm")


def test_a_file_cut_short_anywhere_is_refused() -> None:
    """At every line up to the availabilities."""
    lines = SM.splitlines()
    for count in range(len(lines) - 2):
        with pytest.raises(InputError, match=r"bad\.sm"):
            read_sm("\n".join(lines[:count]), "bad.sm")
    words = RCP.split()
    for count in range(len(words)):
        with pytest.raises(InputError, match=r"bad\.rcp, line 1: the file ends where"):
            read_rcp(" ".join(words[:count]), "bad.rcp")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("3  2 1", "3  5 1", "line 5: what activity 2 holds of resource 1 is 5; it must be from 0 to 4"),
        ("3  2 1", "-3  2 1", "line 5: the duration of activity 2 is -3; it must be from 0 to"),
        ("3  2 1", "2000000000000  2 1", "line 5: the duration of activity 2 is 2000000000000; it must be"),
        (
            "4 3\n",
            "4 9000000\n",
            "line 2: the availability of resource 2 is 9000000; it must be from 0 to 1000000",
        ),
        (
            "4 3\n",
            f"4 {'9' * 5000}\n",
            "line 2: '99999999999999999999...' is not a whole number of at most 18",
        ),
        ("6 2\n", "99999999999999 2\n", "the file ends where the duration of activity 7"),
        ("2  2 0  1  6", "2  2 0  1  7", "line 8: a successor of activity 5 is 7"),
        ("0  0 0  0\n", "0  0 0  0  9\n", "line 9: '9' stands behind the end"),
    ],
)
def test_a_bad_patterson_file_is_refused_with_its_line(old: str, new: str, message: str) -> None:
    assert RCP.count(old) == 1
    with pytest.raises(InputError, match=message):
        read_rcp(RCP.replace(old, new), "bad.rcp")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (JOB_SHOP.replace("1 2\n", "2 2\n"), "line 3: a machine of job 0 is 2; it must be from 0 to 1"),
        (JOB_SHOP.replace("0 1\n", "0\n"), "line 4: the file ends where a duration of job 1"),
    ],
)
def test_a_bad_job_shop_is_refused_with_its_line(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_job_shop(text, "bad.jsp")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "line 1: this is not JSON"),
        ('{"duration_matrix": [[1]]}', "machines_matrix is missing"),
        ('{"duration_matrix": [[1]], "machines_matrix": [[0, 1]]}', "differ in shape"),
        ('{"duration_matrix": [[-1]], "machines_matrix": [[0]]}', r"duration_matrix\[0\] holds -1"),
        (
            '{"duration_matrix": [[1]], "machines_matrix": [[0]], "metadata": {"optimum": "6"}}',
            "metadata.optimum is '6'",
        ),
        ('{"duration_matrix": [[1]], "machines_matrix": [[0]], "metadata": [6]}', r"metadata is \[6\]"),
        (
            '{"duration_matrix": [[1]], "machines_matrix": [[0]], '
            '"metadata": {"lower_bound": 9, "upper_bound": 1}}',
            "lower_bound 9 is above metadata.upper_bound 1",
        ),
        (
            '{"duration_matrix": [[1]], "machines_matrix": [[10000000000]]}',
            r"machines_matrix\[0\] holds 10000000000; write whole numbers from 0 to 999",
        ),
        (f'{{"duration_matrix": [[{"9" * 5000}]]}}', "too many digits"),
        ("[" * 100_000, "nests too deep"),
    ],
)
def test_bad_json_is_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_job_shop_json(text, "bad.json")


@pytest.mark.parametrize("line", ["a.sm", "a.sm,", "a.sm,x", ",5", "a.sm,9..8", "small.sm,9"])
def test_a_bad_table_of_optima_is_refused(line: str) -> None:
    with pytest.raises(InputError, match=r"optimum\.csv, line 5"):
        read_optima(OPTIMA + line, "optimum.csv")


def test_a_cycle_is_shown() -> None:
    cyclic = SM.replace("   5        1          1           6", "   5        1          1           2")
    with pytest.raises(InputError, match=r"cycle: job (\d) -> job (\d) -> job \1"):
        pose(read_sm(cyclic, "bad.sm"))


def test_what_no_device_could_run_is_refused() -> None:
    for activity, capacities, message in (
        (Activity(name="a", duration=1, units=(3,)), (2,), "holds 3 of resource 1, which has 2"),
        (Activity(name="a", duration=1, units=(1,) * 5), (1,) * 5, "holds 5 resources; at most 4"),
        (Activity(name="a", duration=-1, units=(1,)), (1,), "none may be negative"),
        (Activity(name="a", duration=0, units=(1,)), (1,), "no activity that takes time"),
    ):
        with pytest.raises(InputError, match=message):
            pose(Project(name="p", capacities=capacities, activities=(activity,)))
