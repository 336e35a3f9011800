"""What is known of a tensor without its values: sizes, layout, dtype, device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plait import _core, _ops
from plait import _dtype as dt
from plait._device import _by_number, device, device_of
from plait._engine.arming import arm_for
from plait._engine.runtime import TensorBase, check
from plait._layout import (
    Layout,
    MemoryFormat,
    Size,
    channels_last,
    channels_last_3d,
    contiguous_format,
    strided,
)

if TYPE_CHECKING:
    from plait._tensor import Tensor

_core.set_facts(dt.DTYPES, _by_number)


class TensorFacts:
    """The methods and properties of tensors that say what they are."""

    __slots__ = ()
    if TYPE_CHECKING:
        _h: int
        _sizes: Size

    @property
    def shape(self) -> Size:
        """The sizes of the dimensions."""
        return self._sizes

    def size(self, dim: int | None = None) -> Any:
        """Returns the sizes of the dimensions, or of one."""
        sizes = self.shape
        if dim is None:
            return sizes
        if not -len(sizes) <= dim < len(sizes):
            raise IndexError(f"size: dimension {dim} out of range for shape {list(sizes)}")
        return sizes[dim]

    def stride(self, dim: int | None = None) -> Any:
        """Returns the distances of neighbours along the dimensions, or along one, in elements."""
        strides: Any = _core.strides(self)
        if not isinstance(strides, tuple):
            check(strides)
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
        return _core.dtype(self) or dt.DTYPES[check(_core.bind_TensorDtype(self._h))]

    @property
    def device(self) -> device:
        """Where the tensor lives."""
        return _core.device(self) or device_of(check(_core.bind_TensorDevice(self._h)))

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

    def is_contiguous(self, memory_format: MemoryFormat = contiguous_format) -> bool:
        """Whether the elements lie without gaps: row-major, or with the channels last, where that is asked for."""
        t: Any = self
        if memory_format is channels_last or memory_format is channels_last_3d:
            if len(self.shape) != (4 if memory_format is channels_last else 5):
                return False
            t = _ops.movedim(t, 1, -1)
        return bool(check(_core.bind_TensorIsContiguous(t._h)))

    def data_ptr(self) -> int:
        """Returns the address of the first element, on devices whose memory the host can address, else 0.

        It does not wait: before the memory is read, `plait.cpu.synchronize` does.
        """
        return check(_core.bind_TensorAddress(self._h))

    @property
    def _cdata(self) -> int:
        """A number that other live tensors do not have."""
        return int(self._h)

    @property
    def _version(self) -> int:
        return check(_core.bind_TensorVersion(self._h))

    @property
    def T(self: Any) -> Tensor:  # noqa: N802
        """A view with the dimensions in reverse order."""
        n = len(self.shape)
        return _ops.t(self) if n == 2 else _ops.permute(self, tuple(range(n - 1, -1, -1)))

    @property
    def mT(self: Any) -> Tensor:  # type: ignore[override]  # noqa: N802
        """A view with the last two dimensions exchanged."""
        return _ops.mT(self)

    @property
    def mH(self: Any) -> Tensor:  # noqa: N802
        """The tensor with the last two dimensions exchanged and complex numbers conjugated."""
        return _ops.conj(_ops.mT(self))

    H = mH

    @property
    def real(self: Any) -> Tensor:
        """A view of the real parts of complex numbers; a real tensor as it is. What is assigned is copied to them."""
        return _ops.real(self) if self.dtype.is_complex else self

    @real.setter
    def real(self: Any, value: Any) -> None:
        self.real.copy_(value)

    @property
    def imag(self: Any) -> Tensor:
        """A view of the imaginary parts of complex numbers. What is assigned is copied to them."""
        return _ops.imag(self)

    @imag.setter
    def imag(self: Any, value: Any) -> None:
        self.imag.copy_(value)

    @property
    def layout(self) -> Layout:
        """How the elements lie: strided, but those of a sparse tensor."""
        return strided

    @property
    def is_cpu(self) -> bool:
        """Whether the tensor is on a CPU device."""
        return self.device.type == "cpu"

    @property
    def is_cuda(self) -> bool:
        """Whether the tensor is on a GPU."""
        return self.device._kind == "gpu"

    @property
    def is_meta(self) -> bool:
        """Whether the tensor has a shape and no elements."""
        return self.device.type == "meta"

    is_sparse = property(lambda self: False, doc="Whether the tensor is a sparse one with an index for each entry.")
    is_sparse_csr = property(lambda self: False, doc="Whether the tensor is a sparse one in compressed rows.")
    is_quantized = is_mkldnn = is_nested = is_xpu = is_mps = is_xla = is_ipu = is_vulkan = property(
        lambda self: False, doc="Whether the tensor is of such a kind: never."
    )
    names = property(lambda self: (None,) * len(self.shape), doc="The names of the dimensions: they have none.")
    name = property(lambda self: None, doc="The name of the tensor: it has none.")

    def dim_order(self, *, ambiguity_check: bool = False) -> tuple[int, ...]:
        """Returns the dimensions in the order in which they lie in memory, outermost first.

        Args:
            ambiguity_check: raise a RuntimeError where there are several such orders
        """
        strides = self.stride()
        if ambiguity_check and (1 in self.shape or len(set(strides)) < len(strides)):
            shape = list(self.shape)
            raise RuntimeError(f"dim_order: strides {list(strides)} of shape {shape} have several orders")
        return tuple(sorted(range(len(strides)), key=lambda d: -strides[d]))

    def is_inference(self) -> bool:
        """Whether the tensor was made in `inference_mode`: no derivative can use it."""
        return bool(check(_core.bind_TensorIsInference(self._h)))

    def has_names(self) -> bool:
        """Whether dimensions have names: never."""
        return False

    def as_subclass(self, cls: type) -> Any:
        """Returns the tensor as an object of a subclass, with the same memory and place in the graph."""
        if not isinstance(cls, type) or not issubclass(cls, TensorBase):
            raise TypeError(f"as_subclass: want a class derived from Tensor, got {cls!r:.60}")
        arm_for(cls)
        made: Any = object.__new__(cls)
        made._h = check(_core.bind_TensorAlias(self._h))
        return made
