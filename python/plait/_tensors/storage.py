"""What lies behind a tensor: its storage, as far as scripts ask for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plait import _core, _ops
from plait._dtype import uint8
from plait._engine.runtime import check, own

if TYPE_CHECKING:
    from plait._device import device as Device
    from plait._dtype import dtype as DType
    from plait._tensor import Tensor


class Storage:
    """The memory that a tensor and its views share, in elements of the tensor's dtype, or in bytes."""

    __slots__ = ("_element", "_tensor")

    def __init__(self, tensor: Tensor, in_bytes: bool) -> None:
        self._tensor, self._element = tensor, 1 if in_bytes else tensor.element_size()

    def nbytes(self) -> int:
        """Returns the size in bytes."""
        return check(_core.bind_TensorStorageBytes(self._tensor._h))

    def size(self) -> int:
        """Returns the number of elements, or of bytes."""
        return self.nbytes() // self._element

    __len__ = size

    def data_ptr(self) -> int:
        """Returns the address, on devices whose memory the host can address, else 0."""
        at = self._tensor.data_ptr()
        return at - self._tensor.storage_offset() * self._tensor.element_size() if at else 0

    @property
    def device(self) -> Device:
        """Where the memory is."""
        return self._tensor.device

    @property
    def dtype(self) -> DType:
        """The dtype of the elements."""
        return self._tensor.dtype

    def element_size(self) -> int:
        """Returns the bytes of an element."""
        return self._element

    def is_shared(self) -> bool:
        """Whether other processes can use the memory: see `Tensor.is_shared`."""
        return self._tensor.is_shared()

    def share_memory_(self) -> Storage:
        """Moves the memory to where other processes can use it, and returns the storage: see `Tensor.share_memory_`."""
        self._tensor.share_memory_()
        return self

    def tolist(self) -> list[Any]:
        """Waits for the elements and returns them."""
        return self._flat(self._tensor.dtype).tolist()

    def __getitem__(self, index: int) -> Any:
        return self._flat(self._tensor.dtype)[index].item()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Storage) and self.data_ptr() == other.data_ptr() and self.nbytes() == other.nbytes()

    def __hash__(self) -> int:
        return hash((self.data_ptr(), self.nbytes()))

    def _flat(self, dtype: DType) -> Tensor:
        if dtype is not self._tensor.dtype:
            raise TypeError(f"storage: its elements are {self._tensor.dtype}, want {dtype}")
        n = self.nbytes() // self._tensor.element_size()
        return _ops.as_strided(self._tensor.detach(), (n,), (1,), -self._tensor.storage_offset())


def deep_copied(t: Tensor, memo: dict[Any, Any]) -> Tensor:
    """Returns a copy of `t` for `copy.deepcopy`: its layout, in a copy of its whole storage.

    `memo` keeps a copy per storage, so that tensors that share memory also do so when they are copied together.
    """
    copies = memo.setdefault("plait.storages", {})
    identity = check(_core.bind_TensorStorageId(t._h))
    if identity == 0:  # a number has no storage
        return _ops.clone(t.detach())
    if identity not in copies:
        # The original stays beside its copy: its identity could otherwise become that of a later storage.
        whole = own(check(_core.bind_TensorStorage(t._h)))
        if check(_core.bind_TensorStorageBytes(t._h)) % t.element_size():  # a view of bytes that has left some out
            raw = whole.view(uint8)
            whole = own(check(_core.bind_TensorStorage(raw._h)))
        copies[identity] = whole, _ops.clone(whole)
    copy = copies[identity][1]
    if copy.dtype is not t.dtype:
        raw = copy.view(uint8)
        copy = raw[: raw.numel() // t.element_size() * t.element_size()].view(t.dtype)
    return _ops.as_strided(copy, t.shape, t.stride(), t.storage_offset()).detach()
