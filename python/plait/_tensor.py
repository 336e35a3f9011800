"""The tensor: a multi-dimensional array on a device that knows its gradient."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from plait import _core, _ops
from plait import _dtype as dt
from plait._autograd.gradients import TensorGradients
from plait._device import DeviceLike
from plait._engine.arming import CLAIMED, DisableTorchFunctionSubclass, arm_for, install
from plait._engine.missing_names import absent
from plait._engine.overriding import call_below, overridden_method
from plait._engine.runtime import TensorBase, address, check, is_tensor, own, wait_value
from plait._functions._common import operand
from plait._functions.methods import TensorFunctions
from plait._layout import Size
from plait._ops.methods import TensorMethods
from plait._tensors.arrays import lent_array, share_numpy, tensor, to_list, to_numpy
from plait._tensors.dlpack import dlpack_device, to_capsule
from plait._tensors.elements import Elements, attributes, set_attributes
from plait._tensors.indexing import get_index, set_index
from plait._tensors.operators import install_operators
from plait._tensors.properties import TensorFacts
from plait._tensors.repr import tensor_repr
from plait._tensors.sparse import TensorSparsity
from plait._tensors.storage import deep_copied

Number: TypeAlias = int | float | bool


class Tensor(TensorBase, TensorFacts, TensorGradients, TensorSparsity, TensorFunctions, TensorMethods):  # type: ignore[misc]
    """A multi-dimensional array of one dtype on one device.

    Operations are queued on the device and return at once; reading a value (`item`, `tolist`, `numpy`, `print`) waits.
    Make tensors with `plait.tensor`, `plait.zeros` and their family; `Tensor(data)` makes one of the default dtype.
    """

    __slots__ = ("__dict__", "__weakref__", "_held", "_sizes")
    __hash__ = object.__hash__
    __array_priority__ = 1000  # NumPy leaves `array * tensor` to the tensor
    _sizes: Size
    _held: dict[int, Any]  # functions of hooks, by their keys: see _kept

    if TYPE_CHECKING:  # the operators, which are installed below

        def _binary(self, other: Any) -> Tensor: ...

        __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __mod__ = (
            __rmod__
        ) = _binary
        __floordiv__ = __rfloordiv__ = __pow__ = __rpow__ = __matmul__ = __rmatmul__ = __lshift__ = __rshift__ = _binary
        __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = __lt__ = __le__ = __gt__ = __ge__ = _binary

        def __neg__(self) -> Tensor: ...
        def __invert__(self) -> Tensor: ...
        def __abs__(self) -> Tensor: ...
        def __eq__(self, other: Any) -> Tensor: ...  # type: ignore[override]
        def __ne__(self, other: Any) -> Tensor: ...  # type: ignore[override]

    def __new__(cls, *data: Any, device: DeviceLike | None = None) -> Any:
        """Returns a tensor of the default dtype with a copy of `data`, or of the given sizes with undefined values.

        The sizes are numbers, or a `Size`. Of a tensor it takes the dtype and, on the same device, the memory.
        """
        if cls is not Tensor:
            arm_for(cls)
        self = object.__new__(cls)
        if len(data) == 1 and not isinstance(data[0], int | Size):
            made = (
                data[0].detach().to(device=device)
                if isinstance(data[0], Tensor)
                else tensor(data[0], dtype=dt.get_default_dtype(), device=device)
            )
        else:
            made = _ops.empty(*(data or (0,)), device=device)
        self._h = made._h
        del made._h  # its handle is ours now
        return self

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        install(cls)

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Iterable[type], args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Returns what a function does with tensors of this class, and tensors in it as ones of this class.

        A class derived from `Tensor` overrides functions by a method of this name, and calls this one for the rest.

        Args:
            func: the function
            types: the classes among its arguments that override functions
            args: of the call, by position
            kwargs: by name
        """
        if not all(issubclass(cls, t) for t in types):
            return NotImplemented
        with DisableTorchFunctionSubclass():
            result = call_below(func, args, kwargs or {})
        return result if cls is Tensor or func == Tensor.grad.__get__ else _as_subclass(cls, result)

    @staticmethod
    def _make_subclass(subclass: type, data: Tensor, require_grad: bool = False) -> Any:
        """Returns a leaf of a derived class that shares the memory of `data`."""
        with DisableTorchFunctionSubclass():
            made = data.detach().as_subclass(subclass)
            made.requires_grad = require_grad
        return made

    @staticmethod
    def _make_wrapper_subclass(subclass: type, size: Any, **options: Any) -> Any:
        """Returns a tensor without elements of a class with a `__torch_dispatch__`: see `plait._dispatch.wrappers`."""
        from plait._dispatch.wrappers import wrapper

        return wrapper(subclass, size, **options)

    # --- values ---

    def item(self) -> Number:
        """Waits for the only element and returns it as a Python number.

        Raises:
            ValueError: if there is not exactly one element.
        """
        value: Number | None = _core.peek(self)
        if value is not None:
            return value
        wait_value(self._h)
        if self.dtype.is_complex:
            parts = array("d", (0.0, 0.0))
            check(_core.bind_TensorComplex(self._h, address(parts)))
            return complex(*parts)  # type: ignore[return-value]
        if self.dtype.is_floating_point:
            real = array("d", (0.0,))
            check(_core.bind_TensorItem(self._h, address(real)))
            return real[0]
        whole = array("q", (0,))
        check(_core.bind_TensorInt(self._h, address(whole)))
        if self.dtype is dt.uint64:
            return whole[0] % (1 << 64)
        return bool(whole[0]) if self.dtype is dt.bool_ else whole[0]

    def tolist(self) -> Any:
        """Waits for the elements and returns them as nested lists, or as a number where there are no dimensions."""
        return to_list(self)

    def numpy(self, *, force: bool = False) -> np.ndarray:
        """Waits for the elements and returns them as an array that shares the tensor's memory.

        Operations on a tensor that shares memory with an array are done when they return, as long as the array lives.

        Args:
            force: also take a tensor that requires a gradient or is on a device whose memory the host cannot address,
                and then copy

        Raises:
            RuntimeError: if the tensor requires a gradient.
            TypeError: if it is on such a device, or of dtype bfloat16, which NumPy does not have.
        """
        return share_numpy(self, force)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """NumPy's way to make an array: over the memory, as `numpy` does, or a copy where that cannot be shared."""
        if dtype is None and not copy and (lent := lent_array(self)) is not None:
            return lent
        shares = self.device.type == "cpu" and self.dtype is not dt.bfloat16 and not self.requires_grad
        out = share_numpy(self) if copy is False or (shares and not copy) else to_numpy(self.detach())
        if dtype is None or out.dtype == dtype:
            return out
        if copy is False:
            raise ValueError(
                f"__array__: copy=False forbids a copy, which {dtype} elements of a {self.dtype} tensor need"
            )
        return out.astype(dtype)

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """Other libraries' way to share the memory; as with `numpy`, what uses it is done when it returns."""
        return to_capsule(self, max_version, dl_device, copy, stream)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Returns DLPack's number of the device's kind, and its index."""
        return dlpack_device(self)

    def __bool__(self) -> bool:
        if self.numel() != 1:
            raise RuntimeError(
                f"bool: the truth of a tensor of shape {list(self.shape)} is ambiguous; use any() or all()"
            )
        return bool(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __index__(self) -> int:
        if self.dtype.is_floating_point or self.dtype.is_complex:
            raise TypeError(f"index: only integer tensors of one element can be an index, got {self.dtype}")
        return int(self.item())

    def __complex__(self) -> complex:
        return complex(self.item())

    def __format__(self, spec: str) -> str:
        if spec and self.shape:
            raise TypeError(f"format: {spec!r} is for one number, got a tensor of shape {list(self.shape)}")
        return str(self) if self.shape or self.is_meta else format(self.item(), spec)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len: a 0-d tensor has no length")
        return self.shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        if not self.shape:
            raise TypeError("iter: a 0-d tensor cannot be iterated over")
        return iter(_ops.unbind(self, 0))

    def __contains__(self, item: Any) -> bool:
        equal = self == item
        if not isinstance(equal, Tensor):
            raise TypeError(f"in: want a tensor or a number to look for, got {type(item).__name__}")
        return bool(_ops.any(equal).item())

    def __repr__(self, *, tensor_contents: str | None = None) -> str:
        return tensor_repr(self)

    def _repr_html_(self) -> str:
        from html import escape

        text = f"{self.dtype.name}{list(self.shape)} on {self.device}"
        return f"<pre>{escape(repr(self))}</pre><small>{escape(text)}</small>"

    # --- parts ---

    def __getitem__(self, index: Any) -> Tensor:
        if (part := _core.index(self, index)) is not None:
            return part  # type: ignore[no-any-return]
        try:
            return get_index(self, index)
        except (TypeError, LookupError, ValueError):
            if (made := overridden_method(Tensor.__getitem__, self, index)) is None:
                raise
            return made[0]

    def __setitem__(self, index: Any, value: Any) -> None:
        if _core.set_index(self, index, value):
            return
        try:
            set_index(self, index, value)
        except (TypeError, LookupError, ValueError):
            if overridden_method(Tensor.__setitem__, self, index, value) is None:
                raise

    # --- copies ---

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if id(self) in memo:
            return memo[id(self)]
        if CLAIMED in self.__dict__:  # its class copies what it holds
            memo[id(self)] = copied = self.clone()
            return copied
        if not self.is_leaf:
            raise RuntimeError("deepcopy: only leaves can be copied with their gradient; use detach().clone()")
        copy = self._like(self._deep_copied(memo))
        copy.requires_grad = self.requires_grad
        memo[id(self)] = copy
        if (grad := self.grad) is not None:
            copy.grad = deepcopy(grad, memo)
        set_attributes(copy, deepcopy(attributes(self), memo))
        return copy

    def _deep_copied(self, memo: dict[int, Any]) -> Tensor:
        return deep_copied(self, memo)

    def _like(self, made: Tensor) -> Any:
        """Returns `made` as an object of this tensor's class."""
        if type(self) is Tensor:
            return made
        copy = object.__new__(type(self))
        copy._h = made._h
        del made._h
        return copy

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        if CLAIMED in self.__dict__:
            from plait._dispatch.wrappers import reduced  # which most programs do without

            return reduced(self)
        return _rebuild, (
            type(self),
            Elements(self),
            self.dtype.name,
            str(self.device),
            self.requires_grad,
            attributes(self),
        )

    # --- other libraries, and names that are not there ---

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        """The module that has the functions of the array API standard, `plait.array_api`.

        Raises:
            ValueError: for a version of the standard that it does not follow.
        """
        from plait import array_api

        if api_version not in (None, "2021.12", "2022.12", array_api.__array_api_version__):
            raise ValueError(
                f"__array_namespace__: want version {array_api.__array_api_version__} or older, got {api_version!r}"
            )
        return array_api

    def to_device(self, device: DeviceLike, /, *, stream: Any = None) -> Tensor:
        """The array API's name for `to(device)`."""
        if stream is not None:
            raise ValueError(f"to_device: streams are not the caller's to choose, got {stream!r}")
        return self.to(device=device)

    def __copy__(self) -> Any:
        copy = self._like(own(check(_core.bind_TensorAlias(self._h))))
        set_attributes(copy, attributes(self))
        return copy

    def __divmod__(self, other: Any) -> tuple[Tensor, Tensor]:
        return _ops.floor_divide(self, other), _ops.remainder(self, other)

    def __rdivmod__(self, other: Any) -> tuple[Tensor, Tensor]:
        left = operand(other, "divmod")
        return _ops.floor_divide(left, self), _ops.remainder(left, self)

    def __reversed__(self) -> Tensor:
        return _ops.flip(self, 0) if self.shape else self

    def __round__(self, ndigits: int | None = None) -> Tensor:
        return _ops.round(self, ndigits or 0)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name == "_sizes":  # asked for the first time
                sizes = _core.sizes(self)
                if not isinstance(sizes, tuple):
                    check(sizes)
                self._sizes = sizes = Size(sizes)
                return sizes
            if name == "_held" or name.startswith("__"):  # such as other libraries ask for
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            raise absent("tensor", "Tensor", name, type(self))


_core.set_tensor_class(Tensor)
install_operators(Tensor)


def _as_subclass(cls: type, result: Any) -> Any:
    """Returns a result, with the tensors in it as ones of a class."""
    if isinstance(result, Tensor) and not isinstance(result, cls):
        return result.as_subclass(cls)
    if isinstance(result, list | tuple) and type(result) is not Size:
        parts = [_as_subclass(cls, r) for r in result]
        return type(result)(*parts) if hasattr(result, "_fields") else type(result)(parts)
    return result


def _rebuild(cls: type, data: Any, name: str, where: str, requires_grad: bool, state: dict[str, Any]) -> Any:
    if is_tensor(data):  # on the CPU
        made = data if where.startswith("cpu") else data.to(where)
    else:
        made = tensor(data, dtype=getattr(dt, "bool_" if name == "bool" else name), device=where)
    if cls is not Tensor:
        arm_for(cls)
    out: Any = object.__new__(cls)
    out._h = made._h
    del made._h
    out.requires_grad = requires_grad
    set_attributes(out, state)
    return out
