"""Arithmetic whose signature has more than two operands: alpha, rounding modes, bounds, scaled products."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plait import _core, _ops
from plait._dtype import bool_, complex128, float64
from plait._engine.runtime import is_tensor
from plait._functions._checked import checked, overridable
from plait._functions._common import adopt, into, is_complex_factor, is_scalar, numpy_names, operand, store, typed
from plait._functions._fast import does
from plait._tensors.arrays import tensor
from plait._tensors.storage import Storage

if TYPE_CHECKING:
    from plait._dtype import dtype as DType
    from plait._random import Generator
    from plait._tensor import Number, Tensor

__all__ = [
    "add", "addcdiv", "addcmul", "allclose", "bernoulli", "clamp", "clamp_", "clamp_max", "clamp_max_", "clamp_min",
    "clamp_min_", "div", "equal", "float_power", "heaviside", "isclose", "isin", "isneginf", "isposinf", "isreal",
    "log_softmax", "logit", "logit_", "nan_to_num", "nan_to_num_", "pow", "round", "round_", "rsub", "softmax", "sub",
    "subtract",
]  # fmt: skip

Operand = Any  # a tensor or a number


@numpy_names
@does(_ops.add)
def add(input: Operand, other: Operand, *, alpha: Number = 1, out: Tensor | None = None) -> Tensor:
    """Returns input + alpha * other."""
    left = operand(input, "add")
    return into(out, _ops.add, left, other) if alpha == 1 else _scaled("add", left, other, alpha, 1, out)


def add_(input: Tensor, other: Operand, *, alpha: Number = 1) -> Tensor:
    """Adds alpha * other."""
    return _ops.add_(input, other) if alpha == 1 else _ops.add_(input, _times("add_", input, other, alpha))


@numpy_names
@does(_ops.sub)
def sub(input: Operand, other: Operand, *, alpha: Number = 1, out: Tensor | None = None) -> Tensor:
    """Returns input - alpha * other."""
    left = operand(input, "sub")
    return into(out, _ops.sub, left, other) if alpha == 1 else _scaled("sub", left, other, alpha, -1, out)


def sub_(input: Tensor, other: Operand, *, alpha: Number = 1) -> Tensor:
    """Subtracts alpha * other."""
    return _ops.sub_(input, other) if alpha == 1 else _ops.sub_(input, _times("sub_", input, other, alpha))


@numpy_names
def subtract(input: Operand, other: Operand, alpha: Number = 1, *, out: Tensor | None = None) -> Tensor:
    """Returns what `sub` does; alpha may go by position."""
    return sub(input, other, alpha=alpha, out=out)


def subtract_(input: Tensor, other: Operand, alpha: Number = 1) -> Tensor:
    """Does what `sub_` does; alpha may go by position."""
    return sub_(input, other, alpha=alpha)


@checked
def rsub(input: Tensor, other: Operand, alpha: Number = 1) -> Tensor:
    """Returns other - alpha * input."""
    return sub(operand(other, "rsub"), input, alpha=alpha)


def _times(name: str, input: Tensor, other: Operand, alpha: Number) -> Any:
    is_complex_factor(name, alpha, input, operand(other, name))
    dtypes = (input.dtype, operand(other, name).dtype)
    if not any(d.is_floating_point or d.is_complex for d in dtypes) and isinstance(alpha, float):
        raise TypeError(f"{name}: alpha must be an integer for integer tensors, got {alpha}")
    return other * alpha if is_scalar(other) else _ops.mul(operand(other, name), alpha)


def _scaled(name: str, input: Tensor, other: Operand, alpha: Number, sign: int, out: Tensor | None) -> Tensor:
    if input.dtype.is_floating_point and not is_scalar(other) and not isinstance(alpha, complex):
        return into(out, _ops.add_scaled, input, other, float(sign * alpha))
    return into(out, _ops.add if sign > 0 else _ops.sub, input, _times(name, input, other, alpha))


_ROUNDED: dict[Any, tuple[Any, Any]] = {
    None: (_ops.div, _ops.div_),
    "floor": (_ops.floor_divide, _ops.floor_divide_),
    "trunc": (_ops.trunc_divide, _ops.trunc_divide_),
}


def _rounded(mode: str | None, in_place: bool) -> Any:
    try:
        return _ROUNDED[mode][in_place]
    except (KeyError, TypeError):
        raise ValueError(f"div: rounding_mode must be None, 'floor' or 'trunc', got {mode!r}") from None


@numpy_names
def div(input: Operand, other: Operand, *, rounding_mode: str | None = None, out: Tensor | None = None) -> Tensor:
    """Returns input / other: exact, or rounded down (floor) or towards zero (trunc)."""
    return into(out, _rounded(rounding_mode, False), operand(input, "div"), other)


def div_(input: Tensor, other: Operand, *, rounding_mode: str | None = None) -> Tensor:
    """Divides by other; see `div`."""
    return _rounded(rounding_mode, True)(input, other)


@numpy_names
@does(_ops.clamp)
def clamp(input: Tensor, min: Operand = None, max: Operand = None, *, out: Tensor | None = None) -> Tensor:
    """Returns the elements, not below `min` and not above `max`.

    Raises:
        RuntimeError: if both bounds are None.
    """
    _bounds(min, max)
    return into(out, _ops.clamp, input, min, max)


@checked
@does(_ops.clamp_)
def clamp_(input: Tensor, min: Operand = None, max: Operand = None) -> Tensor:
    """Limits the elements in place; see `clamp`."""
    _bounds(min, max)
    return _ops.clamp_(input, min, max)


def _bounds(low: Operand, high: Operand) -> None:
    if low is None and high is None:
        raise ValueError("clamp: want min or max, got neither")


@checked
def clamp_min(input: Tensor, min: Operand, *, out: Tensor | None = None) -> Tensor:
    """Returns the elements, not below `min`."""
    return into(out, _ops.clamp, input, min, None)


@checked
def clamp_max(input: Tensor, max: Operand, *, out: Tensor | None = None) -> Tensor:
    """Returns the elements, not above `max`."""
    return into(out, _ops.clamp, input, None, max)


@checked
def clamp_min_(input: Tensor, min: Operand) -> Tensor:
    """Raises the elements to at least `min`."""
    return _ops.clamp_(input, min, None)


@checked
def clamp_max_(input: Tensor, max: Operand) -> Tensor:
    """Lowers the elements to at most `max`."""
    return _ops.clamp_(input, None, max)


@numpy_names
@does(_ops.pow, names={"exponent": "other"})
def pow(input: Operand, exponent: Operand, *, out: Tensor | None = None) -> Tensor:
    """Returns input to the power of exponent, at least one of which is a tensor."""
    return into(out, _ops.pow, input, exponent)


def pow_(input: Tensor, exponent: Operand) -> Tensor:
    """Raises the elements to a power in place."""
    return _ops.pow_(input, exponent)


@checked
def float_power(input: Operand, exponent: Operand, *, out: Tensor | None = None) -> Tensor:
    """Returns a power in float64 or complex128."""
    return into(out, _ops.float_power, _float64(input), exponent)


def _float64(input: Operand) -> Tensor:
    return input if is_tensor(input) else tensor(input, dtype=complex128 if isinstance(input, complex) else float64)


@checked
def nan_to_num(
    input: Tensor,
    nan: float | None = None,
    posinf: float | None = None,
    neginf: float | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """Returns the elements with NaN replaced by 0, and infinities by the dtype's largest and smallest numbers."""
    if not (input.dtype.is_floating_point or input.dtype.is_complex):
        return store(out, _ops.clone(input))
    return into(out, _ops.nan_to_num, input, *_finite(nan, posinf, neginf))


@checked
def nan_to_num_(
    input: Tensor, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
) -> Tensor:
    """Replaces NaN and infinities; see `nan_to_num`."""
    return _ops.nan_to_num_(input, *_finite(nan, posinf, neginf))


def _finite(nan: float | None, posinf: float | None, neginf: float | None) -> tuple[float, Operand, Operand]:
    high, low = (None if v is None else operand(v) for v in (posinf, neginf))
    return 0.0 if nan is None else nan, high, low


@checked
def logit(input: Tensor, eps: float | None = None, *, out: Tensor | None = None) -> Tensor:
    """Returns log(x / (1 - x)), of x limited to [eps, 1 - eps]."""
    return into(out, _ops.logit, input, -1.0 if eps is None else eps)


@checked
def logit_(input: Tensor, eps: float | None = None) -> Tensor:
    """Replaces the elements by their logits; see `logit`."""
    return _ops.logit_(input, -1.0 if eps is None else eps)


def _blended(operation: Any, input: Tensor, tensor1: Tensor, tensor2: Tensor, value: Number, out: Any = None) -> Tensor:
    tensor1, tensor2 = typed(tensor1, input), typed(tensor2, input)
    if is_complex_factor(operation.__name__, value, input, tensor1, tensor2):
        tensor1, value = _ops.mul(tensor1, value), 1
    return into(out, operation, input, tensor1, tensor2, value)


@numpy_names
@does(_ops.addcmul)
def addcmul(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Number = 1, out: Tensor | None = None) -> Tensor:
    """Returns input + value * tensor1 * tensor2."""
    return _blended(_ops.addcmul, input, tensor1, tensor2, value, out)


@numpy_names
@does(_ops.addcdiv)
def addcdiv(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Number = 1, out: Tensor | None = None) -> Tensor:
    """Returns input + value * tensor1 / tensor2."""
    return _blended(_ops.addcdiv, input, tensor1, tensor2, value, out)


@overridable
def addcmul_(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Number = 1) -> Tensor:
    """Adds value * tensor1 * tensor2."""
    return _blended(_ops.addcmul_, input, tensor1, tensor2, value)


@overridable
def addcdiv_(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Number = 1) -> Tensor:
    """Adds value * tensor1 / tensor2."""
    return _blended(_ops.addcdiv_, input, tensor1, tensor2, value)


@numpy_names
@does(_ops.softmax)
def softmax(input: Tensor, dim: int, dtype: DType | None = None, *, out: Tensor | None = None) -> Tensor:
    """Returns exponentials divided by their sum along a dimension."""
    return into(out, _ops.softmax, input if dtype is None else _ops.to(input, dtype=dtype), dim)


@numpy_names
@does(_ops.log_softmax)
def log_softmax(input: Tensor, dim: int, dtype: DType | None = None, *, out: Tensor | None = None) -> Tensor:
    """Returns the logarithm of `softmax`."""
    return into(out, _ops.log_softmax, input if dtype is None else _ops.to(input, dtype=dtype), dim)


@checked
@does(_ops.isclose)
def isclose(input: Tensor, other: Operand, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Tensor:
    """Returns where |input - other| <= atol + rtol * |other|."""
    return _ops.isclose(input, other, rtol, atol, equal_nan)


@numpy_names
def allclose(input: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> bool:
    """Whether `isclose` holds for all elements; waits for them."""
    return bool(_ops.all(_ops.isclose(input, other, rtol, atol, equal_nan)).item())


@numpy_names
def equal(input: Tensor, other: Tensor) -> bool:
    """Whether two tensors have the same shape and elements; waits for them."""
    if (known := _core.bind_TensorsEqual(input._h, other._h)) >= 0:
        return known == 1
    if input.shape != other.shape:
        return False
    return bool(_ops.all(_ops.eq(input, other)).item())


@checked
def isneginf(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Returns where the elements are minus infinity."""
    if input.dtype.is_complex:
        raise TypeError(f"isneginf: not defined for {input.dtype.name}")
    return into(out, _ops.eq, input, float("-inf"))


@checked
def isposinf(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Returns where the elements are infinity."""
    if input.dtype.is_complex:
        raise TypeError(f"isposinf: not defined for {input.dtype.name}")
    return into(out, _ops.eq, input, float("inf"))


@checked
def isreal(input: Tensor) -> Tensor:
    """Returns where the elements are real numbers: where their imaginary parts are 0."""
    if input.dtype.is_complex:
        return _ops.eq(_ops.imag(input), 0)
    return _ops.ones_like(input, dtype=_bool())


def _bool() -> DType:
    return bool_


@checked
def isin(
    elements: Operand | None = None,
    test_elements: Operand | None = None,
    *,
    assume_unique: bool = False,
    invert: bool = False,
    out: Tensor | None = None,
    element: Number | None = None,
    test_element: Number | None = None,
) -> Tensor:
    """Returns where the elements are among others.

    Args:
        elements: a tensor or a number, which may be called element
        test_elements: the others, a tensor or a number, which may be called test_element
        assume_unique: no element comes twice; has no effect
        invert: return where they are not instead
        out: where the result goes
    """
    for many, one, name in ((elements, element, "element"), (test_elements, test_element, "test_element")):
        if (many is None) == (one is None):
            raise TypeError(f"isin: want {name}s or {name}, got {'neither' if one is None else 'both'}")
    pair = element if elements is None else elements, test_element if test_elements is None else test_elements
    where = next((v.device for v in pair if is_tensor(v)), None)
    left, right = (v if is_tensor(v) else tensor(v, device=where) for v in pair)
    return store(out, _ops.isin(left, right, invert))


@checked
@does(_ops.heaviside)
def heaviside(input: Tensor, values: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Returns 0 for negative elements, `values` for 0 and 1 for positive ones."""
    return into(out, _ops.heaviside, input, values)


@checked
@does(_ops.round)
def round(input: Tensor, *, decimals: int = 0, out: Tensor | None = None) -> Tensor:
    """Returns the elements rounded to a number of decimals, halves to even."""
    return into(out, _ops.round, input, decimals)


@checked
@does(_ops.round_)
def round_(input: Tensor, *, decimals: int = 0) -> Tensor:
    """Rounds the elements in place; see `round`."""
    return _ops.round_(input, decimals)


@checked
def bernoulli(
    input: Tensor, p: float | None = None, *, generator: Generator | None = None, out: Tensor | None = None
) -> Tensor:
    """Returns ones with the probabilities that the elements say, or all with probability `p`, and else zeros."""
    if p is not None:
        return store(out, _ops.bernoulli_(_ops.empty_like(input), p, generator=generator))
    return store(out, _ops.bernoulli(input, generator=generator))


def bernoulli_(input: Tensor, p: Operand = 0.5, *, generator: Generator | None = None) -> Tensor:
    """Sets the elements to ones with probability `p`, and else zeros."""
    return _ops.bernoulli_(input, p, generator=generator)


def random_(
    input: Tensor, from_: int | None = None, to: int | None = None, *, generator: Generator | None = None
) -> Tensor:
    """Sets the elements to random integers from `from_` to before `to`; with one bound, from 0 to before it."""
    if to is None:
        top = {"bool": 2, "uint8": 1 << 8, "int8": 1 << 7, "int16": 1 << 15, "uint16": 1 << 16, "uint32": 1 << 32}
        top |= {"int32": (1 << 31) - 1, "int64": 1 << 62, "uint64": 1 << 62}
        top |= {"float16": 1 << 11, "bfloat16": 1 << 8, "float32": 1 << 24, "float64": 1 << 53}
        to, from_ = top[input.dtype.name] if from_ is None else from_, None
    return _ops.random_(input, 0 if from_ is None else from_, to=to, generator=generator)


def set_(input: Tensor, source: Any = None, storage_offset: int = 0, size: Any = None, stride: Any = None) -> Tensor:
    """Makes the tensor share the memory and layout of another, or nothing's: then it is empty.

    Args:
        input: the tensor
        source: a tensor or a storage
        storage_offset: the position of the first element in a storage
        size: the sizes of the dimensions
        stride: the distances along them, row-major by default
    """
    if source is None:
        return adopt(input, _ops.empty(0, dtype=input.dtype, device=input.device))
    if isinstance(source, Storage):
        source = source.elements(input.dtype)
        size = source.shape if size is None else size
    if size is not None:
        source = as_strided_at(source, size, stride, storage_offset)
    return adopt(input, source)


def as_strided_at(source: Tensor, size: Any, stride: Any, storage_offset: int) -> Tensor:
    """Returns a view at an offset that counts from the start of the storage, row-major unless strides are given."""
    if stride is None:
        stride, step = [], 1
        for n in reversed(tuple(size)):
            stride.insert(0, step)
            step *= n
    return _ops.as_strided(source, size, stride, storage_offset - source.storage_offset())
