"""Derivatives of functions of tensors: Jacobians, Hessians and their products with vectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from plait import _ops
from plait._autograd import forward as _forward
from plait._autograd.backward import grad
from plait._autograd.units import unit
from plait._engine.pytree import tree_map
from plait._errors import DTypeError
from plait._modes import enable_grad, set_grad_enabled
from plait._tensor import Tensor

Func = Callable[..., Any]


def _tuple(x: Any) -> tuple[Tensor, ...]:
    return (x,) if isinstance(x, Tensor) else tuple(x)


def _like(values: tuple[Any, ...], given: Any) -> Any:
    return values[0] if isinstance(given, Tensor) else values


def _inputs(inputs: Any, create_graph: bool) -> tuple[Tensor, ...]:
    given = _tuple(inputs)
    return tuple(x.view_as(x) if create_graph and x.requires_grad else x.detach().requires_grad_() for x in given)


def _run(func: Func, xs: tuple[Tensor, ...]) -> tuple[Any, tuple[Tensor, ...]]:
    out = func(*xs)
    return out, _tuple(out)


def _grad(ys: Any, xs: Any, v: Any, create_graph: bool, strict: bool) -> tuple[Tensor, ...]:
    pairs = [(y, g) for y, g in zip(_tuple(ys), _tuple(v), strict=True) if y.requires_grad]
    if not pairs:
        found: tuple[Tensor | None, ...] = (None,) * len(_tuple(xs))
    else:
        found = grad(
            [y for y, _ in pairs],
            xs,
            [g for _, g in pairs],
            retain_graph=True,
            create_graph=create_graph,
            allow_unused=True,
        )
    if strict and any(g is None for g in found):
        raise RuntimeError("the output is independent of an input, which is not allowed in strict mode")
    return tuple(_ops.zeros_like(x) if g is None else g for g, x in zip(found, _tuple(xs), strict=True))


def _out(values: tuple[Tensor, ...], create_graph: bool) -> tuple[Tensor, ...]:
    return values if create_graph else tuple(v.detach() for v in values)


def _vector(v: Any, like: tuple[Tensor, ...], name: str) -> tuple[Tensor, ...]:
    if v is None:
        if len(like) != 1 or like[0].numel() != 1:
            raise RuntimeError(f"{name}: v may be left out only for a single element")
        return (_ops.ones_like(like[0]),)
    vs = _tuple(v)
    if [x.shape for x in vs] != [x.shape for x in like]:
        raise RuntimeError(f"{name}: v has shapes {[list(x.shape) for x in vs]}, want {[list(x.shape) for x in like]}")
    return vs


def vjp(func: Func, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> tuple[Any, Any]:
    """Returns the outputs of a function, and the product of a vector with its Jacobian."""
    with enable_grad():
        xs = _inputs(inputs, create_graph)
        out, ys = _run(func, xs)
        found = _grad(ys, xs, _vector(v, ys, "vjp"), create_graph, strict)
    return _like(_out(ys, create_graph), out), _like(_out(found, create_graph), inputs)


def jvp(func: Func, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> tuple[Any, Any]:
    """Returns the outputs of a function, and the product of its Jacobian with a vector, in forward mode."""
    with set_grad_enabled(create_graph), _forward.Level() as level:
        given = _tuple(inputs)
        xs = tuple(x if create_graph else x.detach() for x in given)
        vs = _vector(v, xs, "jvp")
        out, duals = _run(func, tuple(_forward.dual(x, t, level.handle) for x, t in zip(xs, vs, strict=True)))
        tangents = [_forward.tangent_of(y, level.handle) for y in duals]
        if strict and None in tangents:
            raise RuntimeError("the output is independent of an input, which is not allowed in strict mode")
        ys = tuple(_forward.dual(y, None, level.handle) for y in duals)
        found = tuple(_ops.zeros_like(y) if t is None else t for y, t in zip(ys, tangents, strict=True))
    return _like(_out(ys, create_graph), out), _like(_out(found, create_graph), out)


def jacobian(
    func: Func,
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    strategy: str = "reverse-mode",
) -> Any:
    """Returns the Jacobian of a function: for each output and input a tensor of the shapes of both.

    Args:
        func: takes tensors, returns one or several
        inputs: one or several
        create_graph: make the result differentiable
        strict: raise where an output does not depend on an input, in the place of zeros
        vectorize: whether complex outputs are allowed; nothing else
        strategy: "reverse-mode", or "forward-mode", which is faster where there are more outputs than inputs

    A row over complex inputs is the gradient of an output, as `backward` has it: the derivative by the real part plus i
    times that by the imaginary one, and of a complex output with `vectorize` that of its real part. In forward mode the
    Jacobian is along the real parts of the inputs.
    """
    if strategy == "forward-mode":
        if strict:
            raise RuntimeError('jacobian: strict and strategy "forward-mode" do not go together')
        return _forward_jacobian(func, inputs, create_graph)
    if strategy != "reverse-mode":
        raise ValueError(f'jacobian: strategy must be "reverse-mode" or "forward-mode", got {strategy!r}')
    with enable_grad():
        xs = _inputs(inputs, create_graph)
        out, ys = _run(func, xs)
        rows = []
        for y in ys:
            if y.dtype.is_complex and not vectorize:
                raise DTypeError(
                    f"jacobian: got an output of {y.dtype}, want a real one: take functions that return view_as_real, "
                    "or vectorize=True for the gradients of the real parts"
                )
            columns: list[list[Tensor]] = [[] for _ in xs]
            for i in range(y.numel()):
                found = _grad((y,), xs, (unit(y, i),), create_graph, strict)
                for c, g in zip(columns, found, strict=True):
                    c.append(g)
            parts = (
                _ops.stack(c).reshape((*y.shape, *x.shape)) if c else y.new_zeros((*y.shape, *x.shape))
                for c, x in zip(columns, xs, strict=True)
            )
            rows.append(_like(_out(tuple(parts), create_graph), inputs))
    return _like(tuple(rows), out)


def _forward_jacobian(func: Func, inputs: Any, create_graph: bool) -> Any:
    from plait.func._jacobians import forward_jacobian  # which imports this package

    xs = _tuple(inputs)
    with set_grad_enabled(create_graph):
        given = xs if create_graph else tuple(x.detach() for x in xs)
        made = forward_jacobian(func, tuple(range(len(xs))))(*given)
    if not create_graph:
        made = tree_map(lambda t: t.detach(), made)
    if isinstance(inputs, Tensor):  # of each output the only column
        return made[0] if isinstance(made[0], Tensor) else tuple(row[0] for row in made)
    return made


def hessian(
    func: Func,
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    outer_jacobian_strategy: str = "reverse-mode",
) -> Any:
    """Returns the Hessian of a function with one element; arguments as of `jacobian`."""

    def first(*given: Tensor) -> Any:
        with enable_grad():
            xs = tuple(x if x.requires_grad else _forward.bare(x).requires_grad_() for x in given)
            y = func(*xs)
            if not isinstance(y, Tensor) or y.numel() != 1:
                raise RuntimeError("hessian: the function must return a single element")
            found = _grad((y.reshape(()),), xs, (_ops.ones_like(y.reshape(())),), True, strict)
        return _like(found, inputs)

    return jacobian(first, inputs, create_graph, strict, vectorize, outer_jacobian_strategy)


def vhp(func: Func, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> tuple[Any, Any]:
    """Returns the output of a function with one element, and the product of a vector with its Hessian."""
    with enable_grad():
        xs = _inputs(inputs, create_graph)
        vs = _vector(v, xs, "vhp")
        _, ys = _run(func, xs)
        if len(ys) != 1 or ys[0].numel() != 1:
            raise RuntimeError("vhp: the function must return a single element")
        first = _grad(ys, xs, (_ops.ones_like(ys[0]),), True, strict)
        found = _grad(first, xs, vs, create_graph, strict)
    return _out(ys, create_graph)[0], _like(_out(found, create_graph), inputs)


def hvp(func: Func, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> tuple[Any, Any]:
    """Returns the output of a function with one element, and the product of its Hessian with a vector."""
    return vhp(func, inputs, v, create_graph, strict)
