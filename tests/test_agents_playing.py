"""Trained policies at play: rollouts, files, and as schedulers among the others."""

from __future__ import annotations

import json
import pickle
import zipfile
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("sb3_contrib")

from tiny_plays import new_policy, programs_of, scores_of, tiny_family  # noqa: E402

from agents.policies import fitted  # noqa: E402
from agents.rollouts import best_of, play  # noqa: E402
from agents.schedulers import Learned, played_again, register_policy  # noqa: E402
from agents.shipping import Trained, load_policy, save_policy  # noqa: E402
from cann_env import InputError  # noqa: E402
from cann_env.engine.layout import P_STEP_BUDGET  # noqa: E402
from cann_env.envs import CannEnv  # noqa: E402
from cann_env.envs.batch import Batch, capacity_for  # noqa: E402
from cann_env.options import Window  # noqa: E402
from cann_env.program import compile_graph  # noqa: E402
from cann_env.schedulers import (  # noqa: E402
    EpisodeError,
    decide,
    make_scheduler,
    registry,
    replay,
    run_scheduler,
)
from cann_env.validate import validate  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from agents.policies import ScoringPolicy
    from cann_env.program import Program
    from cann_env.schedulers import Outcome


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Networks this small only lose by more, above all on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def values(outcomes: Sequence[Outcome | None]) -> list[int]:
    """Objectives of episodes that were all finished."""
    return [outcome.objective_ns for outcome in outcomes if outcome is not None]


# --- rollouts -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("graph", [False, True], ids=["rows", "graph"])
@pytest.mark.parametrize("noise", [0.0, 0.2], ids=["expected", "noise"])
def test_greedy_play_is_the_most_likely_action_of_single_environments(
    tmp_path: Path, graph: bool, noise: float
) -> None:
    family = tiny_family(tmp_path, noise=noise)
    shown = {"observation": "graph", "graph_capacity": (16, 40)} if graph else {}
    env = CannEnv(family, instances=None, **shown)
    programs, noises, wanted = [], [], []
    policy = None
    for episode in range(3):
        observation, info = env.reset(seed=5, options={"instance": episode})
        programs.append(env.program)
        noises.append(env.get_state().noise)
        policy = policy or new_policy(programs, graph=graph)
        own = policy
        if graph:
            own = fitted(policy, env.observation_space, env.action_space)
        ended, actions = False, []
        while not ended:
            seen = {name: torch.from_numpy(part)[None] for name, part in observation.items()}
            scores = scores_of(own, seen)[0].masked_fill(torch.from_numpy(info["action_mask"] == 0), -np.inf)
            actions.append(int(scores.argmax()))
            observation, _, ended, _, info = env.step(actions[-1])
        wanted.append((tuple(actions), env.schedule().makespan_ns))
    assert policy is not None
    found = play(policy, programs, noises=noises)
    assert [(outcome.actions, outcome.end_ns) for outcome in found if outcome] == wanted
    assert (noises[0] is not None) == (noise > 0)


def test_programs_of_all_sizes_and_shapes_are_played_in_one_call(tmp_path: Path) -> None:
    small = programs_of(tiny_family(tmp_path), 2)
    wide = programs_of(tiny_family(tmp_path, name="wide", least=20, most=30, commands=9), 2)
    policy = new_policy(small)
    mixed = [small[0], wide[0], small[1], wide[1]]
    together = play(policy, mixed)
    assert None not in together
    assert together == [play(policy, [program])[0] for program in mixed]
    assert [
        replay(p, outcome.actions) for p, outcome in zip(mixed, together, strict=True) if outcome
    ] == together


def test_samples_follow_their_seed(tmp_path: Path) -> None:
    programs = programs_of(tiny_family(tmp_path, least=12, most=16), 1) * 16
    policy = new_policy(programs)
    for parameter in policy.action_net.parameters():
        torch.nn.init.zeros_(parameter)
    first, again, other = (play(policy, programs, seed=seed) for seed in (3, 3, 4))
    assert first == again
    assert first != other
    assert len({outcome.actions for outcome in first if outcome}) > 8
    assert len({outcome.actions for outcome in play(policy, programs) if outcome}) == 1


def test_samples_are_as_likely_as_the_policy_says(tmp_path: Path) -> None:
    """First decisions of 4000 episodes; four standard deviations are allowed."""
    program = programs_of(tiny_family(tmp_path, least=12, most=16), 1)[0]
    policy = new_policy([program])
    batch = Batch([program])
    seen = {name: torch.from_numpy(part.copy()) for name, part in batch.observations().items()}
    mask = torch.from_numpy(batch.masks()[0])
    wanted = torch.softmax(scores_of(policy, seen)[0].masked_fill(~mask, -torch.inf), 0).numpy()
    first = [outcome.actions[0] for outcome in play(policy, [program] * 4000, seed=1) if outcome]
    share = np.bincount(first, minlength=len(wanted)) / 4000
    assert (wanted > 0.05).sum() > 1
    np.testing.assert_array_less(np.abs(share - wanted), 4 * np.sqrt(wanted * (1 - wanted) / 4000) + 1e-9)


def test_the_best_of_samples_is_never_worse_than_the_greedy_one(tmp_path: Path) -> None:
    better = 0
    for program in programs_of(tiny_family(tmp_path, least=12, most=16), 6):
        policy = new_policy([program], seed=program.lower_bound_ns % 7)
        (greedy,) = values(play(policy, [program]))
        found = best_of(policy, program, 8, seed=2)
        assert best_of(policy, program, 1).objective_ns == greedy
        assert found.objective_ns == min(greedy, *values(play(policy, [program] * 7, seed=2)))
        better += found.objective_ns < greedy
    assert better


def stuck(program: Program) -> Program:
    """The same with a budget of decisions that is too small to finish."""
    image = program.image.copy()
    image[P_STEP_BUDGET] = 2
    return replace(program, image=image)


def test_what_is_not_finished_is_none(tmp_path: Path) -> None:
    (program,) = programs_of(tiny_family(tmp_path), 1)
    policy = new_policy([program])
    assert play(policy, [stuck(program), program])[0] is None
    assert play(policy, [stuck(program), program])[1] == play(policy, [program])[0]
    with pytest.raises(EpisodeError, match="none of 4 episodes finished graph"):
        best_of(policy, stuck(program), 4)
    for learned in (Learned(trained=shipped(policy)), Learned(trained=shipped(policy), schedules=3)):
        with pytest.raises(EpisodeError, match="the policy does not finish graph"):
            decide(stuck(program), learned)


def test_without_masks_illegal_actions_become_waits(tmp_path: Path) -> None:
    """A policy that always prefers the last but one issue still ends, one way or the other."""
    programs = programs_of(tiny_family(tmp_path), 2)
    policy = new_policy(programs)
    masked, unmasked = play(policy, programs), play(policy, programs, masked=False)
    assert masked != unmasked
    for program, outcome in zip(programs, unmasked, strict=True):
        if outcome is not None:
            assert replay(program, outcome.actions) == outcome


# --- files --------------------------------------------------------------------------------------------


def shipped(policy: ScoringPolicy, commands: int = 5) -> Trained:
    return Trained(policy=policy, window=Window.STARTABLE, commands=commands, facts={"seed": 3})


@pytest.mark.parametrize("graph", [False, True], ids=["rows", "graph"])
def test_a_policy_comes_back_from_its_file(tmp_path: Path, graph: bool) -> None:
    programs = programs_of(tiny_family(tmp_path, least=12, most=20), 3)
    policy = new_policy(programs, graph=graph)
    save_policy(shipped(policy), tmp_path / "mine.zip")
    assert [path.name for path in tmp_path.glob("mine*")] == ["mine.zip"]
    back = load_policy(tmp_path / "mine.zip")
    assert (back.window, back.commands, back.facts) == (Window.STARTABLE, 5, {"seed": 3})
    assert type(back.policy) is type(policy)
    for name, weights in policy.state_dict().items():
        assert torch.equal(back.policy.state_dict()[name], weights)
    assert play(back.policy, programs) == play(policy, programs)
    assert play(back.policy, programs, seed=1) == play(policy, programs, seed=1)
    fit = fitted(back.policy, policy.observation_space, policy.action_space)
    batch = Batch(programs, capacity=capacity_for(programs) if graph else None)
    seen = {name: torch.from_numpy(part.copy()) for name, part in batch.observations().items()}
    assert torch.equal(scores_of(fit, seen), scores_of(policy, seen))


class Trap:
    """Leaves a trace when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        return open, (self.path, "w")


def rewritten(source: Path, target: Path, name: str, content: bytes | None) -> None:
    """A copy of an archive with one member replaced, or left out."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for each in old.namelist():
            if each != name:
                new.writestr(each, old.read(each))
        if content is not None:
            new.writestr(name, content)


def test_a_file_that_is_no_policy_is_refused_and_runs_no_code(tmp_path: Path) -> None:
    programs = programs_of(tiny_family(tmp_path), 1)
    good = tmp_path / "good.zip"
    save_policy(shipped(new_policy(programs)), good)
    with zipfile.ZipFile(good) as archive:
        head = json.loads(archive.read("policy.json"))
        weights = next(name for name in archive.namelist() if name.endswith(".npy"))
    trace = tmp_path / "trace"
    wrong = {
        "text.zip": b"no archive",
        "empty.zip": b"",
        "pickle.zip": pickle.dumps(Trap(trace)),
        "cut.zip": good.read_bytes()[:-200],
    }
    data = bytearray(good.read_bytes())
    with zipfile.ZipFile(good) as archive:
        largest = max(archive.infolist(), key=lambda info: info.compress_size)
    middle = largest.header_offset + largest.compress_size // 2
    for i in range(middle, middle + 40):
        data[i] ^= 0x5A
    wrong["flipped.zip"] = bytes(data)
    for name, content in wrong.items():
        (tmp_path / name).write_bytes(content)
    changes = {
        "headless.zip": ("policy.json", None),
        "list.zip": ("policy.json", b"[1, 2]"),
        "kind.zip": ("policy.json", json.dumps(head | {"kind": "deep"}).encode()),
        "window.zip": ("policy.json", json.dumps(head | {"window": "wide"}).encode()),
        "width.zip": ("policy.json", json.dumps(head | {"width": 16}).encode()),
        "factless.zip": ("policy.json", json.dumps({k: v for k, v in head.items() if k != "facts"}).encode()),
        "less.zip": (weights, None),
        "trap.zip": (weights, b"\x93NUMPY" + pickle.dumps(Trap(trace))),
    }
    for name, (member, content) in changes.items():
        rewritten(good, tmp_path / name, member, content)
    objects = tmp_path / "objects.npy"
    np.save(objects, np.array([Trap(trace)], dtype=object), allow_pickle=True)
    rewritten(good, tmp_path / "objects.zip", weights, objects.read_bytes())
    for name in (*wrong, *changes, "objects.zip", "nowhere.zip"):
        with pytest.raises(InputError, match=rf"{name}: cannot be read as a trained policy: .*agents\.train"):
            load_policy(tmp_path / name)
    assert not trace.exists()
    assert load_policy(good).commands == 5


# --- schedulers ---------------------------------------------------------------------------------------


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Trained, list[Program]]:
    """A policy that is registered as ``mine``, and programs with a larger window than it has."""
    monkeypatch.setattr(registry, "SCHEDULERS", dict(registry.SCHEDULERS))
    monkeypatch.setattr(registry, "ARGUMENTS", dict(registry.ARGUMENTS))
    programs = programs_of(tiny_family(tmp_path, least=12, most=16, commands=8), 4)
    save_policy(shipped(new_policy(programs)), tmp_path / "mine.zip")
    assert register_policy(tmp_path / "mine.zip") == "mine"
    return load_policy(tmp_path / "mine.zip"), programs


def test_a_registered_policy_is_a_scheduler_like_any_other(mine: tuple[Trained, list[Program]]) -> None:
    """It decides in its own window of five; schedules keep the program that the decisions belong to."""
    trained, programs = mine
    for program in programs:
        assert program.options.commands == 8
        own = Learned(trained=trained).program_for(program)
        assert own.options == replace(program.options, commands=5)
        (greedy,) = play(trained.policy, [own])
        outcome = decide(program, make_scheduler("mine"))
        assert greedy is not None
        assert outcome[:3] == greedy[:3]
        assert outcome.program is not None
        assert np.array_equal(outcome.program.image, own.image)
        schedule = run_scheduler(program, "mine")
        assert schedule.makespan_ns == greedy.end_ns
        assert (schedule.actions, schedule.options) == (greedy.actions, own.options)
        assert validate(schedule) == ()


@pytest.mark.parametrize("argument", ["8", "search=50", "seconds=0.2"])
def test_samples_and_search_are_never_worse_than_what_they_begin_with(
    mine: tuple[Trained, list[Program]], argument: str
) -> None:
    trained, programs = mine
    better = 0
    for program in programs:
        own = Learned(trained=trained).program_for(program)
        outcome = decide(program, make_scheduler(f"mine:{argument}", 3))
        begun = values(play(trained.policy, [own]))
        begun += values(play(trained.policy, [own] * (7 if argument == "8" else 64), seed=3))
        assert outcome.objective_ns <= min(begun)
        assert replay(outcome.program or program, outcome.actions).objective_ns == outcome.objective_ns
        assert validate(run_scheduler(program, f"mine:{argument}", seed=3)) == ()
        better += outcome.objective_ns < begun[0]
    assert better


def test_a_search_is_never_worse_than_one_without_the_policy(mine: tuple[Trained, list[Program]]) -> None:
    _, programs = mine
    for program in programs:
        reference = decide(program, make_scheduler("reference")).objective_ns
        assert decide(program, make_scheduler("mine:search=1")).objective_ns <= reference


@pytest.mark.parametrize("argument", ["", "0", "-3", "x", "=8", "search=0", "search=many", "seconds=0"])
def test_wrong_arguments_say_what_to_write(mine: tuple[Trained, list[Program]], argument: str) -> None:
    for each in (argument, "seconds=inf", "seconds=nan", "episodes=3"):
        with pytest.raises(InputError, match=r"write a number of samples, 'mine:search=2000' or"):
            make_scheduler(f"mine:{each}")


def test_a_name_that_is_taken_or_cannot_be_is_refused(
    mine: tuple[Trained, list[Program]], tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for name, message in (("mine", "is known already"), ("heft", "is known already"), ("a b", "leave out")):
        save_policy(mine[0], elsewhere / f"{name}.zip")
        with pytest.raises(InputError, match=message):
            register_policy(elsewhere / f"{name}.zip")
    assert register_policy(tmp_path / "mine.zip") == "mine"


@pytest.mark.parametrize("argument", ["", ":4", ":search=5", ":seconds=0.05"])
def test_under_noise_the_order_is_kept_and_durations_come_true(
    mine: tuple[Trained, list[Program]], argument: str
) -> None:
    """What was realised is not seen beforehand: samples and search choose under expected durations."""
    trained, programs = mine
    rng = np.random.default_rng(0)
    noisy = [
        compile_graph(each.graph, each.device, replace(each.options, noise=0.2)) for each in programs[:2]
    ]
    for program in noisy:
        noise = np.maximum(rng.normal(1.0, 0.2, len(program.graph.commands)) * 2**20, 1).astype(np.int64)
        outcome = decide(program, make_scheduler(f"mine{argument}", 3), noise=noise)
        expected = decide(program, make_scheduler(f"mine{argument}", 3))
        assert outcome.objective_ns != expected.objective_ns
        again = replay(outcome.program or program, outcome.actions, noise=noise)
        assert again.objective_ns == outcome.objective_ns
        assert validate(run_scheduler(program, f"mine{argument}", seed=3, noise=noise)) == ()
    if argument == ":4":
        own = Learned(trained=trained).program_for(programs[0])
        best = best_of(trained.policy, own, 4, seed=3)
        kept = played_again(own, best, np.full(len(own.graph.commands), 2**20))
        assert kept.objective_ns <= 1.2 * best.objective_ns
        assert played_again(own, best, None) is best
