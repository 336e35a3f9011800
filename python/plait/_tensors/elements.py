"""What copies and pickles take of a tensor: its elements, and what its object holds."""

from __future__ import annotations

from types import MemberDescriptorType
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


_ENGINES = ("_held", "_sizes")  # slots of every tensor, which a copy has its own of


def attributes(t: Tensor) -> dict[str, Any]:
    """Returns what a program has set on a tensor, by name: its dictionary, and the slots of a derived class."""
    state: Any = object.__getstate__(t)
    if not isinstance(state, tuple):
        return dict(state or {})
    slots = {name: value for name, value in state[1].items() if name not in _ENGINES}
    return {**(state[0] or {}), **slots}


def set_attributes(t: Tensor, values: dict[str, Any]) -> None:
    """Sets what `attributes` returned of another tensor of the class."""
    for name, value in values.items():
        if isinstance(getattr(type(t), name, None), MemberDescriptorType):  # a slot
            object.__setattr__(t, name, value)
        else:
            t.__dict__[name] = value
