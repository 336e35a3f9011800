"""Dimensions of tensors put in another order, split and joined, by a pattern of their names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from math import prod

from plait import _ops
from plait._tensor import Tensor

Group = tuple[str, ...]  # names of what one dimension is made of; () is a dimension of size 1
REST: Group = ("...", "")  # dimensions that stay as they are


@lru_cache(256)
def _sides(pattern: str) -> tuple[tuple[Group, ...], tuple[Group, ...]]:
    """Returns the groups of a pattern to the left and to the right of its arrow."""
    sides = pattern.split("->")
    if len(sides) != 2:
        raise ValueError(f"rearrange: want one '->' in a pattern, got {pattern!r}")
    left, right = (_groups(side, pattern) for side in sides)
    if any("..." in g and g is not REST for g in left):
        raise ValueError(f"rearrange: '...' stands in brackets on the left side of {pattern!r}")
    missing = {n for g in left for n in g if n} ^ {n for g in right for n in g if n}
    if missing:
        raise ValueError(f"rearrange: {sorted(missing)} stand on one side only of {pattern!r}")
    return left, right


def _groups(side: str, pattern: str) -> tuple[Group, ...]:
    groups: list[Group] = []
    inner: list[str] | None = None  # the group that is open
    seen: set[str] = set()
    for word in re.findall(r"\.\.\.|\w+|\S", side.replace("…", "...")):
        if word == "(" and inner is None:
            inner = []
        elif word == ")" and inner is not None:
            groups.append(tuple(inner))
            inner = None
        elif word == "1":
            if inner is None:
                groups.append(())
        elif word != "..." and (not word.isidentifier() or word.strip("_") != word):
            want = "names, '1', '...' and brackets that are not nested"
            raise ValueError(f"rearrange: want {want}, got {word!r} in {pattern!r}")
        elif word in seen:
            raise ValueError(f"rearrange: {word!r} stands twice on one side of {pattern!r}")
        else:
            seen.add(word)
            if inner is None:
                groups.append(REST if word == "..." else (word,))
            else:
                inner.append(word)
    if inner is not None:
        raise ValueError(f"rearrange: a bracket of {pattern!r} is not closed")
    return tuple(groups)


def rearrange(tensor: Tensor | Sequence[Tensor], pattern: str, **axes_lengths: int) -> Tensor:
    """Returns a tensor with its dimensions in another order, split, and joined, as a pattern says.

    In `"b (h p) w -> b h (p w)"` a name stands for a dimension, and brackets for one that is made of others, the first
    of which changes slowest. "..." stands for any dimensions, and 1 for one of size 1. The left side describes the
    tensor, the right one the result; both have the same names.

    Args:
        tensor: the tensor, or several of one shape, which are stacked along a new first dimension
        pattern: the description
        axes_lengths: sizes of names in brackets; one of each bracket follows from the others

    Raises:
        ValueError: for a pattern, or sizes, that do not fit the tensor.
    """
    if not isinstance(tensor, Tensor):
        tensor = _ops.stack(list(tensor))
    left, right = _sides(pattern)
    shape = list(tensor.shape)
    rest = len(shape) - len(left) + 1  # how many "..." stands for
    if rest < 0 if REST in left else rest != 1:
        raise ValueError(f"rearrange: {pattern!r} does not have the dimensions of shape {shape} on its left side")
    names = {n for g in left for n in g if n not in REST}
    if unknown := sorted(set(axes_lengths) - names):
        raise ValueError(f"rearrange: got sizes of {unknown}, which {pattern!r} does not name")
    sizes: dict[str, list[int]] = {n: [s] for n, s in axes_lengths.items()}
    at = 0
    for group in left:
        if group is REST:
            sizes["..."] = shape[at : at + rest]
            at += rest
            continue
        size, at = shape[at], at + 1
        open_ = [n for n in group if n not in sizes]
        known = prod(sizes[n][0] for n in group if n in sizes)
        if len(open_) > 1:
            raise ValueError(f"rearrange: want sizes of all but one of {open_} in {pattern!r}")
        if open_ and known and size % known == 0:
            sizes[open_[0]] = [size // known]
        elif open_ or known != size:
            given = {n: sizes[n][0] for n in group if n in sizes}
            raise ValueError(f"rearrange: a dimension of size {size} is no ({' '.join(group)}) with {given}")
    order = [n for g in left for n in g if n]
    places, place = {}, 0
    for n in order:
        places[n] = range(place, place + len(sizes[n]))
        place += len(sizes[n])
    split = _ops.reshape(tensor, [s for n in order for s in sizes[n]])
    moved = _ops.permute(split, [p for g in right for n in g if n for p in places[n]])
    out: list[int] = []
    for group in right:
        out += sizes["..."] if group is REST else [prod(s for n in group for s in sizes[n])]
    return _ops.reshape(moved, out)
