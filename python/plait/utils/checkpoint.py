"""Computing activations again in backward, in the place of keeping them (Chen et al. 2016)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from plait import _autograd, _core, _ops
from plait._modes import autocast_of, enable_grad, is_grad_enabled
from plait._random import get_rng_state, set_rng_state
from plait._tensor import Tensor
from plait.autograd.function import Function


class CheckpointError(RuntimeError):
    """A function that did not compute the same when it was run again."""


def noop_context_fn() -> tuple[Any, Any]:
    """Returns two context managers that do nothing."""
    return contextlib.nullcontext(), contextlib.nullcontext()


class _Job:
    """What is to be computed, and where random numbers stood the first time."""

    def __init__(self, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], again: Any) -> None:
        self.function, self.kwargs, self.again = function, kwargs, again
        # Tensors are the node's to keep: only their places are noted here.
        self.args = [None if isinstance(a, Tensor) else a for a in args]
        self.places = [i for i, a in enumerate(args) if isinstance(a, Tensor)]
        self.random: dict[str, tuple[int, int]] = {}
        self.mode = _core.bind_ModeGet()

    def run(self, tensors: Sequence[Tensor]) -> Any:
        args = list(self.args)
        for i, t in zip(self.places, tensors, strict=True):
            args[i] = t
        return self.function(*args, **self.kwargs)


class _Checkpoint(Function):
    @staticmethod
    def forward(ctx: Any, job: _Job, context: Any, _root: Tensor, *tensors: Tensor) -> Any:
        """Runs the function and keeps its inputs alone."""
        ctx.job = job
        ctx.save_for_backward(*tensors)
        with context:
            out = job.run(tensors)
        return tuple(out) if isinstance(out, list) else out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
        """Runs the function again, and a backward pass through it."""
        if _autograd.passes.restricted:
            raise RuntimeError(
                "checkpoint: want backward() without inputs: the parameters that the function uses collect their "
                "gradients in a pass of their own, which grad() and inputs= would miss"
            )
        job: _Job = ctx.job
        given = ctx.saved_tensors
        tensors = [t.detach().requires_grad_(t.requires_grad) for t in given]
        now = {where: get_rng_state(where) for where in job.random}
        for where, state in job.random.items():
            set_rng_state(state, where)
        try:
            with enable_grad(), autocast_of(job.mode), job.again:
                out = job.run(tensors)
        finally:
            for where, state in now.items():
                set_rng_state(state, where)
        outputs = list(out) if isinstance(out, tuple | list) else [out]
        if len(outputs) != len(grads):
            raise CheckpointError(
                f"checkpoint: the function returned {len(grads)} values the first time and {len(outputs)} when it was "
                "run again; it must compute the same"
            )
        pairs = [
            (o, g)
            for o, g in zip(outputs, grads, strict=True)
            if isinstance(o, Tensor) and o.requires_grad and g is not None
        ]
        if pairs:
            _autograd.backward([o for o, _ in pairs], [g for _, g in pairs])
        return (None, None, None, *(t.grad for t in tensors))


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool | None = None,
    preserve_rng_state: bool = True,
    context_fn: Callable[[], tuple[Any, Any]] = noop_context_fn,
    determinism_check: str = "default",
    debug: bool = False,
    early_stop: bool = True,
    **kwargs: Any,
) -> Any:
    """Calls a function without keeping what its gradient needs: backward runs it again.

    Parameters that the function uses collect gradients; other tensors must be among its arguments. It must compute
    the same both times. Only `backward()` goes through it, not `autograd.grad` or `backward(inputs=...)`.

    Args:
        function: takes args and kwargs
        args: its arguments; gradients flow to tensors among them
        use_reentrant: has no effect
        preserve_rng_state: draw the same random numbers again
        context_fn: returns the contexts of the first run and of the second
        determinism_check: has no effect
        debug: has no effect
        early_stop: has no effect
        kwargs: its other arguments; gradients do not flow to tensors among them
    """
    if not is_grad_enabled():
        return function(*args, **kwargs)
    first, again = context_fn()
    job = _Job(function, args, kwargs, again)
    tensors = [a for a in args if isinstance(a, Tensor)]
    if preserve_rng_state:
        job.random = {where: get_rng_state(where) for where in {"cpu:0", *(str(t.device) for t in tensors)}}
    # Parameters inside the function may want a gradient even where no argument does.
    return _Checkpoint.apply(job, first, _ops.zeros(1).requires_grad_(), *tensors)


def checkpoint_sequential(
    functions: Any, segments: int, input: Any, use_reentrant: bool | None = None, **kwargs: Any
) -> Any:
    """Runs modules one after the other, in segments of which all but the last are checkpointed.

    Args:
        functions: an `nn.Sequential`, or a list of functions
        segments: how many
        input: of the first
        use_reentrant: has no effect
        kwargs: preserve_rng_state, as for `checkpoint`
    """
    layers = list(functions.children()) if hasattr(functions, "children") else list(functions)
    if not 1 <= segments <= len(layers):
        raise ValueError(f"checkpoint_sequential: got {segments} segments for {len(layers)} functions")

    def chain(start: int, end: int) -> Callable[[Any], Any]:
        def run(x: Any) -> Any:
            for f in layers[start:end]:
                x = f(x)
            return x

        return run

    size = len(layers) // segments
    last = size * (segments - 1)
    for start in range(0, last, size):
        input = checkpoint(chain(start, start + size), input, **kwargs)
    return chain(last, len(layers))(input)
