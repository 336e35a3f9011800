"""Windows: weights of samples that are looked at together."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from plait import _ops
from plait._dtype import as_dtype, float32, float64, get_default_dtype
from plait._functions._checked import checked
from plait._functions._common import check_layout

if TYPE_CHECKING:
    from collections.abc import Callable

    from plait._device import DeviceLike
    from plait._dtype import dtype as DType
    from plait._layout import Layout
    from plait._tensor import Tensor

__all__ = ["bartlett_window", "blackman_window", "hamming_window", "hann_window", "kaiser_window"]


def _window(
    name: str,
    n: int,
    periodic: bool,
    low: float,
    high: float,
    of: Callable[[Tensor], Tensor],
    dtype: DType | None,
    layout: Layout | None,
    device: DeviceLike | None,
    requires_grad: bool,
) -> Tensor:
    """Returns a function of places from low to high, at which a periodic window does not arrive."""
    check_layout(name, layout)
    dtype = as_dtype(dtype or get_default_dtype())
    if n < 0:
        raise ValueError(f"{name}: want a length of at least 0, got {n}")
    if not dtype.is_floating_point:
        raise TypeError(f"{name}: want a floating-point dtype, got {dtype}")
    if n == 1:
        out = _ops.ones(1, dtype=dtype, device=device)
    else:
        end = high - (high - low) / n if periodic and n else high
        places = _ops.linspace(low, end=end, steps=n, dtype=float64 if dtype == float64 else float32, device=device)
        out = of(places)
        out = out if out.dtype == dtype else _ops.to(out, dtype=dtype)
    return out.requires_grad_() if requires_grad else out


@checked
def hann_window(
    window_length: int,
    periodic: bool = True,
    *,
    dtype: DType | None = None,
    layout: Layout | None = None,
    device: DeviceLike | None = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """Returns the square of a sine's half wave.

    Args:
        window_length: how many samples
        periodic: leave out the last one, which equals the first of the next window
        dtype: of the result, the default one if None
        layout: can only be `plait.strided`
        device: where the result goes
        pin_memory: has no effect: memory is not pinned
        requires_grad: whether the result collects its gradient
    """

    def of(x: Tensor) -> Tensor:
        return _ops.square(_ops.sin(x))

    return _window("hann_window", window_length, periodic, 0, math.pi, of, dtype, layout, device, requires_grad)


@checked
def hamming_window(
    window_length: int,
    periodic: bool = True,
    alpha: float = 0.54,
    beta: float = 0.46,
    *,
    dtype: DType | None = None,
    layout: Layout | None = None,
    device: DeviceLike | None = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """Returns alpha - beta times a wave of a cosine; see `hann_window`."""

    def of(x: Tensor) -> Tensor:
        return alpha + beta * _ops.cos(x)

    return _window(
        "hamming_window", window_length, periodic, -math.pi, math.pi, of, dtype, layout, device, requires_grad
    )


@checked
def blackman_window(
    window_length: int,
    periodic: bool = True,
    *,
    dtype: DType | None = None,
    layout: Layout | None = None,
    device: DeviceLike | None = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """Returns 0.42 - 0.5 cos(a) + 0.08 cos(2a) over a wave; see `hann_window`."""

    def of(x: Tensor) -> Tensor:
        c = _ops.cos(x)
        return 0.34 + c * (0.5 + 0.16 * c)  # where cos(2 a) is 2 cos(a)^2 - 1

    return _window(
        "blackman_window", window_length, periodic, -math.pi, math.pi, of, dtype, layout, device, requires_grad
    )


@checked
def bartlett_window(
    window_length: int,
    periodic: bool = True,
    *,
    dtype: DType | None = None,
    layout: Layout | None = None,
    device: DeviceLike | None = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """Returns a triangle; see `hann_window`."""

    def of(x: Tensor) -> Tensor:
        return 1 - _ops.abs(x)

    return _window("bartlett_window", window_length, periodic, -1, 1, of, dtype, layout, device, requires_grad)


@checked
def kaiser_window(
    window_length: int,
    periodic: bool = True,
    beta: float = 12.0,
    *,
    dtype: DType | None = None,
    layout: Layout | None = None,
    device: DeviceLike | None = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """Returns the window of Kaiser, of the Bessel function i0; see `hann_window`."""

    def of(x: Tensor) -> Tensor:
        inner = _ops.i0(beta * _ops.sqrt(_ops.clamp(1 - _ops.square(x), 0.0, None)))
        return inner / _ops.i0(_ops.full([1], fill_value=beta, dtype=x.dtype, device=x.device))

    return _window("kaiser_window", window_length, periodic, -1, 1, of, dtype, layout, device, requires_grad)
