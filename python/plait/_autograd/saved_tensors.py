"""Hooks on the values that nodes save for their derivatives.

The engine never calls Python. A function of it whose nodes saved values under hooks returns a status that says so, and
the values are packed before it returns to the program; a backward pass asks for them when a node needs them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from plait import _core
from plait._engine.callbacks import keep
from plait._engine.runtime import check, is_tensor, own, set_packer
from plait._modes import no_grad

if TYPE_CHECKING:
    from plait._tensor import Tensor

Pack: TypeAlias = "Callable[[Tensor], Any]"
Unpack: TypeAlias = "Callable[[Any], Tensor]"


class _Stack(threading.local):
    """The hooks of the calling thread, innermost last, and why there may be none."""

    def __init__(self) -> None:
        self.hooks: list[tuple[saved_tensors_hooks, int]] = []  # each with its handle
        self.disabled: list[str | None] = [None]


stack = _Stack()


class saved_tensors_hooks(_core.Scope):  # noqa: N801
    """Inside, what operations save for their derivatives goes through two functions.

    Args:
        pack_hook: gets a tensor that a node saves, without a gradient, and returns anything
        unpack_hook: gets what the other returned, when backward needs the value, and returns a tensor with the same
            elements
    """

    def __init__(self, pack_hook: Pack, unpack_hook: Unpack) -> None:
        self.pack_hook, self.unpack_hook = pack_hook, unpack_hook

    def _begin(self) -> tuple[saved_tensors_hooks, int]:
        if (message := stack.disabled[-1]) is not None:
            raise RuntimeError(message)
        outer = len(stack.hooks)
        try:
            stack.hooks.append((self, check(_core.bind_SavedHooksPush())))
            return stack.hooks[-1]
        except BaseException:  # Ctrl-C: the block does not run
            del stack.hooks[outer:]
            raise

    def _end(self, begun: tuple[saved_tensors_hooks, int]) -> None:
        if begun not in stack.hooks:
            return  # Ctrl-C came after the end
        try:
            check(_core.bind_SavedHooksPop(begun[1]))
        finally:
            stack.hooks.remove(begun)


def pack(t: Tensor, hook: Pack) -> Any:
    """Returns what a hook makes of a value that is saved; nothing is recorded meanwhile."""
    version = t._version
    packed = hook(t)
    if t._version != version:
        raise RuntimeError(
            "saved_tensors_hooks: pack_hook has modified its input in place, which others use; clone it first"
        )
    return packed


def unpack(packed: Any, hook: Unpack) -> Tensor:
    """Returns the value that hooks have packed."""
    t = hook(packed)
    if not is_tensor(t):
        raise TypeError(f"saved_tensors_hooks: unpack_hook must return a Tensor, got {type(t).__name__}")
    return t


def pack_waiting(status: int) -> int:
    """Packs the values that a function of the engine saved, and returns the function's own status."""
    if not stack.hooks:  # the hooks are those of the thread that started this one: nodes keep what they saved
        return check(_core.bind_PackEnd(status))
    hooks, _ = stack.hooks[-1]
    mode = _core.bind_ModeGet()
    try:
        _core.bind_GradSet(False)
        while h := check(_core.bind_PackNext(status)):
            packed = pack(own(h), hooks.pack_hook)
            check(_core.bind_PackDone(status, keep((hooks.unpack_hook, packed))))
    except BaseException:
        result = _core.bind_PackEnd(status)
        _core.bind_TensorRelease(result)  # one of the two is what the handle names
        _core.bind_ObjectRelease(result)
        raise
    finally:
        _core.bind_ModeSet(mode)
    return check(_core.bind_PackEnd(status))


set_packer(pack_waiting)


class Packed(_core.ObjectOwner):
    """A value that a custom function saved under hooks, and its place in the graph."""

    __slots__ = ("_unpack", "_value")

    def __init__(self, t: Tensor, hooks: saved_tensors_hooks) -> None:
        self._h = check(_core.bind_AutogradMetaOf(t._h))
        with no_grad():
            self._unpack, self._value = hooks.unpack_hook, pack(t.detach(), hooks.pack_hook)

    def tensor(self) -> Tensor:
        """Returns the value."""
        t = unpack(self._value, self._unpack)
        return own(check(_core.bind_AutogradMetaRestore(t._h, self._h))) if self._h else t.detach()
