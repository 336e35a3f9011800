"""Kullback-Leibler divergences of pairs of distributions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import plait
from plait import Tensor
from plait.distributions._continuous import Exponential, Laplace, Normal, Uniform
from plait.distributions._counts import Binomial, Geometric, Poisson
from plait.distributions._discrete import Bernoulli, Categorical
from plait.distributions._distribution import Distribution, ExponentialFamily
from plait.distributions._gamma import Beta, Dirichlet, Gamma
from plait.distributions._independent import Independent
from plait.distributions._multivariate import LowRankMultivariateNormal, MultivariateNormal
from plait.distributions._relaxed import ContinuousBernoulli
from plait.distributions._tails import EULER, Cauchy, Gumbel, HalfNormal, Pareto
from plait.distributions._transformed import LogNormal, TransformedDistribution
from plait.distributions.utils import _sum_rightmost

Divergence = Callable[[Any, Any], Tensor]
_known: dict[tuple[type, type], Divergence] = {}


def register_kl(type_p: type, type_q: type) -> Callable[[Divergence], Divergence]:
    """Returns a decorator for the function (p, q) that computes the divergence of two types of distributions."""
    for t in (type_p, type_q):
        if not isinstance(t, type):  # any class: distributions of others may have a base of their own
            raise TypeError(f"register_kl: want classes of distributions, got {t!r}")

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
    return _sum_rightmost(kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims)


@register_kl(TransformedDistribution, TransformedDistribution)
def _transformed(p: TransformedDistribution, q: TransformedDistribution) -> Tensor:
    if p.transforms != q.transforms:
        raise NotImplementedError(f"kl_divergence: want the same transforms, got {p.transforms} and {q.transforms}")
    return kl_divergence(p.base_dist, q.base_dist)


@register_kl(HalfNormal, HalfNormal)
def _half_normal(p: HalfNormal, q: HalfNormal) -> Tensor:
    ratio = (p.scale / q.scale).square()
    return (ratio - 1 - ratio.log()) / 2


@register_kl(Cauchy, Cauchy)
def _cauchy(p: Cauchy, q: Cauchy) -> Tensor:
    return (((p.scale + q.scale).square() + (p.loc - q.loc).square()) / (4 * p.scale * q.scale)).log()


@register_kl(Gumbel, Gumbel)
def _gumbel(p: Gumbel, q: Gumbel) -> Tensor:
    ratio, d = p.scale / q.scale, (p.loc - q.loc) / q.scale
    return -ratio.log() + d + ratio * EULER + ((1 + ratio).lgamma() - d).exp() - (1 + EULER)


@register_kl(Pareto, Pareto)
def _pareto(p: Pareto, q: Pareto) -> Tensor:
    ratio = q.alpha / p.alpha
    value = q.alpha * (p.scale / q.scale).log() - ratio.log() + ratio - 1
    return plait.where(p.scale < q.scale, math.inf, value)


@register_kl(Gamma, Gamma)
def _gamma(p: Gamma, q: Gamma) -> Tensor:
    a, b = p.concentration, q.concentration
    terms = b * (p.rate / q.rate).log() + b.lgamma() - a.lgamma() + (a - b) * a.digamma()
    return terms + (q.rate - p.rate) * a / p.rate


def _beta_parts(p: Beta) -> Tensor:
    return plait.stack((p.concentration1, p.concentration0), -1)


@register_kl(Beta, Beta)
def _beta(p: Beta, q: Beta) -> Tensor:
    return _dirichlet(Dirichlet(_beta_parts(p), False), Dirichlet(_beta_parts(q), False))


@register_kl(Dirichlet, Dirichlet)
def _dirichlet(p: Dirichlet, q: Dirichlet) -> Tensor:
    a, b = p.concentration, q.concentration
    total = a.sum(-1)
    norms = total.lgamma() - b.sum(-1).lgamma() - (a.lgamma() - b.lgamma()).sum(-1)
    return norms + ((a - b) * (a.digamma() - total.digamma().unsqueeze(-1))).sum(-1)


@register_kl(ContinuousBernoulli, ContinuousBernoulli)
def _continuous_bernoulli(p: ContinuousBernoulli, q: ContinuousBernoulli) -> Tensor:
    ends = plait.log1p(-p.probs) - plait.log1p(-q.probs)
    return p.mean * (p.logits - q.logits) + p._log_norm() - q._log_norm() + ends


@register_kl(Poisson, Poisson)
def _poisson(p: Poisson, q: Poisson) -> Tensor:
    return plait.xlogy(p.rate, p.rate / q.rate) - (p.rate - q.rate)


@register_kl(Geometric, Geometric)
def _geometric(p: Geometric, q: Geometric) -> Tensor:
    return -p.entropy() - plait.log1p(-q.probs) / p.probs - q.logits


@register_kl(Binomial, Binomial)
def _binomial(p: Binomial, q: Binomial) -> Tensor:
    if bool((p.total_count < q.total_count).any()):
        raise NotImplementedError("kl_divergence: Binomial of fewer trials than the other one has")
    one = _bernoulli(Bernoulli(p.probs, validate_args=False), Bernoulli(q.probs, validate_args=False))
    return plait.where(p.total_count > q.total_count, math.inf, p.total_count * one)


@register_kl(LowRankMultivariateNormal, LowRankMultivariateNormal)
@register_kl(LowRankMultivariateNormal, MultivariateNormal)
@register_kl(MultivariateNormal, LowRankMultivariateNormal)
def _low_rank(p: Any, q: Any) -> Tensor:
    p, q = (MultivariateNormal(d.loc, scale_tril=d.scale_tril, validate_args=False) for d in (p, q))
    return _multivariate(p, q)


@register_kl(ExponentialFamily, ExponentialFamily)
def _families(p: ExponentialFamily, q: ExponentialFamily) -> Tensor:
    if type(p) is not type(q):
        raise NotImplementedError(
            f"kl_divergence: no function for {type(p).__name__} from {type(q).__name__}; register_kl adds one"
        )
    theta, log, means = p._normalizer()
    other = q._natural_params
    value = q._log_normalizer(*other) - log
    for a, b, mean in zip(theta, other, means, strict=True):
        value = value - ((b - a) * mean).reshape(*value.shape, -1).sum(-1)
    return value
