"""Objects on their way between processes: tensors and arrays in shared memory, the rest pickled.

A segment of shared memory is a file without a name, which the kernel frees when nobody has it open: no end of a
process leaves one behind. Its sender fills it again once the receiver has said that it has copied what is in it.
"""

from __future__ import annotations

import io
import pickle
from collections import deque
from multiprocessing.reduction import ForkingPickler
from typing import TYPE_CHECKING, Any

import numpy as np

from plait._dtype import bfloat16, int16
from plait._tensors.arrays import share_numpy, tensor
from plait._tensors.elements import Elements
from plait._tensors.shared import file_of, new_memory

if TYPE_CHECKING:
    from plait._tensor import Tensor

SMALL = 1024  # bytes, below which an array is pickled
_ALIGN = 64


class _Copier(ForkingPickler):
    """Pickles tensors as copies."""

    def reducer_override(self, obj: Any) -> Any:
        """Returns how to make a tensor's elements again; leaves other objects to themselves."""
        return obj.__reduce_ex__(pickle.HIGHEST_PROTOCOL) if type(obj) is Elements else NotImplemented


def copied(what: Any) -> bytes:
    """Returns a pickle of an object with copies of its tensors."""
    return bytes(_Copier.dumps(what))


class Packer(ForkingPickler):
    """Pickles an object. The bytes of its tensors and arrays are in `arrays`, and are not copied.

    Args:
        share: whether tensors in shared memory are over the same memory on the other side
    """

    def __init__(self, share: bool = False) -> None:
        self._file, self._share = io.BytesIO(), share
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
        """Returns how to make a tensor's elements or an array again; for other objects, leaves it to them."""
        if type(obj) is Elements:
            t = obj.tensor
            if not t.is_leaf:
                raise RuntimeError(
                    "DataLoader: a tensor with a graph cannot go to another process; detach() it, or work under no_grad"
                )
            if self._share and t.device.type == "cpu" and t.is_shared():
                return NotImplemented
            if t.is_meta or t.numel() * t.dtype.itemsize < SMALL:
                return obj.__reduce_ex__(pickle.HIGHEST_PROTOCOL)
            return self._reduced_tensor(t)
        if type(obj) is np.ndarray and obj.nbytes >= SMALL and not obj.dtype.hasobject:
            turned = obj.flags.f_contiguous and not obj.flags.c_contiguous
            a = obj.T if turned else np.ascontiguousarray(obj)
            return _array, (self._out(a), a.dtype, a.shape, turned)
        return NotImplemented

    def _reduced_tensor(self, t: Tensor) -> Any:
        plain = t.detach().cpu().contiguous()
        a = share_numpy(plain.view(int16) if t.dtype is bfloat16 else plain)
        return _tensor, (self._out(a), a.dtype, a.shape, t.dtype is bfloat16)


def _array(buffer: Any, dtype: np.dtype, shape: tuple[int, ...], turned: bool) -> np.ndarray:
    a = np.frombuffer(buffer, dtype).reshape(shape).copy()
    return a.T if turned else a


def _tensor(buffer: Any, dtype: np.dtype, shape: tuple[int, ...], halves: bool) -> Tensor:
    out = tensor(np.frombuffer(buffer, dtype).reshape(shape), device="cpu")
    return out.view(bfloat16) if halves else out


class Segments:
    """The sender's segments of shared memory. `freed` takes the numbers of those that the receiver has copied."""

    def __init__(self) -> None:
        self.freed: deque[int] = deque()
        self._free: list[int] = []
        self._memory: dict[int, np.ndarray] = {}
        self._made = 0

    def fill(
        self, arrays: list[np.ndarray]
    ) -> tuple[int, tuple[int, int, int, int] | None, list[tuple[int, int]], list[int]]:
        """Copies arrays into a segment.

        Returns:
            its number, if it is new its file, as `file_of` returns it, where each array is, and the segments that are
            gone
        """
        places, end = [], 0
        for a in arrays:
            places.append((end, end + a.nbytes))
            end += -(-a.nbytes // _ALIGN) * _ALIGN
        while self.freed:
            self._free.append(self.freed.popleft())
        fits = [n for n in self._free if len(self._memory[n]) >= end]
        number, file, gone = min(fits, key=lambda n: len(self._memory[n]), default=0), None, []
        if fits:
            self._free.remove(number)
        else:
            gone, self._free = self._free, []  # too small
            for n in gone:
                del self._memory[n]
            made = new_memory(end + end // 8)  # a next batch may be a little larger
            file = file_of(made)
            self._made += 1
            number = self._made
            self._memory[number] = share_numpy(made)
        for a, (start, stop) in zip(arrays, places, strict=True):
            self._memory[number][start:stop] = a
        return number, file, places, gone


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
            data = copied(attempt)
            made = pickle.loads(data)
            if type(made[0](*made[1]) if isinstance(made, tuple) else made) is type(error):
                return data
        except Exception:
            continue
    text = f"{type(error).__module__}.{type(error).__qualname__}: {error}"
    other = RuntimeError(text)
    other.__dict__.update(__notes__=list(getattr(error, "__notes__", ())))
    return copied(other)


def unpack_error(data: bytes) -> BaseException:
    """Returns the exception of `pack_error`."""
    made = pickle.loads(data)
    return made[0](*made[1]) if isinstance(made, tuple) else made
