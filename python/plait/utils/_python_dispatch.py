"""Modes and helpers for what takes over operations below functions, under PyTorch's names."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from plait._dispatch.schema import overloads
from plait._engine import arming
from plait._engine.missing_names import refusing as _refusing
from plait._engine.overriding import state
from plait._engine.runtime import is_tensor
from plait._tensor import Tensor

__all__ = [
    "TorchDispatchMode", "is_in_torch_dispatch_mode", "is_traceable_wrapper_subclass",
    "is_traceable_wrapper_subclass_type", "return_and_correct_aliasing", "transform_subclass",
]  # fmt: skip


class TorchDispatchMode:
    """A context manager in which its `__torch_dispatch__` is called in the place of operations, in the thread.

    While it runs, the mode is left: operations that it calls are those of the mode outside of it, if there is one.
    Operations of backward are not seen: the engine calls them.
    """

    def __init__(self, _dispatch_key: Any = None) -> None: ...

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Iterable[type], args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Returns what an operation does, or NotImplemented to leave it to others.

        Args:
            func: the operation, such as `plait.ops.aten.add.Tensor`
            types: the classes among its arguments that take operations over
            args: of the call, by position
            kwargs: by name
        """
        raise NotImplementedError(f"{type(self).__name__}: define __torch_dispatch__")

    def __enter__(self) -> Any:
        arming.load_operations()
        arming.enter(self, state.dispatch_modes)
        return self

    def __exit__(self, *exc: object) -> None:
        arming.leave(self, state.dispatch_modes)

    @classmethod
    def push(cls, *args: Any, **kwargs: Any) -> Any:
        """Returns a new mode, to be entered."""
        return cls(*args, **kwargs)


def is_in_torch_dispatch_mode(include_infra_modes: bool = True) -> bool:
    """Whether the thread is in a mode."""
    return bool(state.dispatch_modes)


def _get_current_dispatch_mode() -> Any:
    """Returns the innermost mode, or None."""
    return state.dispatch_modes[-1] if state.dispatch_modes else None


@contextlib.contextmanager
def _disable_current_modes() -> Iterator[list[Any]]:
    """A context manager in which the thread is in no mode."""
    left = state.dispatch_modes[:]
    state.dispatch_modes[:] = []
    try:
        yield left
    finally:
        state.dispatch_modes[:] = left


@contextlib.contextmanager
def _pop_mode_temporarily(k: Any = None) -> Iterator[Any]:
    """A context manager in which the innermost mode is left."""
    mode = state.dispatch_modes.pop()
    try:
        yield mode
    finally:
        state.dispatch_modes.append(mode)


def is_traceable_wrapper_subclass_type(t: type) -> bool:
    """Whether a class of tensors can be taken apart into others and put together again."""
    return issubclass(t, Tensor) and t is not Tensor and _has_both(t)


def _has_both(t: type) -> bool:
    return hasattr(t, "__tensor_flatten__") and hasattr(t, "__tensor_unflatten__")


def is_traceable_wrapper_subclass(t: object) -> bool:
    """Whether a tensor can be taken apart into others, by `__tensor_flatten__`, and put together again."""
    return is_tensor(t) and is_traceable_wrapper_subclass_type(type(t))


def transform_subclass(
    t: Any,
    callback: Callable[[str, Any], Any],
    outer_size: Any = None,
    outer_stride: Any = None,
) -> Any:
    """Returns a tensor like another one, of what a function makes of the tensors inside.

    Args:
        t: which can be taken apart
        callback: `callback(name, tensor)` returns what replaces a tensor inside
        outer_size: the shape of the result; by default that of `t`
        outer_stride: its strides; by default those of `t`
    """
    names, context = t.__tensor_flatten__()
    parts = {name: callback(name, getattr(t, name)) for name in names}
    size = t.size() if outer_size is None else outer_size
    stride = t.stride() if outer_stride is None else outer_stride
    return type(t).__tensor_unflatten__(parts, context, size, stride)


def return_and_correct_aliasing(func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> Any:
    """Returns the results of a `__torch_dispatch__`, where an argument is changed that argument.

    Args:
        func: the operation
        args: of the call, by position
        kwargs: by name
        out: what the class returns
    """
    schema = overloads(func._opname).get(func._overloadname)
    if schema is None or not schema.is_mutable:
        return out
    named = dict(zip((a.name for a in schema.arguments if not a.kwarg_only), args, strict=False)) | (kwargs or {})
    written = {
        frozenset(a.alias_info.before_set): named.get(a.name)
        for a in schema.arguments
        if a.alias_info is not None and a.alias_info.is_write
    }
    results = [
        o if r.alias_info is None or not r.alias_info.is_write else written[r.alias_info.before_set]
        for r, o in zip(schema.returns, out if isinstance(out, list | tuple) else [out], strict=False)
    ]
    if isinstance(out, list | tuple):
        return type(out)(results)
    return results[0] if results else out


__getattr__ = _refusing(
    __name__,
    "BaseTorchDispatchMode enable_python_dispatcher suggest_memory_format",
    "modes and classes take operations over by __torch_dispatch__",
)
