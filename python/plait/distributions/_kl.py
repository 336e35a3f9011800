"""Kullback-Leibler divergences of pairs of distributions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import plait
from plait import Tensor
from plait.distributions._continuous import Exponential, Laplace, Normal, Uniform
from plait.distributions._discrete import Bernoulli, Categorical
from plait.distributions._distribution import Distribution
from plait.distributions._independent import Independent, sum_last
from plait.distributions._multivariate import MultivariateNormal
from plait.distributions._transformed import LogNormal

Divergence = Callable[[Any, Any], Tensor]
_known: dict[tuple[type, type], Divergence] = {}


def register_kl(type_p: type, type_q: type) -> Callable[[Divergence], Divergence]:
    """Returns a decorator for the function (p, q) that computes the divergence of two types of distributions."""
    for t in (type_p, type_q):
        if not (isinstance(t, type) and issubclass(t, Distribution)):
            raise TypeError(f"register_kl: want subclasses of Distribution, got {t!r}")

    def register(fn: Divergence) -> Divergence:
        _known[type_p, type_q] = fn
        return fn

    return register


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """Returns the Kullback-Leibler divergence of p from q, the mean of log p(x) - log q(x) over draws x of p.

    Its shape is the batch shape.

    Raises:
        NotImplementedError: for a pair that nobody registered a function for
    """
    for a in type(p).__mro__:
        for b in type(q).__mro__:
            if (fn := _known.get((a, b))) is not None:
                return fn(p, q)
    raise NotImplementedError(
        f"kl_divergence: no function for {type(p).__name__} from {type(q).__name__}; register_kl adds one"
    )


@register_kl(Normal, Normal)
def _normal(p: Normal, q: Normal) -> Tensor:
    ratio = (p.scale / q.scale).square()
    return (ratio + ((p.loc - q.loc) / q.scale).square() - 1 - ratio.log()) / 2


@register_kl(LogNormal, LogNormal)
def _log_normal(p: LogNormal, q: LogNormal) -> Tensor:
    return _normal(p.base_dist, q.base_dist)


@register_kl(Laplace, Laplace)
def _laplace(p: Laplace, q: Laplace) -> Tensor:
    d = (p.loc - q.loc).abs()
    return (q.scale / p.scale).log() + (p.scale * (-d / p.scale).exp() + d) / q.scale - 1


@register_kl(Exponential, Exponential)
def _exponential(p: Exponential, q: Exponential) -> Tensor:
    ratio = q.rate / p.rate
    return ratio - 1 - ratio.log()


@register_kl(Uniform, Uniform)
def _uniform(p: Uniform, q: Uniform) -> Tensor:
    value = ((q.high - q.low) / (p.high - p.low)).log()
    return plait.where((q.low > p.low) | (q.high < p.high), math.inf, value)


@register_kl(Bernoulli, Bernoulli)
def _bernoulli(p: Bernoulli, q: Bernoulli) -> Tensor:
    logits, probs = plait.broadcast_tensors(q.logits, p.probs)
    value = plait.nn.functional.binary_cross_entropy_with_logits(logits, probs, reduction="none") - p.entropy()
    return plait.where((q.probs == 0) & (p.probs > 0) | (q.probs == 1) & (p.probs < 1), math.inf, value)


@register_kl(Categorical, Categorical)
def _categorical(p: Categorical, q: Categorical) -> Tensor:
    terms = plait.where(q.probs > 0, p.probs * (p.logits - q.logits), math.inf)
    return plait.where(p.probs > 0, terms, 0.0).sum(-1)


@register_kl(MultivariateNormal, MultivariateNormal)
def _multivariate(p: Any, q: Any) -> Tensor:
    if p.event_shape != q.event_shape:
        raise ValueError(f"kl_divergence: events of shapes {list(p.event_shape)} and {list(q.event_shape)}")
    n = p.event_shape[0]
    batch = plait.broadcast_shapes(tuple(p.batch_shape), tuple(q.batch_shape))
    p, q = p.expand(batch), q.expand(batch)
    spread = plait.linalg.solve_triangular(q.scale_tril, p.scale_tril, upper=False).square().sum((-2, -1))
    z = plait.linalg.solve_triangular(q.scale_tril, (q.loc - p.loc).unsqueeze(-1), upper=False).square().sum((-2, -1))
    return (spread + z - n) / 2 + q._half_log_det() - p._half_log_det()


@register_kl(Independent, Independent)
def _independent(p: Independent, q: Independent) -> Tensor:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotImplementedError(
            "kl_divergence: want Independent of as many dimensions, "
            f"got {p.reinterpreted_batch_ndims} and {q.reinterpreted_batch_ndims}"
        )
    return sum_last(kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims)
