"""Activations that are computed again around and inside the units of FSDP: parity with one device, and memory."""

import numpy as np
import plait
import pytest
from plait import nn
from plait.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
from plait.distributed.fsdp import FSDP, fully_shard
from plait.utils.checkpoint import checkpoint
from ranks import on_ranks


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(4), nn.Linear(4, 6), nn.Linear(6, 4)

    def forward(self, x):
        return x + self.down(self.up(self.norm(x)).tanh())


class Model(nn.Module):
    def __init__(self, how):
        super().__init__()
        plait.manual_seed(0)
        self.how, self.first, self.last = how, nn.Linear(3, 4), nn.Linear(4, 2)
        self.blocks = nn.Sequential(Block(), Block())

    def forward(self, x):
        x = self.first(x)
        if self.how == "all":
            x = checkpoint(self.blocks, x, use_reentrant=False, early_stop=False)
        else:
            for b in self.blocks:
                x = checkpoint(b, x, use_reentrant=self.how == "reentrant") if self.how != "kept" else b(x)
        return self.last(x)


def train(m, rank=0, world=1):
    opt = plait.optim.Adam(m.parameters(), lr=0.05)
    each = 6 // world
    for step in range(3):
        x = np.random.default_rng(step).standard_normal((6, 3))[rank * each : (rank + 1) * each]
        opt.zero_grad()
        (m(plait.tensor(x)) - plait.tensor(np.sin(x[:, :2]))).square().mean().backward()
        opt.step()


def by_policy(m, policy, first):
    def again(x):
        apply_activation_checkpointing(x, check_fn=lambda b: isinstance(b, Block))
        return x

    return FSDP(again(m), auto_wrap_policy=policy) if first else again(FSDP(m, auto_wrap_policy=policy))


def by_hand(m, units):
    for b in m.blocks:
        for part in units:
            fully_shard(b if part == "" else getattr(b, part))
    return fully_shard(m)


@pytest.mark.parametrize(
    "how, divide",
    [("kept", lambda m, p=p, f=f: by_policy(m, p, f)) for p in ({nn.Linear}, {Block}) for f in (True, False)]
    + [
        (h, lambda m, u=u: by_hand(m, u))
        for h in ("all", "each", "reentrant")
        for u in (("up", "down"), ("up", ""), ("",))
    ],
)
def test_checkpoints_around_units(how, divide):
    plait.set_default_dtype(plait.float64)
    alone = Model("kept")
    train(alone)
    plait.set_default_dtype(plait.float32)
    want = [p.detach().numpy() for p in alone.parameters()]

    def run(rank):
        plait.set_default_dtype(plait.float64)
        m = divide(Model(how))
        train(m, rank, 3)
        for p, w in zip(m.parameters(), want, strict=True):
            np.testing.assert_allclose(p.full_tensor().detach().numpy(), w, rtol=1e-9, atol=1e-9)

    on_ranks(3, run)


def test_checkpoints_gather_no_more_at_once():
    """Blocks that are computed again need the memory of few units, not of all."""
    wide, count = 64, 8

    def peak(how):
        def run(rank):
            plait.manual_seed(0)
            blocks = nn.Sequential(*(nn.Linear(wide, wide, bias=False) for _ in range(count)))
            for b in blocks:
                fully_shard(b)
            fully_shard(blocks)
            x = plait.ones(2, wide, requires_grad=True)
            most = 0
            for _ in range(2):
                plait.reset_peak_memory_stats(f"cpu:{rank}")
                before = plait.memory_stats(f"cpu:{rank}")["current"]
                y = x
                y = checkpoint(blocks, y, use_reentrant=False) if how == "all" else blocks(y)
                y.sum().backward()
                most = plait.memory_stats(f"cpu:{rank}")["peak"] - before
                for p in blocks.parameters():
                    p.grad = None
            return most / (4 * wide * wide)

        return max(on_ranks(2, run))

    assert peak("all") <= peak("none") + 1
