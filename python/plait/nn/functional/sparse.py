"""Rows of tables by index."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plait import _ops
from plait._functions._checked import checked
from plait._modes import no_grad

if TYPE_CHECKING:
    from plait._tensor import Tensor

__all__ = ["embedding", "embedding_bag", "one_hot"]

one_hot = _ops.one_hot


def _renorm(weight: Tensor, indices: Tensor, max_norm: float, norm_type: float) -> None:
    with no_grad():
        _ops.embedding_renorm_(weight, indices, float(max_norm), float(norm_type))


def _padding(name: str, padding_idx: int | None, rows: int) -> int | None:
    if padding_idx is None:
        return None
    if not -rows <= padding_idx < rows:
        raise ValueError(f"{name}: padding_idx {padding_idx} is out of range for {rows} rows")
    return padding_idx % rows


@checked
def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """Returns the rows of a weight that indices name.

    Args:
        input: indices
        weight: [rows, features]
        padding_idx: a row that gets no gradient
        max_norm: rows that are used are first scaled in place to a norm of at most this
        norm_type: which norm
        scale_grad_by_freq: divide a row's gradient by how often its index occurs
        sparse: whether the gradient of the weight is a sparse tensor
    """
    padding_idx = _padding("embedding", padding_idx, weight.shape[0])
    if max_norm is not None:
        _renorm(weight, input, max_norm, norm_type)
    return _ops.embedding(input, weight, padding_idx, scale_grad_by_freq, sparse)


@checked
def embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    """Returns the sum, mean or maximum of the rows that each bag of indices names.

    Args:
        input: indices [bags, n], or [n] with offsets
        weight: [rows, features]; an older order of arguments, weight before input, is understood too
        offsets: where each bag of a one-dimensional input begins
        max_norm: rows that are used are first scaled in place to a norm of at most this
        norm_type: which norm
        scale_grad_by_freq: divide a row's gradient by how often its index occurs
        mode: sum, mean or max
        sparse: whether the gradient of the weight is a sparse tensor; not for max
        per_sample_weights: factors of the rows, for sum
        include_last_offset: offsets ends with the input's length
        padding_idx: an index that does not count
    """
    if weight.dtype.is_floating_point is False and input.dtype.is_floating_point:
        input, weight = weight, input
    padding_idx = _padding("embedding_bag", padding_idx, weight.shape[0])
    if per_sample_weights is not None and per_sample_weights.shape != input.shape:
        raise ValueError(
            "embedding_bag: per_sample_weights must have the input's shape, "
            f"got {list(per_sample_weights.shape)} and {list(input.shape)}"
        )
    if max_norm is not None:
        _renorm(weight, input, max_norm, norm_type)
    return _ops.embedding_bag(
        input, weight, offsets, scale_grad_by_freq, mode, sparse, per_sample_weights, include_last_offset, padding_idx
    )
