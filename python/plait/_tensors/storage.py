"""What lies behind a tensor: its storage, as far as scripts ask for it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

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

    @staticmethod
    def from_file(filename: str | os.PathLike[str], shared: bool = False, nbytes: int = 0) -> Storage:
        """Returns a storage of bytes whose memory is that of a file; no byte is read before it is used.

        Args:
            filename: of the file
            shared: whether writes reach the file, which is made, or made longer, where it needs to be
            nbytes: of the storage

        Raises:
            OSError: if the file cannot be read, or with `shared` written.
            ValueError: if it has fewer bytes and is not shared, or for a negative number of them.
        """
        from plait._tensors.arrays import from_numpy, tensor

        if nbytes < 0:
            raise ValueError(f"from_file: want a number of bytes, got {nbytes}")
        if shared:
            with open(filename, "ab") as file:  # makes it
                file.truncate(max(nbytes, file.tell()))
        if (found := os.stat(filename).st_size) < nbytes:
            raise ValueError(f"from_file: {os.fspath(filename)} has {found} bytes, want {nbytes}")
        if nbytes == 0:
            return Storage(tensor([], dtype=uint8), True)
        return Storage(from_numpy(np.memmap(filename, np.uint8, "r+" if shared else "c", shape=(nbytes,))), True)

    @staticmethod
    def _new_shared(size: int, *, device: Any = "cpu") -> Storage:
        """Returns a storage of bytes with undefined values; what sends it to another process shares its memory then."""
        return Storage(_ops.empty(size, dtype=uint8, device=device), True)

    def untyped(self) -> Storage:
        """Returns the storage in bytes."""
        return Storage(self._tensor, True)

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
        """Waits for the elements, or the bytes, and returns them."""
        return self.elements().tolist()

    def __getitem__(self, index: int | slice) -> Any:
        """Returns an element or a byte, or of a part of them a storage with the same memory."""
        if not isinstance(index, slice):
            return self.elements()[index].item()
        from plait._tensors.arrays import from_numpy

        start, stop, step = index.indices(self.size())
        if step != 1:
            raise ValueError(f"storage: want slices of step 1, got {step}")
        part = self.elements()[start : max(start, stop)]
        return Storage(from_numpy(part.numpy()), self._element == 1)  # one that begins there

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Storage) and self.data_ptr() == other.data_ptr() and self.nbytes() == other.nbytes()

    def __hash__(self) -> int:
        return hash((self.data_ptr(), self.nbytes()))

    def elements(self, dtype: DType | None = None) -> Tensor:
        """Returns the whole memory as a tensor of its elements, or of the numbers of a dtype that bytes are.

        Raises:
            TypeError: if the elements have another dtype.
        """
        own_dtype, size = self._tensor.dtype, self._tensor.element_size()
        in_bytes = self._element == 1
        if not in_bytes and dtype not in (None, own_dtype):
            raise TypeError(f"storage: its elements are {own_dtype}, want {dtype}")
        n = self.nbytes() // size
        whole = _ops.as_strided(self._tensor.detach(), (n,), (1,), -self._tensor.storage_offset())
        if not in_bytes or dtype is own_dtype:
            return whole
        return whole.view(uint8 if dtype is None else dtype)


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
