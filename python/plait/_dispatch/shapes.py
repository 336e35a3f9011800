"""How functions of dtypes, shapes, indices and products call operations."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import plait
from plait._dispatch.operations import aten, packet
from plait._engine.runtime import is_tensor as _is_tensor

# --- dtypes, devices and copies ---


def to(self: Any, *args: Any, **kwargs: Any) -> Any:
    options: dict[str, Any] = {k: kwargs[k] for k in ("non_blocking", "memory_format") if kwargs.get(k)}
    copy = kwargs.get("copy", False)
    dtype, device = kwargs.get("dtype"), kwargs.get("device")
    for a in (*args, *([kwargs["other"]] if "other" in kwargs else [])):
        if _is_tensor(a):
            dtype, device = a.dtype, a.device
            options["layout"] = a.layout
        elif isinstance(a, plait.dtype):
            dtype = a
        elif isinstance(a, bool):
            if a:
                options.setdefault("non_blocking", True)
        elif a is not None:
            device = a
    device = None if device is None else plait.device(device)
    same = (dtype is None or dtype == self.dtype) and (device is None or device == self.device)
    if same and not copy:
        return self
    named = {} if dtype is None else {"dtype": dtype}
    if device is not None:
        named["device"] = device
    return aten._to_copy.default(self, **named, **options)


def cast_to(dtype: Any) -> Callable[..., Any]:
    return lambda self, memory_format=None: to(self, dtype)


def typed(self: Any, dtype: Any = None, **kwargs: Any) -> Any:
    if dtype is None or isinstance(dtype, str | type):
        raise NotImplementedError("type: want a dtype for a tensor of a class with a __torch_dispatch__")
    return to(self, dtype)


def contiguous(self: Any, memory_format: Any = plait.contiguous_format) -> Any:
    if self.is_contiguous(memory_format=memory_format):
        return self
    return aten.clone.default(self, memory_format=memory_format)


# --- shapes ---


def can_view(t: Any, sizes: list[int]) -> bool:
    """Whether a tensor has a view of a shape."""
    if t.is_contiguous() or not t.numel():
        return True
    dims = [(n, s) for n, s in zip(t.shape, t.stride(), strict=True) if n != 1]
    blocks: list[list[int]] = []  # those whose elements follow each other: how many they have
    for i, (n, s) in enumerate(dims):
        if i and dims[i - 1][1] == n * s:
            blocks[-1][0] *= n
        else:
            blocks.append([n])
    left = [b[0] for b in blocks]
    for n in sizes:
        if n == 1:
            continue
        while left and left[0] == 1:
            del left[0]
        if not left or left[0] % n:
            return False
        left[0] //= n
    return True


def reshape(input: Any, *shape: Any, **kwargs: Any) -> Any:
    shape = shape or (kwargs["shape"],)
    sizes = list(shape[0]) if len(shape) == 1 and not isinstance(shape[0], int) else list(shape)
    known = sizes
    if -1 in sizes:
        rest = -math.prod(sizes)
        known = [n if n != -1 else (input.numel() // rest if rest else 0) for n in sizes]
    if can_view(input, known):
        return aten.view.default(input, sizes)
    return aten._unsafe_view.default(aten.clone.default(input, memory_format=plait.contiguous_format), known)


def flatten(input: Any, start_dim: int = 0, end_dim: int = -1) -> Any:
    n = input.dim()
    start, end = start_dim % max(n, 1), end_dim % max(n, 1)
    if n and start == end:
        return input
    size = list(input.shape)
    return reshape(input, [*size[:start], math.prod(size[start : end + 1]), *size[end + 1 :]])


def chunk(input: Any, chunks: int, dim: int = 0) -> Any:
    return aten.split.Tensor(input, max(1, -(-input.shape[dim] // chunks)), dim)


def split(tensor: Any, split_size_or_sections: Any, dim: int = 0) -> Any:
    if isinstance(split_size_or_sections, int):
        return aten.split.Tensor(tensor, split_size_or_sections, dim)
    return aten.split_with_sizes.default(tensor, list(split_size_or_sections), dim)


def narrow(input: Any, dim: int, start: int, length: int) -> Any:
    return aten.slice.Tensor(input, dim, start, start + length)


def numpy_t(self: Any) -> Any:
    return aten.permute.default(self, list(range(self.dim()))[::-1])


def moved(input: Any, source: Any, destination: Any) -> Any:
    source, destination = ([d] if isinstance(d, int) else list(d) for d in (source, destination))
    n = input.dim()
    places = {d % n: s % n for s, d in zip(source, destination, strict=True)}
    rest = iter(d for d in range(n) if d not in places.values())
    return aten.permute.default(input, [places[d] if d in places else next(rest) for d in range(n)])


def swapped(input: Any, axis0: int, axis1: int) -> Any:
    return aten.transpose.int(input, axis0, axis1)


def pad(input: Any, pad: Any, mode: str = "constant", value: float | None = None) -> Any:
    if mode == "constant":
        return aten.constant_pad_nd.default(input, list(pad), 0 if value is None else value)
    return packet("pad").default(input, list(pad), mode)


# --- indices ---

_LAST = (1 << 63) - 1


def getitem(self: Any, index: Any) -> Any:
    out, tensors = viewed(self, index)
    if tensors:
        return aten.index.Tensor(out, tensors)
    return aten.alias.default(out) if out is self else out


def viewed(self: Any, index: Any) -> tuple[Any, list[Any]]:
    """Returns the view that the numbers and slices of an index make, and its tensors by dimension."""
    if isinstance(index, slice):  # which makes a view where nothing is left out, too
        start, stop, step = (None if v is None else int(v) for v in (index.start, index.stop, index.step))
        return aten.slice.Tensor(self, 0, start or 0, _LAST if stop is None else stop, step or 1), []
    parts = list(index) if isinstance(index, tuple) else [index]
    parts = [plait.tensor(p) if isinstance(p, list | range) else p for p in parts]
    used = sum(
        p.dim() if _is_tensor(p) and p.dtype in (plait.bool, plait.uint8) else not (p is None or p is ...)
        for p in parts
        if not isinstance(p, bool)
    )
    if not any(p is ... for p in parts):
        parts.append(...)
    out, dim, tensors = self, 0, {}
    for p in parts:
        if p is ...:
            dim += self.dim() - used
        elif p is None or isinstance(p, bool):
            out = aten.unsqueeze.default(out, dim)
            if p is not None:
                tensors[dim] = plait.tensor([p])
            dim += 1
        elif isinstance(p, slice):
            start, stop, step = (None if v is None else int(v) for v in (p.start, p.stop, p.step))
            if start not in (None, 0) or step not in (None, 1) or (stop is not None and stop < out.shape[dim]):
                out = aten.slice.Tensor(out, dim, start or 0, _LAST if stop is None else stop, step or 1)
            dim += 1
        elif _is_tensor(p):
            tensors[dim] = p
            dim += p.dim() if p.dtype in (plait.bool, plait.uint8) else 1
        else:
            out = aten.select.int(out, dim, int(p))
    listed: list[Any] = []
    for d in sorted(tensors):
        held = sum(v.dim() if v is not None and v.dtype == plait.bool else 1 for v in listed)
        listed += [None] * (d - held) + [tensors[d]]
    return out, listed


def argsort(input: Any, dim: int = -1, descending: bool = False, *, stable: bool | None = None) -> Any:
    if stable is None:
        return aten.sort.default(input, dim, descending)[1]
    return aten.sort.stable(input, stable=stable, dim=dim, descending=descending)[1]


def setitem(self: Any, index: Any, value: Any) -> None:
    out, tensors = viewed(self, index)
    if tensors:
        if not _is_tensor(value) and tensors[-1].dtype == plait.bool and tensors[-1].shape == out.shape:
            aten.masked_fill_.Scalar(out, tensors[-1], value)
            return
        whole = tensors[-1].dim() == 1 and tensors[-1].dtype == plait.int64 and set(tensors[:-1]) <= {None}
        if not _is_tensor(value) and whole:
            aten.index_fill_.int_Scalar(out, len(tensors) - 1, tensors[-1], value)
            return
        if not _is_tensor(value):
            value = plait.tensor(value, dtype=self.dtype, device=self.device)
        aten.index_put_.default(out, tensors, value)
    elif _is_tensor(value):
        aten.copy_.default(out, value)
    else:
        aten.fill_.Scalar(out, value)


def scalar(self: Any) -> Any:
    return aten._local_scalar_dense.default(self)


# --- products ---


def linear(input: Any, weight: Any, bias: Any = None) -> Any:
    transposed = aten.t.default(weight)
    if bias is None or input.dim() == 1:
        out = matmul(input, transposed)
        return out if bias is None else aten.add.Tensor(out, bias)
    if input.dim() == 2:
        return aten.addmm.default(bias, input, transposed)
    return aten.add.Tensor(matmul(input, transposed), bias)


def matmul(input: Any, other: Any) -> Any:
    a, b = input.dim(), other.dim()
    if a == 1 and b == 1:
        return aten.dot.default(input, other)
    if a == 2 and b == 1:
        return aten.mv.default(input, other)
    if a == 2 and b == 2:
        return aten.mm.default(input, other)
    if a == 1 and b == 2:
        return aten.squeeze_.dim(aten.mm.default(aten.unsqueeze.default(input, 0), other), 0)
    if a >= 3 and b <= 2:
        flat = reshape(input, [math.prod(input.shape[:-1]), input.shape[-1]])
        if b == 1:
            return aten._unsafe_view.default(aten.mv.default(flat, other), list(input.shape[:-1]))
        return aten._unsafe_view.default(aten.mm.default(flat, other), [*input.shape[:-1], other.shape[1]])
    if a == 1:
        return aten.squeeze.dim(matmul(aten.unsqueeze.default(input, 0), other), -2)
    batch = list(plait.broadcast_shapes(input.shape[:-2], other.shape[:-2]))
    left, right = (batched(t, batch) for t in (input, other))
    out = aten.bmm.default(left, right)
    return aten._unsafe_view.default(out, [*batch, input.shape[-2], other.shape[-1]])


def batched(t: Any, batch: list[int]) -> Any:
    return reshape(aten.expand.default(t, [*batch, *t.shape[-2:]]), [math.prod(batch), *t.shape[-2:]])
