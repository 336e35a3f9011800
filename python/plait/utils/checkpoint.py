"""Activation checkpointing: activations are recomputed in backward instead of kept (Chen et al. 2016)."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from plait import _core
from plait._autograd import backward as _autograd
from plait._device import device
from plait._engine.warnings import warn
from plait._modes import autocast_of, enable_grad, is_grad_enabled
from plait._random import get_rng_state, set_rng_state
from plait._tensor import Tensor
from plait.autograd.function import Function
from plait.utils._pytree import tree_leaves
from plait.utils._recompute import CHECKS, CheckpointError, Frame, RandomState


class _EarlyStop(threading.local):
    value: bool | None = None  # set by `set_checkpoint_early_stop` in the calling thread


_early_stop = _EarlyStop()


def noop_context_fn() -> tuple[Any, Any]:
    """Returns two context managers that do nothing."""
    return contextlib.nullcontext(), contextlib.nullcontext()


@contextlib.contextmanager
def set_checkpoint_early_stop(enable: bool) -> Iterator[None]:
    """Inside, sets whether recomputation stops early, for all checkpoints, whatever their `early_stop`."""
    before, _early_stop.value = _early_stop.value, enable
    try:
        yield
    finally:
        _early_stop.value = before


def _random_state(args: tuple[Any, ...]) -> RandomState:
    """Saves the random state of the CPU and of the arguments' devices."""
    return RandomState({device("cpu:0"), *(a.device for a in args if isinstance(a, Tensor))})


def get_device_states(*args: Any) -> tuple[list[int], list[Tensor]]:
    """Returns the numbers of the GPUs where tensors among nested arguments are, and their generators' states."""
    tensors = [a for a in tree_leaves(args) if isinstance(a, Tensor) and a.device.type not in ("cpu", "meta")]
    return [t.get_device() for t in tensors], [get_rng_state(t.device) for t in tensors]


def set_device_states(devices: Iterable[int], states: Iterable[Tensor], *, device_type: str | None = None) -> None:
    """Moves the generators of devices to states that `get_device_states` returned.

    Args:
        devices: their numbers
        states: one for each
        device_type: the type of the devices, GPUs by default
    """
    for index, state in zip(devices, states, strict=False):
        set_rng_state(state, f"{device_type}:{index}" if device_type else index)


class CheckpointFunction(Function):
    """The reentrant checkpoint: a node whose backward runs another backward pass."""

    @staticmethod
    def forward(ctx: Any, run_function: Callable[..., Any], preserve_rng_state: bool, *args: Any) -> Any:
        """Runs the function, and saves only its inputs."""
        ctx.function, ctx.random = run_function, _random_state(args) if preserve_rng_state else None
        ctx.mode = _core.bind_ModeGet()
        ctx.args = [None if isinstance(a, Tensor) else a for a in args]
        ctx.places = [i for i, a in enumerate(args) if isinstance(a, Tensor)]
        ctx.save_for_backward(*(args[i] for i in ctx.places))
        return run_function(*args)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
        """Recomputes the function, and runs a backward pass through it."""
        if _autograd.passes.restricted:
            raise RuntimeError(
                "When use_reentrant=True, checkpoint is incompatible with .grad() or passing an `inputs` parameter to "
                ".backward(): what the function uses collects its gradients in a pass of its own; "
                "pass use_reentrant=False"
            )
        args = list(ctx.args)
        for i, t in zip(ctx.places, ctx.saved_tensors, strict=True):
            args[i] = t.detach().requires_grad_(t.requires_grad)
        random = contextlib.nullcontext() if ctx.random is None else ctx.random.again()
        with enable_grad(), autocast_of(ctx.mode), random:
            out = ctx.function(*args)
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
        if not pairs:
            raise RuntimeError("none of output has requires_grad=True, this checkpoint() is not necessary")
        _autograd.backward([o for o, _ in pairs], [g for _, g in pairs])
        return (None, None, *(a.grad if isinstance(a, Tensor) else None for a in args))


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
    """Calls a function without saving its activations. Backward calls it again, and it must compute the same values.

    Gradients flow to everything that the function uses, in every kind of backward pass.

    Args:
        function: the function
        args: its arguments
        use_reentrant: True selects the older implementation, which runs a backward pass inside the backward pass. It
            accepts no keyword arguments, needs an argument that requires a gradient, and does not support
            `autograd.grad` or `backward(inputs=...)`
        preserve_rng_state: whether recomputation draws the same random numbers
        context_fn: returns two context managers, for the first run and for recomputation
        determinism_check: "default" compares shapes, dtypes and devices of recomputed values, "none" compares nothing
        debug: has no effect
        early_stop: whether recomputation stops as soon as all needed values are there
        kwargs: the function's keyword arguments

    Raises:
        ValueError: for arguments that the reentrant implementation does not accept, and an unknown determinism_check.
        CheckpointError: in backward, if recomputation gives other values.
    """
    if use_reentrant:
        if kwargs:
            raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))
        if context_fn is not noop_context_fn or debug:
            raise ValueError("Passing `context_fn` or `debug` is only supported when use_reentrant=False.")
        if is_grad_enabled() and not any(isinstance(a, Tensor) and a.requires_grad for a in args):
            warn("None of the inputs have requires_grad=True. Gradients will be None")
        return CheckpointFunction.apply(function, preserve_rng_state, *args)
    if determinism_check not in CHECKS:
        raise ValueError(f"checkpoint: determinism_check must be one of {list(CHECKS)}, got {determinism_check!r}")
    first, again = context_fn()
    if not is_grad_enabled():
        return function(*args, **kwargs)
    stop = early_stop if _early_stop.value is None else _early_stop.value
    random = _random_state(args) if preserve_rng_state else None
    frame = Frame(function, args, kwargs, random, again, stop, CHECKS[determinism_check])
    with first:
        return frame.call(args)


def checkpoint_sequential(
    functions: Any, segments: int, input: Any, use_reentrant: bool | None = None, **kwargs: Any
) -> Any:
    """Runs modules one after the other, in segments. All segments except the last are checkpointed.

    Args:
        functions: an `nn.Sequential`, or a list of functions
        segments: the number of segments
        input: the input of the first function
        use_reentrant: as for `checkpoint`
        kwargs: preserve_rng_state, as for `checkpoint`
    """
    preserve = kwargs.pop("preserve_rng_state", True)
    if kwargs:
        raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))
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
        input = checkpoint(chain(start, start + size), input, use_reentrant=use_reentrant, preserve_rng_state=preserve)
    return chain(last, len(layers))(input)
