"""Draws that no formula gives: candidates that are accepted or drawn again, and sums until they pass a uniform draw.

They are computed in float64 on CPUs, and in float32 on GPUs. Counts need float64, and so are drawn on the CPU for GPUs
too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import plait
from plait import Generator, Tensor
from plait.autograd.function import Function


def _accepted(propose: Callable[..., tuple[Tensor, Tensor]], *parameters: Tensor) -> Tensor:
    """Returns draws of `propose`, which returns candidates and whether they are accepted, for rows of parameters."""
    value, right = propose(*parameters)
    left = (~right).nonzero().flatten()
    while left.numel():
        again, right = propose(*(p[left] for p in parameters))
        value[left[right]] = again[right]
        left = left[~right]
    return value


def _open(like: Tensor, generator: Generator | None = None) -> Tensor:
    """Returns uniform draws above 0, up to 1."""
    return 1 - plait.rand(like.shape, dtype=like.dtype, device=like.device, generator=generator)


def _log_gamma(generator: Generator | None, alpha: Tensor) -> tuple[Tensor, Tensor]:
    """Proposes logarithms of gamma variables of rate 1: Marsaglia and Tsang (2000)."""
    d = alpha + (alpha < 1) - 1 / 3
    x = plait.randn(alpha.shape, dtype=alpha.dtype, device=alpha.device, generator=generator)
    v = (1 + x / (9 * d).sqrt()) ** 3
    log_v = v.clamp(min=plait.finfo(v.dtype).tiny).log()
    right = (v > 0) & (_open(alpha, generator).log() < x * x / 2 + d * (1 - v + log_v))
    value = d.log() + log_v
    value = plait.where(alpha < 1, value + _open(alpha, generator).log() / alpha, value)  # alpha + 1 to alpha
    return value, right | ~((alpha > 0) & alpha.isfinite())  # what is no parameter has no draw to wait for


def _slope(alpha: Tensor, log_x: Tensor) -> Tensor:
    """Returns the derivative of the logarithm of a gamma variable by alpha, where its cumulative probability stays.

    It is -(dP/dalpha) / (x p(x)), with the cumulative probability P or, above the mean, its complement.
    """
    dtype = plait.float64 if alpha.device.type == "cpu" else plait.float32
    a, log_x = alpha.to(dtype), log_x.to(dtype)
    x = log_x.exp()
    step = plait.finfo(dtype).eps ** (1 / 3) * a / (1 + a).sqrt()
    low = plait.igamma(a + step, x) - plait.igamma(a - step, x)
    high = plait.igammac(a - step, x) - plait.igammac(a + step, x)
    change = plait.where(x < a, low, high) / (2 * step)
    value = -change / (a * log_x - x - a.lgamma()).exp()
    near = (a.add(1).digamma() - log_x) / a  # the limit for x to 0
    return plait.where(x < 1e-9 * (1 + a), near, value).to(alpha.dtype)


class _Slope(Function):
    @staticmethod
    def forward(ctx: Any, alpha: Tensor, log_x: Tensor) -> Tensor:
        return _slope(alpha, log_x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        raise NotImplementedError("rsample: draws of gamma variables have first derivatives by their parameters only")


class _LogGamma(Function):
    @staticmethod
    def forward(ctx: Any, alpha: Tensor, generator: Generator | None) -> Tensor:
        dtype = plait.float64 if alpha.device.type == "cpu" else plait.float32
        rows = alpha.detach().to(dtype).flatten()
        value = _accepted(partial(_log_gamma, generator), rows).reshape(alpha.shape).to(alpha.dtype)
        ctx.save_for_backward(alpha, value)
        return value

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        alpha, value = ctx.saved_tensors
        return grad * _Slope.apply(alpha, value.detach()), None


def log_gamma(alpha: Tensor, generator: Generator | None = None) -> Tensor:
    """Returns the logarithms of gamma variables of rate 1, with a gradient; they do not underflow for a small alpha."""
    drawn: Tensor = _LogGamma.apply(alpha, generator)
    return drawn


def _in_float64(draw: Callable[..., Tensor], *parameters: Tensor) -> Tensor:
    """Returns draws of a function of rows of float64 on the CPU, as a tensor like the first parameter."""
    like = parameters[0]
    rows = (p.detach().to("cpu", plait.float64).flatten() for p in plait.broadcast_tensors(*parameters))
    return (
        draw(*rows).reshape(plait.broadcast_shapes(*(tuple(p.shape) for p in parameters))).to(like.device, like.dtype)
    )


def _counted(first: Tensor, factor: Callable[[float], Tensor]) -> Tensor:
    """Returns counts by inversion: from the probability of 0 and how that of k + 1 follows from that of k."""
    u = plait.rand(first.shape, dtype=first.dtype)
    count, p, below, k = plait.zeros_like(first), first, first, 0
    # Far out, where a term is lost in the sum, rounding alone would keep u above the sum.
    while bool((more := (u > below) & (p > 1e-30)).any()):
        count = plait.where(more, k + 1.0, count)
        p = p * factor(float(k))
        below = plait.where(more, below + p, below)
        k += 1
    return count


def _log_factorial(n: Tensor) -> Tensor:
    return (n + 1).lgamma()


def _large_poisson(rate: Tensor) -> tuple[Tensor, Tensor]:
    """Proposes Poisson variables of a rate of 10 or more: PTRS of Hoermann (1993)."""
    b = 0.931 + 2.53 * rate.sqrt()
    a = -0.059 + 0.02483 * b
    u, v = _open(rate) - 0.5, _open(rate)
    us = 0.5 - u.abs()
    k = ((2 * a / us + b) * u + rate + 0.43).floor()
    score = (v * (1.1239 + 1.1328 / (b - 3.4)) / (a / (us * us) + b)).log()
    right = (us >= 0.07) & (v <= 0.9277 - 3.6224 / (b - 2))
    right |= (k >= 0) & ((us >= 0.013) | (v <= us)) & (score <= k * rate.log() - rate - _log_factorial(k))
    return k, right & (k >= 0) | ~rate.isfinite()


def poisson(rate: Tensor) -> Tensor:
    """Returns Poisson variables."""

    def draw(rate: Tensor) -> Tensor:
        few = rate.clamp(max=10)
        small = _counted((-few).exp(), lambda k: few / (k + 1))
        many = (rate >= 10).nonzero().flatten()
        if many.numel():
            small[many] = _accepted(_large_poisson, rate[many])
        return plait.where(rate >= 0, small, math.nan)

    return _in_float64(draw, rate)


def _large_binomial(n: Tensor, p: Tensor) -> tuple[Tensor, Tensor]:
    """Proposes binomial variables with n p of 10 or more, and p of at most 1/2: BTRS of Hoermann (1993)."""
    spread = (n * p * (1 - p)).sqrt()
    b = 1.15 + 2.53 * spread
    a = -0.0873 + 0.0248 * b + 0.01 * p
    u, v = _open(n) - 0.5, _open(n)
    us = 0.5 - u.abs()
    k = ((2 * a / us + b) * u + n * p + 0.5).floor()
    inside = (k >= 0) & (k <= n)
    k = plait.where(inside, k, 0.0)
    m = ((n + 1) * p).floor()
    score = (v * (2.83 + 5.1 / b) * spread / (a / (us * us) + b)).log()
    odds = (p / (1 - p)).log()
    log_ratio = _log_factorial(m) + _log_factorial(n - m) - _log_factorial(k) - _log_factorial(n - k) + (k - m) * odds
    return k, inside & ((us >= 0.07) & (v <= 0.92 - 4.2 / b) | (score <= log_ratio))


def binomial(n: Tensor, p: Tensor) -> Tensor:
    """Returns binomial variables: of n trials those that succeed, each with probability p."""

    def draw(n: Tensor, p: Tensor) -> Tensor:
        q = plait.minimum(p, 1 - p)
        many = n * q >= 10
        few = plait.where(many, 0.0, n)
        drawn = _counted((few * plait.log1p(-q)).exp(), lambda k: (few - k).clamp(min=0) / (k + 1) * q / (1 - q))
        at = many.nonzero().flatten()
        if at.numel():
            drawn[at] = _accepted(_large_binomial, n[at], q[at])
        drawn = plait.where(p > 0.5, n - drawn, drawn)
        return plait.where((p >= 0) & (p <= 1) & (n >= 0), drawn, math.nan)

    return _in_float64(draw, n, p)


def von_mises(concentration: Tensor) -> Tensor:
    """Returns angles around 0, from -pi to pi: Best and Fisher (1979)."""

    def propose(k: Tensor) -> tuple[Tensor, Tensor]:
        tau = 1 + (1 + 4 * k * k).sqrt()
        rho = (tau - (2 * tau).sqrt()) / (2 * k)
        r = plait.where(k < 1e-5, 1 / k + k, (1 + rho * rho) / (2 * rho))  # the limit, where rho is rounding alone
        z = (math.pi * _open(k)).cos()
        f = ((1 + r * z) / (r + z)).clamp(-1, 1)
        c = k * (r - f)
        u = _open(k)
        right = (c * (2 - c) > u) | ((c / u).log() + 1 - c >= 0)
        return (_open(k) - 0.5).sign() * f.acos(), right | ~(k > 0) | ~k.isfinite()

    def draw(k: Tensor) -> Tensor:
        return plait.where(k > 0, _accepted(propose, k), math.nan)

    return _in_float64(draw, concentration)
