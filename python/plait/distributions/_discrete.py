"""Distributions of classes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import copy
from typing import Any

import plait
from plait import Tensor
from plait.distributions import constraints
from plait.distributions._distribution import Distribution, Elementwise
from plait.distributions.constraints import Constraint
from plait.distributions.utils import broadcast_all, probs_to_logits
from plait.nn import functional as F


def either(name: str, probs: object, logits: object) -> None:
    """Raises ValueError unless one of the two is given."""
    if (probs is None) == (logits is None):
        raise ValueError(f"{name}: want either probs or logits, got {'neither' if probs is None else 'both'}")


def odds(name: str, probs: Tensor | float | None, logits: Tensor | float | None) -> tuple[Tensor, Tensor]:
    """Returns probabilities and logits, log(p / (1 - p)), of which one is given."""
    either(name, probs, logits)
    if probs is not None:
        (p,) = broadcast_all(probs)
        return p, probs_to_logits(p, is_binary=True)
    assert logits is not None
    (given,) = broadcast_all(logits)
    return given.sigmoid(), given


class Bernoulli(Elementwise):
    """0 or 1, 1 with the probability probs, or sigmoid(logits)."""

    support = constraints.boolean

    probs: Tensor
    logits: Tensor

    def __init__(
        self,
        probs: Tensor | float | None = None,
        logits: Tensor | float | None = None,
        validate_args: bool | None = None,
    ) -> None:
        p, given = odds("Bernoulli", probs, logits)
        self._set(validate_args, probs=p, logits=given)
        self._check("probs", self.probs, (self.probs >= 0) & (self.probs <= 1), "from 0 to 1")

    @property
    def mean(self) -> Tensor:
        return self.probs

    @property
    def mode(self) -> Tensor:
        """The likelier value, NaN where both are equally likely."""
        return plait.where(self.probs == 0.5, math.nan, (self.probs > 0.5).to(self.probs.dtype))

    @property
    def variance(self) -> Tensor:
        return self.probs * (1 - self.probs)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        with plait.no_grad():
            return plait.bernoulli(self.probs.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_value(value)
        logits, value = plait.broadcast_tensors(self.logits, value)
        return -F.binary_cross_entropy_with_logits(logits, value, reduction="none")

    def entropy(self) -> Tensor:
        return F.binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none")

    def enumerate_support(self, expand: bool = True) -> Tensor:
        values = plait.arange(2, dtype=self.probs.dtype, device=self.probs.device)
        return self._support(values, expand)

    def _shown(self) -> dict[str, Tensor]:
        return {"probs": self.probs}


class Categorical(Distribution):
    """A class 0, ..., n-1, with probabilities in proportion to the last dimension of probs, or softmax(logits)."""

    def __init__(
        self, probs: Tensor | None = None, logits: Tensor | None = None, validate_args: bool | None = None
    ) -> None:
        either(type(self).__name__, probs, logits)
        given: Any = logits if probs is None else probs
        if given.ndim < 1:
            raise ValueError(f"{type(self).__name__}: want parameters of at least one dimension, got a 0-d tensor")
        total = given.sum(-1, keepdim=True)
        if probs is not None:
            self.probs = probs / total
            self.logits = probs_to_logits(self.probs)
        else:
            self.logits = given.log_softmax(-1)
            self.probs = self.logits.exp()
        super().__init__(given.shape[:-1], self._event_of(given.shape[-1]), validate_args)
        if probs is not None:
            self._check("probs", probs, (probs >= 0) & (total > 0), "0 or more and not all 0")
        else:
            self._check("logits", given, ~given.isnan(), "numbers")

    @staticmethod
    def _event_of(classes: int) -> tuple[int, ...]:
        return ()

    @property
    def support(self) -> Constraint:
        return constraints.integer_interval(0, self.probs.shape[-1] - 1)

    @property
    def mean(self) -> Tensor:
        return plait.full_like(self.probs[..., 0], math.nan)

    @property
    def mode(self) -> Tensor:
        """The likeliest class."""
        return self.probs.argmax(-1)

    @property
    def variance(self) -> Tensor:
        return plait.full_like(self.probs[..., 0], math.nan)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self._classes(sample_shape)

    def _classes(self, sample_shape: Sequence[int]) -> Tensor:
        shape = plait.Size(sample_shape)
        with plait.no_grad():
            rows = self.probs.reshape(-1, self.probs.shape[-1])
            if shape.numel() * rows.shape[0] == 0:
                return plait.zeros(shape + self._batch_shape, dtype=plait.int64, device=rows.device)
            return plait.multinomial(rows, shape.numel(), True).T.reshape(shape + self._batch_shape)

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_value(value)
        value, logits = plait.broadcast_tensors(value.long().unsqueeze(-1), self.logits)
        return logits.gather(-1, value[..., :1]).squeeze(-1)

    def entropy(self) -> Tensor:
        least = plait.finfo(self.logits.dtype).min
        return -(self.logits.clamp(min=least) * self.probs).sum(-1)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        return self._support(plait.arange(self.probs.shape[-1], device=self.probs.device), expand)

    def _expanded(self, batch_shape: plait.Size) -> Distribution:
        made, shape = copy(self), (*batch_shape, self.probs.shape[-1])
        made.probs, made.logits = self.probs.expand(shape), self.logits.expand(shape)
        made._batch_shape = batch_shape
        return made

    def _shown(self) -> dict[str, Tensor]:
        return {"probs": self.probs}


class OneHotCategorical(Categorical):
    """A vector with 1 at the place of a class of `Categorical`, and 0 elsewhere."""

    @staticmethod
    def _event_of(classes: int) -> tuple[int, ...]:
        return (classes,)

    @property
    def support(self) -> Constraint:
        return constraints.one_hot

    @property
    def mean(self) -> Tensor:
        return self.probs

    @property
    def mode(self) -> Tensor:
        """The likeliest vector."""
        return F.one_hot(self.probs.argmax(-1), self.probs.shape[-1]).to(self.probs.dtype)

    @property
    def variance(self) -> Tensor:
        return self.probs * (1 - self.probs)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return F.one_hot(self._classes(sample_shape), self.probs.shape[-1]).to(self.probs.dtype)

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_value(value)
        return (value * self.logits).sum(-1)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        n = self.probs.shape[-1]
        values = plait.eye(n, dtype=self.probs.dtype, device=self.probs.device)
        values = values.reshape(n, *(1 for _ in self._batch_shape), n)
        return values.expand(n, *self._batch_shape, n) if expand else values


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """`OneHotCategorical` whose draws pass their gradients on to the probabilities as they are."""

    has_rsample = True

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self.sample(sample_shape) + (self.probs - self.probs.detach())
