"""Pooling: maxima, means and norms of windows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from plait import _ops
from plait._functions._checked import checked

if TYPE_CHECKING:
    from plait._tensor import Tensor

__all__ = [
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
    "adaptive_max_pool1d",
    "adaptive_max_pool1d_with_indices",
    "adaptive_max_pool2d",
    "adaptive_max_pool2d_with_indices",
    "adaptive_max_pool3d",
    "adaptive_max_pool3d_with_indices",
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
    "lp_pool1d",
    "lp_pool2d",
    "lp_pool3d",
    "max_pool1d",
    "max_pool1d_with_indices",
    "max_pool2d",
    "max_pool2d_with_indices",
    "max_pool3d",
    "max_pool3d_with_indices",
    "max_unpool1d",
    "max_unpool2d",
    "max_unpool3d",
]

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


def _pooling(nd: int, plane: str) -> list[Any]:
    """Returns the functions for nd dimensions, in the order of their names below; plane is a tensor's shape."""
    plain, indexed = getattr(_ops, f"max_pool{nd}d"), getattr(_ops, f"max_pool{nd}d_with_indices")
    adaptive, adaptive_indexed = (getattr(_ops, f"adaptive_max_pool{nd}d{end}") for end in ("", "_with_indices"))
    unpool, mean = getattr(_ops, f"max_unpool{nd}d"), getattr(_ops, f"adaptive_avg_pool{nd}d")

    def max_pool(
        input: Tensor,
        kernel_size: Ints,
        stride: Ints | None = None,
        padding: Ints = 0,
        dilation: Ints = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Any:
        function = indexed if return_indices else plain
        return function(input, kernel_size, _stride(stride), padding, dilation, ceil_mode)

    def max_pool_with_indices(
        input: Tensor,
        kernel_size: Ints,
        stride: Ints | None = None,
        padding: Ints = 0,
        dilation: Ints = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> tuple[Tensor, Tensor]:
        return indexed(input, kernel_size, _stride(stride), padding, dilation, ceil_mode)

    def max_unpool(
        input: Tensor,
        indices: Tensor,
        kernel_size: Ints,
        stride: Ints | None = None,
        padding: Ints = 0,
        output_size: Sequence[int] | None = None,
    ) -> Tensor:
        return unpool(input, indices, kernel_size, _stride(stride), padding, _spatial(output_size, nd))

    def adaptive_max_pool(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
        return (adaptive_indexed if return_indices else adaptive)(input, _sizes(input, output_size, nd))

    def adaptive_max_pool_with_indices(
        input: Tensor, output_size: Any, return_indices: bool = False
    ) -> tuple[Tensor, Tensor]:
        return adaptive_indexed(input, _sizes(input, output_size, nd))

    def adaptive_avg_pool(input: Tensor, output_size: Any) -> Tensor:
        return mean(input, _sizes(input, output_size, nd))

    windows = "as many windows as output_size says"
    docs: dict[Callable[..., Any], str] = {
        max_pool: f"the maxima of windows of {plane}; with return_indices their positions too",
        max_pool_with_indices: f"the maxima of windows of {plane}, and their positions in their planes",
        max_unpool: f"zeros with the input's elements at the positions that `max_pool{nd}d` returned",
        adaptive_max_pool: f"the maxima of {windows}; with return_indices their positions too",
        adaptive_max_pool_with_indices: f"the maxima of {windows}, and their positions in their planes",
        adaptive_avg_pool: f"the means of {windows}",
    }
    for function, doc in docs.items():
        function.__name__ = function.__qualname__ = function.__name__.replace("pool", f"pool{nd}d")
        function.__doc__ = f"Returns {doc}."
    return [checked(function) for function in docs]


(
    max_pool1d,
    max_pool1d_with_indices,
    max_unpool1d,
    adaptive_max_pool1d,
    adaptive_max_pool1d_with_indices,
    adaptive_avg_pool1d,
) = _pooling(1, "[N, C, L] or [C, L]")
(
    max_pool2d,
    max_pool2d_with_indices,
    max_unpool2d,
    adaptive_max_pool2d,
    adaptive_max_pool2d_with_indices,
    adaptive_avg_pool2d,
) = _pooling(2, "[N, C, H, W] or [C, H, W]")
(
    max_pool3d,
    max_pool3d_with_indices,
    max_unpool3d,
    adaptive_max_pool3d,
    adaptive_max_pool3d_with_indices,
    adaptive_avg_pool3d,
) = _pooling(3, "[N, C, D, H, W] or [C, D, H, W]")


@checked
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


def _avg_pool(name: str, plane: str) -> Any:
    make = getattr(_ops, name)

    def function(
        input: Tensor,
        kernel_size: Ints,
        stride: Ints | None = None,
        padding: Ints = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Tensor:
        if divisor_override == 0:
            raise ValueError(f"{name}: divisor_override must not be 0")
        return make(
            input, kernel_size, _stride(stride), padding, ceil_mode, not count_include_pad, divisor_override or 0
        )

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""Returns the means of windows of {plane}.

    Padding counts if count_include_pad; divisor_override is what sums are divided by instead of the windows' sizes.
    """
    return checked(function)


avg_pool2d = _avg_pool("avg_pool2d", "[N, C, H, W] or [C, H, W]")
avg_pool3d = _avg_pool("avg_pool3d", "[N, C, D, H, W] or [C, D, H, W]")
