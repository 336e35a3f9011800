"""Hooks on tensors, which the engine asks for during backward, and the handles that remove them."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING

from plait import _core
from plait._engine.callbacks import collect, keep_with
from plait._engine.runtime import call, check

if TYPE_CHECKING:
    from plait._tensor import Tensor


class RemovableHandle:
    """Takes a hook away again: with `remove()`, or at the end of a `with` block."""

    def __init__(self, remove: Callable[[], object]) -> None:
        self._remove: Callable[[], object] | None = remove

    def remove(self) -> None:
        """Takes the hook away; doing it again does nothing."""
        if self._remove is not None:
            self._remove()
            self._remove = None

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


class EngineHook(_core.ObjectOwner, RemovableHandle):
    """The handle of a hook that the engine knows. Without it the hook stays."""

    def __init__(self, h: int) -> None:
        super().__init__(lambda: check(_core.bind_HookRemove(h)))
        self._h = h


def register_hook(t: Tensor, hook: Callable[[Tensor], Tensor | None]) -> RemovableHandle:
    """Does what `Tensor.register_hook` says."""
    if not t.requires_grad:
        raise RuntimeError("register_hook: cannot register a hook on a tensor that doesn't require gradient")
    collect()
    return EngineHook(call(_core.bind_HookAdd, t._h, keep_with(t, hook)))


def register_post_accumulate_grad_hook(t: Tensor, hook: Callable[[Tensor], None]) -> RemovableHandle:
    """Does what `Tensor.register_post_accumulate_grad_hook` says."""
    if not (t.is_leaf and t.requires_grad):
        raise RuntimeError(
            "register_post_accumulate_grad_hook: post accumulate grad hooks cannot be registered on non-leaf tensors, "
            "or on tensors that do not require a gradient"
        )
    leaf = weakref.ref(t)

    def run(_grad: Tensor) -> None:
        if (alive := leaf()) is not None:
            hook(alive)

    collect()
    return EngineHook(call(_core.bind_HookAddPost, t._h, keep_with(t, run)))
