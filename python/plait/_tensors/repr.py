"""How tensors print."""

from __future__ import annotations

import math
import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from plait import _core, _ops
from plait import _dtype as dt
from plait._engine.arming import CLAIMED, declares
from plait._engine.runtime import check, own
from plait._tensors.arrays import to_numpy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plait._tensor import Tensor


@dataclass
class _Options:
    precision: int = 4
    threshold: int = 1000
    edgeitems: int = 3
    linewidth: int = 80
    sci_mode: bool | None = None


OPTIONS = _Options()


def set_printoptions(
    precision: int | None = None,
    threshold: int | None = None,
    edgeitems: int | None = None,
    linewidth: int | None = None,
    profile: str | None = None,
    sci_mode: bool | None = None,
) -> None:
    """Sets how tensors print, in the whole process: ranks that are threads share it.

    Args:
        precision: digits after the point
        threshold: the number of elements above which the middle is left out
        edgeitems: how many elements are shown at each end then
        linewidth: characters in a line
        profile: default, short or full
        sci_mode: whether exponents are used; None decides by the values

    Raises:
        TypeError: for what is no number; then nothing has changed.
    """
    given = {"precision": precision, "threshold": threshold, "edgeitems": edgeitems, "linewidth": linewidth}
    for name, value in given.items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise TypeError(f"set_printoptions: {name} must be a number, got {type(value).__name__} {value!r:.60}")
    if profile is not None:
        profiles = {
            "default": _Options(),
            "short": _Options(precision=2, edgeitems=2),
            "full": _Options(threshold=1 << 62),
        }
        if profile not in profiles:
            raise ValueError(f"set_printoptions: profile must be default, short or full, got {profile!r}")
        vars(OPTIONS).update(vars(profiles[profile]))
    for name, value in given.items():
        if value is not None:
            setattr(OPTIONS, name, value)
    OPTIONS.sci_mode = sci_mode


def tensor_repr(t: Tensor, contents: str | None = None) -> str:
    """Returns the values, cut where there are many, and what is not the default: dtype, device, gradient.

    Args:
        t: the tensor
        contents: what is shown for the values
    """
    if at := _core.bind_VmapDepth(t._h):
        behind = textwrap.indent(tensor_repr(own(check(_core.bind_VmapWhole(t._h)))), "    ")
        return f"BatchedTensor(lvl={at}, bdim=0, value=\n{behind}\n)"
    dtype = t.dtype
    suffix = []
    if t.device.type != "cpu":
        suffix.append(f"device='{t.device}'")
    if t.numel() == 0 and len(t.shape) != 1 and not t.is_meta:
        suffix.append(f"size={tuple(t.shape)}")
    if dtype not in (dt.get_default_dtype(), dt.as_dtype(complex), dt.int64, dt.bool_) or (
        t.numel() == 0 and dtype is not dt.get_default_dtype()
    ):
        suffix.append(f"dtype={dtype}")
    if (node := t.grad_fn) is not None:
        suffix.append(f"grad_fn=<{node.name()}>")
    elif t.requires_grad:
        suffix.append("requires_grad=True")
    kind = type(t).__name__
    name = kind if kind != "Tensor" and (declares(type(t)) or CLAIMED in t.__dict__) else "tensor"
    prefix = ("Parameter containing:\n" if kind == "Parameter" else "") + f"{name}("
    if contents is None and (t.is_meta or CLAIMED in t.__dict__):
        return prefix + ", ".join(["...", f"size={tuple(t.shape)}", *suffix]) + ")"
    if contents is None:
        values = to_numpy(_summary(t))  # of an empty tensor too: what made it may have failed
        contents = _format(values, t, len(name) + 1) if t.numel() else "[]"
    return prefix + ", ".join([contents, *suffix]) + ")"


def elements_repr(t: Tensor, indent: int) -> str:
    """Returns the elements alone, with lines but the first indented so far."""
    return _format(to_numpy(_summary(t)), t, indent) if t.numel() else "[]"


def sparse_repr(t: Tensor) -> str:
    """Returns the indices and values as they print, and what is not the default."""
    indent = len("tensor(")
    parts = []
    for name, part in t._named_parts().items():  # type: ignore[attr-defined]
        if part.is_meta:
            text = "..."
        elif part.numel():
            text = _format(to_numpy(_summary(part)), part, indent + len(name) + len("=tensor("))
        else:
            text = "[]"
        size = f", size={tuple(part.shape)}" if part.numel() == 0 or part.is_meta else ""
        parts.append(f"{name}=tensor({text}{size})")
    suffix = [f"device='{t.device}'"] if t.device.type != "cpu" else []
    suffix += [f"size={tuple(t.shape)}", f"nnz={t._nnz()}"]
    if t.dtype not in (dt.get_default_dtype(), dt.as_dtype(complex), dt.int64, dt.bool_):
        suffix.append(f"dtype={t.dtype}")
    suffix.append(f"layout={t.layout}")
    if (node := t.grad_fn) is not None:
        suffix.append(f"grad_fn=<{node.name()}>")
    elif t.requires_grad:
        suffix.append("requires_grad=True")
    text = "tensor(" + f",\n{' ' * indent}".join(parts)
    return with_suffixes(text, suffix, indent, t.is_sparse)


def with_suffixes(text: str, suffixes: Sequence[str], indent: int, apart: bool) -> str:
    """Returns a text with what is said behind the elements, in as many lines as it takes, and a bracket.

    Args:
        text: with the bracket that is to be closed
        suffixes: what is said behind
        indent: how far further lines are indented
        apart: whether the first suffix begins a line
    """
    column = len(text) - text.rfind("\n") + 1
    for suffix in suffixes:
        if apart or column + len(suffix) + 2 > OPTIONS.linewidth:
            text += f",\n{' ' * indent}{suffix}"
            column, apart = indent + len(suffix), False
        else:
            text += f", {suffix}"
            column += len(suffix) + 2
    return text + ")"


def _summary(t: Tensor) -> Tensor:
    """Returns the elements that are shown: all, or those at the ends of each dimension."""
    t = t.detach()
    if t.numel() <= OPTIONS.threshold:
        return t
    n = OPTIONS.edgeitems
    for d, size in enumerate(t.shape):
        if size > 2 * n:
            t = _ops.cat([_ops.narrow(t, d, 0, n), _ops.narrow(t, d, size - n, n)], d)
    return t


def _formatter(values: np.ndarray) -> tuple[list[str], int]:
    flat = values.reshape(-1)
    if values.dtype.kind == "c":
        (reals, real_width), (imags, imag_width) = _formatter(flat.real), _formatter(np.abs(flat.imag))
        signs = ["-" if negative else "+" for negative in np.signbit(flat.imag)]
        parts = zip(reals, signs, imags, strict=True)
        return [f"{r.rjust(real_width)}{sign}{i}j" for r, sign, i in parts], real_width + imag_width + 2
    if values.dtype.kind in "biu":
        texts = [str(v) for v in flat.tolist()]
        return texts, max(map(len, texts), default=0)
    nonzero = flat[np.isfinite(flat) & (flat != 0)].astype(np.float64)
    sizes = np.abs(nonzero)
    whole = bool((sizes == np.round(sizes)).all())
    low, high = (sizes.min(), sizes.max()) if len(sizes) else (1.0, 1.0)
    exponents = high / low > 1000 or high > 1e8 or (not whole and low < 1e-4)
    if OPTIONS.sci_mode is not None:
        exponents = OPTIONS.sci_mode
    p = OPTIONS.precision

    def text(v: float) -> str:
        if not math.isfinite(v):
            return str(v)
        if exponents and len(sizes):
            return f"{v:.{p}e}"
        return f"{v:.0f}." if whole else f"{v:.{p}f}"

    # Zeros, infinities and NaN do not widen the columns.
    return [text(v) for v in flat.tolist()], max((len(text(v)) for v in nonzero.tolist()), default=1)


def _format(values: np.ndarray, t: Tensor, indent: int) -> str:
    texts, width = _formatter(values)
    cut = t.numel() > OPTIONS.threshold
    it = iter(texts)

    def level(d: int, margin: int) -> str:
        if d == len(t.shape):
            return next(it).rjust(width)
        n = values.shape[d]
        dots = cut and t.shape[d] > n
        parts = [level(d + 1, margin + 1) for _ in range(n)]
        if dots:
            parts.insert(n // 2, " ..." if d == len(t.shape) - 1 else "...")
        if d == len(t.shape) - 1:
            per_line = max(1, (OPTIONS.linewidth - margin) // (width + 2))
            lines = [", ".join(parts[i : i + per_line]) for i in range(0, len(parts), per_line)]
            return "[" + (",\n" + " " * (margin + 1)).join(lines) + "]"
        gap = "\n" * (len(t.shape) - d - 1)
        return "[" + ("," + gap + " " * (margin + 1)).join(parts) + "]"

    return level(0, indent)
