"""Distributions of functions of random variables."""

from __future__ import annotations

from collections.abc import Sequence

from plait import Tensor
from plait.distributions._continuous import Normal
from plait.distributions._distribution import Distribution
from plait.distributions._independent import sum_last
from plait.distributions.transforms import ComposeTransform, ExpTransform, Transform


class TransformedDistribution(Distribution):
    """What transforms, applied one after the other, make of the draws of a distribution."""

    def __init__(
        self,
        base_distribution: Distribution,
        transforms: Transform | Sequence[Transform],
        validate_args: bool | None = None,
    ) -> None:
        self.transforms = [transforms] if isinstance(transforms, Transform) else list(transforms)
        before = base_distribution.batch_shape + base_distribution.event_shape
        shape = ComposeTransform(self.transforms).forward_shape(before)
        if shape != before:  # a draw for each of the transforms' parameters
            base_distribution = base_distribution.expand(shape[: len(shape) - len(base_distribution.event_shape)])
        self.base_dist = base_distribution
        super().__init__(base_distribution.batch_shape, base_distribution.event_shape, validate_args)
        self.has_rsample = base_distribution.has_rsample

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self._through(self.base_dist.sample(sample_shape)).detach()

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self._through(self.base_dist.rsample(sample_shape))

    def _through(self, x: Tensor) -> Tensor:
        for t in self.transforms:
            x = t(x)
        return x

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_value(value)
        slopes, y = None, value
        for t in reversed(self.transforms):
            x = t.inv(y)
            slope = t.log_abs_det_jacobian(x, y)
            slopes = slope if slopes is None else slopes + slope
            y = x
        base = self.base_dist.log_prob(y)
        return base if slopes is None else base - sum_last(slopes, len(self.event_shape))

    def _rising(self, probability: Tensor) -> Tensor:
        """Returns a probability of at most a value as one of at least it, if the transforms turn the order around."""
        for t in self.transforms:
            probability = t.sign * (probability - 0.5) + 0.5
        return probability

    def cdf(self, value: Tensor) -> Tensor:
        self._check_value(value)
        for t in reversed(self.transforms):
            value = t.inv(value)
        return self._rising(self.base_dist.cdf(value))

    def icdf(self, value: Tensor) -> Tensor:
        return self._through(self.base_dist.icdf(self._rising(value)))

    def expand(self, batch_shape: Sequence[int]) -> Distribution:
        return TransformedDistribution(self.base_dist.expand(batch_shape), self.transforms, validate_args=False)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_dist}, {self.transforms})"


class LogNormal(TransformedDistribution):
    """The exponential of a normal variable with mean loc and standard deviation scale."""

    def __init__(self, loc: Tensor | float, scale: Tensor | float, validate_args: bool | None = None) -> None:
        base = Normal(loc, scale, validate_args)
        super().__init__(base, ExpTransform(), validate_args)
        self.loc, self.scale = base.loc, base.scale  # of the logarithm

    @property
    def mean(self) -> Tensor:
        return (self.loc + self.scale.square() / 2).exp()

    @property
    def mode(self) -> Tensor:
        """Where the density is highest."""
        return (self.loc - self.scale.square()).exp()

    @property
    def variance(self) -> Tensor:
        s = self.scale.square()
        return s.expm1() * (2 * self.loc + s).exp()

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_value(value, lambda v: v > 0, "positive")
        return super().log_prob(value)

    def entropy(self) -> Tensor:
        return self.base_dist.entropy() + self.loc

    def expand(self, batch_shape: Sequence[int]) -> Distribution:
        return LogNormal(self.loc.expand(batch_shape), self.scale.expand(batch_shape), validate_args=False)
