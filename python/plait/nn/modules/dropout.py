"""Dropout layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from plait._tensor import Tensor
from plait.nn import functional as F
from plait.nn.modules.module import Module

__all__ = ["AlphaDropout", "Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "FeatureAlphaDropout"]


class _Dropout(Module):
    """What dropout layers have in common."""

    _function: ClassVar[Callable[..., Tensor]]

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        if not 0 <= p <= 1:
            raise ValueError(f"{self._get_name()}: the probability must lie between 0 and 1, got {p}")
        self.p, self.inplace = p, inplace

    def forward(self, input: Tensor) -> Tensor:
        return type(self)._function(input, self.p, self.training, self.inplace)

    def extra_repr(self) -> str:
        return f"p={self.p}, inplace={self.inplace}"


class Dropout(_Dropout):
    """Zeroes elements with probability p in training and scales the others by 1 / (1 - p)."""

    _function = F.dropout


class Dropout1d(_Dropout):
    """Zeroes channels of [N, C, L] or [C, L] with probability p in training and scales the others by 1 / (1 - p)."""

    _function = F.dropout1d


class Dropout2d(_Dropout):
    """Zeroes channels of [N, C, H, W] with probability p in training and scales the others by 1 / (1 - p)."""

    _function = F.dropout2d


class Dropout3d(_Dropout):
    """Zeroes channels of [N, C, D, H, W] or [C, D, H, W] with probability p in training and scales the others."""

    _function = F.dropout3d


class AlphaDropout(_Dropout):
    """Drops elements in training such that mean and variance of selu's outputs stay (Klambauer et al., 2017)."""

    _function = F.alpha_dropout


class FeatureAlphaDropout(_Dropout):
    """Does what `AlphaDropout` does, with whole channels."""

    _function = F.feature_alpha_dropout
