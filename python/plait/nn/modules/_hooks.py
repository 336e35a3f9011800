"""Hooks: functions that are called around a module's forward and backward."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from plait._autograd.hooks import RemovableHandle
from plait.nn.modules._backward import BackwardWatch, watch_last

Hook = Callable[..., Any]


class Hooks(OrderedDict[int, Hook]):
    """The hooks of one kind by their numbers, in the order in which they are called.

    Programs may change it as they do PyTorch's. The options that hooks were registered with are beside it.
    """

    def __init__(self, hooks: Mapping[int, Hook] | Iterable[tuple[int, Hook]] = ()) -> None:
        super().__init__(hooks)
        self._options: dict[int, tuple[bool, bool]] = {}
        self._next = max(self, default=-1) + 1
        self.full: bool | None = None  # of hooks around backward: whether they see the whole module

    def entries(self) -> list[tuple[Hook, bool, bool]]:
        """Returns the hooks with their options: with_kwargs and always_call."""
        return [(hook, *self._options.get(key, (False, False))) for key, hook in self.items()]

    def add(
        self,
        hook: Hook,
        with_kwargs: bool = False,
        always_call: bool = False,
        prepend: bool = False,
        full: bool | None = None,
    ) -> RemovableHandle:
        """Adds a hook after the others, or before them."""
        if not callable(hook):
            raise TypeError(f"register hook: want a function, got {type(hook).__name__}")
        if full is not None and self.full is (not full):
            raise RuntimeError(
                "register hook: Cannot use both regular backward hooks and full backward hooks in one place; "
                "use register_full_backward_hook"
            )
        self.full = full
        key = self._next
        self._next += 1
        self[key] = hook
        if with_kwargs or always_call:
            self._options[key] = with_kwargs, always_call
        if prepend:
            self.move_to_end(key, last=False)
        return RemovableHandle(partial(self._remove, key))

    def _remove(self, key: int) -> None:
        self.pop(key, None)
        self._options.pop(key, None)


# The hooks of all modules.
_global_forward_pre, _global_forward, _global_backward_pre, _global_backward = Hooks(), Hooks(), Hooks(), Hooks()
GLOBAL = (_global_forward_pre, _global_forward, _global_backward_pre, _global_backward)


def register_module_forward_pre_hook(hook: Hook) -> RemovableHandle:
    """Calls `hook(module, args)` before every module's forward."""
    return _global_forward_pre.add(hook)


def register_module_forward_hook(
    hook: Hook, *, with_kwargs: bool = False, always_call: bool = False
) -> RemovableHandle:
    """Calls `hook(module, args, output)` after every module's forward."""
    return _global_forward.add(hook, with_kwargs, always_call)


def register_module_full_backward_pre_hook(hook: Hook) -> RemovableHandle:
    """Calls `hook(module, grad_output)` before every module's backward."""
    return _global_backward_pre.add(hook)


def register_module_full_backward_hook(hook: Hook) -> RemovableHandle:
    """Calls `hook(module, grad_input, grad_output)` after every module's backward."""
    return _global_backward.add(hook, full=True)


def register_module_backward_hook(hook: Hook) -> RemovableHandle:
    """Deprecated: calls `hook(module, grad_input, grad_output)` with the gradients of each module's last operation."""
    return _global_backward.add(hook, full=False)


def new_hooks() -> dict[str, Any]:
    """Returns the empty tables of a module's hooks."""
    return {
        "_forward_pre_hooks": Hooks(),
        "_forward_hooks": Hooks(),
        "_backward_pre_hooks": Hooks(),
        "_backward_hooks": Hooks(),
        "_state_dict_hooks": OrderedDict(),
        "_state_dict_pre_hooks": OrderedDict(),
        "_load_state_dict_pre_hooks": OrderedDict(),
        "_load_state_dict_post_hooks": OrderedDict(),
    }


class HookMethods:
    """Registering hooks, and calling forward with them."""

    _forward_pre_hooks: Hooks
    _forward_hooks: Hooks
    _backward_pre_hooks: Hooks
    _backward_hooks: Hooks

    def _table_of_hooks(self, kind: str) -> Hooks:
        """Returns the hooks of a kind, also where the program has put another dict in their place."""
        held = self.__dict__[kind]
        if type(held) is not Hooks:
            held = self.__dict__[kind] = Hooks(held)
        return held

    def register_forward_pre_hook(
        self, hook: Hook, *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """Calls `hook(module, args)` before forward; what it returns, if not None, replaces the arguments.

        Args:
            hook: the function
            prepend: call it before the other hooks
            with_kwargs: call `hook(module, args, kwargs)`, which may return both
        """
        return self._table_of_hooks("_forward_pre_hooks").add(hook, with_kwargs, prepend=prepend)

    def register_forward_hook(
        self, hook: Hook, *, prepend: bool = False, with_kwargs: bool = False, always_call: bool = False
    ) -> RemovableHandle:
        """Calls `hook(module, args, output)` after forward; what it returns, if not None, replaces the output.

        Args:
            hook: the function
            prepend: call it before the other hooks
            with_kwargs: call `hook(module, args, kwargs, output)`
            always_call: call it, with None as the output, also if forward raises
        """
        return self._table_of_hooks("_forward_hooks").add(hook, with_kwargs, always_call, prepend)

    def register_full_backward_pre_hook(self, hook: Hook, prepend: bool = False) -> RemovableHandle:
        """Calls `hook(module, grad_output)` before backward; what it returns, if not None, replaces the gradients."""
        return self._table_of_hooks("_backward_pre_hooks").add(hook, prepend=prepend)

    def register_full_backward_hook(self, hook: Hook, prepend: bool = False) -> RemovableHandle:
        """Calls `hook(module, grad_input, grad_output)` after backward; what it returns replaces `grad_input`."""
        return self._table_of_hooks("_backward_hooks").add(hook, prepend=prepend, full=True)

    def register_backward_hook(self, hook: Hook) -> RemovableHandle:
        """Deprecated: calls `hook(module, grad_input, grad_output)` with the gradients of the last operation."""
        return self._table_of_hooks("_backward_hooks").add(hook, full=False)

    def _call_hooked(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Does what calling the module does where there are hooks."""
        called: set[int] = set()
        try:
            return self._call_with_hooks(args, kwargs, called)
        except Exception:
            for i, (hook, with_kwargs, always) in enumerate(
                [*_global_forward.entries(), *self._table_of_hooks("_forward_hooks").entries()]
            ):
                if always and i not in called:
                    hook(self, args, kwargs, None) if with_kwargs else hook(self, args, None)
            raise

    def _call_with_hooks(self, args: tuple[Any, ...], kwargs: dict[str, Any], called: set[int]) -> Any:
        for hook, with_kwargs, _ in [
            *_global_forward_pre.entries(),
            *self._table_of_hooks("_forward_pre_hooks").entries(),
        ]:
            result = hook(self, args, kwargs) if with_kwargs else hook(self, args)
            if result is None:
                continue
            if not with_kwargs:
                args = result if isinstance(result, tuple) else (result,)
            elif isinstance(result, tuple) and len(result) == 2:
                args, kwargs = result
            else:
                raise RuntimeError(
                    "forward pre-hook: with_kwargs wants None or a tuple of arguments and keyword arguments"
                )
        pre = [*_global_backward_pre.values(), *self._backward_pre_hooks.values()]
        around = (_global_backward, self._table_of_hooks("_backward_hooks"))
        post = [h for hooks in around if hooks.full for h in hooks.values()]
        old = [h for hooks in around if not hooks.full for h in hooks.values()]
        watch = BackwardWatch(self, pre, post) if pre or post else None
        if watch is not None:
            args = watch.inputs(args)
        out = self.forward(*args, **kwargs)  # type: ignore[attr-defined]
        for i, (hook, with_kwargs, _) in enumerate(
            [*_global_forward.entries(), *self._table_of_hooks("_forward_hooks").entries()]
        ):
            called.add(i)
            result = hook(self, args, kwargs, out) if with_kwargs else hook(self, args, out)
            out = out if result is None else result
        if watch is not None:
            out = watch.outputs(out)
        if old:
            watch_last(self, old, out)
        return out
