"""Operations that take elements by their places, or put them there."""

from __future__ import annotations

from typing import Any

import numpy as np

from plait.onnx._build import Value
from plait.onnx._record import Dim
from plait.onnx._table import Node, expanded, joined, no, permuted, reshaped, row, sliced, unsqueezed


@row("embedding")
def _embedding(n: Node, input: Value, weight: Value, **args: Any) -> Value:
    return weight.make("Gather", input)


@row("gather take_along_dim")
def _gather(n: Node, input: Value, dim: Any = None, index: Any = None, **args: Any) -> Value:
    index = args.get("indices", index)
    if n.op == "take_along_dim":
        if dim is None:
            flat = input.make("Reshape", n.b.ints([-1]))
            return flat.make("Gather", index.make("Reshape", n.b.ints([-1])))
        d = dim % input.rank
        shape = list(n.shape)
        index = expanded(index, shape)
        input = expanded(input, [*shape[:d], input.dims[d], *shape[d + 1 :]])
    if input.rank == 0:
        return expanded(input, n.shape)
    return input.make("GatherElements", index, axis=dim % input.rank)


@row("index_select")
def _index_select(n: Node, input: Value, dim: int, index: Value) -> Value:
    if input.rank == 0:
        return input.make("Identity")
    index = index if index.rank else reshaped(index, [1])
    return input.make("Gather", index, axis=dim % input.rank)


@row("take")
def _take(n: Node, input: Value, index: Value) -> Value:
    return input.make("Reshape", n.b.ints([-1])).make("Gather", index)


@row("one_hot")
def _one_hot(n: Node, input: Value, num_classes: int) -> Value:
    if num_classes < 0:
        raise no("with a number of classes that depends on values")
    return unsqueezed(input, -1).equals(n.b.constant(np.arange(n.shape[-1]), input.dtype)).to(n.dtype)


def _places(n: Node, x: Value, indices: list[Any]) -> tuple[list[int], list[Value], bool]:
    """Returns the dimensions that index tensors stand for, the tensors as int64, and whether the dimensions are
    neighbours.
    """
    dims: list[int] = []
    found: list[Value] = []
    at = 0
    groups: list[int] = []
    for i, t in enumerate(indices):
        if t is None:
            at += 1
            continue
        groups.append(i)
        if t.dtype in ("bool", "uint8"):
            if t.rank == 0:
                raise no("with a mask without dimensions")
            parts = n.b.node(
                "Split", [t.make("NonZero", dtype="int64")], ["int64"] * t.rank, axis=0, num_outputs=t.rank
            )
            for p in parts:
                found.append(p.make("Squeeze", n.b.ints([0])).known([Dim(())]))
                dims.append(at)
                at += 1
            continue
        found.append(t.to("int64").known(t.shape))
        dims.append(at)
        at += 1
    together = groups == list(range(groups[0], groups[-1] + 1)) if groups else True
    return dims, found, together


def _tuples(n: Node, x: Value, dims: list[int], found: list[Value]) -> Value:
    """Returns the index tensors as tuples of indices counted from 0, along a last dimension."""
    parts = []
    for d, t in zip(dims, found, strict=True):
        size = n.b.scalar(x.dims[d]) if isinstance(x.dims[d], Dim) else x.dims[d]
        parts.append((t < 0).where(t + size, t).known(t.shape))
    if len(parts) > 1:
        total = parts[0]
        for p in parts[1:]:
            total = total + p
        shape = total.make("Shape", dtype="int64")
        parts = [p.make("Expand", shape).known(None) for p in parts]
    rank = max(p.rank if p.shape is not None else 0 for p in found)
    wide = [p.make("Unsqueeze", n.b.ints([rank])) for p in parts]
    return joined(wide, rank)


@row("index")
def _index(n: Node, input: Value, indices: list[Any]) -> Value:
    if any(t is not None and t.dtype in ("bool", "uint8") and t.elements is None for t in indices):
        raise no("with a mask, as the shape of its result depends on values")
    dims, found, together = _places(n, input, indices)
    if not dims:
        return input.make("Identity")
    if len(dims) == 1:
        return input.make("Gather", found[0], axis=dims[0])
    rest = [d for d in range(input.rank) if d not in dims]
    out = permuted(input, [*dims, *rest]).make("GatherND", _tuples(n, input, dims, found))
    rank = max(t.rank for t in found)
    before = dims[0] if together else 0
    order = [*range(rank, rank + before), *range(rank), *range(rank + before, rank + len(rest))]
    return out if order == sorted(order) else out.make("Transpose", perm=order)


@row("index_put")
def _index_put(n: Node, input: Value, indices: list[Any], values: Any, accumulate: bool) -> Value:
    dims, found, together = _places(n, input, indices)
    if not dims:
        raise no("without indices")
    rest = [d for d in range(input.rank) if d not in dims]
    rank = max(t.rank for t in found)
    before = dims[0] if together else 0
    tuples = _tuples(n, input, dims, found)
    source = n.b.like(values, n.dtype)
    inner = [input.dims[d] for d in rest]
    # The shape of the indexed part: that of the index tensors stands where the dimensions were.
    lead = tuples.make("Shape", dtype="int64", start=0, end=rank)
    parts = [n.b.ints(inner[:before]), lead, n.b.ints(inner[before:])]
    shape = joined([p for p in parts if p.shape != [0]], 0)
    spread = source.make("Expand", shape)
    order = [*range(before, before + rank), *range(before), *range(before + rank, rank + len(rest))]
    spread = spread if order == sorted(order) else spread.make("Transpose", perm=order)
    whole = permuted(input, [*dims, *rest])
    out = whole.make("ScatterND", tuples, spread, reduction="add" if accumulate else None)
    back = np.argsort([*dims, *rest]).tolist()
    return permuted(out.known(whole.shape), back)


def _scattered(n: Node, x: Value, d: int, index: Value, source: Any, how: str | None) -> Value:
    if isinstance(source, Value) and source.shape != []:
        # Only as much of the source is taken as there are indices.
        src = source.to(n.dtype).known(source.shape)
        for i, (want, have) in enumerate(zip(index.dims, src.dims, strict=True)):
            if want != have:
                src = sliced(src, i, 0, want, 1, want)
    else:
        src = expanded(n.b.like(source, n.dtype).known([]), index.dims)
    if x.rank == 0:
        x, index, src = (reshaped(v, [1]) for v in (x, index, src))
        return reshaped(x.make("ScatterElements", index, src, axis=0, reduction=how).known([1]), [])
    return x.make("ScatterElements", index.to("int64"), src, axis=d % x.rank, reduction=how)


@row("scatter scatter_add")
def _scatter(n: Node, input: Value, dim: int, index: Value, src: Any) -> Value:
    return _scattered(n, input, dim, index, src, "add" if n.op == "scatter_add" else None)


@row("scatter_reduce")
def _scatter_reduce(
    n: Node, input: Value, dim: int, index: Value, src: Value, reduce: str, include_self: bool
) -> Value:
    how = {"sum": "add", "prod": "mul", "amax": "max", "amin": "min"}.get(reduce)
    if how is None or not include_self:
        raise no(f"with reduce={reduce!r}, include_self={include_self}")
    return _scattered(n, input, dim, index, src, how)


def _along(n: Node, x: Value, d: int, index: Value) -> Value:
    """Returns an index of a dimension, repeated along the others."""
    shape = [1] * x.rank
    shape[d] = -1
    wide = index.make("Reshape", n.b.ints(shape))
    return wide.make("Expand", n.b.ints([1 if i == d else s for i, s in enumerate(x.dims)]))


@row("index_add index_copy index_fill")
def _index_add(
    n: Node, input: Value, dim: int, index: Value, source: Any = None, alpha: float = 1, **args: Any
) -> Value:
    if input.rank == 0:
        raise no("without dimensions")
    d = dim % input.rank
    where = _along(n, input, d, index.to("int64"))
    size = index.dims[0] if index.rank else 1
    if n.op == "index_fill":
        src = n.b.like(args["value"], n.dtype).make("Expand", where.make("Shape", dtype="int64"))
    else:
        src = source.to(n.dtype).known(source.shape)
        if source.rank != input.rank:
            src = reshaped(src, [size if i == d else s for i, s in enumerate(input.dims)])
        src = src if alpha == 1 else src * alpha
    return input.make("ScatterElements", where, src, axis=d, reduction="add" if n.op == "index_add" else None)


def _between(n: Node, x: Value, d: int, start: Any, end: Any, src: Value) -> Value:
    """Returns x with src in the place of a part along a dimension."""
    size = x.dims[d]
    if not isinstance(start, Dim) and start < 0:
        if isinstance(size, Dim) and not isinstance(end, Dim) and end == 0:
            return joined([sliced(x, d, 0, start), src], d)
        start = start + size if not isinstance(size, Dim) else start
    parts = [] if start == 0 else [sliced(x, d, 0, start)]
    parts.append(src)
    if not isinstance(size, Dim) and not isinstance(end, Dim):
        end = min(max(end + size if end < 0 else end, 0), size)
    if end != size:
        parts.append(sliced(x, d, end, np.iinfo(np.int64).max))
    return joined(parts, d)


@row("slice_scatter")
def _slice_scatter(n: Node, input: Value, src: Value, dim: int, start: Any, end: Any, step: int) -> Value:
    d = dim % input.rank
    size = input.dims[d]
    src = expanded(src.to(n.dtype).known(src.shape), [*input.dims[:d], src.dims[d], *input.dims[d + 1 :]])
    if step == 1:
        if not isinstance(end, Dim) and end >= np.iinfo(np.int64).max // 2:
            end = size
        if not isinstance(end, Dim) and isinstance(size, Dim) and end > 0 and end != src.dims[d] + start:
            raise no("with an end behind that of a dynamic size")
        return _between(n, input, d, start, end, src).make("Identity")
    whole = input.size(d)
    index = np.arange(whole)[slice(start, end, step)]
    return input.make("ScatterElements", _along(n, input, d, n.b.constant(index)), src, axis=d)


@row("select_scatter")
def _select_scatter(n: Node, input: Value, src: Value, dim: int, index: Any) -> Value:
    d = dim % input.rank
    part = unsqueezed(src.to(n.dtype).known(src.shape), d)
    where = _along(n, input, d, n.b.one(index))
    shape = [1 if i == d else s for i, s in enumerate(input.dims)]
    return input.make("ScatterElements", where, expanded(part, shape), axis=d)


@row("diagonal_scatter")
def _diagonal_scatter(n: Node, input: Value, src: Value, offset: int, dim1: int, dim2: int) -> Value:
    a, b = dim1 % input.rank, dim2 % input.rank
    length = src.size(-1)
    i = np.arange(length)
    index = np.stack([i - min(offset, 0), i + max(offset, 0)], 1)
    order = [a, b, *(d for d in range(input.rank) if d not in (a, b))]
    whole = permuted(input, order)
    part = permuted(src.to(n.dtype).known(src.shape), [src.rank - 1, *range(src.rank - 1)])
    out = whole.make("ScatterND", n.b.constant(index), part).known(whole.shape)
    return permuted(out, np.argsort(order).tolist())


@row("masked_scatter")
def _masked_scatter(n: Node, input: Value, mask: Value, source: Value) -> Value:
    wide = expanded(mask, n.shape)
    places = wide.make("Reshape", n.b.ints([-1])).to("int64").make("CumSum", n.b.scalar(0)) - 1
    flat = source.to(n.dtype).make("Reshape", n.b.ints([-1]))
    taken = flat.make("Gather", places.make("Max", 0)).known([Dim(())])
    return wide.where(taken.make("Reshape", n.b.ints(n.shape)), input)


@row("put")
def _put(n: Node, input: Value, index: Value, source: Value, accumulate: bool) -> Value:
    flat = input.make("Reshape", n.b.ints([-1]))
    where = index.make("Reshape", n.b.ints([-1, 1]))
    size = n.b.node("Size", [input], ["int64"])[0]
    where = (where < 0).where(where + size, where)
    out = flat.make("ScatterND", where, source.make("Reshape", n.b.ints([-1])), reduction="add" if accumulate else None)
    return reshaped(out.known([Dim(())]), n.shape)
