"""What families of distributions, those of others too, are written with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import plait
from plait import Tensor
from plait.nn import functional as F

__all__ = [
    "broadcast_all", "clamp_probs", "lazy_property", "logits_to_probs", "probs_to_logits", "tril_matrix_to_vec",
    "vec_to_tril_matrix",
]  # fmt: skip


def _standard_normal(shape: Sequence[int], dtype: plait.dtype, device: Any) -> Tensor:
    """Returns normal variables with mean 0 and standard deviation 1."""
    return plait.randn(tuple(shape), dtype=dtype, device=device)


def _sum_rightmost(value: Tensor, dim: int) -> Tensor:
    """Returns the sum over the last `dim` dimensions."""
    return value.sum(tuple(range(-dim, 0))) if dim else value


def broadcast_all(*values: Tensor | float) -> tuple[Tensor, ...]:
    """Returns parameters as tensors of one shape; numbers take the dtype and device of the tensors among them."""
    like = next((v for v in values if isinstance(v, Tensor)), None)
    dtype, device = (None, None) if like is None else (like.dtype, like.device)
    made = []
    for v in values:
        if not isinstance(v, Tensor | int | float):
            raise ValueError(f"broadcast_all: want tensors and numbers, got {type(v).__name__}")
        made.append(v if isinstance(v, Tensor) else plait.tensor(float(v), dtype=dtype, device=device))
    return tuple(plait.broadcast_tensors(*made))


def clamp_probs(probs: Tensor) -> Tensor:
    """Returns probabilities that are not 0 or 1: at least the dtype's eps away from them."""
    eps = plait.finfo(probs.dtype).eps
    return probs.clamp(eps, 1 - eps)


def probs_to_logits(probs: Tensor, is_binary: bool = False) -> Tensor:
    """Returns the logarithms of probabilities, or log(p / (1 - p)) if is_binary."""
    p = clamp_probs(probs)
    return p.log() - plait.log1p(-p) if is_binary else p.log()


def logits_to_probs(logits: Tensor, is_binary: bool = False) -> Tensor:
    """Returns softmax(logits) over the last dimension, or sigmoid(logits) if is_binary."""
    return logits.sigmoid() if is_binary else F.softmax(logits, -1)


class lazy_property:  # noqa: N801
    """A property that is computed once, and then kept in the object's dict.

    Args:
        wrapped: the function that computes it
    """

    def __init__(self, wrapped: Callable[[Any], Any]) -> None:
        self._wrapped = wrapped
        self.__doc__ = wrapped.__doc__

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        with plait.enable_grad():
            value = self._wrapped(instance)
        setattr(instance, self._wrapped.__name__, value)
        return value


def below(n: int, diag: int, like: Tensor) -> Tensor:
    """Returns where the elements on and below a diagonal of an [n, n] matrix are, row by row."""
    rows, columns = plait.tril_indices(n, n, diag, device=like.device)
    return rows * n + columns


def tril_matrix_to_vec(mat: Tensor, diag: int = 0) -> Tensor:
    """Returns the elements on and below a diagonal of matrices [..., n, n], row by row."""
    n = mat.shape[-1]
    if not -n <= diag < n:
        raise ValueError(f"tril_matrix_to_vec: want diag from {-n} to {n - 1}, got {diag}")
    return mat.flatten(-2).index_select(-1, below(n, diag, mat))


def vec_to_tril_matrix(vec: Tensor, diag: int = 0) -> Tensor:
    """Returns matrices with the elements of vectors on and below a diagonal, row by row, and 0 elsewhere."""
    length, shift = vec.shape[-1], 1 + 2 * diag
    n = round((-shift + (shift**2 + 8 * length + 4 * abs(diag) * (diag + 1)) ** 0.5) / 2)
    at = below(n, diag, vec)
    if at.numel() != length:
        raise ValueError(f"vec_to_tril_matrix: no triangle below diagonal {diag} has {length} elements")
    flat = plait.zeros((*vec.shape[:-1], n * n), dtype=vec.dtype, device=vec.device)
    return flat.index_add(-1, at, vec).reshape(*vec.shape[:-1], n, n)
