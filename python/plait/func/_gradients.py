"""Products with Jacobians: backward, for gradients, and in forward mode."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from plait import _ops
from plait._autograd import batch as _batch
from plait._autograd import forward as _forward
from plait._engine.pytree import flatten, tree_map
from plait._modes import enable_grad, is_grad_enabled
from plait._tensor import Tensor
from plait.func._transform import Func, Inputs, Transform, local, pick, put, split_aux, tensors_of


def grad_and_value(func: Func, argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Func:
    """Returns a function that returns the gradient of `func`, which returns one element, and what it returns.

    Args:
        func: the function
        argnums: the argument, or arguments, for which the gradient is
        has_aux: func returns a pair, of which only the first is derived; the result is (gradient, (value, aux))
    """

    def gradient(*args: Any, **kwargs: Any) -> Any:
        with Transform() as transform, enable_grad():
            inputs = Inputs("grad", pick(args, argnums), transform)
            out = func(*put(args, argnums, inputs.build(inputs.leaves)), **kwargs)
            value, aux = split_aux("grad", out, has_aux)
            if not isinstance(value, Tensor) or value.numel() != 1:
                shape = list(value.shape) if isinstance(value, Tensor) else type(value).__name__
                raise RuntimeError(f"grad: the function must return a tensor of one element, got {shape}")
            inputs.derives(value, aux)
            made = inputs.build(inputs.grads([value], [_ops.ones_like(value)], inputs.record))
        value = inputs.result(value)
        return made, (value, inputs.result(aux)) if has_aux else value

    return gradient


def grad(func: Func, argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Func:
    """Returns a function that returns what `grad_and_value` says without the value: gradient, or (gradient, aux)."""
    both = grad_and_value(func, argnums, has_aux)

    def gradient(*args: Any, **kwargs: Any) -> Any:
        made, value = both(*args, **kwargs)
        return (made, value[1]) if has_aux else made

    return gradient


def vjp(func: Func, *primals: Any, has_aux: bool = False) -> tuple[Any, ...]:
    """Returns what a function returns, and a function that takes a vector of that form and returns, in a tuple with an
    entry for each of `primals`, its product with the Jacobian; with has_aux, aux is third.
    """
    with Transform() as transform, enable_grad():
        inputs = Inputs("vjp", primals, transform)
        out, aux = split_aux("vjp", func(*inputs.build(inputs.leaves)), has_aux)
        leaves = tensors_of("vjp", flatten(out)[0])
        inputs.derives(leaves, aux)

    def product(cotangents: Any) -> Any:
        vectors = tensors_of("vjp", flatten(cotangents)[0])
        if [v.shape for v in vectors] != [y.shape for y in leaves]:
            shapes = [list(v.shape) for v in vectors]
            raise RuntimeError(f"vjp: got vectors of shapes {shapes}, want {[list(y.shape) for y in leaves]}")
        record = inputs.record or local.depth > 0 or (is_grad_enabled() and any(v.requires_grad for v in vectors))
        return inputs.build(inputs.grads(leaves, vectors, record))

    result = (inputs.result(out), product)
    return (*result, inputs.result(aux)) if has_aux else result


def jvp(func: Func, primals: Any, tangents: Any, *, strict: bool = False, has_aux: bool = False) -> tuple[Any, ...]:
    """Returns what a function returns for a tuple of arguments, and the product of its Jacobian with a tuple of
    vectors; with has_aux, aux is third. With strict, a result that depends on no argument is an error.
    """
    leaves, build = flatten(tuple(primals))
    xs, vs = tensors_of("jvp", leaves), tensors_of("jvp", flatten(tuple(tangents))[0])
    if [v.shape for v in vs] != [x.shape for x in xs]:
        shapes = [list(v.shape) for v in vs]
        raise RuntimeError(f"jvp: got tangents of shapes {shapes}, want {[list(x.shape) for x in xs]}")
    xs, vs = [_batch.everywhere(x) for x in xs], [_batch.everywhere(v) for v in vs]
    if _batch.levels():  # what is repeated for each part shares memory, and func may change it
        xs = [_ops.clone(x) for x in xs]
    with _forward.Level() as level:
        at = level.handle
        out, aux = split_aux(
            "jvp", func(*build([_forward.dual(x, v, at) for x, v in zip(xs, vs, strict=True)])), has_aux
        )
        found, join = flatten(out)
        ys = tensors_of("jvp", found)
        made = [_forward.tangent_of(y, at) for y in ys]
        if strict and None in made:
            raise RuntimeError("jvp: a result depends on no argument, which strict forbids")
        values = join([_forward.dual(y, None, at) for y in ys])
        products = join([_ops.zeros_like(y) if t is None else t for y, t in zip(ys, made, strict=True)])
        if has_aux:
            aux = tree_map(lambda t: _forward.dual(t, None, at) if isinstance(t, Tensor) else t, aux)
    return (values, products, aux) if has_aux else (values, products)
