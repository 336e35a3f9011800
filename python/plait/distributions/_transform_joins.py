"""Transforms that are made of others, and those of shapes."""

from __future__ import annotations

from collections.abc import Sequence

import plait
from plait import Tensor
from plait.distributions import constraints
from plait.distributions._transform_base import Transform
from plait.distributions.constraints import of_more
from plait.distributions.utils import _sum_rightmost


class ComposeTransform(Transform):
    """One transform after the other; of none, what changes nothing.

    Args:
        parts: the transforms, the first one first
        cache_size: 1 keeps the last argument and its result
    """

    def __init__(self, parts: Sequence[Transform], cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.parts = [p.with_cache(cache_size) for p in parts] if cache_size else list(parts)
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
    def inv(self) -> Transform:
        """The parts' inverses, the last one's first."""
        if self._inv is None:
            self._inv = ComposeTransform([p.inv for p in reversed(self.parts)])
            self._inv._inv = self
        return self._inv

    @property
    def sign(self) -> Tensor | int:
        """The product of the parts'."""
        sign: Tensor | int = 1
        for part in self.parts:
            sign = sign * part.sign
        return sign

    def with_cache(self, cache_size: int = 1) -> Transform:
        """Returns the transform and its parts with a cache of the given size."""
        return self if cache_size == self._cache_size else ComposeTransform(self.parts, cache_size)

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

    def __call__(self, x: Tensor) -> Tensor:
        """Returns what the parts make of x, one after the other; it is they that keep what they returned."""
        for part in self.parts:
            x = part(x)
        return x

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """Returns the sum of the parts'."""
        events = self.domain.event_dim
        total: Tensor | None = None
        for i, part in enumerate(self.parts):
            after = y if i == len(self.parts) - 1 else part(x)
            slope = _sum_rightmost(part.log_abs_det_jacobian(x, after), events - part.domain.event_dim)
            total = slope if total is None else total + slope
            events += part.codomain.event_dim - part.domain.event_dim
            x = after
        return plait.zeros_like(x) if total is None else total

    def __repr__(self) -> str:
        return "ComposeTransform(\n    " + ",\n    ".join(map(repr, self.parts)) + "\n)"


identity_transform = ComposeTransform([])


class IndependentTransform(Transform):
    """A transform whose last dimensions belong together: slopes are summed over them.

    Args:
        base_transform: the transform
        reinterpreted_batch_ndims: how many dimensions more belong together
        cache_size: 1 keeps the last argument and its result
    """

    def __init__(self, base_transform: Transform, reinterpreted_batch_ndims: int, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.base_transform = base_transform.with_cache(cache_size)
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims
        self.domain = constraints.independent(base_transform.domain, reinterpreted_batch_ndims)
        self.codomain = constraints.independent(base_transform.codomain, reinterpreted_batch_ndims)
        self.bijective = base_transform.bijective

    def with_cache(self, cache_size: int = 1) -> Transform:
        """Returns the transform with a cache of the given size."""
        if cache_size == self._cache_size:
            return self
        return IndependentTransform(self.base_transform, self.reinterpreted_batch_ndims, cache_size)

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
        return _sum_rightmost(self.base_transform.log_abs_det_jacobian(x, y), self.reinterpreted_batch_ndims)

    def __repr__(self) -> str:
        return f"IndependentTransform({self.base_transform}, {self.reinterpreted_batch_ndims})"


class ReshapeTransform(Transform):
    """Another shape of the last dimensions.

    Args:
        in_shape: the shape of what it takes
        out_shape: the shape of what it returns, of as many elements
        cache_size: 1 keeps the last argument and its result
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
        cache_size: 1 keeps the last argument and its result
    """

    def __init__(
        self, tseq: Sequence[Transform], dim: int = 0, lengths: Sequence[int] | None = None, cache_size: int = 0
    ) -> None:
        super().__init__(cache_size)
        self.transforms = [t.with_cache(cache_size) for t in tseq] if cache_size else list(tseq)
        self.dim = dim
        self.lengths = [1] * len(self.transforms) if lengths is None else list(lengths)
        if len(self.lengths) != len(self.transforms):
            raise ValueError(
                f"CatTransform: want a length for each of {len(self.transforms)} transforms, got {len(self.lengths)}"
            )
        self.domain = constraints.cat([t.domain for t in self.transforms], dim, self.lengths)
        self.codomain = constraints.cat([t.codomain for t in self.transforms], dim, self.lengths)
        self.bijective = all(t.bijective for t in self.transforms)

    def with_cache(self, cache_size: int = 1) -> Transform:
        """Returns the transform and those in it with a cache of the given size."""
        return (
            self
            if cache_size == self._cache_size
            else CatTransform(self.transforms, self.dim, self.lengths, cache_size)
        )

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
            _sum_rightmost(t.log_abs_det_jacobian(a, b), events - t.domain.event_dim)
            for t, a, b in zip(self.transforms, self._pieces(x), self._pieces(y), strict=True)
        ]
        dim = (self.dim if self.dim < 0 else self.dim - x.ndim) + events
        return plait.cat(slopes, dim) if dim < 0 else plait.stack(slopes).sum(0)


class StackTransform(Transform):
    """A transform for each slice of a tensor along a dimension.

    Args:
        tseq: the transforms
        dim: the dimension
        cache_size: 1 keeps the last argument and its result
    """

    def __init__(self, tseq: Sequence[Transform], dim: int = 0, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.transforms = [t.with_cache(cache_size) for t in tseq] if cache_size else list(tseq)
        self.dim = dim
        self.domain = constraints.stack([t.domain for t in self.transforms], dim)
        self.codomain = constraints.stack([t.codomain for t in self.transforms], dim)
        self.bijective = all(t.bijective for t in self.transforms)

    def with_cache(self, cache_size: int = 1) -> Transform:
        """Returns the transform and those in it with a cache of the given size."""
        return self if cache_size == self._cache_size else StackTransform(self.transforms, self.dim, cache_size)

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
            _sum_rightmost(t.log_abs_det_jacobian(a, b), most - t.domain.event_dim)
            for t, a, b in zip(self.transforms, self._slices(x), self._slices(y), strict=True)
        ]
        if self.domain.event_dim > most:
            return plait.stack(slopes).sum(0)
        return plait.stack(slopes, self.dim + most if self.dim < 0 else self.dim)
