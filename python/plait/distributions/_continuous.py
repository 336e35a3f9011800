"""Distributions of real numbers, each element by itself."""

from __future__ import annotations

import math
from collections.abc import Sequence

import plait
from plait import Tensor
from plait.distributions import constraints
from plait.distributions._distribution import Elementwise
from plait.distributions.constraints import Constraint


class LocationScale(Elementwise):
    """A distribution with parameters loc and scale, which is positive."""

    has_rsample = True
    loc: Tensor
    scale: Tensor

    def __init__(self, loc: Tensor | float, scale: Tensor | float, validate_args: bool | None = None) -> None:
        self._set(validate_args, loc=loc, scale=scale)
        self._must("loc", -math.inf)
        self._must("scale")

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        """Where the density is highest."""
        return self.loc


class Normal(LocationScale):
    """The normal distribution with mean loc and standard deviation scale."""

    support = constraints.real

    @property
    def variance(self) -> Tensor:
        return self.scale.square()

    @property
    def stddev(self) -> Tensor:
        return self.scale

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        noise = plait.randn(self._extended_shape(sample_shape), dtype=self.loc.dtype, device=self.loc.device)
        return self.loc + noise * self.scale

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_value(value)
        return -((value - self.loc) / self.scale).square() / 2 - self.scale.log() - math.log(2 * math.pi) / 2

    def cdf(self, value: Tensor) -> Tensor:
        self._check_shape(value)
        return plait.special.ndtr((value - self.loc) / self.scale)

    def icdf(self, value: Tensor) -> Tensor:
        return self.loc + self.scale * plait.special.ndtri(value)

    def entropy(self) -> Tensor:
        return self.scale.log() + (0.5 + math.log(2 * math.pi) / 2)


class Laplace(LocationScale):
    """The distribution with density exp(-|x - loc| / scale) / (2 scale)."""

    support = constraints.real

    @property
    def variance(self) -> Tensor:
        return 2 * self.scale.square()

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        u = plait.rand(self._extended_shape(sample_shape), dtype=self.loc.dtype, device=self.loc.device)
        u = u - 0.5  # from -0.5, where the logarithm has no value, to below 0.5
        tiny = plait.finfo(u.dtype).tiny
        return self.loc - self.scale * u.sign() * (1 - 2 * u.abs()).clamp(min=tiny).log()

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_value(value)
        return -(value - self.loc).abs() / self.scale - (2 * self.scale).log()

    def cdf(self, value: Tensor) -> Tensor:
        self._check_shape(value)
        d = value - self.loc
        return 0.5 - 0.5 * d.sign() * plait.expm1(-d.abs() / self.scale)

    def icdf(self, value: Tensor) -> Tensor:
        d = value - 0.5
        return self.loc - self.scale * d.sign() * plait.log1p(-2 * d.abs())

    def entropy(self) -> Tensor:
        return 1 + (2 * self.scale).log()


class Exponential(Elementwise):
    """The distribution with density rate exp(-rate x) for x of 0 or more."""

    support = constraints.nonnegative
    has_rsample = True
    rate: Tensor

    def __init__(self, rate: Tensor | float, validate_args: bool | None = None) -> None:
        self._set(validate_args, rate=rate)
        self._must("rate")

    @property
    def mean(self) -> Tensor:
        return self.rate.reciprocal()

    @property
    def mode(self) -> Tensor:
        """Where the density is highest."""
        return plait.zeros_like(self.rate)

    @property
    def variance(self) -> Tensor:
        return self.rate.square().reciprocal()

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        u = plait.rand(self._extended_shape(sample_shape), dtype=self.rate.dtype, device=self.rate.device)
        return -plait.log1p(-u) / self.rate

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_value(value)
        return self.rate.log() - self.rate * value

    def cdf(self, value: Tensor) -> Tensor:
        self._check_value(value)
        return -plait.expm1(-self.rate * value)

    def icdf(self, value: Tensor) -> Tensor:
        return -plait.log1p(-value) / self.rate

    def entropy(self) -> Tensor:
        return 1 - self.rate.log()


class Uniform(Elementwise):
    """The uniform distribution from low up to high."""

    has_rsample = True
    low: Tensor
    high: Tensor

    def __init__(self, low: Tensor | float, high: Tensor | float, validate_args: bool | None = None) -> None:
        self._set(validate_args, low=low, high=high)
        self._check("high", self.high, self.low < self.high, f"above low, {self.low}")

    @property
    def support(self) -> Constraint:
        return constraints.interval(self.low, self.high)

    @property
    def mean(self) -> Tensor:
        return (self.low + self.high) / 2

    @property
    def mode(self) -> Tensor:
        """NaN: the density is the same everywhere."""
        return plait.full_like(self.high, math.nan)

    @property
    def variance(self) -> Tensor:
        return (self.high - self.low).square() / 12

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        u = plait.rand(self._extended_shape(sample_shape), dtype=self.low.dtype, device=self.low.device)
        return self.low + u * (self.high - self.low)

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_value(value)
        inside = (value >= self.low) & (value < self.high)
        return plait.where(inside, -(self.high - self.low).log(), -math.inf)

    def cdf(self, value: Tensor) -> Tensor:
        self._check_shape(value)
        return ((value - self.low) / (self.high - self.low)).clamp(0, 1)

    def icdf(self, value: Tensor) -> Tensor:
        return self.low + value * (self.high - self.low)

    def entropy(self) -> Tensor:
        return (self.high - self.low).log()
