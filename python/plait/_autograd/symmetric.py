"""Symmetric matrices of which one triangle is given."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plait import _ops
from plait.autograd.function import Function

if TYPE_CHECKING:
    from plait._tensor import Tensor


class Mirrored(Function):
    """The symmetric matrices that have one triangle of the input.

    The gradient passes as it is, as in PyTorch's functions of symmetric matrices: they read one triangle and return a
    symmetric gradient, so that a step along it keeps a symmetric matrix symmetric.
    """

    @staticmethod
    def forward(ctx: Any, A: Tensor, lower: bool) -> Tensor:
        """Returns the triangle on and below the diagonal, or on and above it, with its mirror image."""
        half = _ops.tril(A, -1) if lower else _ops.triu(A, 1)
        return half + half.mT + _ops.diag_embed(_ops.diagonal(A, 0, -2, -1))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        """Returns the gradient as it is."""
        return grad, None
