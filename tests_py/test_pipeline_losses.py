"""Losses of pipelines that are means over something else than samples, and where their tensors are."""

import functools

import numpy as np
import plait
import pytest
from plait import nn
from plait.distributed import pipelining
from plait.nn import functional as F
from ranks import on_ranks

CLASSES = 3
IGNORED = -100


def layers(last=CLASSES):
    plait.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, last))


def batch(ignored=(0, 1, 2, 5), rows=7):
    rng = np.random.default_rng(0)
    y = rng.integers(0, CLASSES, rows)
    y[list(ignored)] = IGNORED
    return plait.tensor(rng.standard_normal((rows, 4)).astype("float32")), plait.tensor(y)


def weights():
    return plait.tensor([0.5, 2.0, 0.25])


def other_index(target):
    return plait.where(target == IGNORED, plait.full_like(target, 1), target)


LOSSES = {
    "module": nn.CrossEntropyLoss,
    "weights": lambda: nn.CrossEntropyLoss(weights()),
    "weights and smoothing": lambda: nn.CrossEntropyLoss(weights(), label_smoothing=0.1),
    "another index": lambda: nn.CrossEntropyLoss(weights(), ignore_index=1),
    "function": lambda: F.cross_entropy,
    "partial": lambda: functools.partial(F.cross_entropy, weight=weights(), reduction="mean"),
    "sum": lambda: nn.CrossEntropyLoss(weights(), reduction="sum"),
    "nll": lambda: Softened(nn.NLLLoss(weights())),
}


class Softened:
    """A loss of log-probabilities, behind layers that give them."""

    def __init__(self, loss):
        self.loss = loss


def parts(name):
    loss, m = LOSSES[name](), layers()
    if isinstance(loss, Softened):
        m.append(nn.LogSoftmax(1))
        loss = loss.loss
    x, y = batch()
    return m, loss, x, other_index(y) if name == "another index" else y


def alone(name):
    m, loss, x, y = parts(name)
    value = loss(m(x), y)
    value.backward()
    return value.item(), [p.grad.numpy() for p in m.parameters()]


@pytest.mark.parametrize("name", LOSSES)
def test_means_are_those_of_the_batch(name):
    want, grads = alone(name)
    m, loss, x, y = parts(name)
    pipe = plait.Pipeline(m, ["cpu:0", "cpu:1"], chunks=3, loss_fn=loss)
    for _ in range(2):
        for p in m.parameters():
            p.grad = None
        value, _ = pipe.step(x, y)
        assert value.item() == pytest.approx(want, rel=1e-5)
        for p, g in zip(m.parameters(), grads, strict=True):
            np.testing.assert_allclose(p.grad.numpy(), g, rtol=1e-4, atol=1e-6)
    assert pipe.evaluate(x, y)[0].item() == pytest.approx(want, rel=1e-5)


@pytest.mark.parametrize("name", ["module", "weights", "partial"])
def test_means_of_ranks_are_those_of_the_batch(name):
    want, grads = alone(name)

    def run(rank):
        m, loss, x, y = parts(name)
        stage = pipelining.PipelineStage(nn.Sequential(*(m[:2] if rank == 0 else m[2:])), rank, 2, f"cpu:{rank}")
        schedule = pipelining.ScheduleGPipe(stage, 3, loss)
        losses = []
        schedule.step(x) if rank == 0 else schedule.step(target=y, losses=losses)
        mine = grads[:2] if rank == 0 else grads[2:]
        for p, g in zip(stage.submod.parameters(), mine, strict=True):
            np.testing.assert_allclose(p.grad.numpy(), g, rtol=1e-4, atol=1e-6)
        if rank == 1:
            one = parts(name)
            for got, rows in zip(losses, (slice(0, 3), slice(3, 5), slice(5, 7)), strict=True):
                np.testing.assert_allclose(got.item(), one[1](one[0](x[rows]), y[rows]).item(), rtol=1e-5)
        return want

    on_ranks(2, run)


def test_all_targets_ignored():
    x, y = batch(range(7))
    value, _ = plait.Pipeline(layers(), ["cpu:0", "cpu:1"], 2, loss_fn=nn.CrossEntropyLoss()).step(x, y)
    assert np.isnan(value.item())


def test_means_inside_another_loss():
    def run(loss, ignored, rows=6):
        m = layers()
        x, y = batch(ignored, rows)
        return m, plait.Pipeline(m, ["cpu:0", "cpu:1"], 2, loss_fn=loss).step(x, y)[0].item(), x, y

    def doubled(output, target):
        return 2 * F.cross_entropy(output, target)

    def weighted(output, target):
        return F.cross_entropy(output, target, weight=weights().to(output.device))

    _, got, x, y = run(doubled, ())
    assert got == pytest.approx(2 * F.cross_entropy(layers()(x), y).item(), rel=1e-5)
    _, got, x, y = run(doubled, (1, 4))  # as many in each micro-batch
    assert got == pytest.approx(2 * F.cross_entropy(layers()(x), y).item(), rel=1e-5)
    for loss, ignored in ((doubled, (0, 1)), (weighted, ())):
        with pytest.raises(ValueError, match=r"Pipeline: the loss is a mean over the targets that are not ignored"):
            run(loss, ignored)
    run(lambda o, t: F.cross_entropy(o, t, weight=weights().to(o.device), reduction="sum"), (0, 1))


def test_a_loss_goes_to_the_last_device():
    loss = nn.CrossEntropyLoss(weights())
    m = layers()
    plait.Pipeline(m, ["cpu:0", "cpu:1"], 2, loss_fn=loss)
    assert str(loss.weight.device) == "cpu:1"

    class Shared(nn.Module):
        def __init__(self, layer):
            super().__init__()
            self.layer, self.scale = layer, nn.Parameter(plait.ones(()))

        def forward(self, output, target):
            return self.scale.to(output.device) * F.cross_entropy(output, target)

    m = layers()
    loss = Shared(m[0])
    plait.Pipeline(m, ["cpu:0", "cpu:1"], 2, loss_fn=loss)
    assert str(loss.scale.device) == "cpu:1"
    assert str(m[0].weight.device) == "cpu:0"
