"""Levels of forward-mode derivatives, and the tangents of tensors at them."""

from __future__ import annotations

import threading

from plait import _core
from plait._engine.runtime import check, own
from plait._modes import no_grad
from plait._tensor import Tensor


class _Local(threading.local):
    def __init__(self) -> None:
        self.levels: list[int] = []


_local = _Local()


def levels() -> list[int]:
    """Returns the handles of the thread's open levels, the outermost first."""
    return _local.levels


def enter() -> int:
    """Opens a level inside the thread's others, and returns its handle."""
    level: int = check(_core.bind_ForwardEnter())
    _local.levels.append(level)
    return level


def leave(level: int) -> None:
    """Closes the thread's innermost level, whose tangents are dropped."""
    check(_core.bind_ForwardExit(level))
    _local.levels.remove(level)
    _core.bind_ObjectRelease(level)


class Level(_core.Scope):
    """A level, open inside the block."""

    def _begin(self) -> int:
        self.handle = enter()
        return self.handle

    def _end(self, before: int) -> None:
        leave(before)


class Below(_core.Scope):
    """Operations inside the block see only tangents at the levels around one, or none for the level 0."""

    _end = staticmethod(_core.bind_ModeSet)

    def __init__(self, level: int) -> None:
        self._level = level

    def _begin(self) -> int:
        before: int = check(_core.bind_ForwardBelow(self._level))
        return before


def dual(t: Tensor, tangent: Tensor | None, level: int) -> Tensor:
    """Returns a tensor over t's elements, in its place in the graph, with a tangent at a level; None is for none."""
    return own(check(_core.bind_ForwardDual(t._h, 0 if tangent is None else tangent._h, level)))


def tangent_of(t: Tensor, level: int) -> Tensor | None:
    """Returns the tangent of a tensor at a level, or None."""
    handle = check(_core.bind_ForwardTangent(t._h, level))
    return own(handle) if handle else None


def give(t: Tensor, tangent: Tensor, level: int) -> None:
    """Gives a tensor its tangent at a level, in the place of the one that it has."""
    check(_core.bind_ForwardTangentSet(t._h, tangent._h, level))


def bare(t: Tensor) -> Tensor:
    """Returns a tensor over t's elements without its place in the graph, but with its tangents."""
    if not _local.levels:
        return t.detach()
    with no_grad():
        return own(check(_core.bind_ForwardDual(t._h, 0, 0)))
