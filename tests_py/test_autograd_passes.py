"""What backward and grad take, return and refuse."""

import plait
import pytest
from plait.autograd import backward, grad


def leaf(*values):
    return plait.tensor(values, dtype=plait.float64, requires_grad=True)


def test_retained_gradients_collect_and_follow_changes_in_place():
    x = leaf(2.0, 3.0)
    y = x * 3
    y.retain_grad()
    y.retain_grad()
    y.register_hook(lambda g: g * 2)
    z = (y * y).sum()
    z.backward(retain_graph=True)
    assert y.grad.tolist() == [24.0, 36.0]
    z.backward()
    assert y.grad.tolist() == [48.0, 72.0]
    assert (y.retains_grad, x.retains_grad) == (True, False)
    y = x * 3
    y.retain_grad()
    y.mul_(2)
    assert y.retains_grad
    (y * y).sum().backward()
    assert y.grad.tolist() == [24.0, 36.0]
    with pytest.raises(RuntimeError, match="retain_grad"):
        plait.ones(1).retain_grad()


def test_views_keep_retaining_when_their_base_changes():
    x = leaf(2.0, 3.0)
    y = x * 3
    v = y[:1]
    v.retain_grad()
    y.mul_(2)
    assert v.retains_grad
    (v * v).sum().backward()
    assert v.grad.tolist() == [24.0]


def test_hooks_come_before_gradients_are_taken():
    x = leaf(2.0)
    x.register_hook(lambda g: g * 2)
    y = x * 3
    y.register_hook(lambda g: g * 10)
    assert grad(y, [x, y])[0].tolist() == [60.0]
    assert grad(x * 3, x)[0].tolist() == [6.0]


def test_backward_into_some_tensors():
    x, w = leaf(2.0), leaf(5.0)
    y = x * 3
    z = y * w
    z.backward(inputs=[y], retain_graph=True)
    assert (y.grad.tolist(), x.grad, w.grad) == ([5.0], None, None)
    assert y.retains_grad
    z.backward(inputs=(x, y))
    assert (y.grad.tolist(), x.grad.tolist(), w.grad) == ([10.0], [15.0], None)
    unused = leaf(1.0)
    (x * 1).backward(inputs=unused)
    assert unused.grad is None
    with pytest.raises(RuntimeError, match="cannot be empty"):
        (x * 1).backward(inputs=[])
    with pytest.raises(RuntimeError, match="does not require a gradient"):
        (x * 1).backward(inputs=[plait.ones(1)])


def test_what_lies_behind_a_wanted_gradient_does_not_run():
    x = leaf(2.0)
    y = x.exp()
    y.backward(retain_graph=False)
    z = y * 3  # the graph behind y is gone
    log = []
    y.grad_fn.register_hook(lambda grads, out: log.append(1))
    assert grad(z, y)[0].tolist() == [3.0]
    assert log == []


def test_unused_inputs():
    x, unused = leaf(2.0), leaf(1.0, 1.0)
    with pytest.raises(RuntimeError, match="do not depend on input 1"):
        grad(x * 2, [x, unused])
    assert grad(x * 2, [x, unused], allow_unused=True)[1] is None
    assert grad(x * 2, [x, unused], materialize_grads=True)[1].tolist() == [0.0, 0.0]
    with pytest.raises(ValueError, match="allow_unused"):
        grad(x * 2, [x], allow_unused=False, materialize_grads=True)


def test_gradients_that_are_given():
    x = leaf(2.0, 3.0)
    with pytest.raises(RuntimeError, match="needs an explicit gradient"):
        grad(x * x, x)
    with pytest.raises(RuntimeError, match=r"output 0 has shape \[1\], want \[2\]"):
        grad(x * x, x, plait.ones(1, dtype=plait.float64))
    (g,) = grad(x * x, x, plait.ones(2))
    assert (g.dtype, g.tolist()) == (plait.float64, [4.0, 6.0])
    with pytest.raises(RuntimeError, match="2 tensors and 1"):
        backward([x.sum(), x.sum()], [None])


def test_batches_of_gradients():
    x = leaf(2.0, 3.0)
    w = leaf(1.0)
    y = x * x * w
    jac, dw = grad(y, [x, w], plait.eye(2, dtype=plait.float64), is_grads_batched=True)
    assert jac.tolist() == [[4.0, 0.0], [0.0, 6.0]]
    assert dw.tolist() == [[4.0], [9.0]]
    y = x * x
    (jac,) = grad(y, [x], plait.eye(2, dtype=plait.float64), is_grads_batched=True, create_graph=True)
    assert grad(jac.sum(), x)[0].tolist() == [2.0, 2.0]
    with pytest.raises(RuntimeError, match="first dimension"):
        grad(x * x, [x], plait.eye(3, dtype=plait.float64), is_grads_batched=True)


@pytest.mark.parametrize(
    ("hook", "error", "match"),
    [
        (lambda g: 3, TypeError, "int"),
        (lambda g: g[:1], RuntimeError, "shape"),
        (lambda g: g.float(), RuntimeError, "float32"),
    ],
)
def test_hooks_that_answer_wrongly(hook, error, match):
    x = leaf(2.0, 3.0)
    x.register_hook(hook)
    with pytest.raises(error, match=match):
        (x * 2).sum().backward()


def test_hooks_need_a_gradient():
    with pytest.raises(RuntimeError, match="doesn't require gradient"):
        plait.ones(1).register_hook(print)
    with pytest.raises(RuntimeError, match="non-leaf"):
        (leaf(1.0) * 2).register_post_accumulate_grad_hook(print)
