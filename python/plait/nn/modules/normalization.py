"""Normalisation of the features, or of groups of channels, of each sample."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from plait import _ops
from plait._tensor import Tensor
from plait.nn import init
from plait.nn.modules.linear import new_parameter
from plait.nn.modules.module import Module

if TYPE_CHECKING:
    from plait._device import DeviceLike
    from plait._dtype import dtype as DType

__all__ = ["CrossMapLRN2d", "GroupNorm", "LayerNorm", "LocalResponseNorm", "RMSNorm"]


class LayerNorm(Module):
    """Brings the last dimensions to mean 0 and variance 1, then scales and shifts.

    Args:
        normalized_shape: the shape of the last dimensions, or the size of the last
        eps: added to the variance
        elementwise_affine: train factors and summands
        bias: train summands
        device: of the parameters
        dtype: of the parameters
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: DeviceLike | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.eps, self.elementwise_affine = eps, elementwise_affine
        for name, there in (("weight", elementwise_affine), ("bias", elementwise_affine and bias)):
            p = new_parameter(*self.normalized_shape, device=device, dtype=dtype) if there else None
            self.register_parameter(name, p)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        return _ops.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}, "
            f"bias={self.bias is not None}"
        )


class RMSNorm(Module):
    """Divides by the root of the mean square of the last dimensions, then scales.

    Args:
        normalized_shape: the shape of the last dimensions, or the size of the last
        eps: added to the mean square; by default the machine epsilon of the dtype, or of float32 for shorter ones
        elementwise_affine: train factors
        device: of the parameters
        dtype: of the parameters
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: DeviceLike | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.eps, self.elementwise_affine = eps, elementwise_affine
        p = new_parameter(*self.normalized_shape, device=device, dtype=dtype) if elementwise_affine else None
        self.register_parameter("weight", p)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        if self.weight is not None:
            init.ones_(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        return _ops.rms_norm(x, self.normalized_shape, self.weight, eps=math.nan if self.eps is None else self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class GroupNorm(Module):
    """Brings groups of the channels of each sample of [N, C, ...] to mean 0 and variance 1, then scales and shifts.

    Args:
        num_groups: a divisor of num_channels
        num_channels: C
        eps: added to the variance
        affine: train factors and summands, one per channel
        device: of the parameters
        dtype: of the parameters
        bias: train summands
    """

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: DeviceLike | None = None,
        dtype: DType | None = None,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if num_channels % num_groups:
            raise ValueError(f"GroupNorm: {num_channels} channels cannot be divided into {num_groups} groups")
        self.num_groups, self.num_channels, self.eps, self.affine = num_groups, num_channels, eps, affine
        for name, there in (("weight", affine), ("bias", affine and bias)):
            p = new_parameter(num_channels, device=device, dtype=dtype) if there else None
            self.register_parameter(name, p)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        return _ops.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}, "
            f"bias={self.bias is not None}"
        )


class LocalResponseNorm(Module):
    """Divides by a power of the mean square over neighbouring channels (Krizhevsky et al., 2012).

    Args:
        size: how many channels
        alpha: factor of the mean square
        beta: the power
        k: added to it
    """

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        super().__init__()
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def forward(self, input: Tensor) -> Tensor:
        return _ops.local_response_norm(input, self.size, self.alpha, self.beta, float(self.k))

    def extra_repr(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"


class CrossMapLRN2d(LocalResponseNorm):
    """Does what `LocalResponseNorm` does, for [N, C, H, W].

    PyTorch's running sum keeps the first channel in the sums of later ones; here each sum is over its own channels.
    """

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1) -> None:
        super().__init__(size, alpha, beta, k)
