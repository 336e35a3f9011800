"""Functions at the top of the package that change a tensor or ask it something, as its methods do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plait import _ops
from plait._functions import arithmetic
from plait._functions._checked import checked
from plait._functions._common import with_out

if TYPE_CHECKING:
    from plait._tensor import Tensor

__all__ = [
    "arccos_", "arccosh_", "arcsin_", "arcsinh_", "arctan_", "arctanh_", "clip_", "detach",
    "fix_", "get_device", "i0_", "igamma", "igammac", "is_conj", "is_inference",
    "is_neg", "lcm_", "ldexp_", "negative_",
]  # fmt: skip

arccos_, arccosh_, arcsin_, arcsinh_ = _ops.acos_, _ops.acosh_, _ops.asin_, _ops.asinh_
arctan_, arctanh_, fix_, negative_ = _ops.atan_, _ops.atanh_, _ops.trunc_, _ops.neg_
clip_ = arithmetic.clamp_
igamma, igammac = with_out(_ops.igamma), with_out(_ops.igammac)
i0_, lcm_, ldexp_ = _ops.i0_, _ops.lcm_, _ops.ldexp_


@checked
def detach(input: Tensor) -> Tensor:
    """Returns a tensor with the same memory and no history."""
    return input.detach()


@checked
def get_device(input: Tensor) -> int:
    """Returns the index of a tensor's device, -1 for a CPU."""
    return input.get_device()


@checked
def is_inference(input: Tensor) -> bool:
    """Whether a tensor was made in inference mode."""
    return input.is_inference()


@checked
def is_conj(input: Tensor) -> bool:
    """Whether the elements are conjugates: never."""
    return input.is_conj()


@checked
def is_neg(input: Tensor) -> bool:
    """Whether the elements stand for their negatives: never."""
    return input.is_neg()
