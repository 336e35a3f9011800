"""Transforms and what is made by them; distributions of vectors and matrices."""

import copy
import json
import math
import sys
from functools import partial
from pathlib import Path

import plait
import pytest
from plait import distributions as D
from plait.distributions import constraints, transforms, utils
from plait.distributions.utils import broadcast_all, lazy_property

GOLDEN = Path(__file__).parent / "golden"
sys.path.insert(0, str(GOLDEN))
from distribution_cases import TRANSFORMS  # noqa: E402

FACTS = json.loads((GOLDEN / "distributions.json").read_text("utf-8"))["transforms"]
t = partial(plait.tensor, dtype=plait.float64)
COUNT = 20_000


def made(name):
    expression, values = TRANSFORMS[name]
    return eval(expression, {"T": transforms, "D": D, "t": lambda *v: t(list(v))}), t(values)


@pytest.fixture(autouse=True)
def _seed():
    plait.manual_seed(12)


@pytest.mark.parametrize("name", TRANSFORMS)
def test_values_and_slopes_are_those_of_pytorch(name):
    f, x = made(name)
    want = FACTS[name]
    y = f(x)
    assert plait.allclose(y, t(want["y"]), rtol=1e-9, atol=1e-12)
    if want["slope"] is not None:
        got = f.log_abs_det_jacobian(x, y)
        assert got.shape == t(want["slope"]).shape and plait.allclose(got, t(want["slope"]), rtol=1e-9, atol=1e-12)
    assert list(f.forward_shape(x.shape)) == want["shape"] == list(y.shape)
    assert f.codomain.check(y).all() and f.inverse_shape(y.shape) == x.shape


@pytest.mark.parametrize("name", [n for n in TRANSFORMS if n != "AbsTransform"])
def test_inverses(name):
    f, x = made(name)
    again = f.inv(f(x))
    assert again.shape == x.shape
    if name == "SoftmaxTransform":  # up to a number
        again, x = again - again.mean(-1, keepdim=True), x - x.mean(-1, keepdim=True)
    if ("Cholesky" in name and "Corr" not in name) or name == "PositiveDefiniteTransform":
        again, x = again.tril(), x.tril()
    assert plait.allclose(again, x, rtol=1e-7, atol=1e-9)
    assert f.inv.inv is f and f.inv is f.inv and f.with_cache(0) is f
    if name not in ("ComposeTransform", "identity_transform"):
        assert f.inv.domain is f.codomain


@pytest.mark.parametrize("name", [n for n in TRANSFORMS if n != "identity_transform"])
def test_a_cache_gives_back_what_was_there(name):
    f, x = made(name)
    f = f.with_cache()
    assert f.with_cache() is f and f.with_cache(0) is not f
    y = f(x)
    assert f(x) is y and f.inv(y) is x
    again = copy.deepcopy(f)
    assert again(x).equal(y) and again(x) is not y
    other = y.clone()
    x = f.inv(other)
    assert f.inv(other) is x and f(x) is other


def test_a_cache_undoes_a_transform_without_an_inverse():
    class Planar(transforms.Transform, plait.nn.Module):
        domain, codomain, bijective = constraints.real_vector, constraints.real_vector, True

        def __init__(self):
            super().__init__(cache_size=1)
            self.u = plait.nn.Parameter(plait.tensor([0.3, -0.2]))

        def _call(self, x):
            return x + self.u * x.sum(-1, keepdim=True).tanh()

        def log_abs_det_jacobian(self, x, y):
            return (1 + self.u.sum() * (1 - x.sum(-1).tanh().square())).abs().log()

    f = Planar()
    assert f.state_dict().keys() == {"u"}
    draws = D.TransformedDistribution(D.Normal(plait.zeros(2), 1.0).expand((5, 2)), f)
    value = draws.rsample()
    draws.log_prob(value).sum().backward()
    assert f.u.grad is not None


@pytest.mark.parametrize("name", ["CorrCholeskyTransform", "StickBreakingTransform", "ComposeTransform"])
def test_slopes_are_logarithms_of_determinants(name):
    f, x = made(name)
    row = x[0]
    jacobian = plait.func.jacrev(lambda v: f(v).flatten())(row)
    keep = {
        "CorrCholeskyTransform": [3, 6, 7],  # below the diagonal
        "StickBreakingTransform": [0, 1, 2],
        "ComposeTransform": [0, 1],
    }[name]
    want = plait.linalg.slogdet(jacobian[keep]).logabsdet
    if name == "ComposeTransform":  # its last part scales three shares, of which two are free
        want = want + math.log(2)
    assert plait.allclose(f.log_abs_det_jacobian(row, f(row)), want)


def test_equal_transforms():
    assert transforms.ExpTransform() == transforms.ExpTransform() != transforms.TanhTransform()
    assert transforms.AffineTransform(t(1.0), 2.0) == transforms.AffineTransform(t(1.0), 2.0)
    assert transforms.AffineTransform(t(1.0), 2.0) != transforms.AffineTransform(t(1.5), 2.0)
    assert transforms.PowerTransform(2.0).inv == transforms.PowerTransform(2.0).inv
    assert len({transforms.ExpTransform(), transforms.ExpTransform()}) == 1
    p, q = (D.TransformedDistribution(D.Gamma(t(a), 1.0), [transforms.PowerTransform(2.0)]) for a in (2.0, 3.0))
    assert D.kl_divergence(p, q).item() == pytest.approx(D.kl_divergence(p.base_dist, q.base_dist).item())
    other = D.TransformedDistribution(D.Gamma(t(2.0), 1.0), [transforms.PowerTransform(3.0)])
    with pytest.raises(NotImplementedError, match="want the same transforms"):
        D.kl_divergence(p, other)


def test_falling_transforms_turn_probabilities_around():
    p = D.TransformedDistribution(D.Exponential(t(2.0)), [transforms.AffineTransform(1.0, -3.0)])
    x = t([-2.0, 0.5])
    assert plait.allclose(p.cdf(x), 1 - D.Exponential(t(2.0)).cdf((x - 1) / -3))
    assert plait.allclose(p.icdf(p.cdf(x)), x)
    draws = p.sample((COUNT,)).flatten()
    assert (draws <= 0.5).double().mean().item() == pytest.approx(p.cdf(x)[1].item(), abs=0.015)


def test_constraints():
    x = t([[1.0, 2.0], [-1.0, 3.0]])
    assert constraints.independent(constraints.positive, 1).check(x).tolist() == [True, False]
    both = constraints.cat([constraints.positive, constraints.real], 1, [1, 1])
    assert both.check(x).tolist() == [[True, True], [False, True]]
    assert constraints.stack([constraints.real, constraints.positive], -1).check(x).tolist() == [[True] * 2] * 2
    assert constraints.square.check(x).tolist() is True and not constraints.square.check(x[:1]).any()
    assert constraints.corr_cholesky.check(t([[1.0, 0.0], [0.6, 0.8]])) and not constraints.corr_cholesky.check(x)
    with pytest.raises(ValueError, match="want 0 or more dimensions"):
        constraints.independent(constraints.real, -1)


def test_draws_of_matrices():
    cov = t([[1.0, 0.5], [0.5, 2.0]])
    w = D.Wishart(t([3.5, 9.0]), cov)
    draws = w.sample((COUNT,))
    assert draws.shape == (COUNT, 2, 2, 2) and (plait.linalg.cholesky_ex(draws).info == 0).all()
    assert plait.allclose(draws.mean(0), w.mean, rtol=0.04) and plait.allclose(draws.var(0), w.variance, rtol=0.08)
    for other in (
        D.Wishart(4.0, precision_matrix=cov.inverse()),
        D.Wishart(4.0, scale_tril=plait.linalg.cholesky(cov)),
    ):
        assert plait.allclose(other.log_prob(draws[0, 0]), D.Wishart(4.0, cov).log_prob(draws[0, 0]))
        assert plait.allclose(other.precision_matrix, cov.inverse())
    assert w.expand((3, 2)).sample((2,)).shape == (2, 3, 2, 2, 2)
    df = t(5.0).requires_grad_()
    (grad,) = plait.autograd.grad(D.Wishart(df, cov).rsample((COUNT,)).mean(0).sum(), df)
    assert grad.item() == pytest.approx(cov.sum().item(), rel=0.03)

    lkj = D.LKJCholesky(3, t([0.7, 4.0]))
    lower = lkj.sample((COUNT,))
    assert constraints.corr_cholesky.check(lower).all() and lower.shape == (COUNT, 2, 3, 3)
    r = (lower @ lower.mT)[..., [1, 2, 2], [0, 0, 1]]
    # A correlation is 2 b - 1, with b of Beta(a, a) and a = concentration + (dim - 2) / 2.
    assert plait.allclose(r.mean(0), plait.zeros(2, 3, dtype=plait.float64), atol=0.02)
    wanted = 1 / (2 * (lkj.concentration + 0.5) + 1)
    assert plait.allclose(r.square().mean(0), wanted.unsqueeze(-1).expand(2, 3), rtol=0.05)
    assert lkj.log_prob(lower).shape == (COUNT, 2) and lkj.expand((5, 2)).sample().shape == (5, 2, 3, 3)


def test_draws_of_vectors():
    factor, diagonal = t([[1, 0.5], [0, 2], [-1, 1]]), t([1, 2, 0.5])
    low = D.LowRankMultivariateNormal(t([0, 1, 2]), factor, diagonal)
    dense = D.MultivariateNormal(low.loc, low.covariance_matrix)
    draws = low.sample((COUNT,))
    assert plait.allclose(plait.cov(draws.T), dense.covariance_matrix, atol=0.2) and draws.shape == (COUNT, 3)
    assert plait.allclose(low.log_prob(draws), dense.log_prob(draws)) and plait.allclose(low.entropy(), dense.entropy())
    assert plait.allclose(low.precision_matrix, dense.precision_matrix) and low.variance.equal(
        low.covariance_matrix.diagonal()
    )
    assert low.expand((4,)).sample((2,)).shape == (2, 4, 3)
    shares = D.LogisticNormal(t([0.5, -1.0]), t([1.0, 0.3]))
    draws = shares.sample((COUNT,))
    assert draws.shape == (COUNT, 3) and plait.allclose(draws.sum(-1), t([1.0]))
    y = (draws / (1 - draws.cumsum(-1)).clamp(min=1e-300))[:, :-1].log() + t([2.0, 1.0]).log()
    assert plait.allclose(y.mean(0), shares.loc, atol=0.03) and plait.allclose(y.std(0), shares.scale, rtol=0.03)
    assert shares.expand((4,)).sample((2,)).shape == (2, 4, 3) and shares.event_shape == (3,)


class Counts(D.ExponentialFamily):
    """Poisson's family, by its normaliser."""

    def __init__(self, rate):
        self.rate = rate
        super().__init__(rate.shape)

    @property
    def _natural_params(self):
        return (self.rate.log(),)

    def _log_normalizer(self, x):
        return x.exp()

    _mean_carrier_measure = 0.0


def test_exponential_families():
    p, q = Counts(t([2.0, 3.0])), Counts(t([1.0, 5.0]))
    assert plait.allclose(D.kl_divergence(p, q), D.kl_divergence(D.Poisson(p.rate), D.Poisson(q.rate)))
    assert plait.allclose(p.entropy(), p.rate - p.rate * p.rate.log())
    with pytest.raises(NotImplementedError, match="ExponentialFamily has no _natural_params"):
        D.ExponentialFamily().entropy()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: D.Wishart(1.0, plait.eye(3)), "Wishart: df must be above 2"),
        (lambda: D.Wishart(4.0), "Wishart: want one of covariance_matrix, precision_matrix and scale_tril, got 0"),
        (lambda: D.Wishart(4.0, plait.ones(3)), r"Wishart: want a matrix \[..., n, n\], got \[3\]"),
        (lambda: D.Wishart(4.0, plait.eye(2)).log_prob(-plait.eye(2)), "a symmetric positive definite matrix"),
        (lambda: D.LKJCholesky(1), "want dim to be a whole number of 2 or more, got 1"),
        (lambda: D.LKJCholesky(2, -1.0), "concentration must be positive"),
        (lambda: D.LKJCholesky(2).log_prob(plait.ones(2, 2)), "a Cholesky factor of correlations"),
        (
            lambda: D.LowRankMultivariateNormal(t([0, 1]), t([[1], [2], [3]]), t([1, 1])),
            r"got \[2\], \[3, 1\] and \[2\]",
        ),
        (lambda: transforms.CorrCholeskyTransform()(t([1.0, 2.0])), r"of length n \(n - 1\) / 2, got 2"),
        (lambda: transforms.ReshapeTransform((4,), (3,)), "want shapes of as many elements"),
        (lambda: transforms.ReshapeTransform((4,), (2, 2))(t([1.0])), r"want a shape that ends with \[4\], got \[1\]"),
        (lambda: transforms.CatTransform([transforms.ExpTransform()], 0, [1, 2]), "want a length for each of 1"),
        (
            lambda: transforms.CatTransform([transforms.ExpTransform()])(t([1.0, 2.0])),
            "want a size of 1 in dimension 0",
        ),
        (
            lambda: transforms.StackTransform([transforms.ExpTransform()])(t([1.0, 2.0])),
            "want a size of 1 in dimension 0",
        ),
        (lambda: transforms.ExpTransform(cache_size=2), "cache_size must be 0 or 1, got 2"),
        (
            lambda: D.TransformedDistribution(D.Normal(0.0, 1.0), transforms.SoftmaxTransform()),
            r"want draws of at least 1 dimensions, got shape \[\]",
        ),
    ],
)
def test_wrong_arguments(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_dimensions_of_events():
    with pytest.raises(ValueError, match="event_dim changes"):
        _ = transforms.CorrCholeskyTransform().event_dim
    whole = transforms.ComposeTransform([transforms.ExpTransform(), transforms.CorrCholeskyTransform()])
    assert (whole.domain.event_dim, whole.codomain.event_dim) == (1, 2)
    factors = D.TransformedDistribution(D.Normal(t([0.0] * 3), 1.0), [transforms.CorrCholeskyTransform()])
    assert (
        factors.event_shape == (3, 3) and factors.batch_shape == () and factors.log_prob(factors.sample()).shape == ()
    )
    assert factors.expand((4,)).sample((2,)).shape == (2, 4, 3, 3)
    with pytest.raises(NotImplementedError, match="SoftmaxTransform has no sign"):
        _ = transforms.SoftmaxTransform().sign


class Triangle(D.Distribution):
    """A family as programs define it: the density rises from low to high."""

    arg_constraints = {"low": constraints.real, "high": constraints.dependent, "slope": constraints.positive}  # noqa: RUF012
    has_rsample = True

    def __init__(self, low, high, validate_args=None):
        self.low, self.high = broadcast_all(low, high)
        super().__init__(self.low.shape, validate_args=validate_args)

    @lazy_property
    def slope(self):
        return 2 / (self.high - self.low).square()

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self):
        return constraints.interval(self.low, self.high)

    def expand(self, batch_shape, _instance=None):
        new = self._get_checked_instance(Triangle, _instance)
        new.low, new.high = self.low.expand(batch_shape), self.high.expand(batch_shape)
        super(Triangle, new).__init__(batch_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    def rsample(self, sample_shape=()):
        u = plait.rand(self._extended_shape(sample_shape), dtype=self.low.dtype)
        return self.low + u.sqrt() * (self.high - self.low)

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        return self.slope.log() + (value - self.low).log()


def test_families_of_programs():
    p = Triangle(t([0.0, 1.0]), 3.0)
    assert p.support.check(p.sample((100,))).all() and constraints.is_dependent(Triangle.support)
    assert "slope" not in p.__dict__ and p.log_prob(t([1.0, 2.0])).exp().tolist() == pytest.approx([2 / 9, 1 / 2])
    assert p.slope is p.__dict__["slope"]
    wide = p.expand((4, 2))
    assert wide.batch_shape == (4, 2) and wide.sample((3,)).shape == (3, 4, 2) and wide._validate_args
    assert repr(Triangle(0.0, 1.0)) == "Triangle(low: 0.0, high: 1.0)"
    with pytest.raises(ValueError, match="Triangle: low must be real"):
        Triangle(math.nan, 1.0)
    with pytest.raises(ValueError, match=r"Triangle: the value must be from 0\.0 to 1\.0, got 2\.0"):
        Triangle(0.0, 1.0).log_prob(plait.tensor(2.0))
    with pytest.raises(ValueError, match="cannot be checked without the parameters"):
        constraints.dependent.check(t([1.0]))
    mean = D.MixtureSameFamily(D.Categorical(t([1.0, 1.0])), Triangle(t([0.0, 1.0]), 3.0)).sample((COUNT,)).mean()
    assert mean.item() == pytest.approx((2 + 7 / 3) / 2, abs=0.02)


def test_parts_of_families():
    x = t([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    for diag, size in ((0, 2), (-1, 3)):
        whole = utils.vec_to_tril_matrix(x, diag)
        assert whole.shape == (2, size, size) and utils.tril_matrix_to_vec(whole, diag).equal(x)
        assert whole.equal(whole.tril(diag))
    with pytest.raises(ValueError, match="no triangle below diagonal 0 has 2 elements"):
        utils.vec_to_tril_matrix(x[:, :2])
    with pytest.raises(ValueError, match="want diag from -3 to 2, got 3"):
        utils.tril_matrix_to_vec(plait.eye(3), 3)
    with pytest.raises(ValueError, match="want tensors and numbers, got str"):
        broadcast_all("a")
    p = t([0.0, 0.25, 1.0])
    assert utils.logits_to_probs(utils.probs_to_logits(p, True), True).tolist() == pytest.approx(p.tolist())
    assert utils.logits_to_probs(utils.probs_to_logits(p[1:])).tolist() == pytest.approx([0.2, 0.8])
    assert utils.clamp_probs(p).tolist() == pytest.approx([0, 0.25, 1]) and (utils.clamp_probs(p) > 0).all()


def test_expand_fills_in_what_a_subclass_makes():
    class Shifted(D.Independent):
        def __init__(self, loc):
            super().__init__(D.Normal(loc, 1.0), 1)
            self.loc = loc

        def expand(self, batch_shape, _instance=None):
            new = self._get_checked_instance(Shifted, _instance)
            new.loc = self.loc.expand(*batch_shape, -1)
            return super().expand(batch_shape, new)

    p = Shifted(t([1.0, 2.0])).expand((3,))
    assert type(p) is Shifted and p.batch_shape == (3,) and p.event_shape == (2,) and p.loc.shape == (3, 2)
    assert p.log_prob(t([1.0, 2.0])).shape == (3,) and p.sample().shape == (3, 2)

    class Named(D.Dirichlet):
        pass

    assert type(Named(t([1.0, 2.0])).expand((4,))) is Named

    class Own(D.Dirichlet):
        def __init__(self):
            super().__init__(t([1.0, 2.0]))

    with pytest.raises(NotImplementedError, match="needs an expand of its own"):
        Own().expand((4,))
    with pytest.raises(ValueError, match="Dirichlet"):  # an expanded one checks values as well
        D.Dirichlet(t([1.0, 2.0])).expand((4,)).log_prob(t([0.5, 0.9]))


def test_checks_are_switched_off_for_all():
    try:
        D.Distribution._validate_args = False
        assert D.Normal(0.0, -1.0).scale.item() == -1
    finally:
        D.Distribution._validate_args = True
    with pytest.raises(ValueError, match="scale must be positive"):
        D.Normal(0.0, -1.0)


def test_names_that_families_of_others_use():
    assert utils._standard_normal((2, 3), dtype=plait.float64, device="cpu").dtype is plait.float64
    assert utils._sum_rightmost(plait.ones(2, 3, 4), 2).tolist() == [12, 12]
    assert isinstance(transforms.ExpTransform().inv, transforms._InverseTransform)
    assert repr(transforms.ExpTransform().inv) == "_InverseTransform(ExpTransform())"
    alpha = plait.full((COUNT,), 3.0, requires_grad=True)
    drawn = plait._standard_gamma(alpha)
    drawn.sum().backward()
    assert drawn.mean().item() == pytest.approx(3, rel=0.03) and (alpha.grad > 0).all()


def test_families_say_at_the_class_what_they_draw():
    assert D.Poisson.support is constraints.nonnegative_integer and D.Normal.support is constraints.real

    class Counts(D.Distribution):
        support = D.Poisson.support

    assert Counts().support.check(t(2.0)).item()
    x = t([0.5, 2.0])
    for half, whole in ((D.HalfCauchy(x), D.Cauchy(0.0, x)), (D.HalfNormal(x), D.Normal(0.0, x))):
        assert half.base_dist.log_prob(x).equal(whole.log_prob(x))


VECTOR = {"probs": constraints.simplex, "logits": constraints.real_vector}
POSITIVE = {"loc": constraints.real, "scale": constraints.positive}


@pytest.mark.parametrize(
    ("family", "arguments", "wanted"),
    [
        ("Categorical", {"probs": [0.5, 0.5]}, VECTOR),
        ("Categorical", {"logits": [0.5, 0.5]}, VECTOR),
        ("Multinomial", {"probs": [0.5, 0.5]}, VECTOR),
        ("LogNormal", {"loc": 0.0, "scale": 1.0}, POSITIVE),
        (
            "Dirichlet",
            {"concentration": [1.0, 2.0]},
            {"concentration": constraints.independent(constraints.positive, 1)},
        ),
        (
            "MultivariateNormal",
            {"loc": [0.0], "covariance_matrix": [[2.0]]},
            {"scale_tril": constraints.lower_cholesky},
        ),
    ],
)
def test_subclasses_name_constraints_of_parameters(family, arguments, wanted):
    kind = type(family, (getattr(D, family),), {"arg_constraints": wanted})
    p = kind(**{k: t(v) for k, v in arguments.items()})
    assert type(p.expand((2, *p.batch_shape))) is kind


def test_known_parts_of_constraints_that_depend_on_others():
    some = constraints.dependent(is_discrete=True, event_dim=1)
    assert some.event_dim == 1 and some.is_discrete and constraints.is_dependent(some)
    assert some(event_dim=2).event_dim == 2 and some(event_dim=2).is_discrete
    with pytest.raises(NotImplementedError, match="event_dim cannot be determined"):
        _ = constraints.dependent.event_dim


def test_normal_vectors_keep_the_matrix_they_were_given():
    cov = t([[2.0, 0.5], [0.5, 1.0]])
    for name, matrix in (("covariance_matrix", cov), ("precision_matrix", cov), ("scale_tril", cov.tril())):
        p = D.MultivariateNormal(t([0.0, 1.0]), **{name: matrix}).expand((3,))
        assert getattr(p, name).equal(matrix.expand(3, 2, 2)) and name in repr(p)
        assert plait.allclose(p.precision_matrix @ p.covariance_matrix, plait.eye(2, dtype=plait.float64))
        assert plait.allclose(p.scale_tril @ p.scale_tril.mT, p.covariance_matrix) and p.entropy().shape == (3,)

    class Later(D.MultivariateNormal):  # its factor is computed when it is wanted
        def __init__(self):
            self.loc = t([0.0, 1.0])
            D.Distribution.__init__(self, (), (2,))

        @property
        def _unbroadcasted_scale_tril(self):
            return plait.linalg.cholesky(cov)

    want = D.MultivariateNormal(t([0.0, 1.0]), cov)
    assert Later().log_prob(t([1.0, 1.0])).equal(want.log_prob(t([1.0, 1.0]))) and Later().variance.equal(want.variance)
