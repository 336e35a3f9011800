"""Flat names for nested states: the path "optimizer", "state", 0 becomes "optimizer.state.0"."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from plait._tensor import Tensor


def flatten(state: Any) -> dict[str, Any]:
    """Returns the tensors and values of a nested state by flat name.

    It descends into dicts, and into lists and tuples that contain tensors or dicts. Everything else is a value.

    Raises:
        ValueError: if two entries have the same name.
    """
    flat: dict[str, Any] = {}
    for path, value in _leaves(state, ()):
        name = ".".join(map(str, path))
        if name in flat:
            raise ValueError(f"the state has two entries that are called {name!r}")
        flat[name] = value
    return flat


def fill(state: Any, take: Callable[[str, Any], Any], path: tuple[Any, ...] = ()) -> Any:
    """Replaces each tensor and value of a nested state by `take(name, value)`, and returns the state.

    Dicts and lists are changed in place; tuples are replaced.
    """
    if isinstance(state, dict):
        for key in state:
            state[key] = fill(state[key], take, (*path, key))
        return state
    if _has_entries(state):
        items = [fill(v, take, (*path, i)) for i, v in enumerate(state)]
        if isinstance(state, tuple):
            return tuple(items)
        state[:] = items
        return state
    return take(".".join(map(str, path)), state)


def _leaves(state: Any, path: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], Any]]:
    if isinstance(state, dict):
        for key, value in state.items():
            yield from _leaves(value, (*path, key))
    elif _has_entries(state):
        for i, value in enumerate(state):
            yield from _leaves(value, (*path, i))
    else:
        yield path, state


def _has_entries(state: Any) -> bool:
    """Whether a list or tuple contains tensors or dicts, and so is not a value."""
    return isinstance(state, list | tuple) and any(isinstance(v, Tensor | dict) or _has_entries(v) for v in state)
