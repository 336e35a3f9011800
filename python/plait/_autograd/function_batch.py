"""An `autograd.Function` inside `vmap`: by its rule for batches, by one that is made of it, or part by part."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from plait import _ops
from plait._autograd import batch
from plait._engine.pytree import flatten, spread
from plait._engine.runtime import is_tensor


class VmapInfo(NamedTuple):
    """What the `vmap` method of a Function is told of the batch."""

    batch_size: int
    randomness: str


def batched_at(function: Any, base: Any, args: tuple[Any, ...]) -> int:
    """Returns how many levels deep arguments of a function are batched; those in lists count where it has a rule."""
    if not batch.levels():
        return 0
    return batch.depth(*(flatten(args)[0] if function.vmap is not base.vmap else args))


def apply(function: Any, base: Any, args: tuple[Any, ...], at: int) -> Any:
    """Applies a subclass of a base, which is Function, to arguments of which the deepest are batched at a depth."""
    own = function.vmap is not base.vmap
    if own and function.generate_vmap_rule:
        raise RuntimeError(
            f"You tried to vmap over {function.__name__}, but it has both generate_vmap_rule=True and an overridden "
            "vmap staticmethod. Please set generate_vmap_rule=False or delete the overridden vmap staticmethod to "
            "avoid ambiguity."
        )
    if own:
        return _by_rule(function, args, at)
    if function.generate_vmap_rule:
        return _together(function, base, args, at)
    return batch.each(function.apply, args, at)


def _by_rule(function: Any, args: tuple[Any, ...], at: int) -> Any:
    """Calls the function's `vmap` with the tensors behind batched ones, whose dimension 0 is the batch."""
    level = batch.opened(at)
    leaves, build = flatten(args)
    wholes = [level.unwrap(a) if is_tensor(a) else None for a in leaves]
    in_dims = build([None if w is None else 0 for w in wholes])
    with batch.Below(at):
        made = function.vmap(
            VmapInfo(level.size, level.randomness),
            in_dims,
            *build([a if w is None else w for a, w in zip(leaves, wholes, strict=True)]),
        )
    if not isinstance(made, tuple) or len(made) != 2:
        got = f"{len(made)} returns" if isinstance(made, tuple) else f"a {type(made)}"
        raise RuntimeError(
            "Expected the vmap staticmethod to have two returns, an output and out_dims with pytree structure "
            f"compatible with the output. Got {got} instead"
        )
    output, out_dims = made
    found, join = flatten(output)
    try:
        dims = spread(out_dims, output, "out_dims")
    except ValueError as error:
        raise RuntimeError(
            "The autograd.Function's vmap staticmethod returned an incompatible (output, out_dims) tuple. Expected "
            f"out_dims={out_dims} to be compatible with the structure of `output`, {output!r}"
        ) from error
    return join([_rebatched(function, o, d, level) for o, d in zip(found, dims, strict=True)])


def _rebatched(function: Any, output: Any, dim: Any, level: batch.Level) -> Any:
    """Returns an output of a rule as a batched tensor; the dimension None is for what is the same in every part."""
    if dim is None or not is_tensor(output):
        return output
    if not isinstance(dim, int):
        raise TypeError(f"{function.__name__}.vmap: out_dims must be numbers or None, got {dim!r}")
    if not -output.dim() <= dim < output.dim() or output.shape[dim] != level.size:
        raise RuntimeError(
            f"{function.__name__}.vmap: got an output of shape {list(output.shape)} and out_dim {dim}, "
            f"want a dimension of the batch's size {level.size}"
        )
    return level.wrap(output if dim in (0, -output.dim()) else _ops.movedim(output, dim, 0))


class _Plan:
    """What the parts of a call made together share: which arguments, outputs and saved tensors are batched."""

    def __init__(self, level: batch.Level, args: Sequence[Any]) -> None:
        self.size, self.randomness, self.level = level.size, level.randomness, level.handle
        wholes = [level.unwrap(a) if is_tensor(a) else None for a in args]
        self.batched = [w is not None for w in wholes]
        self.wholes = [a if w is None else w for a, w in zip(args, wholes, strict=True)]
        self.shapes = [a.shape if is_tensor(a) else None for a in args]
        self.outputs: list[bool] = []
        self.saved: list[bool] = []
        self.forward: list[bool] = []
        self.inner: Any = None  # the context that the function's own methods get
        self.attributes: dict[str, list[bool]] = {}

    def context(self, ctx: Any, saved: Sequence[Any], batched: Sequence[bool], level: int) -> Any:
        """Returns the function's context with its tensors batched at a level."""
        inner = self.inner
        tensors = [self.inside(t, b, level) for t, b in zip(saved, batched, strict=True)]
        inner._saved = [(t, -1 if t is None else t._version, -1) for t in tensors]
        for name, flags in self.attributes.items():
            leaves, build = flatten(ctx.attributes[name])
            setattr(inner, name, build([self.inside(v, b, level) for v, b in zip(leaves, flags, strict=True)]))
        return inner

    def let_go(self) -> None:
        """Has the function's context hold no tensors, which would outlive their level."""
        self.inner._saved = None
        for name in self.attributes:
            vars(self.inner).pop(name, None)

    @staticmethod
    def inside(value: Any, batched: bool, level: int) -> Any:
        """Returns a tensor as the function sees it."""
        return batch.wrap(value, level) if batched and value is not None else value


def _together(function: Any, base: Any, args: tuple[Any, ...], at: int) -> Any:
    """Applies a function to all parts at once: its methods get batched tensors."""
    level = batch.opened(at)
    plan = _Plan(level, args)
    made = _for_batches(function, base).apply(plan, *plan.wholes)
    outputs = list(made) if isinstance(made, tuple | list) else [made]
    outputs = [plan.inside(o, b, level.handle) for o, b in zip(outputs, plan.outputs, strict=True)]
    return type(made)(outputs) if isinstance(made, tuple | list) else outputs[0]


def _for_batches(function: Any, base: Any) -> Any:
    """Returns the Function of plans and ordinary tensors that stands for a function of batched ones."""
    made = vars(function).get("_for_batches")
    if made is None:
        methods = {
            "generate_vmap_rule": True,  # around it may be another vmap
            "forward": staticmethod(_forward(function, base)),
            "backward": staticmethod(_backward(function, base)),
            "jvp": staticmethod(_jvp(function)),
        }
        made = function._for_batches = type(f"Vmapped{function.__name__}", (base,), methods)
    return made


def _forward(function: Any, base: Any) -> Callable[..., Any]:
    def forward(ctx: Any, plan: _Plan, *args: Any) -> Any:
        inner = plan.inner = type(ctx)()
        before = set(vars(inner))
        inner.needs_input_grad = ctx.needs_input_grad[1:]
        given = [plan.inside(a, b, plan.level) for a, b in zip(args, plan.batched, strict=True)]
        if function.setup_context is base.setup_context:
            output = function.forward(inner, *given)
        else:
            output = function.forward(*given)
            function.setup_context(inner, tuple(given), output)
        outputs = list(output) if isinstance(output, tuple | list) else [output]
        known = {id(g): (a, b) for g, a, b in zip(given, args, plan.batched, strict=True) if is_tensor(g)}

        def outside(t: Any) -> tuple[Any, bool]:
            """Returns the tensor behind a batched one and true, or anything else as it is and false."""
            if not is_tensor(t):
                return t, False
            if id(t) not in known:
                whole = batch.unwrap(t, plan.level)
                known[id(t)] = (t, False) if whole is None else (whole, True)
            return known[id(t)]

        found = [outside(o) for o in outputs]
        plan.outputs = [b for _, b in found]
        saved, forward = [outside(t) for t in inner._to_save], [outside(t) for t in inner._for_forward]
        plan.saved, plan.forward = [b for _, b in saved], [b for _, b in forward]
        ctx.save_for_backward(*(t for t, _ in saved))
        ctx.save_for_forward(*(t for t, _ in forward))
        ctx.mark_dirty(*(outside(t)[0] for t in inner._dirty))
        ctx.mark_non_differentiable(*(outside(t)[0] for t in inner._plain))
        ctx.set_materialize_grads(inner._materialize)
        inner._to_save = inner._for_forward = inner._dirty = inner._plain = ()
        attributes = {}
        for name in set(vars(inner)) - before - {"needs_input_grad"}:
            leaves, build = flatten(getattr(inner, name))
            pairs = [outside(v) for v in leaves]
            if any(is_tensor(v) for v in leaves):
                attributes[name], plan.attributes[name] = build([v for v, _ in pairs]), [b for _, b in pairs]
        ctx.plan, ctx.attributes = plan, attributes
        plan.let_go()
        wholes = [t for t, _ in found]
        return type(output)(wholes) if isinstance(output, tuple | list) else wholes[0]

    return forward


def _backward(function: Any, base: Any) -> Callable[..., Any]:
    def backward(ctx: Any, *grads: Any) -> Any:
        plan, derivative = ctx.plan, function.backward if function.vjp is base.vjp else function.vjp
        with batch.Level(plan.size, plan.randomness) as level:  # that of the call may have ended
            inner = plan.context(ctx, ctx.saved_tensors, plan.saved, level.handle)
            try:
                made = derivative(
                    inner, *(plan.inside(g, b, level.handle) for g, b in zip(grads, plan.outputs, strict=True))
                )
            finally:
                plan.let_go()
            made = list(made) if isinstance(made, tuple | list) else [made]
            n = len(plan.batched)
            if len(made) < n or any(g is not None for g in made[n:]):
                raise RuntimeError(
                    f"function {function.__name__}Backward returned an incorrect number of gradients "
                    f"(expected {n}, got {len(made)})"
                )
            return None, *(
                _outside(g, b, shape, level) for g, b, shape in zip(made, plan.batched, plan.shapes, strict=False)
            )

    return backward


def _outside(grad: Any, batched: bool, shape: Any, level: batch.Level) -> Any:
    """Returns the gradient of an argument for all parts, or where it is the same in all, the sum over these."""
    if not is_tensor(grad) or shape is None:
        return grad
    if grad.shape != shape:
        grad = grad.sum_to_size(shape)
    whole = level.whole(grad)
    return whole if batched else whole.sum(0)


def _jvp(function: Any) -> Callable[..., Any]:
    def jvp(ctx: Any, _: Any, *tangents: Any) -> Any:
        plan = ctx.plan
        inner = plan.context(ctx, ctx.saved_tensors, plan.forward, plan.level)
        try:
            made = function.jvp(
                inner, *(plan.inside(t, b, plan.level) for t, b in zip(tangents, plan.batched, strict=True))
            )
        finally:
            plan.let_go()
        outputs = list(made) if isinstance(made, tuple | list) else [made]
        wholes = []
        for t, b in zip(outputs, plan.outputs, strict=True):
            whole = batch.unwrap(t, plan.level) if is_tensor(t) else None
            if b and is_tensor(t) and whole is None:
                whole = _ops.expand(t, (plan.size, *t.shape))
            wholes.append(t if whole is None else whole)
        return tuple(wholes) if isinstance(made, tuple | list) else wholes[0]

    return jvp
