"""Functions with a derivative of their own, written in Python."""

from __future__ import annotations

import functools
from array import array
from collections.abc import Callable, Sequence
from typing import Any

from plait import _core, _ops
from plait._modes import is_grad_enabled, no_grad
from plait._runtime import address, check, own
from plait._tensor import Tensor, collect, keep


class FunctionCtx:
    """What a `Function` passes from `forward` to `backward`: saved tensors, and any attributes."""

    needs_input_grad: tuple[bool, ...]

    def __init__(self) -> None:
        self._to_save: tuple[Tensor | None, ...] = ()
        self._dirty: tuple[Tensor, ...] = ()
        self._plain: tuple[Tensor, ...] = ()
        self._materialize = True
        self._saved: list[tuple[Tensor | None, int, int]] | None = None  # tensor, version, and which output or -1
        self._run = 0

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Keeps tensors for `backward`, which gets them as `saved_tensors`."""
        for t in tensors:
            if t is not None and not isinstance(t, Tensor):
                raise TypeError(
                    f"save_for_backward can only save variables, but argument is of type {type(t).__name__}"
                )
        self._to_save = tensors

    def save_for_forward(self, *tensors: Tensor | None) -> None:
        """Has no effect: forward mode is not there."""

    def mark_dirty(self, *args: Tensor) -> None:
        """Says which inputs `forward` has changed in place; it must return them."""
        self._dirty = args

    def mark_non_differentiable(self, *args: Tensor) -> None:
        """Says which outputs have no gradient."""
        self._plain = args

    def set_materialize_grads(self, value: bool) -> None:
        """Says whether `backward` gets zeros, the default, or None for outputs that nothing depends on."""
        self._materialize = value

    @property
    def saved_tensors(self) -> tuple[Tensor | None, ...]:
        """The tensors that were saved, as they were.

        Raises:
            RuntimeError: if one was changed in place since, or a backward pass has freed them.
        """
        if self._saved is None:
            raise RuntimeError(
                "Trying to backward through the graph a second time: the saved tensors have been freed; "
                "pass retain_graph=True to go through it again"
            )
        out: list[Tensor | None] = []
        for t, version, index in self._saved:
            if t is not None and t._version != version:
                raise RuntimeError(
                    f"one of the variables needed for gradient computation has been modified by an inplace operation: "
                    f"a saved tensor of shape {list(t.shape)} is at version {t._version}, expected version {version}"
                )
            if t is not None and index >= 0 and self._run and is_grad_enabled():
                t = own(check(_core.bind_BackwardOutput(self._run, t._h, index)))  # noqa: PLW2901
            out.append(t)
        return tuple(out)


BackwardCFunction = FunctionCtx


class Function:
    """An operation with a derivative of its own: a subclass has static methods, and is used by `apply`.

    Either `forward(ctx, *args)`, or `forward(*args)` and `setup_context(ctx, inputs, output)`; and
    `backward(ctx, *grads)`, which returns a gradient, or None, for each argument.
    """

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        """Computes the outputs; gradients are off."""
        raise NotImplementedError("You must implement the forward function for custom autograd.Function.")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> Any:
        """Saves what `backward` needs, where `forward` takes no context."""
        raise NotImplementedError("setup_context is not implemented.")

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        """Returns the gradients of the arguments from those of the outputs."""
        raise NotImplementedError(
            "You must implement either the backward or vjp method for your custom autograd.Function"
        )

    @classmethod
    def apply(cls, *args: Any) -> Any:
        """Calls the function and records it."""
        ctx = FunctionCtx()
        ctx.needs_input_grad = tuple(isinstance(a, Tensor) and a.requires_grad for a in args)
        with no_grad():
            if cls.setup_context is Function.setup_context:
                output = cls.forward(ctx, *args)
            else:
                output = cls.forward(*args)
                cls.setup_context(ctx, args, output)
        if not (is_grad_enabled() and any(ctx.needs_input_grad)):
            return output
        collect()
        outputs = list(output) if isinstance(output, tuple | list) else [output]
        inputs = [a if isinstance(a, Tensor) else None for a in args]
        list_ = array("q", [0 if t is None else t._h for t in inputs])
        at = cls._attach(ctx, inputs, outputs, list_)
        ctx._saved = [
            (t, -1 if t is None else t._version, -1) if (i := at.get(id(t), -1)) < 0 else (_detached(t), t._version, i)  # type: ignore[arg-type, union-attr]
            for t in ctx._to_save
        ]  # type: ignore[misc]
        ctx._to_save = ctx._dirty = ctx._plain = ()
        return type(output)(outputs) if isinstance(output, tuple | list) else outputs[0]

    @classmethod
    def _attach(cls, ctx: FunctionCtx, inputs: list[Any], outputs: list[Any], list_: Any) -> dict[int, int]:
        """Makes the outputs those of a node; returns their numbers by identity."""
        dirty, plain = {id(t) for t in ctx._dirty}, {id(t) for t in ctx._plain}
        given = {id(t) for t in inputs if t is not None}
        # What the derivative must know of each output and input; it must not refer to them, which would be a cycle.
        metas = [(o.shape, o.dtype, o.device) if isinstance(o, Tensor) else None for o in outputs]
        dtypes = [None if t is None else t.dtype for t in inputs]
        key = keep(functools.partial(_derive, cls.backward, ctx, metas, dtypes))
        node = check(_core.bind_NodeNew(cls.__name__ + "Backward", key, address(list_), len(list_)))
        at = {}
        try:
            for i, o in enumerate(outputs):
                if not isinstance(o, Tensor):
                    continue
                wanted = o.dtype.is_floating_point and id(o) not in plain
                out = o
                if (id(o) in given and id(o) not in dirty) or (id(o) not in given and o.requires_grad):
                    out = outputs[i] = _detached(o)
                elif id(o) in dirty and o.is_leaf and o.requires_grad:
                    raise RuntimeError("a leaf Variable that requires grad is being used in an in-place operation.")
                at[id(o)] = i
                check(_core.bind_NodeAttach(node, out._h, i, wanted))
        finally:
            _core.bind_ObjectRelease(node)
        return at


def _detached(t: Tensor) -> Tensor:
    return own(check(_core.bind_TensorDetach(t._h)))


def _derive(
    backward: Callable[..., Any],
    ctx: FunctionCtx,
    metas: Sequence[Any],
    dtypes: Sequence[Any],
    run: int,
    retain: bool,
    grads: list[Tensor | None],
) -> list[Tensor | None]:
    """Runs a function's `backward` for a pass."""
    grads = [*grads, *[None] * (len(metas) - len(grads))]
    if ctx._materialize:
        grads = [
            _ops.zeros(m[0], dtype=m[1], device=m[2]) if g is None and m is not None else g
            for g, m in zip(grads, metas, strict=True)
        ]
    ctx._run = run
    try:
        answer = backward(ctx, *grads)
    finally:
        ctx._run = 0
    if not retain:
        ctx._saved = None
    out = list(answer) if isinstance(answer, tuple | list) else [answer]
    n = len(dtypes)
    if len(out) < n or any(g is not None for g in out[n:]):
        raise RuntimeError(f"function returned an incorrect number of gradients (expected {n}, got {len(out)})")
    result: list[Tensor | None] = []
    for g, dtype, needed in zip(out[:n], dtypes, ctx.needs_input_grad, strict=True):
        if g is not None and not isinstance(g, Tensor):
            raise TypeError(f"backward: want tensors or None as gradients, got {type(g).__name__}")
        result.append(None if g is None or not needed else g if g.dtype is dtype else g.to(dtype))
    return result


class _Once(Function):
    @staticmethod
    def forward(_ctx: Any, result: Tensor, *_from: Tensor) -> Tensor:
        """Returns the result as one that depends on the rest."""
        return result.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """Refuses."""
        raise RuntimeError("trying to differentiate twice a function that was marked with @once_differentiable")


def once_differentiable(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates a `backward` that cannot itself be differentiated: doing so is an error."""

    @functools.wraps(function)
    def wrapped(ctx: Any, *args: Any) -> Any:
        with no_grad():
            out = function(ctx, *args)
        sources = [a for a in args if isinstance(a, Tensor) and a.requires_grad]
        if not (is_grad_enabled() and sources):
            return out
        results = out if isinstance(out, tuple | list) else (out,)
        return tuple(_Once.apply(r, *sources) if isinstance(r, Tensor) else r for r in results)

    return wrapped


__all__ = ["Function", "FunctionCtx", "once_differentiable"]
