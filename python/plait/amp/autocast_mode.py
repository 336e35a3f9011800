"""Autocast: a part of the calling thread's mode, for CPU devices and for others."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from plait import _core
from plait._dtype import DTYPES, bfloat16, dtype_number, float16
from plait._dtype import dtype as DType
from plait._engine.runtime import check
from plait._engine.warnings import warn
from plait._tensor import Tensor

# What is a name of the package itself too.
__all__ = [
    "autocast",
    "autocast_decrement_nesting",
    "autocast_increment_nesting",
    "clear_autocast_cache",
    "get_autocast_cpu_dtype",
    "get_autocast_dtype",
    "get_autocast_gpu_dtype",
    "is_autocast_cache_enabled",
    "is_autocast_cpu_enabled",
    "is_autocast_enabled",
    "set_autocast_cache_enabled",
    "set_autocast_cpu_dtype",
    "set_autocast_cpu_enabled",
    "set_autocast_dtype",
    "set_autocast_enabled",
    "set_autocast_gpu_dtype",
]

F = TypeVar("F", bound=Callable[..., Any])

_KINDS = {"cpu": "cpu", "gpu": "gpu", "cuda": "gpu"}

# PyTorch's other types, of which there are no devices: autocast is off for them. Here are their lower dtypes.
_OTHERS = {
    "hpu": bfloat16, "ipu": float16, "maia": float16, "mps": float16, "mtia": float16, "xla": bfloat16, "xpu": float16,
}  # fmt: skip


def _kind(device_type: Any) -> str:
    """Returns the kind of devices of a type, which of those that are not there is the type."""
    if not isinstance(device_type, str):
        raise ValueError(f"autocast: want a type of device such as 'cpu', got {type(device_type).__name__}")
    if device_type in _OTHERS:
        return device_type
    return _kind_that_is_there(device_type)


def _kind_that_is_there(device_type: str) -> str:
    if device_type not in _KINDS:
        raise RuntimeError(
            f"autocast: unsupported device_type {device_type!r}, want cpu, gpu or cuda (the same as gpu)"
        )
    return _KINDS[device_type]


def is_autocast_available(device_type: str) -> bool:
    """Whether there is autocast for devices of a type."""
    return device_type in _KINDS


def is_autocast_enabled(device_type: str | None = None) -> bool:
    """Whether autocast is on in the calling thread for devices of a type; GPUs without one."""
    kind = "gpu" if device_type is None else _kind(device_type)
    return kind not in _OTHERS and bool(_core.bind_AutocastEnabled(kind))


def is_autocast_cpu_enabled() -> bool:
    """Whether autocast is on in the calling thread for CPU devices."""
    return is_autocast_enabled("cpu")


def get_autocast_dtype(device_type: str) -> DType:
    """Returns the lower dtype for devices of a type: at first bfloat16 for cpu and float16 for others."""
    kind = _kind(device_type)
    return _OTHERS[kind] if kind in _OTHERS else DTYPES[_core.bind_AutocastDType(kind)]


def get_autocast_gpu_dtype() -> DType:
    """Returns the lower dtype for GPUs."""
    return get_autocast_dtype("gpu")


def get_autocast_cpu_dtype() -> DType:
    """Returns the lower dtype for CPU devices."""
    return get_autocast_dtype("cpu")


def is_autocast_cache_enabled() -> bool:
    """Whether the casts of parameters are remembered until the outermost autocast ends."""
    return bool(_core.bind_AutocastCache())


def _set(kind: str, on: bool | None = None, dtype: DType | None = None, cache: bool | None = None) -> int:
    """Changes what is given, and returns the mode before."""
    return check(
        _core.bind_AutocastSet(
            kind,
            bool(_core.bind_AutocastEnabled(kind) if on is None else on),
            _core.bind_AutocastDType(kind) if dtype is None else dtype_number(dtype),
            bool(_core.bind_AutocastCache() if cache is None else cache),
        )
    )


def set_autocast_enabled(device_type: str | bool, enabled: bool | None = None) -> None:
    """Turns autocast on or off for devices of a type; for GPUs, if only `enabled` is given."""
    if isinstance(device_type, bool):
        _set("gpu", on=device_type)
    elif enabled or _kind(device_type) not in _OTHERS:
        _set(_kind_that_is_there(device_type), on=bool(enabled))


def set_autocast_dtype(device_type: str, dtype: DType) -> None:
    """Sets the lower dtype for devices of a type."""
    _set(_kind_that_is_there(device_type), dtype=dtype)


def set_autocast_gpu_dtype(dtype: DType) -> None:
    """Sets the lower dtype for GPUs."""
    set_autocast_dtype("gpu", dtype)


def set_autocast_cpu_dtype(dtype: DType) -> None:
    """Sets the lower dtype for CPU devices."""
    set_autocast_dtype("cpu", dtype)


def set_autocast_cpu_enabled(enabled: bool) -> None:
    """Turns autocast on or off for CPU devices."""
    set_autocast_enabled("cpu", enabled)


def set_autocast_cache_enabled(enabled: bool) -> None:
    """Says whether the casts of parameters are remembered."""
    _set("cpu", cache=enabled)


def clear_autocast_cache() -> None:
    """Forgets the casts of parameters."""
    _core.bind_AutocastClear()


def autocast_increment_nesting() -> int:
    """Begins a region of autocast without setting it, and returns how many there are."""
    return _core.bind_AutocastEnter()


def autocast_decrement_nesting() -> int:
    """Ends a region of autocast and returns how many there are; without any, casts are forgotten."""
    return _core.bind_AutocastLeave()


class autocast(_core.Scope):  # noqa: N801
    """Operations inside compute in dtypes that suit them: `with autocast("cpu"):`, or as a decorator.

    Matrix products, convolutions and recurrent layers take their inputs in the lower dtype; losses and what else needs
    range take them in float32. PyTorch's documentation lists the operations; plait's are the same. Backward computes in
    the dtypes of forward: leave it outside.

    Args:
        device_type: "cpu", or "gpu", for which "cuda" is another name; for PyTorch's others, such as "mps", autocast
            stays off
        dtype: float16 or bfloat16; None for `get_autocast_dtype(device_type)`
        enabled: False turns autocast off inside
        cache_enabled: whether a parameter is cast once until the outermost autocast ends; None leaves it as it is

    Raises:
        RuntimeError: for another device_type.
    """

    def __init__(
        self,
        device_type: str,
        dtype: DType | None = None,
        enabled: bool = True,
        cache_enabled: bool | None = None,
    ) -> None:
        self._kind = _kind(device_type)
        self.device = device_type
        self.fast_dtype = get_autocast_dtype(device_type) if dtype is None else dtype
        self._cache_enabled = cache_enabled
        lower = self.fast_dtype.itemsize == 2 and self.fast_dtype.is_floating_point
        if enabled and not lower:
            warn(f"autocast: want float16 or bfloat16, got {self.fast_dtype}; autocast stays off")
            enabled = False
        if enabled and self._kind != "cpu" and (self._kind in _OTHERS or _core.bind_DeviceCount("gpu") == 0):
            what = "device" if self._kind in _OTHERS else "GPU"
            warn(f"autocast: there is no {what} for {device_type!r}; autocast stays off")
            enabled = False
        self._enabled = bool(enabled)
        self._lower = self.fast_dtype if lower else None

    _end = staticmethod(_core.bind_AutocastEnd)

    def _begin(self) -> int:
        _core.bind_AutocastEnter()
        try:
            if self._kind in _OTHERS:
                return _set("cpu", cache=self._cache_enabled)
            return _set(self._kind, self._enabled, self._lower, self._cache_enabled)
        except BaseException:
            _core.bind_AutocastLeave()
            raise

    def __call__(self, function: F) -> F:
        """Decorates a function."""

        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return wrapped  # type: ignore[return-value]


def _cast(value: Any, kind: str, dtype: DType) -> Any:
    """Returns nested values with the floating-point tensors on devices of a kind cast, but those in float64."""
    if isinstance(value, Tensor):
        wanted = value.is_floating_point() and value.dtype.itemsize < 8 and value.device._kind == kind
        return value.to(dtype) if wanted else value
    if isinstance(value, Mapping):
        return {_cast(k, kind, dtype): _cast(v, kind, dtype) for k, v in value.items()}
    if isinstance(value, list | tuple):
        items = [_cast(v, kind, dtype) for v in value]
        return items if isinstance(value, list) else tuple(items)
    return value


def custom_fwd(
    fwd: Callable[..., Any] | None = None, *, device_type: str, cast_inputs: DType | None = None
) -> Callable[..., Any]:
    """Decorates `forward` of an `autograd.Function`, whose `backward` has `custom_bwd`, for use under autocast.

    Args:
        fwd: the function
        device_type: as for `autocast`
        cast_inputs: the dtype of floating-point inputs under autocast, which is off inside then; None for neither
    """
    kind = _kind(device_type)
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)

    @functools.wraps(fwd)
    def forward(*args: Any, **kwargs: Any) -> Any:
        on = is_autocast_enabled(device_type)
        args[0]._dtype = get_autocast_dtype(device_type)
        args[0]._fwd_used_autocast = on and cast_inputs is None
        if not on or cast_inputs is None:
            return fwd(*args, **kwargs)
        with autocast(device_type, enabled=False):
            return fwd(*_cast(args, kind, cast_inputs), **_cast(kwargs, kind, cast_inputs))

    return forward


def custom_bwd(bwd: Callable[..., Any] | None = None, *, device_type: str) -> Callable[..., Any]:
    """Decorates `backward` of an `autograd.Function`: autocast is as it was in its `forward`, under `custom_fwd`."""
    _kind(device_type)
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)

    @functools.wraps(bwd)
    def backward(*args: Any, **kwargs: Any) -> Any:
        with autocast(device_type, dtype=args[0]._dtype, enabled=args[0]._fwd_used_autocast):
            return bwd(*args, **kwargs)

    return backward
