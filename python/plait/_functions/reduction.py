"""Reductions over dimensions: sums, means, variances, extremes, norms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from plait import _ops, return_types
from plait._engine.runtime import is_tensor
from plait._functions._common import into, numpy_names, one_dim, operand, store
from plait._functions._fast import does
from plait._tensors.arrays import tensor
from plait.linalg import matrix_norm
from plait.return_types import MinMax, ValuesIndices

if TYPE_CHECKING:
    from plait._dtype import dtype as DType
    from plait._tensor import Tensor

__all__ = [
    "all", "amax", "amin", "aminmax", "any", "argmax", "argmin", "count_nonzero", "dist", "logsumexp", "max", "mean",
    "median", "min", "mode", "nanmean", "nanmedian", "nanquantile", "nansum", "norm", "prod", "quantile", "std",
    "std_mean", "sum", "var", "var_mean",
]  # fmt: skip

Dims = int | Sequence[int] | None


def _all_or(dim: Any) -> Any:
    """Returns dimensions to reduce; an empty list means all."""
    return None if isinstance(dim, list | tuple) and not dim else dim


@numpy_names
@does(_ops.sum)
def sum(
    input: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: DType | None = None, out: Tensor | None = None
) -> Tensor:
    """Returns the sum over dimensions, over all by default; of integers and bools as int64."""
    return into(out, _ops.sum, input, _all_or(dim), keepdim, dtype=dtype)


@numpy_names
def nansum(
    input: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: DType | None = None, out: Tensor | None = None
) -> Tensor:
    """Returns the sum of the elements that are not NaN."""
    result = _ops.nansum(input if dtype is None else _ops.to(input, dtype=dtype), _all_or(dim), keepdim)
    return store(out, result)


@numpy_names
@does(_ops.mean)
def mean(
    input: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: DType | None = None, out: Tensor | None = None
) -> Tensor:
    """Returns the mean over dimensions, over all by default."""
    return into(out, _ops.mean, input, _all_or(dim), keepdim, dtype=dtype)


@numpy_names
def nanmean(
    input: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: DType | None = None, out: Tensor | None = None
) -> Tensor:
    """Returns the mean of the elements that are not NaN."""
    result = _ops.nanmean(input if dtype is None else _ops.to(input, dtype=dtype), _all_or(dim), keepdim)
    return store(out, result)


@numpy_names
@does(_ops.prod)
def prod(
    input: Tensor,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    dtype: DType | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Returns the product along a dimension, or of all elements."""
    return into(out, _ops.prod, input, _all_or(dim), keepdim, dtype=dtype)


def _correction(dim: Any, unbiased: bool | None, correction: float | None) -> tuple[Any, float]:
    """Returns dimensions and the correction that an overload of var or std means."""
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    if unbiased is not None:
        if correction is not None:
            raise TypeError("var: want unbiased or correction, got both")
        correction = int(unbiased)
    return _all_or(dim), 1.0 if correction is None else correction


@numpy_names
def var(
    input: Tensor, dim: Any = None, unbiased: bool | None = None, keepdim: bool = False,
    *, correction: float | None = None, out: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Returns the variance over dimensions, over all by default.

    Args:
        input: the elements
        dim: the dimensions; a bool in its place is `unbiased`
        unbiased: whether the divisor is the number of elements less one, which is the default
        keepdim: keep the reduced dimensions with size 1
        correction: what is subtracted from the number of elements, instead of `unbiased`
        out: where the result goes
    """
    dims, c = _correction(dim, unbiased, correction)
    return store(out, _ops.var(input, dims, c, keepdim))


@numpy_names
def std(
    input: Tensor, dim: Any = None, unbiased: bool | None = None, keepdim: bool = False,
    *, correction: float | None = None, out: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Returns the standard deviation over dimensions; see `var`."""
    dims, c = _correction(dim, unbiased, correction)
    return store(out, _ops.std(input, dims, c, keepdim))


@numpy_names
def var_mean(
    input: Tensor,
    dim: Any = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Returns the variance and the mean over dimensions; see `var`."""
    dims, c = _correction(dim, unbiased, correction)
    return _ops.var_mean(input, dims, c, keepdim)


@numpy_names
def std_mean(
    input: Tensor,
    dim: Any = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Returns the standard deviation and the mean over dimensions; see `var`."""
    dims, c = _correction(dim, unbiased, correction)
    return _ops.std_mean(input, dims, c, keepdim)


def _extreme(name: str, input: Tensor, dim: Any, keepdim: bool, other: Any, out: Any) -> Any:
    if other is None and is_tensor(dim):
        dim, other = None, dim
    if other is not None:
        return store(out, _ops.maximum(input, other) if name == "max" else _ops.minimum(input, other))
    if dim is None:
        return store(out, (_ops.amax if name == "max" else _ops.amin)(input, even=True))
    along, made = (_ops.max, return_types.max) if name == "max" else (_ops.min, return_types.min)
    return store(out, made(*along(input, one_dim(name, dim), keepdim)))


@numpy_names
@does(_ops.max, return_types.max)
@does(_ops.amax, dim=None, keepdim=False, even=True)
def max(input: Tensor, dim: Any = None, keepdim: bool = False, *, other: Tensor | None = None, out: Any = None) -> Any:
    """Returns the largest element; with a dimension (values, indices); with another tensor the larger elements."""
    return _extreme("max", input, dim, keepdim, other, out)


@numpy_names
@does(_ops.min, return_types.min)
@does(_ops.amin, dim=None, keepdim=False, even=True)
def min(input: Tensor, dim: Any = None, keepdim: bool = False, *, other: Tensor | None = None, out: Any = None) -> Any:
    """Returns the smallest element; with a dimension (values, indices); with another tensor the smaller elements."""
    return _extreme("min", input, dim, keepdim, other, out)


@numpy_names
def aminmax(input: Tensor, *, dim: int | None = None, keepdim: bool = False, out: Any = None) -> MinMax:
    """Returns the smallest and the largest elements, (min, max)."""
    return store(out, return_types.aminmax(_ops.amin(input, dim, keepdim), _ops.amax(input, dim, keepdim)))


@numpy_names
@does(_ops.amax)
def amax(input: Tensor, dim: Dims = None, keepdim: bool = False, *, out: Tensor | None = None) -> Tensor:
    """Returns the largest elements over dimensions; equal ones share the gradient."""
    return into(out, _ops.amax, input, _all_or(dim), keepdim)


@numpy_names
@does(_ops.amin)
def amin(input: Tensor, dim: Dims = None, keepdim: bool = False, *, out: Tensor | None = None) -> Tensor:
    """Returns the smallest elements over dimensions; equal ones share the gradient."""
    return into(out, _ops.amin, input, _all_or(dim), keepdim)


@numpy_names
@does(_ops.argmax)
def argmax(input: Tensor, dim: int | None = None, keepdim: bool = False, *, out: Tensor | None = None) -> Tensor:
    """Returns the index of the largest element along a dimension, or of all, counted row-major."""
    return into(out, _ops.argmax, input, None if dim is None else one_dim("argmax", dim), keepdim)


@numpy_names
@does(_ops.argmin)
def argmin(input: Tensor, dim: int | None = None, keepdim: bool = False, *, out: Tensor | None = None) -> Tensor:
    """Returns the index of the smallest element along a dimension, or of all, counted row-major."""
    return into(out, _ops.argmin, input, None if dim is None else one_dim("argmin", dim), keepdim)


def _truths(reduce: Any, input: Tensor, dim: Dims, keepdim: bool) -> Tensor:
    if isinstance(dim, list | tuple) and not dim:
        return _ops.squeeze(reduce(_ops.unsqueeze(input, -1), -1), -1)
    return reduce(input, dim, keepdim)


@numpy_names
@does(_ops.all)
def all(input: Tensor, dim: Dims = None, keepdim: bool = False, *, out: Tensor | None = None) -> Tensor:
    """Returns whether no element over dimensions is zero; an empty list of dimensions reduces none."""
    return store(out, _truths(_ops.all, input, dim, keepdim))


@numpy_names
@does(_ops.any)
def any(input: Tensor, dim: Dims = None, keepdim: bool = False, *, out: Tensor | None = None) -> Tensor:
    """Returns whether any element over dimensions is not zero; an empty list of dimensions reduces none."""
    return store(out, _truths(_ops.any, input, dim, keepdim))


@numpy_names
def count_nonzero(input: Tensor, dim: Dims = None, *more: int) -> Tensor:
    """Returns the number of elements that are not zero, over dimensions or over all."""
    return _ops.count_nonzero(input, (dim, *more) if more else _all_or(dim))  # type: ignore[arg-type]


@numpy_names
@does(_ops.logsumexp)
def logsumexp(input: Tensor, dim: Dims, keepdim: bool = False, *, out: Tensor | None = None) -> Tensor:
    """Returns the logarithm of the sum of exponentials over dimensions, without overflow."""
    return store(out, _ops.logsumexp(input, _all_or(dim), keepdim))


def _along(function: Any, made: Any, input: Tensor, dim: Any, keepdim: bool, out: Any) -> Any:
    return store(out, made(*function(input, dim, keepdim)))


@numpy_names
@does(_ops.median, return_types.median)
def median(input: Tensor, dim: int | None = None, keepdim: bool = False, *, out: Any = None) -> Any:
    """Returns the median, the lower of two; with a dimension (values, indices)."""
    if dim is None:
        return store(out, _ops.median(_ops.ravel(input), 0, even=True)[0])
    return _along(_ops.median, return_types.median, input, dim, keepdim, out)


@numpy_names
@does(_ops.nanmedian, return_types.nanmedian)
def nanmedian(input: Tensor, dim: int | None = None, keepdim: bool = False, *, out: Any = None) -> Any:
    """Returns the median of the elements that are not NaN; with a dimension (values, indices)."""
    if dim is None:
        return store(out, _ops.nanmedian(_ops.ravel(input), 0, even=True)[0])
    return _along(_ops.nanmedian, return_types.nanmedian, input, dim, keepdim, out)


@numpy_names
@does(_ops.mode, return_types.mode)
def mode(input: Tensor, dim: int = -1, keepdim: bool = False, *, out: Any = None) -> ValuesIndices:
    """Returns the element that comes most often along a dimension, and an index of it."""
    return _along(_ops.mode, return_types.mode, input, dim, keepdim, out)


@numpy_names
def quantile(
    input: Tensor, q: Tensor | float, dim: int | None = None, keepdim: bool = False,
    *, interpolation: str = "linear", out: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Returns the q-quantiles along a dimension, or of all elements; the first dimension is that of a vector `q`."""
    return store(out, _ops.quantile(input, _probability(q, input), dim, keepdim, interpolation))


@numpy_names
def nanquantile(
    input: Tensor, q: Tensor | float, dim: int | None = None, keepdim: bool = False,
    *, interpolation: str = "linear", out: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Returns the q-quantiles of the elements that are not NaN."""
    return store(out, _ops.nanquantile(input, _probability(q, input), dim, keepdim, interpolation))


def _probability(q: Any, input: Tensor) -> Tensor:
    if not is_tensor(q) and not 0 <= q <= 1:
        raise ValueError(f"quantile: q must be in [0, 1], got {q}")
    return q if is_tensor(q) else tensor(float(q), dtype=input.dtype, device=input.device)


@numpy_names
def norm(
    input: Tensor, p: float | str | None = "fro", dim: Dims = None, keepdim: bool = False,
    out: Tensor | None = None, dtype: DType | None = None,
) -> Tensor:  # fmt: skip
    """Returns a vector norm over dimensions, over all by default, or a matrix norm.

    Args:
        input: the elements
        p: the order; "fro" means 2, "nuc" the sum of singular values over two dimensions
        dim: the dimensions
        keepdim: keep the reduced dimensions with size 1
        out: where the result goes
        dtype: to which the elements are converted first
    """
    if p == "nuc":
        return store(out, matrix_norm(input, "nuc", (-2, -1) if dim is None else dim, keepdim, dtype=dtype))  # type: ignore[arg-type]
    order = 2.0 if p is None or p == "fro" else p
    if isinstance(order, str):
        raise ValueError(f"norm: p must be a number, 'fro' or 'nuc', got {p!r}")
    return store(out, _ops.norm(input, order, _all_or(dim), keepdim, dtype=dtype))


def norm_method(
    self: Tensor, p: float | str | None = "fro", dim: Dims = None, keepdim: bool = False, dtype: DType | None = None
) -> Tensor:
    """Returns what `norm` does."""
    return norm(self, p, dim, keepdim, dtype=dtype)


@numpy_names
def dist(input: Tensor, other: Tensor, p: float = 2) -> Tensor:
    """Returns the p-norm of the difference."""
    return _ops.dist(input, operand(other), p)
