"""Rows of entries as starts of rows, and back, under PyTorch's names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plait import _dtype as dt
from plait import _ops
from plait._functions._checked import checked
from plait._functions.creation import arange
from plait._functions.shape import repeat_interleave

if TYPE_CHECKING:
    from plait._tensor import Tensor


@checked
def _convert_indices_from_coo_to_csr(input: Tensor, size: int, *, out_int32: bool = False) -> Tensor:
    """Returns where the entries of each row begin, and their number at the end.

    Args:
        input: the rows of the entries, in order
        size: the number of rows
        out_int32: whether the result is int32, not int64
    """
    begins = arange(size + 1, dtype=input.dtype, device=input.device)
    return _ops.searchsorted(input, begins).to(dt.int32 if out_int32 else dt.int64)


@checked
def _convert_indices_from_csr_to_coo(
    crow_indices: Tensor, col_indices: Tensor, *, out_int32: bool = False, transpose: bool = False
) -> Tensor:
    """Returns the rows and columns of entries, [2, n].

    Args:
        crow_indices: where the entries of each row begin, and their number at the end
        col_indices: their columns
        out_int32: whether the result is int32, not int64
        transpose: whether rows and columns change places
    """
    counts = crow_indices[1:] - crow_indices[:-1]
    rows = arange(counts.numel(), dtype=crow_indices.dtype, device=crow_indices.device)
    parts = [repeat_interleave(rows, counts), col_indices.to(crow_indices.dtype)]
    return _ops.stack(parts[::-1] if transpose else parts).to(dt.int32 if out_int32 else dt.int64)
