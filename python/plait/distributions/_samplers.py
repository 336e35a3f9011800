"""Draws of continuous variables that no formula gives: candidates that are accepted or drawn again.

They are computed in float64 on CPUs, and in float32 on GPUs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import plait
from plait import Generator, Tensor
from plait._functions.counts import accepted, uniform
from plait.autograd.function import Function


def _log_gamma(generator: Generator | None, alpha: Tensor) -> tuple[Tensor, Tensor]:
    """Proposes logarithms of gamma variables of rate 1: Marsaglia and Tsang (2000)."""
    d = alpha + (alpha < 1) - 1 / 3
    x = plait.randn(alpha.shape, dtype=alpha.dtype, device=alpha.device, generator=generator)
    v = (1 + x / (9 * d).sqrt()) ** 3
    log_v = v.clamp(min=plait.finfo(v.dtype).tiny).log()
    right = (v > 0) & (uniform(alpha, generator).log() < x * x / 2 + d * (1 - v + log_v))
    value = d.log() + log_v
    value = plait.where(alpha < 1, value + uniform(alpha, generator).log() / alpha, value)  # alpha + 1 to alpha
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
        value = accepted(partial(_log_gamma, generator), rows).reshape(alpha.shape).to(alpha.dtype)
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


def standard_gamma(alpha: Tensor, generator: Generator | None = None) -> Tensor:
    """Returns gamma variables of rate 1, which are above 0, with a gradient."""
    return log_gamma(alpha, generator).exp().clamp(min=plait.finfo(alpha.dtype).tiny)


def _in_float64(draw: Callable[..., Tensor], *parameters: Tensor) -> Tensor:
    """Returns draws of a function of rows of float64 on the CPU, as a tensor like the first parameter."""
    like = parameters[0]
    rows = (p.detach().to("cpu", plait.float64).flatten() for p in plait.broadcast_tensors(*parameters))
    return (
        draw(*rows).reshape(plait.broadcast_shapes(*(tuple(p.shape) for p in parameters))).to(like.device, like.dtype)
    )


def von_mises(concentration: Tensor) -> Tensor:
    """Returns angles around 0, from -pi to pi: Best and Fisher (1979)."""

    def propose(k: Tensor) -> tuple[Tensor, Tensor]:
        tau = 1 + (1 + 4 * k * k).sqrt()
        rho = (tau - (2 * tau).sqrt()) / (2 * k)
        r = plait.where(k < 1e-5, 1 / k + k, (1 + rho * rho) / (2 * rho))  # the limit, where rho is rounding alone
        z = (math.pi * uniform(k)).cos()
        f = ((1 + r * z) / (r + z)).clamp(-1, 1)
        c = k * (r - f)
        u = uniform(k)
        right = (c * (2 - c) > u) | ((c / u).log() + 1 - c >= 0)
        return (uniform(k) - 0.5).sign() * f.acos(), right | ~(k > 0) | ~k.isfinite()

    def draw(k: Tensor) -> Tensor:
        return plait.where(k > 0, accepted(propose, k), math.nan)

    return _in_float64(draw, concentration)
