"""Products of matrices, and distances."""

from __future__ import annotations

import math
from itertools import combinations
from typing import Any

from plait.onnx._build import Value
from plait.onnx._rows_reductions import norm
from plait.onnx._table import (
    Node,
    axes,
    broadcast,
    expanded,
    no,
    number,
    permuted,
    reduced,
    row,
    unsqueezed,
)


def _cast(n: Node, *values: Value) -> list[Value]:
    return [v.to(n.dtype).known(v.shape) for v in values]


@row("matmul mm bmm mv dot vdot chain_matmul multi_dot")
def _matmul(n: Node, **args: Any) -> Value:
    (first, *rest) = args.values()
    values = _cast(n, *(first if isinstance(first, list) else [first, *rest]))
    out = values[0]
    for v in values[1:]:
        out = out.make("MatMul", v)
    return out


@row("linear")
def _linear(n: Node, input: Value, weight: Value, bias: Value | None) -> Value:
    x, w = _cast(n, input, weight)
    if x.rank == 2 and w.rank == 2 and n.dtype in ("float32", "float64", "float16"):
        return n.b.node("Gemm", [x, w, bias.to(n.dtype) if bias else None], [n.dtype], transB=1)[0]
    out = x.make("MatMul", permuted(w, [1, 0]) if w.rank == 2 else w)
    return out if bias is None else out + bias.to(n.dtype)


def _scaled(x: Value, by: float) -> Value:
    return x if by == 1 else x * by


@row("addmm addmv addr baddbmm addbmm")
def _addmm(n: Node, input: Any, beta: float, alpha: float, **args: Value) -> Value:
    a, b = _cast(n, *args.values())
    if n.op == "addr":
        product = unsqueezed(a, 1) * unsqueezed(b, 0)
    else:
        product = a.make("MatMul", b)
        if n.op == "addbmm":
            product = reduced("ReduceSum", product.known([a.dims[0], a.dims[1], b.dims[2]]), [0])
    product = _scaled(product, alpha)
    out = product if beta == 0 else _scaled(n.b.like(input, n.dtype), beta) + product
    return out


@row("outer")
def _outer(n: Node, input: Value, vec2: Value) -> Value:
    a, b = _cast(n, input, vec2)
    return unsqueezed(a, 1) * unsqueezed(b, 0)


@row("inner")
def _inner(n: Node, input: Value, other: Value) -> Value:
    a, b = _cast(n, input, other)
    if a.rank == 0 or b.rank == 0:
        return a * b
    if b.rank <= 2:
        return a.make("MatMul", permuted(b, [1, 0]) if b.rank == 2 else b)
    letters = "abcdefghijklmnopqrstuvwxyz"
    left, right = letters[: a.rank - 1], letters[a.rank - 1 : a.rank + b.rank - 2]
    return n.b.node("Einsum", [a, b], [n.dtype], equation=f"{left}z,{right}z->{left}{right}")[0]


@row("einsum")
def _einsum(n: Node, equation: str, operands: list[Value]) -> Value:
    equation = equation.replace(" ", "")
    terms = equation.split("->")[0].split(",")
    ranks = {x.rank - len(t) + 3 for x, t in zip(operands, terms, strict=True) if "..." in t}
    if len(ranks) > 1:
        raise no("with an ellipsis for different numbers of dimensions")
    return n.b.node("Einsum", _cast(n, *operands), [n.dtype], equation=equation)[0]


@row("tensordot")
def _tensordot(n: Node, input: Value, other: Value, dims_self: list[int], dims_other: list[int]) -> Value:
    letters = "abcdefghijklmnopqrstuvwxyz"
    a, b = _cast(n, input, other)
    left, right = list(letters[: a.rank]), list(letters[a.rank : a.rank + b.rank])
    for i, j in zip(dims_self, dims_other, strict=True):
        right[j % b.rank] = left[i % a.rank]
    kept = [c for c in left if c not in right] + [c for c in right if c not in left]
    equation = f"{''.join(left)},{''.join(right)}->{''.join(kept)}"
    return n.b.node("Einsum", [a, b], [n.dtype], equation=equation)[0]


@row("bilinear")
def _bilinear(n: Node, input1: Value, input2: Value, weight: Value, bias: Value | None) -> Value:
    values = _cast(n, input1, weight, input2)
    out = n.b.node("Einsum", values, [n.dtype], equation="...i,oij,...j->...o")[0]
    return out if bias is None else out + bias.to(n.dtype)


@row("linalg_det")
def _det(n: Node, **args: Value) -> Value:
    return next(iter(args.values())).make("Det")


@row("cosine_similarity")
def _cosine_similarity(n: Node, x1: Value, x2: Value, dim: int, eps: float) -> Value:
    a, b = _cast(n, x1, x2)
    shape = _common(a, b)
    d = dim % len(shape)
    a, b = expanded(a, shape), expanded(b, shape)
    product = reduced("ReduceSum", (a * b).known(shape), [d])
    sizes = [reduced("ReduceL2", v, [d]).make("Max", eps) for v in (a, b)]
    return product / (sizes[0] * sizes[1])


def _common(a: Value, b: Value) -> list[Any]:
    return broadcast(a.dims, b.dims)


@row("pairwise_distance dist cdist")
def _distance(n: Node, p: Any, keepdim: bool = False, eps: float = 0.0, **args: Any) -> Value:
    args.pop("compute_mode", None)  # how, not what
    a, b = _cast(n, *args.values())
    if n.op == "cdist":
        a, b = unsqueezed(a, -2), unsqueezed(b, -3)
    shape = _common(a, b)
    apart = (a - b if not eps else a - b + eps).known(shape)
    if n.op == "cdist" and math.isinf(number(p)):  # whose largest difference is no NaN
        apart = apart.make("IsNaN", dtype="bool").where(0.0, apart)
    at = axes(None if n.op == "dist" else [len(shape) - 1], len(shape))
    return norm(apart.known(shape), number(p), at, keepdim)


@row("pdist")
def _later_pairs(n: Node, p: Any, input: Value) -> Value:
    (x,) = _cast(n, input)
    pairs = list(combinations(range(x.dims[-2]), 2))
    shape = [*x.dims[:-2], len(pairs), x.dims[-1]]
    a, b = (x.make("Gather", n.b.ints([pair[i] for pair in pairs]), axis=x.rank - 2).known(shape) for i in range(2))
    return norm((a - b).known(shape), number(p), axes([x.rank - 1], x.rank), False)
