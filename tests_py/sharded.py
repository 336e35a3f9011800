"""A model whose blocks are sharded, and what its ranks must agree with."""

import numpy as np
import plait
from plait import nn
from plait.distributed.fsdp import fully_shard
from plait.distributed.tensor import DTensor
from ranks import on_ranks

WIDTH = 6


class Block(nn.Module):
    def __init__(self, wide, narrow):
        super().__init__()
        self.up, self.down = nn.Linear(wide, narrow), nn.Linear(narrow, wide)
        self.gain = nn.Parameter(plait.tensor(1.25))

    def forward(self, x):
        return x + self.down(self.up(x).tanh()) * self.gain


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(WIDTH, 8)
        self.blocks = nn.ModuleList(Block(8, 5) for _ in range(3))
        self.norm = nn.LayerNorm(8)
        self.head = nn.Linear(8, 2)

    def forward(self, x):
        x = self.embed(x)
        for b in self.blocks:
            x = b(x)
        return self.head(self.norm(x))

    def encode(self, x):
        return self.blocks[0](self.embed(x))


def model():
    plait.manual_seed(3)
    return Model()


def batch(step, rows):
    rng = np.random.default_rng(step)
    x = rng.standard_normal((64, WIDTH))[list(rows)]
    return plait.tensor(x, dtype=plait.get_default_dtype()), plait.tensor(
        np.sin(x[:, :2]), dtype=plait.get_default_dtype()
    )


def train(m, rank=0, world=1, each=2, steps=3, forward=None, lr=0.05):
    opt = plait.optim.AdamW(m.parameters(), lr=lr)
    for s in range(steps):
        x, y = batch(s, range(rank * each, (rank + 1) * each))
        opt.zero_grad()
        ((forward or m)(x).to(y.dtype) - y).square().mean().backward()
        opt.step()
    return opt


def alone(world, **options):
    plait.set_default_dtype(plait.float64)
    try:
        m = model()
        train(m, each=2 * world, **options)
        return {n: p.detach().numpy().copy() for n, p in m.named_parameters()}
    finally:
        plait.set_default_dtype(plait.float32)


def spawn(fn, nprocs=3):
    """Runs fn(rank) on ranks that compute in float64."""

    def run(rank):
        plait.set_default_dtype(plait.float64)
        fn(rank)

    on_ranks(nprocs, run)


def local(t):
    """Returns the rank's part of a distributed tensor, or another value, as an array of its own."""
    return np.array(t.to_local() if isinstance(t, DTensor) else t)


def full(m):
    return {n: p.full_tensor().detach().numpy() for n, p in m.named_parameters()}


def close(got, want, tol=1e-9):
    assert got.keys() == want.keys()
    for n in want:
        np.testing.assert_allclose(got[n], want[n], rtol=tol, atol=tol, err_msg=n)


def blocks(m, **options):
    for b in m.blocks:
        fully_shard(b, **options)
    return fully_shard(m, **options)
