"""Pooling layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from plait._tensor import Tensor
from plait.nn import functional as F
from plait.nn.modules.conv import tuple_of
from plait.nn.modules.module import Module

__all__ = [
    "AdaptiveAvgPool1d",
    "AdaptiveAvgPool2d",
    "AdaptiveAvgPool3d",
    "AdaptiveMaxPool1d",
    "AdaptiveMaxPool2d",
    "AdaptiveMaxPool3d",
    "AvgPool1d",
    "AvgPool2d",
    "AvgPool3d",
    "FractionalMaxPool2d",
    "FractionalMaxPool3d",
    "LPPool1d",
    "LPPool2d",
    "LPPool3d",
    "MaxPool1d",
    "MaxPool2d",
    "MaxPool3d",
    "MaxUnpool1d",
    "MaxUnpool2d",
    "MaxUnpool3d",
]


class _MaxPool(Module):
    """What maximum pools have in common.

    Args:
        kernel_size: of the window, a number or one for each dimension, as for those that follow
        stride: how far the window moves; the kernel's size by default
        padding: elements of minus infinity on both sides
        dilation: the distance of the window's elements
        return_indices: also return the positions of the maxima
        ceil_mode: let the last window reach beyond the end
    """

    _function: ClassVar[Callable[..., Any]]

    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        self.kernel_size, self.stride = kernel_size, kernel_size if stride is None else stride
        self.padding, self.dilation = padding, dilation
        self.return_indices, self.ceil_mode = return_indices, ceil_mode

    def forward(self, input: Tensor) -> Any:
        return type(self)._function(
            input, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode, self.return_indices
        )

    def extra_repr(self) -> str:
        return (
            f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, "
            f"dilation={self.dilation}, ceil_mode={self.ceil_mode}"
        )


class _MaxUnpool(Module):
    """What the inverses of maximum pools have in common."""

    nd: ClassVar[int]
    _function: ClassVar[Callable[..., Tensor]]

    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0) -> None:
        super().__init__()
        self.kernel_size = tuple_of(kernel_size, self.nd)
        self.stride = tuple_of(kernel_size if stride is None else stride, self.nd)
        self.padding = tuple_of(padding, self.nd)

    def forward(self, input: Tensor, indices: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        return type(self)._function(input, indices, self.kernel_size, self.stride, self.padding, output_size)

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class _AvgPool(Module):
    """What mean pools have in common.

    Args:
        kernel_size: of the window, a number or one for each dimension, as for those that follow
        stride: how far the window moves; the kernel's size by default
        padding: zeros on both sides
        ceil_mode: let the last window reach beyond the end
        count_include_pad: whether padding counts
        divisor_override: divide by this, not by the number of elements
    """

    _function: ClassVar[Callable[..., Tensor]]

    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        super().__init__()
        self.kernel_size, self.stride = kernel_size, kernel_size if stride is None else stride
        self.padding, self.ceil_mode = padding, ceil_mode
        self.count_include_pad, self.divisor_override = count_include_pad, divisor_override

    def forward(self, input: Tensor) -> Tensor:
        return type(self)._function(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.ceil_mode,
            self.count_include_pad,
            self.divisor_override,
        )

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class _AdaptivePool(Module):
    """What pools to a given size have in common."""

    _function: ClassVar[Callable[..., Any]]

    def __init__(self, output_size: Any) -> None:
        super().__init__()
        self.output_size = output_size

    def forward(self, input: Tensor) -> Any:
        return type(self)._function(input, self.output_size)

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class _AdaptiveMaxPool(_AdaptivePool):
    """What maximum pools to a given size have in common."""

    def __init__(self, output_size: Any, return_indices: bool = False) -> None:
        super().__init__(output_size)
        self.return_indices = return_indices

    def forward(self, input: Tensor) -> Any:
        return type(self)._function(input, self.output_size, self.return_indices)


class _LPPool(Module):
    """What pools by norms have in common."""

    _function: ClassVar[Callable[..., Tensor]]

    def __init__(self, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False) -> None:
        super().__init__()
        self.norm_type, self.kernel_size, self.stride, self.ceil_mode = norm_type, kernel_size, stride, ceil_mode

    def forward(self, input: Tensor) -> Tensor:
        return type(self)._function(input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)

    def extra_repr(self) -> str:
        return (
            f"norm_type={self.norm_type}, kernel_size={self.kernel_size}, stride={self.stride}, "
            f"ceil_mode={self.ceil_mode}"
        )


class MaxPool1d(_MaxPool):
    """The maxima of windows of [N, C, L] or [C, L]."""

    _function = F.max_pool1d


class MaxUnpool1d(_MaxUnpool):
    """Zeros with elements at the positions that `MaxPool1d` returned."""

    nd = 1
    _function = F.max_unpool1d


class AvgPool1d(_AvgPool):
    """The means of windows of [N, C, L] or [C, L]."""

    _function = F.avg_pool1d

    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        super().__init__(kernel_size, stride, padding, ceil_mode, count_include_pad)
        self.kernel_size, self.stride = tuple_of(self.kernel_size, 1), tuple_of(self.stride, 1)
        self.padding = tuple_of(self.padding, 1)

    def forward(self, input: Tensor) -> Tensor:
        return F.avg_pool1d(input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad)


class AdaptiveMaxPool1d(_AdaptiveMaxPool):
    """The maxima of as many windows as output_size says."""

    _function = F.adaptive_max_pool1d


class AdaptiveAvgPool1d(_AdaptivePool):
    """The means of as many windows as output_size says."""

    _function = F.adaptive_avg_pool1d


class LPPool1d(_LPPool):
    """The p-norms of windows of [N, C, L] or [C, L]."""

    _function = F.lp_pool1d


class MaxPool2d(_MaxPool):
    """The maxima of windows of [N, C, H, W] or [C, H, W]."""

    _function = F.max_pool2d


class MaxUnpool2d(_MaxUnpool):
    """Zeros with elements at the positions that `MaxPool2d` returned."""

    nd = 2
    _function = F.max_unpool2d


class AvgPool2d(_AvgPool):
    """The means of windows of [N, C, H, W] or [C, H, W]."""

    _function = F.avg_pool2d


class AdaptiveMaxPool2d(_AdaptiveMaxPool):
    """The maxima of as many windows as output_size says."""

    _function = F.adaptive_max_pool2d


class AdaptiveAvgPool2d(_AdaptivePool):
    """The means of as many windows as output_size says."""

    _function = F.adaptive_avg_pool2d


class LPPool2d(_LPPool):
    """The p-norms of windows of [N, C, H, W] or [C, H, W]."""

    _function = F.lp_pool2d


class MaxPool3d(_MaxPool):
    """The maxima of windows of [N, C, D, H, W] or [C, D, H, W]."""

    _function = F.max_pool3d


class MaxUnpool3d(_MaxUnpool):
    """Zeros with elements at the positions that `MaxPool3d` returned."""

    nd = 3
    _function = F.max_unpool3d


class AvgPool3d(_AvgPool):
    """The means of windows of [N, C, D, H, W] or [C, D, H, W]."""

    _function = F.avg_pool3d


class AdaptiveMaxPool3d(_AdaptiveMaxPool):
    """The maxima of as many windows as output_size says."""

    _function = F.adaptive_max_pool3d


class AdaptiveAvgPool3d(_AdaptivePool):
    """The means of as many windows as output_size says."""

    _function = F.adaptive_avg_pool3d


class LPPool3d(_LPPool):
    """The p-norms of windows of [N, C, D, H, W] or [C, D, H, W]."""

    _function = F.lp_pool3d


class _FractionalMaxPool(Module):
    """What maximum pools at random distances have in common.

    Args:
        kernel_size: of the windows
        output_size: of the result
        output_ratio: or its share of the input's size
        return_indices: also return the positions of the maxima
    """

    nd: ClassVar[int]
    _function: ClassVar[Callable[..., Any]]

    def __init__(
        self,
        kernel_size: Any,
        output_size: Any = None,
        output_ratio: Any = None,
        return_indices: bool = False,
        _random_samples: Tensor | None = None,
    ) -> None:
        super().__init__()
        if (output_size is None) == (output_ratio is None):
            raise ValueError(
                f"{self._get_name()}: give either output_size or output_ratio, got {output_size} and {output_ratio}"
            )
        self.kernel_size = tuple_of(kernel_size, self.nd)
        self.output_size = None if output_size is None else tuple_of(output_size, self.nd)
        self.output_ratio = None if output_ratio is None else tuple_of(output_ratio, self.nd)
        if self.output_ratio is not None and not all(0 < r < 1 for r in self.output_ratio):
            raise ValueError(f"{self._get_name()}: output_ratio must lie between 0 and 1, got {output_ratio}")
        self.return_indices = return_indices
        self.register_buffer("_random_samples", _random_samples)

    def forward(self, input: Tensor) -> Any:
        return type(self)._function(
            input, self.kernel_size, self.output_size, self.output_ratio, self.return_indices, self._random_samples
        )


class FractionalMaxPool2d(_FractionalMaxPool):
    """The maxima of windows of [N, C, H, W] or [C, H, W] at random distances (Graham, 2014)."""

    nd = 2
    _function = F.fractional_max_pool2d


class FractionalMaxPool3d(_FractionalMaxPool):
    """The maxima of windows of [N, C, D, H, W] or [C, D, H, W] at random distances (Graham, 2014)."""

    nd = 3
    _function = F.fractional_max_pool3d
