"""What a tensor is like that another rank has."""

from __future__ import annotations

from typing import Any, NamedTuple

from plait import _ops
from plait._tensor import Tensor


class Form(NamedTuple):
    """The dtype and the shape of a tensor, which ranks exchange before they exchange its elements."""

    dtype: Any
    shape: tuple[int, ...]

    @classmethod
    def of(cls, t: Tensor) -> Form:
        """Returns the form of a tensor."""
        return cls(t.dtype, tuple(t.shape))

    def empty(self, device: Any) -> Tensor:
        """Returns a new tensor of this form, with undefined values."""
        return _ops.empty(self.shape, dtype=self.dtype, device=device)
