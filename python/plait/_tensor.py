"""The tensor: a multi-dimensional array on a device that knows its gradient."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from plait import _core, _ops
from plait import _dtype as dt
from plait._device import DeviceLike, device, device_of, open_device
from plait._functions._common import adopt, operand
from plait._functions.methods import TensorFunctions
from plait._indexing import get_index, set_index
from plait._operators import install_operators
from plait._ops.methods import TensorMethods
from plait._runtime import (
    MAX_DIMS,
    TensorBase,
    address,
    call,
    check,
    own,
    wait_value,
)

if TYPE_CHECKING:
    from plait._autograd import RemovableHandle

Number: TypeAlias = int | float | bool


class Size(tuple[int, ...]):
    """The sizes of a tensor's dimensions."""

    __slots__ = ()

    def numel(self) -> int:
        """Returns the number of elements."""
        n = 1
        for size in self:
            n *= size
        return n

    def __repr__(self) -> str:
        return f"plait.Size([{', '.join(map(str, self))}])"

    def __getitem__(self, item: Any) -> Any:
        out = super().__getitem__(item)
        return Size(out) if isinstance(item, slice) else out

    def __add__(self, other: Any) -> Size:
        return Size(super().__add__(tuple(other)))


class Layout:
    """How elements lie in memory; the only one is `plait.strided`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "plait.strided"

    def __reduce__(self) -> str:
        return "strided"


strided = Layout()


class MemoryFormat:
    """The order in which elements are asked to lie; it has no effect: new tensors lie row-major."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return f"plait.{self._name}"

    def __reduce__(self) -> str:
        return self._name


contiguous_format, preserve_format = MemoryFormat("contiguous_format"), MemoryFormat("preserve_format")
channels_last, channels_last_3d = MemoryFormat("channels_last"), MemoryFormat("channels_last_3d")


class Tensor(TensorBase, TensorFunctions, TensorMethods):  # type: ignore[misc]
    """A multi-dimensional array of one dtype on one device.

    Operations are queued on the device and return at once; reading a value (`item`, `tolist`, `numpy`, `print`) waits.
    Make tensors with `plait.tensor`, `plait.zeros` and their family; `Tensor(data)` makes one of the default dtype.
    """

    __slots__ = ("__dict__", "__weakref__", "_sizes")
    __hash__ = object.__hash__
    __array_priority__ = 1000  # NumPy leaves `array * tensor` to the tensor
    _sizes: Size

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
        """Returns a tensor of the default dtype with a copy of `data`, or of the given sizes with undefined values."""
        self = object.__new__(cls)
        if len(data) == 1 and not isinstance(data[0], int):
            made = (
                data[0].detach()
                if isinstance(data[0], Tensor)
                else tensor(data[0], dtype=dt.get_default_dtype(), device=device)
            )
        else:
            made = _ops.empty(*(data or (0,)), device=device)
        self._h = made._h
        del made._h  # its handle is ours now
        return self

    # --- what it is ---

    @property
    def shape(self) -> Size:
        """The sizes of the dimensions."""
        return self._sizes

    def size(self, dim: int | None = None) -> Any:
        """Returns the sizes of the dimensions, or of one."""
        if dim is None:
            return self.shape
        if not -len(self.shape) <= dim < max(len(self.shape), 1) or not self.shape:
            raise IndexError(f"size: dimension {dim} out of range for shape {list(self.shape)}")
        return self.shape[dim]

    def stride(self, dim: int | None = None) -> Any:
        """Returns the distances of neighbours along the dimensions, or along one, in elements."""
        buffer = array("q", bytes(8 * MAX_DIMS))
        n = check(_core.bind_TensorStrides(self._h, address(buffer)))
        strides = tuple(buffer[:n])
        return strides if dim is None else strides[dim]

    def storage_offset(self) -> int:
        """Returns the position of the first element in the storage, in elements."""
        return check(_core.bind_TensorOffset(self._h))

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    def dim(self) -> int:
        """Returns the number of dimensions."""
        return len(self.shape)

    ndimension = dim

    def numel(self) -> int:
        """Returns the number of elements."""
        return self.shape.numel()

    nelement = numel

    @property
    def dtype(self) -> dt.dtype:
        """The type of the elements."""
        return dt.DTYPES[check(_core.bind_TensorDtype(self._h))]

    @property
    def device(self) -> device:
        """Where the tensor lives."""
        return device_of(check(_core.bind_TensorDevice(self._h)))

    def element_size(self) -> int:
        """Returns the bytes of an element."""
        return self.dtype.itemsize

    @property
    def itemsize(self) -> int:
        """The bytes of an element."""
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """The bytes of all elements."""
        return self.numel() * self.dtype.itemsize

    def is_contiguous(self, memory_format: Any = None) -> bool:
        """Whether the elements lie row-major without gaps."""
        return bool(check(_core.bind_TensorIsContiguous(self._h)))

    def data_ptr(self) -> int:
        """Returns the address of the first element, on devices whose memory the host can address, else 0."""
        return check(_core.bind_TensorAddress(self._h))

    @property
    def _version(self) -> int:
        return check(_core.bind_TensorVersion(self._h))

    @property
    def T(self) -> Tensor:  # noqa: N802
        """A view with the dimensions in reverse order."""
        return _ops.permute(self, tuple(range(len(self.shape) - 1, -1, -1)))

    @property
    def mT(self) -> Tensor:  # type: ignore[override]  # noqa: N802
        """A view with the last two dimensions exchanged."""
        return _ops.mT(self)

    H = mH = mT  # noqa: N815

    @property
    def real(self) -> Tensor:
        """The tensor: its elements are real."""
        return self

    @property
    def layout(self) -> Layout:
        """How the elements lie: always strided."""
        return strided

    @property
    def is_cpu(self) -> bool:
        """Whether the tensor is on a CPU device."""
        return self.device.type == "cpu"

    @property
    def is_cuda(self) -> bool:
        """Whether the tensor is on a GPU."""
        return self.device.type == "gpu"

    @property
    def is_meta(self) -> bool:
        """Whether the tensor has a shape and no elements."""
        return self.device.type == "meta"

    is_sparse = is_quantized = is_sparse_csr = is_mkldnn = is_nested = is_xpu = is_mps = is_xla = is_ipu = is_vulkan = (
        property(lambda self: False, doc="Whether the tensor is of such a kind: never.")
    )
    names = property(lambda self: (None,) * len(self.shape), doc="The names of the dimensions: they have none.")
    name = property(lambda self: None, doc="The name of the tensor: it has none.")

    def dim_order(self) -> tuple[int, ...]:
        """Returns the dimensions in the order in which they lie in memory, outermost first."""
        strides = self.stride()
        return tuple(sorted(range(len(strides)), key=lambda d: -strides[d]))

    def is_inference(self) -> bool:
        """Whether the tensor was made in `inference_mode`: no derivative can use it."""
        return bool(check(_core.bind_TensorIsInference(self._h)))

    def has_names(self) -> bool:
        """Whether dimensions have names: never."""
        return False

    def as_subclass(self, cls: type) -> Any:
        """Returns the tensor as an object of a subclass, with the same memory and place in the graph."""
        made: Any = object.__new__(cls)
        made._h = check(_core.bind_TensorAlias(self._h))
        return made

    # --- gradients ---

    @property
    def grad_fn(self) -> Any:
        """The recorded operation that made the tensor, or None for a leaf."""
        from plait._node import node_of

        return node_of(_core.bind_GradNode(self._h))

    @property
    def retains_grad(self) -> bool:
        """Whether the tensor, the result of an operation, keeps its gradient."""
        return bool(check(_core.bind_RetainsGrad(self._h)))

    @property
    def output_nr(self) -> int:
        """The number of the result among those of the operation that made the tensor."""
        return check(_core.bind_GradIndex(self._h))

    @property
    def requires_grad(self) -> bool:
        """Whether gradients flow to the tensor."""
        return bool(check(_core.bind_RequiresGrad(self._h)))

    @requires_grad.setter
    def requires_grad(self, on: bool) -> None:
        check(_core.bind_RequiresGradSet(self._h, bool(on)))

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Makes a leaf collect its gradient, or not, and returns self."""
        self.requires_grad = requires_grad
        return self

    @property
    def grad(self) -> Tensor | None:
        """The gradient that backward has collected, or None."""
        h = check(_core.bind_GradGet(self._h))
        return own(h) if h else None

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        if value is not None and not isinstance(value, Tensor):
            raise TypeError(f"grad: want a tensor or None, got {type(value).__name__}")
        if value is not None and value.shape != self.shape:
            raise ValueError(f"grad: got shape {list(value.shape)}, want {list(self.shape)}")
        check(_core.bind_GradReplace(self._h, 0 if value is None else value._h))

    @grad.deleter
    def grad(self) -> None:
        self.grad = None

    @property
    def is_leaf(self) -> bool:
        """Whether no recorded operation made the tensor."""
        return bool(check(_core.bind_IsLeaf(self._h)))

    def backward(
        self,
        gradient: Tensor | None = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        inputs: Any = None,
    ) -> None:
        """Adds the gradient of this tensor to those of the leaves it depends on.

        Args:
            gradient: of this tensor; may be left out if it has one element
            retain_graph: keep the graph for another pass; what create_graph says by default
            create_graph: record the pass, so that gradients can be differentiated
            inputs: the tensors that collect gradients; all leaves by default
        """
        from plait._autograd import backward

        backward((self,), None if gradient is None else (gradient,), retain_graph, create_graph, inputs)

    def detach(self) -> Tensor:
        """Returns a tensor with the same memory and no gradient."""
        return own(check(_core.bind_TensorDetach(self._h)))

    @property
    def data(self) -> Tensor:
        """The tensor without its gradient, sharing its memory."""
        return self.detach()

    @data.setter
    def data(self, value: Tensor) -> None:
        if not isinstance(value, Tensor):
            raise TypeError(f"data: want a tensor, got {type(value).__name__}")
        adopt(self, value)

    # --- values ---

    def item(self) -> Number:
        """Waits for the only element and returns it as a Python number.

        Raises:
            ValueError: if there is not exactly one element.
        """
        wait_value(self._h)
        if self.dtype.is_floating_point:
            real = array("d", (0.0,))
            check(_core.bind_TensorItem(self._h, address(real)))
            return real[0]
        whole = array("q", (0,))
        check(_core.bind_TensorInt(self._h, address(whole)))
        return bool(whole[0]) if self.dtype is dt.bool_ else whole[0]

    def tolist(self) -> Any:
        """Waits for the elements and returns them as nested lists, or as a number where there are no dimensions."""
        return to_numpy(self).tolist()

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
        """NumPy's way to make an array."""
        if copy is False:
            out = self.numpy()
            return out if dtype is None else out.astype(dtype, copy=False)
        out = to_numpy(self.detach())
        return out if dtype is None else out.astype(dtype, copy=False)

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """Other libraries' way to share the memory; as with `numpy`, what uses it is done when it returns."""
        from plait._dlpack import to_capsule

        return to_capsule(self, max_version, dl_device, copy, stream)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Returns DLPack's number of the device's kind, and its index."""
        from plait._dlpack import dlpack_device

        return dlpack_device(self)

    def to(self, *args: Any, **kwargs: Any) -> Tensor:
        """Returns the tensor on another device or of another dtype; itself if nothing changes.

        Call it with a device, a dtype, both in this order, or a tensor whose device and dtype to take.

        Args:
            args: as above
            kwargs: device, dtype, copy (make a copy in any case), non_blocking (has no effect: copies are queued)
        """
        return convert(self, *args, **kwargs)

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
        if self.dtype.is_floating_point:
            raise TypeError(f"index: only integer tensors of one element can be an index, got {self.dtype}")
        return int(self.item())

    def __complex__(self) -> complex:
        return complex(self.item())

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if not self.shape and spec else str(self)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len: a 0-d tensor has no length")
        return self.shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        if not self.shape:
            raise TypeError("iter: a 0-d tensor cannot be iterated over")
        return iter(_ops.unbind(self, 0))

    def __contains__(self, item: Any) -> bool:
        return bool(_ops.any(self == item).item())

    def __repr__(self, *, tensor_contents: str | None = None) -> str:
        from plait._repr import tensor_repr

        return tensor_repr(self)

    def _repr_html_(self) -> str:
        from html import escape

        text = f"{self.dtype.name}{list(self.shape)} on {self.device}"
        return f"<pre>{escape(repr(self))}</pre><small>{escape(text)}</small>"

    # --- parts ---

    def __getitem__(self, index: Any) -> Tensor:
        return get_index(self, index)

    def __setitem__(self, index: Any, value: Any) -> None:
        set_index(self, index, value)

    # --- copies ---

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if id(self) in memo:
            return memo[id(self)]
        if not self.is_leaf:
            raise RuntimeError("deepcopy: only leaves can be copied with their gradient; use detach().clone()")
        copy = self._like(_ops.clone(self.detach()))
        copy.requires_grad = self.requires_grad
        memo[id(self)] = copy
        if (grad := self.grad) is not None:
            copy.grad = _ops.clone(grad.detach())
        copy.__dict__.update(self.__dict__)
        return copy

    def _like(self, made: Tensor) -> Any:
        """Returns `made` as an object of this tensor's class."""
        if type(self) is Tensor:
            return made
        copy = object.__new__(type(self))
        copy._h = made._h
        del made._h
        return copy

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        state = dict(self.__dict__)
        return _rebuild, (
            type(self),
            to_numpy(self.detach()),
            self.dtype.name,
            str(self.device),
            self.requires_grad,
            state,
        )

    # --- hooks ---

    def register_hook(self, hook: Callable[[Tensor], Tensor | None]) -> RemovableHandle:
        """Calls `hook` with the gradient of this tensor in backward; what it returns, if not None, replaces it."""
        from plait._autograd import register_hook

        return register_hook(self, hook)

    def register_post_accumulate_grad_hook(self, hook: Callable[[Tensor], None]) -> RemovableHandle:
        """Calls `hook` with this leaf as soon as its gradient of a backward pass is final."""
        from plait._autograd import register_post_accumulate_grad_hook

        return register_post_accumulate_grad_hook(self, hook)

    def retain_grad(self) -> None:
        """Makes the tensor, the result of an operation, keep its gradient."""
        check(_core.bind_RetainGrad(self._h))

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
        copy.__dict__.update(self.__dict__)
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
                buffer = array("q", bytes(8 * MAX_DIMS))
                n = check(_core.bind_TensorShape(self._h, address(buffer)))
                self._sizes = sizes = Size(buffer[:n])
                return sizes
            if name.startswith("_"):
                raise AttributeError(f"Tensor has no attribute {name!r}")
            from plait._missing import absent

            raise absent("tensor", "Tensor", name)


_core.set_tensor_class(Tensor)
install_operators(Tensor)


def _rebuild(cls: type, data: np.ndarray, name: str, where: str, requires_grad: bool, state: dict[str, Any]) -> Any:
    made = tensor(data, dtype=getattr(dt, "bool_" if name == "bool" else name), device=where)
    out: Any = object.__new__(cls)
    out._h = made._h
    del made._h
    out.requires_grad = requires_grad
    out.__dict__.update(state)
    return out


def tensor(
    data: Any,
    *,
    dtype: dt.dtype | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """Returns a tensor with a copy of `data`: a number, nested sequences, a NumPy array, a tensor.

    Args:
        data: the values
        dtype: of the result; by default that of an array or tensor, the default dtype for Python floats, int64 for
            ints, bool for bools
        device: where the result goes; the default device, or that of a tensor
        requires_grad: whether the result collects its gradient
        pin_memory: has no effect
    """
    if isinstance(data, Tensor):
        out = (
            _ops.clone(data.detach())
            if device is None or open_device(device) == data.device
            else data.detach().to(device)
        )
        out = out if dtype is None or out.dtype is dtype else out.to(dtype)
    else:
        out = _from_array(_as_array(data), dtype, device, isinstance(data, np.ndarray | np.generic))
    if requires_grad:
        out.requires_grad = True
    return out


def _as_array(data: Any) -> np.ndarray:
    if not isinstance(data, np.ndarray | np.generic | int | float | bool) and _holds_tensor(data):
        data = _plain(data)
    try:
        return np.asarray(data)
    except ValueError as error:
        raise ValueError(f"tensor: the sequences have different lengths: {error}") from None


def _holds_tensor(data: Any) -> bool:
    while isinstance(data, list | tuple) and data:
        data = data[0]
    return isinstance(data, Tensor)


def _plain(data: Any) -> Any:
    if isinstance(data, Tensor):
        return data.tolist()
    return [_plain(d) for d in data] if isinstance(data, list | tuple) else data


def _from_array(a: np.ndarray, dtype: dt.dtype | None, device: DeviceLike | None, typed: bool) -> Tensor:
    wanted = None if dtype is None else dt.as_dtype(dtype)
    if a.dtype.kind in "OSUVMmc":
        raise TypeError(f"tensor: cannot make a tensor of {a.dtype} elements")
    if not typed and a.dtype == np.float64:
        if (wanted or dt.get_default_dtype()) is dt.float32:
            with np.errstate(over="ignore"):
                a = a.astype(np.float32)
        wanted = wanted or dt.get_default_dtype()
    if not a.dtype.isnative:
        a = a.astype(a.dtype.newbyteorder("="))
    if a.dtype not in dt.FROM_NUMPY:
        small = {"i1": np.int32, "i2": np.int32, "u2": np.int32, "u4": np.int64, "u8": np.int64}.get(a.dtype.str[1:])
        if small is None or (typed and wanted is None):
            known = ", ".join(str(n) for n in dt.FROM_NUMPY)
            raise TypeError(
                f"tensor: NumPy dtype {a.dtype} has no tensor dtype; convert it to one of {known}, or give dtype="
            )
        a = a.astype(small)
    a = np.ascontiguousarray(a).reshape(a.shape)
    shape = array("q", a.shape)
    number = -1 if device is None else open_device(device)
    own_dtype = dt.FROM_NUMPY[a.dtype]
    out = own(
        call(
            _core.bind_TensorFromMemory, a.ctypes.data, a.nbytes, own_dtype._number, address(shape), len(shape), number
        )
    )
    return out if wanted is None or wanted is own_dtype else out.to(wanted)


def as_tensor(data: Any, dtype: dt.dtype | None = None, device: DeviceLike | None = None) -> Tensor:
    """Returns `data` as a tensor, without a copy for a tensor and for an array of a dtype that tensors have."""
    if isinstance(data, Tensor):
        return data if dtype is None and device is None else data.to(device=device, dtype=dtype)
    if isinstance(data, np.ndarray) and data.dtype in dt.FROM_NUMPY and data.flags.writeable:
        out = from_numpy(data)
        return out if dtype is None and device is None else out.to(device=device, dtype=dtype)
    return tensor(data, dtype=dtype, device=device)


asarray = as_tensor


def convert(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Returns what `Tensor.to` says."""
    where, dtype = kwargs.pop("device", None), kwargs.pop("dtype", None)
    copy, _ = kwargs.pop("copy", False), kwargs.pop("non_blocking", False)
    kwargs.pop("memory_format", None)
    if kwargs:
        raise TypeError(f"to: unknown arguments {sorted(kwargs)}")
    for a in args:
        if isinstance(a, Tensor):
            where, dtype = a.device, a.dtype
        elif isinstance(a, device | str) or (isinstance(a, int) and not isinstance(a, bool)):
            where = a
        elif isinstance(a, bool) or a is None:
            continue  # non_blocking
        else:
            dtype = dt.as_dtype(a)
    out = self
    if where is not None:
        number = open_device(where)
        if number != check(_core.bind_TensorDevice(self._h)):
            out = own(call(_core.bind_TensorToDevice, out._h, number))
    if dtype is not None and (d := dt.as_dtype(dtype)) is not out.dtype:
        out = _ops.to(out, dtype=d)
    return _ops.clone(out) if copy and out is self else out


def to_numpy(t: Tensor) -> np.ndarray:
    """Waits for the elements and returns a copy of them; of bfloat16 ones as float32."""
    if t.dtype is dt.bfloat16:
        t = _ops.to(t.detach(), dtype=dt.float32)
    if not t.is_contiguous():
        t = _ops.contiguous(t.detach())
    out = np.empty(t.shape, dt.TO_NUMPY[t.dtype])
    wait_value(t._h)
    check(_core.bind_TensorRead(t._h, out.ctypes.data, out.nbytes))
    return out


class _Export(_core.ObjectOwner):
    """Keeps a tensor's memory for an array that shares it."""

    def __init__(self, t: Tensor) -> None:
        wait_value(t._h)
        self._h = check(_core.bind_TensorExport(t._h))
        size = t.dtype.itemsize
        self.__array_interface__ = {
            "version": 3,
            "shape": tuple(t.shape),
            "strides": tuple(s * size for s in t.stride()),
            "typestr": dt.TO_NUMPY[t.dtype].str,
            "data": (t.data_ptr(), False),
        }


def share_numpy(t: Tensor, force: bool = False) -> np.ndarray:
    """Returns what `Tensor.numpy` says."""
    if force:
        t = t.detach()
        if t.device.type != "cpu" or t.dtype is dt.bfloat16:
            return to_numpy(t)
    if t.requires_grad:
        raise RuntimeError(
            "numpy: the tensor requires a gradient, which the array would not know of; use detach().numpy()"
        )
    if t.dtype is dt.bfloat16:
        raise TypeError("numpy: NumPy has no bfloat16; use to(plait.float32).numpy()")
    if t.numel() == 0:
        return np.empty(t.shape, dt.TO_NUMPY[t.dtype])
    return np.asarray(_Export(t))


_shared: dict[int, Any] = {}
_next_key = iter(range(1, 1 << 62))


def from_numpy(ndarray: np.ndarray) -> Tensor:
    """Returns a tensor on cpu:0 that shares the memory of an array.

    Raises:
        TypeError: for a read-only array, and for a dtype that tensors do not have.
        ValueError: for strides that are no multiples of the elements' size.
    """
    if not isinstance(ndarray, np.ndarray):
        raise TypeError(f"from_numpy: want an array, got {type(ndarray).__name__}")
    if ndarray.dtype not in dt.FROM_NUMPY or not ndarray.dtype.isnative:
        known = ", ".join(str(n) for n in dt.FROM_NUMPY)
        raise TypeError(f"from_numpy: NumPy dtype {ndarray.dtype} has no tensor dtype, want one of {known}")
    if not ndarray.flags.writeable:
        raise TypeError("from_numpy: the array is read-only, and a tensor can be written to; use plait.tensor(array)")
    size = ndarray.itemsize
    if any(s % size for s in ndarray.strides) or ndarray.ctypes.data % size:
        raise ValueError(
            f"from_numpy: strides {ndarray.strides} and address must be multiples of the elements' {size} bytes"
        )
    if ndarray.size == 0:
        return tensor(ndarray)
    collect()
    low = sum(min(0, (n - 1) * s) for n, s in zip(ndarray.shape, ndarray.strides, strict=True))
    high = sum(max(0, (n - 1) * s) for n, s in zip(ndarray.shape, ndarray.strides, strict=True))
    key = next(_next_key)
    shape, strides = array("q", ndarray.shape), array("q", [s // size for s in ndarray.strides])
    number = dt.FROM_NUMPY[ndarray.dtype]._number
    at, dims = ndarray.ctypes.data + low, len(shape)
    _shared[key] = ndarray
    return own(
        call(
            _core.bind_TensorWrap,
            at,
            high - low + size,
            number,
            address(shape),
            address(strides),
            dims,
            -low // size,
            key,
        )
    )


def collect() -> None:
    """Lets go of arrays and functions that the engine no longer uses."""
    keys = array("q", bytes(8 * 64))
    while n := _core.bind_Dropped(address(keys), len(keys)):
        for key in keys[:n]:
            _shared.pop(key, None)


def keep(value: Any) -> int:
    """Keeps a Python value that the engine refers to by the returned key, until the engine drops it."""
    key = next(_next_key)
    _shared[key] = value
    return key


def kept(key: int) -> Any:
    """Returns the value with a key."""
    return _shared[key]


def kept_count() -> int:
    """Returns how many Python values the engine refers to."""
    collect()
    return len(_shared)


TensorLike = Tensor | Number | Sequence[Any]
