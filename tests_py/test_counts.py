"""Random counts: `plait.poisson` and `plait.binomial`."""

import math

import numpy as np
import plait
import pytest
from plait import distributed as dist
from plait import func
from plait.distributed.tensor import Replicate, Shard, distribute_tensor, init_device_mesh

N = 100_000
NAN, INF = math.nan, math.inf


def near_moments(drawn, mean, variance):
    """Whether mean and variance are those wanted, but for five standard errors; draws are nearly normal."""
    x = drawn.double().numpy()
    assert (x == np.floor(x)).all() and (x >= 0).all()
    return abs(x.mean() - mean) < 5 * math.sqrt(variance / N) and abs(x.var() / variance - 1) < 5 * math.sqrt(3 / N)


@pytest.mark.parametrize("rate", [0.3, 4.0, 9.99, 10.0, 50.0, 1e4, 9e5, 1.1e6, 1e12, 1e18])
def test_moments_of_poisson(rate):
    plait.manual_seed(1)
    assert near_moments(plait.poisson(plait.full((N,), rate, dtype=plait.float64)), rate, rate)


@pytest.mark.parametrize("prob", [0.02, 0.4, 0.5, 0.7])
@pytest.mark.parametrize("count", [3.0, 40.0, 1e4, 1e7, 1e12, 1e18])
def test_moments_of_binomial(count, prob):
    plait.manual_seed(2)
    count = plait.full((N,), count, dtype=plait.float64)
    mean = count[0].item() * prob
    assert near_moments(plait.binomial(count, plait.full_like(count, prob)), mean, mean * (1 - prob))


@pytest.mark.parametrize("dtype", [plait.float64, plait.float32, plait.float16, plait.bfloat16])
def test_dtypes_and_shapes(dtype):
    rate = plait.full((3, 2), 5.0, dtype=dtype).T
    assert plait.poisson(rate).shape == (2, 3) and plait.poisson(rate).dtype == dtype
    made = plait.binomial(plait.tensor([[4.0], [9.0]], dtype=dtype), plait.tensor([0.0, 1.0, 2.0], dtype=dtype))
    assert made.tolist() == [[0, 4, 4], [0, 9, 9]] and made.dtype == dtype
    assert plait.poisson(rate[:0]).shape == (0, 3) and plait.poisson(rate[0, 0]).shape == ()


def test_parameters_at_their_ends():
    assert plait.poisson(plait.tensor([0.0, -0.0, INF])).tolist() == [0, 0, INF]
    count = plait.tensor([-1.0, 0, 0, 4, 5, 0.5])
    made = plait.binomial(count, plait.tensor([0.5, NAN, 2, 1.5, -2, 1]))
    assert made.tolist() == [0, 0, 0, 4, 0, 0.5], "as PyTorch has it"
    made = plait.binomial(plait.tensor([10, NAN, INF]), plait.tensor([NAN, 0.5, 0.5]))
    assert made.isnan().all()


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda t: plait.poisson(t([1.0, -1])), ValueError, "poisson: want rates of 0 or more, got -1 at element 1"),
        (lambda t: plait.poisson(t([NAN])), RuntimeError, "got nan at element 0"),
        (lambda t: plait.poisson(t([1])), TypeError, "poisson: input must be floating point, got plait.int64"),
        (lambda t: plait.poisson(t([1j])), TypeError, "poisson: input must be floating point, got plait.complex64"),
        (lambda t: plait.poisson(3.0), TypeError, "poisson: input must be Tensor, got float"),
        (lambda t: plait.binomial(t([3]), t([0.5])), TypeError, "binomial: count must be floating point"),
        (lambda t: plait.binomial(t([3.0]), t([0.5]).double()), RuntimeError, "float32, got plait.float64"),
        (lambda t: plait.binomial(t([3.0]), 0.5), TypeError, "binomial: prob must be Tensor, got float"),
        (lambda t: plait.binomial(t([3.0, 2, 1]), t([0.5, 1])), RuntimeError, r"must broadcast, got \[3\] and \[2\]"),
    ],
)
def test_wrong_arguments(call, kind, message):
    with pytest.raises(kind, match=message):
        call(plait.tensor)


def test_derivatives():
    rate = plait.tensor([2.0, 30.0], requires_grad=True)
    drawn = plait.poisson(rate)
    (grad,) = plait.autograd.grad((drawn * INF).sum(), rate)
    assert drawn.requires_grad and grad.tolist() == [0, 0]
    assert func.jvp(plait.poisson, (rate.detach(),), (plait.ones(2),))[1].tolist() == [0, 0]
    drawn = plait.binomial(rate, plait.tensor([0.5, 0.5]))
    with pytest.raises(RuntimeError, match="binomial: draws have no derivative"):
        drawn.sum().backward()


def test_generators():
    rate, count = plait.full((40,), 50.0), plait.full((40,), 100.0)
    for draw in (plait.poisson, lambda x, generator=None: plait.binomial(count, x / 100, generator)):
        plait.manual_seed(3)
        first, second = draw(rate), draw(rate)
        plait.manual_seed(3)
        assert draw(rate).equal(first) and not first.equal(second)
        one, other = plait.Generator().manual_seed(4), plait.Generator().manual_seed(4)
        before = plait.get_rng_state()
        assert draw(rate, one).equal(draw(rate, generator=other))
        assert plait.get_rng_state().equal(before), "only the given generator moves"
        first = draw(rate, one)
        one.set_state(other.get_state())
        assert draw(rate, one).equal(first)


def test_inside_vmap():
    x, half = plait.full((3, 40), 50.0), plait.full((40,), 0.5)
    for draw in [
        plait.poisson,
        lambda r: plait.poisson(plait.full((40,), 5.0)) + 0 * r,
        lambda r: plait.binomial(r, half),
        lambda r: plait.binomial(r, half[0]),
        lambda r: plait.binomial(plait.tensor(90.0), r / 100),
    ]:

        def rows(randomness, x=x, draw=draw):
            return len({tuple(row) for row in func.vmap(draw, randomness=randomness)(x).tolist()})

        assert rows("different") == 3 and rows("same") == 1
        with pytest.raises(RuntimeError, match="randomness"):
            rows("error")
        nested = func.vmap(func.vmap(draw, randomness="same"), randomness="different")(x.expand(2, 3, 40))
        assert [len({tuple(row) for row in part}) for part in nested.tolist()] == [1, 1]
        assert not nested[0].equal(nested[1])
    assert func.vmap(func.grad(lambda r: plait.poisson(r).sum()), randomness="different")(x).abs().sum() == 0
    mean = func.vmap(plait.poisson, randomness="different")(plait.tensor([[2.0], [900.0]]).expand(2, 10_000)).mean(1)
    assert abs(mean[0].item() - 2) < 0.08 and abs(mean[1].item() - 900) < 1.5, "each part has its own rates"


@pytest.mark.filterwarnings("ignore:.* has no rule")
def test_distributed_tensors_draw_as_one_device_does():

    whole = plait.linspace(1, 60, 40)
    plait.manual_seed(7)
    want = plait.poisson(whole), plait.poisson(whole / 10), plait.binomial(whole.floor(), whole / 100)

    def rank(number):
        mesh = init_device_mesh("cpu", (2,))
        for placement in (Shard(0), Replicate()):
            x = distribute_tensor(whole, mesh, [placement])
            plait.manual_seed(7)
            got = plait.poisson(x), plait.poisson(x / 10), plait.binomial(x.floor(), x / 100)
            assert [d.placements for d in got] == [(placement,)] * 3
            assert [d.full_tensor().tolist() for d in got] == [d.tolist() for d in want]
        plait.poisson(x.requires_grad_()).sum().backward()
        assert x.grad.placements == x.placements
        assert not x.grad.full_tensor().any()

    dist.spawn(rank, nprocs=2)
