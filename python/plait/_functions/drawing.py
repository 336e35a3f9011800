"""New tensors of random numbers; options are those of `plait._functions.creation`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from plait import _ops
from plait._engine.runtime import is_tensor
from plait._functions._checked import checked
from plait._functions._common import is_scalar
from plait._functions._fast import does
from plait._functions.creation import Sizes, dtype_for, finished, number_of

if TYPE_CHECKING:
    from plait._device import DeviceLike
    from plait._dtype import dtype as DType
    from plait._layout import Layout
    from plait._random import Generator
    from plait._tensor import Number, Tensor

__all__ = ["normal", "rand", "randint", "randn", "randperm"]


@checked
@does(_ops.rand)
def rand(
    size: Sizes = (),
    *more: int,
    generator: Generator | None = None,
    out: Tensor | None = None,
    dtype: DType | None = None,
    layout: Layout | None = None,
    device: DeviceLike | None = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """Returns random numbers in [0, 1); arguments are those of `zeros`, and a generator."""
    made = _ops.rand(size, *more, dtype=dtype_for(out, dtype), device=device, generator=generator)
    return finished("rand", made, out, layout, requires_grad)


@checked
@does(_ops.randn)
def randn(
    size: Sizes = (),
    *more: int,
    generator: Generator | None = None,
    out: Tensor | None = None,
    dtype: DType | None = None,
    layout: Layout | None = None,
    device: DeviceLike | None = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """Returns random numbers of mean 0 and variance 1; arguments are those of `zeros`, and a generator."""
    made = _ops.randn(size, *more, dtype=dtype_for(out, dtype), device=device, generator=generator)
    return finished("randn", made, out, layout, requires_grad)


@checked
@does(_ops.randint)
def randint(
    low: Any = None,
    high: Any = None,
    size: Sequence[int] | None = None,
    *,
    generator: Generator | None = None,
    out: Tensor | None = None,
    dtype: DType | None = None,
    layout: Layout | None = None,
    device: DeviceLike | None = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """Returns random integers from low to before high: `randint(high, size)` or `randint(low, high, size)`."""
    if size is None:
        low, high, size = 0, low, high
    elif high is None:
        low, high = 0, low
    elif low is None:
        low = 0
    if high is None or size is None or is_scalar(size):
        raise TypeError(f"randint: want high and a sequence for size, got high={high!r} and size={size!r}")
    made = _ops.randint(
        number_of(low), high=number_of(high), size=size, dtype=dtype_for(out, dtype), device=device, generator=generator
    )
    return finished("randint", made, out, layout, requires_grad)


@checked
@does(_ops.randperm)
def randperm(
    n: int,
    *,
    generator: Generator | None = None,
    out: Tensor | None = None,
    dtype: DType | None = None,
    layout: Layout | None = None,
    device: DeviceLike | None = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """Returns the integers from 0 to n - 1 in random order."""
    made = _ops.randperm(n, dtype=dtype_for(out, dtype), device=device, generator=generator)
    return finished("randperm", made, out, layout, requires_grad)


@checked
def normal(
    mean: Number | Tensor = 0.0,
    std: Number | Tensor = 1.0,
    size: Sequence[int] | None = None,
    *,
    generator: Generator | None = None,
    out: Tensor | None = None,
    dtype: DType | None = None,
    layout: Layout | None = None,
    device: DeviceLike | None = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """Returns normally distributed numbers: with a mean and deviation for each element, or `size` with the same."""
    if size is not None:
        empty = _ops.empty(size, dtype=dtype_for(out, dtype), device=device)
        made = _ops.normal_(empty, number_of(mean), number_of(std), generator=generator)
        return finished("normal", made, out, layout, requires_grad)
    like = mean if is_tensor(mean) else std
    if not is_tensor(like):
        raise TypeError("normal: want size, or a tensor for mean or std")
    shape = _ops.add(like, 0 if like is not mean else std).shape
    noise = _ops.randn(shape, dtype=like.dtype, device=like.device, generator=generator)
    return finished("normal", _ops.add(_ops.mul(noise, std), mean), out, layout, requires_grad)
