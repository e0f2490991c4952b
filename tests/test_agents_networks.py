"""Networks of the agents: the order of rows, empty slots, padding and the length of a graph do not matter."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("sb3_contrib")

from sb3_contrib import MaskablePPO  # noqa: E402
from stable_baselines3.common.torch_layers import CombinedExtractor  # noqa: E402
from tiny_plays import WIDTH, new_policy, programs_of, scores_of, tiny_family  # noqa: E402

from agents.extractors import GraphExtractor, RowExtractor, Rows  # noqa: E402
from agents.features import node_features, tables_of  # noqa: E402
from agents.policies import ActionScores, GraphPolicy, ScoringPolicy, fitted  # noqa: E402
from cann_env import InputError  # noqa: E402
from cann_env.envs import CannEnv  # noqa: E402
from cann_env.envs.batch import Batch  # noqa: E402
from cann_env.envs.spaces import GraphCapacity, action_space, observation_space  # noqa: E402
from cann_env.options import RunOptions, Window  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cann_env.program import Program

Parts = dict[str, "torch.Tensor"]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Networks this small only lose by more, above all on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


# --- windows ------------------------------------------------------------------------------------------

OPTIONS = RunOptions(streams=3, commands=4, prefetches=1, l2_prefetches=1)


def drawn_observation(options: RunOptions, seed: int = 0) -> Parts:
    """One observation, drawn, with all slots filled."""
    space = observation_space(options)
    space.seed(seed)
    parts = {name: torch.as_tensor(part)[None] for name, part in space.sample().items()}
    for name in ("commands", "moves"):
        rows_in(parts, name, options)[..., 0] = 1.0
    return parts


def rows_in(parts: Parts, name: str, options: RunOptions) -> torch.Tensor:
    """A table as rows; a view."""
    rows = {"commands": options.commands, "streams": options.streams, "moves": options.slots}[name]
    return parts[name].view(1, rows, -1)


def swapped(parts: Parts, name: str, options: RunOptions) -> Parts:
    """The same observation with rows 0 and 1 of a table in each other's place."""
    other = {key: part.clone() for key, part in parts.items()}
    rows = rows_in(other, name, options)
    rows[:, [0, 1]] = rows[:, [1, 0]]
    return other


def policy_for(options: RunOptions) -> ScoringPolicy:
    """Networks with weights that only depend on their own shapes, and scores that differ."""
    torch.manual_seed(0)
    policy = ScoringPolicy(observation_space(options), action_space(options), lambda _: 0.0, width=WIDTH)
    for parameter in policy.action_net.parameters():
        torch.nn.init.normal_(parameter)
    return policy


def order_of_actions(options: RunOptions, name: str) -> list[int]:
    """Numbers of all actions once rows 0 and 1 of a table are in each other's place."""
    streams = options.streams if options.window is Window.ISSUABLE else 1
    issues = np.arange(options.commands * streams).reshape(options.commands, streams)
    moves = issues.size + np.arange(options.slots)
    if name == "commands":
        issues[[0, 1]] = issues[[1, 0]]
    elif name == "streams" and streams > 1:
        issues[:, [0, 1]] = issues[:, [1, 0]]
    elif name == "moves":
        moves[[0, 1]] = moves[[1, 0]]
    return [*issues.ravel().tolist(), *moves.tolist(), issues.size + moves.size]


@pytest.mark.parametrize(("name", "first"), [("commands", 1), ("streams", 5), ("moves", 8)])
def test_swapping_two_rows_swaps_their_embeddings_and_nothing_else(name: str, first: int) -> None:
    """Features are context, 4 commands, 3 streams, 2 moves: their rows begin at 1, 5 and 8."""
    torch.manual_seed(0)
    extractor = RowExtractor(observation_space(OPTIONS), WIDTH)
    parts = drawn_observation(OPTIONS)
    before = extractor(parts).view(10, WIDTH)
    after = extractor(swapped(parts, name, OPTIONS)).view(10, WIDTH)
    order = list(range(10))
    order[first], order[first + 1] = first + 1, first
    torch.testing.assert_close(after, before[order])
    assert not torch.allclose(before[first], before[first + 1])


@pytest.mark.parametrize("window", Window)
@pytest.mark.parametrize("name", ["commands", "streams", "moves"])
def test_scores_follow_the_rows(window: Window, name: str) -> None:
    """Actions are 4 x 3 issues (4 where the stream is implied), 2 moves, the wait."""
    options = RunOptions(streams=3, commands=4, prefetches=1, l2_prefetches=1, window=window)
    policy, parts = policy_for(options), drawn_observation(options)
    before = scores_of(policy, parts)
    after = scores_of(policy, swapped(parts, name, options))
    assert before.shape == (1, 4 * (3 if window is Window.ISSUABLE else 1) + 2 + 1)
    torch.testing.assert_close(after, before[:, order_of_actions(options, name)])
    assert len(set(before[0].tolist())) == before.shape[1]


def widened(parts: Parts, narrow: RunOptions, wide: RunOptions) -> tuple[Parts, list[int]]:
    """The same content in larger windows, and where the actions of the small ones are among theirs."""
    space = observation_space(wide)
    other = {name: torch.zeros(1, space[name].shape[0]) for name in space.spaces}
    for name, part in parts.items():
        other[name][:, : part.shape[1]] = part
    streams = narrow.streams if narrow.window is Window.ISSUABLE else 1
    issues = list(range(narrow.commands * streams))
    moves = [wide.commands * streams + p for p in range(narrow.slots)]
    return other, [*issues, *moves, wide.commands * streams + wide.slots]


@pytest.mark.parametrize("window", Window)
def test_a_policy_scores_the_same_content_alike_in_larger_windows(window: Window) -> None:
    narrow = RunOptions(streams=3, commands=4, prefetches=2, l2_prefetches=0, window=window)
    wide = RunOptions(streams=3, commands=9, prefetches=5, l2_prefetches=0, window=window)
    policy = policy_for(narrow)
    large = fitted(policy, observation_space(wide), action_space(wide))
    parts = drawn_observation(narrow)
    other, places = widened(parts, narrow, wide)
    torch.testing.assert_close(scores_of(large, other)[:, places], scores_of(policy, parts))
    torch.testing.assert_close(large.predict_values(other), policy.predict_values(parts))
    back = fitted(large, observation_space(narrow), action_space(narrow))
    torch.testing.assert_close(scores_of(back, parts), scores_of(policy, parts))
    assert fitted(policy, observation_space(narrow), action_space(narrow)) is policy


def test_weights_do_not_depend_on_windows() -> None:
    sizes = [
        {name: part.shape for name, part in policy_for(options).state_dict().items()}
        for options in (OPTIONS, RunOptions(streams=7, commands=9, prefetches=5), RunOptions(prefetches=0))
    ]
    assert sizes[0] == sizes[1] == sizes[2]


def test_rows_of_an_observation() -> None:
    assert Rows.of(observation_space(OPTIONS)) == (4, 3, 2)
    none = RunOptions(streams=3, commands=4, prefetches=0, l2_prefetches=0)
    assert Rows.of(observation_space(none)) == (4, 3, 0)


# --- features -----------------------------------------------------------------------------------------

TIMES = {  # columns of the observation that hold times, see the docstring of CannEnv
    "commands": [1, 2, 14, 15, 19],
    "streams": [2],
    "moves": [2, 3],
    "device": [1, 16, 17, 18, 22, 23],
}
COLUMNS = {"commands": 20, "streams": 12, "moves": 6, "device": 24}


def test_relative_times_do_not_depend_on_how_long_all_takes() -> None:
    """All times a quarter as long: what stands behind the roots of the features stays."""
    parts = drawn_observation(OPTIONS)
    short = {name: part.clone() for name, part in parts.items()}
    for name, columns in TIMES.items():
        short[name].view(1, -1, COLUMNS[name])[..., columns] *= 0.25
    nodes = torch.rand(1, 7, 16)
    short_nodes = nodes.clone()
    short_nodes[..., [4, 5, 14]] *= 0.25
    before, after = tables_of(parts), tables_of(short)
    for name, table, other in zip(COLUMNS, before[:4], after[:4], strict=True):
        own = COLUMNS[name]
        torch.testing.assert_close(other[..., own:], table[..., own:])
        assert table.shape[-1] == own + {"commands": 5, "streams": 1, "moves": 2, "device": 6}[name]
        assert not torch.allclose(other[..., :own], table[..., :own])
    features, others = node_features(nodes, before), node_features(short_nodes, after)
    torch.testing.assert_close(others[..., 16:], features[..., 16:])
    assert not torch.allclose(others[..., :16], features[..., :16])


def test_features_by_hand() -> None:
    """Two commands of 0.1 and 0.3 with tails of 0.4 and 1: the unit is 0.2, the first lags by 0.6."""
    options = RunOptions(streams=1, commands=3, prefetches=0, l2_prefetches=0)
    parts = {name: torch.zeros(1, part.shape[0]) for name, part in observation_space(options).items()}
    rows = parts["commands"].view(3, 20)
    rows[0, :3] = torch.tensor([1.0, 0.4, 0.1])
    rows[1, :3] = torch.tensor([1.0, 1.0, 0.3])
    tables = tables_of(parts)
    assert tables.unit.item() == pytest.approx(0.2)
    assert tables.urgent.item() == pytest.approx(1.0)
    assert tables.moves.shape[1] == 0
    first, second, empty = tables.commands[0]
    assert first[1].item() == pytest.approx(0.4**0.5)
    assert first[20:22].tolist() == pytest.approx([0.6 / 0.8, 0.1 / 0.3])
    assert second[20:22].tolist() == pytest.approx([0.0, 0.3 / 0.5])
    assert not empty.any()


@pytest.mark.parametrize("content", ["nothing", "most"])
def test_extreme_observations_give_finite_scores_and_gradients(content: str) -> None:
    policy = policy_for(OPTIONS)
    parts = {
        name: torch.full((2, part.shape[0]), 0.0 if content == "nothing" else 10.0)
        for name, part in policy.observation_space.items()
    }
    masks = np.zeros((2, policy.action_space.n), bool)
    masks[:, -1] = True
    values, likelihood, entropy = policy.evaluate_actions(
        parts, torch.tensor([policy.action_space.n - 1] * 2), masks
    )
    (values.sum() + likelihood.sum() + entropy.sum()).backward()
    assert likelihood.tolist() == pytest.approx([0.0, 0.0], abs=1e-5)
    assert bool(torch.isfinite(scores_of(policy, parts)).all())
    grads = [each.grad for each in policy.parameters() if each.grad is not None]
    assert grads
    assert all(bool(torch.isfinite(grad).all()) for grad in grads)


# --- the graph ----------------------------------------------------------------------------------------


def in_mid_episode(programs: list[Program], capacity: GraphCapacity, steps: int = 6) -> Parts:
    """What is seen of some programs after some random decisions."""
    batch = Batch(programs, capacity=capacity)
    rng = np.random.default_rng(5)
    for _ in range(steps):
        masks = batch.masks()
        batch.step((rng.random(masks.shape) * masks).argmax(1))
    assert batch.running.size == len(programs)
    return {name: torch.from_numpy(part.copy()) for name, part in batch.observations().items()}


@pytest.fixture
def graphs(tmp_path: Path) -> tuple[list[Program], GraphCapacity, GraphPolicy]:
    programs = programs_of(tiny_family(tmp_path, least=20, most=40), 3)
    policy = new_policy(programs, graph=True)
    space = policy.observation_space
    capacity = GraphCapacity(space["node_mask"].shape[0], space["edge_mask"].shape[0])
    return programs, capacity, policy


def test_the_numbers_of_nodes_and_edges_do_not_matter(
    graphs: tuple[list[Program], GraphCapacity, GraphPolicy],
) -> None:
    """Commands and padding are shuffled together."""
    programs, capacity, policy = graphs
    parts = in_mid_episode(programs, capacity)
    before = scores_of(policy, parts)
    other = {name: part.clone() for name, part in parts.items()}
    rng = np.random.default_rng(0)
    for row in range(len(programs)):
        place = torch.from_numpy(rng.permutation(capacity.nodes))  # of node i
        other["nodes"][row].view(-1, 16)[place] = parts["nodes"][row].view(-1, 16)
        other["node_mask"][row][place] = parts["node_mask"][row]
        edges = place[parts["edge_index"][row].long()].float().view(2, -1)
        shuffle = torch.from_numpy(rng.permutation(capacity.edges))
        other["edge_index"][row] = edges[:, shuffle].flatten()
        other["edge_mask"][row] = parts["edge_mask"][row][shuffle]
        slots = parts["window"][row].long()
        other["window"][row] = torch.where(slots > 0, place[slots - 1] + 1, 0).float()
    assert not torch.equal(other["nodes"], parts["nodes"])
    torch.testing.assert_close(scores_of(policy, other), before)
    other["edge_mask"][:, :5] = 0.0
    assert not torch.allclose(scores_of(policy, other), before), "edges are looked at"


def test_swapping_streams_of_a_graph_swaps_nothing_but_their_issues(tmp_path: Path) -> None:
    """Stream 0 becomes stream 1 for the commands on it too; the window names streams.

    A node also shows the number of its stream as it is, which does not follow; it is not read here.
    """
    family = tiny_family(tmp_path, name="named", least=20, most=40)
    text = (tmp_path / "named.toml").read_text(encoding="utf-8").replace("startable", "issuable")
    (tmp_path / "named.toml").write_text(text, encoding="utf-8")
    programs = programs_of(family, 3)
    policy = new_policy(programs, graph=True)
    with torch.no_grad():
        policy.features_extractor.node_network[0].weight[:, 15] = 0.0
    space = policy.observation_space
    capacity = GraphCapacity(space["node_mask"].shape[0], space["edge_mask"].shape[0])
    parts = in_mid_episode(programs, capacity)
    other = {name: part.clone() for name, part in parts.items()}
    streams = other["streams"].view(len(programs), 3, 12)
    streams[:, [0, 1]] = streams[:, [1, 0]]
    column = other["nodes"].view(len(programs), -1, 16)[..., 15]
    number = (column * 3).round()
    column[number == 1], column[number == 2] = 2 / 3, 1 / 3
    assert bool((number > 0).any())
    before, after = scores_of(policy, parts), scores_of(policy, other)
    order = order_of_actions(programs[0].options, "streams")
    torch.testing.assert_close(after, before[:, order])
    assert not torch.allclose(after, before)


def test_padding_of_the_graph_changes_nothing(
    graphs: tuple[list[Program], GraphCapacity, GraphPolicy],
) -> None:
    programs, capacity, policy = graphs
    larger = GraphCapacity(capacity.nodes + 9, capacity.edges + 13)
    options = programs[0].options
    roomy = fitted(policy, observation_space(options, larger), action_space(options))
    parts, more = in_mid_episode(programs, capacity), in_mid_episode(programs, larger)
    assert more["nodes"].shape[1] == parts["nodes"].shape[1] + 9 * 16
    torch.testing.assert_close(scores_of(roomy, more), scores_of(policy, parts))
    torch.testing.assert_close(roomy.predict_values(more), policy.predict_values(parts))


# --- limits and other networks ------------------------------------------------------------------------


def test_an_extractor_without_width_rounds_or_graph_is_refused() -> None:
    space = observation_space(OPTIONS)
    with pytest.raises(InputError, match="width of the extractor is 0"):
        RowExtractor(space, 0)
    with pytest.raises(InputError, match=r"there is no graph to look at; .*observation='graph'"):
        GraphExtractor(space)
    with pytest.raises(InputError, match="rounds of the extractor is 0"):
        GraphExtractor(observation_space(OPTIONS, GraphCapacity(3, 3)), rounds=0)


@pytest.mark.parametrize("graph", [None, GraphCapacity(5, 6)], ids=["window", "graph"])
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


def test_a_model_saved_by_the_library_decides_as_before(tmp_path: Path) -> None:
    env = CannEnv("layered", options={"window": "issuable"})
    model = MaskablePPO(ScoringPolicy, env, n_steps=8, batch_size=8, seed=0, policy_kwargs={"width": WIDTH})
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


def test_scores_need_only_the_sizes() -> None:
    """One stream that is named is as good as implied: 4 issues, 2 moves, the wait."""
    scores = ActionScores(Rows((4, 1, 2)), 4 + 2 + 1, WIDTH)
    assert scores(torch.rand(3, 8 * WIDTH)).shape == (3, 7)
    assert scores.named_streams == 1
