"""Dropout: zeroing at random in training."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from plait import _ops
from plait._functions._checked import checked

if TYPE_CHECKING:
    from plait._tensor import Tensor

__all__ = ["alpha_dropout", "dropout", "dropout1d", "dropout2d", "dropout3d", "feature_alpha_dropout"]


def _drop(function: Callable[..., Tensor], input: Tensor, p: float, training: bool, inplace: bool) -> Tensor:
    if not 0 <= p <= 1:
        raise ValueError(f"{function.__name__}: the probability must lie between 0 and 1, got {p}")
    if not training or p == 0:
        return input
    out = function(input, p, training)
    return _ops.copy_(input, out) if inplace else out


@checked
def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zeroes elements with probability p and scales the others by 1 / (1 - p)."""
    return _drop(_ops.dropout, input, p, training, inplace)


@checked
def dropout1d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zeroes channels of [N, C, L] or [C, L] with probability p and scales the others by 1 / (1 - p)."""
    return _drop(_ops.dropout1d, input, p, training, inplace)


@checked
def dropout2d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zeroes channels of [N, C, H, W] with probability p and scales the others by 1 / (1 - p)."""
    return _drop(_ops.dropout2d, input, p, training, inplace)


@checked
def dropout3d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zeroes channels of [N, C, D, H, W] or [C, D, H, W] with probability p and scales the others by 1 / (1 - p)."""
    return _drop(_ops.dropout3d, input, p, training, inplace)


@checked
def alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """Drops elements such that mean and variance of selu's outputs stay (Klambauer et al., 2017)."""
    return _drop(_ops.alpha_dropout, input, p, training, inplace)


@checked
def feature_alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """Does what `alpha_dropout` does, with whole channels."""
    return _drop(_ops.feature_alpha_dropout, input, p, training, inplace)
