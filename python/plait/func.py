"""Functions made of functions: gradients, Jacobians, and calls for each part of a batch.

Arguments and results may be tensors in nested tuples, lists and dicts. `grad`, `vjp` and `jacrev` are made by backward
passes: those inside another transform, or of an argument that requires a gradient, are recorded themselves; gradients
flow back through the arguments, not through other tensors that the function refers to. `jvp` and `jacfwd` are made in
forward mode, together with the results.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from plait import _core, _ops
from plait._autograd import backward as _autograd
from plait._autograd import batch as _batch
from plait._autograd import forward as _forward
from plait._device import device
from plait._engine.missing_names import absent as _absent
from plait._engine.pytree import flatten, spread, tree_map
from plait._modes import enable_grad, is_grad_enabled
from plait._random import get_rng_state, set_rng_state
from plait._tensor import Tensor
from plait.nn.utils.stateless import functional_call

__all__ = [
    "functional_call",
    "grad",
    "grad_and_value",
    "hessian",
    "jacfwd",
    "jacrev",
    "jvp",
    "stack_module_state",
    "vjp",
    "vmap",
]

Func = Callable[..., Any]


class _Local(threading.local):
    depth = 0


_local = _Local()


class _Transform(_core.Scope):
    """What a transform does; `nested` says whether the thread does it in another, `recorded` whether operations around
    it are recorded.
    """

    nested = recorded = False

    def _begin(self) -> int:
        before = _local.depth
        self.nested, self.recorded = before > 0, is_grad_enabled()
        _local.depth = before + 1
        return before

    def _end(self, before: int) -> None:
        _local.depth = before


def _tensors(name: str, leaves: Sequence[Any]) -> list[Tensor]:
    for leaf in leaves:
        if not isinstance(leaf, Tensor):
            raise TypeError(f"{name}: want tensors, got {type(leaf).__name__} {leaf!r:.60}")
    return list(leaves)


class _Inputs:
    """The arguments of a function by which it is derived, as tensors that require a gradient."""

    def __init__(self, name: str, tree: Any, transform: _Transform) -> None:
        leaves, self.build = flatten(tree)
        given = [_batch.everywhere(x) for x in _tensors(name, leaves)]
        self.tied = transform.nested or any(x.requires_grad for x in given)  # to the graph around the transform
        self.record = self.tied
        self.watched = transform.recorded and not self.tied  # what else the function depends on decides
        self.leaves = [x.view_as(x) if x.requires_grad else _forward.bare(x).requires_grad_() for x in given]

    def derives(self, *returned: Any) -> None:
        """Takes note of what the function returns. Results are recorded too where it depends on other tensors that
        require a gradient, such as the parameters of a module.
        """
        if self.watched:
            tensors = [t for t in flatten(returned)[0] if isinstance(t, Tensor) and t.requires_grad]
            self.record = _autograd.reaches_others(tensors, self.leaves)

    def grads(self, outputs: Sequence[Tensor], vectors: Sequence[Tensor], record: bool) -> list[Tensor]:
        """Returns the products of vectors with the Jacobians of outputs, zeros where they do not depend on an input."""
        pairs = [(y, v) for y, v in zip(outputs, vectors, strict=True) if y.requires_grad]
        if not pairs:
            return [_ops.zeros_like(x) for x in self.leaves]
        found = _autograd.grad(
            [y for y, _ in pairs],
            self.leaves,
            [v for _, v in pairs],
            retain_graph=True,
            create_graph=record,
            materialize_grads=True,
        )
        return [self._outside(x, record) for x in found]  # type: ignore[arg-type]

    def result(self, tree: Any) -> Any:
        """Returns a result of the function for the caller: with its graph only if that is recorded."""
        return tree_map(lambda t: self._outside(t, self.record) if isinstance(t, Tensor) else t, tree)

    def _outside(self, t: Tensor, record: bool) -> Tensor:
        if not t.requires_grad or (record and (self.tied or _autograd.reaches_others([t], self.leaves))):
            return t
        return _forward.bare(t)


def _pick(args: Sequence[Any], argnums: int | Sequence[int]) -> Any:
    return args[argnums] if isinstance(argnums, int) else tuple(args[i] for i in argnums)


def _put(args: Sequence[Any], argnums: int | Sequence[int], values: Any) -> list[Any]:
    out = list(args)
    places = [(argnums, values)] if isinstance(argnums, int) else zip(argnums, values, strict=True)
    for i, v in places:
        out[i] = v
    return out


def _split(name: str, out: Any, has_aux: bool) -> tuple[Any, Any]:
    if not has_aux:
        return out, None
    if not isinstance(out, tuple) or len(out) != 2:
        raise TypeError(f"{name}: with has_aux the function must return a pair, got {type(out).__name__}")
    return out


def grad_and_value(func: Func, argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Func:
    """Returns a function that returns the gradient of `func`, which returns one element, and what it returns.

    Args:
        func: the function
        argnums: the argument, or arguments, for which the gradient is
        has_aux: func returns a pair, of which only the first is derived; the result is (gradient, (value, aux))
    """

    def gradient(*args: Any, **kwargs: Any) -> Any:
        with _Transform() as transform, enable_grad():
            inputs = _Inputs("grad", _pick(args, argnums), transform)
            out = func(*_put(args, argnums, inputs.build(inputs.leaves)), **kwargs)
            value, aux = _split("grad", out, has_aux)
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
    with _Transform() as transform, enable_grad():
        inputs = _Inputs("vjp", primals, transform)
        out, aux = _split("vjp", func(*inputs.build(inputs.leaves)), has_aux)
        leaves = _tensors("vjp", flatten(out)[0])
        inputs.derives(leaves, aux)

    def product(cotangents: Any) -> Any:
        vectors = _tensors("vjp", flatten(cotangents)[0])
        if [v.shape for v in vectors] != [y.shape for y in leaves]:
            shapes = [list(v.shape) for v in vectors]
            raise RuntimeError(f"vjp: got vectors of shapes {shapes}, want {[list(y.shape) for y in leaves]}")
        record = inputs.record or _local.depth > 0 or (is_grad_enabled() and any(v.requires_grad for v in vectors))
        return inputs.build(inputs.grads(leaves, vectors, record))

    result = (inputs.result(out), product)
    return (*result, inputs.result(aux)) if has_aux else result


def jvp(func: Func, primals: Any, tangents: Any, *, strict: bool = False, has_aux: bool = False) -> tuple[Any, ...]:
    """Returns what a function returns for a tuple of arguments, and the product of its Jacobian with a tuple of
    vectors; with has_aux, aux is third. With strict, a result that depends on no argument is an error.
    """
    leaves, build = flatten(tuple(primals))
    xs, vs = _tensors("jvp", leaves), _tensors("jvp", flatten(tuple(tangents))[0])
    if [v.shape for v in vs] != [x.shape for x in xs]:
        shapes = [list(v.shape) for v in vs]
        raise RuntimeError(f"jvp: got tangents of shapes {shapes}, want {[list(x.shape) for x in xs]}")
    xs, vs = [_batch.everywhere(x) for x in xs], [_batch.everywhere(v) for v in vs]
    if _batch.levels():  # what is repeated for each part shares memory, and func may change it
        xs = [_ops.clone(x) for x in xs]
    with _forward.Level() as level:
        at = level.handle
        out, aux = _split("jvp", func(*build([_forward.dual(x, v, at) for x, v in zip(xs, vs, strict=True)])), has_aux)
        found, join = flatten(out)
        ys = _tensors("jvp", found)
        made = [_forward.tangent_of(y, at) for y in ys]
        if strict and None in made:
            raise RuntimeError("jvp: a result depends on no argument, which strict forbids")
        values = join([_forward.dual(y, None, at) for y in ys])
        products = join([_ops.zeros_like(y) if t is None else t for y, t in zip(ys, made, strict=True)])
        if has_aux:
            aux = tree_map(lambda t: _forward.dual(t, None, at) if isinstance(t, Tensor) else t, aux)
    return (values, products, aux) if has_aux else (values, products)


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
        with _Transform() as transform, enable_grad():
            inputs = _Inputs("jacrev", _pick(args, argnums), transform)
            result = func(*_put(args, argnums, inputs.build(inputs.leaves)), **kwargs)
            out, aux = _split("jacrev", result, has_aux)
            leaves, build = flatten(out)
            inputs.derives(_tensors("jacrev", leaves), aux)
            parts = [inputs.build(_rows(inputs, y, chunk_size)) for y in leaves]
        made = build(parts)
        return (made, inputs.result(aux)) if has_aux else made

    return jacobian


def _rows(inputs: _Inputs, y: Tensor, chunk_size: int | None) -> list[Tensor]:
    """Returns the Jacobians of one result: backward passes for all of its elements at once, or for some at a time."""
    _real("jacrev", (y, *inputs.leaves))
    n = y.numel()
    if not n:
        return [x.new_zeros((*y.shape, *x.shape)) for x in inputs.leaves]
    units = _ops.reshape(_ops.eye(n, dtype=y.dtype, device=y.device), (n, *y.shape))
    step = n if chunk_size is None else chunk_size
    chunks = []
    for start in range(0, n, step):
        with _batch.Level(min(step, n - start)) as level:
            vector = level.wrap(_ops.narrow(units, 0, start, level.size))
            chunks.append([level.whole(g) for g in inputs.grads([y], [vector], inputs.record)])
    return [
        _joined(list(c), 0).reshape((*y.shape, *x.shape))
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
    _check_randomness("jacfwd", randomness)

    def jacobian(*args: Any, **kwargs: Any) -> Any:
        leaves, build = flatten(_pick(args, argnums))
        xs = _tensors("jacfwd", leaves)
        _real("jacfwd", xs)
        if not any(x.numel() for x in xs):
            raise RuntimeError("jacfwd: the arguments have no element")
        plain: list[Any] = []  # what aux has beside tensors

        def push(*vectors: Tensor) -> Any:
            _, products, *rest = jvp(
                lambda *x: func(*_put(args, argnums, build(list(x))), **kwargs), xs, vectors, has_aux=has_aux
            )
            found, join = flatten(products)
            extra, whole = flatten(rest[0]) if rest else ([], None)
            plain[:] = [join, whole, extra]
            return _tensors("jacfwd", found), [e for e in extra if isinstance(e, Tensor)]

        try:
            columns, aux = _mapped("jacfwd", push, 0, 0, randomness, _COLUMNS)(*_units(xs))
        except NotImplementedError:  # func looks at values
            columns, aux = _one_by_one(push, _units(xs), randomness)
        join, whole, extra = plain
        ends = iter([a[0] for a in aux])
        parts = []
        for c in columns:
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
    draws = _Draws("jacfwd", randomness, {r.device for r in rows})
    made = []
    for i in range(rows[0].shape[0]):
        with draws:
            made.append(function(*(r[i] for r in rows)))
    return tuple([_ops.stack(list(c)) for c in zip(*(m[k] for m in made), strict=True)] for k in (0, 1))


def _units(xs: Sequence[Tensor]) -> list[Tensor]:
    """Returns tangents of xs, along a first dimension: a one for each element of all of them."""
    n, at = sum(x.numel() for x in xs), 0
    units = []
    for x in xs:
        m = x.numel()
        one = _ops.eye(m, dtype=x.dtype, device=x.device)
        before, after = (_ops.zeros((k, m), dtype=x.dtype, device=x.device) for k in (at, n - at - m))
        units.append(_ops.reshape(_ops.cat([before, one, after]), (n, *x.shape)))
        at += m
    return units


def _real(name: str, tensors: Sequence[Tensor]) -> None:
    if any(t.dtype.is_complex for t in tensors):
        raise TypeError(f"{name}: not defined for complex numbers; take functions of their view_as_real")


def hessian(func: Func, argnums: int | Sequence[int] = 0) -> Func:
    """Returns a function that returns the Hessian of `func`: the Jacobian of its Jacobian, forward over reverse."""
    return jacfwd(jacrev(func, argnums), argnums)


def _check_randomness(name: str, randomness: str) -> None:
    if randomness not in ("error", "different", "same"):
        raise ValueError(f'{name}: randomness must be "error", "different" or "same", got {randomness!r}')


class _Draws:
    """Around each call of a mapped function: what becomes of the random numbers that it draws."""

    def __init__(self, name: str, randomness: str, places: set[device]) -> None:
        self.name, self.randomness, self.places = name, randomness, places | {device("cpu")}
        self.first: list[Any] | None = None

    def _states(self) -> list[Any]:
        return [get_rng_state(p) for p in self.places]

    def __enter__(self) -> None:
        if self.first is None:
            self.first = self._states()
        elif self.randomness == "same":
            for p, state in zip(self.places, self.first, strict=True):
                set_rng_state(state, p)

    def restart(self) -> None:
        """Takes back what the calls so far have drawn."""
        for p, state in zip(self.places, self.first or [], strict=False):
            set_rng_state(state, p)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None and self.randomness == "error" and self._states() != self.first:
            raise RuntimeError(
                f'{self.name}: the function draws random numbers; say randomness="different", or "same" for equal ones'
            )


def vmap(
    func: Func, in_dims: Any = 0, out_dims: Any = 0, randomness: str = "error", *, chunk_size: int | None = None
) -> Func:
    """Returns a function that applies `func` to each part of its arguments along a dimension, to all at once.

    Inside, tensors have no such dimension. Their values cannot be read there, and shapes cannot depend on them. An
    operation without a rule for batches is applied to the parts one by one, and a `UserWarning` names it once.

    Args:
        func: takes and returns tensors
        in_dims: the dimension of each argument, or of what is in it; None for what every part gets whole, as it does
            arguments by name
        out_dims: the dimension of each result; None for one that is the same for all parts
        randomness: whether func may draw random numbers: "error", "different" ones for each part, or the "same", for
            which it is called for each part, one by one.
        chunk_size: how many parts, at most, one call of func gets; None for all
    """
    return _mapped("vmap", func, in_dims, out_dims, randomness, chunk_size)


def _mapped(name: str, func: Func, in_dims: Any, out_dims: Any, randomness: str, chunk_size: int | None) -> Func:
    """Returns what `vmap` does; a function that draws random numbers is told so by `name`."""
    _check_randomness(name, randomness)
    if chunk_size is not None and chunk_size < 1:
        raise ValueError(f"vmap: chunk_size must be at least 1, got {chunk_size}")

    def mapped(*args: Any, **kwargs: Any) -> Any:
        leaves, build = flatten((list(args), kwargs))
        whole = in_dims is None or isinstance(in_dims, int)
        dims = spread(([in_dims] * len(args) if whole else list(in_dims), None), (list(args), kwargs), "vmap: in_dims")
        for leaf, d in zip(leaves, dims, strict=True):
            if d is not None and (not isinstance(leaf, Tensor) or not leaf.shape):
                what = "a tensor without dimensions" if isinstance(leaf, Tensor) else type(leaf).__name__
                raise ValueError(f"vmap: in_dims has dimension {d} for {what}; want None")
        rows = [leaf if d is None else _ops.movedim(leaf, d, 0) for leaf, d in zip(leaves, dims, strict=True)]
        sizes = {r.shape[0] for r, d in zip(rows, dims, strict=True) if d is not None}
        if len(sizes) != 1:
            found = f"dimensions of different sizes {sorted(sizes)}" if sizes else "no dimension"
            raise ValueError(f"vmap: got {found} to take parts along")
        size = sizes.pop()
        if not size:
            raise ValueError("vmap: got a dimension of size 0, of which no result can be made")
        step = size if chunk_size is None else chunk_size
        draws = _Draws(name, randomness, {t.device for t in leaves if isinstance(t, Tensor)})

        def calls(step: int, different: bool) -> list[Any]:
            made = []
            for start in range(0, size, step):
                count = min(step, size - start)
                own = [
                    r if d is None or count == size else _ops.narrow(r, 0, start, count)
                    for r, d in zip(rows, dims, strict=True)
                ]
                with draws:
                    made.append(_together(func, own, dims, build, out_dims, _batch.Level(count, different)))
            return made

        if randomness == "same":
            made = calls(1, False)
        elif randomness == "error":
            made = calls(step, False)
        else:
            try:
                made = calls(step, True)
            except NotImplementedError:  # numbers that are drawn in ways without a rule
                draws.restart()
                made = calls(1, False)
        _batch.report()
        join = made[0][1]
        ends = made[0][2]
        return join([_joined(list(c), d) for c, d in zip(zip(*(m[0] for m in made), strict=True), ends, strict=True)])

    return mapped


def _together(
    func: Func, rows: Sequence[Any], dims: Sequence[Any], build: Any, out_dims: Any, level: _batch.Level
) -> tuple[list[Tensor], Any, list[Any]]:
    """Returns the results of a function for the parts of a level, which lie along dimension 0 of rows; that of the
    results is the batch too, but for those with the dimension None."""
    with level:
        args, kwargs = build([r if d is None else level.wrap(r) for r, d in zip(rows, dims, strict=True)])
        found, join = flatten(func(*args, **kwargs))
        made = []
        ends = spread(out_dims, join(found), "vmap: out_dims")
        for y, d in zip(_tensors("vmap", found), ends, strict=True):
            if d is None and level.unwrap(y) is not None:
                raise ValueError("vmap: out_dims is None for a result that differs from part to part; want a dimension")
            made.append(y if d is None else level.whole(y))
    return made, join, ends


def _joined(parts: Sequence[Tensor], dim: int | None) -> Tensor:
    """Returns the results of several calls as one, whose batch is its dimension `dim`."""
    if dim is None:
        return parts[0]
    whole = parts[0] if len(parts) == 1 else _ops.cat(list(parts))
    return whole if dim == 0 else _ops.movedim(whole, 0, dim)


def stack_module_state(models: Sequence[Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the parameters and the buffers of modules of one class by name, stacked, for `vmap`."""
    if not models:
        raise RuntimeError("stack_module_state: want at least one module, got none")
    if any(type(m) is not type(models[0]) for m in models):
        raise RuntimeError("stack_module_state: the modules must be of one class")
    params = {
        name: _ops.stack([dict(m.named_parameters())[name].detach() for m in models]).requires_grad_()
        for name, _ in models[0].named_parameters()
    }
    buffers = {
        name: _ops.stack([dict(m.named_buffers())[name] for m in models]) for name, _ in models[0].named_buffers()
    }
    return params, buffers


def __getattr__(name: str) -> object:
    raise _absent("func", "plait.func", name)
