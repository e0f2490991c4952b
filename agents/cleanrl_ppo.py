"""Masked PPO on one page, with torch alone, in the manner of CleanRL: ``python agents/cleanrl_ppo.py``.

All environments are stepped in one call, illegal actions are masked out of the policy, an episode that ends
is followed by the next one in the same step. At the end the policy plays instances it has not seen, beside
random legal actions and the reference scheduler. It needs torch, and no Stable-Baselines3.

What it comes to as it stands, mean makespans, the same instances for all three, half a minute of one core at
most:

=========================================  ==========  ==========  ==========
command line                                    agent      random   reference
=========================================  ==========  ==========  ==========
(none)                                       15.17 ms    23.92 ms    15.16 ms
``--env-id cann_env:cann/Random-v0``          3.87 ms     4.23 ms     3.61 ms
=========================================  ==========  ==========  ==========
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from dataclasses import dataclass, fields
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

if find_spec("torch") is None:
    raise SystemExit('agents/cleanrl_ppo.py needs torch: pip install -e ".[rl]"')
import torch
from torch import Tensor, nn
from torch.distributions import Categorical

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # the checkout, when run as a script
from cann_env import CannEnvError, InputError
from cann_env.envs.spaces import FLAT_PARTS
from cann_env.schedulers import decide, make_scheduler
from cann_env.units import format_time


@dataclass(frozen=True, slots=True, kw_only=True)
class Args:
    """All that a run depends on; each is an option of the command line.

    Attributes:
        env_id: registered environment
        window: which commands the agent chooses from: issuable or startable
        seed: of the instances, the network and all draws
        total_steps: decisions to learn from, rounded down to whole rollouts
        num_envs: environments side by side
        num_steps: decisions of each environment between two updates
        learning_rate: at the beginning; falls linearly to zero
        gamma: weight of the next decision's reward against this one's
        gae_lambda: weight of longer looks ahead in advantages
        batch_size: decisions that one update learns from
        epochs: passes over each rollout
        clip: how far the probability of an action may move in an update
        entropy: weight of the entropy bonus
        value_weight: weight of the loss of the value
        max_grad_norm: gradients are cut to this length
        width: width of all layers
        eval_seed: of the instances for comparison, not one of training
        eval_instances: how many
        threads: of torch
    """

    env_id: str = "cann_env:cann/Pipeline-v0"
    window: str = "startable"
    seed: int = 1
    total_steps: int = 49152
    num_envs: int = 32
    num_steps: int = 32
    learning_rate: float = 1e-3
    gamma: float = 0.97
    gae_lambda: float = 0.95
    batch_size: int = 256
    epochs: int = 3
    clip: float = 0.2
    entropy: float = 0.003
    value_weight: float = 0.5
    max_grad_norm: float = 0.5
    width: int = 64
    eval_seed: int = 1000
    eval_instances: int = 16
    threads: int = 1

    def __post_init__(self) -> None:
        """Check the ranges."""
        for name in ["num_envs", "num_steps", "batch_size", "epochs", "width", "eval_instances", "threads"]:
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}; write a whole number of at least 1")
        rollout = self.num_envs * self.num_steps
        if self.total_steps < rollout:
            raise InputError(f"total_steps is {self.total_steps}; write at least one rollout, {rollout}")
        if min(self.seed, self.eval_seed) < 0 or self.seed == self.eval_seed:
            raise InputError(
                f"seed and eval_seed are {self.seed} and {self.eval_seed}; write two whole numbers >= 0"
            )


def layer(inputs: int, outputs: int, scale: float = 2**0.5) -> nn.Linear:
    """A linear layer, orthogonal at first."""
    made = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(made.weight, scale)
    nn.init.zeros_(made.bias)
    return made


class Agent(nn.Module):
    """One network reads every row of a table; commands are scored with streams, and everything in context.

    Args:
        sizes: Rows and columns of each part of an observation.
        choices: Streams that an action names.
        width: Of all layers.
    """

    def __init__(self, sizes: dict[str, tuple[int, int]], choices: int, width: int) -> None:
        super().__init__()
        self.sizes, self.choices = sizes, choices
        self.rows = nn.ModuleDict()
        for name, (_, columns) in sizes.items():
            self.rows[name] = nn.Sequential(layer(2 * columns, width), nn.Tanh(), layer(width, width))
        self.issue, self.move, self.wait = (layer(width, 1, 0.01) for _ in range(3))
        self.critic = nn.Sequential(layer(width, width), nn.Tanh(), layer(width, 1, 1.0))

    def flat(self, observation: dict[str, Any]) -> Tensor:
        """The parts of observations side by side, float32 (N, length)."""
        return torch.as_tensor(np.concatenate([observation[name] for name in self.sizes], axis=-1))

    def forward(self, seen: Tensor) -> tuple[Tensor, Tensor]:
        """Logits of all actions (N, A), and the return that is expected from here on (N,)."""
        parts = seen.split([rows * columns for rows, columns in self.sizes.values()], dim=-1)
        read = {}
        for (name, size), part in zip(self.sizes.items(), parts, strict=True):
            # Times are shares of a whole episode: roots make them larger. What counts is who lags behind.
            table = part.unflatten(-1, size).sqrt()
            read[name] = self.rows[name](torch.cat([table, table.amax(-2, keepdim=True) - table], -1))
        context = torch.stack([part.mean(-2) for part in read.values()]).sum(0).unsqueeze(-2)
        pairs = (read["commands"] + context).unsqueeze(-2)
        if self.choices > 1:
            pairs = pairs + read["streams"].unsqueeze(-3)
        scores = [self.issue(torch.tanh(pairs)).flatten(-3)]
        if "moves" in read:
            scores.append(self.move(torch.tanh(read["moves"] + context)).flatten(-2))
        scores.append(self.wait(torch.tanh(context)).flatten(-2))
        return torch.cat(scores, -1), self.critic(torch.tanh(context)).flatten(-2).squeeze(-1)

    def policy(self, seen: Tensor, mask: Tensor) -> tuple[Categorical, Tensor]:
        """The distribution over legal actions, of which there must be one, and the value."""
        logits, value = self(seen)
        # Not minus infinity: entropy multiplies it by probability 0.
        return Categorical(logits=logits.masked_fill(~mask, -1e9), validate_args=False), value


def advantages_of(rewards: Tensor, values: Tensor, ended: Tensor, last: Tensor, args: Args) -> Tensor:
    """Generalised advantage estimates (T, N).

    Args:
        rewards: Of each step.
        values: Before each step.
        ended: 1 where an episode ended in the step.
        last: (N,) values after the last step.
        args: ``gamma`` and ``gae_lambda``.
    """
    found = torch.zeros_like(rewards)
    following, carried = last, torch.zeros_like(last)
    for t in reversed(range(len(rewards))):
        goes_on = 1.0 - ended[t]
        delta = rewards[t] + args.gamma * following * goes_on - values[t]
        carried = delta + args.gamma * args.gae_lambda * goes_on * carried
        found[t], following = carried, values[t]
    return found


def scaled(advantages: Tensor) -> Tensor:
    """Advantages (T, N) on the scale of each environment, as some instances are harder than others."""
    return (advantages - advantages.mean(0)) / (advantages.std(0, unbiased=False) + 1e-6)


def learn(agent: Agent, optimizer: torch.optim.Optimizer, batch: list[Tensor], args: Args) -> None:
    """Update the networks with a rollout.

    Args:
        agent: The networks.
        optimizer: Of their parameters.
        batch: Observations, masks, actions, logarithms of their probabilities, advantages, targets of the
            value; a row a step.
        args: ``epochs``, ``batch_size`` and what the loss depends on.
    """
    for _ in range(args.epochs):
        for part in torch.randperm(len(batch[0])).split(args.batch_size):
            seen, mask, taken, logs, gain, target = (each[part] for each in batch)
            policy, value = agent.policy(seen, mask)
            ratio = (policy.log_prob(taken) - logs).exp()
            clipped = ratio.clamp(1.0 - args.clip, 1.0 + args.clip)
            policy_loss = -torch.min(ratio * gain, clipped * gain).mean()
            value_loss = 0.5 * (value - target).pow(2).mean()
            loss = policy_loss + args.value_weight * value_loss - args.entropy * policy.entropy().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), args.max_grad_norm)
            optimizer.step()


def train(args: Args, say: Any = print) -> Agent:
    """Learn; returns the agent."""
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    envs = gymnasium.make_vec(args.env_id, num_envs=args.num_envs, options={"window": args.window})
    options, space = envs.scenario.options, envs.single_observation_space
    rows = {"commands": options.commands, "streams": options.streams, "moves": options.slots, "device": 1}
    sizes = {name: (rows[name], space[name].shape[0] // rows[name]) for name in FLAT_PARTS if rows[name]}
    agent = Agent(sizes, options.streams if args.window == "issuable" else 1, args.width)
    optimizer = torch.optim.Adam(agent.parameters(), lr=args.learning_rate, eps=1e-5)
    returns: list[float] = []
    first, info = envs.reset(seed=args.seed)
    now, legal = agent.flat(first), torch.as_tensor(info["action_mask"]).bool()
    updates, began = args.total_steps // (args.num_steps * args.num_envs), time.monotonic()
    for update in range(updates):
        optimizer.param_groups[0]["lr"] = args.learning_rate * (1.0 - update / updates)
        steps = []
        for _ in range(args.num_steps):
            with torch.no_grad():
                policy, value = agent.policy(now, legal)
                taken = policy.sample()
            after, reward, terminated, truncated, info = envs.step(taken.numpy())
            # Who runs out of steps has paid for what is left: nothing is to come in either case.
            done = terminated | truncated
            gained, ends = (torch.as_tensor(each, dtype=torch.float32) for each in (reward, done))
            steps.append((now, legal, taken, policy.log_prob(taken), value, gained, ends))
            if "final_info" in info:
                returns += info["final_info"]["episode_return"][done].tolist()
            now, legal = agent.flat(after), torch.as_tensor(info["action_mask"]).bool()
        *played, values, rewards, ended = (torch.stack(each) for each in zip(*steps, strict=True))
        with torch.no_grad():
            advantages = advantages_of(rewards, values, ended, agent(now)[1], args)
        batch = [each.flatten(0, 1) for each in (*played, scaled(advantages), advantages + values)]
        learn(agent, optimizer, batch, args)
        count = (update + 1) * args.num_steps * args.num_envs
        recent = statistics.fmean(returns[-64:]) if returns else float("nan")
        say(f"{count:8} steps  return {recent:7.3f}  {count / (time.monotonic() - began):7.0f} steps/s")
    envs.close()
    return agent


def compare(agent: Agent, args: Args) -> dict[str, float]:
    """Mean makespan (ns) of the agent, of random legal actions, of the reference, on the same instances."""
    env = gymnasium.make(args.env_id, options={"window": args.window})
    rng = np.random.default_rng(args.eval_seed)
    found: dict[str, list[float]] = {"agent": [], "random": [], "reference": []}
    for instance in range(args.eval_instances):
        for who in ("agent", "random"):
            observation, info = env.reset(seed=args.eval_seed, options={"instance": instance})
            done = False
            while not done:
                legal = info["action_mask"].astype(bool)
                if who == "random":
                    action = int(rng.choice(np.flatnonzero(legal)))
                else:
                    with torch.no_grad():
                        policy, _ = agent.policy(agent.flat(observation), torch.as_tensor(legal))
                    action = int(policy.probs.argmax())
                observation, _, terminated, truncated, info = env.step(action)
                done = terminated or truncated
            # Who runs out of steps has no makespan: infinitely long.
            ending = info["schedule"]
            found[who].append(ending["makespan_ns"] if ending["finished"] else float("inf"))
        found["reference"].append(decide(env.unwrapped.program, make_scheduler("reference")).end_ns)
    return {who: statistics.fmean(each) for who, each in found.items()}


def read_arguments(words: list[str] | None = None) -> Args:
    """The run that a command line means."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0], allow_abbrev=False)
    lines = (line.strip() for line in (Args.__doc__ or "").splitlines())
    meanings = dict(line.split(": ", 1) for line in lines if ": " in line)
    for field in fields(Args):
        kind, option = type(field.default), f"--{field.name.replace('_', '-')}"
        parser.add_argument(option, type=kind, default=field.default, help=meanings[field.name])
    return Args(**vars(parser.parse_args(words)))


def main(words: list[str] | None = None) -> int:
    """Train, compare, print."""
    try:
        args = read_arguments(words)
        scores = compare(train(args), args)
    except CannEnvError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"\nmean makespan on instances of seed {args.eval_seed}")
    for who, makespan in sorted(scores.items(), key=lambda pair: pair[1]):
        shown = "not finished" if makespan == float("inf") else format_time(makespan)
        print(f"{who:10} {shown:>12}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
