"""The two formats of PyTorch's files: zip archives, and before 1.6 a row of pickles with the storages behind it."""

from __future__ import annotations

import io
import mmap
import pickletools
import sys
import zipfile
from array import array
from collections.abc import Callable
from typing import IO, Any, TypeAlias

import numpy as np

from plait import _core
from plait import _dtype as dt
from plait._device import DeviceLike, device, open_device, wordless
from plait._engine.runtime import address, call, own
from plait._errors import CheckpointError, damage
from plait._modes import no_grad
from plait._serialization.pickling import Loaded, TensorError, shown
from plait._serialization.unpickling import DataUnpickler, load_objects
from plait._tensor import Tensor

MapLocation: TypeAlias = DeviceLike | dict[str, str] | Callable[[Tensor, str], Tensor | None] | None

MAGIC = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."  # how files of PyTorch before 1.6 begin
_VERSION = 1001  # of that format


class CallerError(BaseException):
    """What a function of the caller's raised: it is not the file's fault."""

    def __init__(self, error: Exception) -> None:
        self.error = error


class _Source:
    """A file that is open."""

    def __init__(self, where: MapLocation) -> None:
        self._where = where
        self._storages: dict[str, Loaded] = {}

    def _unpickled(self, data: bytes, weights_only: bool) -> Any:
        self._pickle = data
        if not weights_only:
            return load_objects(data, self._storage)
        return DataUnpickler(self._storage).load(data)

    def load(self, weights_only: bool) -> Any:
        """Returns the object; an error about a storage names the tensor that has it."""
        try:
            return self._load(weights_only)
        except TensorError as error:
            name = name_of(self._pickle, error.key)
            raise CheckpointError(
                f"{'tensor ' + repr(name) if name else 'a tensor'} (data/{error.key}): {error}"
            ) from None

    def _load(self, weights_only: bool) -> Any:
        raise NotImplementedError

    def _new(self, key: str, dtype: dt.dtype, count: int, location: str) -> Tensor:
        """Returns the elements of a storage."""
        raise NotImplementedError

    def _storage(self, pid: Any) -> Loaded:
        if not isinstance(pid, tuple) or len(pid) not in (5, 6) or pid[0] != "storage":
            raise CheckpointError(f"it refers to {shown(pid)}, want a storage")
        _, dtype, key, location, count = pid[:5]
        if (
            not isinstance(dtype, dt.dtype)
            or not isinstance(key, str)
            or not isinstance(location, str)
            or type(count) is not int
            or count < 0
        ):
            raise CheckpointError(f"it refers to {shown(pid)}, want a storage")
        s = self._storages.get(key)
        if s is None:
            s = self._storages[key] = Loaded(key, self._new(key, dtype, count, location))
        elif s.elements.dtype is not dtype:
            raise TensorError(key, f"its memory is used as {s.elements.dtype} and as {dtype}")
        return s if len(pid) == 5 or pid[5] is None else _part(s, pid[5])

    @staticmethod
    def _checked(data: bytes | memoryview, dtype: dt.dtype, count: int, key: str) -> bytes | memoryview:
        if len(data) != count * dtype.itemsize:
            raise TensorError(
                key, f"it has {len(data)} bytes, want {count * dtype.itemsize} for {count} elements of {dtype}"
            )
        if dtype is dt.bool_ and bytes(data).translate(None, b"\0\1"):
            raise TensorError(key, "it has a byte other than 0 and 1 for a bool")
        return data

    def _place(self, data: bytes | memoryview, dtype: dt.dtype, count: int, location: str, key: str) -> Tensor:
        where = self._where
        if isinstance(where, dict):
            where = where.get(location, where.get(location.replace("cuda", "gpu", 1)))
        elif callable(where) and not isinstance(where, device):
            try:
                made = where(_elements(data, dtype, count, open_device("cpu")), location)
            except Exception as error:
                raise CallerError(error) from None
            if made is not None:
                return made
            where = None
        try:
            number = open_device(wordless(location) if where is None else device(where))
        except (RuntimeError, ValueError, TypeError) as error:
            if where is not None:
                raise CallerError(error) from None
            raise TensorError(key, f"it was saved on {location}: {error}; use map_location='cpu'") from None
        return _elements(data, dtype, count, number)


def _part(s: Loaded, view: Any) -> Loaded:
    """Returns a part of a storage, which very old files have."""
    if not isinstance(view, tuple) or len(view) != 3 or any(type(v) is not int or v < 0 for v in view[1:]):
        raise TensorError(s.key, f"it refers to {shown(view)}, want a part of a storage")
    _, first, count = view
    if first + count > s.count:
        raise TensorError(s.key, f"its elements {first} to {first + count} are used, it has {s.count}")
    return Loaded(s.key, s.elements, first, count)


def _elements(data: bytes | memoryview, dtype: dt.dtype, count: int, on: int) -> Tensor:
    view = np.frombuffer(data, np.uint8)
    shape = array("q", (count,))
    return own(call(_core.bind_TensorFromMemory, view.ctypes.data, len(data), dtype._number, address(shape), 1, on))


class Archive(_Source):
    """A zip archive, which holds a pickle and a record for each storage."""

    def __init__(self, file: IO[bytes], where: MapLocation) -> None:
        super().__init__(where)
        self._archive = archive = zipfile.ZipFile(file)
        self._size = file.seek(0, io.SEEK_END)
        self._made = 0  # bytes of storages
        names = archive.namelist()
        pickles = [n for n in names if n == "data.pkl" or (n.endswith("/data.pkl") and n.count("/") == 1)]
        if len(pickles) != 1 or len(set(names)) != len(names):
            raise CheckpointError(
                "it is a zip file, but not a checkpoint: it must hold one data.pkl, and no name twice"
            )
        self._folder = pickles[0].removesuffix("data.pkl")
        if f"{self._folder}constants.pkl" in names:
            raise CheckpointError("it is a TorchScript program; save its state_dict() with PyTorch instead")

    def _load(self, weights_only: bool) -> Any:
        if f"{self._folder}byteorder" in self._archive.namelist():
            order = self._read("byteorder").decode("ascii", "replace")
            if order != sys.byteorder:
                raise CheckpointError(f"its bytes are in {shown(order)} order, this machine's are in {sys.byteorder}")
        return self._unpickled(self.pickle(), weights_only)

    def pickle(self) -> bytes:
        """Returns the pickle of the object."""
        return self._read("data.pkl")

    def _read(self, name: str) -> bytes:
        try:
            info = self._archive.getinfo(self._folder + name)
        except KeyError:
            raise CheckpointError(f"it has no record {name}") from None
        if info.compress_type != zipfile.ZIP_STORED or info.compress_size != info.file_size:
            raise CheckpointError(f"record {name} is compressed, which records of checkpoints are not")
        if info.header_offset + info.file_size > self._size:
            raise CheckpointError(f"record {name} is damaged: it has {info.file_size} bytes, the file {self._size}")
        with damage(f"record {name}"):
            return self._archive.read(info)

    def _new(self, key: str, dtype: dt.dtype, count: int, location: str) -> Tensor:
        try:
            data = self._read(f"data/{key}")
        except CheckpointError as error:
            raise TensorError(key, str(error)) from None
        self._made += len(data)
        if self._made > self._size:  # records that overlap
            raise TensorError(key, f"its storages are larger than the file, which has {self._size} bytes")
        return self._place(self._checked(data, dtype, count, key), dtype, count, location, key)


class Row(_Source):
    """The format before 1.6: pickles of a number, the version, the machine, the object and storages' keys; bytes.

    Args:
        file: in memory, or mapped: a read beyond its end makes no room for more than there is
        where: as `load` has it
    """

    def __init__(self, file: io.BytesIO | mmap.mmap, where: MapLocation) -> None:
        super().__init__(where)
        self._file = file
        self._data = file.getbuffer() if isinstance(file, io.BytesIO) else memoryview(file)
        self._made = 0  # bytes of storages

    def _load(self, weights_only: bool) -> Any:
        self._file.seek(len(MAGIC), io.SEEK_CUR)
        version, machine = self._value(), self._value()
        if version != _VERSION:
            raise CheckpointError(f"its format has version {shown(version)}, want {_VERSION}")
        if not isinstance(machine, dict) or machine.get("little_endian") is not (sys.byteorder == "little"):
            raise CheckpointError(f"its bytes are not in {sys.byteorder} order, as this machine's are")
        value = self._unpickled(self._next(), weights_only)
        keys = self._value()
        if not isinstance(keys, list) or set(keys) != self._storages.keys() or len(keys) != len(self._storages):
            raise CheckpointError(f"its storages are {shown(keys)}, its tensors have {shown(list(self._storages))}")
        with no_grad():
            for key in keys:
                self._fill(key)
        return value

    def _next(self) -> bytes:
        """Returns the next pickle."""
        start = self._file.tell()
        with damage(f"its pickle at byte {start}"):
            for _ in pickletools.genops(self._file):  # type: ignore[arg-type]
                pass
        return bytes(self._data[start : self._file.tell()])

    def _value(self) -> Any:
        """Returns the value of the next pickle, which has no tensors."""
        return DataUnpickler(_no_storage).load(self._next())

    def _new(self, key: str, dtype: dt.dtype, count: int, location: str) -> Tensor:
        # The bytes come later.
        self._made += count * dtype.itemsize
        if self._made > len(self._data):
            raise TensorError(key, f"its {count} elements of {dtype} are more than the file has")
        return self._place(bytes(count * dtype.itemsize), dtype, count, location, key)

    def _fill(self, key: str) -> None:
        elements = self._storages[key].elements
        count, dtype = elements.numel(), elements.dtype
        stored = int.from_bytes(self._file.read(8), sys.byteorder)
        if stored != count:
            raise TensorError(key, f"it has {stored} elements, want {count} of {dtype}")
        start = self._file.tell()
        data = self._checked(self._data[start : start + count * dtype.itemsize], dtype, count, key)
        self._file.seek(len(data), io.SEEK_CUR)
        elements.copy_(_elements(data, dtype, count, open_device("cpu")))


def _no_storage(pid: Any) -> Loaded:
    raise CheckpointError(f"it refers to {shown(pid)} where there are no tensors")


def name_of(data: bytes, key: str) -> str:
    """Returns where in a pickle's object the first tensor with a storage lies: its key, or keys joined by dots."""

    def storage(pid: Any) -> Loaded:
        return Loaded(pid[2], Tensor(0))

    class Finder(DataUnpickler):
        def _step(self, name: str, arg: Any) -> None:
            if name == "REDUCE" and str(self._stack[-2]).startswith("torch._utils._rebuild"):
                args = self._stack.pop()
                self._stack[-1] = args[0]  # the storage, or for a parameter what its tensor became
            else:
                super()._step(name, arg)

    seen: set[int] = set()

    def find(value: Any, at: list[str]) -> str:
        if isinstance(value, Loaded):
            return ".".join(at) if value.key == key else ""
        if len(at) > 100 or id(value) in seen:
            return ""
        seen.add(id(value))
        pairs = (
            value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list | tuple) else ()
        )
        return next((found for k, v in pairs if (found := find(v, [*at, str(k)]))), "")

    try:
        return find(Finder(storage).load(data), [])
    except CheckpointError:
        return ""
