"""Convolutions, and images as columns of patches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from plait import _ops
from plait._functions._checked import checked

if TYPE_CHECKING:
    from plait._tensor import Tensor

__all__ = ["conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "fold", "unfold"]

conv_transpose1d, conv_transpose2d = _ops.conv_transpose1d, _ops.conv_transpose2d
conv_transpose3d = _ops.conv_transpose3d


def _conv(
    function: Callable[..., Tensor],
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: int | Sequence[int],
    padding: int | str | Sequence[int],
    dilation: int | Sequence[int],
    groups: int,
) -> Tensor:
    if not isinstance(padding, str):
        return function(input, weight, bias, stride, padding, dilation, groups)
    if padding not in ("same", "valid"):
        raise ValueError(f"{function.__name__}: padding must be numbers, 'same' or 'valid', got {padding!r}")
    return function(input, weight, bias, stride, (), dilation, groups, padding == "same")


@checked
def conv1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | str | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Tensor:
    """Returns the cross-correlation of [N, C, L] or [C, L] with a weight [O, C / groups, K], plus bias."""
    return _conv(_ops.conv1d, input, weight, bias, stride, padding, dilation, groups)


@checked
def conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | str | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Tensor:
    """Returns the cross-correlation of [N, C, H, W] or [C, H, W] with a weight [O, C / groups, KH, KW], plus bias."""
    return _conv(_ops.conv2d, input, weight, bias, stride, padding, dilation, groups)


@checked
def conv3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | str | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Tensor:
    """Returns the cross-correlation of [N, C, D, H, W] with a weight [O, C / groups, KD, KH, KW], plus bias."""
    return _conv(_ops.conv3d, input, weight, bias, stride, padding, dilation, groups)


@checked
def unfold(
    input: Tensor,
    kernel_size: int | Sequence[int],
    dilation: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    stride: int | Sequence[int] = 1,
) -> Tensor:
    """Returns the patches of images as columns: [N, C, H, W] to [N, C * KH * KW, L]."""
    if input.ndim == 3:
        return _ops.squeeze(unfold(_ops.unsqueeze(input, 0), kernel_size, dilation, padding, stride), 0)
    return _ops.im2col(input, kernel_size, dilation, padding, stride)


@checked
def fold(
    input: Tensor,
    output_size: int | Sequence[int],
    kernel_size: int | Sequence[int],
    dilation: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    stride: int | Sequence[int] = 1,
) -> Tensor:
    """Returns images as the sum of patches given as columns: [N, C * KH * KW, L] to [N, C, H, W]."""
    if input.ndim == 2:
        one = _ops.unsqueeze(input, 0)
        return _ops.squeeze(fold(one, output_size, kernel_size, dilation, padding, stride), 0)
    return _ops.col2im(input, output_size, kernel_size, dilation, padding, stride)
