"""Functions that are an operation of the engine, called in C at once (capi/extension/calls.c)."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from plait import _core

F = TypeVar("F", bound=Callable[..., Any])
FastCall = Callable[[tuple[Any, ...], dict[str, Any]], Any]


def does(
    operation: Callable[..., Any], cls: type | None = None, /, names: dict[str, str] | None = None, **fixed: Any
) -> Callable[[F], F]:
    """Notes that a function does what a generated one does, where its other arguments have their defaults.

    `checked` and its like, above it, call the operation at once where the arguments are of the usual types. Where there
    are several, the upper one is tried first.

    Args:
        operation: the generated function; parameters of the same name are the same
        cls: of the tuple of results
        names: of parameters of the function that the operation has under another name
        fixed: arguments of the operation that the function does not pass on
    """

    def note(function: F) -> F:
        function._fast = fast_named_call(function, operation, cls, names or {}, fixed)  # type: ignore[attr-defined]
        return function

    return note


def fast_named_call(
    function: Callable[..., Any],
    operation: Callable[..., Any],
    cls: type | None,
    names: dict[str, str],
    fixed: dict[str, Any],
    out: bool = False,
) -> FastCall | None:
    """Returns a function of a tuple and a dictionary of arguments that calls an operation, or returns None and has done
    nothing; see `does`. There is none for operations that have C functions of their own.

    Args:
        function: whose parameters say what the arguments are
        operation: the generated function
        cls: see `does`, as for `names` and `fixed`
        names: see there
        fixed: see there
        out: whether `out` is a parameter, too
    """
    direct = fast_operation(operation)
    if direct is None:
        return None
    own, positional, defaults = _parameters(function)
    if out:
        own, defaults = (*own, "out"), {**defaults, "out": None}
    known, _, others = _parameters(operation)
    taken = {*fixed, *names.values()}
    places = tuple(names.get(n, n if n in known and n not in taken else None) for n in own)
    sizes = positional == 1 and bool(function.__code__.co_flags & inspect.CO_VARARGS)
    others = {k: v for k, v in (others | fixed).items() if k not in places}
    then = getattr(function, "_fast", None)
    return _core.fast_named_call(direct, own, places, positional, sizes, defaults, others, cls, then)


def fast_operation(operation: Callable[..., Any]) -> Any:
    """Returns what calls the operation of a generated function at once, given all arguments, or returns None and has
    done nothing; None for operations that have C functions of their own.
    """
    name = operation.__name__
    return operation.__globals__.get(f"_{name[:-1]}_in_place_fast" if name.endswith("_") else f"_{name}_fast")


def _parameters(function: Callable[..., Any]) -> tuple[tuple[str, ...], int, dict[str, Any]]:
    """Returns the names of a function's parameters, how many may go by position, and the defaults by name."""
    code = function.__code__
    names, count = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount], code.co_argcount
    defaults = dict(zip(names[:count][::-1], (function.__defaults__ or ())[::-1], strict=False))
    return names, count, defaults | (function.__kwdefaults__ or {})
