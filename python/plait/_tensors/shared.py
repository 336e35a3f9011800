"""Tensors between processes: what multiprocessing pickles of them, which is where their memory is.

Sending a tensor moves its memory to where the receiver can map it. The file's descriptor travels; the memory lives as
long as a process has it.
"""

from __future__ import annotations

import os
from array import array
from multiprocessing.context import get_spawning_popen
from multiprocessing.reduction import DupFd, ForkingPickler
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from plait import _core
from plait._device import open_device
from plait._engine.runtime import address, call, check, own
from plait._functions.creation import empty_strided
from plait._functions.shape import as_strided
from plait._tensors.elements import Elements, RequiresGrad

if TYPE_CHECKING:
    from plait._dtype import dtype as DType
    from plait._tensor import Tensor


class SharedMemory:
    """The memory of a storage, which is pickled once, however many tensors of a message lie in it.

    Args:
        holder: a tensor on the storage
        file: the descriptor, the size in bytes, and the two numbers that name the memory in all processes
    """

    __slots__ = ("__weakref__", "_file", "holder")

    def __init__(self, holder: Tensor, file: tuple[int, int, int, int]) -> None:
        self.holder, self._file = holder, file

    def __reduce__(self) -> Any:
        popen: Any = get_spawning_popen()
        if popen is not None:  # the descriptor has to be open until the process has started, later than the pickling
            popen.__dict__.setdefault(KEPT, []).append(self)
        return _received, (DupFd(self._file[0]), *self._file[1:])


KEPT = "plait_memories"  # an attribute of what starts a process

REFUSED = {  # start methods, and why
    "fork": "a forked child has none of the engine's threads",
    "forkserver": "its server imports the main module, and with it the engine, before it forks",
}

_memories: WeakValueDictionary[tuple[int, int], SharedMemory] = WeakValueDictionary()


def memory_of(t: Tensor) -> SharedMemory:
    """Moves a tensor's storage to shared memory, unless it is there, and returns the memory."""
    t.share_memory_()
    file = file_of(t)
    return _memories.setdefault(file[2:], SharedMemory(t.detach(), file))


def file_of(t: Tensor) -> tuple[int, int, int, int]:
    """Returns the descriptor behind shared memory, its size in bytes, and the two numbers that name it."""
    out = array("q", bytes(32))
    check(_core.bind_TensorShared(t._h, address(out)))
    return out[0], out[1], out[2], out[3]


def new_memory(size: int) -> Tensor:
    """Returns a tensor of zero bytes in shared memory."""
    return own(call(_core.bind_TensorNewShared, size, open_device("cpu")))


def opened(fd: int, size: int, first: int, second: int) -> Tensor:
    """Returns a tensor of bytes over shared memory, and closes the descriptor, of which the engine has its own."""
    try:
        return own(call(_core.bind_TensorOfShared, fd, size, first, second, open_device("cpu")))
    finally:
        os.close(fd)


def _received(file: Any, size: int, first: int, second: int) -> Tensor:
    try:
        fd = file.detach()
    except (OSError, EOFError) as error:
        raise RuntimeError(
            f"a tensor's memory cannot be had from the process that sent it ({error or type(error).__name__}): it must "
            "not end before the tensor is received"
        ) from error
    return opened(fd, size, first, second)


def _tensor_on(memory: Tensor, dtype: DType, shape: Any, strides: Any, offset: int) -> Tensor:
    count = memory.numel() // dtype.itemsize
    return as_strided(memory[: count * dtype.itemsize].view(dtype), shape, strides, offset).detach()


def _without_memory(dtype: DType, shape: Any, strides: Any, device: str) -> Tensor:
    return empty_strided(shape, strides, dtype=dtype, device=device)


def _check_leaf(t: Tensor) -> None:
    if t.requires_grad and not t.is_leaf:
        raise RuntimeError(
            f"multiprocessing: a tensor of shape {tuple(t.shape)} requires a gradient and is no leaf, and a graph does "
            "not reach into another process; send t.detach()"
        )


def _flag(flag: RequiresGrad) -> Any:
    _check_leaf(flag.tensor)
    return flag.__reduce_ex__(None)


def _reduced(elements: Elements) -> Any:
    t = elements.tensor
    _check_leaf(t)
    if t.is_meta or (t.device.type == "cpu" and t.untyped_storage().nbytes() == 0):
        return _without_memory, (t.dtype, tuple(t.shape), t.stride(), t.device.type)
    if t.device.type != "cpu":
        raise RuntimeError(
            f"multiprocessing: the memory of a tensor of shape {tuple(t.shape)} on {t.device} belongs to this process; "
            "send t.cpu()"
        )
    return _tensor_on, (memory_of(t), t.dtype, tuple(t.shape), t.stride(), t.storage_offset())


ForkingPickler.register(Elements, _reduced)
ForkingPickler.register(RequiresGrad, _flag)
