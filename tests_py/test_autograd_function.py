"""Functions with derivatives of their own, functional derivatives and checks of gradients."""

import gc

import numpy as np
import plait
import pytest
from plait import _core
from plait._engine import callbacks as _kept
from plait.autograd import Function, functional, gradcheck, gradgradcheck
from plait.autograd.function import once_differentiable


def leaf(values):
    return plait.tensor(values, dtype=plait.float64, requires_grad=True)


class Cube(Function):
    @staticmethod
    def forward(ctx, x, scale=1.0):
        ctx.save_for_backward(x)
        ctx.scale = scale
        return x * x * x * scale

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * 3 * x * x * ctx.scale, None


class Exp(Function):
    @staticmethod
    def forward(x):
        return plait.exp(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g * y


def test_gradients_and_second_gradients():
    x = leaf([1.0, -2.0])
    assert gradcheck(lambda x: Cube.apply(x, 2.0), (x,))
    assert gradgradcheck(lambda x: Cube.apply(x, 2.0), (x,))
    assert gradcheck(Exp.apply, (x,))
    assert gradgradcheck(Exp.apply, (x,))
    y = Cube.apply(x, 2.0)
    assert y.requires_grad
    assert not y.is_leaf
    y.sum().backward()
    assert x.grad.tolist() == [6.0, 24.0]
    assert not Cube.apply(x.detach()).requires_grad


def test_saved_values_are_freed_and_checked():
    x = leaf([1.0])
    y = Cube.apply(x)
    y.backward(retain_graph=True)
    y.backward()
    with pytest.raises(RuntimeError, match="second time"):
        y.backward()
    z = x * 1
    y = Cube.apply(z)
    z.add_(plait.tensor([1.0], dtype=plait.float64))
    with pytest.raises(RuntimeError, match="modified by an inplace"):
        y.backward()


def test_several_outputs():
    class Split(Function):
        @staticmethod
        def forward(ctx, x, n):
            a, b = x * 2, (x > 0)
            ctx.mark_non_differentiable(b)
            return a, b, n, x * 3

        @staticmethod
        def backward(ctx, ga, gb, gn, gc):
            assert ctx.needs_input_grad == (True, False)
            return ga * 2 + gc * 3, None

    x = leaf([1.0, -1.0])
    a, b, n, c = Split.apply(x, 5)
    assert (n, b.requires_grad, c.requires_grad) == (5, False, True)
    a.sum().backward(retain_graph=True)
    assert x.grad.tolist() == [2.0, 2.0]
    c.sum().backward()
    assert x.grad.tolist() == [5.0, 5.0]


def test_grads_that_do_not_arrive():
    class Two(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            return x * 1, x * 1

        @staticmethod
        def backward(ctx, a, b):
            assert b is None
            return a

    x = leaf([1.0])
    Two.apply(x)[0].backward()
    assert x.grad.item() == 1.0


def test_dirty_inputs():
    class Double(Function):
        @staticmethod
        def forward(ctx, x):
            x.mul_(plait.tensor(2.0, dtype=plait.float64))
            ctx.mark_dirty(x)
            return x

        @staticmethod
        def backward(ctx, g):
            return g * 2

    x = leaf([3.0])
    y = x * 1
    z = Double.apply(y)
    assert z is y
    z.backward()
    assert (z.item(), x.grad.item()) == (6.0, 2.0)
    with pytest.raises(RuntimeError, match="leaf"):
        Double.apply(x)


def test_an_input_may_be_an_output():
    class Same(Function):
        @staticmethod
        def forward(ctx, x):
            return x

        @staticmethod
        def backward(ctx, g):
            return -g

    x = leaf([3.0])
    y = Same.apply(x)
    assert y is not x
    y.backward()
    assert x.grad.item() == -1.0


def test_once_differentiable():
    class Once(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        @once_differentiable
        def backward(ctx, g):
            return g * 2 * ctx.saved_tensors[0]

    x = leaf([3.0])
    (g,) = plait.autograd.grad(Once.apply(x) ** 2, x, create_graph=True)
    assert g.item() == 108.0
    with pytest.raises(RuntimeError, match="once_differentiable"):
        g.backward()


def test_errors_surface():
    class Bad(Function):
        @staticmethod
        def forward(ctx, x, y):
            return x * y

        @staticmethod
        def backward(ctx, g):
            if g.item() > 1:
                raise KeyError("mine")
            return g

    x, y = leaf([1.0]), leaf([1.0])
    with pytest.raises(KeyError, match="mine"):
        (Bad.apply(x, y) * 2).backward()
    with pytest.raises(RuntimeError, match="number of gradients"):
        Bad.apply(x, y).backward()


def test_contexts_go_with_their_nodes():
    def count():
        gc.collect()
        _kept.collect()
        return len(_kept._shared)

    x = leaf([1.0])
    before = count()
    for _ in range(5):
        Exp.apply(x).backward()
        Cube.apply(x)
    assert count() == before


def function(forward, backward):
    """Returns a function made of two."""
    return type("Made", (Function,), {"forward": staticmethod(forward), "backward": staticmethod(backward)})


@pytest.mark.parametrize(
    ("answer", "match"),
    [
        (lambda g: (g, g), "MadeBackward returned an incorrect number of gradients .expected 3, got 2"),
        (lambda g: (g, g, g, g), "expected 3, got 4"),
        (lambda g: (g, g, g), "different than None at position 2"),
        (lambda g: (3, None, None), "expected Variable or None .got int"),
        (lambda g: (plait.ones(3), None, None), "invalid gradient at index 0"),
    ],
)
def test_wrong_gradients(answer, match):
    made = function(lambda ctx, x, n, y: x * 2, lambda ctx, g: answer(g))
    with pytest.raises(RuntimeError, match=match):
        made.apply(leaf([1.0, 2.0]), 5, None).sum().backward()


def test_gradients_are_fitted_to_their_inputs():
    x = leaf([[1.0], [2.0]])
    made = function(lambda ctx, x, n: x * 2, lambda ctx, g: (plait.ones(3, 2, 4), None, None, None))
    made.apply(x, 1).sum().backward()
    assert x.grad.tolist() == [[12.0], [12.0]]
    assert x.grad.dtype is plait.float64


def test_what_contexts_refuse():
    def with_context(use):
        return function(lambda ctx, x: (use(ctx, x), x * 2)[1], lambda ctx, g: g)

    x = leaf([1.0])
    with pytest.raises(TypeError, match="argument 1 is of type int"):
        with_context(lambda ctx, x: ctx.save_for_backward(x, 3)).apply(x)
    with pytest.raises(RuntimeError, match="mark_dirty can only accept variables, but argument 0 is of type int"):
        with_context(lambda ctx, x: ctx.mark_dirty(3)).apply(x)
    with pytest.raises(RuntimeError, match="mark_non_differentiable"):
        with_context(lambda ctx, x: ctx.mark_non_differentiable(None)).apply(x)
    with pytest.raises(RuntimeError, match=r"marked as dirty .* not returned"):
        with_context(lambda ctx, x: ctx.mark_dirty(x)).apply(x * 1)


def test_a_function_may_name_its_derivative_vjp():
    class Named(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def vjp(ctx, g):
            return g * 2

    x = leaf([1.0])
    Named.apply(x).backward()
    assert x.grad.tolist() == [2.0]


def test_outputs_with_the_memory_of_inputs_cannot_be_changed_in_place():
    x = leaf([1.0])
    for forward in (lambda ctx, x: x, lambda ctx, x: x.view(-1), lambda ctx, x: x.detach()):
        y = function(forward, lambda ctx, g: g * 3).apply(x)
        with pytest.raises(RuntimeError, match="is a view and is being modified inplace"):
            y.add_(1)
    y = function(lambda ctx, x: x.clone(), lambda ctx, g: g * 3).apply(x)
    y.add_(1).backward()
    assert x.grad.tolist() == [3.0]


def test_views_of_a_dirty_input_follow_it():
    def double(ctx, x):
        x.mul_(2)
        ctx.mark_dirty(x)
        return x

    x = leaf([1.0, 5.0])
    y = x * 1
    part = y[:1]
    assert function(double, lambda ctx, g: g * 2).apply(y) is y
    (part * 3).backward()
    assert x.grad.tolist() == [6.0, 0.0]


def test_a_function_is_asked_without_gradients_too():
    class Stop(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, g):
            return None

    seen = []
    seer = function(lambda ctx, x: x * 1, lambda ctx, g: (seen.append(g.tolist()), g)[1])
    x = leaf([1.0])
    (Stop.apply(seer.apply(x)) + x).backward()
    assert seen == [[0.0]]
    assert x.grad.tolist() == [1.0]


def test_functional():
    a = plait.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=plait.float64)
    x = plait.tensor([1.0, -1.0], dtype=plait.float64)

    def f(x):
        return (a * x).sum(1) ** 2

    residual = np.array([-1.0, -1.0])
    jac = 2 * residual[:, None] * a.numpy()
    np.testing.assert_allclose(functional.jacobian(f, x).numpy(), jac)
    v = plait.tensor([0.5, 2.0], dtype=plait.float64)
    np.testing.assert_allclose(functional.vjp(f, x, v)[1].numpy(), v.numpy() @ jac)
    np.testing.assert_allclose(functional.jvp(f, x, v)[1].numpy(), jac @ v.numpy())
    hess = 2 * a.numpy().T @ a.numpy()
    np.testing.assert_allclose(functional.hessian(lambda x: f(x).sum(), x).numpy(), hess)
    np.testing.assert_allclose(functional.hvp(lambda x: f(x).sum(), x, v)[1].numpy(), hess @ v.numpy())
    np.testing.assert_allclose(functional.vhp(lambda x: f(x).sum(), x, v)[1].numpy(), hess @ v.numpy())


def test_gradcheck_finds_what_is_wrong():
    class Wrong(Cube):
        @staticmethod
        def backward(ctx, g):
            return g * 2, None

    x = leaf([1.0, 2.0])
    with pytest.raises(RuntimeError, match="finite differences"):
        gradcheck(Wrong.apply, (x,))
    assert not gradcheck(Wrong.apply, (x,), raise_exception=False)


class KeepsItsOutput(plait.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        out = x * x
        ctx.out, ctx.parts, ctx._own = out, [1, {"out": (out, x)}], out
        return out

    @staticmethod
    def backward(ctx, grad):
        assert ctx.parts[1]["out"][0].tolist() == ctx._own.tolist() == ctx.out.tolist()
        x = ctx.parts[1]["out"][1]
        return 2 * grad * ctx.out / x


@pytest.mark.parametrize("runs", [True, False], ids=["backward", "forward"])
def test_a_context_that_holds_its_output_is_freed(runs):
    x = plait.tensor([1.0, 3.0], requires_grad=True)

    def use():
        y = KeepsItsOutput.apply(x)
        assert y.grad_fn is not None
        if runs:
            y.sum().backward()
            assert x.grad.tolist() == [2.0, 6.0]
            x.grad = None

    use()
    gc.collect()  # what earlier tests left in reference cycles
    before = _kept.kept_count(), _core.bind_TensorCount()
    for _ in range(5):
        use()
    assert (_kept.kept_count(), _core.bind_TensorCount()) == before


def test_an_output_that_a_context_holds_can_be_deleted():
    class Deletes(KeepsItsOutput):
        @staticmethod
        def backward(ctx, grad):
            del ctx.out, ctx.parts
            assert not hasattr(ctx, "out")
            return grad

    Deletes.apply(plait.ones(2, requires_grad=True)).sum().backward()


def test_an_output_that_a_context_holds_is_differentiated():
    x = plait.tensor([1.0, 3.0], requires_grad=True)
    (first,) = plait.autograd.grad(KeepsItsOutput.apply(x).sum(), x, create_graph=True)
    (second,) = plait.autograd.grad(first.sum(), x)
    assert second.tolist() == [2.0, 2.0]
