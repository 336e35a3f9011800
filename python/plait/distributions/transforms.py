"""Functions of random variables that can be undone, with the logarithms of their slopes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import plait
from plait import Tensor
from plait.distributions import constraints
from plait.distributions._transform_base import Transform, _InverseTransform  # noqa: F401
from plait.distributions._transform_joins import (
    CatTransform,
    ComposeTransform,
    IndependentTransform,
    ReshapeTransform,
    StackTransform,
    identity_transform,
)
from plait.distributions.constraints import of_more
from plait.distributions.utils import _sum_rightmost, tril_matrix_to_vec, vec_to_tril_matrix
from plait.nn import functional as F

if TYPE_CHECKING:
    from plait.distributions._distribution import Distribution

__all__ = [
    "AbsTransform", "AffineTransform", "CatTransform", "ComposeTransform", "CorrCholeskyTransform",
    "CumulativeDistributionTransform", "ExpTransform", "IndependentTransform", "LowerCholeskyTransform",
    "PositiveDefiniteTransform", "PowerTransform", "ReshapeTransform", "SigmoidTransform", "SoftmaxTransform",
    "SoftplusTransform", "StackTransform", "StickBreakingTransform", "TanhTransform", "Transform",
    "identity_transform",
]  # fmt: skip


class _Same(Transform):
    """A transform without parameters, all of which are equal."""

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other)

    def __hash__(self) -> int:
        return hash(type(self))


class ExpTransform(_Same):
    """exp(x)."""

    codomain, bijective, sign = constraints.positive, True, 1

    def _call(self, x: Tensor) -> Tensor:
        return x.exp()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.log()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """Returns log |dy/dx|."""
        return x


class SigmoidTransform(_Same):
    """1 / (1 + exp(-x))."""

    codomain, bijective, sign = constraints.unit_interval, True, 1

    def _call(self, x: Tensor) -> Tensor:
        info = plait.finfo(x.dtype)
        return x.sigmoid().clamp(info.tiny, 1 - info.eps)

    def _inverse(self, y: Tensor) -> Tensor:
        info = plait.finfo(y.dtype)
        y = y.clamp(info.tiny, 1 - info.eps)
        return y.log() - plait.log1p(-y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """Returns log |dy/dx|."""
        return -F.softplus(-x) - F.softplus(x)


class TanhTransform(_Same):
    """tanh(x); the slope is computed so that it does not vanish for large x."""

    codomain, bijective, sign = constraints.interval(-1.0, 1.0), True, 1

    def _call(self, x: Tensor) -> Tensor:
        return x.tanh()

    def _inverse(self, y: Tensor) -> Tensor:
        return plait.atanh(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """Returns log |dy/dx|."""
        return 2 * (math.log(2) - x - F.softplus(-2 * x))


def _alike(a: Tensor | float, b: Tensor | float) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a is b or a.equal(b)
    return not isinstance(a, Tensor) and not isinstance(b, Tensor) and a == b


class AffineTransform(Transform):
    """loc + scale x.

    Args:
        loc: what is added
        scale: what x is multiplied by
        event_dim: the number of dimensions that belong together: slopes are summed over them
        cache_size: 1 keeps the last argument and its result
    """

    bijective = True

    def __init__(self, loc: Tensor | float, scale: Tensor | float, event_dim: int = 0, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        if event_dim < 0:
            raise ValueError(f"AffineTransform: event_dim must be 0 or more, got {event_dim}")
        self.loc, self.scale = loc, scale
        self.domain = self.codomain = of_more(constraints.real, event_dim)

    @property
    def sign(self) -> Tensor | int:
        """The sign of scale."""
        if isinstance(self.scale, Tensor):
            return self.scale.sign()
        return (self.scale > 0) - (self.scale < 0)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, AffineTransform):
            return False
        return _alike(self.loc, other.loc) and _alike(self.scale, other.scale)

    __hash__ = Transform.__hash__

    def forward_shape(self, shape: Sequence[int]) -> plait.Size:
        """Returns the shape to which loc, scale and a tensor of the given shape broadcast."""
        own = (tuple(v.shape) for v in (self.loc, self.scale) if isinstance(v, Tensor))
        return plait.Size(plait.broadcast_shapes(tuple(shape), *own))

    inverse_shape = forward_shape

    def _call(self, x: Tensor) -> Tensor:
        return self.loc + self.scale * x

    def _inverse(self, y: Tensor) -> Tensor:
        return (y - self.loc) / self.scale

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """Returns log |scale|, summed over the event."""
        if isinstance(self.scale, Tensor):
            slope = self.scale.abs().log().expand(x.shape)
        else:
            slope = plait.full_like(x, math.log(abs(self.scale)))
        return _sum_rightmost(slope, self.domain.event_dim)


class AbsTransform(_Same):
    """|x|; the inverse is x itself."""

    codomain = constraints.nonnegative

    def _call(self, x: Tensor) -> Tensor:
        return x.abs()

    def _inverse(self, y: Tensor) -> Tensor:
        return y


class PowerTransform(Transform):
    """x^exponent, of positive x.

    Args:
        exponent: the power, not 0
        cache_size: 1 keeps the last argument and its result
    """

    domain = codomain = constraints.positive
    bijective = True

    def __init__(self, exponent: Tensor | float, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.exponent = exponent if isinstance(exponent, Tensor) else plait.tensor(float(exponent))

    @property
    def sign(self) -> Tensor | int:
        """The sign of the exponent."""
        return self.exponent.sign()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PowerTransform) and _alike(self.exponent, other.exponent)

    __hash__ = Transform.__hash__

    def forward_shape(self, shape: Sequence[int]) -> plait.Size:
        """Returns the shape to which the exponent and a tensor of the given shape broadcast."""
        return plait.Size(plait.broadcast_shapes(tuple(shape), tuple(self.exponent.shape)))

    inverse_shape = forward_shape

    def _call(self, x: Tensor) -> Tensor:
        return x.pow(self.exponent)

    def _inverse(self, y: Tensor) -> Tensor:
        return y.pow(1 / self.exponent)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """Returns log |dy/dx|."""
        return (self.exponent * y / x).abs().log()


class SoftplusTransform(_Same):
    """log(1 + exp(x))."""

    codomain, bijective, sign = constraints.positive, True, 1

    def _call(self, x: Tensor) -> Tensor:
        return F.softplus(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return y + (-plait.expm1(-y)).log()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """Returns log |dy/dx|."""
        return -F.softplus(-x)


class SoftmaxTransform(_Same):
    """softmax(x) of vectors; the inverse is the logarithm, so that vectors that differ by a number have one image."""

    domain, codomain = constraints.real_vector, constraints.simplex

    def _call(self, x: Tensor) -> Tensor:
        return x.softmax(-1)

    def _inverse(self, y: Tensor) -> Tensor:
        return y.log()


class StickBreakingTransform(_Same):
    """Shares [..., n + 1] of vectors [..., n]: each value says which part of what is left is broken off."""

    domain, codomain, bijective = constraints.real_vector, constraints.simplex, True

    @staticmethod
    def _offset(x: Tensor) -> Tensor:
        """Returns log n, log(n - 1), ..., 0, so that zeros make equal shares."""
        n = x.shape[-1]
        return plait.arange(n, 0, -1, dtype=x.dtype, device=x.device).log()

    def forward_shape(self, shape: Sequence[int]) -> plait.Size:
        """Returns the shape with a last dimension larger by 1."""
        return plait.Size((*shape[:-1], shape[-1] + 1))

    def inverse_shape(self, shape: Sequence[int]) -> plait.Size:
        """Returns the shape with a last dimension smaller by 1."""
        return plait.Size((*shape[:-1], shape[-1] - 1))

    def _call(self, x: Tensor) -> Tensor:
        info = plait.finfo(x.dtype)
        z = (x - self._offset(x)).sigmoid().clamp(info.tiny, 1 - info.eps)
        left = (1 - z).cumprod(-1)
        return F.pad(z, (0, 1), value=1.0) * F.pad(left, (1, 0), value=1.0)

    def _inverse(self, y: Tensor) -> Tensor:
        part = y[..., :-1]
        left = (1 - part.cumsum(-1)).clamp(min=plait.finfo(y.dtype).tiny)
        return part.log() - left.log() + self._offset(part)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """Returns log |det dy/dx| of each vector, by the first n shares."""
        z = x - self._offset(x)
        return (y[..., :-1].log() + F.logsigmoid(-z)).sum(-1)


class LowerCholeskyTransform(_Same):
    """Lower triangles of square matrices, with the exponential of the diagonal."""

    domain, codomain = constraints.independent(constraints.real, 2), constraints.lower_cholesky

    def _call(self, x: Tensor) -> Tensor:
        return x.tril(-1) + x.diagonal(dim1=-2, dim2=-1).exp().diag_embed()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.tril(-1) + y.diagonal(dim1=-2, dim2=-1).log().diag_embed()


class PositiveDefiniteTransform(_Same):
    """L L^T, where L is what `LowerCholeskyTransform` makes of a square matrix."""

    domain, codomain = constraints.independent(constraints.real, 2), constraints.positive_definite

    def _call(self, x: Tensor) -> Tensor:
        lower = LowerCholeskyTransform()(x)
        return lower @ lower.mT

    def _inverse(self, y: Tensor) -> Tensor:
        return LowerCholeskyTransform().inv(plait.linalg.cholesky(y))


class CorrCholeskyTransform(_Same):
    """Cholesky factors [..., n, n] of correlations, of vectors [..., n (n - 1) / 2]."""

    domain, codomain, bijective = constraints.real_vector, constraints.corr_cholesky, True

    def _size(self, length: int) -> int:
        n = round((0.25 + 2 * length) ** 0.5 + 0.5)
        if n * (n - 1) // 2 != length:
            raise ValueError(f"CorrCholeskyTransform: want vectors of length n (n - 1) / 2, got {length}")
        return n

    def forward_shape(self, shape: Sequence[int]) -> plait.Size:
        """Returns the shape of the factors of vectors of the given shape."""
        if len(shape) < 1:
            raise ValueError("CorrCholeskyTransform: want vectors, got a number")
        n = self._size(shape[-1])
        return plait.Size((*shape[:-1], n, n))

    def inverse_shape(self, shape: Sequence[int]) -> plait.Size:
        """Returns the shape of the vectors of factors of the given shape."""
        if len(shape) < 2 or shape[-1] != shape[-2]:
            raise ValueError(f"CorrCholeskyTransform: want square matrices, got shape {list(shape)}")
        return plait.Size((*shape[:-2], shape[-1] * (shape[-1] - 1) // 2))

    def _call(self, x: Tensor) -> Tensor:
        n, eps = self._size(x.shape[-1]), plait.finfo(x.dtype).eps
        t = x.tanh().clamp(-1 + eps, 1 - eps)
        r = vec_to_tril_matrix(t, -1)
        left = (1 - r.square()).sqrt().cumprod(-1)  # of each row's length
        return (r + plait.eye(n, dtype=x.dtype, device=x.device)) * F.pad(left[..., :-1], (1, 0), value=1.0)

    def _inverse(self, y: Tensor) -> Tensor:
        left = F.pad((1 - y.square().cumsum(-1))[..., :-1], (1, 0), value=1.0)
        t = tril_matrix_to_vec(y, -1) / tril_matrix_to_vec(left, -1).sqrt()
        return (plait.log1p(t) - plait.log1p(-t)) / 2

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor, intermediates: Tensor | None = None) -> Tensor:
        """Returns log |det dy/dx| of each vector, by the elements below the diagonal.

        Args:
            x: the vectors
            y: their factors
            intermediates: has no effect
        """
        stick = tril_matrix_to_vec(1 - y.square().cumsum(-1), -2).log().sum(-1) / 2
        return stick - 2 * (x + F.softplus(-2 * x) - math.log(2)).sum(-1)


class CumulativeDistributionTransform(Transform):
    """The cumulative probability of a distribution; the inverse is its `icdf`.

    Args:
        distribution: a distribution of elements
        cache_size: 1 keeps the last argument and its result
    """

    codomain, bijective, sign = constraints.unit_interval, True, 1

    def __init__(self, distribution: Distribution, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.distribution = distribution

    def _call(self, x: Tensor) -> Tensor:
        return self.distribution.cdf(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return self.distribution.icdf(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """Returns the logarithm of the density at x."""
        return self.distribution.log_prob(x)
