"""Convolution layers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from plait._tensor import Tensor
from plait.nn import functional as F
from plait.nn import init
from plait.nn.modules.linear import new_parameter
from plait.nn.modules.module import Module

if TYPE_CHECKING:
    from plait._device import DeviceLike
    from plait._dtype import dtype as DType

__all__ = ["Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"]

_MODES = ("zeros", "reflect", "replicate", "circular")


def tuple_of(value: Any, n: int) -> tuple[int, ...]:
    """Returns a number for each of n dimensions."""
    return tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else (value,) * n


class _ConvNd(Module):
    """What convolution layers have in common."""

    nd: ClassVar[int]
    transposed: ClassVar[bool] = False
    bias: Any

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: DeviceLike | None = None,
        dtype: DType | None = None,
        output_padding: Any = 0,
    ) -> None:
        super().__init__()
        name, nd = self._get_name(), self.nd
        if groups <= 0 or in_channels % groups or out_channels % groups:
            raise ValueError(
                f"{name}: groups must divide the channels, got {groups} for {in_channels} in and {out_channels} out"
            )
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size, self.stride = tuple_of(kernel_size, nd), tuple_of(stride, nd)
        self.dilation, self.output_padding = tuple_of(dilation, nd), tuple_of(output_padding, nd)
        if padding_mode not in _MODES:
            raise ValueError(f"{name}: padding_mode must be one of {', '.join(_MODES)}, got {padding_mode!r}")
        if isinstance(padding, str):
            if padding not in ("same", "valid"):
                raise ValueError(f"{name}: padding must be numbers, 'same' or 'valid', got {padding!r}")
            if padding == "same" and any(s != 1 for s in self.stride):
                raise ValueError(f"{name}: padding 'same' wants stride 1, got {self.stride}")
            self.padding: Any = padding
        else:
            self.padding = tuple_of(padding, nd)
        self.padding_mode = padding_mode
        lead = (in_channels, out_channels // groups) if self.transposed else (out_channels, in_channels // groups)
        self.weight = new_parameter(*lead, *self.kernel_size, device=device, dtype=dtype)
        self.register_parameter("bias", new_parameter(out_channels, device=device, dtype=dtype) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            fan_in, _ = init._calculate_fan_in_and_fan_out(self.weight)
            if fan_in:
                bound = 1 / math.sqrt(fan_in)
                init.uniform_(self.bias, -bound, bound)

    def _pad_around(self) -> list[int]:
        """Returns what `pad` adds where the padding is not of zeros."""
        around = []
        for i in reversed(range(self.nd)):
            if self.padding == "valid":
                around += [0, 0]
            elif self.padding == "same":
                total = self.dilation[i] * (self.kernel_size[i] - 1)
                around += [total // 2, total - total // 2]
            else:
                around += [self.padding[i]] * 2
        return around

    def extra_repr(self) -> str:
        s = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        if isinstance(self.padding, str) or any(self.padding):
            s += f", padding={self.padding}"
        if any(d != 1 for d in self.dilation):
            s += f", dilation={self.dilation}"
        if any(self.output_padding):
            s += f", output_padding={self.output_padding}"
        if self.groups != 1:
            s += f", groups={self.groups}"
        if self.bias is None:
            s += ", bias=False"
        return s + (f", padding_mode={self.padding_mode}" if self.padding_mode != "zeros" else "")


class _Conv(_ConvNd):
    """What convolutions have in common.

    Args:
        in_channels: the input's
        out_channels: the output's
        kernel_size: of the window, a number or one for each dimension, as for those that follow
        stride: how far the window moves
        padding: elements added on both sides, or "same", or "valid" for none
        dilation: the distance of the window's elements
        groups: how many parts the channels fall into that do not mix
        bias: whether to train one
        padding_mode: zeros, reflect, replicate or circular
        device: of the parameters
        dtype: of the parameters
    """

    _function: ClassVar[Callable[..., Tensor]]

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: DeviceLike | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, padding_mode, device, dtype
        )

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        function = type(self)._function
        if self.padding_mode != "zeros":
            input = F.pad(input, self._pad_around(), self.padding_mode)
            return function(input, weight, bias, self.stride, 0, self.dilation, self.groups)
        return function(input, weight, bias, self.stride, self.padding, self.dilation, self.groups)

    def forward(self, input: Tensor) -> Tensor:
        return self._conv_forward(input, self.weight, self.bias)


class Conv1d(_Conv):
    """Convolves [N, C, L] or [C, L]; the arguments are those of all convolutions."""

    nd = 1
    _function = F.conv1d


class Conv2d(_Conv):
    """Convolves [N, C, H, W] or [C, H, W]; the arguments are those of all convolutions."""

    nd = 2
    _function = F.conv2d


class Conv3d(_Conv):
    """Convolves [N, C, D, H, W] or [C, D, H, W]; the arguments are those of all convolutions."""

    nd = 3
    _function = F.conv3d


class _ConvTranspose(_ConvNd):
    """What transposed convolutions have in common.

    Args:
        in_channels: the input's
        out_channels: the output's
        kernel_size: of the window, a number or one for each dimension, as for those that follow
        stride: how far the window moves
        padding: elements cut off on both sides
        output_padding: elements added on one side of the output
        groups: how many parts the channels fall into that do not mix
        bias: whether to train one
        dilation: the distance of the window's elements
        padding_mode: zeros
        device: of the parameters
        dtype: of the parameters
    """

    transposed = True
    _function: ClassVar[Callable[..., Tensor]]

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Any = 1,
        padding_mode: str = "zeros",
        device: DeviceLike | None = None,
        dtype: DType | None = None,
    ) -> None:
        if padding_mode != "zeros" or isinstance(padding, str):
            raise ValueError(f"{type(self).__name__}: padding must be numbers, and of zeros")
        sizes = (kernel_size, stride, padding, dilation)
        super().__init__(in_channels, out_channels, *sizes, groups, bias, padding_mode, device, dtype, output_padding)

    def _padding_for(self, input: Tensor, output_size: Any) -> tuple[int, ...]:
        """Returns the output padding that gives an output of the wanted size."""
        if output_size is None:
            return self.output_padding
        wanted = list(output_size)
        if len(wanted) > self.nd:
            wanted = wanted[-self.nd :]
        least = [
            (n - 1) * s - 2 * p + d * (k - 1) + 1
            for n, s, p, d, k in zip(
                input.shape[-self.nd :], self.stride, self.padding, self.dilation, self.kernel_size, strict=True
            )
        ]
        most = [n + s - 1 for n, s in zip(least, self.stride, strict=True)]
        if len(wanted) != self.nd or any(not lo <= w <= hi for lo, w, hi in zip(least, wanted, most, strict=True)):
            raise ValueError(f"{self._get_name()}: output_size must lie between {least} and {most}, got {wanted}")
        return tuple(w - lo for w, lo in zip(wanted, least, strict=True))

    def forward(self, input: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        extra = self._padding_for(input, output_size)
        return type(self)._function(
            input, self.weight, self.bias, self.stride, self.padding, extra, self.groups, self.dilation
        )


class ConvTranspose1d(_ConvTranspose):
    """The transpose of `Conv1d`; the arguments are those of all transposed convolutions."""

    nd = 1
    _function = F.conv_transpose1d


class ConvTranspose2d(_ConvTranspose):
    """The transpose of `Conv2d`; the arguments are those of all transposed convolutions."""

    nd = 2
    _function = F.conv_transpose2d


class ConvTranspose3d(_ConvTranspose):
    """The transpose of `Conv3d`; the arguments are those of all transposed convolutions."""

    nd = 3
    _function = F.conv_transpose3d
