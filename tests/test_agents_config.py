"""What a training run depends on: files, the command line, and combinations that make no sense."""

from __future__ import annotations

from dataclasses import fields
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("sb3_contrib")

from agents.config import (
    Algorithm,
    Network,
    Stage,
    TrainConfig,
    load_config,
    read_arguments,
    run_names,
)
from agents.families import Play, family_names, load_family
from agents.train import ProgressReport, progress_bar, progress_text
from cann_env import InputError
from cann_env.options import Window
from cann_env.paths import config_folder

if TYPE_CHECKING:
    from pathlib import Path


def read(line: str) -> TrainConfig:
    """The configuration that a command line means."""
    return read_arguments("program", "What it does.", line.split())[0]


# --- files --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", run_names())
def test_shipped_runs_are_named_after_their_files_and_play_what_there_is(name: str) -> None:
    config = load_config(name)
    assert config == load_config(config_folder("training") / f"{name}.toml")
    assert config.name == name
    for play in config.plays:
        assert play.scenario(config.window).options.window is config.window
        assert play.device in (None, play.scenario().device.name)


def test_a_configuration_comes_back_from_its_own_file(tmp_path: Path) -> None:
    for name in run_names():
        config = load_config(name, per_instance=True, learning_rate=1e-7)
        file = tmp_path / f"{name}.toml"
        file.write_text(config.to_toml(), encoding="utf-8")
        assert load_config(file) == config


def test_unknown_missing_and_broken_keys_of_a_file_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    text = (config_folder("training") / "pipeline_ppo.toml").read_text(encoding="utf-8")
    for wrong, name in (("epoch = 3\n" + text, "'epoch'"), (text.replace("\nseed", "\n#"), "'seed'")):
        file.write_text(wrong, encoding="utf-8")
        with pytest.raises(InputError, match=rf"run\.toml.*{name}"):
            load_config(file)
    file.write_text("seed = ", encoding="utf-8")
    with pytest.raises(InputError, match=r"run\.toml"):
        load_config(file)


PLAYS = """
[[plays]]
family = "graphs"
device = "ascend310b1"
instances = 7
envs = 3

[[plays]]
family = "pipeline"
"""


def with_plays(folder: Path, plays: str) -> Path:
    """The file of the pipeline's run with other plays."""
    text = (config_folder("training") / "pipeline_ppo.toml").read_text(encoding="utf-8")
    file = folder / "run.toml"
    file.write_text(text[: text.index("\n[[plays]]") + 1] + plays, encoding="utf-8")
    return file


def test_plays_come_from_the_file(tmp_path: Path) -> None:
    config = load_config(with_plays(tmp_path, PLAYS))
    assert config.plays == (
        Play(family="graphs", device="ascend310b1", instances=7, envs=3),
        Play(family="pipeline", device=None, instances=256, envs=8),
    )
    first, second = config.plays
    assert (first.name, second.name) == ("graphs ascend310b1", "pipeline")
    assert first.scenario().device.name == "ascend310b1"
    assert load_family("graphs").device.name != "ascend310b1"
    assert first.scenario(Window.ISSUABLE).options.window is Window.ISSUABLE
    assert first.scenario().options.window is Window.STARTABLE


@pytest.mark.parametrize(
    ("plays", "names"),
    [
        ('[[plays]]\nfamily = "graphs"\ngames = 3\n', ["plays", "'games'"]),
        ("[[plays]]\nenvs = 3\n", ["plays", "'family'"]),
        ('[[plays]]\nfamily = "graphs"\nenvs = 0\n', ["plays", "'envs'", "0", "at least 1"]),
        ('[[plays]]\nfamily = "graphs"\ninstances = -2\n', ["'instances'", "-2", "at least 1"]),
        ("plays = 3\n", ["'plays'", "3"]),
    ],
    ids=["unknown", "missing", "none", "negative", "number"],
)
def test_wrong_plays_are_refused_by_name(tmp_path: Path, plays: str, names: list[str]) -> None:
    with pytest.raises(InputError) as error:
        load_config(with_plays(tmp_path, plays))
    assert [name for name in names if name not in str(error.value)] == []


def test_a_family_that_is_not_known_says_which_are() -> None:
    with pytest.raises(InputError, match=r"family 'graph' is not known; .*graphs.*pipeline.*scenario file"):
        load_family("graph")
    with pytest.raises(InputError, match="empty"):
        load_config(plays=())
    assert "graphs" in family_names()


# --- the command line ---------------------------------------------------------------------------------

SET: dict[str, tuple[str, Any]] = {
    "name": ("mine", "mine"),
    "folder": ("elsewhere", "elsewhere"),
    "window": ("startable", Window.STARTABLE),
    "split_seed": ("11", 11),
    "algorithm": ("ppo", Algorithm.PPO),
    "network": ("graph", Network.GRAPH),
    "width": ("24", 24),
    "torch_device": ("cuda", "cuda"),
    "threads": ("2", 2),
    "seed": ("7", 7),
    "stages": ("reinforce", (Stage.REINFORCE,)),
    "teacher": ("heft", "heft"),
    "teacher_workers": ("3", 3),
    "clone_epochs": ("5", 5),
    "clone_batch_size": ("96", 96),
    "clone_learning_rate": ("3e-5", 3e-5),
    "total_steps": ("512", 512),
    "rollout_steps": ("48", 48),
    "batch_size": ("80", 80),
    "epochs": ("9", 9),
    "learning_rate": ("1e-5", 1e-5),
    "discount": ("0.5", 0.5),
    "gae_lambda": ("0.25", 0.25),
    "entropy": ("0.125", 0.125),
    "per_instance": ("true", True),
    "label_known": ("false", False),
    "label_rounds": ("17", 17),
    "label_instances": ("18", 18),
    "label_samples": ("19", 19),
    "label_epochs": ("21", 21),
    "label_learning_rate": ("1e-6", 1e-6),
    "label_eval_rounds": ("2", 2),
    "checkpoint_steps": ("100", 100),
    "eval_steps": ("200", 200),
    "eval_seed": ("12", 12),
    "eval_instances": ("13", 13),
}


def test_every_field_can_be_set_on_the_command_line() -> None:
    assert {*SET, "plays"} == {field.name for field in fields(TrainConfig)}
    default = load_config()
    line = " ".join(f"--{name.replace('_', '-')} {text}" for name, (text, _) in SET.items())
    config, beside = read_arguments("program", "", line.split())
    assert {name: getattr(config, name) for name in SET} == {name: value for name, (_, value) in SET.items()}
    assert [name for name, (_, value) in SET.items() if getattr(default, name) == value] == []
    assert config.plays == default.plays
    assert (beside.json, beside.resume) == (False, False)


def test_what_stands_beside_the_fields() -> None:
    config, beside = read_arguments("program", "", ["--json", "--resume", "--config", "random_ppo"])
    assert config == load_config("random_ppo")
    assert (beside.json, beside.resume) == (True, True)
    assert read("") == load_config("pipeline_ppo")
    assert read("--stages clone,label").stages == (Stage.CLONE, Stage.LABEL)
    assert read("--per-instance false --config random_ppo").per_instance is False


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("--window any", ["'window'", "'any'", "issuable, startable"]),
        ("--network deep", ["'network'", "'deep'", "rows, graph, flat"]),
        ("--algorithm a2c", ["'algorithm'", "'a2c'", "maskable_ppo, ppo, dqn"]),
        ("--stages clone,dance", ["'stages'", "'dance'", "clone, reinforce, label"]),
        ("--stages label,label", ["'stages'", "once"]),
        ("--stages ,", ["'stages'", "empty"]),
        ("--width many", ["--width", "'many'", "number"]),
        ("--width 2.5", ["--width", "'2.5'"]),
        ("--width 0", ["'width'", "0", "at least 1"]),
        ("--label-rounds -1", ["'label_rounds'", "-1", "at least 1"]),
        ("--checkpoint-steps -1", ["'checkpoint_steps'", "-1", "at least 0"]),
        ("--per-instance yes", ["--per-instance", "'yes'", "true or false"]),
        ("--discount 1.5", ["'discount'", "1.5", "from 0 to 1"]),
        ("--gae-lambda -0.5", ["'gae_lambda'", "-0.5", "from 0 to 1"]),
        ("--split-seed 2", ["'split_seed'", "'eval_seed'", "2", "differ"]),
        ("--seed -1", ["'seed'", "-1"]),
        ("--config best", ["'best'", "pipeline_ppo", ".toml"]),
        ("--config nowhere.toml", ["nowhere.toml", "No such file"]),
    ],
)
def test_wrong_values_are_refused_by_name(line: str, names: list[str]) -> None:
    with pytest.raises(InputError) as error:
        read(line)
    assert [name for name in names if name not in str(error.value)] == []


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--algorithm ppo --stages clone", r"'stages' is \['clone'\] with .*'ppo'; write \['reinforce'\]"),
        ("--algorithm dqn --network flat --stages label", r"'dqn'; write \['reinforce'\]"),
        ("--algorithm dqn --stages reinforce", "'network' is 'rows' with algorithm 'dqn'; write 'flat'"),
        ("--network flat", "'network' is 'flat', .* write 'rows' or 'graph'"),
        (
            "--algorithm dqn --network flat --stages reinforce --per-instance true",
            "'per_instance' is true with algorithm 'dqn', .*; write false",
        ),
        (
            "--algorithm dqn --network flat --stages reinforce --checkpoint-steps 5",
            "'checkpoint_steps' is 5 with algorithm 'dqn', .*; write 0",
        ),
    ],
    ids=["ppo_clones", "dqn_labels", "dqn_rows", "flat_clones", "dqn_advantages", "dqn_checkpoints"],
)
def test_who_cannot_learn_in_a_way_is_told_what_to_write(line: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read(line)


def test_unknown_options_end_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        read("--total-step 3")
    assert "--total-step" in capsys.readouterr().err


def test_help_says_what_each_field_means(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        read("--help")
    lines = " ".join(capsys.readouterr().out.split())
    for field in fields(TrainConfig):
        option = f"--{field.name.replace('_', '-')} VALUE "
        assert field.name == "plays" or (option in lines and f"{option}--" not in lines), field.name


# --- progress -----------------------------------------------------------------------------------------


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
