"""The classes and functions that a program allows in checkpoints beside those that `load` takes anyway."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Any, TypeAlias

Allowance: TypeAlias = Callable[..., Any] | tuple[Callable[..., Any], str]

REFUSED = {"nt", "os", "posix", "subprocess", "sys"}  # nothing from there is allowed, whatever the program says

_allowed: dict[str, Allowance] = {}  # by the name in a file
_inside: ContextVar[dict[str, Allowance] | None] = ContextVar("allowed in checkpoints", default=None)


def _name(allowance: Allowance) -> str:
    if isinstance(allowance, tuple):
        if len(allowance) != 2:
            raise ValueError(
                f"safe_globals: want a class or a function, or it and its name, got {len(allowance)} values"
            )
        if not isinstance(allowance[1], str):
            raise TypeError(f"safe_globals: want the name as a string, got {type(allowance[1]).__name__}")
        return allowance[1]
    if not callable(allowance):
        raise TypeError(f"safe_globals: want classes and functions, got {type(allowance).__name__}")
    return f"{allowance.__module__}.{allowance.__qualname__}"


def add_safe_globals(safe_globals: Iterable[Allowance]) -> None:
    """Allows classes and functions in the files that `load` reads with `weights_only=True`, in the whole process.

    A file may make objects of the classes with a state of its choice, and call the functions with arguments of its
    choice. What is in `os`, `sys` and `subprocess` stays refused.

    Args:
        safe_globals: classes and functions, or pairs of one and the name that it has in files, "module.name"
    """
    for allowance in list(safe_globals):
        _allowed[_name(allowance)] = allowance


def clear_safe_globals() -> None:
    """Allows no class and no function any more that `add_safe_globals` allowed, in the whole process."""
    _allowed.clear()


def get_safe_globals() -> list[Allowance]:
    """Returns what `add_safe_globals` and the contexts around allow."""
    return list(_all().values())


def _all() -> dict[str, Allowance]:
    return {**_allowed, **(_inside.get() or {})}


class safe_globals:  # noqa: N801
    """A context in which `load` allows classes and functions as `add_safe_globals` does, in this thread."""

    def __init__(self, safe_globals: Iterable[Allowance]) -> None:
        self._more = list(safe_globals)
        self._tokens: list[Token[dict[str, Allowance] | None]] = []

    def __enter__(self) -> None:
        more = {_name(allowance): allowance for allowance in self._more}
        self._tokens.append(_inside.set({**(_inside.get() or {}), **more}))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _inside.reset(self._tokens.pop())


def allowed() -> dict[str, Any]:
    """Returns the classes and functions by their names in files."""
    return {k: v[0] if isinstance(v, tuple) else v for k, v in _all().items()}
