"""Whole Jacobians, and the Hessian."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from plait import _ops
from plait._autograd import batch as _batch
from plait._autograd.units import beside, units
from plait._engine.pytree import flatten
from plait._modes import enable_grad
from plait._tensor import Tensor
from plait.func._batches import Draws, check_randomness, joined, map_parts
from plait.func._gradients import jvp
from plait.func._transform import Func, Inputs, Transform, pick, put, split_aux, tensors_of


def jacrev(
    func: Func, argnums: int | Sequence[int] = 0, has_aux: bool = False, *, chunk_size: int | None = None
) -> Func:
    """Returns a function that returns the Jacobian of `func`: for each tensor of the result and of the arguments one of
    the shapes of both; with has_aux, a pair of that and aux.

    Args:
        func: the function
        argnums: the argument, or arguments, for which the Jacobian is
        has_aux: func returns a pair, of which only the first is derived
        chunk_size: of how many elements of a result, at most, one backward pass is; None for all
    """
    if chunk_size is not None and chunk_size < 1:
        raise ValueError(f"jacrev: chunk_size must be at least 1, got {chunk_size}")

    def jacobian(*args: Any, **kwargs: Any) -> Any:
        with Transform() as transform, enable_grad():
            inputs = Inputs("jacrev", pick(args, argnums), transform)
            result = func(*put(args, argnums, inputs.build(inputs.leaves)), **kwargs)
            out, aux = split_aux("jacrev", result, has_aux)
            leaves, build = flatten(out)
            inputs.derives(tensors_of("jacrev", leaves), aux)
            parts = [inputs.build(_rows(inputs, y, chunk_size)) for y in leaves]
        made = build(parts)
        return (made, inputs.result(aux)) if has_aux else made

    return jacobian


def _rows(inputs: Inputs, y: Tensor, chunk_size: int | None) -> list[Tensor]:
    """Returns the Jacobians of one result: backward passes for all of its elements at once, or for some at a time."""
    _real("jacrev", (y, *inputs.leaves))
    n = y.numel()
    if not n:
        return [x.new_zeros((*y.shape, *x.shape)) for x in inputs.leaves]
    every = units(y)
    step = n if chunk_size is None else chunk_size
    chunks = []
    for start in range(0, n, step):
        with _batch.Level(min(step, n - start)) as level:
            vector = level.wrap(_ops.narrow(every, 0, start, level.size))
            chunks.append([level.whole(g) for g in inputs.grads([y], [vector], inputs.record)])
    return [
        joined(list(c), 0).reshape((*y.shape, *x.shape))
        for c, x in zip(zip(*chunks, strict=True), inputs.leaves, strict=True)
    ]


def jacfwd(func: Func, argnums: int | Sequence[int] = 0, has_aux: bool = False, *, randomness: str = "error") -> Func:
    """Returns a function that returns what that of `jacrev` does, in forward mode: along all elements of the arguments
    at once, or one by one where `func` looks at values.

    Args:
        func: the function
        argnums: the argument, or arguments, for which the Jacobian is
        has_aux: func returns a pair, of which only the first is derived
        randomness: whether func may draw random numbers: "error", "different" ones for each element, or the "same"
    """
    check_randomness("jacfwd", randomness)
    return forward_jacobian(func, argnums, has_aux, randomness, real=True)


def forward_jacobian(
    func: Func, argnums: int | Sequence[int], has_aux: bool = False, randomness: str = "error", real: bool = False
) -> Func:
    """Returns what `jacfwd` does; unless `real`, complex arguments have their Jacobian along their real parts."""

    def jacobian(*args: Any, **kwargs: Any) -> Any:
        leaves, build = flatten(pick(args, argnums))
        xs = tensors_of("jacfwd", leaves)
        if real:
            _real("jacfwd", xs)
        if not any(x.numel() for x in xs):
            raise RuntimeError("jacfwd: the arguments have no element")
        plain: list[Any] = []  # what aux has beside tensors

        def push(*vectors: Tensor) -> Any:
            _, products, *rest = jvp(
                lambda *x: func(*put(args, argnums, build(list(x))), **kwargs), xs, vectors, has_aux=has_aux
            )
            found, join = flatten(products)
            extra, whole = flatten(rest[0]) if rest else ([], None)
            plain[:] = [join, whole, extra]
            return tensors_of("jacfwd", found), [e for e in extra if isinstance(e, Tensor)]

        try:
            columns, aux = map_parts("jacfwd", push, 0, 0, randomness, _COLUMNS)(*_units(xs))
        except NotImplementedError:  # func looks at values
            columns, aux = _one_by_one(push, _units(xs), randomness)
        join, whole, extra = plain
        ends = iter([a[0] for a in aux])
        parts = []
        for c in columns:
            if real:
                _real("jacfwd", [c])
            own = _ops.split_with_sizes(c, [x.numel() for x in xs])
            parts.append(
                build([_ops.movedim(o, 0, -1).reshape((*c.shape[1:], *x.shape)) for o, x in zip(own, xs, strict=True)])
            )
        made = join(parts)
        return (made, whole([next(ends) if isinstance(e, Tensor) else e for e in extra])) if has_aux else made

    return jacobian


_COLUMNS = 512  # of a Jacobian, at once: more are no faster and take memory


def _one_by_one(function: Func, rows: Sequence[Tensor], randomness: str) -> Any:
    """Does what `vmap` does by a call for each part."""
    draws = Draws("jacfwd", randomness, {r.device for r in rows})
    made = []
    for i in range(rows[0].shape[0]):
        with draws:
            made.append(function(*(r[i] for r in rows)))
    return tuple([_ops.stack(list(c)) for c in zip(*(m[k] for m in made), strict=True)] for k in (0, 1))


def _units(xs: Sequence[Tensor]) -> list[Tensor]:
    """Returns tangents of xs, along a first dimension: a one for each element of all of them."""
    n, at = sum(x.numel() for x in xs), 0
    found = []
    for x in xs:
        m = x.numel()
        one = _ops.eye(m, dtype=x.dtype, device=x.device)
        before, after = (_ops.zeros((k, m), dtype=x.dtype, device=x.device) for k in (at, n - at - m))
        found.append(beside(x, _ops.reshape(_ops.cat([before, one, after]), (n, *x.shape))))
        at += m
    return found


def _real(name: str, tensors: Sequence[Tensor]) -> None:
    if any(t.dtype.is_complex for t in tensors):
        raise TypeError(f"{name}: not defined for complex numbers; take functions of their view_as_real")


def hessian(func: Func, argnums: int | Sequence[int] = 0) -> Func:
    """Returns a function that returns the Hessian of `func`: the Jacobian of its Jacobian, forward over reverse."""
    return jacfwd(jacrev(func, argnums), argnums)
