"""Counts of elements, and of points, in bins."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite, prod
from typing import TYPE_CHECKING, Any

from plait import _ops, return_types
from plait._errors import DTypeError, ShapeError
from plait._functions._checked import checked
from plait._functions._common import store
from plait.return_types import Histogram, Histogramdd

if TYPE_CHECKING:
    from plait._tensor import Tensor

__all__ = ["histogram", "histogramdd"]


def _edges(name: str, values: Tensor, bins: Any, limits: tuple[float, float] | None) -> Tensor:
    """Returns the edges of bins: those given, or those of a number of equal ones."""
    if not values.dtype.is_floating_point:
        raise DTypeError(f"{name}: not defined for {values.dtype}, want floating-point numbers")
    if not isinstance(bins, int):
        return _ops.clone(bins)
    if bins < 1:
        raise ValueError(f"{name}: want at least one bin, got {bins}")
    low, high = limits if limits is not None else (0.0, 1.0)
    if limits is None and values.numel():
        low, high = _ops.amin(values).item(), _ops.amax(values).item()
    if not (isfinite(low) and isfinite(high) and low <= high):
        raise ValueError(f"{name}: want a finite range in ascending order, got [{low}, {high}]")
    if low == high:
        low, high = low - 0.5, high + 0.5
    return _ops.linspace(low, high, bins + 1, dtype=values.dtype, device=values.device)


def _counts(columns: Sequence[Tensor], edges: Sequence[Tensor], weight: Tensor | None, density: bool) -> Tensor:
    """Returns how much weight points have in each bin, which has its left edge, and the last one both.

    Args:
        columns: of each dimension the coordinates of all points
        edges: of each dimension
        weight: of the points; None is 1
        density: divide by the volumes of the bins and the total
    """
    sizes = [e.numel() - 1 for e in edges]
    w = _ops.ones_like(columns[0]) if weight is None else weight
    bin = _ops.zeros_like(columns[0]).long()
    for x, e, n in zip(columns, edges, sizes, strict=True):
        at = _ops.searchsorted(e, x.contiguous(), False, True) - 1
        at = _ops.where(_ops.eq(x, e[-1]), n - 1, at)
        w = _ops.where(_ops.logical_and(_ops.ge(at, 0), _ops.lt(at, n)), w, 0)
        bin = bin * n + _ops.clamp(at, 0, n - 1)
    hist = _ops.index_add_(_ops.zeros(prod(sizes), dtype=w.dtype, device=w.device), 0, bin, w)
    hist = _ops.reshape(hist, sizes)
    if density:
        hist = hist / _ops.sum(hist)
        for i, e in enumerate(edges):
            hist = hist / _ops.reshape(e[1:] - e[:-1], [-1] + [1] * (len(edges) - 1 - i))
    return hist


@checked
def histogram(
    input: Tensor, bins: Any = 100, *, range: tuple[float, float] | None = None, weight: Tensor | None = None,
    density: bool = False, out: Any = None,
) -> Histogram:  # fmt: skip
    """Returns how many elements, or how much weight, each bin has, and the edges of the bins.

    Args:
        input: the elements
        bins: how many equal bins, or their edges in ascending order
        range: of equal bins; from the smallest to the largest element by default
        weight: of the elements
        density: divide by the widths of the bins and the total
        out: where the results go
    """
    flat = _ops.ravel(input.detach())
    edges = _edges("histogram", flat, bins, range)
    hist = _counts([flat], [edges], None if weight is None else _ops.ravel(weight.detach()), density)
    return store(out, return_types.histogram(hist, edges))


@checked
def histogramdd(
    input: Tensor, bins: Any, range: Sequence[float] | None = None, weight: Tensor | None = None, density: bool = False
) -> Histogramdd:
    """Returns how many points, or how much weight, each bin of a space has, and the edges along each dimension.

    Args:
        input: points [..., n] of a space of n dimensions
        bins: how many equal bins there are along all dimensions, or along each, or of each the edges in ascending order
        range: of equal bins, two numbers for each dimension; from the smallest to the largest element by default
        weight: of the points [...]
        density: divide by the volumes of the bins and the total
    """
    if len(input.shape) < 2 or not input.shape[-1]:
        raise ShapeError(f"histogramdd: want points [..., n], got shape {list(input.shape)}")
    n = input.shape[-1]
    each = [bins] * n if isinstance(bins, int) else list(bins)
    if len(each) != n:
        raise ValueError(
            f"histogramdd: got bins for {len(each)} dimensions, want {n}, as points {list(input.shape)} have"
        )
    if range is not None and len(range) != 2 * n:
        raise ValueError(f"histogramdd: got a range of {len(range)} numbers, want two for each of {n} dimensions")
    if weight is not None and weight.shape != input.shape[:-1]:
        got, want = list(weight.shape), list(input.shape[:-1])
        raise ShapeError(f"histogramdd: got weights of shape {got}, want {want}")
    columns = [_ops.ravel(x) for x in _ops.unbind(input.detach(), -1)]
    limits = [None] * n if range is None else list(zip(range[::2], range[1::2], strict=True))
    edges = tuple(_edges("histogramdd", x, b, r) for x, b, r in zip(columns, each, limits, strict=True))
    return return_types.histogramdd(
        _counts(columns, edges, None if weight is None else _ops.ravel(weight.detach()), density), edges
    )
