"""Sorting, choosing, counting and running results: functions that return values with indices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plait import _ops, return_types
from plait._engine.runtime import is_tensor
from plait._errors import DTypeError, ShapeError
from plait._functions._checked import checked
from plait._functions._common import into, numpy_names, store
from plait._functions._fast import does
from plait._tensors.arrays import tensor
from plait.return_types import ValuesIndices

if TYPE_CHECKING:
    from plait._dtype import dtype as DType
    from plait._tensor import Tensor

__all__ = [
    "argsort", "argwhere", "bincount", "bucketize", "cov", "cummax", "cummin", "cumprod", "cumsum",
    "cumulative_trapezoid", "diff", "gradient", "histc", "kthvalue", "logcumsumexp", "nonzero",
    "nonzero_static", "renorm", "searchsorted", "sort", "topk", "trapezoid", "unique", "unique_consecutive",
]  # fmt: skip


@numpy_names
@does(_ops.sort, return_types.sort)
def sort(
    input: Tensor, dim: int = -1, descending: bool = False, stable: bool = False, *, out: Any = None
) -> ValuesIndices:
    """Returns the elements sorted along a dimension, and where they were; equal ones stay in order."""
    return store(out, return_types.sort(*_ops.sort(input, dim, descending, stable)))


@numpy_names
@does(_ops.argsort)
def argsort(
    input: Tensor, dim: int = -1, descending: bool = False, stable: bool = False, *, out: Tensor | None = None
) -> Tensor:
    """Returns the indices that sort a tensor along a dimension."""
    return store(out, _ops.argsort(input, dim, descending, stable))


@numpy_names
@does(_ops.topk, return_types.topk)
def topk(
    input: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True, *, out: Any = None
) -> ValuesIndices:
    """Returns the k largest, or smallest, elements along a dimension, and where they were."""
    return store(out, return_types.topk(*_ops.topk(input, k, dim, largest, sorted)))


@numpy_names
@does(_ops.kthvalue, return_types.kthvalue)
def kthvalue(input: Tensor, k: int, dim: int = -1, keepdim: bool = False, *, out: Any = None) -> ValuesIndices:
    """Returns the k-th smallest element along a dimension, counted from 1, and where it was."""
    return store(out, return_types.kthvalue(*_ops.kthvalue(input, k, dim, keepdim)))


@numpy_names
@does(_ops.cummax, return_types.cummax)
def cummax(input: Tensor, dim: int, *, out: Any = None) -> ValuesIndices:
    """Returns the running largest elements along a dimension, and where they were."""
    return store(out, return_types.cummax(*_ops.cummax(input, dim)))


@numpy_names
@does(_ops.cummin, return_types.cummin)
def cummin(input: Tensor, dim: int, *, out: Any = None) -> ValuesIndices:
    """Returns the running smallest elements along a dimension, and where they were."""
    return store(out, return_types.cummin(*_ops.cummin(input, dim)))


@numpy_names
@does(_ops.cumsum)
def cumsum(input: Tensor, dim: int, *, dtype: DType | None = None, out: Tensor | None = None) -> Tensor:
    """Returns the running sums along a dimension."""
    return into(out, _ops.cumsum, input, dim, dtype=dtype)


@numpy_names
@does(_ops.cumprod)
def cumprod(input: Tensor, dim: int, *, dtype: DType | None = None, out: Tensor | None = None) -> Tensor:
    """Returns the running products along a dimension."""
    return into(out, _ops.cumprod, input, dim, dtype=dtype)


@numpy_names
def cumsum_(input: Tensor, dim: int, *, dtype: DType | None = None) -> Tensor:
    """Replaces the elements by their running sums along a dimension; `dtype` may only be the tensor's own."""
    _own_dtype("cumsum_", input, dtype)
    return _ops.cumsum_(input, dim)


@numpy_names
def cumprod_(input: Tensor, dim: int, *, dtype: DType | None = None) -> Tensor:
    """Replaces the elements by their running products along a dimension; `dtype` may only be the tensor's own."""
    _own_dtype("cumprod_", input, dtype)
    return _ops.cumprod_(input, dim)


def _own_dtype(name: str, input: Tensor, dtype: DType | None) -> None:
    if dtype is not None and dtype != input.dtype:
        raise DTypeError(f"{name}: a result of {dtype} can't be cast to {input.dtype}, the tensor's dtype")


@numpy_names
@does(_ops.logcumsumexp)
def logcumsumexp(input: Tensor, dim: int, *, out: Tensor | None = None) -> Tensor:
    """Returns the running logarithms of sums of exponentials along a dimension."""
    return store(out, _ops.logcumsumexp(input, dim))


def _chosen(values: Tensor, inverse: Tensor, counts: Tensor, return_inverse: bool, return_counts: bool) -> Any:
    wanted = [values]
    if return_inverse:
        wanted.append(inverse)
    if return_counts:
        wanted.append(counts)
    return values if len(wanted) == 1 else tuple(wanted)


@checked
def unique(
    input: Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Any:
    """Returns the different elements, or slices along a dimension, in ascending order; waits for them.

    Args:
        input: the elements
        sorted: has no effect: they always are
        return_inverse: also return the index of each element among them
        return_counts: also return how often each comes
        dim: the dimension whose slices are compared
    """
    return _chosen(*_ops.unique(input, dim, return_inverse, return_counts), return_inverse, return_counts)


@checked
def unique_consecutive(
    input: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:
    """Returns the elements without those that equal their predecessor; waits for them. See `unique`."""
    found = _ops.unique_consecutive(input, dim, return_inverse, return_counts)
    return _chosen(*found, return_inverse, return_counts)


@checked
def bincount(input: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    """Returns how often each integer comes in a vector, or the sum of its weights; waits for the largest."""
    return _ops.bincount(input, weights, minlength)


@checked
def histc(input: Tensor, bins: int = 100, min: float = 0, max: float = 0, *, out: Tensor | None = None) -> Tensor:
    """Returns how many elements lie in each of equal parts of a range, by default from the smallest to the largest."""
    return store(out, _ops.histc(input, bins, min, max))


@checked
def searchsorted(
    sorted_sequence: Tensor, input: Any, *, out_int32: bool = False, right: bool = False, side: str | None = None,
    sorter: Tensor | None = None, out: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Returns where values belong in sorted sequences: before equal elements, or after them with side="right"."""
    return store(
        out, _ops.searchsorted(sorted_sequence, _values(input, sorted_sequence), out_int32, _right(right, side), sorter)
    )


@checked
def bucketize(
    input: Any, boundaries: Tensor, *, out_int32: bool = False, right: bool = False, out: Tensor | None = None
) -> Tensor:
    """Returns the number of boundaries that are smaller than each element, or not larger with right=True."""
    return store(out, _ops.bucketize(_values(input, boundaries), boundaries, out_int32, right))


def _values(value: Any, like: Tensor) -> Tensor:
    return value if is_tensor(value) else tensor(value, device=like.device)


def _right(right: bool, side: str | None) -> bool:
    if side is not None and side not in ("left", "right"):
        raise ValueError(f"searchsorted: side must be 'left' or 'right', got {side!r}")
    if side == "left" and right:
        raise ValueError("searchsorted: side='left' and right=True contradict each other")
    return right or side == "right"


@checked
@does(_ops.nonzero)
def nonzero(input: Tensor, *, as_tuple: bool = False, out: Tensor | None = None) -> Any:
    """Returns the coordinates of the elements that are not zero, a row each; waits for them.

    Args:
        input: the elements
        as_tuple: return a vector of indices for each dimension instead
        out: where the result goes
    """
    found = _ops.nonzero(input if input.shape or not as_tuple else _ops.unsqueeze(input, 0))
    return tuple(_ops.unbind(found, 1)) if as_tuple else store(out, found)


@checked
def argwhere(input: Tensor) -> Tensor:
    """Returns the coordinates of the elements that are not zero, a row each; waits for them."""
    return _ops.nonzero(input)


@checked
def nonzero_static(input: Tensor, *, size: int, fill_value: int = -1, out: Tensor | None = None) -> Tensor:
    """Returns `size` coordinates of elements that are not zero, filled up with `fill_value`."""
    found = _ops.nonzero(input)[:size]
    rest = _ops.full(
        size - found.shape[0], found.shape[1], fill_value=fill_value, dtype=found.dtype, device=found.device
    )
    return store(out, _ops.cat([found, rest]))


@numpy_names
def diff(
    input: Tensor, n: int = 1, dim: int = -1, prepend: Tensor | None = None, append: Tensor | None = None,
    *, out: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Returns the n-th differences of neighbours along a dimension."""
    return store(out, _ops.diff(input, n, dim, prepend, append))


@checked
def trapezoid(y: Tensor, x: Tensor | None = None, *, dx: float = 1.0, dim: int = -1) -> Tensor:
    """Returns the integral along a dimension by the trapezoidal rule."""
    return _ops.trapezoid(y, x, dx, dim)


@checked
def cumulative_trapezoid(y: Tensor, x: Tensor | None = None, *, dx: float = 1.0, dim: int = -1) -> Tensor:
    """Returns the running integrals along a dimension by the trapezoidal rule."""
    return _ops.cumulative_trapezoid(y, x, dx, dim)


@checked
def cov(
    input: Tensor, *, correction: int = 1, fweights: Tensor | None = None, aweights: Tensor | None = None
) -> Tensor:
    """Returns the covariances of variables in rows; waits for weights.

    Args:
        input: the variables, one a row
        correction: what the number of observations is lessened by
        fweights: how often each observation is there: integers of at least 0
        aweights: how much each observation matters: numbers of at least 0
    """
    for name, weights in (("fweights", fweights), ("aweights", aweights)):
        if weights is not None and not weights.is_meta and bool(_ops.any(_ops.lt(weights, 0)).item()):
            raise ValueError(f"cov: {name} must not be negative")
    return _ops.cov(input, correction, fweights, aweights)


@numpy_names
def renorm(input: Tensor, p: float, dim: int, maxnorm: float, *, out: Tensor | None = None) -> Tensor:
    """Returns the tensor with the slices along a dimension scaled to a p-norm of at most `maxnorm`."""
    return store(out, _ops.renorm(input, p, dim=dim, maxnorm=maxnorm))


def renorm_(input: Tensor, p: float, dim: int, maxnorm: float) -> Tensor:
    """Scales the slices along a dimension to a p-norm of at most `maxnorm`."""
    return _ops.renorm_(input, p, dim=dim, maxnorm=maxnorm)


@checked
def gradient(input: Tensor, *, spacing: Any = None, dim: Any = None, edge_order: int = 1) -> tuple[Tensor, ...]:
    """Returns the derivatives along dimensions by central differences.

    Args:
        input: the values
        spacing: the distance of neighbours, 1 by default, one or a vector of coordinates for each dimension
        dim: the dimensions; all by default
        edge_order: of the differences at the ends, 1 or 2
    """
    if edge_order not in (1, 2):
        raise ValueError(f"gradient: edge_order must be 1 or 2, got {edge_order}")
    dims = list(range(len(input.shape))) if dim is None else [dim] if isinstance(dim, int) else list(dim)
    distance = 1 if spacing is None else spacing
    steps = [distance] * len(dims) if isinstance(distance, int | float) else list(distance)
    if len(steps) != len(dims):
        raise ValueError(f"gradient: got {len(steps)} spacings for {len(dims)} dimensions")
    return tuple(_derivative(input, d, h, edge_order) for d, h in zip(dims, steps, strict=True))


def _derivative(y: Tensor, d: int, spacing: Any, edge_order: int) -> Tensor:
    """Returns the derivative along one dimension: differences exact for parabolas, at the ends of `edge_order`."""
    n = y.shape[d]
    if n <= edge_order:
        raise ShapeError(f"gradient: want at least {edge_order + 1} elements along dimension {d}, got {n}")
    if isinstance(spacing, int | float) or len(spacing.shape) == 0:
        steps: Any = None
    else:
        if tuple(spacing.shape) != (n,):
            raise ShapeError(f"gradient: got {list(spacing.shape)} coordinates for {n} elements along dimension {d}")
        after = [1] * (len(y.shape) - 1 - d % len(y.shape))
        steps = _ops.reshape(_ops.narrow(spacing, 0, 1, n - 1) - _ops.narrow(spacing, 0, 0, n - 1), (n - 1, *after))
    lead = d % len(y.shape) - len(y.shape)  # counted from the end, where steps have the same dimensions
    slopes = (_ops.narrow(y, d, 1, n - 1) - _ops.narrow(y, d, 0, n - 1)) / (spacing if steps is None else steps)

    def at(t: Tensor, start: int, length: int) -> Tensor:
        return _ops.narrow(t, lead, start, length)

    if steps is None:
        middle = (at(slopes, 0, n - 2) + at(slopes, 1, n - 2)) * 0.5
    else:
        left, right = at(steps, 0, n - 2), at(steps, 1, n - 2)
        middle = (at(slopes, 0, n - 2) * right + at(slopes, 1, n - 2) * left) / (left + right)
    first, last = at(slopes, 0, 1), at(slopes, n - 2, 1)
    if edge_order == 2:
        # The parabola through three points has the slope of the first two half a step further in.
        for_first = 0.5 if steps is None else at(steps, 0, 1) / (at(steps, 0, 1) + at(steps, 1, 1))
        for_last = 0.5 if steps is None else at(steps, n - 2, 1) / (at(steps, n - 2, 1) + at(steps, n - 3, 1))
        first = first + (first - at(slopes, 1, 1)) * for_first
        last = last + (last - at(slopes, n - 3, 1)) * for_last
    return _ops.cat([first, middle, last], d)
