"""The agents: configurations, networks that do not mind the order of rows, and learning itself."""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass, replace
from statistics import geometric_mean
from types import SimpleNamespace
from typing import TYPE_CHECKING, ClassVar

import gymnasium
import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("sb3_contrib")

from sb3_contrib import MaskablePPO  # noqa: E402
from stable_baselines3.common.torch_layers import CombinedExtractor  # noqa: E402

from agents.evaluate import Score, evaluate, table_of  # noqa: E402
from agents.extractors import (  # noqa: E402
    ActionScores,
    RowExtractor,
    ScoringPolicy,
    rows_of,
)
from agents.train import (  # noqa: E402
    ProgressReport,
    load_config,
    main,
    make_env,
    progress_bar,
    progress_text,
    read_arguments,
    train,
)
from cann_env import InputError  # noqa: E402
from cann_env.envs import CannEnv  # noqa: E402
from cann_env.envs.spaces import GraphCapacity, action_space, observation_space  # noqa: E402
from cann_env.graph import Command, CommandGraph, CommandKind  # noqa: E402
from cann_env.options import RunOptions, Window  # noqa: E402
from cann_env.paths import config_folder  # noqa: E402
from cann_env.program import compile_graph  # noqa: E402
from cann_env.schedulers import decide, make_scheduler, run_scheduler  # noqa: E402
from cann_env.workloads.kinds import KINDS  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.random import Generator

    from cann_env.workloads.description import Target

SHIPPED = sorted(config_folder("training").glob("*.toml"))


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Networks this small only lose by more, above all on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


# --- configuration ------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_runs_are_named_after_their_files_and_play_registered_environments(path: Path) -> None:
    config = load_config(path.stem)
    assert config == load_config(path)
    assert config.name == path.stem
    assert config.env_id in gymnasium.registry


def test_every_field_can_be_set_on_the_command_line() -> None:
    line = "--total-steps 512 --env-id cann/Random-v0 --seed 7 --torch-device cuda --window startable"
    config, as_json = read_arguments([*line.split(), "--learning-rate", "3e-4", "--device", "ascend910b4"])
    assert (config.total_steps, config.env_id, config.seed) == (512, "cann/Random-v0", 7)
    assert (config.torch_device, config.window, config.learning_rate) == ("cuda", "startable", 3e-4)
    assert config.device == "ascend910b4"
    assert not as_json
    assert config.batch_size == load_config().batch_size
    assert read_arguments(["--json", "--config", "random_ppo"]) == (load_config("random_ppo"), True)


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("--window any", ["'window'", "'any'", "issuable, startable"]),
        ("--network deep", ["'network'", "'deep'", "scoring, flat"]),
        ("--envs many", ["--envs", "'many'", "number"]),
        ("--envs 2.5", ["--envs", "'2.5'"]),
        ("--envs 0", ["'envs'", "0", "at least 1"]),
        ("--discount 1.5", ["'discount'", "1.5", "from 0 to 1"]),
        ("--seed 993", ["'seed'", "'eval_seed'", "993", "1000", "8"]),
        ("--seed -1", ["'seed'", "-1"]),
        ("--config best", ["'best'", "pipeline_ppo", ".toml"]),
        ("--config nowhere.toml", ["nowhere.toml", "No such file"]),
    ],
)
def test_wrong_values_are_refused_by_name(line: str, names: list[str]) -> None:
    with pytest.raises(InputError) as error:
        read_arguments(line.split())
    assert [name for name in names if name not in str(error.value)] == []


def test_training_and_comparison_may_lie_side_by_side() -> None:
    """Seeds 992 to 999 for eight environments leave 1000 to the comparison."""
    assert load_config(seed=992).seed == 992


def test_unknown_missing_and_broken_keys_of_a_file_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    text = SHIPPED[0].read_text(encoding="utf-8")
    for wrong, name in ((text + "\nepoch = 3", "'epoch'"), (text.replace("\nseed", "\n#"), "'seed'")):
        file.write_text(wrong, encoding="utf-8")
        with pytest.raises(InputError, match=name):
            load_config(file)
    file.write_text("seed = ", encoding="utf-8")
    with pytest.raises(InputError, match=r"run\.toml"):
        load_config(file)


def test_unknown_options_end_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        read_arguments(["--total-step", "3"])
    assert "--total-step" in capsys.readouterr().err


def test_progress_says_how_far_and_how_good() -> None:
    """Half of eight steps are done, and two episodes returned -25% and -75%."""
    assert progress_text([]) == "Training"
    with progress_bar() as bar:
        report = ProgressReport(bar, 8)
        report.model = SimpleNamespace(ep_info_buffer=[{"r": -0.25}, {"r": -0.75}])
        report.num_timesteps = 4
        report.on_rollout_end()
        (task,) = bar.tasks
        assert (task.description, task.percentage) == ("Training, 50.0% over bound", 50)


def test_progress_is_silent_where_nobody_looks(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bar() as bar:
        ProgressReport(bar, 8)
    assert capsys.readouterr() == ("", "")


# --- networks -----------------------------------------------------------------------------------------

OPTIONS = RunOptions(streams=3, commands=4, prefetches=1, l2_prefetches=1)
WIDTH = 8


def drawn_observation(options: RunOptions, seed: int = 0) -> dict[str, torch.Tensor]:
    """One observation, drawn, with all slots filled."""
    space = observation_space(options)
    space.seed(seed)
    parts = {name: torch.as_tensor(part)[None] for name, part in space.sample().items()}
    for name in ("commands", "moves"):
        rows_in(parts, name, options)[..., 0] = 1.0
    return parts


def rows_in(parts: dict[str, torch.Tensor], name: str, options: RunOptions) -> torch.Tensor:
    """A table as rows; a view."""
    rows = {"commands": options.commands, "streams": options.streams, "moves": options.slots}[name]
    return parts[name].view(1, rows, -1)


def swapped(parts: dict[str, torch.Tensor], name: str, options: RunOptions) -> dict[str, torch.Tensor]:
    """The same observation with rows 0 and 1 of a table in each other's place."""
    other = {key: part.clone() for key, part in parts.items()}
    rows = rows_in(other, name, options)
    rows[:, [0, 1]] = rows[:, [1, 0]]
    return other


def networks(options: RunOptions) -> tuple[RowExtractor, ActionScores]:
    """Extractor and scores with weights that only depend on their own shapes."""
    torch.manual_seed(0)
    space = observation_space(options)
    extractor = RowExtractor(space, WIDTH)
    scores = ActionScores(rows_of(space), int(action_space(options).n), WIDTH)
    for parameter in scores.parameters():
        torch.nn.init.normal_(parameter)
    return extractor, scores


@pytest.mark.parametrize(("name", "first"), [("commands", 1), ("streams", 5), ("moves", 8)])
def test_swapping_two_rows_swaps_their_embeddings_and_nothing_else(name: str, first: int) -> None:
    """Features are context, 4 commands, 3 streams, 2 moves: their rows begin at 1, 5 and 8."""
    extractor, _ = networks(OPTIONS)
    parts = drawn_observation(OPTIONS)
    before = extractor(parts).view(10, WIDTH)
    after = extractor(swapped(parts, name, OPTIONS)).view(10, WIDTH)
    order = list(range(10))
    order[first], order[first + 1] = first + 1, first
    torch.testing.assert_close(after, before[order])
    assert not torch.allclose(before[first], before[first + 1])


@pytest.mark.parametrize("window", ["issuable", "startable"])
@pytest.mark.parametrize("name", ["commands", "streams", "moves"])
def test_scores_follow_the_rows(window: str, name: str) -> None:
    """Actions are 4 x 3 issues (4 where the stream is implied), 2 prefetches, the wait."""
    options = RunOptions(streams=3, commands=4, prefetches=1, l2_prefetches=1, window=Window(window))
    extractor, scores = networks(options)
    parts = drawn_observation(options)
    before = scores(extractor(parts))
    after = scores(extractor(swapped(parts, name, options)))
    streams = 3 if window == "issuable" else 1
    assert before.shape == (1, 4 * streams + 2 + 1)
    numbers = np.arange(4 * streams + 2)
    issues, prefetches = numbers[: 4 * streams].reshape(4, streams), numbers[4 * streams :]
    if name == "commands":
        issues[[0, 1]] = issues[[1, 0]]
    elif name == "streams" and streams == 3:
        issues[:, [0, 1]] = issues[:, [1, 0]]
    elif name == "moves":
        prefetches[[0, 1]] = prefetches[[1, 0]]
    order = [*issues.ravel().tolist(), *prefetches.tolist(), before.shape[1] - 1]
    torch.testing.assert_close(after, before[:, order])
    assert len(set(before[0].tolist())) == before.shape[1]


def test_more_empty_slots_change_nothing() -> None:
    wide = RunOptions(streams=3, commands=9, prefetches=5, l2_prefetches=0)
    few, many = networks(OPTIONS), networks(wide)
    count = [sum(each.numel() for each in network.parameters()) for network in (*few, *many)]
    assert count[:2] == count[2:]
    many[0].load_state_dict(few[0].state_dict())
    narrow_parts, wide_parts = drawn_observation(OPTIONS), drawn_observation(wide)
    for name, part in narrow_parts.items():
        wide_parts[name].zero_()[:, : part.shape[1]] = part
    torch.testing.assert_close(few[0](narrow_parts)[:, :WIDTH], many[0](wide_parts)[:, :WIDTH])


@pytest.mark.parametrize("graph", [None, GraphCapacity(5, 6)])
def test_the_library_makes_a_module_of_each_part(graph: GraphCapacity | None) -> None:
    """Tables of 4 commands, 3 streams and 2 moves, and the device; the graph: 16 + 1 a node, 3 an edge, 4."""
    space = observation_space(OPTIONS, graph)
    extractor = CombinedExtractor(space)
    assert set(extractor.extractors) == set(space.spaces) >= {"commands", "streams", "moves", "device"}
    drawn = 5 * 17 + 6 * 3 + 4 if graph else 0
    assert extractor.features_dim == 80 + 36 + 12 + 24 + drawn


@pytest.mark.parametrize("observation", ["window", "graph"])
def test_the_plain_policy_of_the_library_learns_where_buffers_move(observation: str) -> None:
    env = CannEnv("random", observation=observation)
    assert env.scenario.options.slots > 0
    model = MaskablePPO("MultiInputPolicy", env, n_steps=8, batch_size=8, n_epochs=1, seed=0)
    before = model.policy.mlp_extractor.policy_net[0].weight.detach().clone()
    model.learn(8)
    assert model.num_timesteps == 8
    assert not torch.equal(model.policy.mlp_extractor.policy_net[0].weight, before)


def test_an_extractor_without_width_is_refused() -> None:
    with pytest.raises(InputError, match="width of the extractor is 0"):
        RowExtractor(observation_space(OPTIONS), 0)


def small_model(scenario: str, window: str) -> MaskablePPO:
    """An untrained model."""
    env = CannEnv(scenario, options={"window": window})
    return MaskablePPO(ScoringPolicy, env, n_steps=8, batch_size=8, seed=0, policy_kwargs={"width": WIDTH})


def test_a_saved_policy_decides_as_before(tmp_path: Path) -> None:
    model = small_model("layered", "issuable")
    model.save(tmp_path / "model.zip")
    model.policy.save(tmp_path / "policy.pt")
    observation, info = CannEnv("layered").reset(seed=3)
    seen = model.policy.obs_to_tensor(observation)[0]
    wanted = model.policy.get_distribution(seen, info["action_mask"]).distribution.probs
    for policy in (
        MaskablePPO.load(tmp_path / "model.zip").policy,
        ScoringPolicy.load(tmp_path / "policy.pt"),
    ):
        found = policy.get_distribution(seen, info["action_mask"]).distribution.probs
        torch.testing.assert_close(found, wanted)
    assert not wanted[0, info["action_mask"] == 0].any()


# --- comparison ---------------------------------------------------------------------------------------


def played(model: MaskablePPO, env: CannEnv, seed: int, instance: int) -> int:
    """Makespan (ns) of a model that plays an instance in the environment itself."""
    observation, info = env.reset(seed=seed, options={"instance": instance})
    ended = False
    while not ended:
        action, _ = model.predict(observation, action_masks=info["action_mask"], deterministic=True)
        observation, _, ended, _, info = env.step(action)
    return env.schedule().makespan_ns


def test_the_agent_is_judged_on_what_it_plays_and_the_schedulers_keep_their_streams() -> None:
    """In the window 'startable' a rule cannot name streams; the comparison gives it the other window."""
    model = small_model("pipeline", "startable")
    env = CannEnv("pipeline", options={"window": "startable"})
    makespan = played(model, env, 5, 0)
    scores = {each.scheduler: each for each in evaluate(model, env.scenario, seed=5, instances=3)}
    assert {each.instances for each in scores.values()} == {1}, "the pipeline never varies"
    assert round(scores["agent"].makespan_ns) == makespan

    pipeline = CannEnv("pipeline")
    pipeline.reset()
    full = run_scheduler(pipeline.program, "per_engine").makespan_ns
    assert round(scores["per_engine"].makespan_ns) == full
    assert run_scheduler(env.program, "per_engine").makespan_ns > full
    assert scores["single_stream"].to_single_stream == 1.0
    assert scores["per_engine"].over_bound == pytest.approx(full / pipeline.program.lower_bound_ns - 1.0)


def test_instances_and_noise_of_the_comparison_follow_its_seed() -> None:
    options = {"window": "startable", "noise": 0.1}
    env = CannEnv("layered", options=options, instances=None)
    model = small_model("layered", "startable")
    first, again, other = (evaluate(model, env.scenario, seed=seed, instances=2) for seed in (5, 5, 6))
    assert first == again
    assert all(one.makespan_ns != two.makespan_ns for one, two in zip(first, other, strict=True))
    assert {each.instances for each in first} == {2}

    agent, single = [], []
    for instance in range(2):
        agent.append(played(model, env, 5, instance))
        own, noise = env.program, env.get_state().noise
        full = compile_graph(own.graph, own.device, replace(own.options, window=Window.ISSUABLE))
        single.append(decide(full, make_scheduler("single_stream"), noise=noise).end_ns)
        assert single[-1] != decide(full, make_scheduler("single_stream")).end_ns
    scores = {each.scheduler: each.makespan_ns for each in first}
    assert scores["agent"] == pytest.approx(geometric_mean(agent), rel=1e-12)
    assert scores["single_stream"] == pytest.approx(geometric_mean(single), rel=1e-12)


def test_the_table_is_sorted_by_what_counts() -> None:
    scores = [
        Score(scheduler=name, instances=1, makespan_ns=1.5e6, to_single_stream=0.5, over_bound=gap)
        for name, gap in (("slow", 0.75), ("agent", 0.25))
    ]
    heading, first, second = table_of(scores).splitlines()
    assert heading.split() == ["scheduler", "makespan", "x", "single", "over", "bound"]
    assert first.split() == ["agent", "1.50", "ms", "0.500", "25.0%"]
    assert second.split()[0] == "slow"


# --- learning -----------------------------------------------------------------------------------------

SHORT_NS, LONG_NS = 100_000, 600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoJobs:
    """Two collectives, each followed by a callback; there is one engine for each kind."""

    kind: ClassVar[str] = "two_jobs"
    fixed: ClassVar[bool] = True

    def build(self, rng: Generator, target: Target, name: str) -> CommandGraph:
        jobs = {"a": (SHORT_NS, LONG_NS), "b": (2 * LONG_NS, SHORT_NS)}
        commands = []
        for job, (reduce_ns, post_ns) in jobs.items():
            commands += [
                Command(name=f"reduce_{job}", kind=CommandKind.COLLECTIVE, duration_ns=reduce_ns),
                Command(
                    name=f"post_{job}",
                    kind=CommandKind.CALLBACK,
                    duration_ns=post_ns,
                    after=(f"reduce_{job}",),
                ),
            ]
        return CommandGraph(name, tuple(commands))


@pytest.fixture
def two_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A scenario file of two jobs on two streams."""
    monkeypatch.setitem(KINDS, TwoJobs.kind, TwoJobs)
    file = tmp_path / "two_jobs.toml"
    file.write_text(
        '[scenario]\nname = "two_jobs"\ndescription = "The short collective has to go first."\n'
        'device = "ascend310b1"\n[workload]\nkind = "two_jobs"\n'
        "[options]\nstreams = 2\ncommands = 2\nprefetches = 0\nl2_prefetches = 0\n",
        encoding="utf-8",
    )
    return file


def best_makespan_ns(env: CannEnv) -> int:
    """Makespan of the best sequence of legal actions, found by trying all."""
    best = []
    for action in np.flatnonzero(env.action_masks()):
        branch = env.clone()
        _, _, ended, _, _ = branch.step(int(action))
        best.append(branch.schedule().makespan_ns if ended else best_makespan_ns(branch))
    return min(best)


def test_an_agent_learns_that_the_short_collective_goes_first(two_jobs: Path, tmp_path: Path) -> None:
    """Job a: collective 1, callback 6. Job b: collective 12, callback 1. Time unit 100 us.

    By tail, b goes first::      and with a first::

        hcom bbbbbbbbbbbba           hcom abbbbbbbbbbbb
        host             baaaaaa     host  aaaaaa      b
             0          12     20         0           13 14

    So the rules that go by tail take 19 to 20 units, the optimum is 14. An event between streams costs less
    than a microsecond; that much the agent may be off.
    """
    env = CannEnv(two_jobs)
    env.reset()
    optimum = best_makespan_ns(env)
    assert optimum == pytest.approx(1_400_000, abs=20_000)
    line = (
        f"--scenario {two_jobs} --folder {tmp_path} --total-steps 2048 --width 16 --discount 1 --entropy 0.02"
    )
    scores = {each.scheduler: each for each in main(line.split())}
    assert optimum <= round(scores["agent"].makespan_ns) < optimum + 1_000
    assert scores["single_stream"].makespan_ns > 1.3 * optimum


def test_a_short_run_on_the_pipeline_leaves_everything_behind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = f"--json --folder {tmp_path} --name short --total-steps 256 --envs 2 --rollout-steps 64"
    scores = main(line.split())
    folder = tmp_path / "short"
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads((folder / "scores.json").read_text(encoding="utf-8"))
    assert [row["scheduler"] for row in printed] == [score.scheduler for score in scores]
    assert load_config(folder / "config.toml") == read_arguments(line.split())[0]
    assert "scenario" not in tomllib.loads((folder / "config.toml").read_text(encoding="utf-8"))
    log = (folder / "progress.csv").read_text(encoding="utf-8").splitlines()
    assert "rollout/ep_rew_mean" in log[0].split(",")
    assert len(log) == 1 + 256 // (64 * 2)

    model = MaskablePPO.load(folder / "model.zip")
    assert model.num_timesteps == 256
    again = evaluate(model, make_env(load_config()).unwrapped.scenario, seed=1000, instances=1)
    assert again == scores


def test_the_flat_network_learns_where_buffers_move(tmp_path: Path) -> None:
    line = "--config random_ppo --network flat --total-steps 16 --envs 2 --rollout-steps 8 --batch-size 16"
    config, _ = read_arguments([*line.split(), "--epochs", "1", "--folder", str(tmp_path)])
    model = train(config)
    assert "moves" in model.observation_space.spaces
    assert model.num_timesteps == 16
