"""Functions of `autograd.Function` inside `vmap`: their own rules, rules made of their methods, and what each gets."""

import plait
import pytest
from plait import func

DIM = 4


class Loop(plait.autograd.Function):
    """Has no rule: it is applied part by part, to which the other two are compared."""

    @staticmethod
    def forward(x, w, power):
        return x**power * w, x.sum()

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, w, power = inputs
        ctx.save_for_backward(x, w, output[0])
        ctx.save_for_forward(x, w)
        ctx.power, ctx.parts = power, [x, {"w": w}]
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def backward(ctx, grad, _):
        x, w, y = ctx.saved_tensors
        assert ctx.parts[0].shape == x.shape and ctx.parts[1]["w"].shape == w.shape == (DIM,) and y.shape == x.shape
        gx = ctx.power * ctx.parts[0] ** (ctx.power - 1) * w * grad if ctx.needs_input_grad[0] else None
        return gx, (x**ctx.power * grad).reshape(-1, DIM), None  # has a dimension more than w

    @staticmethod
    def jvp(ctx, gx, gw, _):
        x, w = ctx.saved_tensors
        return ctx.power * x ** (ctx.power - 1) * w * gx + x**ctx.power * gw, None


class Together(Loop):
    generate_vmap_rule = True


class OldStyle(plait.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(ctx, x, w, power):
        out = Loop.forward(x, w, power)
        Loop.setup_context(ctx, (x, w, power), out)
        return out

    backward, jvp = Loop.backward, Loop.jvp


class Ruled(Loop):
    seen: list = []  # noqa: RUF012

    @staticmethod
    def vmap(info, in_dims, x, w, power):
        Ruled.seen.append((info.batch_size, info.randomness, in_dims, x.shape, w.shape))
        return (x**power * w, x.sum(-1)), (0, in_dims[0])


@pytest.mark.parametrize("dims", [(0, None, None), (None, 0, None), (0, 0, None), (1, 0, None)], ids=str)
@pytest.mark.parametrize("function", [Together, OldStyle, Ruled])
def test_rules_do_what_a_loop_does(function, dims):
    shape = {0: (3, DIM), 1: (DIM, 3), None: (DIM,)}
    x = plait.rand(shape[dims[0]]).requires_grad_()
    w = plait.rand(shape[dims[1]]).requires_grad_()

    def outcome(f):
        y, total = func.vmap(f.apply, in_dims=dims)(x, w, 3)
        grads = plait.autograd.grad((y**2).sum(), (x, w), create_graph=True)
        second = plait.autograd.grad((grads[0] ** 2).sum() + (grads[1] ** 2).sum(), (x, w))
        inside = func.vmap(func.grad(lambda x, w: (f.apply(x, w, 3)[0] ** 2).sum(), argnums=(0, 1)), in_dims=dims[:2])
        return [y, total, *grads, *second, *inside(x, w)]

    for got, want in zip(outcome(function), outcome(Loop), strict=True):
        assert got.shape == want.shape and plait.allclose(got, want, atol=1e-5)


def test_methods_run_once_with_the_shapes_of_one_part():
    calls = []

    class Counted(Together):
        @staticmethod
        def forward(x, w, power):
            calls.append(("forward", tuple(x.shape)))
            return Together.forward(x, w, power)

        @staticmethod
        def backward(ctx, *grads):
            calls.append(("backward", tuple(grads[0].shape)))
            return Together.backward(ctx, *grads)

    x, w = plait.rand(5, DIM), plait.rand(DIM)
    func.vmap(func.grad(lambda x, w: Counted.apply(x, w, 2)[0].sum()), in_dims=(0, None))(x, w)
    assert calls == [("forward", (DIM,)), ("backward", (DIM,))]


@pytest.mark.parametrize("function", [Together, Ruled])
def test_transforms_around_and_inside(function):
    x, w = plait.rand(2, 3, DIM), plait.rand(DIM)
    f, plain = (lambda r: function.apply(r, w, 2)[0]), (lambda r: r**2 * w)
    assert plait.allclose(func.vmap(func.vmap(f))(x), plain(x))
    assert plait.allclose(func.vmap(func.vmap(func.grad(lambda r: f(r).sum())))(x), 2 * x * w)
    for transform in (func.jacrev, func.jacfwd):
        assert plait.allclose(transform(f)(x[0, 0]), plait.diag(2 * x[0, 0] * w))
        assert plait.allclose(func.vmap(transform(f))(x[0]), plait.diag_embed(2 * x[0] * w))
    push = func.vmap(lambda r, t: func.jvp(f, (r,), (t,))[1])
    assert plait.allclose(push(x[0], x[1]), 2 * x[0] * w * x[1])


def test_a_rule_gets_the_batch_and_what_vmap_was_told():
    Ruled.seen.clear()
    func.vmap(lambda x: Ruled.apply(x, plait.ones(DIM), 2), randomness="same")(plait.ones(3, DIM))
    assert Ruled.seen == [(3, "same", (0, None, None), (3, DIM), (DIM,))]

    class Noise(plait.autograd.Function):
        @staticmethod
        def forward(xs):
            return xs[0] + plait.rand(DIM)

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

        @staticmethod
        def vmap(info, in_dims, xs):
            assert in_dims == ([0, None],) and xs[0].shape == (3, DIM)
            noise = plait.rand(info.batch_size, DIM)  # drawn for no part: outside of vmap
            assert noise.shape == (3, DIM)
            return xs[0].T + noise.T, -1

    x = plait.zeros(3, DIM)
    out = func.vmap(lambda r: Noise.apply([r, plait.ones(1)]) + plait.rand(DIM), randomness="different")(x)
    assert len({tuple(r) for r in out.tolist()}) == 3


def test_what_is_changed_in_place_and_what_is_returned_as_it_is():
    class Doubled(plait.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(ctx, x):
            ctx.mark_dirty(x)
            return x.mul_(2)

        @staticmethod
        def backward(ctx, grad):
            return grad * 2

    class Same(Doubled):
        @staticmethod
        def forward(ctx, x):
            return x

    x = plait.rand(3, DIM, requires_grad=True)
    for f, factor in ((Doubled, 2), (Same, 1)):
        y = func.vmap(lambda r, f=f: f.apply(r * 1))(x)
        assert plait.allclose(y, x * factor)
        assert plait.autograd.grad(y.sum(), x)[0].tolist() == [[2.0] * DIM] * 3


def test_errors_say_what_a_rule_must_return():
    def applied(made, x=None):
        rule = type("Rule", (Loop,), {"vmap": staticmethod(lambda info, in_dims, *args: made(*args))})
        return func.vmap(lambda r: rule.apply(r, plait.ones(DIM), 1))(plait.ones(3, DIM))

    for made, error, message in [
        (lambda x, *_: x, RuntimeError, "two returns, an output and out_dims .* Got a <class"),
        (lambda x, *_: (x, 0, 0), RuntimeError, "Got 3 returns"),
        (
            lambda x, *_: (x, (0, 0)),
            RuntimeError,
            "incompatible \\(output, out_dims\\) tuple. Expected out_dims=\\(0, 0\\)",
        ),
        (lambda x, *_: (x, 2), RuntimeError, "Rule.vmap: got an output of shape \\[3, 4\\] and out_dim 2"),
        (
            lambda x, *_: (x[:2], 0),
            RuntimeError,
            "shape \\[2, 4\\] and out_dim 0, want a dimension of the batch's size 3",
        ),
        (lambda x, *_: (x, "a"), TypeError, "must be numbers or None, got 'a'"),
    ]:
        with pytest.raises(error, match=message):
            applied(made)
    both = type("Both", (Ruled,), {"generate_vmap_rule": True})
    with pytest.raises(RuntimeError, match="Both, but it has both generate_vmap_rule=True and an overridden vmap"):
        func.vmap(lambda r: both.apply(r, plait.ones(DIM), 1))(plait.ones(3, DIM))
    with pytest.raises(NotImplementedError, match="override the vmap staticmethod or set"):
        plait.autograd.Function.vmap(None, None)
    few = type("Few", (Together,), {"backward": staticmethod(lambda ctx, *grads: (grads[0],))})
    with pytest.raises(
        RuntimeError, match="FewBackward returned an incorrect number of gradients \\(expected 3, got 1\\)"
    ):
        func.vmap(func.grad(lambda r: few.apply(r, plait.ones(DIM), 1)[0].sum()))(plait.ones(3, DIM))


def test_operations_of_a_program_have_rules_too():
    @plait.library.custom_op("tests::scaled", mutates_args=())
    def scaled(x: plait.Tensor, k: plait.Tensor, *, shift: float = 0.0) -> plait.Tensor:
        assert x.dim() == 1
        return x * k + shift

    @plait.library.register_vmap("tests::scaled")
    def rule(info, in_dims, x, k, *, shift):
        assert in_dims == (0, None)
        return x * k + shift, 0

    scaled.register_autograd(lambda ctx, grad: (grad, None, None))
    assert func.vmap(lambda r: scaled(r, plait.tensor(2.0), shift=1.0))(plait.ones(3, 2)).tolist() == [[3.0, 3.0]] * 3
