"""Nested tuples, lists and dicts: taken apart into their leaves, and put together again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any


def children(tree: Any) -> tuple[list[Any], Callable[[Sequence[Any]], Any]] | None:
    """Returns the parts of a container and what makes one like it of other parts; None for anything else."""
    if isinstance(tree, dict):
        keys = list(tree)
        return list(tree.values()), lambda parts: type(tree)(zip(keys, parts, strict=True))
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return list(tree), lambda parts: type(tree)(*parts)
    if type(tree) in (tuple, list):
        return list(tree), type(tree)
    return None


def flatten(tree: Any) -> tuple[list[Any], Callable[[Sequence[Any]], Any]]:
    """Returns the leaves of a tree, and what makes a tree of the same form of as many others."""
    found = children(tree)
    if found is None:
        return [tree], lambda leaves: leaves[0]
    parts, build = found
    flat = [flatten(p) for p in parts]

    def rebuild(leaves: Sequence[Any]) -> Any:
        made, at = [], 0
        for below, make in flat:
            made.append(make(leaves[at : at + len(below)]))
            at += len(below)
        return build(made)

    return [leaf for below, _ in flat for leaf in below], rebuild


def tree_map(function: Callable[..., Any], tree: Any) -> Any:
    """Returns a tree of what a function returns for the leaves of another."""
    leaves, build = flatten(tree)
    return build([function(leaf) for leaf in leaves])


def spread(prefix: Any, tree: Any, name: str) -> list[Any]:
    """Returns a value for each leaf of a tree from a smaller tree, of which a leaf stands for all that is below it.

    Raises:
        ValueError: if a container of `prefix` is none in `tree`, or has another length.
    """
    inner = children(prefix)
    if inner is None:
        return [prefix] * len(flatten(tree)[0])
    outer = children(tree)
    if outer is None or len(inner[0]) != len(outer[0]):
        raise ValueError(f"{name} {prefix!r} does not have the form of what it is for")
    return [value for p, t in zip(inner[0], outer[0], strict=True) for value in spread(p, t, name)]
