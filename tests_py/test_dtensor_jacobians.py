"""Jacobians, Hessians and products with them of distributed tensors and of divided modules: those of one device."""

import itertools

import plait
import pytest
from plait import func, nn
from plait.autograd import functional
from plait.distributed.device_mesh import init_device_mesh
from plait.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from plait.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from plait.nn import functional as F
from ranks import on_one_device as on_ranks

PLACES = {
    (2,): [[Shard(0)], [Shard(1)], [Partial()], [Partial("avg")], [Replicate()]],
    (3,): [[Shard(0)], [Shard(1)]],  # of which the last rank has little or nothing
    (2, 2): [[Shard(0), Shard(0)], [Partial(), Shard(1)], [Partial("avg"), Partial()]],
}


def several(x, w):
    """Has two results, of which one does not depend on w."""
    return (x @ w).tanh(), x.sin().sum(0) * x[:, 0].mean()


def reductions(x, w):
    y = F.layer_norm(x @ w, (4,)).softmax(0)
    return y.logsumexp(1) + y.cumsum(0).amax(1) + y.var(1) * y.prod()


def views(x, w):
    y = (x.t().reshape(2, 8) @ w.expand(2, 4, 4).reshape(8, 4)).sort(0)[0]
    return F.pad(y.exp().unflatten(1, (2, 2)).transpose(0, 2), (1, 1)).flatten()


def one(x, w):
    """Has a single element."""
    return (x @ w).sigmoid().square().mean() * x.norm()


BOTH = (0, 1)
TRANSFORMS = {
    "jacobian": lambda f, x, w, v: functional.jacobian(f, (x, w)),
    "jacobian of inputs in a graph": lambda f, x, w, v: functional.jacobian(
        f, (x.requires_grad_(), w), create_graph=True
    ),
    "forward-mode jacobian": lambda f, x, w, v: functional.jacobian(f, (x, w), strategy="forward-mode"),
    "vjp": lambda f, x, w, v: functional.vjp(lambda x: f(x, w)[0], x, f(x, w)[0].detach()),
    "jvp": lambda f, x, w, v: functional.jvp(f, (x, w), (v, v)),
    "jacrev": lambda f, x, w, v: func.jacrev(f, BOTH)(x, w),
    "jacrev in chunks": lambda f, x, w, v: func.jacrev(f, chunk_size=3)(x, w),
    "jacfwd": lambda f, x, w, v: func.jacfwd(f, BOTH)(x, w),
    "func.vjp": lambda f, x, w, v: func.vjp(f, x, w)[1](f(x, w)),
    "func.jvp": lambda f, x, w, v: func.jvp(f, (x, w), (v, v)),
    "linearize": lambda f, x, w, v: func.linearize(f, x, w)[1](v, v),
}
OF_ONE = {
    "hessian": lambda f, x, w, v: functional.hessian(f, (x, w)),
    "forward-mode hessian": lambda f, x, w, v: functional.hessian(f, (x, w), outer_jacobian_strategy="forward-mode"),
    "func.hessian": lambda f, x, w, v: func.hessian(f, BOTH)(x, w),
    "jacrev twice": lambda f, x, w, v: func.jacrev(func.jacrev(f))(x, w),
    "jacfwd twice": lambda f, x, w, v: func.jacfwd(func.jacfwd(f))(x, w),
    "hvp": lambda f, x, w, v: functional.hvp(f, (x, w), (v, v)),
    "vhp": lambda f, x, w, v: functional.vhp(f, (x, w), (v, v)),
    "grad of jvp": lambda f, x, w, v: func.grad(lambda x: func.jvp(f, (x, w), (v, v))[1])(x),
}


def leaves(tree):
    return [tree] if isinstance(tree, plait.Tensor) else [t for part in tree for t in leaves(part)]


def same(got, want, what):
    assert isinstance(got, DTensor), what
    assert got.shape == want.shape, what
    whole = got.full_tensor()
    assert plait.allclose(whole, want, rtol=1e-9, atol=1e-11), (what, (whole - want).abs().max())


@pytest.mark.parametrize("shape", list(PLACES))
@pytest.mark.parametrize("f", [several, reductions, views, one])
def test_functions_of_distributed_tensors(f, shape):
    plait.manual_seed(0)
    x0, w0, v0 = (plait.randn(4, 4).double() for _ in range(3))
    transforms = TRANSFORMS | (OF_ONE if f is one else {})
    if f is not several:
        del transforms["vjp"]
    want = {name: leaves(t(f, x0.clone(), w0, v0)) for name, t in transforms.items()}

    def check(rank):
        mesh = init_device_mesh("cpu", shape)
        places = PLACES[shape]
        for p, q in itertools.product(places, places[:2]):
            for name, transform in transforms.items():
                x, w, v = (distribute_tensor(t, mesh, how) for t, how in ((x0, p), (w0, q), (v0, p)))
                for got, expected in zip(leaves(transform(f, x, w, v)), want[name], strict=True):
                    same(got.detach(), expected.detach(), f"{name} {p} {q}")

    on_ranks(plait.ones(shape).numel(), check)


def test_functions_of_ordinary_tensors_through_a_divided_module():
    plait.manual_seed(0)
    x, v = plait.randn(3, 4).double(), plait.randn(3, 4).double()

    def model():
        plait.manual_seed(1)
        return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2)).double()

    transforms = {
        "jacobian": functional.jacobian,
        "jvp": lambda f, x: functional.jvp(f, x, v)[1],
        "jacrev": lambda f, x: func.jacrev(f)(x),
        "jacfwd": lambda f, x: func.jacfwd(f)(x),
        "hessian": lambda f, x: func.hessian(lambda x: f(x).square().sum())(x),
    }
    whole = model()
    want = {name: t(whole, x) for name, t in transforms.items()}

    def check(rank):
        mesh = init_device_mesh("cpu", (2,))
        divided = parallelize_module(model(), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
        for name, transform in transforms.items():
            assert plait.allclose(transform(divided, x), want[name], rtol=1e-9, atol=1e-11), name

    on_ranks(2, check)


def test_gradients_in_batches():
    def check(rank):
        mesh = init_device_mesh("cpu", (2,))
        x = distribute_tensor(plait.tensor([1.0, 2.0, 3.0]), mesh, [Shard(0)]).requires_grad_()
        y = x.square()
        seeds = plait.tensor([[1.0, 0, 0], [1.0, 1.0, 2.0]])
        for how in ([Shard(0)], [Shard(1)], [Replicate()], [Partial()]):
            given = distribute_tensor(seeds, mesh, how)
            (g,) = plait.autograd.grad(y, x, given, retain_graph=True, is_grads_batched=True)
            assert g.placements == (Shard(1),)
            assert g.full_tensor().tolist() == [[2, 0, 0], [2, 4, 12]]
        with pytest.raises(TypeError, match="the gradient of a distributed tensor is a distributed tensor"):
            plait.autograd.grad(y, x, seeds, is_grads_batched=True)

    on_ranks(2, check)


def test_tangents():
    def check(rank):
        mesh = init_device_mesh("cpu", (2,))
        x = distribute_tensor(plait.tensor([1.0, 2.0, 3.0]), mesh, [Shard(0)])
        v = distribute_tensor(plait.tensor([1.0, 0.0, 2.0]), mesh, [Replicate()])
        with plait.autograd.forward_ad.dual_level():
            dual = plait.autograd.forward_ad.make_dual(x, v)
            whole = (dual * dual).full_tensor()  # an ordinary tensor, with its tangent
            assert plait.autograd.forward_ad.unpack_dual(whole).tangent.tolist() == [2, 0, 12]
            local = plait.autograd.forward_ad.unpack_dual(dual.to_local()).tangent
            assert local.tolist() == [[1, 0], [2]][rank]
            with pytest.raises(TypeError, match="the tangent of a distributed tensor is a distributed tensor"):
                plait.autograd.forward_ad.make_dual(x, plait.ones(3))
            most = DTensor.from_local(plait.ones(3), mesh, [Partial("max")])
            with pytest.raises(NotImplementedError, match=r"no gradient passes through Partial\(max\)"):
                plait.autograd.forward_ad.make_dual(most, v).full_tensor()

    on_ranks(2, check)
