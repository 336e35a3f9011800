"""What calls a module's backward hooks: nodes around the module that pass gradients on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from plait._autograd.parts import gradient_forms, of_parts, parts_of
from plait._engine.warnings import warn
from plait._modes import is_grad_enabled
from plait._tensor import Tensor
from plait.autograd.function import Function

Hook = Callable[..., Any]


class BackwardHookFunction(Function):
    """Passes tensors and gradients on: one node that all gradients of a module's inputs, or outputs, go through."""

    @staticmethod
    def forward(ctx: Any, *args: Tensor) -> tuple[Tensor, ...]:
        """Returns the tensors."""
        ctx.mark_non_differentiable(*(a for a in args if not a.requires_grad))
        return args

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        """Returns the gradients."""
        return grads


class BackwardWatch:
    """Calls the backward hooks of one call of a module: `pre` before its backward, `post` after it.

    The node behind the outputs has the gradients of all of them, the one before the inputs those of all inputs.
    """

    def __init__(self, module: Any, pre: list[Hook], post: list[Hook]) -> None:
        self._module, self._pre, self._post = module, pre, post
        self._in: list[int] | None = None  # places of tensors among the arguments; None if no node is there
        self._out: list[int] | None = None
        self._n_in = self._n_out = 0
        self._grad_out: Any = None  # from the outputs' node to the inputs'

    def inputs(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Returns the arguments, with tensors replaced by those behind the node."""
        self._n_in = len(args)
        args, self._in = _through_node(args, self._after)
        return args

    def outputs(self, out: Any) -> Any:
        """Returns the output, with tensors replaced by those behind the node."""
        if not isinstance(out, Tensor | tuple):
            warn(
                "For backward hooks to be called, module output should be a Tensor or a tuple of Tensors "
                f"but received {type(out)}"
            )
        parts = out if isinstance(out, tuple) else (out,)
        self._n_out = len(parts)
        parts, self._out = _through_node(parts, self._before)
        return parts if isinstance(out, tuple) else parts[0]

    def _before(self, _: Any, grad_output: Sequence[Any]) -> tuple[Any, ...]:
        """Is the hook of the outputs' node."""
        assert self._out is not None
        grads: Any = _spread(grad_output, self._out, self._n_out)
        for hook in self._pre:
            grads = _replaced(hook(self._module, grads), grads, "Backward pre hook", "grad_output")
        self._grad_out = grads
        if self._in is None:
            self._grad_out = None
            if self._post:
                self._without_inputs(grads)
        return tuple(grads[i] for i in self._out)

    def _without_inputs(self, grad_out: Any) -> None:
        """Calls the hooks after backward where no input requires a gradient."""
        warn(
            "Full backward hook is firing when gradients are computed with respect to module outputs since no inputs "
            "require gradients."
        )
        for hook in self._post:
            result = hook(self._module, (None,) * self._n_in, grad_out)
            if result is not None and not (isinstance(result, tuple) and all(r is None for r in result)):
                raise RuntimeError(
                    "Backward hook for Modules where no input requires gradient should always return None or None for "
                    "all gradients."
                )

    def _after(self, grad_input: Sequence[Any], _: Any) -> tuple[Any, ...] | None:
        """Is the hook of the inputs' node."""
        if self._grad_out is None:  # a gradient has come by another way, as in a second derivative
            return None
        assert self._in is not None
        grads: Any = _spread(grad_input, self._in, self._n_in)
        for hook in self._post:
            result = hook(self._module, grads, self._grad_out)
            grads = _replaced(result, grads, "Backward hook", "grad_input")
        self._grad_out = None
        return tuple(grads[i] for i in self._in)


def _spread(values: Sequence[Any], places: list[int], n: int) -> tuple[Any, ...]:
    out: list[Any] = [None] * n
    for i, v in zip(places, values, strict=True):
        out[i] = v
    return tuple(out)


def _replaced(result: Any, grads: Any, kind: str, what: str) -> Any:
    """Returns what a hook makes of gradients."""
    if result is None:
        return grads
    if isinstance(result, Tensor):
        result = (result,)
    if len(result) != len(grads):
        raise RuntimeError(f"{kind} returned an invalid number of {what}, got {len(result)}, but expected {len(grads)}")
    return result


def _through_node(values: tuple[Any, ...], hook: Hook) -> tuple[Any, list[int] | None]:
    """Returns values with the tensors among them behind a node with a hook, and where they are; None without a node."""
    places = [i for i, v in enumerate(values) if isinstance(v, Tensor)]
    if not is_grad_enabled() or not any(values[i].requires_grad for i in places):
        return values, None
    made = BackwardHookFunction.apply(*(values[i] for i in places))
    node = next(t for t in made if t.requires_grad).grad_fn
    if forms := gradient_forms(made):

        def on_parts(grad_input: tuple[Any, ...], grad_output: tuple[Any, ...]) -> tuple[Any, ...] | None:
            result = hook(of_parts(forms, grad_input), of_parts(forms, grad_output))
            return None if result is None else tuple(parts_of(forms, "backward hook", result))

        node.register_hook(on_parts)
    else:
        node.register_hook(hook)
    out = list(values)
    for i, t in zip(places, made, strict=True):
        out[i] = t
    return (tuple(out) if type(values) is tuple else type(values)(*out)), places


def watch_last(module: Any, hooks: list[Hook], out: Any) -> None:
    """Calls the deprecated hooks of a module around the node of its first output."""
    while not isinstance(out, Tensor):
        out = next(v for v in out.values() if isinstance(v, Tensor)) if isinstance(out, dict) else out[0]
    if (node := out.grad_fn) is not None:
        for hook in hooks:
            node.register_hook(lambda grad_in, grad_out, hook=hook: hook(module, grad_in, grad_out))
