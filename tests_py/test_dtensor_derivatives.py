"""Derivatives of distributed tensors of which the ranks' elements are combined, of every order: those of one device."""

import itertools

import numpy as np
import plait
import pytest
from plait.distributed.device_mesh import init_device_mesh
from plait.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from ranks import on_one_device as on_ranks

MESHES = {
    (2,): [[Partial()], [Partial("avg")], [Shard(0)], [Replicate()]],
    (2, 2): [list(p) for p in itertools.product([Partial(), Partial("avg"), Shard(0)], [Partial("avg"), Replicate()])],
}


class Square(plait.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * 2 * x


def product(x, w):
    return (x @ w).tanh().square().mean()


def functions(x, w):
    return (Square.apply(x) @ Square.apply(w)).pow(2).sum()


def hooks(x, w):
    y = x * 1.5
    y.register_hook(lambda g: g.tanh())
    z = y @ w
    z.register_hook(lambda g: g * 2 + g.sin())
    return z.square().sum()


@pytest.mark.parametrize("f", [product, functions, hooks])
@pytest.mark.parametrize("shape", list(MESHES))
def test_three_derivatives(shape, f):
    plait.manual_seed(0)
    x0, w0 = plait.randn(3, 4).double(), plait.randn(4, 4).double()

    def derivatives(x, w):
        first = plait.autograd.grad(f(x, w), (x, w), create_graph=True)
        second = plait.autograd.grad(sum(g.square().sum() for g in first), (x, w), create_graph=True)
        third = plait.autograd.grad((second[0] * first[0]).sum() + second[1].square().sum(), (x, w))
        return *first, *second, *third

    want = [t.detach().numpy() for t in derivatives(x0.clone().requires_grad_(), w0.clone().requires_grad_())]

    def train(rank):
        mesh = init_device_mesh("cpu", shape)
        for px, pw in itertools.product(MESHES[shape], repeat=2):
            x, w = (distribute_tensor(t, mesh, p).requires_grad_() for t, p in ((x0, px), (w0, pw)))
            for got, expected in zip(derivatives(x, w), want, strict=True):
                whole = got.full_tensor().detach().numpy()
                np.testing.assert_allclose(whole, expected, rtol=1e-9, atol=1e-11, err_msg=f"{px} {pw}")

    on_ranks(int(np.prod(shape)), train)


@pytest.mark.parametrize("placement", [Partial(), Partial("avg"), Shard(0), Replicate()])
def test_kept_and_given_gradients_have_derivatives(placement):
    x0, s0 = plait.tensor([1.0, 2.0]), plait.tensor([1.0, 3.0])

    def train(rank):
        mesh = init_device_mesh("cpu", (2,))
        x = distribute_tensor(x0, mesh, [placement]).requires_grad_()
        (x**3).sum().backward(create_graph=True)
        (second,) = plait.autograd.grad(x.grad.square().sum(), x)
        assert second.full_tensor().tolist() == [36.0, 288.0]  # of (3 x ** 2) ** 2

        kept = x.grad.full_tensor().tolist()
        x.grad = x.grad.detach()
        (x**3).sum().backward()
        assert x.grad.full_tensor().tolist() == [2 * g for g in kept] == [6.0, 24.0]
        x.grad.mul_(3)
        assert x.grad.full_tensor().tolist() == [18.0, 72.0]

        s = distribute_tensor(s0, mesh, [Replicate()]).requires_grad_()
        (g,) = plait.autograd.grad(x + 1, x, grad_outputs=s, create_graph=True)
        (of_seed,) = plait.autograd.grad(g.square().sum(), s)
        assert of_seed.full_tensor().tolist() == [2.0, 6.0]

    on_ranks(2, train)


def test_the_gradient_of_a_mean_of_parts():
    def train(rank):
        own = plait.tensor(2.0 + rank, requires_grad=True)
        mean = DTensor.from_local(own, init_device_mesh("cpu", (2,)), [Partial("avg")])
        mean.retain_grad()
        mean.backward()
        assert own.grad.item() == 0.5
        assert mean.grad.full_tensor().item() == 1

    on_ranks(2, train)


OF_ROWS = {
    "repeat": lambda x: x.repeat(1, 2),
    "prod": lambda x: x.prod(1),
    "prod of one": lambda x: x[:, :1].prod(1),
    "cumprod": lambda x: x.cumprod(1),
    "logcumsumexp": lambda x: x.logcumsumexp(1),
    "no columns": lambda x: x * (1 + x[:, :0].sum()),
    "repeat of none": lambda x: x * (1 + x.repeat(1, 0).sum()),
}


@pytest.mark.parametrize("name", list(OF_ROWS))
@pytest.mark.parametrize("power", [1, 2])
def test_second_derivatives_where_a_rank_has_nothing(name, power):
    x0 = plait.tensor([[1.0, 2.0, 0.5], [3.0, 0.0, 1.0]])

    def derivatives(x):
        (first,) = plait.autograd.grad((OF_ROWS[name](x) ** power).sum(), x, create_graph=True)
        if not first.requires_grad:
            return (first,)
        return first, *plait.autograd.grad(first.square().sum(), x, materialize_grads=True)

    want = derivatives(x0.clone().requires_grad_())

    def check(rank):
        x = distribute_tensor(x0, init_device_mesh("cpu", (3,)), [Shard(0)]).requires_grad_()
        for got, expected in zip(derivatives(x), want, strict=True):
            assert plait.allclose(got.full_tensor(), expected.detach(), rtol=1e-5)

    on_ranks(3, check)
