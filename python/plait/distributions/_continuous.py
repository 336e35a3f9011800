"""Distributions of real numbers, each element by itself."""

from __future__ import annotations

import math
from collections.abc import Sequence

import plait
from plait import Tensor
from plait.distributions._distribution import Distribution, tensors


class _LocationScale(Distribution):
    """A distribution with parameters loc and scale, which is positive."""

    has_rsample = True

    def __init__(self, loc: Tensor | float, scale: Tensor | float, validate_args: bool | None = None) -> None:
        self.loc, self.scale = tensors(loc, scale)
        super().__init__(self.loc.shape, validate_args=validate_args)
        self._check("loc", self.loc, ~self.loc.isnan(), "real")
        self._check("scale", self.scale, self.scale > 0, "positive")

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        """Where the density is highest."""
        return self.loc

    def expand(self, batch_shape: Sequence[int]) -> Distribution:
        return type(self)(self.loc.expand(batch_shape), self.scale.expand(batch_shape), validate_args=False)

    def _parameters(self) -> dict[str, Tensor]:
        return {"loc": self.loc, "scale": self.scale}


class Normal(_LocationScale):
    """The normal distribution with mean loc and standard deviation scale."""

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
        self._check_value(value, lambda v: ~v.isnan(), "real")
        return -((value - self.loc) / self.scale).square() / 2 - self.scale.log() - math.log(2 * math.pi) / 2

    def cdf(self, value: Tensor) -> Tensor:
        self._check_value(value)
        return plait.special.ndtr((value - self.loc) / self.scale)

    def icdf(self, value: Tensor) -> Tensor:
        return self.loc + self.scale * plait.special.ndtri(value)

    def entropy(self) -> Tensor:
        return self.scale.log() + (0.5 + math.log(2 * math.pi) / 2)


class Laplace(_LocationScale):
    """The distribution with density exp(-|x - loc| / scale) / (2 scale)."""

    @property
    def variance(self) -> Tensor:
        return 2 * self.scale.square()

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        u = plait.rand(self._extended_shape(sample_shape), dtype=self.loc.dtype, device=self.loc.device)
        u = u - 0.5  # from -0.5, where the logarithm has no value, to below 0.5
        tiny = plait.finfo(u.dtype).tiny
        return self.loc - self.scale * u.sign() * (1 - 2 * u.abs()).clamp(min=tiny).log()

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_value(value, lambda v: ~v.isnan(), "real")
        return -(value - self.loc).abs() / self.scale - (2 * self.scale).log()

    def cdf(self, value: Tensor) -> Tensor:
        self._check_value(value)
        d = value - self.loc
        return 0.5 - 0.5 * d.sign() * plait.expm1(-d.abs() / self.scale)

    def icdf(self, value: Tensor) -> Tensor:
        d = value - 0.5
        return self.loc - self.scale * d.sign() * plait.log1p(-2 * d.abs())

    def entropy(self) -> Tensor:
        return 1 + (2 * self.scale).log()


class Exponential(Distribution):
    """The distribution with density rate exp(-rate x) for x of 0 or more."""

    has_rsample = True

    def __init__(self, rate: Tensor | float, validate_args: bool | None = None) -> None:
        (self.rate,) = tensors(rate)
        super().__init__(self.rate.shape, validate_args=validate_args)
        self._check("rate", self.rate, self.rate > 0, "positive")

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
        self._check_value(value, lambda v: v >= 0, "0 or more")
        return self.rate.log() - self.rate * value

    def cdf(self, value: Tensor) -> Tensor:
        self._check_value(value, lambda v: v >= 0, "0 or more")
        return -plait.expm1(-self.rate * value)

    def icdf(self, value: Tensor) -> Tensor:
        return -plait.log1p(-value) / self.rate

    def entropy(self) -> Tensor:
        return 1 - self.rate.log()

    def expand(self, batch_shape: Sequence[int]) -> Distribution:
        return Exponential(self.rate.expand(batch_shape), validate_args=False)

    def _parameters(self) -> dict[str, Tensor]:
        return {"rate": self.rate}


class Uniform(Distribution):
    """The uniform distribution from low up to high."""

    has_rsample = True

    def __init__(self, low: Tensor | float, high: Tensor | float, validate_args: bool | None = None) -> None:
        self.low, self.high = tensors(low, high)
        super().__init__(self.low.shape, validate_args=validate_args)
        self._check("high", self.high, self.low < self.high, f"above low, {self.low}")

    @property
    def mean(self) -> Tensor:
        return (self.low + self.high) / 2

    @property
    def variance(self) -> Tensor:
        return (self.high - self.low).square() / 12

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        u = plait.rand(self._extended_shape(sample_shape), dtype=self.low.dtype, device=self.low.device)
        return self.low + u * (self.high - self.low)

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_value(value, lambda v: (v >= self.low) & (v <= self.high), f"from {self.low} to {self.high}")
        inside = (value >= self.low) & (value < self.high)
        return plait.where(inside, -(self.high - self.low).log(), -math.inf)

    def cdf(self, value: Tensor) -> Tensor:
        self._check_value(value)
        return ((value - self.low) / (self.high - self.low)).clamp(0, 1)

    def icdf(self, value: Tensor) -> Tensor:
        return self.low + value * (self.high - self.low)

    def entropy(self) -> Tensor:
        return (self.high - self.low).log()

    def expand(self, batch_shape: Sequence[int]) -> Distribution:
        return Uniform(self.low.expand(batch_shape), self.high.expand(batch_shape), validate_args=False)

    def _parameters(self) -> dict[str, Tensor]:
        return {"low": self.low, "high": self.high}
