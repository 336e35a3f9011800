"""Decorators of scripts that PyTorch may compile. There is no compiler: functions and modules run as they are."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from types import NoneType, UnionType
from typing import Any, Final, TypeVar, Union, get_args, get_origin

from plait._engine import spelling
from plait._engine.missing_names import absent as _absent
from plait._engine.missing_names import refusing as _refusing
from plait._engine.warnings import warn

T = TypeVar("T")

__all__ = [
    "Final",
    "annotate",
    "export",
    "ignore",
    "interface",
    "is_scripting",
    "is_tracing",
    "isinstance",
    "script",
    "script_if_tracing",
    "unused",
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


unused = export = script_if_tracing = _script_if_tracing = _overload_method = _overload = _itself


def interface(obj: T) -> T:
    """Returns a class as it is."""
    return obj


def annotate(the_type: Any, the_value: T) -> T:
    """Returns the value."""
    return the_value


def isinstance(obj: Any, target_type: Any) -> bool:
    """Returns whether an object is of a type; of `list[T]`, `dict[K, V]` and `tuple[T, ...]` the items are looked at.

    Args:
        obj: the object
        target_type: a type, a union, or a tuple of them
    """
    if builtins.isinstance(target_type, tuple):
        return any(isinstance(obj, t) for t in target_type)
    kind, parts = get_origin(target_type), get_args(target_type)
    if kind in (Union, UnionType):
        return any(isinstance(obj, t) for t in parts)
    if kind is None:
        return builtins.isinstance(obj, NoneType if target_type is None else target_type)
    if not builtins.isinstance(obj, kind):
        return False
    if kind is dict:
        return all(isinstance(k, parts[0]) and isinstance(v, parts[1]) for k, v in obj.items())
    if kind is tuple and parts[-1:] != (...,):
        return len(obj) == len(parts) and all(map(isinstance, obj, parts))
    return all(isinstance(item, parts[0]) for item in obj)


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
