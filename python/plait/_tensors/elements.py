"""What pickling sees of a tensor's elements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plait._tensors.arrays import to_numpy

if TYPE_CHECKING:
    from plait._tensor import Tensor


class Elements:
    """A tensor's elements on their way through pickle: an array, unless a pickler sends them in another way."""

    __slots__ = ("tensor",)

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor

    def __reduce_ex__(self, protocol: Any) -> Any:
        return to_numpy(self.tensor.detach()).__reduce_ex__(protocol)


class RequiresGrad:
    """Whether a tensor that is made of others requires a gradient. Picklers may refuse one that has a graph."""

    __slots__ = ("tensor",)

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor

    def __reduce_ex__(self, protocol: Any) -> Any:
        return bool, (self.tensor.requires_grad,)
