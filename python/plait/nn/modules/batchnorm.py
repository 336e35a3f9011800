"""Normalisation of channels over the batch, with running statistics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from plait import _ops
from plait._dtype import int64
from plait._tensor import Tensor
from plait.nn import functional as F
from plait.nn import init
from plait.nn.modules.linear import new_parameter
from plait.nn.modules.module import Module

if TYPE_CHECKING:
    from plait._device import DeviceLike
    from plait._dtype import dtype as DType

__all__ = ["BatchNorm1d", "BatchNorm2d", "BatchNorm3d"]


class _NormBase(Module):
    """What these layers have in common: factors and summands, and running statistics."""

    dims: ClassVar[tuple[int, ...]]
    _version = 2
    running_mean: Tensor | None
    running_var: Tensor | None
    num_batches_tracked: Tensor | None
    weight: Any
    bias: Any

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: DeviceLike | None = None,
        dtype: DType | None = None,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.affine, self.track_running_stats = affine, track_running_stats
        for name, there in (("weight", affine), ("bias", affine and bias)):
            p = new_parameter(num_features, device=device, dtype=dtype) if there else None
            self.register_parameter(name, p)
        tracked = track_running_stats
        self.register_buffer("running_mean", _ops.zeros(num_features, device=device, dtype=dtype) if tracked else None)
        self.register_buffer("running_var", _ops.ones(num_features, device=device, dtype=dtype) if tracked else None)
        self.register_buffer("num_batches_tracked", _ops.zeros((), dtype=int64, device=device) if tracked else None)
        self.reset_parameters()

    def reset_running_stats(self) -> None:
        """Forgets the running statistics."""
        if self.running_mean is not None and self.running_var is not None and self.num_batches_tracked is not None:
            init.zeros_(self.running_mean)
            init.ones_(self.running_var)
            init.zeros_(self.num_batches_tracked)

    def reset_parameters(self) -> None:
        self.reset_running_stats()
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def _check_input_dim(self, input: Tensor) -> None:
        if input.ndim not in self.dims:
            wanted = " or ".join(map(str, self.dims))
            raise ValueError(f"{self._get_name()}: want {wanted} dimensions, got shape {list(input.shape)}")

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        # States from before PyTorch 0.4.1 lack the number of batches.
        key = prefix + "num_batches_tracked"
        if self.num_batches_tracked is not None and key not in state_dict and prefix + "running_mean" in state_dict:
            state_dict[key] = self.num_batches_tracked
        super()._load_from_state_dict(state_dict, prefix, *args)

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"bias={self.bias is not None}, track_running_stats={self.track_running_stats}"
        )


class _BatchNorm(_NormBase):
    """What batch norms have in common.

    Args:
        num_features: the number of channels
        eps: added to the variance
        momentum: how far running statistics move with each batch; None averages over all batches
        affine: train factors and summands
        track_running_stats: keep running statistics, and normalise by them in evaluation
        device: of the parameters
        dtype: of the parameters
        bias: train summands
    """

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        momentum = 0.0 if self.momentum is None else self.momentum
        if self.training and self.track_running_stats and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:
                momentum = 1.0 / float(self.num_batches_tracked)
        batch = self.training or (self.running_mean is None and self.running_var is None)
        keep = not self.training or self.track_running_stats
        mean, var = (self.running_mean, self.running_var) if keep else (None, None)
        return F.batch_norm(input, mean, var, self.weight, self.bias, batch, momentum, self.eps)


class BatchNorm1d(_BatchNorm):
    """Brings the channels of [N, C] or [N, C, L] to mean 0 and variance 1, then scales and shifts."""

    dims = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Brings the channels of [N, C, H, W] to mean 0 and variance 1, then scales and shifts."""

    dims = (4,)


class BatchNorm3d(_BatchNorm):
    """Brings the channels of [N, C, D, H, W] to mean 0 and variance 1, then scales and shifts."""

    dims = (5,)
