"""Gradients: passes, functions with derivatives of their own, checks. Names and arguments are PyTorch's."""

from typing import Any

from plait._autograd import backward, grad
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
from plait.autograd import functional, graph
from plait.autograd.function import Function
from plait.autograd.gradcheck import GradcheckError, gradcheck, gradgradcheck

Variable = Tensor


def __getattr__(name: str) -> Any:
    if name in ("profiler", "profiler_util", "NestedIOFunction"):
        raise MissingFeatureError(f"plait.autograd.{name} is not there")
    raise AttributeError(f"module 'plait.autograd' has no attribute {name!r}")


__all__ = [
    "Function",
    "GradcheckError",
    "Variable",
    "backward",
    "detect_anomaly",
    "enable_grad",
    "functional",
    "grad",
    "gradcheck",
    "gradgradcheck",
    "graph",
    "inference_mode",
    "no_grad",
    "set_detect_anomaly",
    "set_grad_enabled",
]
