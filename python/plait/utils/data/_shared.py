"""Objects on their way between processes: tensors and arrays in shared memory, the rest pickled.

A segment of shared memory is a file without a name, which the kernel frees when nobody has it open: no end of a
process leaves one behind. Its sender fills it again once the receiver has said that it has copied what is in it.
"""

from __future__ import annotations

import io
import mmap
import os
import pickle
import tempfile
from collections import deque
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np

from plait._dtype import bfloat16, int16
from plait._tensor import Tensor
from plait._tensors.arrays import share_numpy, tensor

SMALL = 1024  # bytes, below which an array is pickled
_ALIGN = 64


class Packer(ForkingPickler):
    """Pickles an object. The bytes of its tensors and arrays are in `arrays`, and are not copied."""

    def __init__(self) -> None:
        self._file = io.BytesIO()
        self.arrays: list[np.ndarray] = []
        super().__init__(self._file, pickle.HIGHEST_PROTOCOL, True, self._in_band)

    def pack(self, what: Any) -> bytes:
        """Returns what `pickle.loads` takes, with the arrays' memory as its buffers."""
        self.dump(what)
        return self._file.getvalue()

    def _in_band(self, buffer: pickle.PickleBuffer) -> bool:
        return not self.arrays or np.asarray(buffer).ctypes.data != self.arrays[-1].ctypes.data

    def _out(self, a: np.ndarray) -> pickle.PickleBuffer:
        self.arrays.append(a.reshape(-1).view(np.uint8))
        return pickle.PickleBuffer(self.arrays[-1].data)

    def reducer_override(self, obj: Any) -> Any:
        """Returns how to make a tensor or an array again; for other objects, leaves it to them."""
        if type(obj) is Tensor and not (obj.is_sparse or obj.is_sparse_csr or obj.is_meta):
            if not obj.is_leaf:
                raise RuntimeError(
                    "DataLoader: a tensor with a graph cannot go to another process; detach() it, or work under no_grad"
                )
            if obj.numel() * obj.dtype.itemsize >= SMALL:
                return self._reduced_tensor(obj)
        elif type(obj) is np.ndarray and obj.nbytes >= SMALL and not obj.dtype.hasobject:
            turned = obj.flags.f_contiguous and not obj.flags.c_contiguous
            a = obj.T if turned else np.ascontiguousarray(obj)
            return _array, (self._out(a), a.dtype, a.shape, turned)
        return NotImplemented

    def _reduced_tensor(self, t: Tensor) -> Any:
        plain = t.detach().cpu().contiguous()
        a = share_numpy(plain.view(int16) if t.dtype is bfloat16 else plain)
        device = str(t.device) if t.device.type != "cpu" else "cpu"
        return _tensor, (self._out(a), a.dtype, a.shape, t.dtype is bfloat16, device, t.requires_grad, dict(t.__dict__))


def _array(buffer: Any, dtype: np.dtype, shape: tuple[int, ...], turned: bool) -> np.ndarray:
    a = np.frombuffer(buffer, dtype).reshape(shape).copy()
    return a.T if turned else a


def _tensor(
    buffer: Any,
    dtype: np.dtype,
    shape: tuple[int, ...],
    halves: bool,
    device: str,
    requires_grad: bool,
    state: dict[str, Any],
) -> Tensor:
    out = tensor(np.frombuffer(buffer, dtype).reshape(shape), device="cpu")
    if halves:
        out = out.view(bfloat16)
    if device != "cpu":
        out = out.to(device)
    if requires_grad:
        out.requires_grad = True
    out.__dict__.update(state)
    return out


def _make_file(size: int) -> int:
    """Returns the descriptor of a file without a name, in memory where the system has that."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("plait")
    else:
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    try:
        os.ftruncate(fd, size)
    except BaseException:
        os.close(fd)
        raise
    return fd


class Segments:
    """The sender's segments of shared memory. `freed` takes the numbers of those that the receiver has copied."""

    def __init__(self) -> None:
        self.freed: deque[int] = deque()
        self._free: list[int] = []
        self._memory: dict[int, mmap.mmap] = {}
        self._made = 0

    def fill(self, arrays: list[np.ndarray]) -> tuple[int, int | None, list[tuple[int, int]], list[int]]:
        """Copies arrays into a segment.

        Returns:
            its number, its file's descriptor if it is new, where each array is, and the segments that are gone
        """
        places, end = [], 0
        for a in arrays:
            places.append((end, end + a.nbytes))
            end += -(-a.nbytes // _ALIGN) * _ALIGN
        while self.freed:
            self._free.append(self.freed.popleft())
        fits = [n for n in self._free if len(self._memory[n]) >= end]
        number, fd, gone = min(fits, key=lambda n: len(self._memory[n]), default=0), None, []
        if fits:
            self._free.remove(number)
        else:
            gone, self._free = self._free, []  # too small
            for n in gone:
                del self._memory[n]
            size = -(-end // mmap.PAGESIZE) * mmap.PAGESIZE
            size += size // 8 // mmap.PAGESIZE * mmap.PAGESIZE  # a next batch may be a little larger
            fd = _make_file(size)
            self._made += 1
            number = self._made
            self._memory[number] = mmap.mmap(fd, size)
        whole = np.frombuffer(self._memory[number], np.uint8)
        for a, (start, stop) in zip(arrays, places, strict=True):
            whole[start:stop] = a
        return number, fd, places, gone


def rebuilt_error(cls: type[BaseException], args: tuple[Any, ...], state: dict[str, Any]) -> BaseException:
    """Returns an exception of a class, without its `__init__`, which may want other arguments."""
    error = cls.__new__(cls, *args)
    error.__dict__.update(state)
    return error


def pack_error(error: BaseException) -> bytes:
    """Pickles an exception so that it can be unpickled; one that cannot be, as a RuntimeError with its text."""
    plain = (rebuilt_error, (type(error), error.args, error.__dict__))
    for attempt in (error, plain):
        try:
            data = ForkingPickler.dumps(attempt)
            made = pickle.loads(data)
            if type(made[0](*made[1]) if isinstance(made, tuple) else made) is type(error):
                return bytes(data)
        except Exception:
            continue
    text = f"{type(error).__module__}.{type(error).__qualname__}: {error}"
    other = RuntimeError(text)
    other.__dict__.update(__notes__=list(getattr(error, "__notes__", ())))
    return bytes(ForkingPickler.dumps(other))


def unpack_error(data: bytes) -> BaseException:
    """Returns the exception of `pack_error`."""
    made = pickle.loads(data)
    return made[0](*made[1]) if isinstance(made, tuple) else made
