"""Coins and classes made continuous, so that gradients reach their parameters through draws."""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import copy

import plait
from plait import Tensor
from plait.distributions import constraints
from plait.distributions._discrete import Categorical, odds
from plait.distributions._distribution import Distribution, Elementwise
from plait.distributions.utils import broadcast_all, clamp_probs
from plait.nn import functional as F


def _temperature(temperature: Tensor | float, like: Tensor) -> Tensor:
    """Returns a temperature as a tensor."""
    return broadcast_all(temperature)[0].to(like.dtype).to(like.device)


class RelaxedBernoulli(Elementwise):
    """The concrete distribution: sigmoid((logits + noise) / temperature), near 0 or 1 if the temperature is low.

    Args:
        temperature: positive; the lower, the nearer draws are to those of `Bernoulli`
        probs: probabilities of 1, or
        logits: log(p / (1 - p)) of them
        validate_args: whether parameters and values are checked
    """

    support = constraints.unit_interval
    has_rsample = True
    probs: Tensor
    logits: Tensor

    def __init__(
        self,
        temperature: Tensor | float,
        probs: Tensor | float | None = None,
        logits: Tensor | float | None = None,
        validate_args: bool | None = None,
    ) -> None:
        p, given = odds("RelaxedBernoulli", probs, logits)
        self.temperature = _temperature(temperature, p)
        self._set(validate_args, probs=p, logits=given)
        self._check("probs", self.probs, (self.probs >= 0) & (self.probs <= 1), "from 0 to 1")
        self._must("temperature")

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        info = plait.finfo(self.logits.dtype)
        u = self._uniform(sample_shape).clamp(max=1 - info.eps / 2)
        y = (self.logits + u.log() - plait.log1p(-u)) / self.temperature
        return y.sigmoid().clamp(info.tiny, 1 - info.eps / 2)

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_value(value)
        info = plait.finfo(value.dtype)
        x = value.clamp(info.tiny, 1 - info.eps)
        y = x.log() - plait.log1p(-x)
        d = self.logits - y * self.temperature
        return self.temperature.log() + d - 2 * F.softplus(d) + F.softplus(-y) + F.softplus(y)

    def _shown(self) -> dict[str, Tensor]:
        return {"temperature": self.temperature, "probs": self.probs}


class RelaxedOneHotCategorical(Distribution):
    """The concrete distribution of shares: softmax((logits + noise) / temperature), near a `OneHotCategorical` draw.

    Args:
        temperature: positive; the lower, the nearer draws are to vectors with a single 1
        probs: [..., n], probabilities up to a factor, or
        logits: [..., n], their logarithms
        validate_args: whether parameters and values are checked
    """

    support = constraints.simplex
    has_rsample = True

    def __init__(
        self,
        temperature: Tensor | float,
        probs: Tensor | None = None,
        logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        classes = Categorical(probs, logits, validate_args)
        self.probs, self.logits = classes.probs, classes.logits
        self.temperature = _temperature(temperature, self.probs)
        super().__init__(classes.batch_shape, self.probs.shape[-1:], validate_args)
        self._check("temperature", self.temperature, self.temperature > 0, "positive")

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape, like = self._extended_shape(sample_shape), self.logits
        info = plait.finfo(like.dtype)
        u = plait.rand(shape, dtype=like.dtype, device=like.device).clamp(info.tiny, 1 - info.eps / 2)
        return ((like - (-u.log()).log()) / self.temperature).softmax(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_value(value)
        n, y = self.logits.shape[-1], value.log()
        score = (self.logits - y * self.temperature).log_softmax(-1).sum(-1)
        return score + math.lgamma(n) + (n - 1) * self.temperature.log() - y.sum(-1)

    def _expanded(self, batch_shape: plait.Size) -> Distribution:
        made, shape = copy(self), (*batch_shape, self.probs.shape[-1])
        made.probs, made.logits = self.probs.expand(shape), self.logits.expand(shape)
        made._batch_shape = batch_shape
        return made

    def _shown(self) -> dict[str, Tensor]:
        return {"temperature": self.temperature, "probs": self.probs}


class ContinuousBernoulli(Elementwise):
    """The distribution with density proportional to probs^x (1 - probs)^(1 - x), for x from 0 to 1.

    Args:
        probs: from 0 to 1, or
        logits: log(probs / (1 - probs))
        lims: between these, where the formulas divide 0 by 0, series take their place
        validate_args: whether parameters and values are checked
    """

    support = constraints.unit_interval
    has_rsample = True
    probs: Tensor
    logits: Tensor

    def __init__(
        self,
        probs: Tensor | float | None = None,
        logits: Tensor | float | None = None,
        lims: tuple[float, float] = (0.499, 0.501),
        validate_args: bool | None = None,
    ) -> None:
        p, given = odds("ContinuousBernoulli", probs, logits)
        self._lims = lims
        self._set(validate_args, probs=p, logits=given)
        self._check("probs", self.probs, (self.probs >= 0) & (self.probs <= 1), "from 0 to 1")
        self.probs = clamp_probs(self.probs)

    def _parts(self) -> tuple[Tensor, Tensor, Tensor]:
        """Returns where the formulas hold, a probability for them, and its distance from 1/2 for the series."""
        p = self.probs
        away = (p <= self._lims[0]) | (p > self._lims[1])
        return away, plait.where(away, p, self._lims[0]), plait.where(away, 0.0, p - 0.5)

    def _log_norm(self) -> Tensor:
        away, p, x = self._parts()
        formula = (plait.log1p(-p) - p.log()).abs().log() - (1 - 2 * p).abs().log()
        x = x.square()
        return plait.where(away, formula, math.log(2) + (4 / 3 + 104 / 45 * x) * x)

    @property
    def mean(self) -> Tensor:
        away, p, x = self._parts()
        formula = p / (2 * p - 1) + 1 / (plait.log1p(-p) - p.log())
        return plait.where(away, formula, 0.5 + (1 / 3 + 16 / 45 * x.square()) * x)

    @property
    def variance(self) -> Tensor:
        away, p, x = self._parts()
        formula = p * (p - 1) / (1 - 2 * p).square() + 1 / (plait.log1p(-p) - p.log()).square()
        x = x.square()
        return plait.where(away, formula, 1 / 12 - (1 / 15 - 128 / 945 * x) * x)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self.icdf(self._uniform(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_value(value)
        logits, x = plait.broadcast_tensors(self.logits, value)
        return self._log_norm() - F.binary_cross_entropy_with_logits(logits, x, reduction="none")

    def cdf(self, value: Tensor) -> Tensor:
        self._check_value(value)
        away, p, _ = self._parts()
        formula = (p.pow(value) * (1 - p).pow(1 - value) + p - 1) / (2 * p - 1)
        return plait.where(away, formula, value).clamp(0, 1)

    def icdf(self, value: Tensor) -> Tensor:
        away, p, _ = self._parts()
        low = plait.log1p(-p)
        return plait.where(away, (plait.log1p(-p + value * (2 * p - 1)) - low) / (p.log() - low), value)

    def entropy(self) -> Tensor:
        low = plait.log1p(-self.probs)
        return self.mean * (low - self.probs.log()) - self._log_norm() - low

    def _shown(self) -> dict[str, Tensor]:
        return {"probs": self.probs}
