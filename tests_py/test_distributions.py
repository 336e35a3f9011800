"""Distributions: draws, densities, entropies and divergences against closed forms and against one another."""

import math

import plait
import pytest
from plait import distributions as D

f64 = plait.float64


def t(*values):
    return plait.tensor(values, dtype=f64)


def matrix():
    a = plait.tensor([[1.0, 0.0], [0.5, 2.0]], dtype=f64)
    return a @ a.T


CONTINUOUS = {
    "normal": lambda: D.Normal(t(0.5, -1), t(1, 2)),
    "laplace": lambda: D.Laplace(t(0.5, -1), t(1, 2)),
    "exponential": lambda: D.Exponential(t(0.5, 2)),
    "uniform": lambda: D.Uniform(t(-1, 0), t(1, 3)),
    "log normal": lambda: D.LogNormal(t(0.2, -0.3), t(0.5, 0.25)),
    "affine": lambda: D.TransformedDistribution(D.Normal(t(0, 1), t(1, 1)), [D.AffineTransform(t(1, 2), -3.0)]),
    "squashed": lambda: D.TransformedDistribution(D.Normal(t(0, 1), t(1, 0.5)), [D.TanhTransform()]),
    "logistic": lambda: D.TransformedDistribution(
        D.Uniform(t(0, 0), t(1, 1)), [D.SigmoidTransform().inv, D.AffineTransform(0.5, 2.0)]
    ),
}
RANGES = {"exponential": (0, 40), "log normal": (1e-4, 20), "squashed": (-1 + 1e-9, 1 - 1e-9), "uniform": (-1, 3)}


@pytest.mark.parametrize("name", CONTINUOUS)
def test_densities_are_those_of_the_draws(name):
    p = CONTINUOUS[name]()
    p._validate_args = False
    low, high = RANGES.get(name, (-60, 60))
    x = plait.linspace(low, high, 400_001, dtype=f64).unsqueeze(1).expand(-1, 2)
    density = p.log_prob(x).exp().nan_to_num()
    total = plait.trapezoid(density, x, dim=0)
    assert plait.allclose(total, plait.ones(2, dtype=f64), atol=2e-3), total
    draws = p.sample((200_000,))
    assert draws.shape == (200_000, 2) and not draws.requires_grad
    mean = plait.trapezoid(density * x, x, dim=0)
    variance = plait.trapezoid(density * x * x, x, dim=0) - mean.square()
    assert plait.allclose(draws.mean(0), mean, atol=0.05), (draws.mean(0), mean)
    assert plait.allclose(draws.var(0), variance, rtol=0.08, atol=0.01), (draws.var(0), variance)
    try:
        entropy = p.entropy()
    except NotImplementedError:
        assert name in ("affine", "squashed", "logistic")
        return
    assert plait.allclose(p.mean, mean, atol=2e-3) and plait.allclose(p.variance, variance, rtol=5e-3)
    assert plait.allclose(p.stddev, variance.sqrt(), rtol=5e-3)
    assert plait.allclose(entropy, -plait.trapezoid(plait.xlogy(density, density), x, dim=0), atol=5e-3), entropy


@pytest.mark.parametrize("name", ["normal", "laplace", "exponential", "uniform"])
def test_cdf_and_its_inverse(name):
    p = CONTINUOUS[name]()
    q = plait.linspace(0.01, 0.99, 10, dtype=f64).unsqueeze(1).expand(-1, 2)
    x = p.icdf(q)
    assert plait.allclose(p.cdf(x), q, atol=1e-9)
    draws = p.sample((50_000,))
    assert plait.allclose((draws.unsqueeze(0) <= x.unsqueeze(1)).double().mean(1), q, atol=0.01)
    leaf = x.detach().requires_grad_()
    (slope,) = plait.autograd.grad(p.cdf(leaf).sum(), leaf)
    assert plait.allclose(slope, p.log_prob(x).exp(), atol=1e-9), "the density is the slope"


@pytest.mark.parametrize(
    ("make", "parameters", "mean_grads"),
    [
        (D.Normal, (t(0.5), t(2)), (1.0, 0.0)),
        (D.Laplace, (t(0.5), t(2)), (1.0, 0.0)),
        (D.Uniform, (t(-1), t(2)), (0.5, 0.5)),
        (D.Exponential, (t(2),), (-0.25,)),
        (D.LogNormal, (t(0), t(0.5)), (math.exp(0.125), 0.5 * math.exp(0.125))),
    ],
)
def test_gradients_reach_parameters_through_draws(make, parameters, mean_grads):
    leaves = [p.clone().requires_grad_() for p in parameters]
    make(*leaves).rsample((200_000,)).mean().backward()
    for leaf, want in zip(leaves, mean_grads, strict=True):
        assert leaf.grad.item() == pytest.approx(want, abs=0.03)


def test_vectors_of_normal_variables():
    loc, cov = t(1, -2), matrix()
    p = D.MultivariateNormal(loc, cov)
    for other in (
        D.MultivariateNormal(loc, precision_matrix=cov.inverse()),
        D.MultivariateNormal(loc, scale_tril=plait.linalg.cholesky(cov)),
    ):
        assert plait.allclose(other.covariance_matrix, cov) and plait.allclose(other.precision_matrix, cov.inverse())
    x = t(0.3, 0.7)
    d = x - loc
    want = -(d @ cov.inverse() @ d + plait.logdet(cov) + 2 * math.log(2 * math.pi)) / 2
    assert p.log_prob(x).item() == pytest.approx(want.item())
    assert p.log_prob(x.expand(4, 3, 2)).shape == (4, 3)
    assert p.entropy().item() == pytest.approx((1 + math.log(2 * math.pi) + plait.logdet(cov) / 2).item())
    assert p.mean.equal(loc) and plait.allclose(p.variance, cov.diagonal())
    draws = p.sample((100_000,))
    assert plait.allclose(plait.cov(draws.T), cov, atol=0.1) and plait.allclose(draws.mean(0), loc, atol=0.05)
    assert p.expand((5,)).sample((3,)).shape == (3, 5, 2)
    independent = D.Independent(D.Normal(loc, t(1, 2)), 1)
    diagonal = D.MultivariateNormal(loc, t(1, 4).diag())
    assert independent.batch_shape == () and independent.event_shape == (2,)
    assert independent.log_prob(x).item() == pytest.approx(diagonal.log_prob(x).item())
    assert independent.entropy().item() == pytest.approx(diagonal.entropy().item())
    assert D.kl_divergence(independent, D.Independent(D.Normal(t(0, 0), t(1, 1)), 1)).item() == pytest.approx(
        D.kl_divergence(diagonal, D.MultivariateNormal(t(0, 0), plait.eye(2, dtype=f64))).item()
    )


def test_classes():
    w = t(1, 2, 1)
    p = D.Categorical(w)
    assert p.probs.tolist() == [0.25, 0.5, 0.25] and p.mode.item() == 1 and p.mean.isnan()
    assert D.Categorical(logits=w.log() + 7).probs.tolist() == pytest.approx([0.25, 0.5, 0.25])
    assert p.log_prob(plait.tensor([0, 1])).exp().tolist() == pytest.approx([0.25, 0.5])
    assert p.entropy().item() == pytest.approx(1.5 * math.log(2)) and p.perplexity().item() == pytest.approx(2**1.5)
    counts = plait.bincount(p.sample((20_000,)), minlength=3) / 20_000
    assert counts.tolist() == pytest.approx([0.25, 0.5, 0.25], abs=0.02)
    many = D.Categorical(logits=plait.zeros(4, 3))
    assert many.sample((2, 5)).shape == (2, 5, 4) and many.log_prob(many.sample((2, 5))).shape == (2, 5, 4)
    assert many.sample((0,)).shape == (0, 4) and many.expand((6, 4)).sample().shape == (6, 4)
    hot = D.OneHotCategorical(w)
    draws = hot.sample((20_000,))
    assert hot.event_shape == (3,) and draws.shape == (20_000, 3) and draws.sum(-1).eq(1).all()
    assert plait.allclose(draws.mean(0), hot.mean, atol=0.02) and plait.allclose(draws.var(0), hot.variance, atol=0.02)
    assert hot.log_prob(t(0, 1, 0)).exp().item() == pytest.approx(0.5) and hot.mode.tolist() == [0, 1, 0]
    b = D.Bernoulli(t(0.0, 0.25, 1.0))
    assert plait.allclose(b.sample((20_000,)).mean(0), b.mean, atol=0.02)
    assert b.log_prob(t(0, 1, 1)).exp().tolist() == pytest.approx([1, 0.25, 1])
    assert b.entropy()[1].item() == pytest.approx(-0.25 * math.log(0.25) - 0.75 * math.log(0.75))
    assert D.Bernoulli(logits=b.logits).variance[1].item() == pytest.approx(3 / 16)


def test_a_policy_learns_from_the_logarithms():
    logits = plait.zeros(3, requires_grad=True)
    optimizer = plait.optim.Adam([logits], lr=0.1)
    reward = plait.tensor([0.0, 1.0, 0.0])
    for _ in range(60):
        p = D.Categorical(logits=logits)
        a = p.sample((64,))
        loss = -(p.log_prob(a) * (reward[a] - 0.5)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert D.Categorical(logits=logits).probs[1] > 0.9


PAIRS = {
    "normal": (lambda: D.Normal(t(0.5), t(1.5)), lambda: D.Normal(t(-0.5), t(2))),
    "log normal": (lambda: D.LogNormal(t(0.5), t(1.5)), lambda: D.LogNormal(t(-0.5), t(2))),
    "laplace": (lambda: D.Laplace(t(0.5), t(1.5)), lambda: D.Laplace(t(-0.5), t(2))),
    "exponential": (lambda: D.Exponential(t(0.5)), lambda: D.Exponential(t(2))),
    "uniform": (lambda: D.Uniform(t(0), t(1)), lambda: D.Uniform(t(-1), t(2))),
    "bernoulli": (lambda: D.Bernoulli(t(0.3)), lambda: D.Bernoulli(t(0.6))),
    "categorical": (lambda: D.Categorical(t(1, 2, 3)), lambda: D.Categorical(t(3, 1, 1))),
    "one hot": (lambda: D.OneHotCategorical(t(1, 2, 3)), lambda: D.OneHotCategorical(t(3, 1, 1))),
    "vectors": (
        lambda: D.MultivariateNormal(t(0, 1), matrix()),
        lambda: D.MultivariateNormal(t(1, 1), 2 * plait.eye(2, dtype=f64)),
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_divergences_are_means_over_draws(name):
    p, q = (make() for make in PAIRS[name])
    x = p.sample((200_000,))
    want = (p.log_prob(x) - q.log_prob(x)).mean(0)
    got = D.kl_divergence(p, q)
    assert plait.allclose(got, want, rtol=0.03, atol=0.01), (got, want)
    assert D.kl_divergence(p, p).abs().max() < 1e-12


def test_divergences_that_others_register():
    class Own(D.Normal):
        pass

    p, q = Own(0.0, 1.0), D.Cauchy(0.0, 1.0)
    assert D.kl_divergence(p, D.Normal(0.0, 1.0)).item() == 0, "a subclass has its parent's"
    with pytest.raises(NotImplementedError, match="no function for Own from Cauchy"):
        D.kl_divergence(p, q)
    D.register_kl(Own, D.Cauchy)(lambda p, q: p.loc + 7)
    assert D.kl_divergence(p, q).item() == 7
    with pytest.raises(TypeError, match="want classes of distributions"):
        D.register_kl(1, Own)
    assert D.kl_divergence(D.Uniform(0.0, 2.0), D.Uniform(0.0, 1.0)).item() == math.inf
    assert D.kl_divergence(D.Categorical(t(1, 1, 0)), D.Categorical(t(1, 0, 1))).item() == math.inf
    assert D.kl_divergence(D.Categorical(t(1, 0, 0)), D.Categorical(t(1, 0, 1))).item() == pytest.approx(math.log(2))
    assert D.kl_divergence(D.Bernoulli(t(0.5, 0, 0.5)), D.Bernoulli(t(0, 0, 1))).isinf().tolist() == [True, False, True]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: D.Normal(0.0, -1.0), "Normal: scale must be positive"),
        (lambda: D.Normal(math.nan, 1.0), "Normal: loc must be real"),
        (lambda: D.Uniform(1.0, 1.0), "Uniform: high must be above low"),
        (lambda: D.Exponential(0.0), "Exponential: rate must be positive"),
        (lambda: D.Bernoulli(1.5), "Bernoulli: probs must be from 0 to 1"),
        (D.Bernoulli, "want either probs or logits, got neither"),
        (lambda: D.Categorical(t(1), t(1)), "want either probs or logits, got both"),
        (lambda: D.Categorical(t(-1, 2)), "Categorical: probs must be 0 or more"),
        (lambda: D.Categorical(plait.tensor(1.0)), "at least one dimension"),
        (lambda: D.Categorical(t(1, 2)).log_prob(plait.tensor(2)), "a whole number from 0 to 1"),
        (lambda: D.Bernoulli(0.5).log_prob(t(0.5)), "the value must be 0 or 1"),
        (lambda: D.Exponential(1.0).log_prob(t(-1)), "the value must be 0 or more"),
        (lambda: D.Normal(0.0, 1.0).log_prob(3), "the value must be a tensor, got int"),
        (lambda: D.Normal(t(0, 0), 1.0).log_prob(t(0, 0, 0)), "do not fit"),
        (lambda: D.OneHotCategorical(t(1, 2)).log_prob(t(1, 1)), "1 in one place and 0 elsewhere"),
        (lambda: D.OneHotCategorical(t(1, 2)).log_prob(t(1, 0, 0)), r"the event's shape \[2\], got \[3\]"),
        (lambda: D.Independent(D.Normal(0.0, 1.0), 1), r"want 0 to 0 dimensions of batch shape \[\], got 1"),
        (lambda: D.MultivariateNormal(t(0, 0), plait.eye(3)), r"got \[2\] and \[3, 3\]"),
        (lambda: D.MultivariateNormal(t(0, 0)), "want one of covariance_matrix"),
    ],
)
def test_wrong_arguments(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_arguments_need_not_be_checked():
    assert D.Normal(0.0, -1.0, validate_args=False).scale.item() == -1
    D.Distribution.set_default_validate_args(False)
    try:
        D.Exponential(0.0)
    finally:
        D.Distribution.set_default_validate_args(True)
    with pytest.raises(NotImplementedError, match="Bernoulli has no rsample"):
        D.Bernoulli(0.5).rsample()
    assert not D.Bernoulli.has_rsample and D.Normal.has_rsample


def test_transforms_undo_themselves():
    x = plait.linspace(-2, 2, 9, dtype=f64).requires_grad_()
    for f in (
        D.ExpTransform(),
        D.SigmoidTransform(),
        D.TanhTransform(),
        D.AffineTransform(1.0, -2.0),
        D.ComposeTransform([D.AffineTransform(0.5, 2.0), D.TanhTransform(), D.ExpTransform()]),
    ):
        y = f(x)
        (slope,) = plait.autograd.grad(y.sum(), x)
        assert plait.allclose(f.log_abs_det_jacobian(x, y), slope.abs().log(), atol=1e-9), f
        assert plait.allclose(f.inv(y), x, atol=1e-6) and f.inv.inv is f
        assert plait.allclose(f.inv.log_abs_det_jacobian(y, x), -slope.abs().log(), atol=1e-6)


def test_shapes_and_text():
    p = D.Normal(plait.zeros(3, 1), plait.ones(2))
    assert p.batch_shape == (3, 2) and p.event_shape == () and p.sample().shape == (3, 2)
    assert p.rsample((4,)).shape == (4, 3, 2) and p.expand((5, 3, 2)).entropy().shape == (5, 3, 2)
    assert (
        repr(D.Normal(0.0, 1.0)) == "Normal(loc: 0.0, scale: 1.0)"
        and repr(p) == f"Normal(loc: {p.loc.shape}, scale: {p.scale.shape})"
    )
    assert D.Independent(p, 1).expand((7, 3)).sample().shape == (7, 3, 2)
    assert D.LogNormal(0.0, 1.0).expand((4,)).sample().shape == (4,)
    moved = D.TransformedDistribution(D.Normal(0.0, 1.0), [D.AffineTransform(plait.zeros(3), 2.0), D.ExpTransform()])
    assert moved.batch_shape == (3,) and moved.sample().unique().numel() == 3, "a draw for each place"
    sure = D.Bernoulli(t(0.0)).expand((3, 1))
    assert sure.probs.tolist() == [[0.0]] * 3 and sure.batch_shape == (3, 1) and sure.sample().shape == (3, 1)


def test_unknown_names():
    with pytest.raises(AttributeError, match="Gama"):
        _ = D.Gama


def test_families_say_what_their_parameters_are():
    from plait.distributions import constraints

    assert D.Normal.arg_constraints == {"loc": constraints.real, "scale": constraints.positive}
    assert list(D.MultivariateNormal.arg_constraints) == [
        "loc", "covariance_matrix", "precision_matrix", "scale_tril",
    ]  # fmt: skip
    families = [getattr(D, n) for n in dir(D) if isinstance(getattr(D, n), type)]
    families = [
        f for f in families if issubclass(f, D.Distribution) and not f.__name__.startswith(("Transformed", "_"))
    ]
    bases = (D.Distribution, D.ExponentialFamily, D.Independent, D.MixtureSameFamily)
    assert [f for f in families if not f.arg_constraints and f not in bases] == []
    uniform = D.Uniform(plait.tensor(0.0), plait.tensor(2.0))
    assert str(uniform.arg_constraints) == "{'low': LessThan(upper_bound=2.0), 'high': GreaterThan(lower_bound=0.0)}"
    assert str(D.Wishart(plait.tensor(3.0), plait.eye(2)).arg_constraints["df"]) == "GreaterThan(lower_bound=1)"
    assert D.LogNormal.has_rsample and not D.Bernoulli.has_rsample
    flags = {f.__name__ for f in families if f.has_enumerate_support}
    assert flags == {"Bernoulli", "Binomial", "Categorical", "OneHotCategorical", "OneHotCategoricalStraightThrough"}

    class Odd(D.Normal):  # its own constraints are checked
        arg_constraints = {"loc": constraints.positive}  # noqa: RUF012

    with pytest.raises(ValueError, match="Odd: loc must be above 0"):
        Odd(plait.tensor(-1.0), plait.tensor(1.0))


@pytest.mark.parametrize(
    ("family", "parameters"),
    [
        (D.Gumbel, (0.5, 2.0)), (D.HalfCauchy, (2.0,)), (D.HalfNormal, (2.0,)), (D.InverseGamma, (3.0, 2.0)),
        (D.Kumaraswamy, (2.0, 3.0)), (D.Pareto, (2.0, 3.0)), (D.Weibull, (2.0, 3.0)),
    ],
)  # fmt: skip
def test_what_families_are_made_of(family, parameters):
    made = family(*(plait.tensor(p, dtype=plait.float64) for p in parameters))
    whole = D.TransformedDistribution(made.base_dist, made.transforms)
    value = plait.tensor([0.25, 0.75] if family is D.Kumaraswamy else [2.5, 4.0], dtype=plait.float64)
    want = made.log_prob(value)
    if family in (D.HalfCauchy, D.HalfNormal):  # both signs give a value
        want = want - plait.tensor(2.0, dtype=plait.float64).log()
        assert plait.allclose(made.base_dist.log_prob(made.transforms[0]._inverse(value)), want)
    else:
        assert plait.allclose(whole.log_prob(value), want, rtol=1e-6)
