"""Hooks: functions that are called around a module's forward and backward."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Any

from plait import _ops
from plait._autograd import RemovableHandle
from plait._modes import is_grad_enabled
from plait._tensor import Tensor

Hook = Callable[..., Any]


class Hooks:
    """The hooks of one kind in the order in which they are called, with the options that each was registered with."""

    __slots__ = ("_next", "table")

    def __init__(self) -> None:
        self.table: OrderedDict[int, tuple[Hook, bool, bool]] = OrderedDict()
        self._next = 0

    def __len__(self) -> int:
        return len(self.table)

    def __iter__(self) -> Any:
        return iter(tuple(self.table.values()))

    def add(
        self, hook: Hook, with_kwargs: bool = False, always_call: bool = False, prepend: bool = False
    ) -> RemovableHandle:
        """Adds a hook after the others, or before them."""
        if not callable(hook):
            raise TypeError(f"register hook: want a function, got {type(hook).__name__}")
        key = self._next
        self._next += 1
        self.table[key] = (hook, with_kwargs, always_call)
        if prepend:
            self.table.move_to_end(key, last=False)
        return RemovableHandle(partial(self._remove, key))

    def _remove(self, key: int) -> None:
        self.table.pop(key, None)


# The hooks of all modules.
_global_forward_pre, _global_forward, _global_backward_pre, _global_backward = Hooks(), Hooks(), Hooks(), Hooks()
GLOBAL = (_global_forward_pre.table, _global_forward.table, _global_backward_pre.table, _global_backward.table)


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
    return _global_backward.add(hook)


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

    def register_forward_pre_hook(
        self, hook: Hook, *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """Calls `hook(module, args)` before forward; what it returns, if not None, replaces the arguments.

        Args:
            hook: the function
            prepend: call it before the other hooks
            with_kwargs: call `hook(module, args, kwargs)`, which may return both
        """
        return self._forward_pre_hooks.add(hook, with_kwargs, prepend=prepend)

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
        return self._forward_hooks.add(hook, with_kwargs, always_call, prepend)

    def register_full_backward_pre_hook(self, hook: Hook, prepend: bool = False) -> RemovableHandle:
        """Calls `hook(module, grad_output)` before backward; what it returns, if not None, replaces the gradients."""
        return self._backward_pre_hooks.add(hook, prepend=prepend)

    def register_full_backward_hook(self, hook: Hook, prepend: bool = False) -> RemovableHandle:
        """Calls `hook(module, grad_input, grad_output)` after backward; what it returns replaces `grad_input`."""
        return self._backward_hooks.add(hook, prepend=prepend)

    register_backward_hook = register_full_backward_hook

    def _call_hooked(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Does what calling the module does where there are hooks."""
        called: set[int] = set()
        try:
            return self._call_with_hooks(args, kwargs, called)
        except Exception:
            for i, (hook, with_kwargs, always) in enumerate([*_global_forward, *self._forward_hooks]):
                if always and i not in called:
                    hook(self, args, kwargs, None) if with_kwargs else hook(self, args, None)
            raise

    def _call_with_hooks(self, args: tuple[Any, ...], kwargs: dict[str, Any], called: set[int]) -> Any:
        for hook, with_kwargs, _ in [*_global_forward_pre, *self._forward_pre_hooks]:
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
        pre, post = [*_global_backward_pre, *self._backward_pre_hooks], [*_global_backward, *self._backward_hooks]
        watch = _BackwardWatch(self, pre, post) if (pre or post) and is_grad_enabled() else None
        if watch is not None:
            args = watch.inputs(args)
        out = self.forward(*args, **kwargs)  # type: ignore[attr-defined]
        for i, (hook, with_kwargs, _) in enumerate([*_global_forward, *self._forward_hooks]):
            called.add(i)
            result = hook(self, args, kwargs, out) if with_kwargs else hook(self, args, out)
            out = out if result is None else result
        return out if watch is None else watch.outputs(out)


class _BackwardWatch:
    """Calls the backward hooks of one call of a module, from hooks on its inputs and outputs."""

    def __init__(self, module: Any, pre: list[Any], post: list[Any]) -> None:
        self.module = module
        self.pre, self.post = [h[0] for h in pre], [h[0] for h in post]
        self.places: list[int] = []  # of the inputs that require a gradient among all arguments
        self.count = 0
        self.grad_in: dict[int, Tensor | None] = {}
        self.grad_out: list[Tensor | None] = []

    def inputs(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Returns the arguments, with tensors that require a gradient replaced by watched ones."""
        self.count = len(args)
        self.places = [i for i, a in enumerate(args) if isinstance(a, Tensor) and a.requires_grad]
        out = list(args)
        for i in self.places:
            out[i] = _ops.view_as(args[i], args[i])
            out[i].register_hook(partial(self.on_input, i))
        return tuple(out)

    def outputs(self, out: Any) -> Any:
        """Returns the output, with its tensors that require a gradient replaced by watched ones."""
        parts = [out] if isinstance(out, Tensor) else list(out) if isinstance(out, tuple | list) else []
        self.grad_out = [None] * len(parts)
        watched = [i for i, p in enumerate(parts) if isinstance(p, Tensor) and p.requires_grad]
        self.left = self.expected = len(watched)
        for i in watched:
            parts[i] = _ops.view_as(parts[i], parts[i])
            parts[i].register_hook(partial(self.on_output, i))
        if isinstance(out, Tensor):
            return parts[0]
        if hasattr(out, "_fields"):
            return type(out)(*parts)
        return type(out)(parts) if isinstance(out, tuple | list) else out

    def on_output(self, i: int, grad: Tensor) -> Tensor | None:
        """Takes the gradient of an output."""
        self.left -= 1
        self.grad_out[i] = grad
        if self.left == 0:
            for hook in self.pre:
                result = hook(self.module, tuple(self.grad_out))
                if result is not None:
                    self.grad_out = list(result) if isinstance(result, tuple) else [result]
            replaced = self.grad_out[i]
            self.left = self.expected
            if not self.places:
                self.finish()
            return None if replaced is grad else replaced
        return None

    def on_input(self, i: int, grad: Tensor) -> Tensor | None:
        """Takes the gradient of an input; the hooks are called with the last one."""
        self.grad_in[i] = grad
        if len(self.grad_in) < len(self.places):
            return None
        others = {j: g for j, g in self.grad_in.items() if j != i}
        changed = self.finish()
        if any(changed[j] is not g for j, g in others.items()):
            # They have flowed on: the hooks are called with the last one.
            raise NotImplementedError("backward hook: only a module with one input can have its grad_input replaced")
        return None if changed[i] is grad else changed[i]

    def finish(self) -> list[Tensor | None]:
        """Calls the hooks after backward and returns the gradients of the inputs."""
        grads: list[Tensor | None] = [self.grad_in.get(i) for i in range(self.count)]
        for hook in self.post:
            result = hook(self.module, tuple(grads), tuple(self.grad_out))
            if result is not None:
                changed = list(result) if isinstance(result, tuple) else [result]
                if len(changed) != len(grads):
                    raise RuntimeError(f"backward hook: returned {len(changed)} gradients, want {len(grads)}")
                grads = changed
        self.grad_in, self.grad_out, self.left = {}, [None] * len(self.grad_out), self.expected
        return grads
