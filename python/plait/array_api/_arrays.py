"""Arrays in other forms, reductions, sorting, searching and sets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import plait
from plait import _ops
from plait._layout import Size
from plait._tensor import Tensor
from plait.array_api._elementwise import promoted

if TYPE_CHECKING:
    from plait._dtype import dtype as DType

__all__ = [
    "all",
    "any",
    "argmax",
    "argmin",
    "argsort",
    "broadcast_arrays",
    "broadcast_to",
    "concat",
    "cumulative_sum",
    "expand_dims",
    "flip",
    "max",
    "mean",
    "meshgrid",
    "min",
    "moveaxis",
    "nonzero",
    "permute_dims",
    "prod",
    "repeat",
    "reshape",
    "roll",
    "searchsorted",
    "sort",
    "squeeze",
    "stack",
    "std",
    "sum",
    "take",
    "tile",
    "tril",
    "triu",
    "unique_all",
    "unique_counts",
    "unique_inverse",
    "unique_values",
    "unstack",
    "var",
]

Axes: TypeAlias = int | Sequence[int] | None

# --- forms ---


def broadcast_to(x: Tensor, /, shape: Sequence[int]) -> Tensor:
    """Returns a view of an array in a shape to which it broadcasts."""
    return plait.broadcast_to(x, tuple(shape))


def tril(x: Tensor, /, *, k: int = 0) -> Tensor:
    """Returns matrices with zeros above their k-th diagonals."""
    return plait.tril(x, k)


def triu(x: Tensor, /, *, k: int = 0) -> Tensor:
    """Returns matrices with zeros below their k-th diagonals."""
    return plait.triu(x, k)


def broadcast_arrays(*arrays: Tensor) -> list[Tensor]:
    """Returns views of arrays in the shape to which they broadcast."""
    return list(plait.broadcast_tensors(*arrays))


def concat(arrays: Sequence[Tensor], /, *, axis: int | None = 0) -> Tensor:
    """Returns arrays one after the other along an axis; with None, all their elements in one dimension."""
    if axis is None:
        return plait.cat([a.reshape(-1) for a in promoted(*arrays)])
    return plait.cat(promoted(*arrays), axis)


def expand_dims(x: Tensor, /, axis: int) -> Tensor:
    """Returns a view with an axis of size 1 more."""
    return plait.unsqueeze(x, axis)


def flip(x: Tensor, /, *, axis: Axes = None) -> Tensor:
    """Returns the elements in reverse order along axes, along all by default."""
    return plait.flip(x, _axes(x, axis))


def meshgrid(*arrays: Tensor, indexing: str = "xy") -> list[Tensor]:
    """Returns the coordinates of a grid; with indexing "xy" the first two arrays change places."""
    return list(plait.meshgrid(*arrays, indexing=indexing))


def moveaxis(x: Tensor, source: Any, destination: Any, /) -> Tensor:
    """Returns a view with axes at other places."""
    return plait.movedim(x, source, destination)


def permute_dims(x: Tensor, /, axes: Sequence[int]) -> Tensor:
    """Returns a view with the axes in another order."""
    return plait.permute(x, tuple(axes))


def repeat(x: Tensor, repeats: Any, /, *, axis: int | None = None) -> Tensor:
    """Returns each element along an axis several times; with None, of all in one dimension."""
    return plait.repeat_interleave(x, repeats, axis)


def reshape(x: Tensor, /, shape: Sequence[int], *, copy: bool | None = None) -> Tensor:
    """Returns the elements in another shape; copy=True makes a copy in any case, False in none."""
    if copy:
        return plait.clone(x).reshape(tuple(shape))
    return x.view(tuple(shape)) if copy is False else x.reshape(tuple(shape))


def roll(x: Tensor, /, shift: Any, *, axis: Axes = None) -> Tensor:
    """Returns the elements moved along axes, those that leave coming in at the other end."""
    return plait.roll(x, shift, axis)


def squeeze(x: Tensor, /, axis: Any) -> Tensor:
    """Returns a view without some axes of size 1."""
    dims = _axes(x, axis)
    for d in dims:
        if x.shape[d] != 1:
            raise ValueError(f"squeeze: axis {d} has size {x.shape[d]}, want 1")
    return plait.squeeze(x, dims)


def stack(arrays: Sequence[Tensor], /, *, axis: int = 0) -> Tensor:
    """Returns arrays along a new axis."""
    return plait.stack(promoted(*arrays), axis)


def tile(x: Tensor, repetitions: Sequence[int], /) -> Tensor:
    """Returns copies of an array side by side."""
    return plait.tile(x, tuple(repetitions))


def unstack(x: Tensor, /, *, axis: int = 0) -> tuple[Tensor, ...]:
    """Returns the parts of an array along an axis."""
    return tuple(plait.unbind(x, axis))


def take(x: Tensor, indices: Tensor, /, *, axis: int | None = None) -> Tensor:
    """Returns the parts of an array at indices along an axis, which may be left out if there is one."""
    if axis is None:
        if x.ndim != 1:
            raise ValueError(f"take: want an axis for an array of {x.ndim} dimensions")
        axis = 0
    size = x.shape[axis]
    return plait.index_select(x, axis, plait.where(indices < 0, indices + size, indices))


# --- reductions ---


def _axes(x: Tensor, axis: Axes) -> tuple[int, ...]:
    """Returns axes, all of them for None, counted from the front."""
    if axis is None:
        return tuple(range(x.ndim))
    wanted = (axis,) if isinstance(axis, int) else tuple(axis)
    for a in wanted:
        if not -x.ndim <= a < x.ndim:
            raise IndexError(f"axis {a} is out of range for shape {list(x.shape)}")
    return tuple(a % x.ndim for a in wanted)


def _along(function: Any, x: Tensor, axis: Axes, keepdims: bool) -> Tensor:
    """Reduces along several axes, or along none, which leaves each element its own result."""
    dims = _axes(x, axis)
    return function(x, dims, keepdims) if dims else function(plait.unsqueeze(x, -1), (-1,), False)


def _one_by_one(function: Any) -> Any:
    """Returns a function that reduces along several axes, made of one that takes one."""

    def reduce(x: Tensor, dims: Sequence[int], keepdims: bool) -> Tensor:
        for d in sorted(dims, reverse=True):
            x = function(x, d, keepdims)
        return x

    return reduce


def all(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Whether all elements along axes, along all by default, are other than 0."""
    return _along(_one_by_one(_ops.all), x.bool(), axis, keepdims)


def any(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Whether an element along axes, along all by default, is other than 0."""
    return _along(_one_by_one(_ops.any), x.bool(), axis, keepdims)


def max(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Returns the largest elements along axes, along all by default."""
    return _along(plait.amax, x, axis, keepdims)


def min(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Returns the smallest elements along axes, along all by default."""
    return _along(plait.amin, x, axis, keepdims)


def sum(x: Tensor, /, *, axis: Axes = None, dtype: DType | None = None, keepdims: bool = False) -> Tensor:
    """Returns the sums of elements along axes, along all by default."""
    return _along(lambda x, d, k: plait.sum(x, d, k, dtype=dtype), x, axis, keepdims)


def prod(x: Tensor, /, *, axis: Axes = None, dtype: DType | None = None, keepdims: bool = False) -> Tensor:
    """Returns the products of elements along axes, along all by default."""
    return _along(_one_by_one(lambda x, d, k: plait.prod(x, d, k, dtype=dtype)), x, axis, keepdims)


def mean(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Returns the means of elements along axes, along all by default."""
    return _along(plait.mean, x, axis, keepdims)


def var(x: Tensor, /, *, axis: Axes = None, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """Returns the variances along axes, along all by default: sums of squares over the count less the correction."""
    return _along(lambda x, d, k: plait.var(x, d, correction=correction, keepdim=k), x, axis, keepdims)


def std(x: Tensor, /, *, axis: Axes = None, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """Returns the roots of `var`."""
    return _along(lambda x, d, k: plait.std(x, d, correction=correction, keepdim=k), x, axis, keepdims)


def cumulative_sum(
    x: Tensor, /, *, axis: int | None = None, dtype: DType | None = None, include_initial: bool = False
) -> Tensor:
    """Returns the running sums along an axis, which may be left out if there is one; behind a 0 if include_initial."""
    if axis is None:
        if x.ndim != 1:
            raise ValueError(f"cumulative_sum: want an axis for an array of {x.ndim} dimensions")
        axis = 0
    out = plait.cumsum(x, axis, dtype=dtype)
    if not include_initial:
        return out
    shape = list(x.shape)
    shape[axis] = 1
    return plait.cat([plait.zeros(shape, dtype=out.dtype, device=out.device), out], axis)


# --- sorting, searching, sets ---


def argmax(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Returns where the largest elements along an axis, or of all, are."""
    return plait.argmax(x, axis, keepdims)


def argmin(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Returns where the smallest elements along an axis, or of all, are."""
    return plait.argmin(x, axis, keepdims)


def argsort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """Returns the indices that sort an array along an axis."""
    return plait.sort(x, dim=axis, descending=descending, stable=stable).indices


def sort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """Returns an array sorted along an axis."""
    return plait.sort(x, dim=axis, descending=descending, stable=stable).values


def nonzero(x: Tensor, /) -> tuple[Tensor, ...]:
    """Returns the indices, one array for each axis, of the elements other than 0."""
    if not x.ndim:
        raise ValueError("nonzero: want at least one dimension, got a 0-d array")
    return tuple(plait.nonzero(x, as_tuple=True))


def searchsorted(x1: Tensor, x2: Tensor, /, *, side: str = "left", sorter: Tensor | None = None) -> Tensor:
    """Returns where in a sorted array x1 other elements would have to go."""
    x1, x2 = promoted(x1, x2)
    return plait.searchsorted(x1, x2, side=side, sorter=sorter)


class UniqueAll(NamedTuple):
    """Different elements, where each is first, which of them each element is, and how often there is each."""

    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCounts(NamedTuple):
    """Different elements, and how often there is each."""

    values: Tensor
    counts: Tensor


class UniqueInverse(NamedTuple):
    """Different elements, and which of them each element is."""

    values: Tensor
    inverse_indices: Tensor


def unique_all(x: Tensor, /) -> UniqueAll:
    """Returns what there is to know of the different elements."""
    values, inverse, counts = plait.unique(x, return_inverse=True, return_counts=True)
    flat = inverse.reshape(-1)
    first = plait.full(Size(values.shape), flat.numel(), dtype=plait.int64, device=x.device)
    first = first.scatter_reduce(0, flat, plait.arange(flat.numel(), device=x.device), "amin")
    return UniqueAll(values, first, inverse, counts)


def unique_counts(x: Tensor, /) -> UniqueCounts:
    """Returns the different elements, and how often there is each."""
    return UniqueCounts(*plait.unique(x, return_counts=True))


def unique_inverse(x: Tensor, /) -> UniqueInverse:
    """Returns the different elements, and which of them each element is."""
    return UniqueInverse(*plait.unique(x, return_inverse=True))


def unique_values(x: Tensor, /) -> Tensor:
    """Returns the different elements."""
    return plait.unique(x)
