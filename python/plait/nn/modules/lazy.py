"""Lazy modules: the first input decides how many features they have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from plait import _ops
from plait._dtype import int64
from plait._tensor import Tensor
from plait.nn.modules.batchnorm import BatchNorm1d, BatchNorm2d, BatchNorm3d, _NormBase
from plait.nn.modules.conv import (
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
    _ConvNd,
)
from plait.nn.modules.instancenorm import InstanceNorm1d, InstanceNorm2d, InstanceNorm3d
from plait.nn.modules.linear import Linear
from plait.nn.modules.module import Module
from plait.nn.parameter import UninitializedBuffer, UninitializedParameter, is_lazy

if TYPE_CHECKING:
    from plait._device import DeviceLike
    from plait._dtype import dtype as DType

__all__ = [
    "LazyBatchNorm1d",
    "LazyBatchNorm2d",
    "LazyBatchNorm3d",
    "LazyConv1d",
    "LazyConv2d",
    "LazyConv3d",
    "LazyConvTranspose1d",
    "LazyConvTranspose2d",
    "LazyConvTranspose3d",
    "LazyInstanceNorm1d",
    "LazyInstanceNorm2d",
    "LazyInstanceNorm3d",
    "LazyLinear",
    "LazyModuleMixin",
]


class LazyModuleMixin(Module):
    """What lazy modules have in common: they become ordinary ones in their first forward."""

    cls_to_become: ClassVar[type[Module]]

    def _make_lazy(self) -> None:
        self.register_forward_pre_hook(_initialize)

    def has_uninitialized_params(self) -> bool:
        """Whether parameters or buffers have no shape yet."""
        return any(is_lazy(t) for t in [*self._parameters.values(), *self._buffers.values()])

    def initialize_parameters(self, *args: Any) -> None:
        """Gives parameters and buffers the shapes that fit an input, and first values."""
        raise NotImplementedError(f"{type(self).__name__}: initialize_parameters is not overridden")


def _initialize(module: Any, args: tuple[Any, ...]) -> None:
    module.initialize_parameters(*args)
    if module.has_uninitialized_params():
        raise RuntimeError(f"{type(module).__name__}: parameters are still without a shape after the first input")
    hooks = module._forward_pre_hooks
    for key in [k for k, hook in hooks.items() if hook is _initialize]:
        del hooks[key]
    module.__class__ = module.cls_to_become


class LazyLinear(LazyModuleMixin, Linear):
    """A `Linear` whose in_features are those of the first input."""

    cls_to_become = Linear

    def __init__(
        self, out_features: int, bias: bool = True, device: DeviceLike | None = None, dtype: DType | None = None
    ) -> None:
        super().__init__(0, 0, False)
        self.out_features = out_features
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        if bias:
            self.bias = UninitializedParameter(device=device, dtype=dtype)
        self._make_lazy()

    def reset_parameters(self) -> None:
        if not self.has_uninitialized_params() and self.in_features:
            super().reset_parameters()

    def initialize_parameters(self, input: Tensor) -> None:
        self.in_features = input.shape[-1]
        if self.has_uninitialized_params():
            self.weight.materialize((self.out_features, self.in_features))  # type: ignore[attr-defined]
            if self.bias is not None:
                self.bias.materialize((self.out_features,))  # type: ignore[attr-defined]
            self.reset_parameters()


class _LazyConv(LazyModuleMixin, _ConvNd):
    """What lazy convolutions have in common: in_channels are those of the first input."""

    def __init__(
        self,
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
            0, 0, kernel_size, stride, padding, dilation, bias=False, padding_mode=padding_mode, device=device,
            dtype=dtype,
        )  # fmt: skip
        self._wait(out_channels, groups, bias, device, dtype)

    def _wait(self, out_channels: int, groups: int, bias: bool, device: DeviceLike | None, dtype: DType | None) -> None:
        """Makes parameters that get their shapes from the first input."""
        self.groups, self.out_channels = groups, out_channels
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        if bias:
            self.bias = UninitializedParameter(device=device, dtype=dtype)
        self._make_lazy()

    def reset_parameters(self) -> None:
        if not self.has_uninitialized_params() and self.in_channels:
            super().reset_parameters()

    def initialize_parameters(self, input: Tensor, *_: Any) -> None:
        if input.ndim not in (self.nd + 1, self.nd + 2):
            raise RuntimeError(
                f"{type(self).__name__}: want {self.nd + 1} or {self.nd + 2} dimensions, got shape {list(input.shape)}"
            )
        self.in_channels = input.shape[-1 - self.nd]
        if self.in_channels % self.groups or self.out_channels % self.groups:
            raise ValueError(
                f"{type(self).__name__}: groups must divide the channels, "
                f"got {self.groups} for {self.in_channels} in and {self.out_channels} out"
            )
        if self.has_uninitialized_params():
            lead = [self.out_channels, self.in_channels // self.groups]
            if self.transposed:
                lead = [self.in_channels, self.out_channels // self.groups]
            self.weight.materialize((*lead, *self.kernel_size))  # type: ignore[attr-defined]
            if self.bias is not None:
                self.bias.materialize((self.out_channels,))
            self.reset_parameters()


class _LazyConvTranspose(_LazyConv):
    """What lazy transposed convolutions have in common."""

    def __init__(
        self,
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
        super(_LazyConv, self).__init__(  # a transposed convolution's
            0, 0, kernel_size, stride, padding, output_padding, bias=False, dilation=dilation,
            padding_mode=padding_mode, device=device, dtype=dtype,
        )  # type: ignore[misc]  # fmt: skip
        self._wait(out_channels, groups, bias, device, dtype)


class _LazyNorm(LazyModuleMixin, _NormBase):
    """What lazy norms have in common: num_features are the channels of the first input."""

    def __init__(
        self,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: DeviceLike | None = None,
        dtype: DType | None = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(0, eps, momentum, False, False)  # type: ignore[arg-type]
        self.affine, self.track_running_stats = affine, track_running_stats
        where: dict[str, Any] = {"device": device, "dtype": dtype}
        if affine:
            self.weight = UninitializedParameter(**where)
            self.bias = UninitializedParameter(**where) if bias else None
        if track_running_stats:
            self.running_mean, self.running_var = UninitializedBuffer(**where), UninitializedBuffer(**where)
            self.num_batches_tracked = _ops.zeros((), dtype=int64, device=device)
        self._make_lazy()

    def reset_parameters(self) -> None:
        if not self.has_uninitialized_params() and self.num_features:
            super().reset_parameters()

    def initialize_parameters(self, input: Tensor) -> None:
        self.num_features = input.shape[1]
        if self.has_uninitialized_params():
            owned: list[Any] = [self.weight, self.bias, self.running_mean, self.running_var]
            for t in owned:
                if is_lazy(t):
                    t.materialize((self.num_features,))
            self.reset_parameters()


class _LazyInstanceNorm(_LazyNorm):
    """What lazy instance norms have in common."""

    def __init__(
        self,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: DeviceLike | None = None,
        dtype: DType | None = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(eps, momentum, affine, track_running_stats, device, dtype, bias=bias)

    def initialize_parameters(self, input: Tensor) -> None:
        self._check_input_dim(input)
        super().initialize_parameters(input if input.ndim == self.dims[1] else input.unsqueeze(0))


class LazyConv1d(_LazyConv, Conv1d):  # type: ignore[misc]
    """A `Conv1d` whose in_channels are those of the first input."""

    cls_to_become = Conv1d


class LazyConvTranspose1d(_LazyConvTranspose, ConvTranspose1d):  # type: ignore[misc]
    """A `ConvTranspose1d` whose in_channels are those of the first input."""

    cls_to_become = ConvTranspose1d


class LazyBatchNorm1d(_LazyNorm, BatchNorm1d):
    """A `BatchNorm1d` whose num_features are the channels of the first input."""

    cls_to_become = BatchNorm1d


class LazyInstanceNorm1d(_LazyInstanceNorm, InstanceNorm1d):
    """An `InstanceNorm1d` whose num_features are the channels of the first input."""

    cls_to_become = InstanceNorm1d


class LazyConv2d(_LazyConv, Conv2d):  # type: ignore[misc]
    """A `Conv2d` whose in_channels are those of the first input."""

    cls_to_become = Conv2d


class LazyConvTranspose2d(_LazyConvTranspose, ConvTranspose2d):  # type: ignore[misc]
    """A `ConvTranspose2d` whose in_channels are those of the first input."""

    cls_to_become = ConvTranspose2d


class LazyBatchNorm2d(_LazyNorm, BatchNorm2d):
    """A `BatchNorm2d` whose num_features are the channels of the first input."""

    cls_to_become = BatchNorm2d


class LazyInstanceNorm2d(_LazyInstanceNorm, InstanceNorm2d):
    """An `InstanceNorm2d` whose num_features are the channels of the first input."""

    cls_to_become = InstanceNorm2d


class LazyConv3d(_LazyConv, Conv3d):  # type: ignore[misc]
    """A `Conv3d` whose in_channels are those of the first input."""

    cls_to_become = Conv3d


class LazyConvTranspose3d(_LazyConvTranspose, ConvTranspose3d):  # type: ignore[misc]
    """A `ConvTranspose3d` whose in_channels are those of the first input."""

    cls_to_become = ConvTranspose3d


class LazyBatchNorm3d(_LazyNorm, BatchNorm3d):
    """A `BatchNorm3d` whose num_features are the channels of the first input."""

    cls_to_become = BatchNorm3d


class LazyInstanceNorm3d(_LazyInstanceNorm, InstanceNorm3d):
    """An `InstanceNorm3d` whose num_features are the channels of the first input."""

    cls_to_become = InstanceNorm3d
