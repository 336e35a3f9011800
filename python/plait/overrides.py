"""Objects that take part in functions as tensors do: there are none but tensors and their subclasses."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from plait._engine.missing_names import refusing as _refusing
from plait._tensor import Tensor

__all__ = ["has_torch_function", "is_tensor_like"]


def has_torch_function(relevant_args: Iterable[Any]) -> bool:
    """Returns False: no class overrides functions."""
    return False


def has_torch_function_unary(*args: Any) -> bool:
    """Returns False: no class overrides functions."""
    return False


has_torch_function_variadic = has_torch_function_unary


def is_tensor_like(inp: Any) -> bool:
    """Whether an object is a tensor."""
    return isinstance(inp, Tensor)


__getattr__ = _refusing(
    __name__,
    "TorchFunctionMode get_ignored_functions get_overridable_functions get_testing_overrides handle_torch_function "
    "is_tensor_method_or_property resolve_name wrap_torch_function",
    "no class overrides functions; call a function of your own in their place",
)
