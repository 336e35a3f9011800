"""Mixtures."""

from __future__ import annotations

from collections.abc import Sequence

import plait
from plait import Tensor
from plait.distributions._discrete import Categorical, OneHotCategorical
from plait.distributions._distribution import Distribution
from plait.distributions.constraints import Constraint


class MixtureSameFamily(Distribution):
    """A draw of one of several distributions of a family, which one being drawn too.

    Args:
        mixture_distribution: which one, with as many classes as there are components
        component_distribution: the components, along the last dimension of its batch shape
        validate_args: whether values are checked

    Raises:
        ValueError: if these do not fit each other.
    """

    def __init__(
        self,
        mixture_distribution: Categorical,
        component_distribution: Distribution,
        validate_args: bool | None = None,
    ) -> None:
        mix, parts = mixture_distribution, component_distribution
        if not isinstance(mix, Categorical) or isinstance(mix, OneHotCategorical):
            raise ValueError(f"MixtureSameFamily: want a Categorical of components, got {type(mix).__name__}")
        if not isinstance(parts, Distribution):
            raise ValueError(f"MixtureSameFamily: want a distribution of components, got {type(parts).__name__}")
        n = mix.probs.shape[-1]
        if not parts.batch_shape or parts.batch_shape[-1] != n:
            raise ValueError(
                f"MixtureSameFamily: want components of batch shape [..., {n}], as many as classes, "
                f"got {list(parts.batch_shape)}"
            )
        batch = plait.broadcast_shapes(tuple(mix.batch_shape), tuple(parts.batch_shape[:-1]))
        self._mixture, self._components = mix, parts
        super().__init__(batch, parts.event_shape, validate_args)

    @property
    def support(self) -> Constraint:
        return self._components.support

    @property
    def mixture_distribution(self) -> Categorical:
        """Which component it is."""
        return self._mixture

    @property
    def component_distribution(self) -> Distribution:
        """The components."""
        return self._components

    def _weighted(self, values: Tensor) -> Tensor:
        """Returns the sum over components, of values [..., n, *event_shape]."""
        events = len(self._event_shape)
        weights = self._mixture.probs.reshape(*self._mixture.probs.shape, *(1 for _ in range(events)))
        return (weights * values).sum(-1 - events)

    @property
    def mean(self) -> Tensor:
        return self._weighted(self._components.mean)

    @property
    def variance(self) -> Tensor:
        mean = self.mean.unsqueeze(-1 - len(self._event_shape))
        return self._weighted(self._components.variance + (self._components.mean - mean).square())

    def _for_each(self, value: Tensor) -> Tensor:
        return value.unsqueeze(-1 - len(self._event_shape))

    def log_prob(self, x: Tensor) -> Tensor:
        self._check_shape(x)
        parts = self._components.log_prob(self._for_each(x))
        return (parts + self._mixture.logits.log_softmax(-1)).logsumexp(-1)

    def cdf(self, x: Tensor) -> Tensor:
        self._check_shape(x)
        return (self._components.cdf(self._for_each(x)) * self._mixture.probs).sum(-1)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        with plait.no_grad():
            events = len(self._event_shape)
            which = self._mixture.expand(self._batch_shape).sample(sample_shape)
            parts = self._components.expand((*self._batch_shape, self._components.batch_shape[-1])).sample(sample_shape)
            index = which.reshape(*which.shape, 1, *(1 for _ in range(events)))
            index = index.expand(*which.shape, 1, *self._event_shape)
            return parts.gather(-1 - events, index).squeeze(-1 - events)

    def _expanded(self, batch_shape: plait.Size) -> Distribution:
        n = self._components.batch_shape[-1]
        mixture = self._mixture.expand(batch_shape)
        assert isinstance(mixture, Categorical)
        return MixtureSameFamily(mixture, self._components.expand((*batch_shape, n)), self._validate_args)

    def __repr__(self) -> str:
        return f"MixtureSameFamily({self._mixture}, {self._components})"
