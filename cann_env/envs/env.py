"""The Gymnasium environment: one episode after another of a scenario, on the compiled engine."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import gymnasium
import numpy as np

from cann_env.engine.layout import (
    FINISHED,
    OUT_OF_MEMORY,
    OUT_OF_STEPS,
    P_NORM_NS,
    RUNNING,
    S_AT_ACTION,
    S_HEADER,
    S_INVALID,
    S_STATUS,
    S_STEPS,
)
from cann_env.engine.step import step as engine_step
from cann_env.envs.arguments import (
    action_number,
    env_index_of,
    graph_capacity_of,
    instance_option,
    instances_of,
    open_scenario,
    render_mode_of,
)
from cann_env.envs.infos import info_of
from cann_env.envs.instances import INSTANCES, InstanceKey, ProgramSource
from cann_env.envs.reward import RewardTerms, reward_terms
from cann_env.envs.spaces import (
    action_space,
    cuts_of,
    encode,
    encode_graph,
    encode_mask,
    observation_space,
)
from cann_env.render.frame import frame
from cann_env.render.text import text_timeline
from cann_env.schedulers.recording import record_rows, record_schedule
from cann_env.units import CannEnvError, InputError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from gymnasium import spaces
    from numpy.typing import NDArray

    from cann_env.engine import Image
    from cann_env.program import Program
    from cann_env.schedule import Schedule

Observation = dict[str, "NDArray[np.float32]"]


class EpisodeOverError(CannEnvError):
    """A step, or a question about a schedule, at a time when there is none."""


class Snapshot(NamedTuple):
    """Everything that an environment in mid-episode is: the state image and what it belongs to."""

    program: Program
    state: Image
    noise: Image | None
    key: InstanceKey
    terms: RewardTerms


class CannEnv(gymnasium.Env[Observation, np.int64]):
    """A host thread that submits a graph of commands to a simulated Ascend NPU.

    ## Description
    The device runs commands from in-order streams: kernels on cube, vector and AI CPU cores, copies on DMA
    engines, with events between streams and shared bandwidths. The agent plays the host thread. At every
    step it issues one ready command to one stream, or moves one buffer (from host memory into HBM, from HBM
    into L2, or back to the host), or waits for the device. Between decisions the simulated time goes on;
    waits that are the only legal choice are taken inside the step.

    ## Action Space
    `Discrete(K*S + P + 1)`, with K slots of the ready window, S streams and P slots of the prefetch window:
    first `prefetches` slots from the host into HBM, then `l2_prefetches` from HBM into L2, then `offloads`
    from HBM to the host.
    With `window="startable"` the stream is implied (the lowest idle one) and S counts as 1. Idle streams of
    equal priority are treated as interchangeable (exact where events cost nothing): only the lowest is legal.

    | Num | Name | Meaning |
    |---|---|---|
    | `k*S + s` | issue | submit window command k to stream s |
    | `K*S + p` | prefetch | move window buffer p one level up, or back to the host in the last slots |
    | `K*S + P` | wait | until something completes, arrives or is released |

    The legal actions are in `info["action_mask"]` (int8) and from `action_masks()` (bool); at least one is
    legal until the episode ends. An illegal action is replaced by the wait, or by the first legal action
    if there is nothing to wait for; it is counted and costs `invalid_penalty`. Note that `gymnasium.make`
    wraps the environment: reach the method by `env.get_wrapper_attr("action_masks")()`.

    ## Observation Space
    A `Dict` of float32 vectors; tables are written row after row, so `commands.reshape(K, 20)` has a row
    for each slot. Times are divided by the lower bound of the instance (while commands are
    released late: by the longest path among those released so far), sizes by the HBM
    capacity, counts by their limits; all features are cut to [0, 10]. Durations are expected ones.

    | Key | Shape | Low | High | Meaning |
    |---|---|---|---|---|
    | `commands` | (K*20,) | 0 | 10 | ready window, by descending tail; a row of zeros is an empty slot |
    | `streams` | (S*12,) | 0 | 10 | every stream |
    | `moves` | (P*6,) | 0 | 10 | prefetch window, the kinds of slots one after another; absent if P is 0 |
    | `device` | (24,) | 0 | 10 | clocks, pools, links, memory, progress |

    Columns of `commands`: 0 filled; 1 tail (longest path from its start to the end); 2 duration; 3-9 class
    (cube, vector, mix, AI CPU, h2d, d2h, other engine); 10 cores its blocks take / pool; 11 part of its
    blocks that find a free core; 12 HBM time / duration; 13 its predecessors are done, a slot and cores are
    free (operands may still have to move, and a stream's gap to pass); 14 time until its
    predecessors are expected to be done; 15 transfer time of operands
    not in HBM yet; 16 bytes it reserves / HBM;
    17 (stream of its last predecessor + 1) / S; 18 successors / 8; 19 time since its release.
    Columns of `streams`: 0 may be named; 1 commands queued; 2 time until it is expected to be empty; 3 head
    runs; 4-10 class of its head; 11 priority.
    Columns of `moves`: 0 filled; 1 size (over L2 in slots into L2); 2 transfer time; 3 tail of its most
    urgent user; 4 that user has been issued; 5 part of its users still to start. Prefetches come with the
    most urgent buffer first, offloads with the one first that would be evicted next.
    Columns of `device`: 0 time; 1 optimistic time left; 2 part of L2 in use; 3 host time left
    to submit; 4 issued; 5 done; 6 in flight; 7 active streams; 8 ready / K; 9 HBM reserved; 10 HBM that
    cannot be evicted; 11 prefetch queue; 12 steps / budget; 13-15 free cores (cube, vector, AI CPU); 16-18
    core time left; 19-21 free channels (h2d, d2h, sdma); 22-23 transfer time left (HBM, h2d).

    With `observation="graph"` also, for at most N commands and E edges (`graph_capacity`):

    | Key | Shape | Low | High | Meaning |
    |---|---|---|---|---|
    | `nodes` | (N*16,) | 0 | 10 | every released command |
    | `node_mask` | (N,) | 0 | 1 | 1 for a released command |
    | `edge_index` | (2*E,) | 0 | N | E producers, then E consumers |
    | `edge_mask` | (E,) | 0 | 1 | 1 for an edge between released commands |
    | `window` | (K,) | 0 | N | number of the command in each window slot plus one, 0 if empty |

    Columns of `nodes`: 0-3 waiting, queued, started, done; 4 tail; 5 duration; 6-12 class; 13 cores its
    blocks take / pool; 14 transfer time of operands not in HBM yet; 15 (stream + 1) / S.

    ## Rewards
    | Term | When | Value |
    |---|---|---|
    | `progress` | every step | minus the rise of the optimistic makespan, over the lower bound |
    | `invalid` | illegal action | minus `invalid_penalty` |
    | `failure` | out of memory or steps | more than any finished episode costs; the rest one by one |

    Over a finished episode `progress` sums to `-(makespan - lower bound) / lower bound` exactly. With
    `objective="latency"` the sum of request latencies stands in place of the makespan.

    ## Starting State
    Time zero, nothing issued, managed buffers where the graph says. Episode k of a run is the instance of
    (seed, env_index, k) whatever the agent did before; realised durations have a generator of their own.
    A run (seed) plays at most `instances` different graphs, and (seed, env_index, k) says which of them.
    Each is compiled when it is played first and kept, some 1.5 kB a command; with `instances=None` every
    episode has a graph of its own, and compiles it.

    ## Episode End
    1. Termination: all commands are done; the drain after the last issue is part of the last step.
    2. Termination: nothing is legal any more (out of memory with nothing in flight).
    3. Truncation: the step budget of four times commands and buffers (plus late releases) is used up.

    ## Information
    `action_mask`; `time_ns`; `invalid_actions`; `episode_index`. In the last step also `schedule` with
    `makespan_ns`, `lower_bound_ns`, `steps`, `peak_hbm_bytes`, `finished` and `terms` with the reward terms
    by name. The timeline itself comes from `env.unwrapped.schedule()`.

    ## Arguments
    | Argument | Default | Meaning |
    |---|---|---|
    | `scenario` | `"pipeline"` | name of a shipped scenario, path of a TOML file, or a dictionary |
    | `device` | None | name or path of a device in place of the scenario's |
    | `options` | None | dictionary of run options in place of the scenario's |
    | `memory_factor` | None | HBM over what the graph needs to keep each buffer from first to last use |
    | `prefetch_mask` | None | `"strict"` keeps harmful prefetches illegal, `"free"` allows all that fit |
    | `observation` | `"window"` | or `"graph"` |
    | `graph_capacity` | None | (N, E) of the graph observation; None to fit the scenario's first instances |
    | `instances` | 256 | different graphs that a run plays at most; None for a new one in every episode |
    | `env_index` | 0 | which of several environments side by side |
    | `render_mode` | None | `"ansi"`, `"rgb_array"` or `"human"` |

    `reset(options={"instance": k})` picks episode k.

    ## Vectorized environment
    `gymnasium.make_vec("cann_env:cann/Pipeline-v0", num_envs=8)` makes :class:`CannVectorEnv`, which steps
    all its environments in one compiled call.

    ## Version History
    * v0: first version.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012 - the type that gymnasium declares
        "render_modes": ["ansi", "rgb_array", "human"],
        "render_fps": 8,
    }

    def __init__(
        self,
        scenario: str | Path | Mapping[str, Any] = "pipeline",
        *,
        device: str | None = None,
        options: Mapping[str, Any] | None = None,
        memory_factor: float | None = None,
        prefetch_mask: str | None = None,
        observation: str = "window",
        graph_capacity: tuple[int, int] | None = None,
        instances: int | None = INSTANCES,
        env_index: int = 0,
        render_mode: str | None = None,
    ) -> None:
        self.scenario = open_scenario(
            scenario, device, options, memory_factor=memory_factor, prefetch_mask=prefetch_mask
        )
        self.source = ProgramSource(self.scenario, instances_of(instances))
        self.render_mode = render_mode_of(render_mode, self.metadata["render_modes"])
        self.graph_capacity = graph_capacity_of(self.source, observation, graph_capacity)
        self.action_space = action_space(self.scenario.options)
        self.observation_space = cast(
            "spaces.Space[Observation]", observation_space(self.scenario.options, self.graph_capacity)
        )
        self.action_count = int(self.action_space.n)
        self._penalty = self.scenario.options.invalid_penalty
        self._cuts = cuts_of(self.scenario.options)
        self._size = max(stop for _, stop in self._cuts.values())
        self._next = InstanceKey(0, env_index_of(env_index), 0)
        self._seeded = False
        self._now: Snapshot | None = None
        self._terms = RewardTerms()

    # --- episodes -----------------------------------------------------------------------------------

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin the next episode; see the class docstring for ``seed`` and ``options``.

        Raises:
            InputError: An option other than ``instance``, or one that is no whole number >= 0.
        """
        instance = instance_option(options)
        super().reset(seed=seed)
        if seed is not None or not self._seeded:
            run = seed if seed is not None else int(self.np_random.integers(2**31))
            self._next = InstanceKey(run, self._next.env_index, 0)
            self._seeded = True
        key = self._next if instance is None else self._next._replace(episode=instance)
        self._next = key._replace(episode=key.episode + 1)
        program = self.source.program(key)
        noise = self.source.noise(program, key)
        state = program.new_state(noise)
        self._now = Snapshot(program, state, noise, key, RewardTerms())
        self._terms = RewardTerms()
        if self.render_mode == "human":
            self.render()
        return self._observe(self._now), self._info(self._now, state[:S_HEADER].tolist())

    def step(self, action: np.int64 | int) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Take one decision.

        Raises:
            InputError: The action is no whole number of the action space.
            EpisodeOverError: There is no episode, or it is over; call reset.
        """
        now = self._episode()
        state = now.state
        if state.item(S_STATUS) != RUNNING:
            raise EpisodeOverError("the episode is over; call reset() before step()")
        chosen = action_number(action, self.action_count)
        illegal = state.item(S_INVALID)
        rise = int(engine_step(now.program.image, state, chosen))
        head = state[:S_HEADER].tolist()  # one crossing for all that is asked of it
        status = head[S_STATUS]
        terms = reward_terms(
            rise,
            now.program.image.item(P_NORM_NS),
            illegal=head[S_INVALID] - illegal,
            penalty=self._penalty,
            failed=status in (OUT_OF_MEMORY, OUT_OF_STEPS),
        )
        self._terms = self._terms.plus(terms)
        if self.render_mode == "human":
            self.render()
        terminated = status in (FINISHED, OUT_OF_MEMORY)
        info = self._info(now, head)
        return self._observe(now), terms.total, terminated, status == OUT_OF_STEPS, info

    def action_masks(self) -> NDArray[np.bool_]:
        """bool, True where an action is legal; the name that sb3-contrib looks for."""
        return encode_mask(self.program, self._episode().state).view(np.bool_)

    # --- looking back and branching -----------------------------------------------------------------

    def schedule(self) -> Schedule:
        """The finished schedule of the present episode.

        Raises:
            EpisodeOverError: The episode has not finished.
        """
        now = self._episode()
        if now.state[S_STATUS] != FINISHED:
            raise EpisodeOverError(
                "the episode has not finished; schedule() is there once terminated is True"
            )
        return record_schedule(now.program, self._actions(now), noise=now.noise)

    @property
    def program(self) -> Program:
        """The compiled instance of the present episode."""
        return self._episode().program

    def get_state(self) -> Snapshot:
        """A snapshot of the present episode (one flat copy)."""
        now = self._episode()
        return now._replace(state=now.state.copy(), terms=self._terms)

    def set_state(self, snapshot: Snapshot) -> None:
        """Go back to a snapshot, which stays as it is (one flat copy).

        Raises:
            InputError: It comes from an environment with other options.
        """
        if snapshot.program.options != self.scenario.options:
            raise InputError(
                "the snapshot was taken under other options; restore it in an environment like its own"
            )
        self._now = snapshot._replace(state=snapshot.state.copy())
        self._terms = snapshot.terms
        self._next = snapshot.key._replace(episode=snapshot.key.episode + 1)
        self._seeded = True

    def clone(self) -> CannEnv:
        """An independent copy of this environment in mid-episode."""
        other = copy.copy(self)
        other._np_random = copy.deepcopy(self._np_random)
        other.action_space = copy.deepcopy(self.action_space)
        other._now = self.get_state()
        return other

    # --- rendering ----------------------------------------------------------------------------------

    def render(self) -> str | NDArray[np.uint8] | None:
        """Draw the timeline so far: text for ``ansi``, printed text for ``human``, or an RGB frame."""
        if self.render_mode is None:
            gymnasium.logger.warn("render() needs a render_mode; pass render_mode='ansi' to make()")
            return None
        now = self._episode()
        rows = record_rows(now.program, self._actions(now), noise=now.noise)
        if self.render_mode == "rgb_array":
            title = f"{now.program.graph.name} on {now.program.device.label}"
            return frame(*rows, horizon_ns=now.program.lower_bound_ns, title=title)
        text = text_timeline(*rows)
        if self.render_mode == "ansi":
            return text
        print(text)
        return None

    # --- inside -------------------------------------------------------------------------------------

    def _episode(self) -> Snapshot:
        if self._now is None:
            raise EpisodeOverError("there is no episode yet; call reset() first")
        return self._now

    @staticmethod
    def _actions(now: Snapshot) -> tuple[int, ...]:
        taken = now.state[int(now.state[S_AT_ACTION]) :][: int(now.state[S_STEPS])]
        return tuple(taken.tolist())

    def _observe(self, now: Snapshot) -> Observation:
        seen = encode(now.program.image, now.state, self._cuts, self._size)
        if self.graph_capacity is not None:
            seen |= encode_graph(now.program, now.state, self.graph_capacity)
        return seen

    def _info(self, now: Snapshot, head: list[int]) -> dict[str, Any]:
        """What is told of a state, whose header is given as plain numbers."""
        return info_of(now.program, now.state, head, episode=now.key.episode, terms=self._terms)
