"""Mixed precision on CPU devices, by the names of older scripts; see `plait.amp`."""

from __future__ import annotations

from plait import amp
from plait._dtype import bfloat16
from plait._dtype import dtype as DType
from plait.amp.grad_scaler import DeviceGradScaler

__all__ = ["GradScaler", "autocast"]


class autocast(amp.autocast):  # noqa: N801
    """`plait.amp.autocast("cpu", ...)`."""

    def __init__(self, enabled: bool = True, dtype: DType = bfloat16, cache_enabled: bool = True) -> None:
        super().__init__("cpu", dtype, enabled, cache_enabled)


class GradScaler(DeviceGradScaler):
    """`plait.amp.GradScaler("cpu", ...)`."""

    _kind = "cpu"
