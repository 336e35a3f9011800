"""Reinforcement learning: a cart learns to balance a pole, by policy gradients with a critic.

    python examples/cartpole.py
    python examples/cartpole.py --updates 200 --carts 256

The world is in this file: many carts at once, each a row of one tensor. In each update all carts run until they fall
or the time is over. What was done before much reward becomes more likely, much and little being measured by the
critic, who learns how much reward to expect.
"""

from __future__ import annotations

import argparse
import math

import plait
import plait.nn.functional as F
from plait import Tensor, nn
from plait.distributions import Categorical

TIME = 200  # steps of an episode, and so its highest return


class Carts:
    """Carts on a line, each with a pole of 1 m to keep upright by pushes of 10 N from the left or the right."""

    def __init__(self, count: int, generator: plait.Generator) -> None:
        # place (m), speed (m/s), angle (rad), angular speed (rad/s)
        self.state = plait.rand(count, 4, generator=generator) * 0.1 - 0.05

    def step(self, right: Tensor) -> Tensor:
        """Pushes each cart to the right or to the left for 0.02 s, and returns which of them still stand [N]."""
        gravity, pole, total, half, tau = 9.8, 0.1, 1.1, 0.5, 0.02  # m/s^2, kg, kg, m, s
        place, speed, angle, turn = self.state.unbind(1)
        force = right.float() * 20 - 10
        cos, sin = angle.cos(), angle.sin()
        pushed = (force + pole * half * turn**2 * sin) / total
        bend = (gravity * sin - cos * pushed) / (half * (4 / 3 - pole * cos**2 / total))
        gain = pushed - pole * half * bend * cos / total
        place, speed = place + tau * speed, speed + tau * gain
        angle, turn = angle + tau * turn, turn + tau * bend
        self.state = plait.stack([place, speed, angle, turn], dim=1)
        return (place.abs() < 2.4) & (angle.abs() < math.radians(12))


class Agent(nn.Module):
    """Scores [N, 2] of the pushes, and the reward [N] that is expected from here on."""

    def __init__(self) -> None:
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 2))
        self.critic = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 1))

    def forward(self, state: Tensor) -> tuple[Categorical, Tensor]:
        return Categorical(logits=self.actor(state)), self.critic(state)[..., 0]


@plait.no_grad()
def play(agent: Agent, count: int, device: str, generator: plait.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Returns states [T, N, 4], pushes [T, N], and which poles stood when they came [T, N], of an episode each."""
    carts, states, pushes, stood = Carts(count, generator), [], [], []
    standing = plait.ones(count, dtype=plait.bool)
    while len(states) < TIME and standing.any():
        states.append(carts.state)
        stood.append(standing)
        pushes.append(agent(carts.state.to(device))[0].sample().cpu())
        standing = standing & carts.step(pushes[-1])
    return plait.stack(states), plait.stack(pushes), plait.stack(stood)


def main(argv: list[str] | None = None) -> list[float]:
    """Trains, and returns the mean return of each update's episodes."""
    parser = argparse.ArgumentParser(description="A cart learns to balance a pole.")
    parser.add_argument("--updates", type=int, default=60)
    parser.add_argument("--carts", type=int, default=64)
    parser.add_argument("--lr", type=float, default=1e-2)
    parser.add_argument("--discount", type=float, default=0.98)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args(argv)
    if min(args.updates, args.carts) < 1:
        parser.error("updates and carts must be at least 1")
    plait.manual_seed(args.seed)
    generator = plait.Generator().manual_seed(args.seed)

    agent = Agent().to(args.device)
    optimizer = plait.optim.Adam(agent.parameters(), lr=args.lr)
    means: list[float] = []
    for update in range(1, args.updates + 1):
        states, pushes, stood = play(agent, args.carts, args.device, generator)
        # A step in which a cart stands is worth 1. The reward from a step on: later ones count less.
        rewards, after = [], plait.zeros(args.carts)
        for alive in reversed(stood.float().unbind(0)):
            after = alive + args.discount * after
            rewards.append(after)
        wanted = plait.stack(rewards[::-1]).to(args.device)[stood]
        policy, expected = agent(states[stood].to(args.device))
        better = wanted - expected.detach()
        better = (better - better.mean()) / (better.std() + 1e-6)
        loss = -(policy.log_prob(pushes[stood].to(args.device)) * better).mean()
        loss = loss + 0.5 * F.smooth_l1_loss(expected, wanted) - 0.01 * policy.entropy().mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(agent.parameters(), 1.0)
        optimizer.step()
        means.append(stood.sum().item() / args.carts)
        if update == 1 or update % max(1, args.updates // 12) == 0:
            print(
                f"update {update:3}: a pole stands for {means[-1]:5.1f} steps {'#' * round(means[-1] / 5)}", flush=True
            )
    return means


if __name__ == "__main__":
    main()
