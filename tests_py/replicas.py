"""What tests of copies of a model share: the model, batches, and training on one device."""

import numpy as np
import plait
from plait import nn

N = 3  # ranks


def model(dtype=plait.float64, **kwargs):
    plait.manual_seed(5)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2), **kwargs).to(dtype)


def batch(n=12):
    plait.manual_seed(1)
    return plait.randn(n, 6, dtype=plait.float64), plait.randn(n, 2, dtype=plait.float64)


def part(rank, n=12, cuts=None):
    """Returns what a rank of N has of a batch of n samples, divided evenly or at cuts, on its device."""
    x, y = batch(n)
    cuts = cuts or [n * r // N for r in range(N + 1)]
    here = f"cpu:{rank}"
    return x[cuts[rank] : cuts[rank + 1]].to(here), y[cuts[rank] : cuts[rank + 1]].to(here)


def values(m):
    return [p.detach().numpy().copy() for p in m.parameters()]


def assert_close(got, want, rtol=1e-9):
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol)


def one_device(steps=4, n=12, make=lambda p: plait.optim.Adam(p, lr=0.05)):
    m = model()
    x, y = batch(n)
    opt = make(m.parameters())
    for _ in range(steps):
        opt.zero_grad()
        nn.functional.mse_loss(m(x), y).backward()
        opt.step()
    return values(m)
