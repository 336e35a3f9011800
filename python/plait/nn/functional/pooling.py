"""Pooling: maxima, means and norms of windows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from plait import _ops

if TYPE_CHECKING:
    from plait._tensor import Tensor

Ints: TypeAlias = int | Sequence[int]

lp_pool1d, lp_pool2d, lp_pool3d = _ops.lp_pool1d, _ops.lp_pool2d, _ops.lp_pool3d


def _stride(stride: Any) -> Any:
    # PyTorch takes an empty list for the kernel's size.
    return None if isinstance(stride, list | tuple) and not stride else stride


def _sizes(input: Tensor, output_size: Any, nd: int) -> list[int]:
    """Returns the sizes of an adaptive pool's result; None keeps the input's."""
    sizes = list(output_size) if isinstance(output_size, list | tuple) else [output_size] * nd
    if len(sizes) != nd:
        raise ValueError(f"adaptive_pool: output_size must have {nd} entries, got {output_size!r}")
    return [-1 if n is None else n for n in sizes]


def _spatial(output_size: Any, nd: int) -> Any:
    """Returns the spatial part of a size that may have batch and channels in front."""
    return None if output_size is None else [int(n) for n in tuple(output_size)[-nd:]]


def max_pool1d(
    input: Tensor,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    dilation: Ints = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """Returns the maxima of windows of [N, C, L] or [C, L]; with return_indices their positions too."""
    function = _ops.max_pool1d_with_indices if return_indices else _ops.max_pool1d
    return function(input, kernel_size, _stride(stride), padding, dilation, ceil_mode)


def max_pool1d_with_indices(
    input: Tensor,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    dilation: Ints = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> tuple[Tensor, Tensor]:
    """Returns the maxima of windows of [N, C, L] or [C, L], and their positions in their planes."""
    return _ops.max_pool1d_with_indices(input, kernel_size, _stride(stride), padding, dilation, ceil_mode)


def max_unpool1d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """Returns zeros with the input's elements at the positions that `max_pool1d` returned."""
    return _ops.max_unpool1d(input, indices, kernel_size, _stride(stride), padding, _spatial(output_size, 1))


def adaptive_max_pool1d(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """Returns the maxima of as many windows as output_size says; with return_indices their positions too."""
    function = _ops.adaptive_max_pool1d_with_indices if return_indices else _ops.adaptive_max_pool1d
    return function(input, _sizes(input, output_size, 1))


def adaptive_max_pool1d_with_indices(
    input: Tensor, output_size: Any, return_indices: bool = False
) -> tuple[Tensor, Tensor]:
    """Returns the maxima of as many windows as output_size says, and their positions in their planes."""
    return _ops.adaptive_max_pool1d_with_indices(input, _sizes(input, output_size, 1))


def adaptive_avg_pool1d(input: Tensor, output_size: Any) -> Tensor:
    """Returns the means of as many windows as output_size says."""
    return _ops.adaptive_avg_pool1d(input, _sizes(input, output_size, 1))


def avg_pool1d(
    input: Tensor,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """Returns the means of windows of [N, C, L] or [C, L]; padding counts if count_include_pad."""
    return _ops.avg_pool1d(input, kernel_size, _stride(stride), padding, ceil_mode, not count_include_pad)


def max_pool2d(
    input: Tensor,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    dilation: Ints = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """Returns the maxima of windows of [N, C, H, W] or [C, H, W]; with return_indices their positions too."""
    function = _ops.max_pool2d_with_indices if return_indices else _ops.max_pool2d
    return function(input, kernel_size, _stride(stride), padding, dilation, ceil_mode)


def max_pool2d_with_indices(
    input: Tensor,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    dilation: Ints = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> tuple[Tensor, Tensor]:
    """Returns the maxima of windows of [N, C, H, W] or [C, H, W], and their positions in their planes."""
    return _ops.max_pool2d_with_indices(input, kernel_size, _stride(stride), padding, dilation, ceil_mode)


def max_unpool2d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """Returns zeros with the input's elements at the positions that `max_pool2d` returned."""
    return _ops.max_unpool2d(input, indices, kernel_size, _stride(stride), padding, _spatial(output_size, 2))


def adaptive_max_pool2d(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """Returns the maxima of as many windows as output_size says; with return_indices their positions too."""
    function = _ops.adaptive_max_pool2d_with_indices if return_indices else _ops.adaptive_max_pool2d
    return function(input, _sizes(input, output_size, 2))


def adaptive_max_pool2d_with_indices(
    input: Tensor, output_size: Any, return_indices: bool = False
) -> tuple[Tensor, Tensor]:
    """Returns the maxima of as many windows as output_size says, and their positions in their planes."""
    return _ops.adaptive_max_pool2d_with_indices(input, _sizes(input, output_size, 2))


def adaptive_avg_pool2d(input: Tensor, output_size: Any) -> Tensor:
    """Returns the means of as many windows as output_size says."""
    return _ops.adaptive_avg_pool2d(input, _sizes(input, output_size, 2))


def avg_pool2d(
    input: Tensor,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """Returns the means of windows of [N, C, H, W] or [C, H, W]; padding counts if count_include_pad."""
    if divisor_override is not None and divisor_override <= 0:
        raise ValueError(f"avg_pool2d: divisor_override must be positive, got {divisor_override}")
    return _ops.avg_pool2d(
        input, kernel_size, _stride(stride), padding, ceil_mode, not count_include_pad, divisor_override or 0
    )


def max_pool3d(
    input: Tensor,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    dilation: Ints = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """Returns the maxima of windows of [N, C, D, H, W] or [C, D, H, W]; with return_indices their positions too."""
    function = _ops.max_pool3d_with_indices if return_indices else _ops.max_pool3d
    return function(input, kernel_size, _stride(stride), padding, dilation, ceil_mode)


def max_pool3d_with_indices(
    input: Tensor,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    dilation: Ints = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> tuple[Tensor, Tensor]:
    """Returns the maxima of windows of [N, C, D, H, W] or [C, D, H, W], and their positions in their planes."""
    return _ops.max_pool3d_with_indices(input, kernel_size, _stride(stride), padding, dilation, ceil_mode)


def max_unpool3d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """Returns zeros with the input's elements at the positions that `max_pool3d` returned."""
    return _ops.max_unpool3d(input, indices, kernel_size, _stride(stride), padding, _spatial(output_size, 3))


def adaptive_max_pool3d(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """Returns the maxima of as many windows as output_size says; with return_indices their positions too."""
    function = _ops.adaptive_max_pool3d_with_indices if return_indices else _ops.adaptive_max_pool3d
    return function(input, _sizes(input, output_size, 3))


def adaptive_max_pool3d_with_indices(
    input: Tensor, output_size: Any, return_indices: bool = False
) -> tuple[Tensor, Tensor]:
    """Returns the maxima of as many windows as output_size says, and their positions in their planes."""
    return _ops.adaptive_max_pool3d_with_indices(input, _sizes(input, output_size, 3))


def adaptive_avg_pool3d(input: Tensor, output_size: Any) -> Tensor:
    """Returns the means of as many windows as output_size says."""
    return _ops.adaptive_avg_pool3d(input, _sizes(input, output_size, 3))


def avg_pool3d(
    input: Tensor,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """Returns the means of windows of [N, C, D, H, W] or [C, D, H, W]; padding counts if count_include_pad."""
    if divisor_override is not None and divisor_override <= 0:
        raise ValueError(f"avg_pool3d: divisor_override must be positive, got {divisor_override}")
    return _ops.avg_pool3d(
        input, kernel_size, _stride(stride), padding, ceil_mode, not count_include_pad, divisor_override or 0
    )
