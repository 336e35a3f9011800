"""Distributions of functions of random variables."""

from __future__ import annotations

from collections.abc import Sequence

import plait
from plait import Tensor
from plait.distributions import constraints
from plait.distributions._continuous import Normal
from plait.distributions._distribution import Distribution
from plait.distributions._independent import Independent
from plait.distributions._transform_base import Transform
from plait.distributions._transform_joins import ComposeTransform
from plait.distributions.constraints import Constraint, of_more
from plait.distributions.transforms import ExpTransform, StickBreakingTransform
from plait.distributions.utils import _sum_rightmost


class TransformedDistribution(Distribution):
    """What transforms, applied one after the other, make of the draws of a distribution."""

    def __init__(
        self,
        base_distribution: Distribution,
        transforms: Transform | Sequence[Transform],
        validate_args: bool | None = None,
    ) -> None:
        self.transforms = [transforms] if isinstance(transforms, Transform) else list(transforms)
        whole = ComposeTransform(self.transforms)
        before = base_distribution.batch_shape + base_distribution.event_shape
        events = len(base_distribution.event_shape)
        if len(before) < whole.domain.event_dim:
            raise ValueError(
                f"{type(self).__name__}: the transforms want draws of at least {whole.domain.event_dim} dimensions, "
                f"got shape {list(before)}"
            )
        shape = whole.forward_shape(before)
        wanted = whole.inverse_shape(shape)
        if wanted != before:  # a draw for each of the transforms' parameters
            base_distribution = base_distribution.expand(wanted[: len(wanted) - events])
        if whole.domain.event_dim > events:
            base_distribution = Independent(base_distribution, whole.domain.event_dim - events)
        self.base_dist = base_distribution
        after = max(whole.codomain.event_dim, events + whole.codomain.event_dim - whole.domain.event_dim)
        cut = len(shape) - after
        super().__init__(shape[:cut], shape[cut:], validate_args)
        self.has_rsample = base_distribution.has_rsample

    @property
    def support(self) -> Constraint:
        if not self.transforms:
            return self.base_dist.support
        last = self.transforms[-1].codomain
        return of_more(last, len(self.event_shape) - last.event_dim)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self._through(self.base_dist.sample(sample_shape)).detach()

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self._through(self.base_dist.rsample(sample_shape))

    def _through(self, x: Tensor) -> Tensor:
        for t in self.transforms:
            x = t(x)
        return x

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_shape(value)
        slopes, y, events = None, value, len(self.event_shape)
        for t in reversed(self.transforms):
            x = t.inv(y)
            events += t.domain.event_dim - t.codomain.event_dim
            slope = _sum_rightmost(t.log_abs_det_jacobian(x, y), events - t.domain.event_dim)
            slopes = slope if slopes is None else slopes + slope
            y = x
        base = _sum_rightmost(self.base_dist.log_prob(y), events - len(self.base_dist.event_shape))
        return base if slopes is None else base - slopes

    def _rising(self, probability: Tensor) -> Tensor:
        """Returns a probability of at most a value as one of at least it, if the transforms turn the order around."""
        for t in self.transforms:
            probability = t.sign * (probability - 0.5) + 0.5
        return probability

    def cdf(self, value: Tensor) -> Tensor:
        self._check_shape(value)
        for t in reversed(self.transforms):
            value = t.inv(value)
        return self._rising(self.base_dist.cdf(value))

    def icdf(self, value: Tensor) -> Tensor:
        return self._through(self.base_dist.icdf(self._rising(value)))

    def _expanded(self, batch_shape: plait.Size) -> Distribution:
        shape = ComposeTransform(self.transforms).inverse_shape((*batch_shape, *self.event_shape))
        base = self.base_dist.expand(shape[: len(shape) - len(self.base_dist.event_shape)])
        return TransformedDistribution(base, self.transforms, validate_args=False)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_dist}, {self.transforms})"


class LogNormal(TransformedDistribution):
    """The exponential of a normal variable with mean loc and standard deviation scale."""

    has_rsample = True

    support = constraints.positive
    base_dist: Normal

    def __init__(self, loc: Tensor | float, scale: Tensor | float, validate_args: bool | None = None) -> None:
        super().__init__(Normal(loc, scale, validate_args), ExpTransform(), validate_args)

    @property
    def loc(self) -> Tensor:
        """The mean of the logarithm."""
        return self.base_dist.loc

    @property
    def scale(self) -> Tensor:
        """The standard deviation of the logarithm."""
        return self.base_dist.scale

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
        self._check_value(value)
        return super().log_prob(value)

    def entropy(self) -> Tensor:
        return self.base_dist.entropy() + self.loc

    def _expanded(self, batch_shape: plait.Size) -> Distribution:
        return LogNormal(self.loc.expand(batch_shape), self.scale.expand(batch_shape), validate_args=False)


class LogisticNormal(TransformedDistribution):
    """Shares [..., n + 1] that `StickBreakingTransform` makes of normal variables [..., n] with loc and scale."""

    has_rsample = True

    base_dist: Independent

    def __init__(self, loc: Tensor | float, scale: Tensor | float, validate_args: bool | None = None) -> None:
        base: Distribution = Normal(loc, scale, validate_args)
        super().__init__(base if base.batch_shape else base.expand((1,)), StickBreakingTransform(), validate_args)

    @property
    def loc(self) -> Tensor:
        """The mean of the normal variables."""
        return self.base_dist.base_dist.mean

    @property
    def scale(self) -> Tensor:
        """Their standard deviation."""
        return self.base_dist.base_dist.stddev

    def _expanded(self, batch_shape: plait.Size) -> Distribution:
        shape = (*batch_shape, self.loc.shape[-1])
        return LogisticNormal(self.loc.expand(shape), self.scale.expand(shape), validate_args=False)
