"""Reductions of the parts that a dimension is cut into."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from plait import _dtype as dt
from plait import _ops
from plait._engine.runtime import is_tensor
from plait._functions._checked import checked
from plait._functions.creation import arange

if TYPE_CHECKING:
    from plait._tensor import Tensor

__all__ = ["segment_reduce"]

_EMPTY = {"sum": 0.0, "mean": 0.0, "prod": 1.0, "max": -math.inf, "min": math.inf}


@checked
def segment_reduce(
    data: Tensor,
    reduce: str,
    *,
    lengths: Tensor | None = None,
    indices: Tensor | None = None,
    offsets: Tensor | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: float | None = None,
) -> Tensor:
    """Returns what each part of a dimension is reduced to.

    Args:
        data: floating-point
        reduce: "sum", "mean", "max", "min" or "prod". A part without elements is 0, NaN, -inf, inf or 1
        lengths: how many elements each part has: [..., parts], with the dimensions of data before `axis`
        indices: not there, as in PyTorch
        offsets: in the place of lengths, where each part begins, and behind the last one where it ends
        axis: the dimension, which is the last one of lengths
        unsafe: whether it is left unchecked that the parts make up the whole dimension, which waits for values
        initial: a value that every part has, too, and that those without elements are
    """
    if reduce not in _EMPTY:
        raise ValueError(f"segment_reduce: reduce must be one of {', '.join(_EMPTY)}, got {reduce!r}")
    if indices is not None:
        raise NotImplementedError(
            "segment_reduce: indices say nothing about parts, as in PyTorch; give lengths or offsets"
        )
    if not data.dtype.is_floating_point:
        raise TypeError(f"segment_reduce: want floating-point data, got {data.dtype}")
    given = offsets if offsets is not None else lengths
    if not is_tensor(given):
        raise ValueError("segment_reduce: give lengths or offsets, a tensor")
    if given.dtype not in (dt.int32, dt.int64):
        raise TypeError(f"segment_reduce: lengths and offsets must be int32 or int64, got {given.dtype}")
    axis = axis + data.dim() if axis < 0 else axis
    if axis != given.dim() - 1 or given.shape[:-1] != data.shape[:axis]:
        raise ValueError(
            f"segment_reduce: the shape of lengths or offsets must be data's before axis {axis} and one size more, "
            f"got {list(given.shape)} for {list(data.shape)}"
        )
    ends, counts = _ends(given, data.shape[axis], offsets is None, unsafe)
    parts = counts.shape[-1]
    rows, rest = math.prod(data.shape[:axis]), data.shape[axis + 1 :]
    flat = data.reshape(-1, *rest)
    # The number of each element's part, with one part more before and behind each row for elements of none.
    shares = _ops.cat([ends[..., :1], counts, data.shape[axis] - ends[..., -1:]], -1).reshape(-1)
    numbers = _ops.repeat_interleave(arange(len(shares), device=data.device), shares)
    out = _reduced(flat, numbers, rows * (parts + 2), reduce)
    out = out.reshape(*data.shape[:axis], parts + 2, *rest).narrow(axis, 1, parts)
    return _finished(out, counts.reshape(*counts.shape, *(1,) * len(rest)), reduce, initial)


def _ends(given: Any, size: int, lengths: bool, unsafe: bool) -> tuple[Any, Any]:
    """Returns where parts begin, and where the last one ends; and how many elements each has."""
    given = given.long()
    if not lengths:
        counts = given.diff()
        if not unsafe and not bool(((given[..., 0] == 0) & (given[..., -1] == size)).all() & (counts >= 0).all()):
            raise ValueError(f"segment_reduce: offsets must begin with 0, not fall, and end with {size}")
        return given, counts
    ends = given.new_zeros(*given.shape[:-1], given.shape[-1] + 1)
    ends[..., 1:] = given.cumsum(-1)
    if not unsafe and not bool((ends[..., -1] == size).all() & (given >= 0).all()):
        raise ValueError(f"segment_reduce: lengths must be 0 or more and sum to {size} in each row")
    return ends, given


def _reduced(flat: Any, numbers: Any, count: int, reduce: str) -> Any:
    base = _ops.full((count, *flat.shape[1:]), fill_value=_EMPTY[reduce], dtype=flat.dtype, device=flat.device)
    if reduce in ("sum", "mean"):
        return base.index_add(0, numbers, flat)
    at = numbers.reshape(-1, *(1,) * (flat.dim() - 1)).expand(flat.shape)
    kind = reduce if reduce == "prod" else f"a{reduce}"
    return base.scatter_reduce(0, at, flat, kind, include_self=False)


def _finished(out: Any, counts: Any, reduce: str, initial: float | None) -> Any:
    """Returns the results with the value that every part has, too, and means."""
    if reduce == "mean":
        if initial is None:
            return out / counts.to(out.dtype)
        return (out + initial) / counts.clamp(min=1).to(out.dtype)
    if initial is None:
        return out
    if reduce == "sum":
        return out + initial
    if reduce == "prod":
        return out * initial
    first = out < initial if reduce == "max" else out > initial
    return out.masked_fill(first, initial)
