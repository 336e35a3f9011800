"""Kullback-Leibler divergences of distributions of different families."""

from __future__ import annotations

import math

import plait
from plait import Tensor
from plait.distributions._continuous import Exponential, Laplace, Normal, Uniform
from plait.distributions._counts import Binomial, Poisson
from plait.distributions._discrete import Bernoulli
from plait.distributions._distribution import Distribution
from plait.distributions._gamma import Beta, Gamma
from plait.distributions._kl import register_kl
from plait.distributions._relaxed import ContinuousBernoulli
from plait.distributions._tails import EULER, Gumbel, Pareto

LOG_2_PI = math.log(2 * math.pi)


def _infinite(p: Distribution, q: Distribution) -> Tensor:
    """Returns infinity: p has draws where q has none."""
    shape = plait.broadcast_shapes(tuple(p.batch_shape), tuple(q.batch_shape))
    return plait.full_like(p._shown()[next(iter(p._shown()))], math.inf).expand(shape)


for _first, _others in {
    Beta: (Pareto,),
    ContinuousBernoulli: (Pareto,),
    Exponential: (Beta, ContinuousBernoulli, Pareto, Uniform),
    Gamma: (Beta, ContinuousBernoulli, Pareto, Uniform),
    Gumbel: (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform),
    Laplace: (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform),
    Normal: (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform),
    Pareto: (Beta, ContinuousBernoulli, Uniform),
    Poisson: (Bernoulli, Binomial),
}.items():
    for _other in _others:
        register_kl(_first, _other)(_infinite)


def _to_normal(mean: Tensor, variance: Tensor, entropy: Tensor, q: Normal) -> Tensor:
    """Returns the divergence from a normal variable of one with these moments."""
    return LOG_2_PI / 2 + q.scale.log() + (variance + (mean - q.loc).square()) / (2 * q.scale.square()) - entropy


@register_kl(Beta, Normal)
@register_kl(ContinuousBernoulli, Normal)
@register_kl(Exponential, Normal)
@register_kl(Gamma, Normal)
@register_kl(Gumbel, Normal)
@register_kl(Laplace, Normal)
@register_kl(Uniform, Normal)
def _from_normal(p: Distribution, q: Normal) -> Tensor:
    return _to_normal(p.mean, p.variance, p.entropy(), q)


@register_kl(Pareto, Normal)
def _pareto_normal(p: Pareto, q: Normal) -> Tensor:
    return plait.where(p.alpha <= 2, math.inf, _to_normal(p.mean, p.variance, p.entropy(), q))


@register_kl(Beta, Exponential)
@register_kl(ContinuousBernoulli, Exponential)
@register_kl(Gamma, Exponential)
@register_kl(Pareto, Exponential)
def _from_exponential(p: Distribution, q: Exponential) -> Tensor:
    return q.rate * p.mean - q.rate.log() - p.entropy()


@register_kl(Uniform, Exponential)
def _uniform_exponential(p: Uniform, q: Exponential) -> Tensor:
    return plait.where(p.low < 0, math.inf, _from_exponential(p, q))


def _to_gamma(mean: Tensor, log_mean: Tensor, entropy: Tensor, q: Gamma) -> Tensor:
    """Returns the divergence from a gamma variable, by the means of a variable and of its logarithm."""
    a = q.concentration
    return a.lgamma() - a * q.rate.log() - (a - 1) * log_mean + q.rate * mean - entropy


@register_kl(Beta, Gamma)
def _beta_gamma(p: Beta, q: Gamma) -> Tensor:
    log_mean = p.concentration1.digamma() - (p.concentration1 + p.concentration0).digamma()
    return _to_gamma(p.mean, log_mean, p.entropy(), q)


@register_kl(Exponential, Gamma)
def _exponential_gamma(p: Exponential, q: Gamma) -> Tensor:
    return _to_gamma(p.mean, -EULER - p.rate.log(), p.entropy(), q)


@register_kl(Pareto, Gamma)
def _pareto_gamma(p: Pareto, q: Gamma) -> Tensor:
    return _to_gamma(p.mean, p.scale.log() + 1 / p.alpha, p.entropy(), q)


def _log_mean(low: Tensor, high: Tensor) -> Tensor:
    """Returns the mean of the logarithm of a uniform variable."""
    return (plait.xlogy(high, high) - plait.xlogy(low, low)) / (high - low) - 1


@register_kl(Uniform, Gamma)
def _uniform_gamma(p: Uniform, q: Gamma) -> Tensor:
    value = _to_gamma(p.mean, _log_mean(p.low, p.high), p.entropy(), q)
    return plait.where(p.low < 0, math.inf, value)


@register_kl(Uniform, Beta)
def _uniform_beta(p: Uniform, q: Beta) -> Tensor:
    a, b = q.concentration1, q.concentration0
    norm = a.lgamma() + b.lgamma() - (a + b).lgamma()
    below, above = _log_mean(p.low, p.high), _log_mean(1 - p.high, 1 - p.low)
    value = norm - (a - 1) * below - (b - 1) * above - p.entropy()
    return plait.where((p.high > 1) | (p.low < 0), math.inf, value)


@register_kl(Uniform, Pareto)
def _uniform_pareto(p: Uniform, q: Pareto) -> Tensor:
    value = (q.alpha + 1) * _log_mean(p.low, p.high) - q.alpha.log() - q.alpha * q.scale.log() - p.entropy()
    return plait.where(p.low < q.scale, math.inf, value)


@register_kl(Beta, ContinuousBernoulli)
def _beta_continuous(p: Distribution, q: ContinuousBernoulli) -> Tensor:
    return -p.entropy() - p.mean * q.logits - plait.log1p(-q.probs) - q._log_norm()


@register_kl(Uniform, ContinuousBernoulli)
def _uniform_continuous(p: Uniform, q: ContinuousBernoulli) -> Tensor:
    return plait.where((p.high > 1) | (p.low < 0), math.inf, _beta_continuous(p, q))


@register_kl(Beta, Uniform)
@register_kl(ContinuousBernoulli, Uniform)
def _from_uniform(p: Distribution, q: Uniform) -> Tensor:
    return plait.where((q.low > 0) | (q.high < 1), math.inf, (q.high - q.low).log() - p.entropy())


def _to_gumbel(mean: Tensor, log_moment: Tensor, entropy: Tensor, q: Gumbel) -> Tensor:
    """Returns the divergence from a Gumbel variable, by the mean and the logarithm of that of exp(-x / scale)."""
    return q.scale.log() + (mean - q.loc) / q.scale + (q.loc / q.scale + log_moment).exp() - entropy


@register_kl(Exponential, Gumbel)
def _exponential_gumbel(p: Exponential, q: Gumbel) -> Tensor:
    return _to_gumbel(p.mean, -plait.log1p(1 / (p.rate * q.scale)), p.entropy(), q)


@register_kl(Gamma, Gumbel)
def _gamma_gumbel(p: Gamma, q: Gumbel) -> Tensor:
    return _to_gumbel(p.mean, -p.concentration * plait.log1p(1 / (p.rate * q.scale)), p.entropy(), q)


@register_kl(Normal, Gumbel)
def _normal_gumbel(p: Normal, q: Gumbel) -> Tensor:
    return _to_gumbel(p.mean, (p.scale / q.scale).square() / 2 - p.loc / q.scale, p.entropy(), q)


@register_kl(Uniform, Gumbel)
def _uniform_gumbel(p: Uniform, q: Gumbel) -> Tensor:
    wide = (p.high - p.low) / q.scale
    log_moment = -p.low / q.scale + (-plait.expm1(-wide) / wide).log()
    return _to_gumbel(p.mean, log_moment, p.entropy(), q)


@register_kl(Normal, Laplace)
def _normal_laplace(p: Normal, q: Laplace) -> Tensor:
    d = p.loc - q.loc
    z = d / p.scale
    far = math.sqrt(2 / math.pi) * p.scale * (-z.square() / 2).exp() + d * (z * math.sqrt(0.5)).erf()  # mean |x - loc|
    return (2 * q.scale).log() + far / q.scale - p.entropy()


@register_kl(Bernoulli, Poisson)
def _bernoulli_poisson(p: Bernoulli, q: Poisson) -> Tensor:
    return q.rate - p.probs * q.rate.log() - p.entropy()
