"""Tensors without elements of their own, whose class computes with others that they hold."""

from __future__ import annotations

from typing import Any

import plait
from plait._engine.arming import CLAIMED, arm_for
from plait._engine.overriding import state
from plait._layout import Layout, strided
from plait._tensors.elements import attributes, set_attributes


def wrapper(
    cls: type,
    size: Any,
    *,
    strides: Any = None,
    storage_offset: int | None = None,
    memory_format: Any = None,
    dtype: Any = None,
    layout: Layout = strided,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    dispatch_sizes_strides_policy: str | None = None,
    dispatch_device: bool = False,
    dispatch_layout: bool = False,
    storage_size: int | None = None,
    _extra_dispatch_keys: Any = None,
) -> Any:
    """Returns a tensor that has a shape, a dtype and a device, and no elements.

    Args:
        cls: its class, with a `__torch_dispatch__`
        size: its shape
        strides: by default those of a tensor in order
        storage_offset: where its first element would be
        memory_format: in which it lies, instead of strides
        dtype: by default the default dtype
        layout: strided; others are not there
        device: where it claims to be; by default on the default device
        pin_memory: has no effect
        requires_grad: whether it says that it requires a gradient; none is computed
        dispatch_sizes_strides_policy: not there
        dispatch_device: not there: a property of the class says where it is
        dispatch_layout: not there
        storage_size: has no effect
        _extra_dispatch_keys: has no effect
    """
    if not isinstance(cls, type) or not issubclass(cls, plait.Tensor):
        raise TypeError(f"_make_wrapper_subclass: want a class derived from Tensor, got {cls!r:.60}")
    if not hasattr(cls, "__torch_dispatch__"):
        raise TypeError(f"_make_wrapper_subclass: {cls.__name__} has no __torch_dispatch__, which computes")
    if dispatch_sizes_strides_policy or dispatch_device or dispatch_layout or layout is not strided:
        raise NotImplementedError(
            "_make_wrapper_subclass: sizes, strides and layout are those that it is given, and strided; define a "
            "property of the class where it says otherwise"
        )
    outer, state.all_off = state.all_off, state.all_off + 1
    modes, state.dispatch_modes = state.dispatch_modes, []
    try:
        kind = dtype or plait.get_default_dtype()
        where = plait.device(device) if device is not None else plait.get_default_device()
        if strides is None:
            made = plait.empty(tuple(size), dtype=kind, device="meta")
            if memory_format not in (None, plait.preserve_format):
                made = made.contiguous(memory_format=memory_format)
        else:
            made = plait.empty_strided(tuple(size), tuple(strides), dtype=kind, device="meta")
        if storage_offset:
            spans = ((n - 1) * s for n, s in zip(made.shape, made.stride(), strict=True) if n)
            whole = plait.empty(storage_offset + sum(spans) + 1, dtype=kind, device="meta")
            made = whole.as_strided(made.shape, made.stride(), storage_offset)
    finally:
        state.all_off, state.dispatch_modes = outer, modes
    arm_for(cls)
    out: Any = object.__new__(cls)
    out._h = made._h
    del made._h
    vars(out)[CLAIMED] = where
    if requires_grad:
        out.requires_grad = True
    return out


def reduced(t: Any) -> tuple[Any, ...]:
    """Returns how a pickle makes the tensor: its shape, and the attributes that hold what it computes with."""
    held = {k: v for k, v in attributes(t).items() if k != CLAIMED}
    return _rebuilt, (type(t), tuple(t.shape), t.stride(), t.dtype, str(t.device), t.requires_grad, held)


def _rebuilt(
    cls: type, size: Any, strides: Any, dtype: Any, device: str, requires_grad: bool, held: dict[str, Any]
) -> Any:
    made = wrapper(cls, size, strides=strides, dtype=dtype, device=device, requires_grad=requires_grad)
    set_attributes(made, held)
    return made
