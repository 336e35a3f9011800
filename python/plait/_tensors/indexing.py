"""Indexing: what stands in square brackets."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from plait import _core
from plait._engine.runtime import TensorBase, address, call, number, own, wait_value
from plait._engine.warnings import warn
from plait._errors import IndexKindError
from plait._tensors.arrays import tensor
from plait._tensors.beside import beside

if TYPE_CHECKING:
    from plait._tensor import Tensor

# The kinds of an index's parts, as the engine numbers them; each part is four integers.
_SLICE, _INTEGER, _TENSOR, _NEW_AXIS, _ELLIPSIS = range(5)
_END = (1 << 63) - 1
_MANY = (TensorBase, slice, Sequence, np.ndarray)


def _parts(of: Tensor, index: Any) -> tuple[array[int], list[Any], bool]:
    """Returns an index as the engine takes it, the tensors that it names, and whether there are masks among them."""
    out: array[int] = array("q")
    kept: list[Any] = []
    masks = False
    for part in index if isinstance(index, tuple) or _means_tuple(index) else (index,):
        if part is None:
            out.extend((_NEW_AXIS, 0, 0, 0))
        elif part is Ellipsis:
            out.extend((_ELLIPSIS, 0, 0, 0))
        elif isinstance(part, slice):
            out.extend(_slice(part))
        elif (
            not isinstance(part, bool | TensorBase) and hasattr(part, "__index__") and not isinstance(part, np.ndarray)
        ):
            i = part.__index__()
            if abs(i) > _END:
                raise IndexError(f"index: {i} is out of range")
            out.extend((_INTEGER, i, 0, 0))
        else:
            t = _index_tensor(of, part)
            kept.append(t)
            if t.ndim == 0 or t.dtype.name in ("bool", "uint8"):  # a shape or a place follows
                masks = True
                wait_value(t._h)
            out.extend((_TENSOR, t._h, 0, 0))
    return out, kept, masks


def _means_tuple(index: Any) -> bool:
    """Returns whether a sequence that is no tuple stands for one, as it does with anything in it but a few numbers."""
    if not isinstance(index, Sequence) or isinstance(index, str | bytes) or len(index) >= 32:
        return False
    if not any(i is None or i is Ellipsis or isinstance(i, _MANY) for i in index):
        return False
    warn("index: a sequence of slices, tensors or sequences stands for a tuple of them; write x[tuple(index)]")
    return True


def _slice(s: slice) -> tuple[int, int, int, int]:
    try:
        step = 1 if s.step is None else s.step.__index__()
        start = 0 if s.start is None else s.start.__index__()
        stop = _END if s.stop is None else s.stop.__index__()
    except AttributeError:
        raise TypeError(f"index: the bounds of a slice must be integers or None, got {s}") from None
    if step <= 0:
        raise ValueError(f"index: the step of a slice must be positive, got {step}; use flip")
    return _SLICE, max(min(start, _END), -_END), max(min(stop, _END), -_END), step


def _index_tensor(of: Tensor, part: Any) -> Any:
    if isinstance(part, TensorBase):
        return part
    if isinstance(part, bool | list | tuple | np.ndarray | range):
        t = tensor(list(part) if isinstance(part, range) else part)
        return beside(of, t.long() if t.numel() == 0 and t.dtype.is_floating_point else t)
    raise IndexKindError(
        "index: want integers, slices, ..., None, tensors or sequences of integers or bools, "
        f"got {type(part).__name__} {part!r}"
    )


def _wait(tensors: list[Any]) -> None:
    for t in tensors:
        if not _core.bind_VmapDepth(t._h):  # else its values are not known
            wait_value(t._h)


def get_index(t: Tensor, index: Any) -> Tensor:
    """Returns `t[index]`: a view for integers, slices and new axes, a copy for masks and tensors that are not 0-d."""
    parts, kept, masks = _parts(t, index)
    function = _core.bind_IndexGetMasked if masks else _core.bind_IndexGet
    if masks:  # the shape depends on them: wait in a way that lets Ctrl-C through
        _wait(kept)
    return own(call(function, t._h, address(parts), len(parts) // 4))


def set_index(t: Tensor, index: Any, value: Any) -> None:
    """Does `t[index] = value`."""
    parts, kept, masks = _parts(t, index)
    if isinstance(value, TensorBase):
        kind, v = value._h, 0.0
    else:
        try:
            kind, v = number(value)
        except TypeError:
            value = beside(t, tensor(value, dtype=t.dtype, device=t.device))
            kind, v = value._h, 0.0
    function = _core.bind_IndexSetMasked if masks else _core.bind_IndexSet
    if masks:
        _wait(kept)
    call(function, t._h, kind, v, address(parts), len(parts) // 4)
