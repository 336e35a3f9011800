"""Values of PyTorch as values of Plait, and how far results of the two differ."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import plait
import torch

DTYPES = {
    torch.complex128: plait.complex128,
    torch.complex64: plait.complex64,
    torch.float64: plait.float64,
    torch.float32: plait.float32,
    torch.float16: plait.float16,
    torch.bfloat16: plait.bfloat16,
    torch.int64: plait.int64,
    torch.int32: plait.int32,
    torch.int16: plait.int16,
    torch.int8: plait.int8,
    torch.uint8: plait.uint8,
    torch.bool: plait.bool,
}
# Relative tolerances: how far two right results lie from each other after a few roundings and sums.
FLOOR = 4  # of a gradient, in units of the dtype's precision: seeds are about 1
TOLERANCE = {torch.float64: 1e-8, torch.float32: 2e-4, torch.float16: 1e-2, torch.bfloat16: 6e-2}
TOLERANCE |= {torch.complex128: 1e-8, torch.complex64: 2e-4}
WIDER = {torch.complex64: torch.complex128, torch.complex128: torch.complex128}  # float64 for other inexact dtypes


class Absent(Exception):
    """An argument has no counterpart in Plait: a dtype, a layout, a memory format."""


def array(t: torch.Tensor) -> np.ndarray:
    """The values of `t`, bfloat16 widened to float32."""
    t = t.detach()
    return (t.float() if t.dtype is torch.bfloat16 else t).resolve_conj().resolve_neg().numpy()


class Converter:
    """Makes arguments of Plait from arguments of PyTorch; a tensor that comes twice is one tensor here, too."""

    def __init__(self, layout: str = "same") -> None:
        self.layout = layout
        self.pairs: list[tuple[torch.Tensor, plait.Tensor]] = []
        self._seen: dict[int, tuple[torch.Tensor, plait.Tensor]] = {}

    def both(self, value: Any) -> tuple[Any, Any]:
        """Returns `value` for PyTorch, laid out anew, and for Plait."""
        if isinstance(value, torch.Tensor):
            if id(value) not in self._seen:
                self._seen[id(value)] = self._tensor(value)
            return self._seen[id(value)]
        if isinstance(value, torch.dtype):
            if value not in DTYPES:
                raise Absent(str(value))
            return value, DTYPES[value]
        if isinstance(value, torch.device):
            return value, plait.device(str(value))
        if isinstance(value, (torch.memory_format, torch.layout, torch.Generator)):
            raise Absent(str(value))
        if isinstance(value, dict):
            items = {k: self.both(v) for k, v in value.items()}
            return {k: a for k, (a, _) in items.items()}, {k: b for k, (_, b) in items.items()}
        if type(value) in (list, tuple, torch.Size):
            items = [self.both(v) for v in value]
            kind = list if type(value) is list else tuple
            return kind(a for a, _ in items), kind(b for _, b in items)
        if isinstance(value, slice):
            parts = [self.both(v) for v in (value.start, value.stop, value.step)]
            return slice(*(a for a, _ in parts)), slice(*(b for _, b in parts))
        if value is None or value is Ellipsis or isinstance(value, (bool, int, float, str, np.ndarray, np.generic)):
            return value, value
        raise Absent(f"{type(value).__name__} {value!r}")

    def _tensor(self, t: torch.Tensor) -> tuple[torch.Tensor, plait.Tensor]:
        if t.dtype not in DTYPES or t.layout is not torch.strided:
            raise Absent(f"{t.dtype} {t.layout}")
        wanted = t.requires_grad
        t = t.detach().resolve_conj().clone(memory_format=torch.contiguous_format)
        base, view = _laid_out(t, self.layout)
        ours = plait.tensor(array(base), dtype=DTYPES[t.dtype])
        if wanted:
            base.requires_grad_()
            ours.requires_grad_()
        self.pairs.append((base, ours))
        return view(base), view(ours)


def _laid_out(t: torch.Tensor, layout: str) -> tuple[torch.Tensor, Any]:
    """Returns a contiguous tensor and the view of it, by methods that both have, with the values of `t`."""
    if layout == "transposed" and t.dim() > 1:
        order = list(range(t.dim()))[::-1]
        return t.permute(order).contiguous(), lambda x: x.permute(order)
    if layout == "stepped" and t.dim() > 0:
        base = t.new_zeros((*t.shape[:-1], 2 * t.shape[-1] + 1))
        base[..., 1::2] = t
        return base, lambda x: x[..., 1::2]
    if layout == "offset" and t.dim() > 0:
        base = t.new_zeros((t.shape[0] + 1, *t.shape[1:]))
        base[1:] = t
        return base, lambda x: x[1:]
    return t, lambda x: x


LAYOUTS = ("same", "transposed", "stepped", "offset")


def pick_layout(rng: random.Random) -> str:
    """Chooses how the arguments of a case lie in memory."""
    return rng.choice(LAYOUTS)


def widened(value: Any, uint8: bool = False) -> Any:
    """The value with what is inexact in double precision, uint8 too if asked; a tensor that comes twice stays one."""
    seen: dict[int, torch.Tensor] = {}

    def one(v: Any) -> Any:
        if isinstance(v, torch.Tensor) and (v.dtype in TOLERANCE or (uint8 and v.dtype == torch.uint8)):
            if id(v) not in seen:
                wide = v.detach().to(WIDER.get(v.dtype, torch.float64))
                seen[id(v)] = wide.requires_grad_(v.requires_grad)
            return seen[id(v)]
        if isinstance(v, torch.dtype) and v in TOLERANCE:
            return WIDER.get(v, torch.float64)
        if isinstance(v, dict):
            return {k: one(w) for k, w in v.items()}
        if type(v) in (list, tuple):
            return type(v)(one(w) for w in v)
        return v

    return one(value)


def narrowed(value: Any, like: Any) -> list[Any]:
    """The leaves of the value in the dtypes of those of `like`."""
    return [
        v.to(t.dtype) if isinstance(v, torch.Tensor) and isinstance(t, torch.Tensor) else v
        for v, t in zip(flat(value), flat(like), strict=False)
    ]


def flat(value: Any) -> list[Any]:
    """The leaves of nested tuples, lists and dicts."""
    if isinstance(value, dict):
        return [leaf for v in value.values() for leaf in flat(v)]
    if isinstance(value, (list, tuple)):
        return [leaf for v in value for leaf in flat(v)]
    return [value]


def difference(
    want: Any, got: Any, scale: float = 1.0, defined: tuple[int, ...] | None = None, floor: float = 0.0
) -> str:
    """Says how `got` differs from `want`, leaf by leaf; empty where it does not.

    Values are compared of the leaves in `defined`, or of all; `floor` is in units of precision.
    """
    a, b = flat(want), flat(got)
    if len(a) != len(b):
        return f"{len(b)} results, PyTorch {len(a)}"
    for k, (t, p) in enumerate(zip(a, b, strict=True)):
        text = _leaf_difference(t, p, scale, defined is None or k in defined, floor)
        if text:
            return f"result {k}: {text}" if len(a) > 1 else text
    return ""


def as_near(exact: Any, want: Any, got: Any) -> bool:
    """Whether got lies as near to the exact result as want, or nearer: half the roundings may go the other way.

    exact is what PyTorch has of the values in float64.
    """
    pairs = zip(flat(exact), flat(want), flat(got), strict=True)
    return all(_leaf_as_near(e, t, p) for e, t, p in pairs if isinstance(t, torch.Tensor))


def within(exact: torch.Tensor, got: plait.Tensor, most: float) -> bool:
    """Whether got is at most that far from the exact result, kept in the range of uint8 where got is of it."""
    if tuple(got.shape) != tuple(exact.shape):
        return False
    x, b = array(exact), got.detach().numpy().astype(np.float64)
    if got.dtype == plait.uint8:
        x = x.clip(0, 255)
    return bool((np.abs(b - x) <= most + TOLERANCE[torch.float32] * np.abs(x)).all())


def _leaf_as_near(e: torch.Tensor, t: torch.Tensor, p: plait.Tensor) -> bool:
    if e.shape != t.shape or tuple(p.shape) != tuple(t.shape) or e.dtype not in TOLERANCE:
        return False
    x, a, b = array(e), array(t), (p.detach().float() if p.dtype == plait.bfloat16 else p.detach()).numpy()
    with np.errstate(all="ignore"):
        near = np.abs(b - x) <= 2 * np.abs(a - x)
    return bool((near | (a == b) | (np.isnan(a) & np.isnan(b))).all())


def _leaf_difference(t: Any, p: Any, scale: float, values: bool, floor: float) -> str:
    if not isinstance(t, torch.Tensor):
        if isinstance(t, (bool, int, str, type(None))):
            return "" if isinstance(p, type(t)) and t == p else f"{p!r}, PyTorch {t!r}"
        if isinstance(t, float):
            return (
                ""
                if t == p or abs(t - p) <= 1e-6 * abs(t) or (math.isnan(t) and math.isnan(p))
                else f"{p!r}, PyTorch {t!r}"
            )
        return ""
    if not isinstance(p, plait.Tensor):
        return f"{type(p).__name__}, PyTorch a tensor"
    if DTYPES.get(t.dtype) != p.dtype:
        return f"dtype {p.dtype}, PyTorch {t.dtype}"
    if tuple(t.shape) != tuple(p.shape):
        return f"shape {tuple(p.shape)}, PyTorch {tuple(t.shape)}"
    return values_differ(t, p, scale, floor) if values else ""


def values_differ(t: torch.Tensor, p: plait.Tensor, scale: float = 1.0, floor: float = 0.0) -> str:
    """Says how the values of two tensors of one shape and dtype differ."""
    a, b = array(t), (p.detach().float() if p.dtype == plait.bfloat16 else p.detach()).numpy()
    if t.dtype not in TOLERANCE:
        bad = a != b
    else:
        rtol = TOLERANCE[t.dtype] * scale
        least = 1e-12 + floor * torch.finfo(t.dtype).eps
        wide = np.complex128 if t.dtype in WIDER else np.float64
        finite = a[np.isfinite(a)]
        size = float(np.abs(finite.astype(wide)).max()) if finite.size else 0.0
        with np.errstate(all="ignore"):
            gap = np.abs(a.astype(wide) - b.astype(wide))
            bad = ~(
                (gap <= rtol * (np.abs(a.astype(wide)) + 0.05 * size) + least) | (a == b) | (np.isnan(a) & np.isnan(b))
            )
    if not bad.any():
        return ""
    at = tuple(int(i[0]) for i in np.nonzero(bad)) if bad.ndim else ()
    return f"{int(bad.sum())} of {bad.size} values, at {at}: {b[at]!r}, PyTorch {a[at]!r}"


def shares(result: Any, inputs: list[Any]) -> list[bool]:
    """For each pair of a result and an input: whether both lie in one storage."""
    out = []
    for r in flat(result):
        for x in inputs:
            tensors = all(isinstance(v, (torch.Tensor, plait.Tensor)) and v.numel() > 0 for v in (r, x))
            out.append(tensors and r.untyped_storage().data_ptr() == x.untyped_storage().data_ptr())
    return out
