"""Forward-mode derivatives: dual tensors, jvp and what is made of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import plait
import pytest
from plait import func
from plait.autograd import Function, forward_ad, functional

X = plait.tensor([1.0, 2.0, 3.0], dtype=plait.float64)
V = plait.tensor([1.0, -1.0, 0.5], dtype=plait.float64)


def curve(x: Any) -> Any:
    return (x.sin() * x.cumsum(0)).exp() / (1 + x.square().sum())


def slope(f: Any, x: Any, v: Any, eps: float = 1e-6) -> Any:
    return ((f(x + eps * v) - f(x - eps * v)) / (2 * eps)).numpy()


def test_dual_tensors() -> None:
    with forward_ad.dual_level():
        x = forward_ad.make_dual(X, V)
        primal, tangent = forward_ad.unpack_dual(curve(x))
        assert forward_ad.unpack_dual(X).tangent is None
        with pytest.raises(RuntimeError, match="already has a tangent"):
            forward_ad.make_dual(x, V)
        with pytest.raises(RuntimeError, match="Nested forward mode"), forward_ad.dual_level():
            pass
        for primal_, tangent_, what in (
            (X, V[:2], r"shape \[3\], got \[2\]"),
            (X, V.float(), "dtype float64, got float32"),
        ):
            with pytest.raises((RuntimeError, TypeError), match=what):
                forward_ad.make_dual(primal_, tangent_)
    assert primal.tolist() == curve(X).tolist()
    np.testing.assert_allclose(tangent.numpy(), slope(curve, X, V), rtol=1e-6)
    assert forward_ad.unpack_dual(x).tangent is None
    with pytest.raises(RuntimeError, match="no level exists"):
        forward_ad.make_dual(X, V)
    with pytest.raises(RuntimeError, match="not the last one"):
        forward_ad.exit_dual_level()


def test_functions_with_a_tangent_of_their_own() -> None:
    class Product(Function):
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any, k: int) -> Any:
            ctx.save_for_forward(x, y)
            ctx.save_for_backward(x, y)
            ctx.k = k
            return k * x * y

        @staticmethod
        def jvp(ctx: Any, x: Any, y: Any, k: Any) -> Any:
            assert k is None
            a, b = ctx.saved_tensors
            return ctx.k * (x * b + a * y)

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            a, b = ctx.saved_tensors
            return ctx.k * g * b, ctx.k * g * a, None

    _, along = func.jvp(lambda x: Product.apply(x, X, 2), (X,), (V,))
    assert along.tolist() == (2 * X * V).tolist()

    def second(x: Any) -> Any:
        return func.jvp(lambda y: Product.apply(y, y, 2), (x,), (V,))[1]

    assert func.jvp(second, (X,), (V,))[1].tolist() == (4 * V * V).tolist()
    x = X.clone().requires_grad_()
    _, along = func.jvp(lambda y: Product.apply(y, y, 2), (x,), (V,))
    assert plait.autograd.grad(along.sum(), x)[0].tolist() == (4 * V).tolist()

    class Bare(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x.clone()

    with pytest.raises(NotImplementedError, match="must implement the jvp function"):
        func.jvp(Bare.apply, (X,), (V,))


def test_jvp_nests_with_itself_and_with_grad() -> None:
    want = func.jacrev(func.jacrev(lambda x: curve(x).sum()))(X).numpy()
    total = lambda x: curve(x).sum()  # noqa: E731
    np.testing.assert_allclose(func.hessian(total)(X).numpy(), want, rtol=1e-9)
    np.testing.assert_allclose(func.jacfwd(func.jacfwd(total))(X).numpy(), want, rtol=1e-9)
    np.testing.assert_allclose(func.jacrev(func.jacfwd(total))(X).numpy(), want, rtol=1e-9)
    np.testing.assert_allclose(func.jvp(func.grad(total), (X,), (V,))[1].numpy(), want @ V.numpy(), rtol=1e-9)
    np.testing.assert_allclose(
        func.grad(lambda x: func.jvp(total, (x,), (V,))[1])(X).numpy(), want @ V.numpy(), rtol=1e-9
    )
    third = func.jvp(func.hessian(total), (X,), (V,))[1].numpy()
    np.testing.assert_allclose(third, slope(func.hessian(total), X, V), rtol=1e-5, atol=1e-7)


def test_gradients_flow_through_tangents() -> None:
    x, v = X.clone().requires_grad_(), V.clone().requires_grad_()
    _, along = func.jvp(curve, (x,), (v,))
    by_x, by_v = plait.autograd.grad(along.sum(), (x, v))
    ones = plait.ones_like(X)
    np.testing.assert_allclose(by_v.numpy(), func.vjp(curve, X)[1](ones)[0].numpy(), rtol=1e-9)
    np.testing.assert_allclose(by_x.numpy(), (func.hessian(lambda x: curve(x).sum())(X) @ V).numpy(), rtol=1e-9)


def test_jvp_of_a_training_step_matches_differences() -> None:
    plait.manual_seed(0)
    net = plait.nn.Sequential(
        plait.nn.Conv2d(1, 2, 3), plait.nn.BatchNorm2d(2), plait.nn.GELU(), plait.nn.Flatten(), plait.nn.Linear(8, 3)
    ).double()
    x, y = plait.randn(5, 1, 4, 4, dtype=plait.float64), plait.tensor([0, 1, 2, 1, 0])
    params = {k: p.detach() for k, p in net.named_parameters()}
    ways = {k: plait.randn_like(p) for k, p in params.items()}

    def loss(p: Any) -> Any:
        return plait.nn.functional.cross_entropy(func.functional_call(net, p, (x,)), y)

    _, along = func.jvp(loss, (params,), (ways,))
    moved = [loss({k: p + e * ways[k] for k, p in params.items()}).item() for e in (1e-6, -1e-6)]
    np.testing.assert_allclose(along.item(), (moved[0] - moved[1]) / 2e-6, rtol=1e-5)


def test_complex_numbers_move_as_pytorchs() -> None:
    z = plait.tensor([1j, 2 + 1j])
    v = plait.tensor([1 + 2j, 1 - 1j])
    np.testing.assert_allclose(func.jvp(lambda z: z * z, (z,), (v,))[1].numpy(), (2 * z * v).numpy(), rtol=1e-6)
    np.testing.assert_allclose(
        func.jvp(lambda z: z.abs(), (z,), (v,))[1].numpy(), ((z.conj() * v).real / z.abs()).numpy(), rtol=1e-6
    )
    for jacobian in (func.jacfwd, func.jacrev):
        with pytest.raises(TypeError, match="view_as_real"):
            jacobian(lambda z: z * z)(z)


def test_strategies_of_jacobians() -> None:
    both = lambda x, y: (x * y.sum(), x.sum() * y)  # noqa: E731
    for inputs, f in ((X, curve), ((X, V), both)):
        want = functional.jacobian(f, inputs)
        got = functional.jacobian(f, inputs, vectorize=True, strategy="forward-mode")
        for a, b in zip(plait.utils._pytree.tree_leaves(got), plait.utils._pytree.tree_leaves(want), strict=True):
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-9)
    total = lambda x: curve(x).sum()  # noqa: E731
    np.testing.assert_allclose(
        functional.hessian(total, X, vectorize=True, outer_jacobian_strategy="forward-mode").numpy(),
        functional.hessian(total, X).numpy(),
        rtol=1e-9,
    )
    with pytest.raises(ValueError, match="strategy must be"):
        functional.jacobian(curve, X, strategy="sideways")


def test_changes_in_place_move_views_and_bases() -> None:
    def f(x: Any) -> Any:
        out = plait.zeros(2, 3, dtype=x.dtype)
        out[1] = x * x
        out[:, 0] *= x[2]
        out[1].add_(x)
        return out

    got = func.jvp(f, (X,), (V,))[1]
    np.testing.assert_allclose(got.numpy(), slope(f, X, V), atol=1e-8)
    x = X.clone().requires_grad_()
    y = x * 1
    y.mul_(y)
    assert plait.autograd.grad(y.sum(), x)[0].tolist() == (2 * X).tolist()


def test_random_numbers_of_jacobians() -> None:
    f = lambda x: x * plait.rand(3, dtype=x.dtype)  # noqa: E731
    with pytest.raises(RuntimeError, match="jacfwd: the function draws random numbers"):
        func.jacfwd(f)(X)
    same = func.jacfwd(f, randomness="same")(X)
    assert (same - same.diag().diag()).abs().sum().item() == 0
    func.jacfwd(f, randomness="different")(X)


def test_parallel_modules_refuse_tangents_that_they_would_drop() -> None:
    def layers() -> Any:
        return plait.nn.Sequential(plait.nn.Linear(3, 4), plait.nn.Linear(4, 2)).double()

    rows = plait.stack([X, 2 * X])
    copied = plait.nn.DataParallel(layers(), ["cpu:0", "cpu:1"])
    staged = plait.Pipeline(layers(), ["cpu:0", "cpu:1"], chunks=2)
    with forward_ad.dual_level():
        x = forward_ad.make_dual(rows, plait.stack([V, V]))
        y, tangent = forward_ad.unpack_dual(copied(x))
        assert tangent.shape == y.shape  # through scattered inputs tangents pass
        with pytest.raises(NotImplementedError, match="pipeline: has no forward-mode derivative"):
            staged(x)
        with plait.no_grad():
            copied.module[0].bias.copy_(forward_ad.make_dual(plait.ones(4).double(), plait.ones(4).double()))
        with pytest.raises(NotImplementedError, match="data_parallel: has no forward-mode derivative"):
            copied(rows)
    assert staged(rows).shape == (2, 2)
    assert copied(rows).shape == (2, 2)
