"""Mixed precision on CPU devices, by the names of older scripts; see `plait.amp`."""

from __future__ import annotations

from typing import Any

from plait import amp
from plait._dtype import bfloat16
from plait._dtype import dtype as DType

__all__ = ["GradScaler", "autocast"]


class autocast(amp.autocast):  # noqa: N801
    """`plait.amp.autocast("cpu", ...)`."""

    def __init__(self, enabled: bool = True, dtype: DType = bfloat16, cache_enabled: bool = True) -> None:
        super().__init__("cpu", dtype, enabled, cache_enabled)


class GradScaler(amp.GradScaler):
    """`plait.amp.GradScaler("cpu", ...)`."""

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        super().__init__("cpu", init_scale, growth_factor, backoff_factor, growth_interval, enabled)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(enabled=state["enabled"])  # type: ignore[misc]
        if state["enabled"]:
            self.load_state_dict(state["state"])
