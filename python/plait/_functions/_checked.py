"""Wrong arguments of functions written in Python raise errors that name the function and the argument."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeVar

from plait._engine.arguments import is_accident, wrong_argument
from plait._engine.overriding import OVERRIDING, SeenFirstError, again, found_in, handle, looks, seen_first

F = TypeVar("F", bound=Callable[..., Any])

# What comes of a value of another type, and would not say whose argument it was.
MISTAKES = (
    TypeError, AttributeError, LookupError, StopIteration, ArithmeticError, ValueError,
)  # fmt: skip


def explained(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], error: Exception
) -> Exception | None:
    """Returns the error that names the function and the argument of a call, or None if the given one says enough."""
    if not is_accident(error):
        return None
    name = function.__name__
    try:
        arguments = inspect.signature(function).bind(*args, **kwargs).arguments
    except TypeError:  # the call itself does not fit, and Python has said so
        return None
    if isinstance(error, ValueError | OverflowError):
        return type(error)(f"{name}: {error}")
    return wrong_argument(function, name, arguments) or TypeError(f"{name}: {error}")


def checked(function: F) -> F:
    """Has a function explain what is wrong with its arguments, and look for some that override it."""
    fast = getattr(function, "_fast", None)

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if OVERRIDING and (found := found_in(args, kwargs)) is not None:
            return handle(wrapped, found, args, kwargs)
        if fast is not None and (result := fast(args, kwargs)) is not None:
            return result
        try:
            return function(*args, **kwargs)
        except SeenFirstError:
            return again(wrapped, args, kwargs)
        except MISTAKES as error:
            if seen_first((*args, *kwargs.values())):
                return again(wrapped, args, kwargs)
            if (told := explained(function, args, kwargs, error)) is None:
                raise
            raise told from error

    looks(wrapped)
    wrapped.unchecked = function  # type: ignore[attr-defined]
    return wrapped  # type: ignore[return-value]


def overridable(function: F) -> F:
    """Has a function look for arguments that override it."""

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if OVERRIDING and (found := found_in(args, kwargs)) is not None:
            return handle(wrapped, found, args, kwargs)
        try:
            return function(*args, **kwargs)
        except SeenFirstError:
            return again(wrapped, args, kwargs)
        except MISTAKES:
            if seen_first((*args, *kwargs.values())):
                return again(wrapped, args, kwargs)
            raise

    looks(wrapped)
    return wrapped  # type: ignore[return-value]


def made(function: F, name: str, depth: int = 1) -> F:
    """Gives a function that another one made the name and the module that it is assigned in: it is pickled by them."""
    function.__name__ = function.__qualname__ = name
    function.__module__ = sys._getframe(depth).f_globals["__name__"]
    return function


def made_method(function: F, name: str) -> F:
    """Gives a function that another one made the name of a method of tensors, by which it is pickled."""
    function.__name__, function.__qualname__, function.__module__ = name, f"Tensor.{name}", "plait"
    return function


def method(function: F) -> F:
    """Returns the method that does what a checked function does, without the time that the checks take."""
    if getattr(function, "_fast", None) is not None:
        return function
    f = function.unchecked  # type: ignore[attr-defined]
    copy = FunctionType(f.__code__, f.__globals__, f.__name__, f.__defaults__, f.__closure__)
    copy.__kwdefaults__, copy.__annotations__, copy.__doc__ = f.__kwdefaults__, f.__annotations__, f.__doc__
    return made_method(copy, f.__name__)  # type: ignore[return-value]
