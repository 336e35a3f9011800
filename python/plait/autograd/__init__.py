"""Gradients: passes, functions with derivatives of their own, checks. Names and arguments are PyTorch's."""

from typing import Any

from plait import _core
from plait._autograd import backward, grad
from plait._errors import MissingFeatureError
from plait._modes import _Mode, enable_grad, inference_mode, no_grad, set_grad_enabled
from plait._tensor import Tensor
from plait.autograd import functional, graph
from plait.autograd.function import Function
from plait.autograd.gradcheck import GradcheckError, gradcheck, gradgradcheck

Variable = Tensor


class detect_anomaly(_Mode):  # noqa: N801
    """Operations inside wait for their results and fail if they made a NaN; errors of backward name the operation.

    Args:
        check_nan: False has no effect but on where nodes came from
    """

    def __init__(self, check_nan: bool = True) -> None:
        super().__init__()
        self.check_nan = check_nan

    def _set(self) -> int:
        return _core.bind_AnomalySet(True)


class set_detect_anomaly(_Mode):  # noqa: N801
    """Turns the check of `detect_anomaly` on or off, from now on, or inside `with`."""

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        super().__init__()
        self._at_making = _core.bind_AnomalySet(bool(mode))

    def _set(self) -> int:
        return self._at_making


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
