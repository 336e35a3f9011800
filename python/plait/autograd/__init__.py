"""Gradients: passes, functions with derivatives of their own, checks. Names and arguments are PyTorch's."""

from typing import Any

from plait._autograd.backward import backward, grad
from plait._engine.missing_names import absent as _absent
from plait._errors import MissingFeatureError
from plait._modes import (
    detect_anomaly,
    enable_grad,
    inference_mode,
    no_grad,
    set_detect_anomaly,
    set_grad_enabled,
)
from plait._tensor import Tensor
from plait.autograd import forward_ad, functional, graph, profiler
from plait.autograd.function import Function
from plait.autograd.gradcheck import GradcheckError, gradcheck, gradgradcheck
from plait.profiler import _disable_profiler as _disable_profiler
from plait.profiler import _profiler_enabled as _profiler_enabled


class _Tensors(type):
    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, Tensor)


class Variable(metaclass=_Tensors):
    """The older name of tensors, all of which are instances of it."""

    def __new__(cls, data: Tensor, requires_grad: bool = False) -> Any:
        """Returns a leaf that shares the memory of a tensor."""
        if not isinstance(data, Tensor):
            raise TypeError(f"Variable: want a tensor, got {type(data).__name__}")
        return data.detach().requires_grad_(requires_grad)


def __getattr__(name: str) -> Any:
    if name in ("profiler_util", "NestedIOFunction"):
        raise MissingFeatureError(f"plait.autograd.{name} is not there")
    raise _absent("autograd", "plait.autograd", name)


__all__ = [
    "Function",
    "GradcheckError",
    "Variable",
    "backward",
    "detect_anomaly",
    "enable_grad",
    "forward_ad",
    "functional",
    "grad",
    "gradcheck",
    "gradgradcheck",
    "graph",
    "inference_mode",
    "no_grad",
    "profiler",
    "set_detect_anomaly",
    "set_grad_enabled",
]
