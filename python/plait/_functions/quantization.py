"""Values as a quantized network would see them, for training it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from plait import _ops
from plait._dtype import float16, float32, float64, int32, int64
from plait._engine.runtime import is_tensor
from plait._errors import DTypeError, ShapeError
from plait._functions._checked import checked
from plait._modes import no_grad

if TYPE_CHECKING:
    from plait._dtype import dtype as DType
    from plait._tensor import Tensor

__all__ = ["fake_quantize_per_channel_affine", "fake_quantize_per_tensor_affine"]


def _check(name: str, input: Tensor, quant_min: int, quant_max: int) -> DType:
    """Raises for what both functions refuse, and returns the dtype to compute in."""
    if not is_tensor(input):
        raise TypeError(f"{name}: argument 'input' must be Tensor, got {type(input).__name__}")
    if not input.dtype.is_floating_point:
        raise DTypeError(f"{name}: want an input of a floating-point dtype, got {input.dtype}")
    for bound, value in (("quant_min", quant_min), ("quant_max", quant_max)):
        if not isinstance(value, int) or isinstance(value, bool):
            raise TypeError(f"{name}: argument '{bound}' must be int, got {type(value).__name__}")
    if quant_min > quant_max:
        raise ValueError(f"{name}: want quant_min of at most quant_max, got {quant_min} and {quant_max}")
    return float64 if input.dtype == float64 else float32


def _quantized(
    input: Tensor, scale: Tensor, zero_point: Tensor, quant_min: int, quant_max: int, dtype: DType, last: DType
) -> Tensor:
    """Returns what is left of a tensor, with the gradient of the tensor itself where it is in the range.

    The scale is of float32, as is its reciprocal, which elements are multiplied by. `last` is the dtype of the product
    with the scale.
    """
    scale = _ops.to(scale.detach(), dtype=float32)
    whole = not zero_point.dtype.is_floating_point
    zero = _ops.to(zero_point.detach(), dtype=dtype)
    with no_grad():
        steps = _ops.to(input, dtype=dtype) * _ops.to(_ops.reciprocal(scale), dtype=dtype)
        level = _ops.round(steps) + zero if whole else _ops.round(steps + zero)
        inside = (level >= quant_min) & (level <= quant_max)
        left = _ops.to(_ops.clamp(level, quant_min, quant_max) - zero, dtype=last) * _ops.to(scale, dtype=last)
        value = _ops.to(left, dtype=input.dtype)
    through = _ops.where(inside, input, 0.0)
    return value + (through - through.detach())  # 0, with a gradient


@checked
def fake_quantize_per_tensor_affine(
    input: Tensor, scale: float | Tensor, zero_point: int | Tensor, quant_min: int, quant_max: int
) -> Tensor:
    """Returns (clamp(round(input / scale) + zero_point, quant_min, quant_max) - zero_point) * scale.

    That is what is left of the input once it was quantized. Halves are rounded to even levels. The gradient is that of
    the input itself where its level is in the range, and 0 elsewhere; scale and zero_point have none. NaN stays NaN.

    Args:
        input: the tensor, of any shape
        scale: the distance of levels, a number or a tensor of one element
        zero_point: the level of 0, in the range, a number or a tensor of one element
        quant_min: the lowest level
        quant_max: the highest level

    Raises:
        TypeError: if the input is not of a floating-point dtype.
        ValueError: if quant_min is above quant_max, or zero_point is not between them.
    """
    name = "fake_quantize_per_tensor_affine"
    dtype = _check(name, input, quant_min, quant_max)
    if is_tensor(scale) != is_tensor(zero_point):
        raise TypeError(f"{name}: want scale and zero_point to be two numbers or two tensors, got one of each")
    if is_tensor(scale) and is_tensor(zero_point):
        for which, given in (("scale", scale), ("zero_point", zero_point)):
            if given.numel() != 1:
                raise ShapeError(f"{name}: want {which} of one element, got shape {list(given.shape)}")
        if zero_point.dtype.is_floating_point:
            raise DTypeError(f"{name}: want a zero_point of an integer dtype, got {zero_point.dtype}")
        scale, zero_point = _ops.reshape(scale, ()), _ops.reshape(zero_point, ())
        return _quantized(input, scale, zero_point, quant_min, quant_max, dtype, float32)
    if isinstance(zero_point, bool) or not isinstance(zero_point, int):
        raise TypeError(f"{name}: argument 'zero_point' must be int or Tensor, got {type(zero_point).__name__}")
    if isinstance(scale, bool) or not isinstance(scale, int | float):
        raise TypeError(f"{name}: argument 'scale' must be float or Tensor, got {type(scale).__name__}")
    if not quant_min <= zero_point <= quant_max:
        raise ValueError(f"{name}: want zero_point from {quant_min} to {quant_max}, got {zero_point}")
    if math.isnan(scale) or scale <= 0:
        raise ValueError(f"{name}: want a positive scale, got {scale}")
    step = _ops.full(fill_value=scale, dtype=float32, device=input.device)
    zero = _ops.full(fill_value=zero_point, dtype=int64, device=input.device)
    return _quantized(input, step, zero, quant_min, quant_max, dtype, float32)


@checked
def fake_quantize_per_channel_affine(
    input: Tensor, scale: Tensor, zero_point: Tensor, axis: int, quant_min: int, quant_max: int
) -> Tensor:
    """Returns what `fake_quantize_per_tensor_affine` does, with a scale and a zero point for each place of an axis.

    Args:
        input: the tensor
        scale: [n], the distances of levels, where n is the size of the axis
        zero_point: [n], the levels of 0: int32, in the range; or float32 or float16, which is added before the rounding
        axis: the dimension of the channels, from 0
        quant_min: the lowest level
        quant_max: the highest level

    Raises:
        TypeError: for other dtypes.
        IndexError: if there is no such axis.
        ValueError: if the shapes do not fit, quant_min is above quant_max, or a zero point is not between them.
    """
    name = "fake_quantize_per_channel_affine"
    dtype = _check(name, input, quant_min, quant_max)
    for which, given in (("scale", scale), ("zero_point", zero_point)):
        if not is_tensor(given):
            raise TypeError(f"{name}: argument '{which}' must be Tensor, got {type(given).__name__}")
    if zero_point.dtype not in (int32, float32, float16):
        raise DTypeError(f"{name}: want a zero_point of int32, float32 or float16, got {zero_point.dtype}")
    if not scale.dtype.is_floating_point:
        raise DTypeError(f"{name}: want a scale of a floating-point dtype, got {scale.dtype}")
    if not 0 <= axis < input.ndim:
        raise IndexError(f"{name}: want an axis from 0 to {input.ndim - 1}, got {axis}")
    n = input.shape[axis]
    if tuple(scale.shape) != (n,) or tuple(zero_point.shape) != (n,):
        raise ShapeError(
            f"{name}: want scale and zero_point of shape [{n}], the size of axis {axis} of {list(input.shape)}, "
            f"got {list(scale.shape)} and {list(zero_point.shape)}"
        )
    if zero_point.dtype == int32:
        right = (zero_point >= quant_min) & (zero_point <= quant_max)
        if not bool(_ops.all(right)):
            raise ValueError(f"{name}: want zero_point from {quant_min} to {quant_max}, got {zero_point}")
    shape = [n if d == axis else 1 for d in range(input.ndim)]
    scale, zero_point = _ops.reshape(scale, shape), _ops.reshape(zero_point, shape)
    return _quantized(input, scale, zero_point, quant_min, quant_max, dtype, dtype)
