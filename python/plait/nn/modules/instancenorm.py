"""Normalisation of the channels of each sample."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plait import _ops
from plait._tensor import Tensor
from plait.nn import functional as F
from plait.nn.modules.batchnorm import _NormBase

if TYPE_CHECKING:
    from plait._device import DeviceLike
    from plait._dtype import dtype as DType

__all__ = ["InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d"]


class _InstanceNorm(_NormBase):
    """What instance norms have in common."""

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: DeviceLike | None = None,
        dtype: DType | None = None,
        bias: bool = True,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias)

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        single = input.ndim == self.dims[0]
        channel = 0 if single else 1
        if self.affine and input.shape[channel] != self.num_features:
            raise ValueError(
                f"{self._get_name()}: want {self.num_features} channels, got input of shape {list(input.shape)}"
            )
        x = _ops.unsqueeze(input, 0) if single else input
        out = F.instance_norm(
            x,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            self.training or not self.track_running_stats,
            0.0 if self.momentum is None else self.momentum,
            self.eps,
        )
        return _ops.squeeze(out, 0) if single else out


class InstanceNorm1d(_InstanceNorm):
    """Brings each channel of each sample of [N, C, L] or [C, L] to mean 0 and variance 1."""

    dims = (2, 3)


class InstanceNorm2d(_InstanceNorm):
    """Brings each channel of each sample of [N, C, H, W] or [C, H, W] to mean 0 and variance 1."""

    dims = (3, 4)


class InstanceNorm3d(_InstanceNorm):
    """Brings each channel of each sample of [N, C, D, H, W] or [C, D, H, W] to mean 0 and variance 1."""

    dims = (4, 5)
