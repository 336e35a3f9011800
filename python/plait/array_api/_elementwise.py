"""Functions of two arrays, which promote as the standard says: arrays without dimensions count as others do.

Operators of tensors, and functions under the same names in `plait`, promote as PyTorch's do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import plait
from plait._tensor import Tensor

__all__ = [
    "add",
    "atan2",
    "bitwise_and",
    "bitwise_left_shift",
    "bitwise_or",
    "bitwise_right_shift",
    "bitwise_xor",
    "clip",
    "copysign",
    "divide",
    "equal",
    "floor_divide",
    "greater",
    "greater_equal",
    "hypot",
    "less",
    "less_equal",
    "logaddexp",
    "logical_and",
    "logical_or",
    "logical_xor",
    "matmul",
    "maximum",
    "minimum",
    "multiply",
    "not_equal",
    "pow",
    "remainder",
    "sign",
    "subtract",
    "where",
]


def promoted(*values: Any) -> list[Any]:
    """Returns arrays converted to the dtype that all of them promote to; numbers stay as they are."""
    found: Any = None
    for v in values:
        if isinstance(v, Tensor):
            found = v.dtype if found is None else plait.promote_types(found, v.dtype)
    return [v.to(found) if isinstance(v, Tensor) else v for v in values]


def _of_two(name: str, doc: str, function: Callable[..., Tensor] | None = None) -> Callable[[Any, Any], Tensor]:
    make = function or getattr(plait, name)

    def pair(x1: Any, x2: Any, /) -> Tensor:
        return make(*promoted(x1, x2))

    pair.__name__ = pair.__qualname__ = name
    pair.__doc__ = doc
    return pair


add = _of_two("add", "Returns the sums of elements.")
atan2 = _of_two("atan2", "Returns the angles of the points (x2, x1).")
bitwise_and = _of_two("bitwise_and", "Returns the bits that are set in both.")
bitwise_left_shift = _of_two("bitwise_left_shift", "Returns the bits of x1 moved up by x2 places.")
bitwise_or = _of_two("bitwise_or", "Returns the bits that are set in one or both.")
bitwise_right_shift = _of_two("bitwise_right_shift", "Returns the bits of x1 moved down by x2 places.")
bitwise_xor = _of_two("bitwise_xor", "Returns the bits that are set in one alone.")
copysign = _of_two("copysign", "Returns the magnitudes of x1 with the signs of x2.")
divide = _of_two("divide", "Returns the quotients of elements.")
equal = _of_two("equal", "Whether elements are equal.", plait.eq)
floor_divide = _of_two("floor_divide", "Returns the quotients of elements, rounded down.")
greater = _of_two("greater", "Whether elements of x1 are greater.")
greater_equal = _of_two("greater_equal", "Whether elements of x1 are greater or equal.")
hypot = _of_two("hypot", "Returns the roots of the sums of squares.")
less = _of_two("less", "Whether elements of x1 are less.")
less_equal = _of_two("less_equal", "Whether elements of x1 are less or equal.")
logaddexp = _of_two("logaddexp", "Returns log(exp(x1) + exp(x2)), without overflow.")
logical_and = _of_two("logical_and", "Whether both are true.")
logical_or = _of_two("logical_or", "Whether one or both are true.")
logical_xor = _of_two("logical_xor", "Whether one alone is true.")
maximum = _of_two("maximum", "Returns the larger elements.")
minimum = _of_two("minimum", "Returns the smaller elements.")
multiply = _of_two("multiply", "Returns the products of elements.")
not_equal = _of_two("not_equal", "Whether elements differ.")
pow = _of_two("pow", "Returns x1 to the power of x2.")
remainder = _of_two("remainder", "Returns what is left of x1 divided by x2, with the sign of x2.")
subtract = _of_two("subtract", "Returns the differences of elements.")
matmul = _of_two("matmul", "Returns the products of matrices.")


def where(condition: Tensor, x1: Any, x2: Any, /) -> Tensor:
    """Returns the elements of x1 where a condition holds, and elsewhere those of x2."""
    return plait.where(condition, *promoted(x1, x2))


def clip(x: Tensor, /, min: Any = None, max: Any = None) -> Tensor:
    """Returns the elements, those beyond a bound replaced by it; bounds may be arrays."""
    if min is None and max is None:
        return plait.clone(x)
    low, high = (b.to(x.dtype) if isinstance(b, Tensor) else b for b in (min, max))
    return plait.clamp(x, low, high)


def sign(x: Tensor, /) -> Tensor:
    """Returns -1, 0 or 1 by the signs of elements, and nan for nan."""
    return plait.where(plait.isnan(x), x, plait.sign(x)) if x.dtype.is_floating_point else plait.sign(x)
