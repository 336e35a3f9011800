"""Discrete Fourier transforms, under PyTorch's names.

They take float32, float64 and complex tensors; bools and integers are converted to the default dtype.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plait import _ops
from plait._engine.missing_names import absent as _absent
from plait._functions._checked import overridable
from plait._functions._common import check_layout, store
from plait._public import publish as _publish

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from plait._device import DeviceLike
    from plait._dtype import dtype as DType
    from plait._layout import Layout
    from plait._tensor import Tensor

__all__ = [
    "fft",
    "fft2",
    "fftfreq",
    "fftn",
    "fftshift",
    "hfft",
    "hfft2",
    "hfftn",
    "ifft",
    "ifft2",
    "ifftn",
    "ifftshift",
    "ihfft",
    "ihfft2",
    "ihfftn",
    "irfft",
    "irfft2",
    "irfftn",
    "rfft",
    "rfft2",
    "rfftfreq",
    "rfftn",
]

_NORM = """norm: what a transform to frequencies is divided by: nothing ("backward", the default), n ("forward"), or the
            square root of n ("ortho"); that back is divided by the rest of n
        out: a tensor for the result"""
_LENGTHS = "the length that each dimension is cut to, or extended to with zeros; -1 leaves it"


def _documented(function: Any, name: str, of: Any, args: str) -> Any:
    function.__name__ = function.__qualname__ = name
    first = (of.__doc__ or "").split("\n", maxsplit=1)[0]
    function.__doc__ = f"{first}\n\n    Args:\n        {args}\n        {_NORM}\n    "
    return overridable(function)


def _along(name: str, of: Any) -> Callable[..., Tensor]:
    """Returns the transform along one dimension."""

    def function(
        input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None, *, out: Tensor | None = None
    ) -> Tensor:
        return store(out, of(input, n, dim, norm or "backward"))

    longer = (
        "the length of the result, by default 2 * (size - 1)"
        if name in ("irfft", "hfft")
        else ("the length that the dimension is cut to, or extended to with zeros; by default its size")
    )
    return _documented(function, name, of, f"n: {longer}\n        dim: the dimension that is transformed")  # type: ignore[no-any-return]


def _over(name: str, of: Any) -> Callable[..., Tensor]:
    """Returns the transform over several dimensions."""

    def function(
        input: Tensor,
        s: int | Sequence[int] | None = None,
        dim: int | Sequence[int] | None = None,
        norm: str | None = None,
        *,
        out: Tensor | None = None,
    ) -> Tensor:
        return store(out, of(input, s, dim, norm or "backward"))

    which = "the dimensions that are transformed, by default as many of the last as s has lengths, or all"
    return _documented(function, name, of, f"s: {_LENGTHS}\n        dim: {which}")  # type: ignore[no-any-return]


def _over_two(name: str, of: Any) -> Callable[..., Tensor]:
    """Returns the transform over two dimensions."""

    def function(
        input: Tensor,
        s: int | Sequence[int] | None = None,
        dim: int | Sequence[int] = (-2, -1),
        norm: str | None = None,
        *,
        out: Tensor | None = None,
    ) -> Tensor:
        return store(out, of(input, s, dim, norm or "backward"))

    return _documented(function, name, of, f"s: {_LENGTHS}\n        dim: the dimensions that are transformed")  # type: ignore[no-any-return]


fft, ifft = _along("fft", _ops.fft_fft), _along("ifft", _ops.fft_ifft)
rfft, irfft = _along("rfft", _ops.fft_rfft), _along("irfft", _ops.fft_irfft)
hfft, ihfft = _along("hfft", _ops.fft_hfft), _along("ihfft", _ops.fft_ihfft)
fftn, ifftn = _over("fftn", _ops.fft_fftn), _over("ifftn", _ops.fft_ifftn)
rfftn, irfftn = _over("rfftn", _ops.fft_rfftn), _over("irfftn", _ops.fft_irfftn)
hfftn, ihfftn = _over("hfftn", _ops.fft_hfftn), _over("ihfftn", _ops.fft_ihfftn)
fft2, ifft2 = _over_two("fft2", _ops.fft_fftn), _over_two("ifft2", _ops.fft_ifftn)
rfft2, irfft2 = _over_two("rfft2", _ops.fft_rfftn), _over_two("irfft2", _ops.fft_irfftn)
hfft2, ihfft2 = _over_two("hfft2", _ops.fft_hfftn), _over_two("ihfft2", _ops.fft_ihfftn)


@overridable
def fftshift(input: Tensor, dim: int | Sequence[int] | None = None) -> Tensor:
    """Returns a transform with the zero frequency in the middle of `dim`, by default of all dimensions."""
    return _ops.fft_fftshift(input, dim)


@overridable
def ifftshift(input: Tensor, dim: int | Sequence[int] | None = None) -> Tensor:
    """Returns what `fftshift` has moved, moved back."""
    return _ops.fft_ifftshift(input, dim)


@overridable
def fftfreq(
    n: int,
    d: float = 1.0,
    *,
    out: Tensor | None = None,
    dtype: DType | None = None,
    layout: Layout | None = None,
    device: DeviceLike | None = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """Returns the frequency of each element of a transform of n numbers: 0, 1/(n d) and so on, then negative ones.

    Args:
        n: the length of the transform
        d: the distance of the numbers
        out: a tensor for the result
        dtype: of the result, the default one if None
        layout: can only be `plait.strided`
        device: where the result goes
        pin_memory: has no effect: memory is not pinned
        requires_grad: whether the result collects its gradient
    """
    check_layout("fftfreq", layout)
    return store(out, _ops.fft_fftfreq(n, d, dtype=dtype, device=device, requires_grad=requires_grad))


@overridable
def rfftfreq(
    n: int,
    d: float = 1.0,
    *,
    out: Tensor | None = None,
    dtype: DType | None = None,
    layout: Layout | None = None,
    device: DeviceLike | None = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """Returns the frequency of each element of a transform of n real numbers: 0, 1/(n d) and so on.

    Args:
        n: the length of the transform
        d: the distance of the numbers
        out: a tensor for the result
        dtype: of the result, the default one if None
        layout: can only be `plait.strided`
        device: where the result goes
        pin_memory: has no effect: memory is not pinned
        requires_grad: whether the result collects its gradient
    """
    check_layout("rfftfreq", layout)
    return store(out, _ops.fft_rfftfreq(n, d, dtype=dtype, device=device, requires_grad=requires_grad))


_publish(globals())


def __getattr__(name: str) -> Any:
    raise _absent("fft", "plait.fft", name)
