"""Objects that take part in functions as tensors do: those whose class has a `__torch_function__`.

A function of this package that is given one, as an argument or in a list or tuple, returns what
`__torch_function__(function, types, args, kwargs)` does. So do methods, operators and properties of tensors of a class
derived from `Tensor`, which inherits one that keeps the class of results. In a `TorchFunctionMode` all functions do,
whatever their arguments.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

from plait import _ops
from plait._engine import arming, overriding
from plait._engine.arming import DisableTorchFunctionSubclass, disabled_torch_function
from plait._engine.missing_names import refusing as _refusing
from plait._tensor import Tensor

__all__ = [
    "BaseTorchFunctionMode", "DisableTorchFunctionSubclass", "TorchFunctionMode", "disabled_torch_function",
    "get_overridable_functions", "handle_torch_function", "has_torch_function", "has_torch_function_unary",
    "has_torch_function_variadic", "is_tensor_like", "is_tensor_method_or_property", "resolve_name",
    "wrap_torch_function",
]  # fmt: skip


class TorchFunctionMode:
    """A context manager in which its `__torch_function__` is called in the place of functions, in the thread.

    While it runs, the mode is left: functions that it calls are those of the mode outside of it, if there is one.
    """

    def __torch_function__(
        self, func: Callable[..., Any], types: Iterable[type], args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Returns what a function does, or NotImplemented to leave it to others.

        Args:
            func: the function, a method, or `__get__` or `__set__` of a property
            types: the classes among its arguments that override functions
            args: of the call, by position
            kwargs: by name
        """
        raise NotImplementedError(f"{type(self).__name__}: define __torch_function__")

    def __enter__(self) -> Any:
        arming.enter(self)
        return self

    def __exit__(self, *exc: object) -> None:
        arming.leave(self)

    @classmethod
    def push(cls, *args: Any, **kwargs: Any) -> Any:
        """Returns a new mode, to be entered."""
        return cls(*args, **kwargs)


class BaseTorchFunctionMode(TorchFunctionMode):
    """A mode that calls the functions."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Iterable[type], args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Returns what a function does."""
        return func(*args, **(kwargs or {}))


def _has(value: Any) -> bool:
    if isinstance(value, Tensor):
        return arming.declares(type(value)) and type(value) is not Tensor and not overriding.state.classes_off
    return overriding.overrides(value)


def _in_mode() -> bool:
    return bool(overriding.state.modes) and not overriding.state.all_off


def has_torch_function(relevant_args: Iterable[Any]) -> bool:
    """Whether one of several objects is of a class that overrides functions, or a mode does."""
    return _in_mode() or any(map(_has, relevant_args))


def has_torch_function_unary(arg: Any) -> bool:
    """Whether an object is of a class that overrides functions, or a mode does."""
    return has_torch_function((arg,))


def has_torch_function_variadic(*args: Any) -> bool:
    """Whether one of the arguments is of a class that overrides functions, or a mode does."""
    return has_torch_function(args)


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
    return isinstance(inp, Tensor) or (hasattr(type(inp), "__torch_function__") and not isinstance(inp, type))


def is_tensor_method_or_property(func: Callable[..., Any]) -> bool:
    """Whether a function is a method of tensors, or `__get__` of a property."""
    name = getattr(func, "__name__", "")
    return name in ("__get__", "__set__") or getattr(Tensor, name, None) == func


def get_overridable_functions() -> dict[Any, list[Callable[..., Any]]]:
    """Returns the functions that can be overridden, by the module or class that has them."""
    found: dict[Any, list[Callable[..., Any]]] = {}
    for space, function in arming.functions():
        if space is not _ops:
            found.setdefault(Tensor if isinstance(space, type) else space, []).append(function)
    return found


def resolve_name(f: Any) -> str | None:
    """Returns the name by which a function of this package is imported, `plait.add`; None if it has none."""
    from plait.fx._names import public_name

    return public_name(f) or None


__getattr__ = _refusing(
    __name__,
    "get_ignored_functions get_testing_overrides",
    "get_overridable_functions has the functions that can be overridden",
)
