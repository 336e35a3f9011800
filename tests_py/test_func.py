"""Functions made of functions: what they return, that they nest, and what they refuse."""

import itertools
import warnings

import numpy as np
import plait
import pytest
from plait import func, nn

X = plait.tensor([1.0, 2.0, 3.0])


def cubes(x):
    return (x**3).sum()


def test_gradients():
    assert func.grad(cubes)(X).tolist() == [3.0, 12.0, 27.0]
    gradient, value = func.grad_and_value(cubes)(X)
    assert value.item() == 36 and not value.requires_grad and not gradient.requires_grad
    pair = func.grad(lambda a, b, scale=1.0: (a * b).sum() * scale, argnums=(0, 1))(X, 2 * X, scale=3.0)
    assert pair[0].tolist() == (6 * X).tolist() and pair[1].tolist() == (3 * X).tolist()
    made, aux = func.grad(lambda x: (cubes(x), {"twice": 2 * x}), has_aux=True)(X)
    assert made.tolist() == [3.0, 12.0, 27.0] and aux["twice"].tolist() == [2.0, 4.0, 6.0]
    tree = func.grad(lambda p: (p["w"] * p["b"][0]).sum())({"w": X, "b": (X, plait.ones(2))})
    assert tree["w"].tolist() == X.tolist() and tree["b"][1].tolist() == [0.0, 0.0]
    assert X.grad is None and not X.requires_grad


def test_gradients_nest():
    third = func.grad(func.grad(func.grad(lambda x: x**4)))
    assert third(plait.tensor(2.0)).item() == 48
    # An inner function that refers to what the outer one is derived by.
    mixed = func.grad(lambda x: func.grad(lambda y: x * y**2)(plait.tensor(3.0)))
    assert mixed(plait.tensor(5.0)).item() == 6
    x = plait.tensor(2.0, requires_grad=True)
    func.grad(lambda x: x**3)(x).backward()
    assert x.grad.item() == 12


def test_products_with_jacobians():
    out, pull = func.vjp(lambda a, b: {"sum": a + b, "product": a * b}, X, 2 * X)
    ones = plait.ones(3)
    a, b = pull({"sum": ones, "product": ones})
    assert out["product"].tolist() == [2.0, 8.0, 18.0]
    assert a.tolist() == (1 + 2 * X).tolist() and b.tolist() == (1 + X).tolist()
    assert pull({"sum": ones, "product": 0 * ones})[0].tolist() == ones.tolist(), "a second time"
    value, along = func.jvp(lambda a, b: a * b, (X, 2 * X), (ones, 0 * ones))
    assert value.tolist() == [2.0, 8.0, 18.0] and along.tolist() == (2 * X).tolist()
    *_, aux = func.jvp(lambda x: (x**2, "kept"), (X,), (ones,), has_aux=True)
    assert aux == "kept"
    with pytest.raises(RuntimeError, match="tangents of shapes"):
        func.jvp(cubes, (X,), (plait.ones(2),))
    with pytest.raises(RuntimeError, match="vectors of shapes"):
        pull({"sum": plait.ones(2), "product": ones})


@pytest.mark.parametrize("jacobian", [func.jacrev, func.jacfwd])
def test_jacobians(jacobian):
    assert jacobian(lambda x: x**2)(X).tolist() == plait.diag(2 * X).tolist()
    both = jacobian(lambda a, b: (a.sum() * b, a), argnums=(0, 1))(X, plait.ones(2))
    assert both[0][0].shape == (2, 3) and both[0][1].shape == (2, 2) and both[1][1].tolist() == [[0.0, 0.0]] * 3
    assert func.hessian(cubes)(X).tolist() == plait.diag(6 * X).tolist()
    assert func.hessian(lambda a, b: (a * b).sum(), argnums=(0, 1))(X, X)[0][1].tolist() == plait.eye(3).tolist()


def test_hessians_where_a_part_of_the_gradient_is_alike_for_all_elements():
    def f(x):
        s = x.square().sum()
        return x.sigmoid().square().mean() * plait.where(s == 0, 0.0, plait.where(s == 0, 1.0, s).sqrt())

    want = func.hessian(f)(X)
    for outer, inner in itertools.product((func.jacrev, func.jacfwd), repeat=2):
        assert plait.allclose(outer(inner(f))(X), want)


def test_each_part_of_a_batch():
    x = plait.arange(6.0).reshape(2, 3)
    assert plait.vmap(lambda r: r.sum())(x).tolist() == [3.0, 12.0]
    assert func.vmap(lambda r, k: r * k, in_dims=(1, None), out_dims=1)(x, 2.0).tolist() == (2 * x).tolist()
    out = func.vmap(lambda p, k: {"a": p["w"] + k, "b": p["c"]}, in_dims=({"w": 0, "c": None}, 0))(
        {"w": x, "c": plait.ones(1)}, plait.ones(2)
    )
    assert out["a"].tolist() == (x + 1).tolist() and out["b"].shape == (2, 1)
    for args, dims, message in [
        ((x, plait.ones(3)), 0, "different sizes"),
        ((x, 3), 0, "dimension 0 for int"),
        ((x,), None, "no dimension"),
        ((plait.ones(()),), 0, "without dimensions"),
        ((x,), ({"w": 0},), "does not have the form"),
        ((plait.ones(0, 2),), 0, "size 0"),
    ]:
        with pytest.raises(ValueError, match=message):
            func.vmap(lambda *a: a[0], in_dims=dims)(*args)
    with pytest.raises(TypeError, match="want tensors"):
        func.vmap(lambda r: 3)(x)


def test_operations_see_all_parts_at_once():
    x = plait.arange(6.0).reshape(2, 3)
    calls = []
    out = func.vmap(lambda r: calls.append(r.shape) or (r[1:] @ r[1:]) * 2)(x)
    assert calls == [(3,)] and out.tolist() == [10.0, 82.0]
    several = func.vmap(lambda r: calls.append(0) or r.sum(), chunk_size=2)
    assert several(x.T).tolist() == x.sum(0).tolist() and len(calls) == 3
    pairs = func.vmap(lambda a: func.vmap(lambda b: a - b)(x[0]))(x[1])
    assert pairs.tolist() == (x[1][:, None] - x[0]).tolist(), "levels nest"
    assert func.vmap(lambda r, i: r[i])(x, plait.tensor([2, 0])).tolist() == [2.0, 3.0]
    kept = func.vmap(lambda r: (r, plait.ones(1)), out_dims=(0, None))(x)[1]
    assert kept.shape == (1,)
    assert "BatchedTensor(lvl=1" in repr(func.vmap(lambda r: calls.append(repr(r)) or r)(x)) + calls[-1]
    for f, message in [
        (lambda r: r.sum().item(), "item: not possible inside vmap"),
        (lambda r: r if r.sum() > 0 else -r, "not possible inside vmap"),
        (lambda r: r.numpy(), "numpy: not possible inside vmap"),
        (lambda r: r.nonzero(), "nonzero: not possible inside vmap"),
        (lambda r: r[r > 1], "index: not possible inside vmap"),
        (lambda r: plait.zeros(3).add_(r), "add_: inside vmap a tensor that is the same for all parts"),
        (lambda r: calls.append(r) or r, None),
    ]:
        if message:
            with pytest.raises(RuntimeError, match=message):
                func.vmap(f)(x)
        else:
            func.vmap(f)(x)
    with pytest.raises(RuntimeError, match="a vmap that has ended"):
        calls[-1] + 1
    with pytest.raises(ValueError, match="out_dims is None"):
        func.vmap(lambda r: r, out_dims=None)(x)
    with pytest.raises(ValueError, match="chunk_size"):
        func.vmap(lambda r: r, chunk_size=0)


def test_what_has_no_rule_is_applied_to_parts_one_by_one():
    x = plait.arange(8.0).reshape(2, 4)
    with pytest.warns(UserWarning, match="vmap: histc has no rule"):  # for the range of the elements, which it reads
        assert func.vmap(lambda r: plait.histc(r, 2))(x).tolist() == [[2, 2], [2, 2]]

    class Cube(plait.autograd.Function):
        @staticmethod
        def forward(ctx, r):
            ctx.save_for_backward(r)
            return r**3

        @staticmethod
        def backward(ctx, grad):
            (r,) = ctx.saved_tensors
            assert r.shape == (4,)
            return 3 * r**2 * grad

    assert func.vmap(func.grad(lambda r: Cube.apply(r).sum()))(x).tolist() == (3 * x**2).tolist()
    assert func.jacrev(Cube.apply)(x[0]).tolist() == plait.diag(3 * x[0] ** 2).tolist()


def test_derivatives_inside_and_around():
    x, w = plait.randn(4, 3), plait.randn(3)
    each = func.vmap(func.grad(lambda w, r: (w * r).sum() ** 2), in_dims=(None, 0))(w, x)
    assert plait.allclose(each, 2 * (x @ w)[:, None] * x), "not summed over the batch"
    assert plait.allclose(func.grad(lambda w: func.vmap(lambda r: (w * r).sum() ** 2)(x).sum())(w), each.sum(0))
    assert plait.allclose(func.vmap(func.jvp, in_dims=(None, None, (0,)))(plait.sin, (w,), (x,))[1], w.cos() * x)
    _, pull = func.vjp(plait.sin, w)
    assert plait.allclose(func.vmap(pull)(x)[0], w.cos() * x)
    assert plait.allclose(func.vmap(func.hessian(cubes))(x), plait.diag_embed(6 * x))
    for size in (None, 2):
        assert plait.allclose(func.jacrev(lambda w: x @ w, chunk_size=size)(w), x)
    batched = plait.autograd.grad(y := (v := w.clone().requires_grad_()).sin(), v, x, is_grads_batched=True)[0]
    assert y.shape == w.shape and plait.allclose(batched, w.cos() * x)
    assert func.jacfwd(lambda w: w * 2 if w.sum() > -9 else w)(w).tolist() == (2 * plait.eye(3)).tolist(), "a loop"
    w.requires_grad_()
    with pytest.raises(RuntimeError, match="one tensor for all parts of vmap's batch"):
        func.vmap(lambda r: plait.autograd.grad((w * r).sum(), w)[0])(x)
    func.vmap(lambda r: (w * r).sum().backward() or r)(x)
    assert plait.allclose(w.grad, x.sum(0))


def test_random_numbers_of_each_part():
    x, u, calls = plait.ones(3, 64), plait.ones(64), []

    def rows(f, randomness):
        calls.clear()
        out = func.vmap(lambda r: calls.append(1) or f(r), randomness=randomness)(x)
        return len({tuple(row.flatten().tolist()) for row in out})

    for f in [
        lambda r: plait.rand(9),
        lambda r: plait.randint(0, 100, (9,)),
        nn.functional.dropout,
        lambda r: nn.functional.dropout(u) + r,
        lambda r: plait.bernoulli(u / 2),
        lambda r: r.clone().normal_(),
    ]:
        assert rows(f, "different") == 3 and len(calls) == 1
        assert rows(f, "same") == 1 and len(calls) == 1
        with pytest.raises(RuntimeError, match="randomness"):
            rows(f, "error")
    assert rows(lambda r: plait.empty(9).normal_(), "different") == 3, "a tensor of no part is filled in a loop"
    nested = func.vmap(lambda r: func.vmap(lambda q: plait.rand(2), randomness="different")(x), randomness="different")
    assert len(set(nested(x).flatten().tolist())) == 18


@pytest.mark.filterwarnings("ignore:vmap. (bernoulli|multinomial) has no rule")  # for what differs from part to part
def test_the_same_random_numbers_for_all_parts():
    x = plait.linspace(0.1, 0.9, 12).reshape(3, 4).requires_grad_()

    class Noise(plait.autograd.Function):
        @staticmethod
        def forward(ctx, r):
            return r + plait.rand(4)

        @staticmethod
        def backward(ctx, grad):
            return grad

    for f in [
        nn.functional.dropout,
        lambda r: nn.functional.dropout(r * 2, 0.2) * plait.rand(()),
        lambda r: nn.functional.gumbel_softmax(r, dim=0),
        lambda r: plait.bernoulli(r) + plait.randn_like(r),
        lambda r: plait.multinomial(r, 2).float(),
        Noise.apply,
    ]:
        for chunk in (None, 2):
            plait.manual_seed(5)
            got = func.vmap(f, randomness="same", chunk_size=chunk)(x)
            after = plait.rand(1)
            want = []
            for r in x:
                plait.manual_seed(5)
                want.append(f(r))
            assert plait.allclose(got, plait.stack(want)) and after == plait.rand(1)
            if got.requires_grad:
                grads = [plait.autograd.grad((y * y).sum(), x)[0] for y in (got, plait.stack(want))]
                assert plait.allclose(*grads)


def test_gradients_of_each_sample_and_ensembles():
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    params = {k: v.detach() for k, v in net.named_parameters()}
    x, y = plait.randn(5, 3), plait.randn(5, 1)

    def loss(p, x, y):
        return ((func.functional_call(net, p, (x,)) - y) ** 2).sum()

    each = func.vmap(func.grad(loss), in_dims=(None, 0, 0))(params, x, y)
    loss(dict(net.named_parameters()), x, y).backward()
    for name, p in net.named_parameters():
        assert plait.allclose(each[name].sum(0), p.grad, atol=1e-5)
    nets = [nn.Linear(3, 2) for _ in range(4)]
    stacked, buffers = func.stack_module_state(nets)
    assert stacked["weight"].shape == (4, 2, 3) and stacked["weight"].requires_grad and buffers == {}
    out = func.vmap(lambda p, x: func.functional_call(nets[0], p, (x,)), in_dims=(0, None))(stacked, x)
    assert plait.allclose(out[2], nets[2](x))
    with pytest.raises(RuntimeError, match="of one class"):
        func.stack_module_state([nets[0], net])


@pytest.mark.parametrize("steps", [3, 7], ids=["step by step", "sample by sample"])
@pytest.mark.parametrize("layer", [nn.LSTM, nn.GRU])
def test_recurrent_layers_of_each_sample(layer, steps):
    net, x = layer(3, 4, num_layers=2, bidirectional=True), plait.randn(5, steps, 2, 3)

    def loss(p, r):
        return (func.functional_call(net, p, (r,))[0] ** 2).sum()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        out = func.vmap(lambda r: net(r)[0])(x)
        params = {k: v.detach() for k, v in net.named_parameters()}
        each = func.vmap(func.grad(loss), in_dims=(None, 0))(params, x)
    assert plait.allclose(out, plait.stack([net(r)[0] for r in x]), atol=1e-6)
    for i, r in enumerate(x):
        net.zero_grad()
        (net(r)[0] ** 2).sum().backward()
        for name, p in net.named_parameters():
            assert plait.allclose(each[name][i], p.grad, atol=1e-5), (name, i)


def test_what_cannot_be_derived():
    with pytest.raises(RuntimeError, match="one element, got \\[3\\]"):
        func.grad(lambda x: x)(X)
    with pytest.raises(TypeError, match="want tensors, got float"):
        func.grad(cubes)(2.0)
    with pytest.raises(TypeError, match="must return a pair"):
        func.grad(cubes, has_aux=True)(X)
    with pytest.raises(NotImplementedError):
        _ = func.functionalize
    with pytest.raises(RuntimeError, match="boom"):
        func.grad(lambda x: (_ for _ in ()).throw(RuntimeError("boom")))(X)
    assert not func.grad(cubes)(X).requires_grad, "the failure left no transform open"


def test_results_depend_on_tensors_that_the_function_has_from_elsewhere():
    """As in a loss of derivatives of a network by its input, which trains its parameters."""
    net = nn.Sequential(nn.Linear(2, 5), nn.Tanh(), nn.Linear(5, 1)).double()
    x = plait.randn(7, 2, dtype=plait.float64)

    def value(x):
        return net(x[None]).squeeze()

    w1, w2 = net[0].weight, net[2].weight
    slopes = (w2 * (1 - net[1](net[0](x)) ** 2)) @ w1
    want = plait.autograd.grad((slopes**2).sum(), (w1, w2))
    vjps = [func.vjp(value, p) for p in x]
    for got in (
        func.vmap(func.grad(value))(x),
        plait.stack([func.grad(value)(p) for p in x]),
        plait.stack([func.jacrev(value)(p) for p in x]),
        plait.stack([product(plait.ones_like(y))[0] for y, product in vjps]),
    ):
        for g, w in zip(plait.autograd.grad((got**2).sum(), (w1, w2)), want, strict=True):
            np.testing.assert_allclose(g.numpy(), w.numpy(), rtol=1e-9)
    with plait.no_grad():
        assert not func.grad(value)(x[0]).requires_grad
    grads, (y, aux) = func.grad_and_value(lambda p: ((p**3).sum(), (p * 2, value(p))), has_aux=True)(x[0])
    assert [t.requires_grad for t in (grads, y, *aux)] == [False, False, False, True]
    first, second = func.grad(lambda p: (p[0] * w1[0]).sum() + (p[1] ** 2).sum())((x[0], x[1]))
    assert (first.requires_grad, second.requires_grad) == (True, False)
    assert func.vjp(lambda p: p**2, x[0])[1](w1[0])[0].requires_grad


def test_linearize():
    x, y = plait.randn(3, dtype=plait.float64), plait.randn(3, dtype=plait.float64)
    tangents = plait.randn(3, dtype=plait.float64), plait.randn(3, dtype=plait.float64)
    calls = []

    def f(x, y):
        calls.append(1)
        return {"product": x.sin() * y, "sum": (x * y).sum()}, plait.ones(2)

    out, linear = func.linearize(f, x, y)
    made, constant = linear(*tangents)
    again = linear(*tangents)[0]
    assert len(calls) == 1 and not out[0]["sum"].requires_grad and not made["sum"].requires_grad
    want = func.jvp(f, (x, y), tangents)[1]
    for name in ("product", "sum"):
        assert plait.allclose(made[name], want[0][name]) and plait.equal(made[name], again[name])
    assert constant.tolist() == [0, 0]
    with pytest.raises(RuntimeError, match="linearize: got tangents"):
        linear(tangents[0])
    with pytest.raises(RuntimeError, match="linearize: got tangents"):
        linear(tangents[0][:2], tangents[1])


def test_linearize_inside_of_other_transforms():
    x = plait.linspace(0.1, 0.9, 6, dtype=plait.float64).reshape(2, 3)
    sines = func.vmap(lambda x, t: func.linearize(plait.sin, x)[1](t))(x, 2 * x)
    assert plait.allclose(sines, x.cos() * 2 * x)
    columns = func.vmap(func.linearize(plait.sin, x[0])[1])(plait.eye(3, dtype=plait.float64))
    assert plait.allclose(columns, x[0].cos().diag())
    second = func.grad(lambda x: func.linearize(plait.sin, x)[1](plait.ones_like(x)).sum())(x[0])
    assert plait.allclose(second, -x[0].sin())
    x.requires_grad_()
    (g,) = plait.autograd.grad(func.linearize(plait.sin, x)[1](plait.ones_like(x)).sum(), x)
    assert plait.allclose(g, -x.sin())
    z = plait.randn(3, dtype=plait.complex128)
    assert plait.allclose(func.linearize(lambda z: z * z * 1j, z)[1](z.conj()), 2j * z * z.conj())


IMAGES = plait.arange(24).reshape(2, 3, 4)


@pytest.mark.parametrize(
    ("pattern", "sizes", "shape", "first"),
    [
        ("a b c -> c b a", {}, (4, 3, 2), [0, 12, 4, 16]),
        ("a b c -> (a b) c", {}, (6, 4), [0, 1, 2, 3]),
        ("a b c->a(c b)", {}, (2, 12), [0, 4, 8, 1]),
        ("a b (c d) -> a c b d", {"c": 2}, (2, 2, 3, 2), [0, 1, 4, 5]),
        ("a b (d c) -> a c b d", {"c": 1}, (2, 1, 3, 4), [0, 1, 2, 3]),
        ("a ... -> ... a", {}, (3, 4, 2), [0, 12, 1, 13]),
        ("... -> (...)", {}, (24,), [0, 1, 2, 3]),
        ("a b ... c -> 1 c ... (b a) ()", {}, (1, 4, 6, 1), [0, 12, 4, 16]),
    ],
)
def test_rearrange(pattern, sizes, shape, first):
    out = func.rearrange(IMAGES, pattern, **sizes)
    assert out.shape == shape and out.reshape(-1)[:4].tolist() == first


def test_rearrange_of_several_tensors():
    assert plait.equal(func.rearrange(list(IMAGES), "a b c -> b a c"), IMAGES.movedim(0, 1))


@pytest.mark.parametrize(
    ("pattern", "sizes", "message"),
    [
        ("a b c", {}, "one '->'"),
        ("a b -> b a", {}, "does not have the dimensions"),
        ("a b c -> a b", {}, r"\['c'\] stand on one side only"),
        ("a a c -> a c", {}, "stands twice"),
        ("a b c -> (a (b c))", {}, "not nested"),
        ("a b c -> (a b c", {}, "not closed"),
        ("a b (c d) -> a b c d", {}, "all but one"),
        ("a b (c d) -> a b c d", {"c": 3}, "a dimension of size 4 is no"),
        ("a b c -> a b c", {"q": 2}, "does not name"),
        ("a b (...) -> a b ...", {}, "in brackets on the left"),
        ("a, b c -> a b c", {}, "got ','"),
    ],
)
def test_patterns_that_rearrange_refuses(pattern, sizes, message):
    with pytest.raises(ValueError, match=message):
        func.rearrange(IMAGES, pattern, **sizes)


def test_what_stands_behind_a_tensor_of_a_transform():
    seen = []

    def look(x):
        seen.append((func.debug_unwrap(x), func.debug_unwrap(x, recurse=False)))
        return x.sum()

    x = plait.arange(6.0).reshape(2, 3)
    func.vmap(func.grad(look))(x)
    whole, one = seen[0]
    assert plait.equal(whole, x) and not whole.requires_grad
    assert one.shape in ((3,), (2, 3))
    assert func.debug_unwrap(x) is x


def test_batch_norms_without_running_statistics():
    model = nn.Sequential(
        nn.Linear(3, 2), nn.Sequential(nn.BatchNorm1d(2)), nn.BatchNorm1d(2, track_running_stats=False)
    )
    assert func.replace_all_batch_norm_modules_(model) is model
    norm = model[1][0]
    assert norm.running_mean is norm.running_var is norm.num_batches_tracked is None
    assert not norm.track_running_stats and len(dict(model.named_buffers())) == 0
    x = plait.randn(5, 3)
    model.eval()
    assert plait.allclose(model(x).mean(0), plait.zeros(2), atol=1e-5)


@pytest.mark.parametrize("layout", [plait.sparse_coo, plait.sparse_csr])
@pytest.mark.parametrize("in_dim", [0, 1, 2])
def test_products_of_a_sparse_matrix_and_each_part_of_a_batch(layout, in_dim, recwarn):
    dense = plait.tensor([[0.0, 1.0, 0.0], [2.0, 0.0, 3.0]])
    s = dense.to_sparse(layout=layout)
    x = plait.randn(5, 3, 4).movedim(0, in_dim)
    for sparse, other in (
        (lambda x: s @ x, lambda x: dense @ x),
        (lambda x: plait.sparse.mm(s, x).sin(), lambda x: (dense @ x).sin()),
        (lambda x: s @ x[:, 0], lambda x: dense @ x[:, 0]),
    ):
        assert plait.allclose(func.vmap(sparse, in_dim)(x), func.vmap(other, in_dim)(x))
        made = [func.vmap(func.grad(lambda x, f=f: f(x).square().sum()), in_dim)(x) for f in (sparse, other)]
        assert plait.allclose(*made)
    if layout is plait.sparse_coo:
        for f in (lambda x, m: x.T[:, :2] @ m, lambda x, m: x.T[0, :2] @ m):
            assert plait.allclose(func.vmap(f, (in_dim, None))(x, s), func.vmap(f, (in_dim, None))(x, dense))
    assert not recwarn
