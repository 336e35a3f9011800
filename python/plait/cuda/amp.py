"""Mixed precision on GPUs, by the names of older scripts; see `plait.amp`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from plait import amp
from plait._dtype import dtype as DType
from plait._dtype import float16
from plait.amp.grad_scaler import DeviceGradScaler

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd"]


class autocast(amp.autocast):  # noqa: N801
    """`plait.amp.autocast("gpu", ...)`."""

    def __init__(self, enabled: bool = True, dtype: DType = float16, cache_enabled: bool = True) -> None:
        super().__init__("cuda", dtype, enabled, cache_enabled)


class GradScaler(DeviceGradScaler):
    """`plait.amp.GradScaler("cuda", ...)`."""

    _kind = "cuda"


def custom_fwd(fwd: Callable[..., Any] | None = None, *, cast_inputs: DType | None = None) -> Callable[..., Any]:
    """`plait.amp.custom_fwd` for GPUs."""
    if fwd is None:
        return functools.partial(custom_fwd, cast_inputs=cast_inputs)
    return amp.custom_fwd(fwd, device_type="cuda", cast_inputs=cast_inputs)


def custom_bwd(bwd: Callable[..., Any]) -> Callable[..., Any]:
    """`plait.amp.custom_bwd` for GPUs."""
    return amp.custom_bwd(bwd, device_type="cuda")
