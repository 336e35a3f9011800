"""Computing activations again in backward."""

from array import array

import plait
import plait.autograd
import pytest
from plait import _core
from plait._runtime import address
from plait.utils.checkpoint import checkpoint, checkpoint_sequential


def used():
    now, peak = array("q", [0]), array("q", [0])
    _core.bind_MemoryUsed(0, -1, 0, address(now), address(peak))  # activations
    return now[0]


def weights(n=1, size=4):
    plait.manual_seed(0)
    return [(plait.rand(size, size, dtype=plait.float64) - 0.5).requires_grad_() for _ in range(n)]


def test_gradients_are_the_same():
    (w,) = weights()
    x = plait.ones(2, 4, dtype=plait.float64).requires_grad_()

    def f(x, scale, extra=None):
        return plait.tanh(x @ w) * scale, plait.sigmoid(x)

    a, b = f(x, 2.0)
    (a.sum() + b.sum()).backward()
    want = x.grad.tolist(), w.grad.tolist()
    x.grad = w.grad = None
    a, b = checkpoint(f, x, 2.0, use_reentrant=False, extra=1)
    (a.sum() + b.sum()).backward()
    assert (x.grad.tolist(), w.grad.tolist()) == want


def test_no_argument_needs_a_gradient():
    (w,) = weights()
    x = plait.ones(2, 4, dtype=plait.float64)
    checkpoint(lambda x: x @ w, x).sum().backward()
    assert w.grad.tolist() == [[2.0] * 4] * 4


def test_random_numbers_are_drawn_again():
    x = plait.ones(64, dtype=plait.float64).requires_grad_()
    masks = []

    def noisy(x):
        mask = plait.rand(64, dtype=plait.float64)
        masks.append(mask)
        return x * mask

    y = checkpoint(noisy, x)
    after = plait.rand(1).item()
    y.sum().backward()
    assert masks[0].tolist() == masks[1].tolist() == x.grad.tolist()
    plait.rand(1)
    assert after != plait.rand(1).item()


def test_activations_are_not_kept():
    ws = weights(8, 64)

    def layer(i):
        return lambda x: plait.tanh(plait.tanh(plait.tanh(x @ ws[i]))) * 2

    layers = [layer(i) for i in range(8)]
    x = plait.ones(256, 64, dtype=plait.float64)

    def kept(run):
        before = used()
        y = run(x)
        held = used() - before
        y.sum().backward()
        return held

    plain = kept(lambda x: checkpoint_sequential(layers, 1, x))
    grads = [w.grad.clone() for w in ws]
    for w in ws:
        w.grad = None
    assert kept(lambda x: checkpoint_sequential(layers, 4, x)) < 0.55 * plain
    for w, g in zip(ws, grads, strict=True):
        assert plait.allclose(w.grad, g)


def test_grad_is_refused():
    x = plait.ones(2, dtype=plait.float64).requires_grad_()
    with pytest.raises(RuntimeError, match="without inputs"):
        plait.autograd.grad(checkpoint(plait.tanh, x).sum(), x)


def test_without_gradients():
    x = plait.ones(2).requires_grad_()
    with plait.no_grad():
        assert not checkpoint(plait.tanh, x).requires_grad
