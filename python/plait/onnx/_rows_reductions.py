"""Reductions, scans, sorting, softmax and norms over dimensions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from plait.onnx._build import FLOATS, Value
from plait.onnx._record import Dim
from plait.onnx._rows_elements import close, isnan
from plait.onnx._table import (
    Node,
    axes,
    count,
    expanded,
    joined,
    no,
    number,
    reduced,
    reshaped,
    row,
    squeezed,
    unsqueezed,
)


@row("sum mean prod amax amin any all nansum nanmean")
def _reduction(n: Node, input: Value, dim: Any, keepdim: bool = False, **args: Any) -> Value:
    at = axes(dim, input.rank)
    if n.op in ("any", "all"):
        x = input.to("bool").to("int32")
        return reduced("ReduceSum" if n.op == "any" else "ReduceMin", x, at, keepdim).to("bool")
    x = input.to(n.dtype)
    if n.op in ("nansum", "nanmean"):
        missing = isnan(x).known(x.shape)
        total = reduced("ReduceSum", missing.where(0.0, x).known(x.shape), at, keepdim)
        if n.op == "nansum":
            return total
        return total / reduced("ReduceSum", (~missing).to(n.dtype).known(x.shape), at, keepdim)
    if n.op == "mean":
        return reduced("ReduceMean", x, at, keepdim)
    name = {"sum": "ReduceSum", "prod": "ReduceProd", "amax": "ReduceMax", "amin": "ReduceMin"}[n.op]
    if n.dtype == "bool":
        return reduced(name, x.to("int32").known(x.shape), at, keepdim).to("bool")
    return reduced(name, x, at, keepdim)


@row("argmax argmin")
def _arg(n: Node, input: Value, dim: Any, keepdim: bool) -> Value:
    name = "ArgMax" if n.op == "argmax" else "ArgMin"
    x = input.to("int32").known(input.shape) if input.dtype == "bool" else input
    if input.rank == 0:
        return n.b.constant(0, "int64")
    if dim:
        return x.make(name, dtype="int64", axis=dim[0], keepdims=int(keepdim))
    flat = x.make("Reshape", n.b.ints([-1])).make(name, dtype="int64", axis=0, keepdims=0)
    return flat.known([]) if not keepdim else reshaped(flat.known([]), [1] * input.rank)


@row("max min")
def _extreme(n: Node, input: Value, dim: int, keepdim: bool) -> list[Value]:
    if input.rank == 0:
        return [input.make("Identity"), n.b.constant(0, "int64")]
    x = input.to("int32").known(input.shape) if input.dtype == "bool" else input
    kind = "Max" if n.op == "max" else "Min"
    values = reduced("Reduce" + kind, x, axes(dim, input.rank), keepdim).to(n.dtype)
    return [values, x.make("Arg" + kind, dtype="int64", axis=dim, keepdims=int(keepdim))]


@row("var std var_mean std_mean")
def _var(n: Node, input: Value, dim: Any, correction: float, keepdim: bool) -> Any:
    at = axes(dim, input.rank)
    mean = reduced("ReduceMean", input, at, True)
    apart = (input - mean).known(input.shape)
    total = reduced("ReduceSum", (apart * apart).known(input.shape), at, keepdim)
    out = total / (count(input, at, n.dtype) - correction).make("Max", 0)
    if n.op.startswith("std"):
        out = out.make("Sqrt")
    return out if not n.op.endswith("mean") else [out, mean if keepdim or not at else squeezed(mean, *at)]


@row("logsumexp")
def _logsumexp(n: Node, input: Value, dim: Any, keepdim: bool) -> Value:
    x, at = input.to(n.dtype).known(input.shape), axes(dim, input.rank)
    high = reduced("ReduceMax", x, at, True)
    finite = high.make("Abs").equals(math.inf).where(0.0, high).known(high.shape)
    total = reduced("ReduceSum", (x - finite).make("Exp").known(x.shape), at, True).make("Log") + finite
    total.known(high.shape)
    return total if keepdim or not at else squeezed(total, *at)


@row("norm vector_norm")
def _norm(n: Node, input: Value, dim: Any, keepdim: bool, **args: Any) -> Value:
    p = number(args.get("ord", args.get("p")))
    return norm(input.to(n.dtype).known(input.shape), p, axes(dim, input.rank), keepdim)


def norm(x: Value, p: float, at: list[int], keepdim: bool) -> Value:
    """Returns the p-norm over dimensions."""
    if p == 2:
        return reduced("ReduceL2", x, at, keepdim)
    size = x.make("Abs").known(x.shape)
    if p == 0:
        return reduced("ReduceSum", (~x.equals(0)).to(x.dtype).known(x.shape), at, keepdim)
    if math.isinf(p):
        return reduced("ReduceMax" if p > 0 else "ReduceMin", size, at, keepdim)
    if p == 1:
        return reduced("ReduceSum", size, at, keepdim)
    return reduced("ReduceSum", (size**p).known(x.shape), at, keepdim) ** (1 / p)


@row("count_nonzero")
def _count_nonzero(n: Node, input: Value, dim: Any) -> Value:
    x = input if input.dtype == "bool" else ~input.equals(0)
    return reduced("ReduceSum", x.to("int64").known(input.shape), axes(dim, input.rank))


@row("softmax softmin log_softmax")
def _softmax(n: Node, input: Value, dim: int) -> Value:
    x = input.to(n.dtype).known(input.shape)
    if x.rank == 0:
        return (x * 0) if n.op == "log_softmax" else x * 0 + 1
    x = -x if n.op == "softmin" else x
    return x.make("LogSoftmax" if n.op == "log_softmax" else "Softmax", axis=dim)


@row("cumsum")
def _cumsum(n: Node, input: Value, dim: int, **args: Any) -> Value:
    if input.rank == 0:
        return input.to(n.dtype)
    return input.to(n.dtype).make("CumSum", n.b.scalar(dim))


@row("logcumsumexp")
def _logcumsumexp(n: Node, input: Value, dim: int) -> Value:
    if input.rank == 0:
        return input.make("Identity")
    high = reduced("ReduceMax", input, axes(dim, input.rank), True)
    return (input - high).make("Exp").make("CumSum", n.b.scalar(dim)).make("Log") + high


@row("cumprod cummax cummin")
def _cumulative(n: Node, input: Value, dim: int, **args: Any) -> Any:
    """Of each element, the reduction of those up to it: of a matrix that has neutral elements behind them."""
    if input.rank == 0:
        return input.to(n.dtype) if n.op == "cumprod" else [input.make("Identity"), n.b.constant(0, "int64")]
    d = dim % input.rank
    size = input.size(d)
    x = unsqueezed(input.to(n.dtype).known(input.shape), d)
    shape = [1] * x.rank
    shape[d], shape[d + 1] = size, size
    upto = n.b.constant(np.tril(np.ones((size, size), bool)).reshape(shape))
    if n.op == "cumprod":
        neutral: Any = 1
    elif n.dtype in FLOATS:
        neutral = -math.inf if n.op == "cummax" else math.inf
    else:
        info = np.iinfo(n.dtype) if n.dtype != "bool" else None
        if info is None:
            raise no("for bool")
        neutral = info.min if n.op == "cummax" else info.max
    wide = upto.where(x, neutral).known([*input.dims[:d], size, size, *input.dims[d + 1 :]])
    if n.op == "cumprod":
        return reduced("ReduceProd", wide, [d + 1])
    name = "Max" if n.op == "cummax" else "Min"
    return [
        reduced("Reduce" + name, wide, [d + 1]),
        wide.make("Arg" + name, dtype="int64", axis=d + 1, keepdims=0, select_last_index=1),
    ]


@row("diff")
def _diff(n: Node, input: Value, count: int = 1, dim: int = -1, prepend: Any = None, append: Any = None) -> Value:
    d = dim % input.rank
    x = joined([v.to(input.dtype) for v in (prepend, input, append) if v is not None], d)
    if count > 64:
        raise no("more than 64 times")
    for _ in range(count):
        least, most = n.b.ints([0]), n.b.ints([np.iinfo(np.int64).max])
        at = n.b.ints([d])
        later = x.make("Slice", n.b.ints([1]), most, at)
        earlier = x.make("Slice", least, n.b.ints([-1]), at)
        x = later.make("Xor", earlier) if x.dtype == "bool" else later - earlier
    return x


def _top(n: Node, x: Value, k: Any, d: int, largest: bool) -> list[Value]:
    work = x.to("int32" if x.dtype in ("bool", "uint8", "int8", "int16") else x.dtype)
    values, indices = n.b.node(
        "TopK", [work, n.b.one(k)], [work.dtype, "int64"], axis=d, largest=int(largest), sorted=1
    )
    return [values.to(x.dtype), indices]


@row("topk")
def _topk(n: Node, input: Value, k: Any, dim: int, largest: bool, sorted: bool) -> list[Value]:
    if input.rank == 0:
        return [input.make("Identity"), n.b.constant(0, "int64")]
    return _top(n, input, k, dim % input.rank, largest)


@row("sort argsort msort")
def _sort(n: Node, input: Value, dim: int = 0, descending: bool = False, **args: Any) -> Any:
    if input.rank == 0:
        both = [input.make("Identity"), n.b.constant(0, "int64")]
    else:
        d = dim % input.rank
        both = _top(n, input, input.dims[d], d, descending)
    return {"sort": both, "argsort": both[1], "msort": both[0]}[n.op]


@row("kthvalue median")
def _kthvalue(n: Node, input: Value, dim: int, keepdim: bool, k: int = 0, **args: Any) -> list[Value]:
    if input.rank == 0:
        return [input.make("Identity"), n.b.constant(0, "int64")]
    d = dim % input.rank
    at = k or (input.size(d) - 1) // 2 + 1
    if n.op == "median" and input.dtype in FLOATS:
        nan = reduced("ReduceMax", isnan(input).to("int32").known(input.shape), [d], True).to("bool")
    values, indices = _top(n, input, at, d, False)
    index = n.b.constant(np.asarray([at - 1]))
    value, where = values.make("Gather", index, axis=d), indices.make("Gather", index, axis=d)
    if n.op == "median" and input.dtype in FLOATS:
        first = isnan(input).to("int32").known(input.shape).make("ArgMax", dtype="int64", axis=d, keepdims=1)
        value, where = nan.where(math.nan, value), nan.where(first, where)
    shape = [1 if i == d else s for i, s in enumerate(input.dims)]
    out = [value.known(shape), where.known(shape)]
    return out if keepdim else [squeezed(v, d) for v in out]


@row("searchsorted bucketize")
def _searchsorted(n: Node, input: Any, out_int32: bool, right: bool, **args: Any) -> Value:
    if args.get("sorter") is not None:
        raise no("with a sorter")
    ends: Value = args["boundaries" if n.op == "bucketize" else "sorted_sequence"]
    if ends.rank != 1:
        raise no("in more than one sequence")
    x = n.b.like(input, ends.dtype)
    x.known(input.shape if isinstance(input, Value) else [])
    wide = unsqueezed(x, -1)
    below = (ends <= wide) if right else (ends < wide)
    return reduced("ReduceSum", below.to("int64").known([*x.dims, ends.dims[0]]), [x.rank]).to(n.dtype)


@row("isin")
def _isin(n: Node, elements: Any, test_elements: Any, invert: bool) -> Value:
    dtype = n.common(elements, test_elements)
    x, y = n.b.like(elements, dtype), n.b.like(test_elements, dtype)
    x.known(elements.shape if isinstance(elements, Value) else [])
    flat = y.make("Reshape", n.b.ints([-1]))
    same = unsqueezed(x, -1).equals(flat).to("int32").known([*x.dims, Dim(())])
    found = reduced("ReduceSum", same, [x.rank]).to("bool")
    return ~found if invert else found


@row("equal allclose")
def _equal(n: Node, input: Value, other: Value, **args: Any) -> Value:
    dtype = n.common(input, other)
    x, y = input.to(dtype), other.to(dtype)
    same = x.equals(y) if n.op == "equal" else close(x, y, args["rtol"], args["atol"], args["equal_nan"])
    flat = same.to("int32").make("Reshape", n.b.ints([-1])).known([Dim(())])
    return reduced("ReduceMin", flat, [0]).to("bool")


@row("normalize")
def _normalize(n: Node, input: Value, p: float, dim: int, eps: float) -> Value:
    return input / norm(input, number(p), axes(dim, input.rank), True).make("Max", eps)


@row("trace")
def _trace(n: Node, input: Value) -> Value:
    eye = expanded(n.b.constant(0.0, "float32"), input.dims).make("EyeLike").to("bool")
    kept = eye.where(input.to(n.dtype), n.b.constant(0, n.dtype)).known(input.shape)
    return reduced("ReduceSum", kept, [0, 1])
