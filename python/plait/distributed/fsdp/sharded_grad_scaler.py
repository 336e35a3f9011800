"""Scaling of losses where each rank has a part of the gradients."""

from __future__ import annotations

from array import array
from typing import Any

from plait import _core
from plait._runtime import address, check, own
from plait.amp.grad_scaler import GradScaler
from plait.distributed._collectives import all_reduce
from plait.distributed._groups import ProcessGroup, require
from plait.distributed._work import ReduceOp


class ShardedGradScaler(GradScaler):
    """A `GradScaler` whose ranks leave a step out together, if a gradient of any of them is not finite.

    Args:
        device: has no effect
        init_scale: the factor at first
        backoff_factor: multiplies it after a bad step; less than 1
        growth_factor: multiplies it after good steps; more than 1
        growth_interval: how many good steps
        enabled: False makes `scale` and `step` do nothing of this
        process_group: the ranks; the default group if not given
    """

    def __init__(
        self,
        device: str = "cuda",
        init_scale: float = 2.0**16,
        backoff_factor: float = 0.5,
        growth_factor: float = 2.0,
        growth_interval: int = 2000,
        enabled: bool = True,
        process_group: ProcessGroup | None = None,
    ) -> None:
        super().__init__(device, init_scale, growth_factor, backoff_factor, growth_interval, enabled)
        self._group = require(process_group, "ShardedGradScaler") if enabled else None
        self._unscaled: set[int] = set()

    def unscale_(self, optimizer: Any) -> None:
        """Divides the gradients of an optimiser's parameters by the factor. Every rank calls it."""
        super().unscale_(optimizer)
        if not self._enabled:
            return
        self._unscaled.add(id(optimizer))
        out = array("q")
        while (n := check(_core.bind_ScalerFound(self._h, id(optimizer), address(out), len(out)))) > len(out):
            out = array("q", bytes(8 * n))
        for found in [own(h) for h in out]:
            all_reduce(found, op=ReduceOp.MAX, group=self._group)

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """Unscales the gradients, unless `unscale_` has, and steps if those of all ranks are finite."""
        if self._enabled and id(optimizer) not in self._unscaled:
            self.unscale_(optimizer)
        return super().step(optimizer, *args, **kwargs)

    def update(self, new_scale: Any = None) -> None:
        """Changes the factor by what was found, the same way on every rank."""
        self._unscaled.clear()
        super().update(new_scale)
