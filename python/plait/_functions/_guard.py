"""Wrong arguments of functions written in Python raise a TypeError that names the function and the argument."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from plait._mistakes import is_accident, wrong_argument


def guard(space: dict[str, Any]) -> None:
    """Guards the functions of a module, those that are generated apart: they say it themselves."""
    for name, value in list(space.items()):
        if not inspect.isfunction(value) or name[0] == "_" or hasattr(value, "guarded"):
            continue
        if not value.__module__.startswith("plait._ops"):
            space[name] = _guarded(value)


def _guarded(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except _MISTAKES as error:
            if not is_accident(error):
                raise
            name = function.__name__
            try:
                arguments = inspect.signature(function).bind(*args, **kwargs).arguments
            except TypeError:  # the call itself does not fit, and Python has said so
                raise error from None
            if isinstance(error, ValueError | OverflowError):
                raise type(error)(f"{name}: {error}") from error
            raise wrong_argument(function, name, arguments) or TypeError(f"{name}: {error}") from error

    guarded.guarded = True  # type: ignore[attr-defined]
    return guarded


# What comes of a value of another type, and would not say whose argument it was.
_MISTAKES = (
    TypeError, AttributeError, LookupError, StopIteration, ArithmeticError, ValueError,
)  # fmt: skip
