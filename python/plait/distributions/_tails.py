"""Continuous distributions whose draws are functions of uniform ones: halves, tails and extremes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import plait
from plait import Tensor
from plait.distributions import constraints
from plait.distributions._continuous import Exponential, LocationScale, Normal, Uniform
from plait.distributions._distribution import Elementwise
from plait.distributions._samplers import von_mises
from plait.distributions._transform_base import Transform
from plait.distributions.constraints import Constraint
from plait.distributions.transforms import AbsTransform, AffineTransform, ExpTransform, PowerTransform

EULER = 0.57721566490153286060  # -digamma(1)


class Cauchy(LocationScale):
    """The distribution with density 1 / (pi scale (1 + ((x - loc) / scale)^2))."""

    support = constraints.real

    @property
    def mean(self) -> Tensor:
        return plait.full_like(self.loc, math.nan)

    @property
    def variance(self) -> Tensor:
        return plait.full_like(self.loc, math.inf)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self.icdf(self._uniform(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_value(value)
        return -math.log(math.pi) - self.scale.log() - plait.log1p(((value - self.loc) / self.scale).square())

    def cdf(self, value: Tensor) -> Tensor:
        self._check_shape(value)
        return ((value - self.loc) / self.scale).atan() / math.pi + 0.5

    def icdf(self, value: Tensor) -> Tensor:
        return self.loc + self.scale * (math.pi * (value - 0.5)).tan()

    def entropy(self) -> Tensor:
        return math.log(4 * math.pi) + self.scale.log()


class HalfCauchy(Elementwise):
    """The distribution of the absolute value of a `Cauchy` variable around 0."""

    support = constraints.nonnegative
    has_rsample = True
    scale: Tensor

    def __init__(self, scale: Tensor | float, validate_args: bool | None = None) -> None:
        self._set(validate_args, scale=scale)
        self._must("scale")

    @property
    def transforms(self) -> list[Transform]:
        """What makes a draw of one of `base_dist`."""
        return [AbsTransform()]

    @property
    def base_dist(self) -> Cauchy:
        """The variable whose absolute value it is."""
        return Cauchy(plait.zeros_like(self.scale), self.scale, validate_args=False)

    @property
    def mean(self) -> Tensor:
        return plait.full_like(self.scale, math.inf)

    @property
    def mode(self) -> Tensor:
        """Where the density is highest."""
        return plait.zeros_like(self.scale)

    @property
    def variance(self) -> Tensor:
        return plait.full_like(self.scale, math.inf)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self.icdf(self._uniform(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_value(value)
        density = math.log(2 / math.pi) - self.scale.log() - plait.log1p((value / self.scale).square())
        return plait.where(value >= 0, density, -math.inf)

    def cdf(self, value: Tensor) -> Tensor:
        self._check_value(value)
        return 2 / math.pi * (value / self.scale).atan()

    def icdf(self, prob: Tensor) -> Tensor:
        return self.scale * (math.pi / 2 * prob).tan()

    def entropy(self) -> Tensor:
        return math.log(2 * math.pi) + self.scale.log()


class HalfNormal(Elementwise):
    """The distribution of the absolute value of a `Normal` variable around 0."""

    support = constraints.nonnegative
    has_rsample = True
    scale: Tensor

    def __init__(self, scale: Tensor | float, validate_args: bool | None = None) -> None:
        self._set(validate_args, scale=scale)
        self._must("scale")

    @property
    def transforms(self) -> list[Transform]:
        """What makes a draw of one of `base_dist`."""
        return [AbsTransform()]

    @property
    def base_dist(self) -> Normal:
        """The variable whose absolute value it is."""
        return Normal(plait.zeros_like(self.scale), self.scale, validate_args=False)

    @property
    def mean(self) -> Tensor:
        return self.scale * math.sqrt(2 / math.pi)

    @property
    def mode(self) -> Tensor:
        """Where the density is highest."""
        return plait.zeros_like(self.scale)

    @property
    def variance(self) -> Tensor:
        return self.scale.square() * (1 - 2 / math.pi)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        noise = plait.randn(self._extended_shape(sample_shape), dtype=self.scale.dtype, device=self.scale.device)
        return noise.abs() * self.scale

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_value(value)
        density = math.log(2 / math.pi) / 2 - self.scale.log() - (value / self.scale).square() / 2
        return plait.where(value >= 0, density, -math.inf)

    def cdf(self, value: Tensor) -> Tensor:
        self._check_value(value)
        return (value / (self.scale * math.sqrt(2))).erf()

    def icdf(self, prob: Tensor) -> Tensor:
        return self.scale * math.sqrt(2) * prob.erfinv()

    def entropy(self) -> Tensor:
        return self.scale.log() + (1 + math.log(math.pi / 2)) / 2


class Gumbel(LocationScale):
    """The distribution of the largest of many variables, with cumulative probability exp(-exp(-(x - loc) / scale))."""

    support = constraints.real

    @property
    def base_dist(self) -> Uniform:
        """The distribution whose draws `transforms` change."""
        limits = plait.finfo(self.loc.dtype)
        low, high = plait.full_like(self.loc, limits.tiny), plait.full_like(self.loc, 1 - limits.eps)
        return Uniform(low, high, validate_args=False)

    @property
    def transforms(self) -> list[Transform]:
        """What makes a draw of one of `base_dist`."""
        return [
            ExpTransform().inv,
            AffineTransform(loc=0.0, scale=-plait.ones_like(self.scale)),
            ExpTransform().inv,
            AffineTransform(loc=self.loc, scale=-self.scale),
        ]

    @property
    def mean(self) -> Tensor:
        return self.loc + self.scale * EULER

    @property
    def variance(self) -> Tensor:
        return (math.pi * self.scale).square() / 6

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self.icdf(self._uniform(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_value(value)
        y = (self.loc - value) / self.scale
        return y - y.exp() - self.scale.log()

    def cdf(self, value: Tensor) -> Tensor:
        self._check_shape(value)
        return (-((self.loc - value) / self.scale).exp()).exp()

    def icdf(self, value: Tensor) -> Tensor:
        return self.loc - self.scale * (-value.log()).log()

    def entropy(self) -> Tensor:
        return self.scale.log() + (1 + EULER)


class Weibull(Elementwise):
    """The distribution with cumulative probability 1 - exp(-(x / scale)^concentration), for positive x."""

    support = constraints.positive
    has_rsample = True
    scale: Tensor
    concentration: Tensor

    def __init__(self, scale: Tensor | float, concentration: Tensor | float, validate_args: bool | None = None) -> None:
        self._set(validate_args, scale=scale, concentration=concentration)
        self._must("scale")
        self._must("concentration")

    @property
    def base_dist(self) -> Exponential:
        """The distribution whose draws `transforms` change."""
        return Exponential(plait.ones_like(self.scale), validate_args=False)

    @property
    def transforms(self) -> list[Transform]:
        """What makes a draw of one of `base_dist`."""
        return [PowerTransform(self.concentration.reciprocal()), AffineTransform(loc=0.0, scale=self.scale)]

    def _moment(self, n: int) -> Tensor:
        """Returns the mean of (x / scale)^n."""
        return (1 + n / self.concentration).lgamma().exp()

    @property
    def mean(self) -> Tensor:
        return self.scale * self._moment(1)

    @property
    def mode(self) -> Tensor:
        """Where the density is highest; 0 for a concentration of at most 1."""
        c = self.concentration
        return self.scale * ((c - 1) / c).clamp(min=0).pow(1 / c)

    @property
    def variance(self) -> Tensor:
        return self.scale.square() * (self._moment(2) - self._moment(1).square())

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self.icdf(self._uniform(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_value(value)
        c, log = self.concentration, value.log() - self.scale.log()
        return c.log() - self.scale.log() + (c - 1) * log - (c * log).exp()

    def cdf(self, value: Tensor) -> Tensor:
        self._check_value(value)
        return -plait.expm1(-(value / self.scale).pow(self.concentration))

    def icdf(self, value: Tensor) -> Tensor:
        return self.scale * (-plait.log1p(-value)).pow(1 / self.concentration)

    def entropy(self) -> Tensor:
        c = self.concentration
        return EULER * (1 - 1 / c) + (self.scale / c).log() + 1


class Pareto(Elementwise):
    """The distribution with density alpha scale^alpha / x^(alpha + 1), for x of scale or more."""

    has_rsample = True
    scale: Tensor
    alpha: Tensor

    def __init__(self, scale: Tensor | float, alpha: Tensor | float, validate_args: bool | None = None) -> None:
        self._set(validate_args, scale=scale, alpha=alpha)
        self._must("scale")
        self._must("alpha")

    @property
    def base_dist(self) -> Exponential:
        """The distribution whose draws `transforms` change."""
        return Exponential(self.alpha, validate_args=False)

    @property
    def transforms(self) -> list[Transform]:
        """What makes a draw of one of `base_dist`."""
        return [ExpTransform(), AffineTransform(loc=0.0, scale=self.scale)]

    @property
    def support(self) -> Constraint:
        return constraints.greater_than_eq(self.scale)

    @property
    def mean(self) -> Tensor:
        a = self.alpha
        return plait.where(a > 1, self.scale * a / (a - 1), math.inf)

    @property
    def mode(self) -> Tensor:
        """Where the density is highest."""
        return self.scale

    @property
    def variance(self) -> Tensor:
        a = self.alpha
        return plait.where(a > 2, self.scale.square() * a / ((a - 1).square() * (a - 2)), math.inf)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self.scale * (-self._uniform(sample_shape).log() / self.alpha).exp()

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_value(value)
        return self.alpha.log() + self.alpha * self.scale.log() - (self.alpha + 1) * value.log()

    def cdf(self, value: Tensor) -> Tensor:
        self._check_value(value)
        return -plait.expm1(self.alpha * (self.scale.log() - value.log()))

    def icdf(self, value: Tensor) -> Tensor:
        return self.scale * (-plait.log1p(-value) / self.alpha).exp()

    def entropy(self) -> Tensor:
        return (self.scale / self.alpha).log() + 1 + 1 / self.alpha


class GeneralizedPareto(Elementwise):
    """The distribution of what lies above a threshold loc.

    The cumulative probability is 1 - (1 + concentration z)^(-1 / concentration), with z = (x - loc) / scale. For a
    concentration of 0 that is 1 - exp(-z); for a negative one z ends at -1 / concentration.
    """

    has_rsample = True
    loc: Tensor
    scale: Tensor
    concentration: Tensor

    def __init__(
        self,
        loc: Tensor | float,
        scale: Tensor | float,
        concentration: Tensor | float,
        validate_args: bool | None = None,
    ) -> None:
        self._set(validate_args, loc=loc, scale=scale, concentration=concentration)
        self._must("loc", -math.inf)
        self._must("scale")
        self._must("concentration", -math.inf)

    @property
    def support(self) -> Constraint:
        upper = self.loc - self.scale / self.concentration
        return constraints.interval(self.loc, plait.where(self.concentration < 0, upper, math.inf))

    @property
    def mean(self) -> Tensor:
        c = self.concentration
        return plait.where(c < 1, self.loc + self.scale / (1 - c), math.nan)

    @property
    def mode(self) -> Tensor:
        """Where the density is highest, for a concentration of -1 or more."""
        return self.loc

    @property
    def variance(self) -> Tensor:
        c = self.concentration
        return plait.where(c < 0.5, self.scale.square() / ((1 - c).square() * (1 - 2 * c)), math.nan)

    def _log_above(self, value: Tensor) -> Tensor:
        """Returns the logarithm of the probability of more than a value."""
        z, c = (value - self.loc) / self.scale, self.concentration
        flat = c.abs() < 1e-8
        safe = plait.where(flat, 1.0, c)
        return -plait.where(flat, z, plait.log1p(safe * z) / safe)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self.icdf(self._uniform(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_value(value)
        c = self.concentration  # of -1 it is uniform, also at its end
        return -self.scale.log() + plait.where(c == -1, 0.0, (1 + c) * self._log_above(value))

    def cdf(self, value: Tensor) -> Tensor:
        self._check_value(value)
        return -plait.expm1(self._log_above(value))

    def icdf(self, value: Tensor) -> Tensor:
        c, log = self.concentration, plait.log1p(-value)
        flat = c.abs() < 1e-8
        safe = plait.where(flat, 1.0, c)
        return self.loc + self.scale * plait.where(flat, -log, plait.expm1(-safe * log) / safe)

    def entropy(self) -> Tensor:
        return self.scale.log() + self.concentration + 1


class Kumaraswamy(Elementwise):
    """The distribution with cumulative probability 1 - (1 - x^concentration1)^concentration0, for x from 0 to 1."""

    support = constraints.unit_interval
    has_rsample = True
    concentration1: Tensor
    concentration0: Tensor

    def __init__(
        self, concentration1: Tensor | float, concentration0: Tensor | float, validate_args: bool | None = None
    ) -> None:
        self._set(validate_args, concentration1=concentration1, concentration0=concentration0)
        self._must("concentration1")
        self._must("concentration0")

    @property
    def base_dist(self) -> Uniform:
        """The distribution whose draws `transforms` change."""
        zeros = plait.zeros_like(self.concentration0)
        return Uniform(zeros, zeros + 1, validate_args=False)

    @property
    def transforms(self) -> list[Transform]:
        """What makes a draw of one of `base_dist`."""
        return [
            PowerTransform(self.concentration0.reciprocal()),
            AffineTransform(loc=1.0, scale=-1.0),
            PowerTransform(self.concentration1.reciprocal()),
        ]

    def _moment(self, n: int) -> Tensor:
        """Returns the mean of x^n."""
        a, b = 1 + n / self.concentration1, self.concentration0
        return (b.log() + a.lgamma() + b.lgamma() - (a + b).lgamma()).exp()

    @property
    def mean(self) -> Tensor:
        return self._moment(1)

    @property
    def mode(self) -> Tensor:
        """Where the density is highest, NaN where that is not inside."""
        a, b = self.concentration1, self.concentration0
        return plait.where((a < 1) | (b < 1), math.nan, ((a - 1) / (a * b - 1)).pow(1 / a))

    @property
    def variance(self) -> Tensor:
        return self._moment(2) - self._moment(1).square()

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self.icdf(self._uniform(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_value(value)
        a, b = self.concentration1, self.concentration0
        below = plait.special.xlog1py(b - 1, -value.pow(a))
        return a.log() + b.log() + plait.xlogy(a - 1, value) + below

    def cdf(self, value: Tensor) -> Tensor:
        self._check_value(value)
        return -plait.expm1(self.concentration0 * plait.log1p(-value.pow(self.concentration1)))

    def icdf(self, value: Tensor) -> Tensor:
        return (-plait.expm1(plait.log1p(-value) / self.concentration0)).pow(1 / self.concentration1)

    def entropy(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        return 1 - 1 / b + (1 - 1 / a) * ((b + 1).digamma() + EULER) - a.log() - b.log()


class VonMises(Elementwise):
    """The distribution of angles, from -pi to pi, with density proportional to exp(concentration cos(x - loc))."""

    support = constraints.real

    loc: Tensor
    concentration: Tensor

    def __init__(self, loc: Tensor | float, concentration: Tensor | float, validate_args: bool | None = None) -> None:
        self._set(validate_args, loc=loc, concentration=concentration)
        self._must("loc", -math.inf)
        self._must("concentration")

    @property
    def mean(self) -> Tensor:
        """The direction of the mean."""
        return self.loc

    @property
    def mode(self) -> Tensor:
        """Where the density is highest."""
        return self.loc

    @property
    def variance(self) -> Tensor:
        """One minus the length of the mean of the directions."""
        k = self.concentration
        return 1 - plait.special.i1e(k) / plait.special.i0e(k)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        with plait.no_grad():
            angle = von_mises(self.concentration.expand(self._extended_shape(sample_shape))) + self.loc
            return (angle + math.pi) % (2 * math.pi) - math.pi

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_value(value)
        k = self.concentration
        scale = math.log(2 * math.pi) + plait.special.i0e(k).log()  # i0e has the factor exp(-k)
        return -2 * k * ((value - self.loc) / 2).sin().square() - scale
