"""The base class of all neural network modules."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FunctionType
from typing import TYPE_CHECKING, Any, TypeVar

from plait import _dtype as dt
from plait import _ops
from plait._device import device as Device
from plait._engine.arming import CLAIMED
from plait._functions import compiling
from plait._modes import no_grad
from plait._tensor import Tensor
from plait.nn.modules._hooks import (
    GLOBAL,
    HookMethods,
    new_hooks,
    register_module_backward_hook,
    register_module_forward_hook,
    register_module_forward_pre_hook,
    register_module_full_backward_hook,
    register_module_full_backward_pre_hook,
)
from plait.nn.modules._state import EXTRA_STATE, IncompatibleKeys, StateMethods
from plait.nn.modules._tree import new_tables
from plait.nn.parameter import BUFFER, PARAMETER, Parameter, adopt, become, is_lazy, set_category

if TYPE_CHECKING:
    from plait._device import DeviceLike

T = TypeVar("T", bound="Module")
_EXTRA_STATE_KEY_SUFFIX = EXTRA_STATE  # under which transformers asks for it

_forward_pre, _forward, _backward_pre, _backward = GLOBAL


class Module(StateMethods, HookMethods):
    """A part of a network: parameters, buffers, modules below it, and a `forward` that computes with them.

    Parameters, buffers and modules that are assigned to attributes become part of it.
    """

    training: bool

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name, value in list(vars(cls).items()):
            if type(value) is FunctionType and _is_public(value):
                setattr(cls, name, staticmethod(value))

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if args or kwargs:
            raise TypeError(f"{type(self).__name__}: got arguments that no class takes: {[*args, *kwargs]}")
        own = self.__dict__
        own["training"] = True
        own.update(new_tables())
        own.update(new_hooks())

    # --- calling ---

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Computes the module's output. Classes override it; call the module itself, so that hooks run."""
        raise NotImplementedError(f"{type(self).__name__}: forward is not overridden")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        own = self.__dict__
        if "_replayed" in own:
            return own["_replayed"].run(lambda *a, **k: self._call_hooked(a, k), (self,), args, kwargs)
        try:
            hooked = (
                own["_forward_hooks"] or own["_forward_pre_hooks"] or own["_backward_hooks"]
                or own["_backward_pre_hooks"] or _forward or _forward_pre or _backward or _backward_pre
            )  # fmt: skip
        except KeyError:
            raise AttributeError(f"{type(self).__name__}: call super().__init__() in __init__") from None
        return self._call_hooked(args, kwargs) if hooked else self.forward(*args, **kwargs)

    # --- modes ---

    def train(self: T, mode: bool = True) -> T:
        """Sets this module and those below to training, or to evaluation, and returns self."""
        if not isinstance(mode, bool):
            raise ValueError(f"train: want True or False, got {mode!r}")
        self.training = mode
        for child in self.children():
            child.train(mode)
        return self

    def eval(self: T) -> T:
        """Sets this module and those below to evaluation and returns self."""
        return self.train(False)

    def requires_grad_(self: T, requires_grad: bool = True) -> T:
        """Makes all parameters collect gradients, or not, and returns self."""
        for p in self.parameters():
            p.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drops the gradients of all parameters, or fills them with zeros."""
        for p in self.parameters():
            grad = p.grad
            if grad is None:
                continue
            if set_to_none:
                p.grad = None
            elif grad.requires_grad:
                p.grad = _ops.zeros_like(grad)
            else:
                grad.zero_()

    def apply(self: T, fn: Callable[[Module], None]) -> T:
        """Calls `fn` with every module below and this one, and returns self."""
        for child in self.children():
            child.apply(fn)
        fn(self)
        return self

    # --- conversion ---

    def _apply(self: T, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> T:
        """Replaces the memory of parameters, gradients and buffers by what `fn` returns; parameters stay objects."""
        if recurse:
            for child in self.children():
                child._apply(fn)
        with no_grad():
            for p in self._parameters.values():
                if p is not None:
                    _convert(p, fn)
            for name, b in self._buffers.items():
                if b is not None:
                    made = fn(b)
                    if made is not b:
                        set_category(made, BUFFER)
                        self._buffers[name] = made
        return self

    def to(self: T, *args: Any, **kwargs: Any) -> T:
        """Moves parameters and buffers to a device, and those of floating-point to a dtype, in place; returns self.

        Call it with a device, a dtype, both, or a tensor whose device and dtype to take.

        Args:
            args: as above
            kwargs: device, dtype, non_blocking (as for `Tensor.to`)
        """
        device, dtype, queued, _ = parse_to(*args, **kwargs)
        if dtype is not None and not (dtype.is_floating_point or dtype.is_complex):
            raise TypeError(f"Module.to: want a floating-point or complex dtype, got {dtype}")

        def moved(t: Tensor) -> Tensor:
            numbers = t.dtype.is_floating_point or t.dtype.is_complex
            return t.to(device=device, dtype=dtype if numbers else None, non_blocking=queued)

        return self._apply(moved)

    def type(self: T, dst_type: Any) -> T:
        """Makes all parameters and buffers, of whatever dtype, ones of `dst_type`, and returns self."""
        return self._apply(lambda t: t.type(dst_type))

    def _floats_to(self: T, dtype: dt.dtype) -> T:
        return self._apply(lambda t: t.to(dtype=dtype) if t.dtype.is_floating_point else t)

    def float(self: T) -> T:
        """Makes floating-point parameters and buffers float32 and returns self."""
        return self._floats_to(dt.float32)

    def double(self: T) -> T:
        """Makes floating-point parameters and buffers float64 and returns self."""
        return self._floats_to(dt.float64)

    def half(self: T) -> T:
        """Makes floating-point parameters and buffers float16 and returns self."""
        return self._floats_to(dt.float16)

    def bfloat16(self: T) -> T:
        """Makes floating-point parameters and buffers bfloat16 and returns self."""
        return self._floats_to(dt.bfloat16)

    def cpu(self: T) -> T:
        """Moves parameters and buffers to the CPU and returns self."""
        return self.to(device="cpu")

    def cuda(self: T, device: DeviceLike | None = None) -> T:
        """Moves parameters and buffers to a GPU, the current one by default, and returns self."""
        return self.to(device="cuda" if device is None else device)

    def gpu(self: T, device: DeviceLike | None = None) -> T:
        """Moves the module to a GPU, the current one by default, and returns it: `cuda` under another name."""
        return self.to(device="gpu" if device is None else device)

    def to_empty(self: T, *, device: DeviceLike, recurse: bool = True) -> T:
        """Moves parameters and buffers to a device without their values, and returns self."""
        return self._apply(lambda t: _ops.empty_like(t, device=device), recurse=recurse)

    def share_memory(self: T) -> T:
        """Moves parameters, their gradients and buffers to memory that processes share, and returns self."""
        return self._apply(lambda t: t.share_memory_())

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Has calls of this module replayed: see `plait.compile`."""
        compiling.compile(self, *args, **kwargs)

    # --- description ---

    def _get_name(self) -> str:
        return self.__class__.__name__

    def extra_repr(self) -> str:
        """Returns what `repr` shows of the module itself."""
        return ""

    def __repr__(self) -> str:
        lines = [_indent(f"({name}): {child!r}") for name, child in self._modules.items()]
        return describe(self._get_name(), self.extra_repr(), lines)

    # --- copies ---

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(new_hooks())
        self.__dict__.update(state)


def _is_public(function: FunctionType) -> bool:
    """Returns whether a function is one of the package's, as `add` is. PyTorch's make no methods of a class that has
    them as attributes, since they are written in C++.
    """
    if not (function.__module__ or "").startswith("plait"):
        return False
    places = (sys.modules.get("plait"), sys.modules.get("plait.nn.functional"))
    return any(vars(p).get(function.__name__) is function for p in places if p)


def parse_to(
    *args: Any,
    device: Any = None,
    dtype: Any = None,
    non_blocking: bool = False,
    memory_format: Any = None,
    **others: Any,
) -> tuple[Device | None, dt.dtype | None, bool, Any]:
    """Returns device, dtype, non_blocking and memory_format of a call of `Module.to`, in whichever form it was made."""
    if others:
        raise TypeError(f"Module.to: unknown arguments {sorted(others)}")
    for a in args:
        if isinstance(a, Tensor):
            device, dtype = a.device, a.dtype
        elif isinstance(a, dt.dtype):
            dtype = a
        elif isinstance(a, Device | str) or (isinstance(a, int) and not isinstance(a, bool)):
            device = a
        elif isinstance(a, bool):
            non_blocking = a
        elif a is not None:
            raise TypeError(f"Module.to: want a device, a dtype or a tensor, got {type(a).__name__}")
    return None if device is None else Device(device), dtype, non_blocking, memory_format


def _convert(p: Parameter, fn: Callable[[Tensor], Tensor]) -> None:
    if is_lazy(p):
        made = fn(_ops.empty(0, dtype=p.dtype, device=p.device))
        adopt(p, made)
        return
    grad = p.grad
    made = fn(p)
    if made is not p and CLAIMED in vars(p):
        become(p, made)
    elif made is not p:
        adopt(p, made)
        set_category(p, PARAMETER)
    if grad is not None:
        moved = fn(grad)
        if made is not p or moved is not grad:
            p.grad = moved.requires_grad_(grad.requires_grad) if moved is not grad else grad


def _indent(text: str) -> str:
    return text.replace("\n", "\n  ")


def describe(name: str, extra: str, lines: list[str]) -> str:
    """Returns the representation of a module: its own line, and those of the modules below it."""
    head = extra.split("\n") if extra else []
    if len(head) <= 1 and not lines:
        return f"{name}({extra})"
    return f"{name}(\n  " + "\n  ".join([*head, *lines]) + "\n)"


_IncompatibleKeys = IncompatibleKeys  # as libraries import it

__all__ = [
    "Module",
    "describe",
    "register_module_backward_hook",
    "register_module_forward_hook",
    "register_module_forward_pre_hook",
    "register_module_full_backward_hook",
    "register_module_full_backward_pre_hook",
]
