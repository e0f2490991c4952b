"""How agents learn: environments of several plays, each stage alone, and runs that were interrupted."""

from __future__ import annotations

import csv
import json
import pickle
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("sb3_contrib")

from tiny_plays import (  # noqa: E402
    BEST_NS,
    NEARLY_NS,
    new_policy,
    programs_of,
    run_file,
    tiny_family,
    two_jobs_family,
)
from vectors import legal  # noqa: E402

import agents.labelling  # noqa: E402
from agents.advantage import PerInstanceAdvantage  # noqa: E402
from agents.cloning import Examples, clone, examples  # noqa: E402
from agents.config import load_config  # noqa: E402
from agents.families import Play, instance  # noqa: E402
from agents.labelling import Labels, label  # noqa: E402
from agents.mixture import MixedVecEnv, graph_capacity, make_mixture  # noqa: E402
from agents.rollouts import play  # noqa: E402
from agents.scores import AGENT  # noqa: E402
from agents.shipping import load_policy  # noqa: E402
from agents.teacher import demonstrations  # noqa: E402
from agents.train import main, train  # noqa: E402
from agents.vec_env import CannVecEnv  # noqa: E402
from cann_env import InputError  # noqa: E402
from cann_env.envs import CannEnv, CannVectorEnv  # noqa: E402
from cann_env.envs.batch import capacity_for  # noqa: E402
from cann_env.options import Window  # noqa: E402
from cann_env.schedulers import EpisodeError, decide, make_scheduler, replay  # noqa: E402
from cann_env.schedulers.policy import Outcome  # noqa: E402
from cann_env.workloads.kinds import KINDS  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cann_env.program import Program


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Networks this small only lose by more, above all on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def two_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The file of two jobs, see :class:`tiny_plays.TwoJobs`."""
    kinds: dict[str, Any] = {}
    family = two_jobs_family(tmp_path, kinds)
    for kind, workload in kinds.items():
        monkeypatch.setitem(KINDS, kind, workload)
    return family


# --- several plays as one -----------------------------------------------------------------------------


def two_plays(folder: Path) -> tuple[Play, Play]:
    """Five graphs of one family, three of another."""
    other = tiny_family(folder, name="other", least=8, most=12)
    return Play(family=tiny_family(folder), instances=5, envs=3), Play(family=other, instances=3, envs=2)


def mixture(folder: Path, *, seed: int = 0, graph: bool = False) -> MixedVecEnv:
    return make_mixture(two_plays(folder), Window.STARTABLE, split_seed=1, seed=seed, graph=graph)


@pytest.mark.parametrize("graph", [False, True], ids=["window", "graph"])
def test_a_mixture_is_its_parts(tmp_path: Path, graph: bool) -> None:
    """Observations, masks, rewards, ends and information, bit for bit, over several episodes."""
    plays = two_plays(tmp_path)
    mixed = mixture(tmp_path, seed=2, graph=graph)
    capacity = graph_capacity(plays, Window.STARTABLE, 1)
    shown = {"observation": "graph", "graph_capacity": tuple(capacity)} if graph else {}
    parts = [
        CannVecEnv(
            CannVectorEnv(
                play.scenario(Window.STARTABLE).to_dict(),
                num_envs=play.envs,
                instances=play.instances,
                env_index=2 * 4096,
                **shown,
            ),
            run_seed=1,
        )
        for play in plays
    ]
    rng = np.random.default_rng(0)
    seen, wanted = mixed.reset(), [part.reset() for part in parts]
    ended = 0
    for _ in range(60):
        for name, values in seen.items():
            np.testing.assert_array_equal(values, np.concatenate([each[name] for each in wanted]))
        masks = mixed.action_masks()
        np.testing.assert_array_equal(masks, np.concatenate([part.action_masks() for part in parts]))
        np.testing.assert_array_equal(mixed.env_method("action_masks"), masks)
        actions = legal(masks, rng)
        seen, rewards, ends, infos = mixed.step(actions)
        results = [part.step(some) for part, some in zip(parts, (actions[:3], actions[3:]), strict=True)]
        wanted = [result[0] for result in results]
        np.testing.assert_array_equal(rewards, np.concatenate([result[1] for result in results]))
        np.testing.assert_array_equal(ends, np.concatenate([result[2] for result in results]))
        for info, other in zip(infos, [info for result in results for info in result[3]], strict=True):
            assert info.keys() == other.keys()
            assert info.get("schedule") == other.get("schedule")
        ended += int(ends.sum())
    assert ended >= 10
    assert mixed.get_attr("program", [4])[0].graph == parts[1].get_attr("program", [1])[0].graph


def test_instances_have_the_same_number_if_and_only_if_their_graphs_are_the_same(tmp_path: Path) -> None:
    mixed = mixture(tmp_path)
    rng = np.random.default_rng(0)
    mixed.reset()
    graphs: dict[int, Any] = {}
    for _ in range(150):
        for number, program in zip(mixed.instances.tolist(), mixed.get_attr("program"), strict=True):
            assert graphs.setdefault(number, program.graph) == program.graph
        mixed.step(legal(mixed.action_masks(), rng))
    commands = [repr(graph.commands) for graph in graphs.values()]
    assert len(graphs) == 8
    assert len(set(commands)) > 4
    assert sorted(graphs) == list(range(8))


def test_graphs_belong_to_the_split_and_their_order_to_the_seed(tmp_path: Path) -> None:
    """Environment i of one seed plays what that of another plays, at another time."""
    split = {
        repr(instance(play.scenario(), 1, number).graph.commands)
        for play in two_plays(tmp_path)
        for number in range(play.instances)
    }
    orders = []
    for seed in (0, 0, 1):
        mixed = mixture(tmp_path, seed=seed)
        mixed.seed(1234)
        rng = np.random.default_rng(0)
        mixed.reset()
        order = [mixed.instances.tolist()]
        for _ in range(80):
            assert {repr(program.graph.commands) for program in mixed.get_attr("program")} <= split
            mixed.step(legal(mixed.action_masks(), rng))
            order.append(mixed.instances.tolist())
        orders.append(order)
    assert orders[0] == orders[1]
    assert orders[0] != orders[2]


def test_spaces_that_differ_are_refused(tmp_path: Path) -> None:
    plays = (
        Play(family=tiny_family(tmp_path), envs=1),
        Play(family=tiny_family(tmp_path, name="wide", commands=6), envs=1),
    )
    with pytest.raises(InputError, match="scenario 'wide' has other spaces than 'tiny'"):
        make_mixture(plays, Window.STARTABLE, split_seed=1, seed=0)
    with pytest.raises(InputError, match="parts is empty"):
        MixedVecEnv([])
    with pytest.raises(InputError, match="cannot be set"):
        mixture(tmp_path).set_attr("scenario", None)


def test_a_mixture_goes_on_from_mid_episode_as_it_would_have(tmp_path: Path) -> None:
    mixed = mixture(tmp_path, graph=True)
    rng = np.random.default_rng(0)
    mixed.reset()
    for _ in range(7):
        mixed.step(legal(mixed.action_masks(), rng))
    other = pickle.loads(pickle.dumps(mixed))
    for _ in range(60):
        masks = mixed.action_masks()
        np.testing.assert_array_equal(other.action_masks(), masks)
        np.testing.assert_array_equal(other.instances, mixed.instances)
        actions = legal(masks, rng)
        (seen, rewards, ends, _), (seen2, rewards2, ends2, _) = mixed.step(actions), other.step(actions)
        for name, values in seen.items():
            np.testing.assert_array_equal(seen2[name], values)
        np.testing.assert_array_equal(rewards2, rewards)
        np.testing.assert_array_equal(ends2, ends)


# --- advantages ---------------------------------------------------------------------------------------


def test_advantages_by_hand() -> None:
    """Instance 0 has 1 and 3 (mean 2, size 2), instance 1 has -10 and 20 (mean 5, size 15).

    Then instance 0 has 4: mean 0.9 * 2 + 0.1 * 4 = 2.2, size 2.2 as well; and instance 3 appears with -6.
    """
    own = PerInstanceAdvantage()
    played = np.array([[0, 1], [0, 1]])
    found = own.rescaled(np.array([[1.0, -10.0], [3.0, 20.0]], np.float32), played)
    np.testing.assert_allclose(found, [[-0.5, -1.0], [0.5, 1.0]])
    assert found.dtype == np.float32
    found = own.rescaled(np.array([[4.0, -6.0]], np.float32), np.array([[0, 3]]))
    np.testing.assert_allclose(found, [[(4 - 2.2) / 2.2, 0.0]], rtol=1e-6)
    np.testing.assert_allclose(own.means, [2.2, 5.0, 0.0, -6.0])
    np.testing.assert_allclose(own.sizes, [2.2, 15.0, 0.0, 6.0])
    assert own.seen.tolist() == [True, True, False, True]


def test_the_memory_of_advantages_is_all_they_depend_on() -> None:
    rng = np.random.default_rng(0)
    own, other = PerInstanceAdvantage(), PerInstanceAdvantage()
    advantages, played = rng.normal(size=(5, 4)).astype(np.float32), rng.integers(6, size=(5, 4))
    own.rescaled(advantages, played)
    other.remember(pickle.loads(pickle.dumps(own.memory())))
    np.testing.assert_array_equal(own.rescaled(advantages, played), other.rescaled(advantages, played))


def test_nothing_is_divided_by_nothing() -> None:
    found = PerInstanceAdvantage().rescaled(np.zeros((3, 2), np.float32), np.zeros((3, 2), np.int64))
    assert not found.any()


# --- cloning ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("graph", [False, True], ids=["window", "graph"])
def test_examples_are_what_an_environment_shows(tmp_path: Path, graph: bool) -> None:
    """Where there was a choice; returns are what was gained from there on."""
    family = tiny_family(tmp_path)
    programs = programs_of(family, 3, split_seed=5)
    episodes = [decide(program, make_scheduler("heft")).actions for program in programs]
    capacity = capacity_for(programs) if graph else None
    found = examples(programs, episodes, capacity)
    shown = {"observation": "graph", "graph_capacity": tuple(capacity)} if capacity else {}
    env = CannEnv(family, instances=None, **shown)
    wanted = []
    for number, (program, actions) in enumerate(zip(programs, episodes, strict=True)):
        observation, info = env.reset(seed=5, options={"instance": number})
        assert env.program.graph.commands == program.graph.commands
        rewards, at = [], []
        for action in actions:
            at.append((observation, info["action_mask"] == 1, action))
            observation, reward, _, _, info = env.step(action)
            rewards.append(reward)
        rest = np.cumsum(rewards[::-1])[::-1]
        objective, bound = env.schedule().makespan_ns, program.norm_ns
        assert rest[0] == pytest.approx(-(objective - bound) / bound, abs=1e-9)
        wanted += [(*each, gain) for each, gain in zip(at, rest, strict=True) if each[1].sum() > 1]
    assert len(found.actions) == len(wanted) > 5
    key = lambda row: (row[2], row[3].round(6), *row[1])  # noqa: E731
    rows = [
        (
            {name: part[i] for name, part in found.seen.items()},
            found.masks[i],
            int(found.actions[i]),
            found.returns[i],
        )
        for i in range(len(wanted))
    ]
    for (seen, mask, action, gain), (real, mask2, action2, gain2) in zip(
        sorted(rows, key=key), sorted(wanted, key=key), strict=True
    ):
        assert action == action2
        np.testing.assert_array_equal(mask, mask2)
        assert gain == pytest.approx(gain2, abs=1e-5)
        assert seen.keys() == real.keys()
        for name, part in real.items():
            np.testing.assert_allclose(seen[name], part, rtol=1e-3, atol=1e-5)


def test_numbers_of_nodes_are_kept_exactly(tmp_path: Path) -> None:
    """Float16 does not know 2049."""
    programs = programs_of(tiny_family(tmp_path), 1)
    found = examples(programs, [decide(programs[0], make_scheduler("heft")).actions], capacity_for(programs))
    kinds = {name: part.dtype for name, part in found.seen.items()}
    assert kinds["edge_index"] == kinds["window"] == np.float32
    assert kinds["nodes"] == kinds["commands"] == np.float16
    assert int(np.float16(2049)) != 2049


@pytest.mark.parametrize("graph", [False, True], ids=["rows", "graph"])
def test_a_teacher_is_cloned_to_near_certainty(tmp_path: Path, graph: bool) -> None:
    """Its decisions on three graphs: from one in several to more than nine in ten."""
    programs = programs_of(tiny_family(tmp_path, least=8, most=14), 3)
    capacity = capacity_for(programs) if graph else None
    outcomes = [decide(program, make_scheduler("reference")) for program in programs]
    given = examples(programs, [outcome.actions for outcome in outcomes], capacity)
    policy = new_policy(programs, graph=graph)
    told: list[tuple[int, int]] = []
    losses = clone(
        policy,
        given,
        epochs=120,
        batch_size=16,
        learning_rate=0.01,
        seed=0,
        watch=lambda done, total, loss: told.append((done, total)),
    )
    assert losses[0] > 0.5
    assert losses[-1] < 0.1
    assert len(losses) == 120
    assert told == [(i + 1, len(told)) for i in range(len(told))]
    found = play(policy, programs)
    assert [o.objective_ns for o in found if o] == [outcome.objective_ns for outcome in outcomes]


def test_there_must_be_something_to_clone(tmp_path: Path) -> None:
    programs = programs_of(tiny_family(tmp_path), 1)
    given = examples(programs, [decide(programs[0], make_scheduler("heft")).actions])
    none = Examples({name: part[:0] for name, part in given.seen.items()}, *(part[:0] for part in given[1:]))
    with pytest.raises(InputError, match="there is nothing to clone"):
        clone(new_policy(programs), none, epochs=1, batch_size=4, learning_rate=0.1, seed=0)


def test_demonstrations_are_kept_and_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plays = two_plays(tmp_path)
    how: dict[str, Any] = {"split_seed": 1, "teacher": "heft", "folder": tmp_path / "shown"}
    told: list[tuple[int, int]] = []
    found = demonstrations(plays, Window.STARTABLE, **how, watch=lambda *part: told.append(part))
    assert [(each.play, each.number) for each in found] == [
        *((0, j) for j in range(5)),
        *((1, j) for j in range(3)),
    ]
    for each in found:
        program = instance(plays[each.play].scenario(Window.STARTABLE), 1, each.number)
        assert replay(program, each.actions).objective_ns == each.objective_ns
    assert told[-1] == (8, 8)
    monkeypatch.setattr("agents.teacher._decide", None)
    assert demonstrations(plays, Window.STARTABLE, **how) == found
    with pytest.raises(TypeError):
        demonstrations(plays, Window.STARTABLE, **(how | {"split_seed": 2}))


# --- labelling ----------------------------------------------------------------------------------------


def two_jobs_program(family: str) -> Program:
    return instance(Play(family=family).scenario(), 1, 0)


LABEL: dict[str, Any] = {
    "rounds": 6,
    "instances": 1,
    "samples": 32,
    "epochs": 40,
    "batch_size": 32,
    "learning_rate": 0.005,
    "seed": 0,
}


def test_a_policy_that_labels_plays_what_is_best(two_jobs: str) -> None:
    program = two_jobs_program(two_jobs)
    policy = new_policy([program])
    told: list[tuple[int, int, float]] = []
    best = label(policy, [program], Labels([()], [0]), **LABEL, watch=lambda *each: told.append(each))
    (outcome,) = play(policy, [program])
    assert outcome is not None
    assert BEST_NS <= outcome.objective_ns <= BEST_NS + NEARLY_NS
    assert best.objective_ns[0] <= BEST_NS + NEARLY_NS
    assert replay(program, best.actions[0]).objective_ns == best.objective_ns[0]
    assert [each[:2] for each in told] == [(turn, 6) for turn in range(1, 7)]
    assert np.isnan(told[0][2])
    assert told[-1][2] >= 1.0


def test_what_is_known_is_only_replaced_by_something_better(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three instances: one whose known episode is beyond reach, one with a bad one, one without."""
    programs = programs_of(tiny_family(tmp_path, least=10, most=14), 3)
    policy = new_policy(programs)
    actions = decide(programs[0], make_scheduler("heft")).actions
    bad = decide(programs[1], make_scheduler("single_stream"))
    known = Labels([actions, bad.actions, ()], [1, 10 * bad.objective_ns, 0])
    cloned: list[list[tuple[int, ...]]] = []

    def shown(some: list[Program], episodes: list[tuple[int, ...]], capacity: Any = None) -> Examples:
        cloned.append(list(episodes))
        return examples(some, episodes, capacity)

    monkeypatch.setattr(agents.labelling, "examples", shown)
    best = label(policy, programs, known, **(LABEL | {"rounds": 1, "instances": 3, "epochs": 1}))
    assert (best.actions[0], best.objective_ns[0]) == (actions, 1)
    for place in (1, 2):
        assert replay(programs[place], best.actions[place]).objective_ns == best.objective_ns[place]
    assert best.objective_ns[1] < 10 * bad.objective_ns
    assert sorted(cloned[0]) == sorted(best.actions)
    assert known.objective_ns == [1, 10 * bad.objective_ns, 0], "what was given stays"
    samples = play(new_policy(programs), [programs[2]] * 16, seed=int(np.random.default_rng(0).integers(1)))
    assert best.objective_ns[2] <= max(o.objective_ns for o in samples if o)


def test_the_best_sample_is_taken_and_not_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Samples of 30, 10, 20 ns against a known 15 ns, then of 30, 12, unfinished."""
    (program,) = programs_of(tiny_family(tmp_path), 1)
    actions = decide(program, make_scheduler("heft")).actions
    rounds = iter([(30, 10, 20), (30, 12, None)])

    def played(policy: Any, programs: list[Program], *, seed: int) -> list[Outcome | None]:
        return [None if ns is None else Outcome(actions, ns, ns) for ns in next(rounds)]

    monkeypatch.setattr(agents.labelling, "play", played)
    told: list[float] = []
    best = label(
        new_policy([program]),
        [program],
        Labels([actions], [15]),
        **(LABEL | {"rounds": 2, "samples": 3, "epochs": 1}),
        watch=lambda done, total, ratio: told.append(ratio),
    )
    assert best.objective_ns == [10]
    assert told == pytest.approx([10 / 15, 12 / 10])


def test_a_round_in_which_nothing_is_finished_teaches_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (program,) = programs_of(tiny_family(tmp_path), 1)
    policy = new_policy([program])
    before = {name: part.clone() for name, part in policy.state_dict().items()}
    monkeypatch.setattr(agents.labelling, "play", lambda policy, programs, *, seed: [None] * len(programs))
    best = label(policy, [program], Labels([()], [0]), **LABEL)
    assert best == Labels([()], [0])
    assert all(torch.equal(before[name], part) for name, part in policy.state_dict().items())


# --- stages -------------------------------------------------------------------------------------------

STAGES = {
    "clone": "--stages clone --teacher search:200 --clone-epochs 60 --clone-learning-rate 0.02",
    "reinforce": "--stages reinforce --total-steps 2048 --width 16 --discount 1 --entropy 0.02 --epochs 4",
    "label": "--stages label --label-rounds 6 --label-samples 16 --label-epochs 20 "
    "--label-learning-rate 0.02",
    "all": "--stages clone,reinforce,label --teacher search:200 --clone-epochs 60 --clone-learning-rate 0.02 "
    "--total-steps 256 --label-rounds 2 --per-instance true",
}


@pytest.mark.parametrize("stage", STAGES)
def test_each_stage_alone_learns_that_the_short_collective_goes_first(
    two_jobs: str, tmp_path: Path, stage: str
) -> None:
    file = run_file(tmp_path, two_jobs, window="issuable", instances=1)
    scores = {each.scheduler: each for each in main(["--config", file, *STAGES[stage].split()])}
    agent = scores[AGENT]
    assert (agent.instances, agent.unfinished) == (1, 0)
    assert BEST_NS <= agent.makespan_ns <= BEST_NS + NEARLY_NS
    assert scores["single_stream"].makespan_ns > 1.3 * BEST_NS


def test_a_run_leaves_everything_behind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = run_file(tmp_path, tiny_family(tmp_path))
    line = f"--json --config {file} --stages clone,reinforce,label --teacher heft --clone-epochs 2"
    line += " --label-rounds 2 --label-samples 4 --label-eval-rounds 1 --eval-steps 64"
    scores = main(line.split())
    folder = tmp_path / "run"
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads((folder / "scores.json").read_text(encoding="utf-8"))
    assert [row["scheduler"] for row in printed] == [score.scheduler for score in scores]
    config = load_config(folder / "config.toml")
    assert (config.teacher, config.label_rounds, config.plays) == ("heft", 2, load_config(file).plays)
    rows = read_log(folder / "progress.csv")
    assert [int(row["time/total_timesteps"]) for row in rows] == [64, 128]
    assert 0.1 < float(rows[1]["eval/ratio"]) < 10
    labels = read_log(folder / "label" / "progress.csv")
    assert [0.1 < float(row["eval/ratio"]) < 10 for row in labels] == [True, True]
    trained = load_policy(folder / "policy.zip")
    assert (trained.window, trained.commands) == (Window.STARTABLE, 5)
    assert trained.facts["seed"] == 0
    assert load_config(folder / "config.toml").to_toml() == trained.facts["config"]


@pytest.mark.parametrize(
    "learner",
    ["ppo", "ppo --network flat", "ppo --network graph", "dqn --network flat", "maskable_ppo --network flat"],
)
def test_other_learners_run_and_are_judged_on_what_they_see(tmp_path: Path, learner: str) -> None:
    file = run_file(tmp_path, tiny_family(tmp_path), instances=2)
    line = f"--config {file} --total-steps 256 --eval-steps 128 --algorithm {learner}"
    scores = {each.scheduler: each for each in main(line.split())}
    agent = scores[AGENT]
    assert agent.instances == 2
    assert agent.unfinished == 2 or agent.to_single_stream > 0.1
    assert scores["single_stream"].to_single_stream == pytest.approx(1.0)
    assert (tmp_path / "run" / "model.zip").exists()
    assert (tmp_path / "run" / "policy.zip").exists() == ("flat" not in learner)


# --- going on -----------------------------------------------------------------------------------------


def read_log(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def timeless(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    """Rows without what depends on the clock and on how often the run was begun."""
    clock = ("time/fps", "time/time_elapsed", "time/iterations")
    return [{key: text for key, text in row.items() if key not in clock} for row in rows]


@pytest.mark.parametrize("network", ["rows", "graph"])
def test_a_run_that_goes_on_is_the_run_that_was_never_interrupted(tmp_path: Path, network: str) -> None:
    """Rollouts of 64 decisions; the checkpoint after 192 is the last one before the end at 320.

    Environments stand in mid-episode then, with noise, advantages remember their instances, and a look at
    the greedy policy is due after it.
    """
    file = run_file(tmp_path, tiny_family(tmp_path, noise=0.1))
    config = load_config(
        file,
        stages=["reinforce", "label"],
        network=network,
        total_steps=320,
        per_instance=True,
        checkpoint_steps=192,
        eval_steps=128,
        label_rounds=1,
        label_samples=2,
    )
    folder = config.run_folder
    whole = train(config)
    assert whole.num_timesteps == 320
    rows = read_log(folder / "progress.csv")
    assert len(rows) == 5
    assert sum(row["eval/ratio"] != "" for row in rows) == 2
    weights = load_policy(folder / "policy.zip").policy.state_dict()

    (folder / "policy.zip").unlink()
    resumed = train(replace(config, checkpoint_steps=0), resume=True)
    assert resumed.num_timesteps == 320
    assert timeless(read_log(folder / "progress.csv")) == timeless(rows)
    again = load_policy(folder / "policy.zip").policy.state_dict()
    assert all(torch.equal(again[name], part) for name, part in weights.items())
    assert all(
        torch.equal(part, whole.policy.state_dict()[name])
        for name, part in resumed.policy.state_dict().items()
    )


def test_a_run_goes_on_only_as_what_it_was(tmp_path: Path) -> None:
    config = load_config(run_file(tmp_path, tiny_family(tmp_path)), checkpoint_steps=64)
    with pytest.raises(InputError, match="there is no checkpoint to go on from; run without --resume"):
        train(config, resume=True)
    assert not config.run_folder.exists()
    train(config)
    assert (config.run_folder / "checkpoint").exists()
    with pytest.raises(InputError, match="key 'width' is 16, but 8 in the run that is to go on"):
        train(replace(config, width=16), resume=True)
    with pytest.raises(InputError, match=r"'stages' is \['label'\]; a run goes on in 'reinforce'"):
        train(load_config(config.run_folder / "config.toml", stages=["label"]), resume=True)
    assert load_config(config.run_folder / "config.toml") == config
    train(replace(config, checkpoint_steps=0, total_steps=64))
    with pytest.raises(InputError, match="there is no checkpoint"):
        train(config, resume=True)


def test_an_unfinished_teacher_is_an_error_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(program: Program, scheduler: Any) -> Outcome:
        raise EpisodeError("it ran out of memory")

    monkeypatch.setattr("agents.teacher.decide", failing)
    plays = (Play(family=tiny_family(tmp_path), instances=2),)
    with pytest.raises(EpisodeError, match="out of memory"):
        demonstrations(plays, Window.STARTABLE, split_seed=1, teacher="heft", folder=tmp_path / "shown")
    assert list((tmp_path / "shown").glob("*.json")) == []
