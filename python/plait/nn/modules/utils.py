"""Helpers that scripts with layers of their own import."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import repeat
from typing import Any

__all__ = ["consume_prefix_in_state_dict_if_present"]


def _ntuple(n: int) -> Callable[[Any], tuple[Any, ...]]:
    """Returns a function that makes a tuple of n equal values, and one of what can be iterated over."""
    return lambda x: tuple(x) if isinstance(x, Iterable) else tuple(repeat(x, n))


_single, _pair, _triple, _quadruple = (_ntuple(n) for n in (1, 2, 3, 4))


def _reverse_repeat_tuple(t: Iterable[Any], n: int) -> tuple[Any, ...]:
    """Returns the values from the last to the first, each n times."""
    return tuple(x for x in reversed(tuple(t)) for _ in range(n))


def consume_prefix_in_state_dict_if_present(state_dict: dict[str, Any], prefix: str) -> None:
    """Takes a prefix, such as "module.", off the names that begin with it, in place and in order.

    Args:
        state_dict: what a wrapped module's `state_dict` returned
        prefix: what names lose
    """
    items = list(state_dict.items())
    state_dict.clear()
    state_dict.update((name.removeprefix(prefix), value) for name, value in items)
    metadata = getattr(state_dict, "_metadata", None)
    if metadata is None:
        return
    versions = list(metadata.items())
    metadata.clear()
    for name, version in versions:
        if name in ("", prefix.rstrip(".")):
            metadata[""] = version  # of the wrapped module, which comes later
        else:
            metadata[name.removeprefix(prefix)] = version
