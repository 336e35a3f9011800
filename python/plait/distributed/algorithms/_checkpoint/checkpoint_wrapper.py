"""Modules whose forward pass keeps its inputs alone, and runs again in backward."""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable
from typing import Any

from plait.distributed.fsdp._module import swap_class
from plait.distributed.fsdp.wrap import asks, lambda_auto_wrap_policy
from plait.nn.modules.module import Module
from plait.utils.checkpoint import checkpoint


class CheckpointImpl(enum.Enum):
    """Which kind of checkpoint: see `plait.utils.checkpoint.checkpoint`."""

    REENTRANT = enum.auto()
    NO_REENTRANT = enum.auto()


class CheckpointWrapper(Module):
    """What `checkpoint_wrapper` adds to a module's class."""

    @property
    def _checkpoint_wrapped_module(self) -> Module:
        """The module: itself."""
        return self

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the module's own forward without keeping what its gradient needs."""
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
    """Makes a module compute its activations again in backward, in the place of keeping them, and returns it.

    The module itself is changed, to a class that is also `CheckpointWrapper`: names are its own.

    Args:
        module: whose forward takes tensors and anything else
        checkpoint_impl: the kind of checkpoint
        checkpoint_fn: called with forward and its arguments in the place of `plait.utils.checkpoint.checkpoint`
        checkpoint_fn_kwargs: more arguments of that
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
    """Makes checkpoints of the parts of a model that a function picks.

    Args:
        model: whose parts, and not itself
        checkpoint_wrapper_fn: makes a module a checkpoint
        check_fn: called with each part
        auto_wrap_policy: picks in its place, as for `FullyShardedDataParallel`
    """
    policy = auto_wrap_policy or functools.partial(lambda_auto_wrap_policy, lambda_fn=check_fn)
    _apply(model, checkpoint_wrapper_fn, asks(policy))


def _apply(module: Module, wrap: Callable[[Module], Module], ask: Callable[[Module, bool, int], Any]) -> int:
    """Wraps what a policy picks below a module, the innermost first, and returns how many elements that has."""
    taken = 0
    for name, child in module.named_children():
        elements = sum(p.numel() for p in child.parameters())
        below = _apply(child, wrap, ask) if ask(child, True, elements) else 0
        if ask(child, False, elements - below):
            made, below = wrap(child), elements
            if made is not child:
                setattr(module, name, made)
        taken += below
    return taken
