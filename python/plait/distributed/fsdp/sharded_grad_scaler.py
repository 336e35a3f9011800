"""Loss scaling for sharded gradients."""

from __future__ import annotations

from typing import Any

from plait.amp.grad_scaler import GradScaler
from plait.distributed._groups import ProcessGroup, resolve_group


class ShardedGradScaler(GradScaler):
    """A `GradScaler` whose ranks skip a step together if any rank has a gradient that is not finite.

    `GradScaler` does the same for optimisers with sharded parameters. This class does it for all parameters, also on
    ranks without gradients. The other arguments are those of `GradScaler`.

    Args:
        process_group: the ranks; the default group by default
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
        self._group = resolve_group(process_group, "ShardedGradScaler") if enabled else None

    def _groups(self, optimizer: Any) -> list[Any]:
        return list(dict.fromkeys([self._group, *super()._groups(optimizer)]))
