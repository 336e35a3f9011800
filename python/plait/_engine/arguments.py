"""Errors for arguments of the wrong type, and where an error came from.

That is a `raise`, the interpreter at work on a wrong value, or a function of the caller's.
"""

from __future__ import annotations

import dis
import inspect
import os
import reprlib
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from plait._engine.overriding import overridden
from plait._engine.runtime import TensorBase, sized
from plait._engine.warnings import PACKAGE

_OURS = (PACKAGE, str(Path(np.__file__).parent) + os.sep)
_RAISE = dis.opmap["RAISE_VARARGS"]


def _last(error: BaseException) -> TracebackType | None:
    """Returns where an error was raised, or where the package called what raised it."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
        if not trace.tb_frame.f_code.co_filename.startswith(PACKAGE):
            break
    return trace


def is_callers(error: BaseException) -> bool:
    """Whether a function of the caller's, which the package called, raised an error."""
    trace = error.__traceback__
    if trace is None or trace.tb_next is None:
        return False
    last = _last(error)
    return last is not None and not last.tb_frame.f_code.co_filename.startswith(_OURS)


def is_accident(error: BaseException) -> bool:
    """Whether the interpreter, or NumPy, raised an error in the package's code: what a `raise` says explains itself."""
    last = _last(error)
    if last is None or is_callers(error):
        return False
    code = last.tb_frame.f_code
    return not code.co_filename.startswith(PACKAGE) or code.co_code[last.tb_lasti] != _RAISE


_WANTED: dict[str, Callable[[Any], bool]] = {
    "Tensor": lambda v: isinstance(v, TensorBase),
    "Number": lambda v: isinstance(v, int | float | complex) or getattr(v, "ndim", None) == 0,
    "Sequence[Tensor]": lambda v: isinstance(v, Sequence) and all(isinstance(t, TensorBase) for t in v),
    "Sequence[int]": lambda v: _are(v, lambda i: hasattr(i, "__index__")),
    "Sequence[float]": lambda v: _are(v, lambda i: isinstance(i, int | float)),
    "int": lambda v: hasattr(v, "__index__"),
    "float": lambda v: isinstance(v, int | float),
    "bool": lambda v: True,
    "str": lambda v: isinstance(v, str),
    "Generator": lambda v: hasattr(v, "_h") and not isinstance(v, TensorBase),
    "None": lambda v: v is None,
}


def _are(values: Any, right: Callable[[Any], bool]) -> bool:
    if not isinstance(values, Iterable) or isinstance(values, str | bytes | bytearray):
        return False
    try:
        return all(map(right, sized(values)))
    except TypeError:
        return False


def wrong_argument(function: Callable[..., Any], name: str, arguments: dict[str, Any]) -> TypeError | None:
    """Returns the error that says which argument of a function is not of the annotated type, if one is not."""
    for p in inspect.signature(function).parameters.values():
        if p.name not in arguments or not isinstance(p.annotation, str):
            continue
        value = arguments[p.name]
        wanted = [w.strip() for w in p.annotation.split("|")]
        values = [value]
        if p.kind is p.VAR_POSITIONAL:
            values = list(value[0]) if len(value) == 1 and isinstance(value[0], list | tuple) else list(value)
        known = [_WANTED[w] for w in wanted if w in _WANTED]
        for v in values:
            if known and len(known) == len(wanted) and not any(w(v) for w in known):
                shown = _shown(v)
                return TypeError(f"{name}: {p.name} must be {' or '.join(wanted)}, got {type(v).__name__} {shown}")
    return None


def _shown(value: Any) -> str:
    """Returns a value in at most 60 characters, however deep or long it is."""
    brief = reprlib.Repr()
    brief.maxlist = brief.maxtuple = brief.maxdict = brief.maxset = 20
    brief.maxstring = brief.maxlong = brief.maxother = 60
    shown = brief.repr(value)
    return shown if len(shown) <= 60 else shown[:57] + "..."


def misuse(function: Callable[..., Any], arguments: dict[str, Any], error: Exception) -> Any:
    """Raises the error that says which argument of a generated function has the wrong type.

    Returns:
        what an argument's `__torch_function__` does, if one has that.
    """
    if (made := overridden(function, arguments, sys._getframe(1))) is not None:
        return made[0]
    raise _misuse(function, arguments, error) from None


def _misuse(function: Callable[..., Any], arguments: dict[str, Any], error: Exception) -> Exception:
    if is_callers(error):
        return error
    name = function.__name__
    if (wrong := wrong_argument(function, name, arguments)) is not None:
        return wrong
    if isinstance(error, OverflowError):
        return OverflowError(f"{name}: {error}")
    if isinstance(error, NotImplementedError):  # a feature that is missing is an AttributeError too
        return error
    return TypeError(f"{name}: {error}")
