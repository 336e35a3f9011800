"""Collectives with gradients: the sum of all ranks' losses has the gradients that one device gets."""

import numpy as np
import plait
import pytest
from plait import distributed as dist
from plait.distributed.nn import functional as F
from ranks import on_ranks

N = 3
SUM, AVG = dist.ReduceOp.SUM, dist.ReduceOp.AVG
UNEVEN = [[1, 2, 0], [3, 1, 2], [0, 1, 1]]  # rows from rank to rank


def rows(rank, x):
    return x.split(UNEVEN[rank])


def empties(rank):
    return [plait.empty(UNEVEN[r][rank], 2, dtype=plait.float64) for r in range(N)]


# What a rank does with its tensor of 6 rows, or of as many as UNEVEN says, and what all ranks get of all tensors.
CASES = {
    "all_reduce": (lambda r, x: [F.all_reduce(x)], lambda xs: [[sum(xs)]] * N),
    "all_reduce avg": (lambda r, x: [F.all_reduce(x, AVG)], lambda xs: [[sum(xs) / N]] * N),
    "broadcast": (lambda r, x: [F.broadcast(x, 1)], lambda xs: [[xs[1]]] * N),
    "reduce": (lambda r, x: [F.reduce(x, 1)] if r == 1 else [F.reduce(x, 1) * 0], lambda xs: [[], [sum(xs)], []]),
    "reduce avg": (
        lambda r, x: [F.reduce(x, 0, AVG)] if r == 0 else [F.reduce(x, 0, AVG) * 0],
        lambda xs: [[sum(xs) / N], [], []],
    ),
    "gather": (lambda r, x: [*F.gather(x, 2)], lambda xs: [[], [], xs]),
    "scatter": (lambda r, x: [F.scatter(x.chunk(N), 1)], lambda xs: [[c] for c in xs[1].chunk(N)]),
    "all_gather": (lambda r, x: [*F.all_gather(x)], lambda xs: [xs] * N),
    "reduce_scatter": (
        lambda r, x: [F.reduce_scatter(plait.empty(2, 2, dtype=plait.float64), x.chunk(N))],
        lambda xs: [[sum(x.chunk(N)[r] for x in xs)] for r in range(N)],
    ),
    "reduce_scatter uneven avg": (
        lambda r, x: [F.reduce_scatter(plait.empty(r + 1, 2, dtype=plait.float64), x.split([1, 2, 3]), AVG)],
        lambda xs: [[sum(x.split([1, 2, 3])[r] for x in xs) / N] for r in range(N)],
    ),
    "all_to_all": (
        lambda r, x: [*F.all_to_all(empties(r), rows(r, x))],
        lambda xs: [[rows(q, xs[q])[r] for q in range(N)] for r in range(N)],
    ),
    "all_to_all_single": (
        lambda r, x: [F.all_to_all_single(plait.cat(empties(r)), x, [u[r] for u in UNEVEN], UNEVEN[r])],
        lambda xs: [[plait.cat([rows(q, xs[q])[r] for q in range(N)])] for r in range(N)],
    ),
}


def loss_of(rank, outputs):
    return sum(((rank + 2) * (i + 1) * t).sin().sum() for i, t in enumerate(outputs))


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_those_of_one_device(name):
    of_rank, of_all = CASES[name]
    size = [sum(u) for u in UNEVEN] if "all_to_all" in name else [6] * N
    given = [np.random.default_rng(r).standard_normal((n, 2)) for r, n in enumerate(size)]
    xs = [plait.tensor(g, requires_grad=True) for g in given]
    sum(loss_of(r, out) for r, out in enumerate(of_all(xs)) if out).backward()

    def fn(rank):
        x = plait.tensor(given[rank], requires_grad=True)
        loss_of(rank, of_rank(rank, x)).backward()
        assert (x.detach().numpy() == given[rank]).all()
        return x.grad.numpy()

    for x, got in zip(xs, on_ranks(N, fn), strict=True):
        want = np.zeros(x.shape) if x.grad is None else x.grad.numpy()
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)


def test_gradients_of_gradients():
    def fn(rank):
        x = plait.tensor([rank + 1.0], requires_grad=True)
        (g,) = plait.autograd.grad((F.all_reduce(x) ** 3).sum(), x, create_graph=True)
        g.sum().backward()
        return g.item(), x.grad.item()

    # Each of two ranks has the loss s**3, of s = x0 + x1 = 3.
    assert on_ranks(2, fn) == [(2 * 3 * 9, 4 * 6 * 3)] * 2


def test_a_sub_group_and_reductions_without_gradients():
    def fn(rank):
        pair = dist.new_group([1, 2])
        x = plait.full((2,), float(rank), requires_grad=True)
        with pytest.raises(NotImplementedError, match=r"ReduceOp\.SUM and ReduceOp\.AVG, got MAX"):
            F.all_reduce(x, dist.ReduceOp.MAX)
        assert F.all_reduce(x.detach(), dist.ReduceOp.MAX).tolist() == [2, 2]
        if rank:
            y = F.broadcast(x, 2, group=pair)
            (y * rank).sum().backward()
            assert y.tolist() == [2, 2]
            return x.grad.tolist()
        return None

    assert on_ranks(3, fn) == [None, [0, 0], [3, 3]]
