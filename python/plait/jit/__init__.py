"""Decorators of scripts that PyTorch may compile. There is no compiler: functions and modules run as they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

from plait._engine import spelling
from plait._engine.missing_names import absent as _absent
from plait._engine.missing_names import refusing as _refusing
from plait._engine.warnings import warn

T = TypeVar("T")

__all__ = [
    "Final", "annotate", "export", "ignore", "interface", "is_scripting", "is_tracing", "script",
    "script_if_tracing", "unused",
]  # fmt: skip


def script(obj: T, optimize: Any = None, _frames_up: int = 0, _rcb: Any = None, example_inputs: Any = None) -> T:
    """Returns a function or a module as it is, with a warning unless the program was written for PyTorch."""
    if spelling.package == "plait":
        warn("plait.jit.script returns its argument: there is no compiler")
    return obj


def ignore(drop: Any = False, **kwargs: Any) -> Any:
    """Returns a function as it is; also a decorator with arguments."""
    return drop if callable(drop) else lambda function: function


def _itself(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function as it is."""
    return fn


interface = unused = export = script_if_tracing = _script_if_tracing = _overload_method = _overload = _itself


def annotate(the_type: Any, the_value: T) -> T:
    """Returns the value."""
    return the_value


def is_scripting() -> bool:
    """Returns False: there is no compiler."""
    return False


def is_tracing() -> bool:
    """Returns False: there is no compiler."""
    return False


class TracerWarning(Warning):
    """What PyTorch's tracer warns with; there is none."""


_NO_COMPILER = _refusing(
    "plait.jit",
    "Attribute ScriptFunction ScriptModule freeze load save trace trace_module",
    "there is no compiler; save a state_dict to keep a model",
)


def __getattr__(name: str) -> Any:
    try:
        return _NO_COMPILER(name)
    except AttributeError:
        raise _absent("jit", "plait.jit", name) from None
