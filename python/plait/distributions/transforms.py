"""Functions of random variables that can be undone, with the logarithms of their slopes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import plait
from plait import Tensor
from plait.distributions import constraints
from plait.distributions.constraints import Constraint, of_more
from plait.distributions.utils import tril_matrix_to_vec, vec_to_tril_matrix
from plait.nn import functional as F

if TYPE_CHECKING:
    from plait.distributions._distribution import Distribution


def sum_last(t: Tensor, n: int) -> Tensor:
    """Returns the sum over the last n dimensions."""
    return t.sum(tuple(range(-n, 0))) if n else t


class Transform:
    """A function with an inverse; subclasses have _call, _inverse and log_abs_det_jacobian.

    `domain` and `codomain` say which values it takes and returns; their event_dim says whether it works on elements, 0,
    or on vectors or matrices, 1 or 2. `bijective` says whether the inverse gives back each value.

    Args:
        cache_size: has no effect: inverses are computed
    """

    domain: Constraint = constraints.real
    codomain: Constraint = constraints.real
    bijective = False

    def __init__(self, cache_size: int = 0) -> None:
        if cache_size not in (0, 1):
            raise ValueError(f"{type(self).__name__}: cache_size must be 0 or 1, got {cache_size!r}")

    def __call__(self, x: Tensor) -> Tensor:
        """Returns the function of x."""
        return self._call(x)

    @property
    def sign(self) -> Tensor | int:
        """1 where the function rises, -1 where it falls."""
        raise NotImplementedError(f"{type(self).__name__} has no sign: it does not rise or fall element by element")

    @property
    def inv(self) -> Transform:
        """The inverse, as a transform."""
        return _Inverse(self)

    @property
    def event_dim(self) -> int:
        """The number of dimensions that are looked at together.

        Raises:
            ValueError: if the function changes it
        """
        if self.domain.event_dim != self.codomain.event_dim:
            raise ValueError(f"{type(self).__name__}: event_dim changes; use domain.event_dim or codomain.event_dim")
        return self.domain.event_dim

    def with_cache(self, cache_size: int = 1) -> Transform:
        """Returns the transform: there is no cache."""
        if cache_size not in (0, 1):
            raise ValueError(f"{type(self).__name__}: cache_size must be 0 or 1, got {cache_size!r}")
        return self

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def forward_shape(self, shape: Sequence[int]) -> plait.Size:
        """Returns the shape of the function of a tensor of the given one."""
        return plait.Size(shape)

    def inverse_shape(self, shape: Sequence[int]) -> plait.Size:
        """Returns the shape of the inverse of a tensor of the given one."""
        return plait.Size(shape)

    def _call(self, x: Tensor) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} has no _call")

    def _inverse(self, y: Tensor) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} has no _inverse")

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """Returns log |det dy/dx| of each element, vector or matrix, where y is the function of x."""
        raise NotImplementedError(f"{type(self).__name__} has no log_abs_det_jacobian")

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class _Inverse(Transform):
    def __init__(self, of: Transform) -> None:
        super().__init__()
        self._of = of
        self.domain, self.codomain, self.bijective = of.codomain, of.domain, of.bijective

    @property
    def sign(self) -> Tensor | int:
        """1 where the function rises, -1 where it falls."""
        return self._of.sign

    @property
    def inv(self) -> Transform:
        """What this one undoes."""
        return self._of

    def forward_shape(self, shape: Sequence[int]) -> plait.Size:
        """Returns the shape of the function of a tensor of the given one."""
        return self._of.inverse_shape(shape)

    def inverse_shape(self, shape: Sequence[int]) -> plait.Size:
        """Returns the shape of the inverse of a tensor of the given one."""
        return self._of.forward_shape(shape)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Inverse) and self._of == other._of

    def __hash__(self) -> int:
        return hash((_Inverse, self._of))

    def _call(self, x: Tensor) -> Tensor:
        return self._of._inverse(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return self._of(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """Returns log |dy/dx|."""
        return -self._of.log_abs_det_jacobian(y, x)


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
        cache_size: has no effect
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
        return sum_last(slope, self.domain.event_dim)


class ComposeTransform(Transform):
    """One transform after the other; of none, what changes nothing.

    Args:
        parts: the transforms, the first one first
        cache_size: has no effect
    """

    def __init__(self, parts: Sequence[Transform], cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.parts = list(parts)
        self.bijective = all(p.bijective for p in self.parts)
        if self.parts:
            first, last = self.parts[0].domain, self.parts[-1].codomain
            before, after = last.event_dim, first.event_dim
            for p in reversed(self.parts):  # as many dimensions as the part that looks at the most
                before = max(before + p.domain.event_dim - p.codomain.event_dim, p.domain.event_dim)
            for p in self.parts:
                after = max(after + p.codomain.event_dim - p.domain.event_dim, p.codomain.event_dim)
            self.domain = of_more(first, before - first.event_dim)
            self.codomain = of_more(last, after - last.event_dim)

    @property
    def sign(self) -> Tensor | int:
        """The product of the parts'."""
        sign: Tensor | int = 1
        for part in self.parts:
            sign = sign * part.sign
        return sign

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ComposeTransform) and self.parts == other.parts

    __hash__ = Transform.__hash__

    def forward_shape(self, shape: Sequence[int]) -> plait.Size:
        """Returns the shape of the function of a tensor of the given one."""
        for part in self.parts:
            shape = part.forward_shape(shape)
        return plait.Size(shape)

    def inverse_shape(self, shape: Sequence[int]) -> plait.Size:
        """Returns the shape of the inverse of a tensor of the given one."""
        for part in reversed(self.parts):
            shape = part.inverse_shape(shape)
        return plait.Size(shape)

    def _call(self, x: Tensor) -> Tensor:
        for part in self.parts:
            x = part(x)
        return x

    def _inverse(self, y: Tensor) -> Tensor:
        for part in reversed(self.parts):
            y = part.inv(y)
        return y

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """Returns the sum of the parts'."""
        events = self.domain.event_dim
        total: Tensor | None = None
        for part in self.parts:
            after = part(x)
            slope = sum_last(part.log_abs_det_jacobian(x, after), events - part.domain.event_dim)
            total = slope if total is None else total + slope
            events += part.codomain.event_dim - part.domain.event_dim
            x = after
        return plait.zeros_like(x) if total is None else total


identity_transform = ComposeTransform([])


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
        cache_size: has no effect
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
        cache_size: has no effect
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


class IndependentTransform(Transform):
    """A transform whose last dimensions belong together: slopes are summed over them.

    Args:
        base_transform: the transform
        reinterpreted_batch_ndims: how many dimensions more belong together
        cache_size: has no effect
    """

    def __init__(self, base_transform: Transform, reinterpreted_batch_ndims: int, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.base_transform, self.reinterpreted_batch_ndims = base_transform, reinterpreted_batch_ndims
        self.domain = constraints.independent(base_transform.domain, reinterpreted_batch_ndims)
        self.codomain = constraints.independent(base_transform.codomain, reinterpreted_batch_ndims)
        self.bijective = base_transform.bijective

    @property
    def sign(self) -> Tensor | int:
        """The transform's."""
        return self.base_transform.sign

    def forward_shape(self, shape: Sequence[int]) -> plait.Size:
        """Returns the transform's."""
        return self.base_transform.forward_shape(shape)

    def inverse_shape(self, shape: Sequence[int]) -> plait.Size:
        """Returns the transform's."""
        return self.base_transform.inverse_shape(shape)

    def _call(self, x: Tensor) -> Tensor:
        if x.ndim < self.domain.event_dim:
            raise ValueError(f"IndependentTransform: want {self.domain.event_dim} dimensions or more, got {x.ndim}")
        return self.base_transform(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return self.base_transform.inv(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """Returns the transform's, summed over the dimensions."""
        return sum_last(self.base_transform.log_abs_det_jacobian(x, y), self.reinterpreted_batch_ndims)

    def __repr__(self) -> str:
        return f"IndependentTransform({self.base_transform}, {self.reinterpreted_batch_ndims})"


class ReshapeTransform(Transform):
    """Another shape of the last dimensions.

    Args:
        in_shape: the shape of what it takes
        out_shape: the shape of what it returns, of as many elements
        cache_size: has no effect
    """

    bijective = True

    def __init__(self, in_shape: Sequence[int], out_shape: Sequence[int], cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.in_shape, self.out_shape = plait.Size(in_shape), plait.Size(out_shape)
        if self.in_shape.numel() != self.out_shape.numel():
            raise ValueError(
                f"ReshapeTransform: want shapes of as many elements, got {list(in_shape)} and {list(out_shape)}"
            )
        self.domain = constraints.independent(constraints.real, len(self.in_shape))
        self.codomain = constraints.independent(constraints.real, len(self.out_shape))

    @staticmethod
    def _changed(shape: Sequence[int], before: plait.Size, after: plait.Size) -> plait.Size:
        cut = len(shape) - len(before)
        if cut < 0 or tuple(shape[cut:]) != tuple(before):
            raise ValueError(f"ReshapeTransform: want a shape that ends with {list(before)}, got {list(shape)}")
        return plait.Size((*shape[:cut], *after))

    def forward_shape(self, shape: Sequence[int]) -> plait.Size:
        """Returns the shape with out_shape at its end."""
        return self._changed(shape, self.in_shape, self.out_shape)

    def inverse_shape(self, shape: Sequence[int]) -> plait.Size:
        """Returns the shape with in_shape at its end."""
        return self._changed(shape, self.out_shape, self.in_shape)

    def _call(self, x: Tensor) -> Tensor:
        return x.reshape(self.forward_shape(x.shape))

    def _inverse(self, y: Tensor) -> Tensor:
        return y.reshape(self.inverse_shape(y.shape))

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """Returns zeros."""
        return plait.zeros(x.shape[: x.ndim - len(self.in_shape)], dtype=x.dtype, device=x.device)


class CatTransform(Transform):
    """A transform for each piece of a tensor along a dimension.

    Args:
        tseq: the transforms
        dim: the dimension
        lengths: the lengths of the pieces; 1 by default
        cache_size: has no effect
    """

    def __init__(
        self, tseq: Sequence[Transform], dim: int = 0, lengths: Sequence[int] | None = None, cache_size: int = 0
    ) -> None:
        super().__init__(cache_size)
        self.transforms, self.dim = list(tseq), dim
        self.lengths = [1] * len(self.transforms) if lengths is None else list(lengths)
        if len(self.lengths) != len(self.transforms):
            raise ValueError(
                f"CatTransform: want a length for each of {len(self.transforms)} transforms, got {len(self.lengths)}"
            )
        self.domain = constraints.cat([t.domain for t in self.transforms], dim, self.lengths)
        self.codomain = constraints.cat([t.codomain for t in self.transforms], dim, self.lengths)
        self.bijective = all(t.bijective for t in self.transforms)

    @property
    def length(self) -> int:
        """The lengths together."""
        return sum(self.lengths)

    def _pieces(self, x: Tensor) -> Sequence[Tensor]:
        if x.shape[self.dim] != self.length:
            raise ValueError(
                f"CatTransform: want a size of {self.length} in dimension {self.dim}, got shape {list(x.shape)}"
            )
        return x.split(self.lengths, self.dim)

    def _call(self, x: Tensor) -> Tensor:
        return plait.cat([t(p) for t, p in zip(self.transforms, self._pieces(x), strict=True)], self.dim)

    def _inverse(self, y: Tensor) -> Tensor:
        return plait.cat([t.inv(p) for t, p in zip(self.transforms, self._pieces(y), strict=True)], self.dim)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """Returns those of the pieces: joined if the dimension is none of an event's, and summed otherwise."""
        events = self.domain.event_dim
        slopes = [
            sum_last(t.log_abs_det_jacobian(a, b), events - t.domain.event_dim)
            for t, a, b in zip(self.transforms, self._pieces(x), self._pieces(y), strict=True)
        ]
        dim = (self.dim if self.dim < 0 else self.dim - x.ndim) + events
        return plait.cat(slopes, dim) if dim < 0 else plait.stack(slopes).sum(0)


class StackTransform(Transform):
    """A transform for each slice of a tensor along a dimension.

    Args:
        tseq: the transforms
        dim: the dimension
        cache_size: has no effect
    """

    def __init__(self, tseq: Sequence[Transform], dim: int = 0, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.transforms, self.dim = list(tseq), dim
        self.domain = constraints.stack([t.domain for t in self.transforms], dim)
        self.codomain = constraints.stack([t.codomain for t in self.transforms], dim)
        self.bijective = all(t.bijective for t in self.transforms)

    def _slices(self, x: Tensor) -> Sequence[Tensor]:
        if x.shape[self.dim] != len(self.transforms):
            raise ValueError(
                f"StackTransform: want a size of {len(self.transforms)} in dimension {self.dim}, "
                f"got shape {list(x.shape)}"
            )
        return x.unbind(self.dim)

    def _call(self, x: Tensor) -> Tensor:
        return plait.stack([t(s) for t, s in zip(self.transforms, self._slices(x), strict=True)], self.dim)

    def _inverse(self, y: Tensor) -> Tensor:
        return plait.stack([t.inv(s) for t, s in zip(self.transforms, self._slices(y), strict=True)], self.dim)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """Returns those of the slices: stacked, or summed if the dimension is one of the event's."""
        most = max((t.domain.event_dim for t in self.transforms), default=0)
        slopes = [
            sum_last(t.log_abs_det_jacobian(a, b), most - t.domain.event_dim)
            for t, a, b in zip(self.transforms, self._slices(x), self._slices(y), strict=True)
        ]
        if self.domain.event_dim > most:
            return plait.stack(slopes).sum(0)
        return plait.stack(slopes, self.dim + most if self.dim < 0 else self.dim)
