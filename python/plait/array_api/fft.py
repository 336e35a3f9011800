"""The standard's Fourier transforms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import plait
from plait._tensor import Tensor

__all__ = [
    "fft", "fftfreq", "fftn", "fftshift", "hfft", "ifft", "ifftn", "ifftshift", "ihfft", "irfft", "irfftn", "rfft",
    "rfftfreq", "rfftn",
]  # fmt: skip


def _along(name: str) -> Callable[..., Tensor]:
    of = getattr(plait.fft, name)

    def function(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Tensor:
        return of(x, n, axis, norm)  # type: ignore[no-any-return]

    return _named(function, name, of)


def _over(name: str) -> Callable[..., Tensor]:
    of = getattr(plait.fft, name)

    def function(
        x: Tensor, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str = "backward"
    ) -> Tensor:
        return of(x, s, axes, norm)  # type: ignore[no-any-return]

    return _named(function, name, of)


def _named(function: Any, name: str, of: Any) -> Callable[..., Tensor]:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = (of.__doc__ or "").split("\n", maxsplit=1)[0]
    return function  # type: ignore[no-any-return]


fft, ifft, rfft, irfft = _along("fft"), _along("ifft"), _along("rfft"), _along("irfft")
hfft, ihfft = _along("hfft"), _along("ihfft")
fftn, ifftn, rfftn, irfftn = _over("fftn"), _over("ifftn"), _over("rfftn"), _over("irfftn")


def fftshift(x: Tensor, /, *, axes: int | Sequence[int] | None = None) -> Tensor:
    """Returns the elements of a transform with the zero frequency in the middle."""
    return plait.fft.fftshift(x, axes)


def ifftshift(x: Tensor, /, *, axes: int | Sequence[int] | None = None) -> Tensor:
    """Returns what `fftshift` has moved, moved back."""
    return plait.fft.ifftshift(x, axes)


def fftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> Tensor:
    """Returns the frequency of each element of a transform of n numbers."""
    return plait.fft.fftfreq(n, d, dtype=dtype, device=device)


def rfftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> Tensor:
    """Returns the frequency of each element of a transform of n real numbers."""
    return plait.fft.rfftfreq(n, d, dtype=dtype, device=device)
