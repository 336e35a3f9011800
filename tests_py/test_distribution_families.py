"""Families of distributions: PyTorch's numbers, draws that follow their densities, gradients of draws."""

import json
import math
import sys
from functools import partial
from pathlib import Path

import plait
import pytest
from plait import distributions as D

GOLDEN = Path(__file__).parent / "golden"
sys.path.insert(0, str(GOLDEN))
from distribution_cases import CASES, OTHERS, expression, made  # noqa: E402

FACTS = json.loads((GOLDEN / "distributions.json").read_text("utf-8"))
t = partial(plait.tensor, dtype=plait.float64)
COUNT = 20_000

# Where numbers are not PyTorch's: it approximates those with Bessel functions to 1e-7; its mode of Kumaraswamy is NaN,
# and that of Weibull too, where the density rises without bound towards 0.
NOT_ITS = {("Kumaraswamy", "mode"), ("Weibull", "mode")}
DISCRETE = {"Bernoulli", "Binomial", "Geometric", "Multinomial", "NegativeBinomial", "OneHotCategorical", "Poisson"}
NEAR = {"VonMises": 2e-6}


def case(name):
    return made(D, CASES[name][0], t)


def close(got, want, rtol=1e-9):
    return plait.allclose(got, t(want), rtol=rtol, atol=1e-12, equal_nan=True)


@pytest.fixture(autouse=True)
def _seed():
    plait.manual_seed(11)


@pytest.mark.parametrize("name", CASES)
def test_numbers_are_those_of_pytorch(name):
    d, want = case(name), FACTS["distributions"][name]
    assert list(d.batch_shape) == want["batch_shape"] and list(d.event_shape) == want["event_shape"]
    value = t(CASES[name][1])
    calls = {"log_prob": lambda: d.log_prob(value), "cdf": lambda: d.cdf(value), "entropy": d.entropy}
    calls |= {m: partial(getattr, d, m) for m in ("mean", "mode", "variance", "stddev")}
    compared = 0
    for what, call in calls.items():
        if want[what] is not None and (name, what) not in NOT_ITS:
            assert close(call(), want[what], NEAR.get(name, 1e-9)), (what, call(), want[what])
            compared += 1
    for p, points in zip((0.1, 0.6), want["icdf"], strict=True):
        if points is not None:
            assert close(d.icdf(plait.full(tuple(d.batch_shape), p, dtype=plait.float64)), points), p
    assert compared >= 1


@pytest.mark.parametrize("pair", FACTS["divergences"])
def test_divergences_are_those_of_pytorch(pair):
    p, q = pair.split(" | ")
    got = D.kl_divergence(made(D, expression(p), t), made(D, OTHERS[q], t))
    assert close(got, FACTS["divergences"][pair]), (got, FACTS["divergences"][pair])


UNIVARIATE = [
    "Beta", "Cauchy", "Chi2", "ContinuousBernoulli", "FisherSnedecor", "Gamma", "GeneralizedPareto", "Gumbel",
    "HalfCauchy", "HalfNormal", "InverseGamma", "Kumaraswamy", "MixtureSameFamily", "Pareto", "RelaxedBernoulli",
    "StudentT", "VonMises", "Weibull",
]  # fmt: skip


@pytest.mark.parametrize("name", UNIVARIATE)
def test_draws_follow_the_density(name):
    """Kolmogorov and Smirnov's bound, which true draws pass with a probability of 0.999."""
    d = case(name)
    x = d.sample((COUNT,)).sort(0).values
    assert x.shape == (COUNT, *d.batch_shape) and x.isfinite().all() and not x.requires_grad
    ranks = ((plait.arange(COUNT, dtype=plait.float64) + 0.5) / COUNT).reshape(-1, *(1 for _ in d.batch_shape))
    # The density's integral over the draws themselves; the mass below the first one is about 1 / COUNT.
    density = d.log_prob(x).exp()
    sums = plait.cumulative_trapezoid(density, x, dim=0)
    if name != "StudentT":  # with df of 1/2 the draws are too far apart for sums
        assert (sums - ranks[1:]).abs().max() < 1.95 / math.sqrt(COUNT), name
    try:
        below = d.cdf(x)
    except NotImplementedError:
        return
    assert (below - ranks).abs().max() < 1.95 / math.sqrt(COUNT), name


def test_draws_of_students_distribution():
    """With 1 degree of freedom it is Cauchy's; with 2 the cumulative probability is known too."""
    ranks = (plait.arange(COUNT, dtype=plait.float64) + 0.5) / COUNT
    one = D.StudentT(t(1.0), 0.5, 2.0).sample((COUNT,)).flatten().sort().values
    assert (D.Cauchy(t(0.5), 2.0).cdf(one) - ranks).abs().max() < 1.95 / math.sqrt(COUNT)
    two = D.StudentT(t(2.0)).sample((COUNT,)).flatten().sort().values
    assert (0.5 + two / (2 * (2 + two.square()).sqrt()) - ranks).abs().max() < 1.95 / math.sqrt(COUNT)


@pytest.mark.parametrize(
    "make",
    [
        lambda: D.Poisson(t([0.0, 0.5, 9.9, 10.0, 200.0])),
        lambda: D.Binomial(t([0, 7, 1000, 30, 40, 5000]), t([0.5, 0.25, 0.3, 0.999, 0.5, 0.9985])),
        lambda: D.NegativeBinomial(t([3, 2.5, 0.4]), t([0.25, 0.8, 0.9])),
        lambda: D.Geometric(t([0.25, 0.8, 0.05])),
    ],
)
def test_counts_come_as_often_as_they_are_likely(make):
    d = make()
    draws = d.sample((COUNT,))
    assert (draws == draws.floor()).all() and (draws >= 0).all()
    seen = 0.0
    for k in draws.unique().tolist():
        value = plait.full(tuple(d.batch_shape), k, dtype=plait.float64)
        possible = value <= d.total_count if isinstance(d, D.Binomial) else plait.ones_like(value, dtype=plait.bool)
        p = plait.where(possible, d.log_prob(value.where(possible, plait.zeros_like(value))).exp(), 0.0)
        share = (draws == k).double().mean(0)
        assert ((share - p).abs() <= 4.5 * (p * (1 - p) / COUNT).sqrt() + 1e-3).all(), (k, share, p)
        seen = seen + p
    assert (seen > 0.98).all()
    assert plait.allclose(draws.mean(0), d.mean, atol=0.01, rtol=0.03)
    assert plait.allclose(draws.var(0), d.variance, atol=0.01, rtol=0.06)


@pytest.mark.parametrize(
    "name", ["Dirichlet", "Multinomial", "OneHotCategorical", "MixtureSameFamily of vectors", "MixtureSameFamily"]
)
def test_moments_of_draws(name):
    d = case(name)
    draws = d.sample((COUNT,))
    assert draws.shape == (COUNT, *d.batch_shape, *d.event_shape)
    assert plait.allclose(draws.mean(0), d.mean, atol=0.06) and plait.allclose(
        draws.var(0), d.variance, rtol=0.05, atol=0.01
    )
    assert d.log_prob(draws).shape == (COUNT, *d.batch_shape)
    assert d.expand((3, *d.batch_shape)).sample((2,)).shape == (2, 3, *d.batch_shape, *d.event_shape)


PARAMETERS = {
    "Cauchy": (D.Cauchy, [0.5, 2.0]),
    "ContinuousBernoulli": (D.ContinuousBernoulli, [0.3]),
    "Gamma": (D.Gamma, [2.5, 0.5]),
    "Gamma of a small shape": (D.Gamma, [0.05, 2.0]),
    "Gamma of a large shape": (D.Gamma, [3000.0, 2.0]),
    "GeneralizedPareto": (D.GeneralizedPareto, [0.5, 2.0, 0.3]),
    "Gumbel": (D.Gumbel, [0.5, 2.0]),
    "HalfCauchy": (D.HalfCauchy, [2.0]),
    "HalfNormal": (D.HalfNormal, [2.0]),
    "InverseGamma": (D.InverseGamma, [2.5, 0.5]),
    "Kumaraswamy": (D.Kumaraswamy, [0.7, 2.0]),
    "Pareto": (D.Pareto, [0.5, 2.0]),
    "Weibull": (D.Weibull, [0.5, 2.0]),
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_draws_keep_their_quantile_as_parameters_move(name):
    """By finite differences: a draw and a parameter that move along the gradient keep the cumulative probability."""
    kind, values = PARAMETERS[name]
    leaves = [t(v).expand(400).clone().requires_grad_() for v in values]
    x = kind(*leaves).rsample()
    slopes = plait.autograd.grad(x.sum(), leaves)
    x = x.detach()
    density = kind(*(v.detach() for v in leaves)).log_prob(x).exp()
    for i, slope in enumerate(slopes):
        h = 1e-5 * values[i]

        def moved(sign, i=i, slope=slope, h=h):
            at = [v.detach() + (sign * h if j == i else 0.0) for j, v in enumerate(leaves)]
            return kind(*at, validate_args=False).cdf(x + sign * h * slope)

        off = (moved(1) - moved(-1)) / (2 * h) / density  # how much the slope is wrong by
        inside = (x > 1e-12) & ((kind(*values).cdf(x) - 0.5).abs() < 0.499)  # where differences of F say something
        assert inside.sum() > 100
        assert (off.abs() <= 1e-4 * (slope.abs() + x.abs() / values[i]))[inside].all(), (name, i)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (D.Beta, [2.0, 3.0]),
        (D.Beta, [0.3, 0.6]),
        (D.Chi2, [3.0]),
        (D.FisherSnedecor, [5.0, 12.0]),
        (D.StudentT, [9.0, 0.5, 1.5]),
        (D.Gamma, [2.0, 3.0]),
        (D.Kumaraswamy, [2.0, 3.0]),
    ],
)
def test_gradients_of_means_are_means_of_gradients(kind, values):
    leaves = [t(v).requires_grad_() for v in values]
    x = kind(*leaves).rsample((100_000,))
    d = kind(*leaves)
    for got, want in ((x.mean(), d.mean), (x.square().mean(), d.variance + d.mean.square())):
        found = plait.autograd.grad(got, leaves, retain_graph=True, allow_unused=True)
        known = plait.autograd.grad(want, leaves, retain_graph=True, allow_unused=True)
        for a, b in zip(found, known, strict=True):
            assert (0.0 if a is None else a.item()) == pytest.approx(0.0 if b is None else b.item(), rel=0.05, abs=0.01)


def test_gradients_of_shares():
    a = t([0.5, 2.0, 3.0]).requires_grad_()
    w = t([1.0, -2.0, 0.5])
    (got,) = plait.autograd.grad((D.Dirichlet(a).rsample((100_000,)) * w).sum(-1).mean(), a)
    (want,) = plait.autograd.grad((D.Dirichlet(a).mean * w).sum(), a)
    assert plait.allclose(got, want, atol=0.01)
    logits = t([0.5, -1.0, 0.0]).requires_grad_()
    relaxed = D.RelaxedOneHotCategorical(0.5, logits=logits)
    (grad,) = plait.autograd.grad((relaxed.rsample((10,)) * w).sum(), logits)
    assert grad.isfinite().all() and grad.abs().max() > 0 and grad.sum().abs() < 1e-12
    probs = t([0.2, 0.3, 0.5]).requires_grad_()
    through = D.OneHotCategoricalStraightThrough(probs)
    draw = through.rsample()
    assert sorted(draw.tolist()) == pytest.approx([0, 0, 1])
    (grad,) = plait.autograd.grad((draw * w).sum(), probs, retain_graph=True)
    (same,) = plait.autograd.grad((through.probs * w).sum(), probs)
    assert grad.equal(same)
    p = t(0.3).requires_grad_()
    (grad,) = plait.autograd.grad(D.RelaxedBernoulli(0.5, p).rsample((1000,)).mean(), p)
    assert grad > 0


def test_relaxed_draws_are_those_of_classes_when_cold():
    probs = t([0.2, 0.3, 0.5])
    draws = D.RelaxedOneHotCategorical(1e-3, probs).sample((COUNT,))
    assert plait.allclose(draws.mean(0), probs, atol=0.015) and plait.allclose(draws.sum(-1), t([1.0]))
    assert D.RelaxedBernoulli(1e-3, t(0.3)).sample((COUNT,)).round().mean().item() == pytest.approx(0.3, abs=0.015)


def test_small_shapes_do_not_underflow():
    a = t(1e-3).requires_grad_()
    draws = D.Beta(a, a).rsample((2000,))
    assert ((draws > 0) & (draws < 1)).all() and draws.mean().item() == pytest.approx(0.5, abs=0.05)
    shares = D.Dirichlet(plait.full((3,), 1e-3)).sample((1000,))
    assert plait.allclose(shares.sum(-1), plait.ones(1000)) and shares.isfinite().all()
    (grad,) = plait.autograd.grad(D.Beta(a, 0.5).rsample((2000,)).log().sum(), a)
    assert grad.isfinite() and grad > 0


def test_only_first_derivatives_of_gamma_draws():
    a = t(2.0).requires_grad_()
    (grad,) = plait.autograd.grad(D.Gamma(a, 1.0).rsample(), a, create_graph=True)
    with pytest.raises(NotImplementedError, match="first derivatives by their parameters only"):
        grad.backward()


def test_float32_and_seeds():
    for d in (D.Gamma(2.0, 1.0), D.Beta(0.5, 0.5), D.Poisson(3.0), D.Binomial(9, 0.5), D.VonMises(0.0, 4.0)):
        plait.manual_seed(3)
        first = d.sample((5,))
        plait.manual_seed(3)
        assert first.equal(d.sample((5,))) and first.dtype == plait.float32 and first.shape == (5,)
    one, other = (D.Gamma(0.5, 1.0).sample((5,), generator=plait.Generator().manual_seed(4)) for _ in range(2))
    assert one.equal(other) and not one.equal(D.Gamma(0.5, 1.0).sample((5,)))


def test_values_that_are_no_parameters_give_none():
    draws = [
        D.Gamma(t([-1.0, math.nan, 2.0]), 1.0, validate_args=False).sample(),
        D.Binomial(3, t([math.nan, math.nan, 0.5]), validate_args=False).sample(),
        D.VonMises(t([0.0, 0.0, 0.0]), t([-1.0, math.nan, 2.0]), validate_args=False).sample(),
    ]
    assert [d.isnan().tolist() for d in draws] == [[True, True, False]] * 3
    for make in (D.Poisson, lambda rate, validate_args: D.NegativeBinomial(rate, 0.5, validate_args=validate_args)):
        with pytest.raises(ValueError, match="poisson: want rates of 0 or more, got"):
            make(t([-1.0, 2.0]), validate_args=False).sample()


def test_values_that_draws_can_have():
    assert D.Bernoulli(t([0.5, 0.2])).enumerate_support().tolist() == [[0, 0], [1, 1]]
    assert D.Binomial(2, t([0.5, 0.2])).enumerate_support(expand=False).tolist() == [[0], [1], [2]]
    assert D.Categorical(plait.ones(2, 3)).enumerate_support().tolist() == [[0, 0], [1, 1], [2, 2]]
    assert D.OneHotCategorical(plait.ones(4, 3)).enumerate_support().shape == (3, 4, 3)
    with pytest.raises(NotImplementedError, match="Normal has no enumerate_support"):
        D.Normal(0.0, 1.0).enumerate_support()
    with pytest.raises(NotImplementedError, match="enumerate_support wants the same total_count everywhere"):
        D.Binomial(t([1, 2]), 0.5).enumerate_support()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: D.Gamma(0.0, 1.0), "Gamma: concentration must be positive"),
        (lambda: D.Beta(1.0, -1.0), "Beta: concentration0 must be positive"),
        (lambda: D.Beta(1.0, 1.0).log_prob(t(1.5)), "Beta: the value must be from 0 to 1"),
        (lambda: D.Dirichlet(plait.tensor(1.0)), "at least one dimension"),
        (lambda: D.Dirichlet(t([1, 2])).log_prob(t([0.5, 0.6])), "0 or more, with the sum 1"),
        (lambda: D.Poisson(-1.0), "Poisson: rate must be 0 or more"),
        (lambda: D.Poisson(1.0).log_prob(t(0.5)), "a whole number of 0 or more"),
        (lambda: D.Binomial(2.5, 0.5), "Binomial: total_count must be a whole number"),
        (lambda: D.Binomial(2, 0.5).log_prob(t(3.0)), "a whole number from 0 to 2.0"),
        (lambda: D.Binomial(2), "want either probs or logits, got neither"),
        (lambda: D.Multinomial(-1, t([1, 2])), "Multinomial: want total_count to be a whole number"),
        (lambda: D.Multinomial(2, t([1, 2])).log_prob(t([1, 2])), "with the sum 2"),
        (lambda: D.Geometric(0.0), "Geometric: probs must be above 0"),
        (lambda: D.RelaxedBernoulli(0.0, 0.5), "RelaxedBernoulli: temperature must be positive"),
        (lambda: D.RelaxedOneHotCategorical(-1.0, t([1, 2])), "temperature must be positive"),
        (lambda: D.Pareto(2.0, 1.0).log_prob(t(1.0)), r"Pareto: the value must be 2.0 or more"),
        (lambda: D.GeneralizedPareto(0.0, 1.0, -0.5).log_prob(t(3.0)), "from 0.0 to 2.0"),
        (lambda: D.MixtureSameFamily(D.Normal(0.0, 1.0), D.Normal(t([0]), 1.0)), "want a Categorical of components"),
        (
            lambda: D.MixtureSameFamily(D.Categorical(t([1, 2])), D.Normal(t([0, 1, 2]), 1.0)),
            r"want components of batch shape \[..., 2\], as many as classes, got \[3\]",
        ),
    ],
)
def test_wrong_arguments(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("name", CASES)
def test_draws_are_in_the_support(name):
    d = case(name)
    assert d.support.event_dim == len(d.event_shape)
    assert d.support.check(d.sample((100,))).all() and d.support.check(t(CASES[name][1])).all()
    assert d.support.is_discrete == (name in DISCRETE)
    if d.has_enumerate_support:
        assert d.support.check(d.enumerate_support()).all()


def test_generalized_pareto_is_what_it_generalizes():
    x = t([0.1, 0.5, 0.9])
    assert plait.allclose(D.GeneralizedPareto(t(0), 2.0, 0.0).log_prob(x), D.Exponential(t(0.5)).log_prob(x))
    assert plait.allclose(D.GeneralizedPareto(t(0), 1.0, -1.0).log_prob(x), plait.zeros(3, dtype=plait.float64))
    assert plait.allclose(D.GeneralizedPareto(t(2), 2 / 3, 1 / 3).log_prob(x + 3), D.Pareto(t(2), 3.0).log_prob(x + 3))


def test_text():
    assert repr(D.Gamma(1.0, 2.0)) == "Gamma(concentration: 1.0, rate: 2.0)"
    assert repr(D.Chi2(3.0)) == "Chi2(df: 3.0)" and repr(D.Binomial(3, 0.5)) == "Binomial(total_count: 3.0, probs: 0.5)"
    assert repr(D.RelaxedBernoulli(0.5, 0.5)) == "RelaxedBernoulli(temperature: 0.5, probs: 0.5)"
    for name in CASES:
        assert repr(case(name)).startswith(name.split()[0] + "(")
