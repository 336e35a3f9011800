"""Products with Jacobians: backward, for gradients, and in forward mode."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from plait import _ops
from plait._autograd import backward as _autograd
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


def linearize(func: Func, *primals: Any) -> tuple[Any, Func]:
    """Returns what a function returns, and its linear part there: a function that takes a tangent for each of `primals`
    and returns the product of the Jacobian with them, in the form of the result.

    The function is called once, and what it computes is kept, for as long as the second one is.
    """
    out, product = vjp(func, *primals)
    ys, join = flatten(out)
    xs = tensors_of("linearize", flatten(primals)[0])
    # The product with the transposed Jacobian is linear in its vectors: transposed again, it is that with the Jacobian.
    with enable_grad():
        vectors = [_forward.bare(_batch.everywhere(_ops.zeros_like(y))) for y in ys]
        vectors = [v.requires_grad_() if v.dtype.is_floating_point or v.dtype.is_complex else v for v in vectors]
        products = tensors_of("linearize", flatten(product(join(vectors)))[0])
    used = [i for i, p in enumerate(products) if p.requires_grad]
    sources = [i for i, v in enumerate(vectors) if v.requires_grad]
    recorded = local.depth > 0 or any(x.requires_grad for x in xs)

    def tangent_map(*tangents: Any) -> Any:
        vs = tensors_of("linearize", flatten(tangents)[0])
        if [(v.shape, v.dtype) for v in vs] != [(x.shape, x.dtype) for x in xs]:
            got, want = ([(list(t.shape), t.dtype) for t in ts] for ts in (vs, xs))
            raise RuntimeError(f"linearize: got tangents {got}, want {want}")
        found: list[Any] = [_ops.zeros_like(v) for v in vectors]
        if used:
            record = recorded or (is_grad_enabled() and any(v.requires_grad for v in vs))
            made = _autograd.grad(
                [products[i] for i in used],
                [vectors[i] for i in sources],
                [vs[i] for i in used],
                retain_graph=True,
                create_graph=record,
                materialize_grads=True,
            )
            for i, t in zip(sources, made, strict=True):
                found[i] = t if record else t.detach()  # type: ignore[union-attr]
        return join(found)

    return out, tangent_map


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
