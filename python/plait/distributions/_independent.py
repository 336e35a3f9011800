"""Batches of a distribution as one event."""

from __future__ import annotations

from collections.abc import Sequence

import plait
from plait import Tensor
from plait.distributions._distribution import Distribution
from plait.distributions.constraints import Constraint, of_more
from plait.distributions.utils import _sum_rightmost


class Independent(Distribution):
    """A distribution whose last batch dimensions belong to the event: log-probabilities are summed over them.

    Raises:
        ValueError: for more dimensions than the batch shape has
    """

    def __init__(
        self, base_distribution: Distribution, reinterpreted_batch_ndims: int, validate_args: bool | None = None
    ) -> None:
        base, n = base_distribution, reinterpreted_batch_ndims
        if not 0 <= n <= len(base.batch_shape):
            raise ValueError(
                f"Independent: want 0 to {len(base.batch_shape)} dimensions of batch shape {list(base.batch_shape)}, "
                f"got {n}"
            )
        kept = len(base.batch_shape) - n
        self.base_dist, self.reinterpreted_batch_ndims = base, n
        super().__init__(base.batch_shape[:kept], base.batch_shape[kept:] + base.event_shape, validate_args)
        self.has_rsample = base.has_rsample

    @property
    def support(self) -> Constraint:
        return of_more(self.base_dist.support, self.reinterpreted_batch_ndims)

    @property
    def mean(self) -> Tensor:
        return self.base_dist.mean

    @property
    def variance(self) -> Tensor:
        return self.base_dist.variance

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self.base_dist.sample(sample_shape)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self.base_dist.rsample(sample_shape)

    def log_prob(self, value: Tensor) -> Tensor:
        return _sum_rightmost(self.base_dist.log_prob(value), self.reinterpreted_batch_ndims)

    def entropy(self) -> Tensor:
        return _sum_rightmost(self.base_dist.entropy(), self.reinterpreted_batch_ndims)

    def _expanded(self, batch_shape: plait.Size) -> Distribution:
        own = self.event_shape[: self.reinterpreted_batch_ndims]
        return Independent(self.base_dist.expand((*batch_shape, *own)), self.reinterpreted_batch_ndims)

    def __repr__(self) -> str:
        return f"Independent({self.base_dist}, {self.reinterpreted_batch_ndims})"
