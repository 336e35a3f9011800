"""Arguments of other classes that take part in functions as tensors do: those with a `__torch_function__`.

A function that is given one calls it in its own place. A call with tensors must not pay for that. So generated
functions look for such arguments only where a call fails. Functions written by hand might go far before they fail: they
look at the beginning, but only once an object of such a class has been seen.

With tensors of a derived class nothing fails, nor where a mode is to see functions: `arming` has all functions look.
"""

from __future__ import annotations

import dis
import sys
import threading
from collections.abc import Callable, Iterable
from types import CodeType, FrameType
from typing import Any

from plait import _core
from plait._engine.warnings import PACKAGE

_Tensor = _core.TensorOwner
_CO_VARARGS = 4

# The classes that have been seen. Functions written by hand look for arguments of theirs as long as there are any.
OVERRIDING: set[type] = set()

# Those of them that take over the operations below functions: they have a `__torch_dispatch__`.
DISPATCHING: set[type] = set()

# What calls the operations that a function consists of, once something takes them over.
LOWER: list[Callable[..., Any]] = []

# The code of the functions that look; see `looks`.
_LOOKING: set[CodeType] = set()

# What functions were before they were armed; see `arming`.
PLAIN: dict[Callable[..., Any], Callable[..., Any]] = {}


class _State(threading.local):
    """What the thread has entered: modes, innermost last, and scopes in which nothing overrides functions."""

    def __init__(self) -> None:
        self.modes: list[Any] = []
        self.dispatch_modes: list[Any] = []
        self.classes_off = 0
        self.all_off = 0


state = _State()


class AMode:
    """Is among the classes that have been seen while a thread is in a mode."""


class SeenFirstError(BaseException):
    """An argument of a class that had not been seen; the outermost function of the package begins again."""


def disabled(func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    """Stands for `__torch_function__` in a class derived from `Tensor` that does not override functions."""
    return NotImplemented


def looks(function: Callable[..., Any]) -> None:
    """Notes, for the process, that a function looks for classes that have been seen."""
    _LOOKING.add(function.__code__)


def overrides(value: Any) -> bool:
    """Whether an object is of a class that overrides functions, and may: tensors as such and classes do not."""
    kind = type(value)
    if state.classes_off or state.all_off or not hasattr(kind, "__torch_function__"):
        return False
    if isinstance(value, _Tensor):
        return kind in OVERRIDING and kind.__torch_function__ is not disabled  # type: ignore[attr-defined]
    return not isinstance(value, type)


def with_parts(values: Iterable[Any]) -> Iterable[Any]:
    """Yields values, and what is in those that are lists, tuples and slices."""
    for v in values:
        if isinstance(v, list | tuple):
            yield from v
        elif isinstance(v, slice):
            yield from (v.start, v.stop, v.step)
        yield v


def found_in(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any] | None:
    """Returns the arguments that override a function, and what is in them, where one's class has been seen.

    Returns:
        None if nothing overrides the call; an empty list if a mode does, and no argument, or something takes over the
        operations below
    """
    if AMode in OVERRIDING and (state.dispatch_modes or (state.modes and not state.all_off)):
        return [v for v in with_parts((*args, *kwargs.values())) if overrides(v)]
    for v in (*args, *kwargs.values()) if kwargs else args:
        kind = type(v)
        if kind in OVERRIDING or ((kind is list or kind is tuple) and not OVERRIDING.isdisjoint(map(type, v))):
            found = [v for v in with_parts((*args, *kwargs.values())) if overrides(v)]
            return found or ([] if DISPATCHING and dispatches(args, kwargs) else None)
    return None


def dispatches(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a call is to be lowered to operations: a mode of theirs or an argument's class takes them over."""
    return bool(state.dispatch_modes) or any(type(v) in DISPATCHING for v in with_parts((*args, *kwargs.values())))


def in_order(relevant: Iterable[Any]) -> list[Any]:
    """Returns one object of each class, from left to right, those of derived classes before those of their bases."""
    out: list[Any] = []
    for v in relevant:
        kind = type(v)
        if any(type(o) is kind for o in out):
            continue
        place = next((i for i, o in enumerate(out) if issubclass(kind, type(o))), len(out))
        out.insert(place, v)
    return out


def handle(function: Callable[..., Any], relevant: Iterable[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Returns what the first `__torch_function__` that does not return NotImplemented does in a function's place.

    The innermost mode of the thread is asked first, which is left while it runs; and then the relevant objects. Where
    there are none, the function is lowered to operations, which something takes over.

    Raises:
        TypeError: if all return NotImplemented.
    """
    asked = in_order(relevant)
    types = tuple(type(v) for v in asked)
    if state.modes and not state.all_off:
        mode = state.modes.pop()
        try:
            result = mode.__torch_function__(function, types, args, kwargs)
        finally:
            state.modes.append(mode)
        if result is not NotImplemented:
            return result
    for v in asked:
        result = v.__torch_function__(function, types, args, kwargs)
        if result is not NotImplemented:
            return result
    if not asked and dispatches(args, kwargs):
        return LOWER[0](function, args, kwargs)
    names = ", ".join(t.__qualname__ for t in types)
    raise TypeError(f"{function.__name__}: no class among its arguments implements it: {names}")


def call_below(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Calls a function that no class overrides; properties do not look for what takes over operations."""
    if DISPATCHING and function.__name__ == "__get__" and dispatches(args, kwargs):
        return handle(function, (), args, kwargs)
    return function(*args, **kwargs)


def again(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Calls the outermost function again, now that a class has been seen; inner ones raise the error that led here."""
    if _is_inner(sys._getframe(2)):
        raise  # noqa: PLE0704
    return function(*args, **kwargs)


def seen_first(values: Iterable[Any]) -> bool:
    """Notes, for the process, classes among values that override functions; returns whether any had not been seen."""
    new = {type(v) for v in with_parts(values) if overrides(v)} - OVERRIDING
    OVERRIDING.update(new)
    return bool(new)


def overridden(function: Callable[..., Any], arguments: dict[str, Any], frame: FrameType) -> tuple[Any] | None:
    """Returns what a generated function's overriding argument makes of a call, in a tuple; None if there is none.

    Args:
        function: the generated one
        arguments: its local names
        frame: of the call
    """
    code = frame.f_code
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    more = arguments[code.co_varnames[len(names)]] if code.co_flags & _CO_VARARGS else ()
    values = [*(arguments[n] for n in names), *more]
    relevant = [v for v in with_parts(values) if overrides(v)]
    if not relevant:
        return None
    caller = frame.f_back
    if seen_first(values) and caller is not None and _is_inner(caller):
        raise SeenFirstError
    return (handle(function, relevant, *_as_called(PLAIN.get(function, function), arguments, more, caller)),)


def overridden_method(function: Callable[..., Any], *args: Any) -> tuple[Any] | None:
    """Returns what an overriding argument makes of a method that failed, in a tuple; None if there is none."""
    parts = with_parts(p for a in args for p in (a if isinstance(a, tuple) else (a,)))
    relevant = [v for v in parts if overrides(v)]
    return (handle(function, relevant, args, {}),) if relevant else None


def overridden_operator(method: Callable[..., Any], *args: Any) -> Any:
    """Returns what an overriding argument makes of an operator, of which `method` is the tensors' one."""
    if seen_first(args) and _is_inner(sys._getframe(1)):
        raise SeenFirstError
    return handle(method, filter(overrides, args), args, {})


def _is_inner(frame: FrameType | None) -> bool:
    """Whether a function that looks is running, with only the package's code between, and none that it asked."""
    while frame is not None and frame.f_code.co_filename.startswith(PACKAGE) and frame.f_code is not handle.__code__:
        if frame.f_code in _LOOKING:
            return True
        frame = frame.f_back
    return False


def _as_called(
    function: Callable[..., Any], arguments: dict[str, Any], more: tuple[Any, ...], caller: FrameType | None
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Returns the arguments by position and by name, without those that have their defaults at the end."""
    code = function.__code__
    names, count = code.co_varnames, code.co_argcount
    defaults = dict(zip(names[:count][::-1], (function.__defaults__ or ())[::-1], strict=False))
    named = [n for n in _keywords(caller) if n in names[: count + code.co_kwonlyargcount]]
    args = [(n, arguments[n]) for n in names[:count] if n not in named]
    if not more:
        while args and args[-1][0] in defaults and args[-1][1] is defaults[args[-1][0]]:
            args.pop()
    kwargs = {n: arguments[n] for n in named}
    for n, default in (function.__kwdefaults__ or {}).items():
        if arguments[n] is not default:
            kwargs[n] = arguments[n]
    return (*(v for _, v in args), *more), kwargs


def _keywords(caller: FrameType | None) -> tuple[str, ...]:
    """Returns the names of the arguments that the call in a frame passes by name, where they are written there."""
    if caller is None:
        return ()
    before: dis.Instruction | None = None
    call: dis.Instruction | None = None
    for i in dis.get_instructions(caller.f_code):
        if i.offset > caller.f_lasti:
            break
        if i.opname not in ("PRECALL", "CACHE"):
            before, call = call, i
    names = None
    if before is not None and call is not None:
        if before.opname == "KW_NAMES" and before.arg is not None:
            names = caller.f_code.co_consts[before.arg]
        elif before.opname == "LOAD_CONST" and "_KW" in call.opname:
            names = before.argval
    return names if isinstance(names, tuple) else ()
