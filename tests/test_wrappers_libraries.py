"""Masks in observations, in the hands of the libraries that want them there; left out if they are absent."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

from cann_env.envs import MaskInObservation

ID = "cann_env:cann/Pipeline-v0"


@pytest.mark.slow
@pytest.mark.parametrize("flat", [True, False])
def test_torchrl_plays_legal_actions_only(flat: bool) -> None:
    envs = pytest.importorskip("torchrl.envs", reason="TorchRL is not installed")
    torch = pytest.importorskip("torch")
    inner = envs.GymWrapper(MaskInObservation(gymnasium.make(ID), "torchrl", flat=flat))
    envs.utils.check_env_specs(inner)
    env = envs.TransformedEnv(inner, envs.ActionMask())
    env.set_seed(0)
    played = env.rollout(400, break_when_any_done=False)
    assert int(played["next", "done"].sum()) >= 2
    legal = played["action_mask"].bool()
    assert bool(torch.where(played["action"].bool(), legal, True).all())
    assert not bool(legal.all())


@pytest.mark.slow
def test_tianshou_plays_legal_actions_only() -> None:
    """Half of the time a deep Q-network explores, at random, half of the time it takes its best action."""
    pytest.importorskip("tianshou", reason="Tianshou is not installed")
    torch = pytest.importorskip("torch")
    from tianshou.algorithm.modelfree.dqn import DQN, DiscreteQLearningPolicy
    from tianshou.algorithm.optim import AdamOptimizerFactory
    from tianshou.data import Collector, VectorReplayBuffer
    from tianshou.env import DummyVectorEnv
    from tianshou.utils.torch_utils import policy_within_training_step

    def make() -> MaskInObservation:
        return MaskInObservation(gymnasium.make(ID), "tianshou")

    env = make()
    inputs, actions = env.observation_space["obs"].shape[0], int(env.action_space.n)  # type: ignore[index]

    class Network(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(inputs, actions)

        def forward(self, obs: object, state: object = None, info: object = None) -> tuple[object, object]:
            seen = obs.obs if hasattr(obs, "obs") else obs
            return self.layer(torch.as_tensor(seen, dtype=torch.float32)), state

    policy = DiscreteQLearningPolicy(
        model=Network(),
        action_space=env.action_space,
        observation_space=env.observation_space,
        eps_training=0.5,
    )
    algorithm = DQN(policy=policy, optim=AdamOptimizerFactory(lr=1e-3))
    buffer = VectorReplayBuffer(1000, 2)
    collector = Collector(algorithm, DummyVectorEnv([make, make]), buffer, exploration_noise=True)
    collector.reset()
    with policy_within_training_step(policy):
        collector.collect(n_step=300)
    batch = buffer.sample(0)[0]
    assert len(batch) >= 300
    assert batch.obs.mask[np.arange(len(batch)), batch.act].all()
    assert not batch.obs.mask.all()


@pytest.mark.slow
def test_rllib_trains_its_masked_module() -> None:
    pytest.importorskip("ray.rllib", reason="RLlib is not installed")
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.rllib.core.rl_module.rl_module import RLModuleSpec
    from ray.rllib.examples.rl_modules.classes.action_masking_rlm import ActionMaskingTorchRLModule
    from ray.tune.registry import register_env

    register_env("masked", lambda config: MaskInObservation(gymnasium.make(ID, **config), "rllib"))
    config = PPOConfig().environment("masked").env_runners(num_env_runners=0)
    config = config.training(train_batch_size_per_learner=600, minibatch_size=128, num_epochs=1)
    module = RLModuleSpec(module_class=ActionMaskingTorchRLModule, model_config={"head_fcnet_hiddens": [32]})
    algorithm = config.rl_module(rl_module_spec=module).build_algo()
    try:
        result = algorithm.train()
    finally:
        algorithm.stop()
    returns = result["env_runners"]["episode_return_mean"]
    assert -10.0 < returns < 0.0  # an illegal action costs, and an episode of them runs out of steps
