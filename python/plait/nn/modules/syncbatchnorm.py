"""Batch normalisation over the joined batch of all ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plait import _core
from plait._engine.runtime import call, own
from plait._tensor import Tensor
from plait.nn.modules.batchnorm import _BatchNorm
from plait.nn.modules.module import Module

if TYPE_CHECKING:
    from plait._device import DeviceLike
    from plait._dtype import dtype as DType
    from plait.distributed._groups import ProcessGroup

__all__ = ["SyncBatchNorm"]


class SyncBatchNorm(_BatchNorm):
    """Brings the channels of [N, C, ...] over all ranks' batches to mean 0 and variance 1, then scales and shifts.

    In training every rank calls it, and the ranks' batches may differ in size. The other arguments are those of
    `BatchNorm2d`.

    Args:
        num_features: the number of channels
        process_group: the ranks; the default group by default
        bias: train summands
    """

    dims = ()
    label = ""  # its name in a model, by which the ranks see that they are in the same layer
    samples = 0.0  # by which the rank's gradients will count, in a weighted DistributedDataParallel

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_group: ProcessGroup | None = None,
        device: DeviceLike | None = None,
        dtype: DType | None = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)
        self.process_group = process_group

    def _check_input_dim(self, input: Tensor) -> None:
        if input.ndim < 2:
            raise ValueError(f"SyncBatchNorm: want at least 2 dimensions, got shape {list(input.shape)}")

    def forward(self, input: Tensor) -> Tensor:
        from plait.distributed._groups import is_initialized, resolve_group

        if not self.training or (self.process_group is None and not is_initialized()):
            return super().forward(input)
        group = resolve_group(self.process_group, "SyncBatchNorm")
        self._check_input_dim(input)
        momentum = 0.0 if self.momentum is None else self.momentum
        if self.track_running_stats and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:
                momentum = 1.0 / float(self.num_batches_tracked)
        given = (self.running_mean, self.running_var, self.weight, self.bias)
        purpose = f"SyncBatchNorm {self.label}".strip()
        handles = [0 if t is None else t._h for t in given]
        return own(
            call(_core.bind_SyncBatchNorm, group._h, input._h, *handles, momentum, self.eps, self.samples, purpose)
        )

    @classmethod
    def convert_sync_batchnorm(cls, module: Module, process_group: ProcessGroup | None = None) -> Module:
        """Returns the module with its batch norms replaced by ones over all ranks, with the same parameters."""
        return cls._convert(module, process_group, "")

    @classmethod
    def _convert(cls, module: Module, process_group: ProcessGroup | None, label: str) -> Module:
        out = module
        if isinstance(module, _BatchNorm) and not isinstance(module, SyncBatchNorm):
            made = cls(
                module.num_features,
                module.eps,
                module.momentum,
                module.affine,
                module.track_running_stats,
                process_group,
            )
            made._parameters, made._buffers = module._parameters, module._buffers
            made.training, made.label = module.training, label
            out = made
        for name, child in module.named_children():
            out.add_module(name, cls._convert(child, process_group, f"{label}.{name}".lstrip(".")))
        return out
