"""Random counts: Poisson and binomial variables, by inversion where they are few and else by rejection.

They need float64, which not every GPU has, and so are drawn on the CPU. A call takes one number from the generator of
its tensors' device, which alone says what is drawn.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from plait import _ops
from plait._dtype import float64
from plait._errors import DeviceError, DTypeError, ShapeError
from plait._functions._checked import checked
from plait._random import Generator
from plait._tensor import Tensor
from plait.autograd.function import Function

__all__ = ["binomial", "poisson"]

_FEW = 10  # below this mean counts are found by inversion, which takes about as many steps
_FAR = 1e6  # from this mean on logarithms of factorials cancel, and Stirling's formula is exact


@checked
def poisson(input: Tensor, generator: Generator | None = None) -> Tensor:
    """Returns Poisson variables: for each element the number of events, of which there are that many in the mean.

    The result has the shape and the dtype of `input`, which is floating point, and inf where that is inf. Its
    derivative is 0. Draws are PTRS of Hoermann (1993), or by inversion.

    Raises:
        TypeError: if input is not floating point
        ValueError: if an element is negative or nan
    """
    _want_floats("poisson", "input", input)
    return _ops.poisson(input, generator=generator)


@checked
def binomial(count: Tensor, prob: Tensor, generator: Generator | None = None) -> Tensor:
    """Returns binomial variables: of `count` trials those that succeed, each with probability `prob`.

    The two broadcast, and have one floating dtype. The result is 0 for a count or a probability of 0 or less, count for
    a probability of 1 or more, and nan where either is nan. It has no derivative. Draws are BTRS of Hoermann (1993), or
    by inversion.

    Raises:
        TypeError: if count is not floating point, or prob of another dtype
        ValueError: if the shapes do not broadcast
    """
    _want_floats("binomial", "count", count)
    if prob.dtype != count.dtype:
        raise DTypeError(f"binomial: want prob of the dtype of count, {count.dtype}, got {prob.dtype}")
    if prob.device != count.device:
        raise DeviceError(f"binomial: want prob on the device of count, {count.device}, got {prob.device}")
    try:
        parameters = _ops.broadcast_tensors(count, prob)
    except ShapeError:
        shapes = f"{list(count.shape)} and {list(prob.shape)}"
        raise ShapeError(f"binomial: count and prob must broadcast, got {shapes}") from None
    made: Tensor = _Binomial.apply(_seed(count, generator), *parameters)
    return made


def _want_floats(name: str, argument: str, t: Tensor) -> None:
    if not t.dtype.is_floating_point:
        raise DTypeError(f"{name}: {argument} must be floating point, got {t.dtype}")


def _seed(like: Tensor, generator: Generator | None) -> Tensor:
    """Returns a seed, which inside `vmap` is one for each part if numbers are to differ."""
    return _ops.randint(0, high=1 << 31, size=(2,), device=like.device, generator=generator)


class _Draw(Function):
    """Draws by a seed from parameters of one shape; subclasses have `_draw`, for rows of float64 on the CPU."""

    @staticmethod
    def _draw(generator: Generator, *rows: Tensor) -> Tensor:
        raise NotImplementedError

    @classmethod
    def forward(cls, ctx: Any, seed: Tensor, *parameters: Tensor) -> Tensor:
        like = parameters[0]
        high, low = seed.tolist()
        rows = (p.detach().to("cpu", float64).reshape(-1) for p in parameters)
        drawn = cls._draw(Generator().manual_seed(high << 31 | low), *rows)
        return drawn.reshape(like.shape).to(like.device, like.dtype)

    @classmethod
    def vmap(cls, info: Any, in_dims: Any, seed: Tensor, *parameters: Tensor) -> tuple[Tensor, int]:
        """Draws for all parts by the seed of the first, or for one after the other by the seed that they share."""
        if in_dims[0] is None:
            parts = zip(*(p.unbind(0) if d == 0 else (p,) * info.batch_size
                          for p, d in zip(parameters, in_dims[1:], strict=True)), strict=True)  # fmt: skip
            return _ops.stack([cls.apply(seed, *part) for part in parts]), 0
        shape = (info.batch_size, *parameters[0].shape[in_dims[1] is not None :])
        return cls.apply(seed.select(0, 0), *(p.expand(shape) for p in parameters)), 0


class _Binomial(_Draw):
    @staticmethod
    def _draw(generator: Generator, *rows: Tensor) -> Tensor:
        count, prob = rows
        wanted = (count > 0) & count.isfinite() & (prob > 0) & (prob < 1)
        n, p = _ops.where(wanted, count, 0.0), _ops.where(wanted, prob, 0.5)
        q = _ops.minimum(p, 1 - p)
        many = n * q >= _FEW
        few = _ops.where(many, 0.0, n)
        step = q / (1 - q)
        zero = (few * (-q).log1p()).exp()
        drawn = _counted(generator, zero, lambda k, n, step: (n - k).clamp(min=0) / (k + 1) * step, few, step)
        at = many.nonzero().flatten()
        if at.numel():
            drawn = drawn.index_put((at,), accepted(partial(_many_successes, generator), n[at], q[at]))
        drawn = _ops.where(p > 0.5, n - drawn, drawn)
        certain = _ops.where((count <= 0) | (prob <= 0), 0.0, _ops.where(prob >= 1, count, math.nan))
        return _ops.where(wanted, drawn, certain)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        raise NotImplementedError("binomial: draws have no derivative by count and prob")

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor) -> Tensor:
        raise NotImplementedError("binomial: draws have no derivative by count and prob")


def accepted(propose: Callable[..., tuple[Tensor, Tensor]], *parameters: Tensor) -> Tensor:
    """Returns draws of `propose`, which returns candidates and whether they are accepted, for rows of parameters."""
    value, right = propose(*parameters)
    left = (~right).nonzero().flatten()
    while left.numel():
        again, right = propose(*(p[left] for p in parameters))
        value[left[right]] = again[right]
        left = left[~right]
    return value


def uniform(like: Tensor, generator: Generator | None = None) -> Tensor:
    """Returns uniform draws above 0, up to 1."""
    return 1 - _ops.rand_like(like, generator=generator)


def _counted(generator: Generator, first: Tensor, factor: Callable[..., Tensor], *parameters: Tensor) -> Tensor:
    """Returns counts by inversion: from the probability of 0 and how that of k + 1 follows from that of k."""
    return _inverted(_ops.rand_like(first, generator=generator), first, first, 0, factor, parameters)


def _inverted(
    u: Tensor, p: Tensor, below: Tensor, k: int, factor: Callable[..., Tensor], parameters: tuple[Tensor, ...]
) -> Tensor:
    """Returns counts from k on, of which p is the probability and below that of all up to k."""
    count = _ops.full_like(u, k)
    # Far out, where a term is lost in the sum, rounding alone would keep u above the sum.
    while left := int((more := (u > below) & (p > 1e-30)).sum()):
        if 2 * left < u.numel():
            at = more.nonzero().flatten()
            rest = _inverted(u[at], p[at], below[at], k, factor, tuple(t[at] for t in parameters))
            return count.index_put((at,), rest)
        count = _ops.where(more, k + 1.0, count)
        p = p * factor(float(k), *parameters)
        below = _ops.where(more, below + p, below)
        k += 1
    return count


def _log_factorial(n: Tensor) -> Tensor:
    return (n + 1).lgamma()


def _surplus(mean: Tensor, difference: Tensor) -> Tensor:
    """Returns k log(k / mean) - k + mean for k = mean + difference, of which no digits are lost where k is near."""
    e = difference / mean
    return mean * ((1 + e) * e.log1p() - e)


def _many_successes(generator: Generator, n: Tensor, p: Tensor) -> tuple[Tensor, Tensor]:
    """Proposes binomial variables with n p of 10 or more, and p of at most 1/2: BTRS of Hoermann (1993)."""
    mean, spread = n * p, (n * p * (1 - p)).sqrt()
    b = 1.15 + 2.53 * spread
    a = -0.0873 + 0.0248 * b + 0.01 * p
    u, v = uniform(n, generator) - 0.5, uniform(n, generator)
    us = 0.5 - u.abs()
    k = ((2 * a / us + b) * u + mean + 0.5).floor()
    inside = (k >= 0) & (k <= n)
    k = _ops.where(inside, k, 0.0)
    right = (us >= 0.07) & (v <= 0.92 - 4.2 / b) & inside
    rest = (~right & inside).nonzero().flatten()
    return k, right.index_put((rest,), _is_below_successes(*(t[rest] for t in (n, p, k, v, us, a, b))))


def _is_below_successes(n: Tensor, p: Tensor, k: Tensor, v: Tensor, us: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Returns whether a candidate of `_many_successes` lies below the density."""
    mean, spread = n * p, (n * p * (1 - p)).sqrt()
    m = ((n + 1) * p).floor()
    score = (v * (2.83 + 5.1 / b) * spread / (a / (us * us) + b)).log()
    odds = (p / (1 - p)).log()
    near = _log_factorial(m) + _log_factorial(n - m) - _log_factorial(k) - _log_factorial(n - k) + (k - m) * odds
    off = k - mean
    far = (m * (n - m) / (k * (n - k))).log() / 2 - _surplus(mean, off) - _surplus(n - mean, -off)
    return score <= _ops.where(mean < _FAR, near, far)
