"""Activation checkpointing of modules: forward keeps only its inputs, and runs again in backward."""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable
from typing import Any

from plait.distributed._swap import swap_class
from plait.distributed.fsdp.wrap import as_policy, lambda_auto_wrap_policy
from plait.nn.modules.module import Module
from plait.utils.checkpoint import checkpoint


class CheckpointImpl(enum.Enum):
    """The implementation of the checkpoint: see `plait.utils.checkpoint.checkpoint`."""

    REENTRANT = enum.auto()
    NO_REENTRANT = enum.auto()


class CheckpointWrapper(Module):
    """The class that `checkpoint_wrapper` adds to a module's class."""

    @property
    def _checkpoint_wrapped_module(self) -> Module:
        """The module itself."""
        return self

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the module's own forward in a checkpoint."""
        function, reentrant, options = self.__dict__["_checkpointed"]
        run = super().forward
        if not reentrant:
            return function(run, *args, **options, **kwargs)
        n, names = len(args), list(kwargs)

        def positional(*values: Any) -> Any:
            return run(*values[:n], **dict(zip(names, values[n:], strict=True)))

        return function(positional, *args, *kwargs.values(), **options)


def checkpoint_wrapper(
    module: Module,
    checkpoint_impl: CheckpointImpl = CheckpointImpl.NO_REENTRANT,
    checkpoint_fn: Callable[..., Any] | None = None,
    **checkpoint_fn_kwargs: Any,
) -> Module:
    """Makes a module recompute its activations in backward instead of keeping them, and returns it.

    The module is changed in place: its class becomes a subclass of its own class and `CheckpointWrapper`. The names of
    its parameters do not change.

    Args:
        module: the module
        checkpoint_impl: the implementation of the checkpoint
        checkpoint_fn: called with forward and its arguments instead of `plait.utils.checkpoint.checkpoint`
        checkpoint_fn_kwargs: keyword arguments of that function
    """
    if not isinstance(module, Module):
        raise TypeError(f"checkpoint_wrapper: want a module, got {type(module).__name__}")
    if not isinstance(checkpoint_impl, CheckpointImpl):
        raise TypeError(f"checkpoint_wrapper: want a CheckpointImpl, got {checkpoint_impl!r}")
    reentrant = checkpoint_impl is CheckpointImpl.REENTRANT
    options = checkpoint_fn_kwargs if checkpoint_fn else {"use_reentrant": reentrant, **checkpoint_fn_kwargs}
    if not isinstance(module, CheckpointWrapper):
        swap_class(module, CheckpointWrapper, "Checkpoint")
    module.__dict__["_checkpointed"] = checkpoint_fn or checkpoint, reentrant, options
    return module


def apply_activation_checkpointing(
    model: Module,
    checkpoint_wrapper_fn: Callable[[Module], Module] = checkpoint_wrapper,
    check_fn: Callable[[Module], bool] = lambda _: True,
    auto_wrap_policy: Any = None,
) -> None:
    """Applies activation checkpointing to the submodules that a function selects.

    Args:
        model: the model, which itself is not wrapped
        checkpoint_wrapper_fn: wraps a module
        check_fn: selects submodules
        auto_wrap_policy: a policy as for `FullyShardedDataParallel`, used instead of `check_fn`
    """
    policy = auto_wrap_policy or functools.partial(lambda_auto_wrap_policy, lambda_fn=check_fn)
    _apply(model, checkpoint_wrapper_fn, as_policy(policy))


def _apply(module: Module, wrap: Callable[[Module], Module], ask: Callable[[Module, bool, int], Any]) -> int:
    """Wraps the submodules that a policy selects, the innermost first, and returns the number of their elements."""
    wrapped = 0
    for name, child in module.named_children():
        elements = sum(p.numel() for p in child.parameters())
        below = _apply(child, wrap, ask) if ask(child, True, elements) else 0
        if ask(child, False, elements - below):
            made, below = wrap(child), elements
            if made is not child:
                setattr(module, name, made)
        wrapped += below
    return wrapped
