"""What tests of pipelines share: models of several layers, batches, and comparisons of gradients."""

import numpy as np
import plait
from plait import nn
from plait.distributed import pipelining

NAMES = pipelining.schedule_names()
DEVICES = ["cpu:0", "cpu:1"]


def block(width=4, dropout=0.0):
    return nn.Sequential(nn.Linear(width, width), nn.LayerNorm(width), nn.Tanh(), nn.Dropout(dropout))


def model(layers=6, **kwargs):
    plait.manual_seed(5)
    return nn.Sequential(*(block(**kwargs) for _ in range(layers))).double()


def batch(n, width=4):
    return plait.randn(n, width, dtype=plait.float64), plait.randn(n, width, dtype=plait.float64)


def grads(m):
    out = {n: p.grad.numpy().copy() for n, p in m.named_parameters() if p.grad is not None}
    m.zero_grad()
    return out


def assert_same(got, want, tolerance=1e-12):
    assert got.keys() == want.keys()
    for name, g in got.items():
        np.testing.assert_allclose(g, want[name], rtol=0, atol=tolerance, err_msg=name)


class Head(nn.Module):
    def __init__(self, weight):
        super().__init__()
        self.weight = weight

    def forward(self, x):
        return x @ self.weight.T


def tied():
    plait.manual_seed(2)
    embedding = nn.Embedding(7, 4)
    return nn.Sequential(embedding, block(), block(), Head(embedding.weight)).double()


def whole(m, x, y, loss_fn):
    out = m(x)
    loss = loss_fn(out, y)
    loss.backward()
    return loss.item(), out.detach().numpy(), grads(m)
