"""What programs ask of sizes that may be symbols. Here each is a number, and what they ask of it is known."""

from __future__ import annotations

from typing import Any

__all__ = [
    "GuardOnDataDependentSymNode", "definitely_false", "definitely_true", "free_symbols", "free_unbacked_symbols",
    "guard_or_false", "guard_or_true", "guard_size_oblivious", "has_free_symbols", "hint_int", "is_concrete_bool",
    "is_concrete_float", "is_concrete_int", "statically_known_true", "sym_eq",
]  # fmt: skip


class GuardOnDataDependentSymNode(RuntimeError):
    """A branch hangs on a symbol of which nothing is known; nothing raises it."""


def guard_or_true(a: Any) -> bool:
    """Returns whether something is true."""
    return bool(a)


def guard_or_false(a: Any) -> bool:
    """Returns whether something is true."""
    return bool(a)


def guard_size_oblivious(expr: Any) -> bool:
    """Returns whether something is true."""
    return bool(expr)


def definitely_true(a: Any) -> bool:
    """Returns whether something is true."""
    return bool(a)


def definitely_false(a: Any) -> bool:
    """Returns whether something is false."""
    return not a


def statically_known_true(x: Any) -> bool:
    """Returns whether something is true."""
    return bool(x)


def is_concrete_int(a: Any) -> bool:
    """Returns whether a size is a number: True."""
    return True


def is_concrete_float(a: Any) -> bool:
    """Returns whether a number is one: True."""
    return True


def is_concrete_bool(a: Any) -> bool:
    """Returns whether a truth is known: True."""
    return True


def hint_int(a: Any, fallback: int | None = None) -> int:
    """Returns a size; `fallback` would stand for one that is not known."""
    return int(a)


def sym_eq(x: Any, y: Any) -> bool:
    """Returns whether two sizes, or two lists or tuples of sizes, are equal.

    Raises:
        TypeError: for a size and a list.
    """
    if isinstance(x, list | tuple) != isinstance(y, list | tuple):
        raise TypeError(f"sym_eq: want two sizes or two lists of them, got {x!r:.60} and {y!r:.60}")
    return bool(x == y)


def free_symbols(val: Any) -> set[Any]:
    """Returns the symbols in sizes: none."""
    return set()


def free_unbacked_symbols(x: Any) -> set[Any]:
    """Returns the symbols in sizes that hang on values: none."""
    return set()


def has_free_symbols(val: Any) -> bool:
    """Returns whether there are symbols in sizes: False."""
    return False
