"""Gamma variables, and what is made of them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import plait
from plait import Generator, Tensor
from plait.distributions import constraints
from plait.distributions._distribution import Distribution, Elementwise
from plait.distributions._samplers import log_gamma
from plait.distributions._transform_base import Transform
from plait.distributions.transforms import PowerTransform


def _exp(log: Tensor) -> Tensor:
    """Returns the exponential, which is above 0."""
    return log.exp().clamp(min=plait.finfo(log.dtype).tiny)


class Gamma(Elementwise):
    """The distribution with density proportional to x^(concentration - 1) exp(-rate x), for positive x."""

    support = constraints.nonnegative
    has_rsample = True
    concentration: Tensor
    rate: Tensor

    def __init__(self, concentration: Tensor | float, rate: Tensor | float, validate_args: bool | None = None) -> None:
        self._set(validate_args, concentration=concentration, rate=rate)
        self._must("concentration")
        self._must("rate")

    @property
    def mean(self) -> Tensor:
        return self.concentration / self.rate

    @property
    def mode(self) -> Tensor:
        """Where the density is highest."""
        return ((self.concentration - 1) / self.rate).clamp(min=0)

    @property
    def variance(self) -> Tensor:
        return self.concentration / self.rate.square()

    def sample(self, sample_shape: Sequence[int] = (), *, generator: Generator | None = None) -> Tensor:
        with plait.no_grad():
            return self.rsample(sample_shape, generator)

    def rsample(self, sample_shape: Sequence[int] = (), generator: Generator | None = None) -> Tensor:
        shape = self._extended_shape(sample_shape)
        return _exp(log_gamma(self.concentration.expand(shape), generator) - self.rate.log())

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_value(value)
        a, rate = self.concentration, self.rate
        return plait.xlogy(a, rate) + plait.xlogy(a - 1, value) - rate * value - a.lgamma()

    def cdf(self, value: Tensor) -> Tensor:
        self._check_value(value)
        return plait.igamma(self.concentration, self.rate * value)

    def entropy(self) -> Tensor:
        a = self.concentration
        return a - self.rate.log() + a.lgamma() + (1 - a) * a.digamma()


class Chi2(Gamma):
    """The distribution of the sum of df squares of standard normal variables."""

    def __init__(self, df: Tensor | float, validate_args: bool | None = None) -> None:
        half = df / 2 if isinstance(df, Tensor) else float(df) / 2
        super().__init__(half, 0.5, validate_args)

    @property
    def df(self) -> Tensor:
        """The degrees of freedom."""
        return self.concentration * 2

    def _shown(self) -> dict[str, Tensor]:
        return {"df": self.df}


class InverseGamma(Elementwise):
    """The distribution of 1 / x where x is a gamma variable."""

    support = constraints.positive
    has_rsample = True
    concentration: Tensor
    rate: Tensor

    def __init__(self, concentration: Tensor | float, rate: Tensor | float, validate_args: bool | None = None) -> None:
        self._set(validate_args, concentration=concentration, rate=rate)
        self._must("concentration")
        self._must("rate")

    @property
    def base_dist(self) -> Gamma:
        """The distribution whose draws `transforms` change."""
        return Gamma(self.concentration, self.rate, validate_args=False)

    @property
    def transforms(self) -> list[Transform]:
        """What makes a draw of one of `base_dist`."""
        return [PowerTransform(-plait.ones_like(self.rate))]

    @property
    def mean(self) -> Tensor:
        a = self.concentration
        return plait.where(a > 1, self.rate / (a - 1), math.inf)

    @property
    def mode(self) -> Tensor:
        """Where the density is highest."""
        return self.rate / (self.concentration + 1)

    @property
    def variance(self) -> Tensor:
        a = self.concentration
        return plait.where(a > 2, self.rate.square() / ((a - 1).square() * (a - 2)), math.inf)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        return _exp(self.rate.log() - log_gamma(self.concentration.expand(shape)))

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_value(value)
        a, rate = self.concentration, self.rate
        return a * rate.log() - (a + 1) * value.log() - rate / value - a.lgamma()

    def cdf(self, value: Tensor) -> Tensor:
        self._check_value(value)
        return plait.igammac(self.concentration, self.rate / value)

    def entropy(self) -> Tensor:
        a = self.concentration
        return a + self.rate.log() + a.lgamma() - (1 + a) * a.digamma()


class Beta(Elementwise):
    """The distribution with density proportional to x^(concentration1 - 1) (1 - x)^(concentration0 - 1), 0 < x < 1."""

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
    def _total(self) -> Tensor:
        return self.concentration1 + self.concentration0

    @property
    def mean(self) -> Tensor:
        return self.concentration1 / self._total

    @property
    def mode(self) -> Tensor:
        """Where the density is highest; one of the ends, 1 if both, where both parameters are below 1."""
        return Dirichlet(plait.stack((self.concentration1, self.concentration0), -1), False).mode[..., 0]

    @property
    def variance(self) -> Tensor:
        total = self._total
        return self.concentration1 * self.concentration0 / (total.square() * (total + 1))

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        one, other = (log_gamma(c.expand(shape)) for c in (self.concentration1, self.concentration0))
        info = plait.finfo(one.dtype)
        return (one - other).sigmoid().clamp(info.tiny, 1 - info.eps / 2)

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_value(value)
        a, b = self.concentration1, self.concentration0
        return plait.xlogy(a - 1, value) + plait.special.xlog1py(b - 1, -value) - _log_beta(a, b)

    def entropy(self) -> Tensor:
        a, b, total = self.concentration1, self.concentration0, self._total
        terms = (a - 1) * a.digamma() + (b - 1) * b.digamma() - (total - 2) * total.digamma()
        return _log_beta(a, b) - terms


def _log_beta(a: Tensor, b: Tensor) -> Tensor:
    return a.lgamma() + b.lgamma() - (a + b).lgamma()


class Dirichlet(Distribution):
    """The distribution of vectors of shares, with density proportional to the product of x_i^(concentration_i - 1).

    Args:
        concentration: [..., n], positive
        validate_args: whether parameters and values are checked
    """

    support = constraints.simplex
    has_rsample = True

    def __init__(self, concentration: Tensor, validate_args: bool | None = None) -> None:
        if concentration.ndim < 1:
            raise ValueError("Dirichlet: want a concentration of at least one dimension, got a 0-d tensor")
        self.concentration = concentration
        super().__init__(concentration.shape[:-1], concentration.shape[-1:], validate_args)
        self._check("concentration", concentration, concentration > 0, "positive")

    @property
    def mean(self) -> Tensor:
        return self.concentration / self.concentration.sum(-1, keepdim=True)

    @property
    def mode(self) -> Tensor:
        """Where the density is highest; a corner where all parameters are below 1."""
        above = (self.concentration - 1).clamp(min=0)
        n = self.concentration.shape[-1]
        corner = plait.nn.functional.one_hot(self.concentration.argmax(-1), n).to(above.dtype)
        flat = (self.concentration < 1).all(-1, keepdim=True)
        return plait.where(flat, corner, above / above.sum(-1, keepdim=True))

    @property
    def variance(self) -> Tensor:
        total = self.concentration.sum(-1, keepdim=True)
        return self.concentration * (total - self.concentration) / (total.square() * (total + 1))

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        return log_gamma(self.concentration.expand(shape)).softmax(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_value(value)
        a = self.concentration
        return plait.xlogy(a - 1, value).sum(-1) + a.sum(-1).lgamma() - a.lgamma().sum(-1)

    def entropy(self) -> Tensor:
        a, total = self.concentration, self.concentration.sum(-1)
        log_beta = a.lgamma().sum(-1) - total.lgamma()
        return log_beta - (a.shape[-1] - total) * total.digamma() - ((a - 1) * a.digamma()).sum(-1)

    def _expanded(self, batch_shape: plait.Size) -> Distribution:
        return Dirichlet(self.concentration.expand(*batch_shape, self.concentration.shape[-1]), validate_args=False)

    def _shown(self) -> dict[str, Tensor]:
        return {"concentration": self.concentration}


class StudentT(Elementwise):
    """Student's t distribution with df degrees of freedom, times scale, plus loc."""

    support = constraints.real
    has_rsample = True
    df: Tensor
    loc: Tensor
    scale: Tensor

    def __init__(
        self,
        df: Tensor | float,
        loc: Tensor | float = 0.0,
        scale: Tensor | float = 1.0,
        validate_args: bool | None = None,
    ) -> None:
        self._set(validate_args, df=df, loc=loc, scale=scale)
        self._must("df")
        self._must("loc", -math.inf)
        self._must("scale")

    @property
    def mean(self) -> Tensor:
        return plait.where(self.df > 1, self.loc, math.nan)

    @property
    def mode(self) -> Tensor:
        """Where the density is highest."""
        return self.loc

    @property
    def variance(self) -> Tensor:
        finite = self.scale.square() * self.df / (self.df - 2)
        return plait.where(self.df > 2, finite, plait.where(self.df > 1, math.inf, math.nan))

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        noise = plait.randn(shape, dtype=self.df.dtype, device=self.df.device)
        half = (self.df / 2).expand(shape)
        return self.loc + self.scale * noise * ((half.log() - log_gamma(half)) / 2).exp()

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_value(value)
        df, y = self.df, (value - self.loc) / self.scale
        total = self.scale.log() + (df.log() + math.log(math.pi)) / 2 + (df / 2).lgamma() - ((df + 1) / 2).lgamma()
        return -(df + 1) / 2 * plait.log1p(y.square() / df) - total

    def entropy(self) -> Tensor:
        df = self.df
        log_beta = (df / 2).lgamma() + math.lgamma(0.5) - ((df + 1) / 2).lgamma()
        half = (df + 1) / 2 * (((df + 1) / 2).digamma() - (df / 2).digamma())
        return self.scale.log() + half + df.log() / 2 + log_beta


class FisherSnedecor(Elementwise):
    """The F distribution: that of (x / df1) / (y / df2) with chi-squared variables x and y."""

    support = constraints.positive
    has_rsample = True
    df1: Tensor
    df2: Tensor

    def __init__(self, df1: Tensor | float, df2: Tensor | float, validate_args: bool | None = None) -> None:
        self._set(validate_args, df1=df1, df2=df2)
        self._must("df1")
        self._must("df2")

    @property
    def mean(self) -> Tensor:
        return plait.where(self.df2 > 2, self.df2 / (self.df2 - 2), math.nan)

    @property
    def mode(self) -> Tensor:
        """Where the density is highest."""
        value = (self.df1 - 2) / self.df1 * self.df2 / (self.df2 + 2)
        return plait.where(self.df1 > 2, value, math.nan)

    @property
    def variance(self) -> Tensor:
        a, b = self.df1, self.df2
        value = 2 * b.square() * (a + b - 2) / (a * (b - 2).square() * (b - 4))
        return plait.where(b > 4, value, math.nan)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        a, b = (self.df1 / 2).expand(shape), (self.df2 / 2).expand(shape)
        return _exp(log_gamma(a) - a.log() - log_gamma(b) + b.log())

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_value(value)
        a, b, ratio = self.df1 / 2, self.df2 / 2, self.df1 / self.df2
        powers = a * ratio.log() + (a - 1) * value.log() - (a + b) * plait.log1p(ratio * value)
        return powers - _log_beta(a, b)
