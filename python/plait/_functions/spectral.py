"""Short-time Fourier transforms: the spectra of signals over time."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from plait import _ops
from plait._functions._checked import checked

if TYPE_CHECKING:
    from plait._tensor import Tensor

__all__ = ["istft", "stft"]


@checked
def stft(
    input: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    pad_mode: str = "reflect",
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
    align_to_window: bool | None = None,
) -> Tensor:
    """Returns the transforms of frames of signals, [F, T] or [B, F, T], of F frequencies at T times.

    Args:
        input: signals, [L] or [B, L]
        n_fft: the number of elements of a frame
        hop_length: the distance of frames, by default n_fft // 4
        win_length: the length of the window, which is in the middle of a frame, by default n_fft
        window: the weights of a frame's elements, [win_length], by default ones
        center: frame t is around element t * hop_length, and the signal is padded at both ends
        pad_mode: how: a mode of `pad`
        normalized: divide by the square root of n_fft
        onesided: only frequencies 0 to n_fft // 2: by default where signal and window are real
        return_complex: must be True for real signals, or False for real and imaginary parts in a last dimension of
            size 2
        align_to_window: without `center`, begin and end with the window of the first and the last frame, whose other
            elements are padded

    Raises:
        ValueError: if a frame is longer than the signal, or return_complex is missing
    """
    if align_to_window is not None and center:
        raise ValueError("stft: align_to_window says how frames lie without center, got both")
    if return_complex is None:
        return_complex = input.is_complex() or (window is not None and window.is_complex())
        if not return_complex:
            raise ValueError(
                "stft: return_complex is missing, want True for complex numbers, or False for their parts in a last "
                "dimension"
            )
    elif not return_complex:
        warnings.warn("stft: real and imaginary parts in a last dimension are deprecated", stacklevel=3)
    if align_to_window:
        around = n_fft - (n_fft if win_length is None else win_length)
        input = _ops.pad(input, [around // 2, around - around // 2])
    out = _ops.stft(input, n_fft, window, hop_length, win_length, center, pad_mode, normalized, onesided)
    return out if return_complex else _ops.view_as_real(out)


@checked
def istft(
    input: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: int | None = None,
    return_complex: bool = False,
) -> Tensor:
    """Returns the signals, [L] or [B, L], of which the input is the `stft`.

    Where frames overlap, they are weighted by their windows.

    Args:
        input: transforms, [F, T] or [B, F, T]
        n_fft: the number of elements of a frame
        hop_length: the distance of frames, by default n_fft // 4
        win_length: the length of the window, which is in the middle of a frame, by default n_fft
        window: the weights of a frame's elements that `stft` was given, [win_length], by default ones
        center: frame t is around element t * hop_length: the padding is cut off
        normalized: multiply by the square root of n_fft
        onesided: only frequencies 0 to n_fft // 2 are given: by default where there are not n_fft
        length: the length of the signals, by default what the frames have
        return_complex: the signals are complex

    Raises:
        ValueError: if the squares of the windows add up to 0 at some places
    """
    return _ops.istft(
        input, n_fft, window, hop_length, win_length, center, normalized, onesided, length, return_complex
    )
