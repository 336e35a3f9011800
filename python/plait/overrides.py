"""Objects that take part in functions as tensors do: those whose class has a `__torch_function__`.

A function of this package that is given one, as an argument or in a list or tuple, returns what
`__torch_function__(function, types, args, kwargs)` does. Classes derived from `Tensor` are tensors to functions: theirs
is not called.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

from plait._engine import overriding
from plait._engine.missing_names import refusing as _refusing
from plait._tensor import Tensor

__all__ = [
    "handle_torch_function", "has_torch_function", "has_torch_function_unary", "has_torch_function_variadic",
    "is_tensor_like", "resolve_name", "wrap_torch_function",
]  # fmt: skip


def _has(value: Any) -> bool:
    return hasattr(type(value), "__torch_function__") and not isinstance(value, type)


def has_torch_function(relevant_args: Iterable[Any]) -> bool:
    """Whether one of several objects is of a class with a `__torch_function__`."""
    return any(map(_has, relevant_args))


def has_torch_function_unary(arg: Any) -> bool:
    """Whether an object is of a class with a `__torch_function__`."""
    return _has(arg)


def has_torch_function_variadic(*args: Any) -> bool:
    """Whether one of the arguments is of a class with a `__torch_function__`."""
    return any(map(_has, args))


def handle_torch_function(
    public_api: Callable[..., Any], relevant_args: Iterable[Any], *args: Any, **kwargs: Any
) -> Any:
    """Returns what the `__torch_function__` of an argument does in a function's place.

    Those of derived classes are asked before those of their bases, others from left to right, until one does not return
    NotImplemented.

    Args:
        public_api: the function
        relevant_args: those of its arguments that may override it
        args: of the call, by position
        kwargs: by name

    Raises:
        TypeError: if all return NotImplemented.
    """
    return overriding.handle(public_api, filter(_has, relevant_args), args, kwargs)


def wrap_torch_function(dispatcher: Callable[..., Iterable[Any]]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Returns a decorator for functions that arguments may override.

    Args:
        dispatcher: returns, for the arguments of a call, those that may
    """

    def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            relevant = tuple(dispatcher(*args, **kwargs))
            if has_torch_function(relevant):
                return handle_torch_function(wrapped, relevant, *args, **kwargs)
            return function(*args, **kwargs)

        return wrapped

    return decorated


def is_tensor_like(inp: Any) -> bool:
    """Whether an object is a tensor, or of a class with a `__torch_function__`."""
    return isinstance(inp, Tensor) or _has(inp)


def resolve_name(f: Any) -> str | None:
    """Returns the name by which a function of this package is imported, `plait.add`; None if it has none."""
    from plait.fx._names import public_name

    return public_name(f) or None


__getattr__ = _refusing(
    __name__,
    "TorchFunctionMode get_ignored_functions get_overridable_functions get_testing_overrides "
    "is_tensor_method_or_property",
    "a class overrides functions by its __torch_function__; there are no modes that do, and no list of functions",
)
