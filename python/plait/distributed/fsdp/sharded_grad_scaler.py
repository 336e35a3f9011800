"""Scaling of losses where each rank has a part of the gradients."""

from __future__ import annotations

from array import array
from typing import Any

from plait import _core, _ops
from plait._dtype import float32
from plait._runtime import address, check, own
from plait.amp.grad_scaler import GradScaler
from plait.distributed._collectives import all_reduce
from plait.distributed._groups import ProcessGroup, require
from plait.distributed._work import ReduceOp


class ShardedGradScaler(GradScaler):
    """A `GradScaler`, with its arguments, whose ranks leave a step out together, if a gradient of any is not finite.

    A rank whose parameters have no gradients takes part in what the others find.

    Args:
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
        # Whether anything is not finite, and whether there is a gradient at all: of every rank, whatever it has.
        both = _ops.zeros(2, dtype=float32)
        for found in [own(h) for h in out]:
            both[0] = _ops.maximum(both[0], found.to(both.device))
            both[1] = 1.0
        all_reduce(both, op=ReduceOp.MAX, group=self._group)
        if len(out) or both[1].item():
            anywhere = both[0]
            check(_core.bind_ScalerFoundElsewhere(self._h, id(optimizer), anywhere._h))

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """Unscales the gradients, unless `unscale_` has, and steps if those of all ranks are finite."""
        if self._enabled and id(optimizer) not in self._unscaled:
            self.unscale_(optimizer)
        return super().step(optimizer, *args, **kwargs)

    def update(self, new_scale: Any = None) -> None:
        """Changes the factor by what was found, the same way on every rank."""
        self._unscaled.clear()
        super().update(new_scale)
