"""Levels of `vmap`, and the tensors that are batched at them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from plait import _core, _ops
from plait._engine.pytree import flatten
from plait._engine.runtime import check, is_tensor, own
from plait._engine.warnings import warn
from plait._random import Position

if TYPE_CHECKING:
    from plait._tensor import Tensor


class _Local(threading.local):
    def __init__(self) -> None:
        self.levels: list[int] = []
        self.opened: dict[int, Level] = {}  # by their handles


_local = _Local()


def levels() -> list[int]:
    """Returns the handles of the thread's open levels, the outermost first."""
    return _local.levels


_DRAWS = {"error": 0, "different": 1, "same": 2}


class Level(_core.Scope):
    """A level for a batch of `size` parts, open inside the block. Random numbers are as `randomness` of `vmap` says."""

    def __init__(self, size: int, randomness: str = "error") -> None:
        self.size, self.randomness = size, randomness

    def _begin(self) -> int:
        outer = _local.levels[-1] if _local.levels else 0
        self.handle: int = check(_core.bind_VmapEnter(outer, self.size, _DRAWS[self.randomness]))
        _local.levels.append(self.handle)
        _local.opened[self.handle] = self
        return self.handle

    def _end(self, before: int) -> None:
        check(_core.bind_VmapExit(before))
        _local.levels.remove(before)
        del _local.opened[before]
        _core.bind_ObjectRelease(before)

    def wrap(self, t: Tensor) -> Tensor:
        """Returns the tensor that stands for each part of t along dimension 0."""
        return wrap(t, self.handle)

    def unwrap(self, t: Tensor) -> Tensor | None:
        """Returns the tensor whose dimension 0 is the batch of t, or None if t is the same for all parts."""
        return unwrap(t, self.handle)

    def whole(self, t: Tensor) -> Tensor:
        """Returns the tensor whose dimension 0 is the batch of t, also if t is the same for all parts."""
        found = self.unwrap(t)
        return _ops.expand(t, (self.size, *t.shape)) if found is None else found


def opened(at: int) -> Level:
    """Returns the thread's open level at a depth, counted from 1 for the outermost."""
    return _local.opened[_local.levels[at - 1]]


class Below(_core.Scope):
    """Inside the block, the thread's levels are those around the one at a depth."""

    def __init__(self, at: int) -> None:
        self._at = at

    def _begin(self) -> tuple[list[int], int]:
        before = _local.levels
        _local.levels = before[: self._at - 1]
        return before, _core.bind_VmapDrawBelow(self._at)

    def _end(self, before: tuple[list[int], int]) -> None:
        _local.levels, below = before
        _core.bind_VmapDrawBelow(below)


def wrap(t: Tensor, level: int) -> Tensor:
    """Returns the tensor that stands for each part of t along dimension 0 at a level."""
    made: Tensor = own(check(_core.bind_VmapWrap(t._h, level)))
    return made


def unwrap(t: Tensor, level: int) -> Tensor | None:
    """Returns the tensor whose dimension 0 is the batch of t at a level, or None if t is not batched at it."""
    handle = check(_core.bind_VmapUnwrap(t._h, level))
    return own(handle) if handle else None


def depth(*values: Any) -> int:
    """Returns how many levels deep tensors, of which values may have some, are batched; 0 outside of vmap."""
    if not _local.levels:
        return 0
    return max((_core.bind_VmapDepth(v._h) for v in values if is_tensor(v)), default=0)


def behind(t: Tensor) -> Tensor:
    """Returns the ordinary tensor that has the elements of all parts of a batched one; t itself outside of vmap."""
    while (inner := inside(t)) is not None:
        t = inner
    return t


def inside(t: Tensor) -> Tensor | None:
    """Returns the tensor that has the parts of a batched one at its innermost level, or None for an ordinary one."""
    handle = check(_core.bind_VmapWhole(t._h))
    return own(handle) if handle else None


def everywhere(t: Tensor) -> Tensor:
    """Returns a tensor batched at all of the thread's open levels, so that its gradient differs from part to part."""
    for level in _local.levels:
        if unwrap(t, level) is None:
            t = own(check(_core.bind_VmapBatched(t._h, level)))
    return t


def filled_like(made: Tensor, t: Tensor) -> Tensor:
    """Returns a new tensor batched as t is, so that it can hold what differs from part to part."""
    levels = [level for level in _local.levels if unwrap(t, level) is not None]
    for level in levels:
        made = own(check(_core.bind_VmapBatched(made._h, level)))
    return _ops.clone(made) if levels else made


def each(function: Callable[..., Any], args: Sequence[Any], at: int) -> Any:
    """Calls a function for each part of the batch of its arguments at a depth, one by one, and stacks its results."""
    level = opened(at)
    wholes = [level.unwrap(a) if is_tensor(a) else None for a in args]
    parts = [None if w is None else _ops.unbind(w, 0) for w in wholes]
    start = Position({a.device for a in args if is_tensor(a)}) if level.randomness == "same" else None
    made = []
    for i in range(level.size):
        if start is not None:
            start.back()
        made.append(flatten(function(*(a if p is None else p[i] for a, p in zip(args, parts, strict=True)))))
    columns = zip(*(leaves for leaves, _ in made), strict=True)
    return made[0][1]([level.wrap(_ops.stack(c)) if is_tensor(c[0]) else c[0] for c in map(list, columns)])


def report() -> None:
    """Warns of the operations that were applied to the parts of batches one by one, of each once."""
    for name in _core.bind_VmapLooped().split():
        warn(f"vmap: {name} has no rule for batches: it is applied to the parts one by one, which is slower")
