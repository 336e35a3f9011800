"""A step of a divided model that fails on one rank fails on all, and the next is as if it had not been."""

import numpy as np
import plait
import pytest
from plait import distributed as dist
from plait import nn
from plait.distributed.fsdp import FSDP, fully_shard
from ranks import on_ranks


class LacksMemory(plait.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, grad):
        return grad + plait.zeros(1 << 24, 1 << 24).sum()


class Faulty(nn.Module):
    """Passes its input on, unless it is told where to lack memory."""

    where = None

    def forward(self, x):
        if self.where == "forward":
            plait.zeros(1 << 24, 1 << 24)
        return LacksMemory.apply(x) if self.where == "backward" else x


def block(inputs, outputs):
    return nn.Sequential(nn.Linear(inputs, outputs), nn.BatchNorm1d(outputs), nn.Tanh())


def with_hook(_, gradients, part):
    """A communication hook of a user: it names the group that its module has."""
    dist.reduce_scatter_tensor(part, gradients, dist.ReduceOp.AVG)


def divided(way):
    plait.manual_seed(3)
    m = nn.Sequential(nn.Linear(6, 8), Faulty(), block(8, 5), Faulty(), block(5, 4), nn.Linear(4, 2))
    if way is not fully_shard:
        parts = m[1], m[3]
        m = FSDP(m, auto_wrap_policy={nn.Sequential})
        if way is with_hook:
            m.register_comm_hook(None, way)
        return m, parts
    for part in (m[2], m[4], m):
        fully_shard(part)
    return m, (m[1], m[3])


def trained(way, where=None, place=0):
    """Returns the parameters and buffers after three steps, of which rank 1 lacks memory in the second."""

    def run(rank):
        m, parts = divided(way)
        x = plait.tensor(np.random.default_rng(rank).standard_normal((4, 6)), dtype=plait.get_default_dtype())
        opt = plait.optim.Adam(m.parameters(), lr=0.05)
        told = 0

        def step():
            opt.zero_grad()
            loss = m(x).square().mean()
            if where == "loss" and parts[0].where:
                loss = loss + loss.expand(1 << 24, 1 << 24)[0, 0] * 0  # whose gradient takes more memory than there is
            loss.backward()
            opt.step()

        for n in range(3):
            try:
                parts[place].where = where if n == 1 and rank == 1 else None
                step()
            except MemoryError as error:
                assert n == 1
                assert rank == 1 or "rank 1 has failed" in str(error)
                told += 1
                parts[place].where = None
                step()
        assert told == (where is not None)
        assert all(np.isfinite(b.numpy()).all() for b in m.buffers())
        return [p.full_tensor().detach().numpy() for p in m.parameters()]

    return on_ranks(2, run)


@pytest.mark.parametrize("way", [FSDP, fully_shard, with_hook], ids=lambda w: w.__name__)
def test_out_of_memory_in_a_pass(way):
    want = trained(way)[0]
    for where, place in (("forward", 0), ("forward", 1), ("backward", 0), ("backward", 1), ("loss", 0)):
        for got in trained(way, where, place):
            assert all((a == b).all() for a, b in zip(got, want, strict=True)), (where, place)
