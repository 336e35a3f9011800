"""Operators of tensors.

`a + b` is the most frequent thing that Python does with tensors, so for two tensors, or a tensor and a float, the type that
`Tensor` stands on goes straight to the engine (capi/extension). Here is what it leaves to Python.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from plait import _core, _ops
from plait._engine.overriding import OVERRIDING, overridden_operator, overrides
from plait._engine.runtime import TensorBase, number, own, settle
from plait._functions._common import operand
from plait._functions._fast import fast_operation
from plait._tensors.arrays import tensor

if TYPE_CHECKING:
    from plait._tensor import Tensor

_FLOAT = -1  # the kind of a floating-point number in the place of a tensor
_NUMBERS = frozenset({int, float, bool, complex})


def _rest(
    raw: Callable[..., int], general: Callable[..., Any], commutes: bool = False
) -> Callable[[Any, Any, int], Any]:
    """Returns the function for the operands of an operator that the type leaves to Python: `raw` was not called, or
    returned the status, which is then not 0.
    """

    def operator(x: Any, y: Any, status: int) -> Any:
        if status:
            second = (y._h, 0.0) if isinstance(y, TensorBase) else (_FLOAT, y)
            return own(settle(status, raw, x._h, *second))
        if isinstance(x, TensorBase):
            return _general(general, x, y)
        return _general(general, y, x) if commutes else _reflect(general, y, x)

    return operator


def _general(function: Callable[..., Any], self: Any, other: Any) -> Any:
    """Applies an operator to anything: numbers, arrays, which become tensors, and what overrides functions."""
    if isinstance(other, np.ndarray) and other.ndim:
        other = tensor(other, device=self.device)
    elif not isinstance(other, TensorBase) and type(other) not in _NUMBERS:
        if overrides(other):
            return _overridden(function, self, other)
        try:
            number(other)
        except TypeError:
            return NotImplemented
        except OverflowError:
            pass  # the function says whose it is
    return function(self, other)


def _operator(name: str, function: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    """Returns the operator of a name, which does what a generated function does."""
    fast = fast_operation(function)

    def operator(self: Any, other: Any) -> Any:
        if not OVERRIDING and (made := fast(self, other)) is not None:
            return made
        return _general(function, self, other)

    operator.__name__ = operator.__qualname__ = name
    return operator


def _reflect(function: Callable[..., Any], self: Tensor, other: Any) -> Any:
    """Applies an operator to anything that is no tensor and, behind it, a tensor."""
    if overrides(other):
        return _overridden(function, other, self)
    return _general(lambda t, o: function(operand(o), t), self, other)


def _overridden(function: Callable[..., Any], x: Any, y: Any) -> Any:
    from plait._tensor import Tensor

    return overridden_operator(getattr(Tensor, function.__name__), x, y)


def _reflected(function: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    return lambda self, other: _reflect(function, self, other)


def install_operators(cls: Any) -> None:
    """Gives the tensor class its operators."""
    _core.set_operators(
        _rest(_core.bind_Add, _ops.add, commutes=True),
        _rest(_core.bind_Sub, _ops.sub),
        _rest(_core.bind_Mul, _ops.mul, commutes=True),
        _rest(_core.bind_Div, _ops.div),
    )
    others = {
        "floordiv": _ops.floor_divide, "mod": _ops.remainder, "pow": _ops.pow, "and": _ops.bitwise_and, "or": _ops.bitwise_or,
        "xor": _ops.bitwise_xor, "lshift": _ops.bitwise_left_shift, "rshift": _ops.bitwise_right_shift, "matmul": _ops.matmul,
    }  # fmt: skip
    for name, function in others.items():
        setattr(cls, f"__{name}__", _operator(f"__{name}__", function))
        setattr(cls, f"__r{name}__", _reflected(function))
    for name in ("eq", "ne", "lt", "le", "gt", "ge"):
        setattr(cls, f"__{name}__", _operator(f"__{name}__", getattr(_ops, name)))
    in_place = {
        "add": _ops.add_, "sub": _ops.sub_, "mul": _ops.mul_, "truediv": _ops.div_, "floordiv": _ops.floor_divide_,
        "mod": _ops.remainder_, "pow": _ops.pow_, "and": _ops.bitwise_and_, "or": _ops.bitwise_or_, "xor": _ops.bitwise_xor_,
        "lshift": _ops.bitwise_left_shift_, "rshift": _ops.bitwise_right_shift_,
    }  # fmt: skip
    for name, function in in_place.items():
        setattr(cls, f"__i{name}__", _operator(f"__i{name}__", function))
    cls.__neg__, cls.__abs__, cls.__invert__ = _ops.neg, _ops.abs, _ops.bitwise_not
    cls.__pos__ = lambda self: self
