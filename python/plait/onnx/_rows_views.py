"""Operations that move elements: views, joining, padding, and new tensors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from plait.onnx._build import Number, Value
from plait.onnx._record import Dim
from plait.onnx._table import (
    Node,
    axes,
    expanded,
    joined,
    no,
    number,
    permuted,
    reshaped,
    row,
    sliced,
    squeezed,
    unsqueezed,
)


@row("view reshape flatten unflatten ravel view_as reshape_as atleast_1d atleast_2d atleast_3d")
def _reshape(n: Node, input: Value, **args: Any) -> Value:
    given = args.get("shape", args.get("size"))
    if isinstance(given, list) and sum(isinstance(s, Dim) for s in n.shape) <= 1:
        # One size that follows from the others needs no name.
        given = [-1 if isinstance(s, Dim) else s for s in n.shape]
        return input.make("Reshape", n.b.ints(given)).known(n.shape) if 0 not in given else reshaped(input, n.shape)
    if sum(isinstance(s, Dim) for s in n.shape) == 1 and 0 not in n.shape:
        return input.make("Reshape", n.b.ints([-1 if isinstance(s, Dim) else s for s in n.shape])).known(n.shape)
    return reshaped(input, n.shape)


@row("squeeze")
def _squeeze(n: Node, input: Value, dim: Any) -> Value:
    at = [d for d in axes(dim, input.rank) if input.dims[d] == 1] if input.rank else []
    return squeezed(input, *at) if at else input


@row("unsqueeze")
def _unsqueeze(n: Node, input: Value, dim: int) -> Value:
    return unsqueezed(input, dim)


@row("permute")
def _permute(n: Node, input: Value, dims: list[int]) -> Value:
    return permuted(input, [d % input.rank for d in dims])


@row("transpose swapaxes t mT")
def _transpose(n: Node, input: Value, **dims: int) -> Value:
    order = list(range(input.rank))
    if input.rank > 1:
        a, b = list(dims.values()) or [-1, -2]
        order[a], order[b] = order[b], order[a]
    return permuted(input, order)


@row("movedim")
def _movedim(n: Node, input: Value, source: list[int], destination: list[int]) -> Value:
    rank = input.rank
    order = [-1] * rank
    for s, d in zip(source, destination, strict=True):
        order[d % rank] = s % rank
    rest = iter([d for d in range(rank) if d not in order])
    return permuted(input, [d if d >= 0 else next(rest) for d in order])


@row("expand broadcast_to expand_as")
def _expand(n: Node, input: Value, **args: Any) -> Value:
    return expanded(input, n.shape)


@row("broadcast_tensors")
def _broadcast_tensors(n: Node, tensors: list[Value]) -> list[Value]:
    return [expanded(t, shape) for t, (_, shape) in zip(tensors, n.outs, strict=True)]


@row("meshgrid")
def _meshgrid(n: Node, tensors: list[Value], indexing: str) -> list[Value]:
    rank = len(tensors)
    places = list(range(rank))
    if indexing == "xy" and rank > 1:
        places[:2] = [1, 0]
    out = []
    for t, at, (_, shape) in zip(tensors, places, n.outs, strict=True):
        line = t if t.shape else reshaped(t, [1])
        out.append(expanded(unsqueezed(line, *(d for d in range(rank) if d != at)) if rank > 1 else line, shape))
    return out


@row("select")
def _select(n: Node, input: Value, dim: int, index: Any) -> Value:
    return input.make("Gather", n.b.scalar(index), axis=dim % input.rank)


def _bound(at: Any, size: Any) -> Any:
    """Returns an end of a slice, counted from the front where the size is known."""
    if isinstance(at, Dim) or isinstance(size, Dim):
        return at
    return min(max(at + size if at < 0 else at, 0), size)


@row("slice")
def _slice(n: Node, input: Value, dim: int, start: Any, end: Any, step: int) -> Value:
    d = dim % input.rank
    if n.shape == input.shape and start == 0:
        return input.make("Identity")
    return sliced(input, d, start, end, step, n.shape[d])


@row("narrow narrow_copy")
def _narrow(n: Node, input: Value, dim: int, start: Any, length: Any) -> Value:
    d = dim % input.rank
    end = n.b.one(start) + n.b.one(length) if isinstance(start, Dim) or isinstance(length, Dim) else start + length
    if isinstance(end, Value):
        return input.make("Slice", n.b.one(start), end, n.b.ints([d]))
    if start < 0:
        end = end if end else np.iinfo(np.int64).max
    return sliced(input, d, start, end, 1, n.shape[d])


@row("split split_with_sizes chunk tensor_split tensor_split_at hsplit vsplit dsplit")
def _split(n: Node, input: Value, **args: Any) -> list[Value]:
    fixed = {"hsplit": min(input.rank - 1, 1), "vsplit": 0, "dsplit": 2}
    d = fixed[n.op] if n.op in fixed else args["dim"] % input.rank
    sizes = n.b.ints([shape[d] for _, shape in n.outs])
    if len(n.outs) == 1:
        return [input.make("Identity")]
    return n.b.node("Split", [input, sizes], [n.dtype] * len(n.outs), axis=d)


@row("unbind")
def _unbind(n: Node, input: Value, dim: int) -> list[Value]:
    d = dim % input.rank
    return [input.make("Gather", n.b.scalar(i), axis=d) for i in range(len(n.outs))]


@row("diagonal")
def _diagonal(n: Node, input: Value, offset: int, dim1: int, dim2: int) -> Value:
    a, b = dim1 % input.rank, dim2 % input.rank
    rows = input.size(a)
    length = min(rows + min(offset, 0), input.size(b) - max(offset, 0))
    i = np.arange(max(length, 0))
    index = np.stack([i - min(offset, 0), i + max(offset, 0)], 1)
    order = [a, b, *(d for d in range(input.rank) if d not in (a, b))]
    out = permuted(input, order).make("GatherND", n.b.constant(index))
    return permuted(out.known([length, *(input.dims[d] for d in order[2:])]), [*range(1, input.rank - 1), 0])


@row("unfold")
def _unfold(n: Node, input: Value, dimension: int, size: int, step: int) -> Value:
    d = dimension % input.rank if input.rank else 0
    starts = np.arange(n.outs[0][1][d] if not isinstance(n.shape[d], Dim) else input.size(d))
    out = input.make("Gather", n.b.constant(starts[:, None] * step + np.arange(size)[None]), axis=d)
    shape = list(n.shape)
    shape.insert(d + 1, shape.pop())
    out.known(shape)
    return permuted(out, [i for i in range(len(shape)) if i != d + 1] + [d + 1])


@row("cat")
def _cat(n: Node, tensors: list[Value], dim: int) -> Value:
    rank = len(n.shape)
    parts = [t.to(n.dtype) for t in tensors if t.rank == rank]
    return joined(parts, dim % rank) if len(parts) > 1 else parts[0].make("Identity")


@row("stack")
def _stack(n: Node, tensors: list[Value], dim: int) -> Value:
    d = dim % len(n.shape)
    return joined([unsqueezed(t.to(n.dtype), d) for t in tensors], d)


@row("hstack vstack dstack column_stack")
def _stacks(n: Node, tensors: list[Value]) -> Value:
    parts = []
    for t in (given.to(n.dtype).known(given.shape) for given in tensors):
        if n.op == "hstack":
            parts.append(unsqueezed(t, 0) if t.rank == 0 else t)
        elif n.op == "column_stack":
            parts.append(reshaped(t, [1, 1]) if t.rank == 0 else unsqueezed(t, 1) if t.rank == 1 else t)
        else:
            flat = unsqueezed(unsqueezed(t, 0), 0) if t.rank == 0 else unsqueezed(t, 0) if t.rank == 1 else t
            parts.append(unsqueezed(flat, 2) if n.op == "dstack" and flat.rank == 2 else flat)
    d = {"hstack": min(parts[0].rank - 1, 1), "vstack": 0, "dstack": 2, "column_stack": 1}[n.op]
    return joined(parts, d)


@row("repeat tile")
def _repeat(n: Node, input: Value, **args: Any) -> Value:
    (times,) = args.values()
    x = unsqueezed(input, *range(len(times) - input.rank)) if len(times) > input.rank else input
    return x.make("Tile", n.b.ints([1] * (x.rank - len(times)) + list(times)))


@row("repeat_interleave")
def _repeat_interleave(n: Node, input: Value, repeats: Any, dim: Any) -> Value:
    times = [repeats.value] if isinstance(repeats, Number) else repeats.elements
    if times is None:
        raise no("with numbers of repeats that are not constant")
    x = input if dim is not None else input.make("Reshape", n.b.ints([-1])).known([None])
    d = 0 if dim is None else dim % input.rank
    if len(times) > 1:
        if any(isinstance(t, Dim) for t in times):
            raise no("with dynamic numbers of repeats")
        return x.make("Gather", n.b.constant(np.repeat(np.arange(len(times)), times)), axis=d)
    if dim is None:
        wide = x.make("Unsqueeze", n.b.ints([1])).make("Expand", n.b.ints([1, times[0]]))
        return wide.make("Reshape", n.b.ints([-1]))
    shape = list(x.dims)
    return reshaped(expanded(unsqueezed(x, d + 1), [*shape[: d + 1], times[0], *shape[d + 1 :]]), n.shape)


@row("flip fliplr flipud")
def _flip(n: Node, input: Value, dims: Any = None) -> Value:
    at = {"fliplr": [1], "flipud": [0]}.get(n.op) or [d % max(input.rank, 1) for d in dims or []]
    if not at or not input.rank:
        return input.make("Identity")
    least = np.iinfo(np.int64).min
    return input.make(
        "Slice", n.b.ints([-1] * len(at)), n.b.ints([least] * len(at)), n.b.ints(at), n.b.ints([-1] * len(at))
    )


@row("roll")
def _roll(n: Node, input: Value, shifts: list[int], dims: list[int]) -> Value:
    x = input
    if not dims:
        whole = Dim(()) if any(isinstance(s, Dim) for s in x.dims) else math.prod(x.dims)
        x = x.make("Reshape", n.b.ints([-1])).known([whole])
    for shift, dim in zip(shifts, dims or [0], strict=True):
        d = dim % x.rank
        size = x.dims[d]
        if isinstance(shift, Dim):
            raise no("with a dynamic shift")
        by = shift if isinstance(size, Dim) else shift % size if size else 0
        if by:
            shape = x.shape
            x = joined([sliced(x, d, -by, np.iinfo(np.int64).max), sliced(x, d, 0, -by)], d).known(shape)
    return reshaped(x, n.shape) if not dims and input.rank != 1 else x.make("Identity")


@row("rot90")
def _rot90(n: Node, input: Value, k: int, dims: list[int]) -> Value:
    a, b = (d % input.rank for d in dims)
    order = list(range(input.rank))
    order[a], order[b] = b, a

    def flip(x: Value, d: int) -> Value:
        ends = n.b.ints([-1]), n.b.ints([np.iinfo(np.int64).min])
        return x.make("Slice", *ends, n.b.ints([d]), n.b.ints([-1])).known(x.shape)

    if k % 4 == 0:
        return input.make("Identity")
    if k % 4 == 2:
        return flip(flip(input, a), b)
    return permuted(flip(input, b), order) if k % 4 == 1 else flip(permuted(input, order), b)


@row("tril triu")
def _triangle(n: Node, input: Value, diagonal: int) -> Value:
    if input.dtype == "bool":
        return input.to("int32").make("Trilu", n.b.scalar(diagonal), upper=int(n.op == "triu")).to("bool")
    return input.make("Trilu", n.b.scalar(diagonal), upper=int(n.op == "triu"))


@row("diag diagflat")
def _diag(n: Node, input: Value, **args: int) -> Value:
    (k,) = args.values()
    if n.op == "diag" and input.rank == 2:
        return _diagonal(n, input, k, 0, 1)
    x = input if input.rank == 1 else reshaped(input, [math.prod(input.size(d) for d in range(input.rank))])
    return _embedded(n, x, k)


@row("diag_embed")
def _diag_embed(n: Node, input: Value, offset: int, dim1: int, dim2: int) -> Value:
    rank = input.rank + 1
    out = _embedded(n, input, offset)
    order = list(range(rank - 2))
    for d, which in sorted([(dim1 % rank, rank - 2), (dim2 % rank, rank - 1)]):
        order.insert(d, which)
    return permuted(out, order)


def _embedded(n: Node, x: Value, offset: int) -> Value:
    """Returns zeros with the last dimension of x on a diagonal of the last two."""
    size = x.size(-1)
    whole = size + abs(offset)
    mask = np.eye(whole, k=offset, dtype=bool)
    kept = mask[max(-offset, 0) :][:size]  # the rows that have an element
    out = n.b.constant(kept).where(unsqueezed(x, -1), n.b.constant(0, x.dtype))
    out.known([*x.dims[:-1], size, whole])
    if offset:
        pads = [0] * (2 * out.rank)
        pads[out.rank - 2 if offset < 0 else 2 * out.rank - 2] = abs(offset)
        out = out.make("Pad", n.b.ints(pads), n.b.constant(0, x.dtype)).known([*x.dims[:-1], whole, whole])
    return out


@row("pad")
def _pad(n: Node, input: Value, pad: list[Any], mode: str, value: Any) -> Value:
    rank, count = input.rank, len(pad) // 2
    before, after = [0] * rank, [0] * rank
    for i in range(count):
        before[rank - 1 - i], after[rank - 1 - i] = pad[2 * i], pad[2 * i + 1]
    name = {"": "constant", "constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}[mode]
    if name == "wrap" and n.b.opset < 19:
        raise no("with circular padding before opset 19")
    sizes = n.b.ints([*before, *after])
    if name != "constant":
        return input.make("Pad", sizes, mode=name)
    if input.dtype == "bool":
        return input.to("uint8").make("Pad", sizes, n.b.constant(int(bool(number(value))), "uint8")).to("bool")
    return input.make("Pad", sizes, n.b.like(value, n.dtype))


@row("pixel_shuffle")
def _pixel_shuffle(n: Node, input: Value, upscale_factor: int) -> Value:
    x = input if input.rank == 4 else _four(n, input)
    return _back(n, x.make("DepthToSpace", blocksize=upscale_factor, mode="CRD"), input)


@row("pixel_unshuffle")
def _pixel_unshuffle(n: Node, input: Value, downscale_factor: int) -> Value:
    # SpaceToDepth orders channels otherwise.
    x = input if input.rank == 4 else _four(n, input)
    r = downscale_factor
    c = input.size(-3)
    out = x.make("SpaceToDepth", blocksize=r)
    order = np.arange(c * r * r).reshape(r * r, c).T.ravel()
    return _back(n, out.make("Gather", n.b.constant(order), axis=1), input)


def _four(n: Node, x: Value) -> Value:
    if x.rank < 3:
        raise no("with less than 3 dimensions")
    return x.make("Reshape", n.b.ints([-1, *x.dims[-3:]])).known([Dim(()), *x.dims[-3:]])


def _back(n: Node, out: Value, x: Value) -> Value:
    return out if x.rank == 4 else reshaped(out, n.shape)


@row("channel_shuffle")
def _channel_shuffle(n: Node, input: Value, groups: int) -> Value:
    c = input.size(1)
    order = np.arange(c).reshape(groups, c // groups).T.ravel()
    return input.make("Gather", n.b.constant(order), axis=1)


def _filled(n: Node, x: Any) -> Value:
    return expanded(n.b.like(x, n.dtype), n.shape)


@row("zeros zeros_like empty empty_like")
def _zeros(n: Node, **args: Any) -> Value:
    return _filled(n, 0)


@row("ones ones_like")
def _ones(n: Node, **args: Any) -> Value:
    return _filled(n, 1)


@row("full full_like")
def _full(n: Node, fill_value: Any, **args: Any) -> Value:
    return _filled(n, fill_value)


@row("arange")
def _arange(n: Node, start: Any, end: Any, step: Any, **args: Any) -> Value:
    ends = [Number(0, "int64") if start is None else start, end, Number(1, "int64") if step is None else step]
    if all(x.dtype == "int64" for x in ends):
        values = [n.b.scalar(x.value) for x in ends]
        return values[0].make("Range", *values[1:]).to(n.dtype)
    if not any(isinstance(x.value, Dim) for x in ends) and not isinstance(n.shape[0], Dim):
        first, by = float(number(ends[0].value)), float(number(ends[2].value))
        return n.b.constant(first + by * np.arange(n.shape[0]), n.dtype)
    steps = n.b.scalar(0).make("Range", n.b.scalar(n.shape[0]), n.b.scalar(1)).to("float64")
    return (steps * n.b.like(ends[2], "float64") + n.b.like(ends[0], "float64")).to(n.dtype)


@row("linspace")
def _linspace(n: Node, start: float, end: float, steps: Any, **args: Any) -> Value:
    if not isinstance(steps, Dim):
        values = np.linspace(start, end, steps)
        return n.b.constant(values if n.dtype[:5] in ("float", "bfloa") else np.trunc(values), n.dtype)
    at = n.b.scalar(0).make("Range", n.b.scalar(steps), n.b.scalar(1)).to("float64")
    width = (n.b.scalar(steps) - 1).make("Max", 1).to("float64")
    return (at / width * (end - start) + start).to(n.dtype)


@row("logspace")
def _logspace(n: Node, start: float, end: float, steps: Any, base: float, **args: Any) -> Value:
    if isinstance(steps, Dim):
        raise no("with a dynamic number of steps")
    return n.b.constant(base ** np.linspace(start, end, steps), n.dtype)


@row("eye")
def _eye(n: Node, **args: Any) -> Value:
    rows = expanded(n.b.constant(0.0, "float32"), n.shape)
    return rows.make("EyeLike", dtype="float32", k=0).to(n.dtype)


@row("tril_indices triu_indices")
def _triangle_indices(n: Node, row: Any, col: Any, offset: int, **args: Any) -> Value:
    if isinstance(row, Dim) or isinstance(col, Dim):
        ones = expanded(n.b.constant(1.0, "float32"), [row, col])
        kept = ones.make("Trilu", n.b.scalar(offset), upper=int(n.op == "triu_indices"))
        return kept.make("NonZero", dtype="int64").to(n.dtype)
    pick = np.tril_indices if n.op == "tril_indices" else np.triu_indices
    return n.b.constant(np.stack(pick(row, offset, col)), n.dtype)
