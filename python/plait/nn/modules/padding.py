"""Padding layers."""

from __future__ import annotations

from typing import Any, ClassVar

from plait._tensor import Tensor
from plait.nn import functional as F
from plait.nn.modules.conv import tuple_of
from plait.nn.modules.module import Module

__all__ = [
    "CircularPad1d",
    "CircularPad2d",
    "CircularPad3d",
    "ConstantPad1d",
    "ConstantPad2d",
    "ConstantPad3d",
    "ReflectionPad1d",
    "ReflectionPad2d",
    "ReflectionPad3d",
    "ReplicationPad1d",
    "ReplicationPad2d",
    "ReplicationPad3d",
    "ZeroPad1d",
    "ZeroPad2d",
    "ZeroPad3d",
]


class _Pad(Module):
    """What padding layers have in common: elements around the spatial dimensions, all alike or two for each."""

    nd: ClassVar[int]
    mode: ClassVar[str]

    def __init__(self, padding: Any) -> None:
        super().__init__()
        self.padding = tuple_of(padding, 2 * self.nd)

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, self.mode)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class _ConstantPad(_Pad):
    """What padding layers with a constant have in common."""

    def __init__(self, padding: Any, value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, "constant", self.value)

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class _ZeroPad(_ConstantPad):
    """What padding layers with zeros have in common."""

    def __init__(self, padding: Any) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class ConstantPad1d(_ConstantPad):
    """Puts a constant around the last dimension."""

    nd = 1


class ZeroPad1d(_ZeroPad, ConstantPad1d):
    """Puts zeros around the last dimension."""


class ReflectionPad1d(_Pad):
    """Mirrors the elements at the edges, without the outermost, around the last dimension."""

    nd = 1
    mode = "reflect"


class ReplicationPad1d(_Pad):
    """Repeats the outermost elements around the last dimension."""

    nd = 1
    mode = "replicate"


class CircularPad1d(_Pad):
    """Continues with the elements of the other side around the last dimension."""

    nd = 1
    mode = "circular"


class ConstantPad2d(_ConstantPad):
    """Puts a constant around the last 2 dimensions."""

    nd = 2


class ZeroPad2d(_ZeroPad, ConstantPad2d):
    """Puts zeros around the last 2 dimensions."""


class ReflectionPad2d(_Pad):
    """Mirrors the elements at the edges, without the outermost, around the last 2 dimensions."""

    nd = 2
    mode = "reflect"


class ReplicationPad2d(_Pad):
    """Repeats the outermost elements around the last 2 dimensions."""

    nd = 2
    mode = "replicate"


class CircularPad2d(_Pad):
    """Continues with the elements of the other side around the last 2 dimensions."""

    nd = 2
    mode = "circular"


class ConstantPad3d(_ConstantPad):
    """Puts a constant around the last 3 dimensions."""

    nd = 3


class ZeroPad3d(_ZeroPad, ConstantPad3d):
    """Puts zeros around the last 3 dimensions."""


class ReflectionPad3d(_Pad):
    """Mirrors the elements at the edges, without the outermost, around the last 3 dimensions."""

    nd = 3
    mode = "reflect"


class ReplicationPad3d(_Pad):
    """Repeats the outermost elements around the last 3 dimensions."""

    nd = 3
    mode = "replicate"


class CircularPad3d(_Pad):
    """Continues with the elements of the other side around the last 3 dimensions."""

    nd = 3
    mode = "circular"
