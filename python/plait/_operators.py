"""Operators of tensors.

`a + b` is the most frequent thing that Python does with tensors, so the common cases, another tensor or a float, go
straight to the engine; everything else takes the way of the generated function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from plait import _core, _ops
from plait._functions._common import operand
from plait._runtime import TensorBase, number, settle

if TYPE_CHECKING:
    from plait._tensor import Tensor

_FLOAT = -1  # the kind of a floating-point number in the place of a tensor


def _forward(cls: type, raw: Callable[..., int], general: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    """Returns the method for `tensor op other`."""
    new = object.__new__

    def method(self: Any, other: Any) -> Any:
        if isinstance(other, TensorBase):
            h, value = other._h, 0.0
        elif type(other) is float:
            h, value = _FLOAT, other
        else:
            return _general(general, self, other)
        status = raw(self._h, h, value)
        out: Any = new(cls)
        out._h = status if status > 0 else settle(status, raw, self._h, h, value)
        return out

    return method


def _general(function: Callable[..., Any], self: Tensor, other: Any) -> Any:
    """Applies an operator to anything: numbers, and arrays, which become tensors."""
    if isinstance(other, np.ndarray) and other.ndim:
        from plait._tensor import tensor

        other = tensor(other, device=self.device)
    elif not isinstance(other, TensorBase):
        try:
            number(other)
        except TypeError:
            return NotImplemented
    return function(self, other)


def _slow(function: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    return lambda self, other: _general(function, self, other)


def _reflected(function: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    """Returns the method for `other op tensor`, where other is no tensor."""

    def method(self: Any, other: Any) -> Any:
        return _general(lambda t, o: function(operand(o), t), self, other)

    return method


def install_operators(cls: Any) -> None:
    """Gives the tensor class its operators."""
    fast = {
        "add": (_core.bind_Add, _ops.add), "sub": (_core.bind_Sub, _ops.sub), "mul": (_core.bind_Mul, _ops.mul),
        "truediv": (_core.bind_Div, _ops.div),
    }  # fmt: skip
    others = {
        "floordiv": _ops.floor_divide, "mod": _ops.remainder, "pow": _ops.pow, "and": _ops.bitwise_and, "or": _ops.bitwise_or,
        "xor": _ops.bitwise_xor, "lshift": _ops.bitwise_left_shift, "rshift": _ops.bitwise_right_shift, "matmul": _ops.matmul,
    }  # fmt: skip
    for name, (raw, general) in fast.items():
        setattr(cls, f"__{name}__", _forward(cls, raw, general))
        setattr(cls, f"__r{name}__", _reflected(general))
    # Sums and products commute: no tensor need be made of the number.
    cls.__radd__, cls.__rmul__ = cls.__add__, cls.__mul__
    for name, function in others.items():
        setattr(cls, f"__{name}__", _slow(function))
        setattr(cls, f"__r{name}__", _reflected(function))
    for name in ("eq", "ne", "lt", "le", "gt", "ge"):
        setattr(cls, f"__{name}__", _slow(getattr(_ops, name)))
    in_place = {
        "add": _ops.add_, "sub": _ops.sub_, "mul": _ops.mul_, "truediv": _ops.div_, "floordiv": _ops.floor_divide_,
        "mod": _ops.remainder_, "pow": _ops.pow_, "and": _ops.bitwise_and_, "or": _ops.bitwise_or_, "xor": _ops.bitwise_xor_,
        "lshift": _ops.bitwise_left_shift_, "rshift": _ops.bitwise_right_shift_,
    }  # fmt: skip
    for name, function in in_place.items():
        setattr(cls, f"__i{name}__", _slow(function))
    cls.__neg__, cls.__abs__, cls.__invert__ = _ops.neg, _ops.abs, _ops.bitwise_not
    cls.__pos__ = lambda self: self
