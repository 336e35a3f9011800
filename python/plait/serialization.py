"""Files: `save` and `load` objects with tensors, in PyTorch's own format."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import secrets
import stat
import sys
import zipfile
from array import array
from collections.abc import Callable, Iterator
from typing import IO, Any, TypeAlias

import numpy as np

from plait import _core
from plait import _dtype as dt
from plait._device import DeviceLike, device, open_device
from plait._pickling import CheckpointError, Loaded, Pickler, TensorError, _shown
from plait._runtime import address, call, check, own, wait_value
from plait._tensor import Tensor
from plait._unpickling import DataUnpickler, load_objects

FileLike: TypeAlias = str | os.PathLike[str] | IO[bytes]
MapLocation: TypeAlias = DeviceLike | dict[str, str] | Callable[[Tensor, str], Tensor | None] | None

_ALIGNMENT = 64  # of the tensors' bytes in a file
_OLD = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19"  # how files of PyTorch before 1.6 begin


def save(obj: Any, f: FileLike, pickle_protocol: int = 2, _use_new_zipfile_serialization: bool = True) -> None:
    """Writes an object with tensors to a file that `load` and `torch.load` read.

    Tensors that share memory share it in the file, and when they are loaded. A path is written beside the file and then
    renamed to it: after an error, or a crash, it holds what it held before. For a path that ends in `.safetensors`,
    `obj` is a dict of tensors by name, and `plait.safetensors.save_file` writes it.

    Args:
        obj: dicts, lists, tuples, numbers, strings, tensors; other objects are pickled, and need `weights_only=False`
        f: a path, or a file open for writing bytes
        pickle_protocol: has no effect, PyTorch's is 2
    """
    if isinstance(f, str | os.PathLike) and os.fspath(f).endswith(".safetensors"):
        from plait.safetensors import save_file

        save_file(obj, f)
        return
    text = io.BytesIO()
    pickler = Pickler(text)
    pickler.dump(obj)
    with _opened(f) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as out:
        name = os.path.basename(os.fspath(f)) if isinstance(f, str | os.PathLike) else "archive"
        folder = name.rpartition(".")[0] or name
        _write(out, f"{folder}/data.pkl", text.getvalue())
        _write(out, f"{folder}/byteorder", sys.byteorder.encode())
        for s in pickler.storages.values():
            _write(out, f"{folder}/data/{s.key}", raw_bytes(s.elements))
        _write(out, f"{folder}/version", b"3\n")


def _write(out: zipfile.ZipFile, name: str, data: Any) -> None:
    info = zipfile.ZipInfo(name)
    # Padding in the header puts the bytes at a multiple of the alignment, from where they can be mapped.
    if out.fp is not None and (at := _position(out)) is not None:
        header = 30 + len(name.encode())
        zip64 = 20 if len(data) >= 1 << 31 else 0
        padding = -(at + header + zip64 + 4) % _ALIGNMENT
        info.extra = b"FB" + padding.to_bytes(2, "little") + b"\0" * padding
    with out.open(info, "w", force_zip64=len(data) >= 1 << 31) as record:
        record.write(data)


def _position(out: zipfile.ZipFile) -> int | None:
    try:
        return out.fp.tell()  # type: ignore[union-attr]
    except (OSError, AttributeError):
        return None


def raw_bytes(t: Tensor) -> np.ndarray:
    """Waits for the elements of a contiguous tensor and returns them as bytes."""
    out = np.empty(t.nbytes, np.uint8)
    wait_value(t._h)
    check(_core.bind_TensorRead(t._h, out.ctypes.data, out.nbytes))
    return out


@contextlib.contextmanager
def _opened(f: FileLike) -> Iterator[IO[bytes]]:
    """Yields a file to write to; one for a path replaces what is there when everything is written."""
    if not isinstance(f, str | os.PathLike):
        if not hasattr(f, "write"):
            raise TypeError(f"save: want a path or a file open for writing, got {type(f).__name__}")
        yield f
        return
    target = os.path.realpath(f)
    if not os.path.isdir(folder := os.path.dirname(target)):
        raise FileNotFoundError(errno.ENOENT, "save: the folder does not exist", folder)
    beside = f"{target}.{secrets.token_hex(4)}.tmp"
    try:
        with open(beside, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if os.path.exists(target):
            if not os.path.isfile(target):
                raise OSError(f"save: {target} is not a regular file")
            os.chmod(beside, stat.S_IMODE(os.stat(target).st_mode))
        os.replace(beside, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        raise
    with contextlib.suppress(OSError):  # not every system syncs folders
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def load(
    f: FileLike,
    map_location: MapLocation = None,
    pickle_module: Any = None,
    *,
    weights_only: bool = True,
    mmap: bool | None = None,
    **_: Any,
) -> Any:
    """Returns the object of a file that `save` or `torch.save` wrote, or the tensors of a safetensors file.

    Args:
        f: a path, or a file open for reading bytes
        map_location: where tensors go: a device, a dict from the file's devices to others, or a function of a tensor of
            all elements on the CPU and the file's device that returns the tensor to use, or None; by default they go
            where they were
        pickle_module: not there
        weights_only: take tensors, numbers, strings and containers alone. With False the file can run any code: load
            what you trust
        mmap: has no effect

    Raises:
        CheckpointError: a pickle.UnpicklingError, for a file that is damaged, of another format, or names what is not
            allowed.
    """
    if pickle_module is not None:
        raise NotImplementedError("load: pickle_module is not there")
    if isinstance(f, str | os.PathLike):
        with open(f, "rb") as file:
            return _load(file, os.fspath(f), map_location, weights_only)
    if not hasattr(f, "read") or not hasattr(f, "seek"):
        raise TypeError(f"load: want a path or a file open for reading that can seek, got {type(f).__name__}")
    return _load(f, str(getattr(f, "name", "file")), map_location, weights_only)


def _load(file: IO[bytes], path: str, where: MapLocation, weights_only: bool) -> Any:
    start = file.tell()
    head = file.read(16)
    file.seek(start)
    if head[8:9] == b"{":
        from plait.safetensors import load as from_bytes
        from plait.safetensors import load_file

        on = None if where is None else where
        if isinstance(on, dict) or callable(on):
            raise TypeError("load: map_location of a safetensors file must be a device")
        return load_file(path, device=on) if os.path.isfile(path) else from_bytes(file.read(), device=on)
    try:
        if head.startswith(_OLD):
            raise CheckpointError("it has the format of PyTorch before 1.6; load it with PyTorch and save it again")
        if not head.startswith(b"PK"):
            raise CheckpointError(f"it is neither a checkpoint nor a safetensors file: it begins with {head[:8]!r}")
        with zipfile.ZipFile(file) as archive:
            return _Archive(archive, where).load(weights_only)
    except CheckpointError as error:
        raise CheckpointError(f"load: {path}: {error}") from None
    except (zipfile.BadZipFile, EOFError, NotImplementedError) as error:
        raise CheckpointError(f"load: {path}: it is damaged: {error}") from None


class _Archive:
    """A checkpoint that is open."""

    def __init__(self, archive: zipfile.ZipFile, where: MapLocation) -> None:
        self._archive, self._where = archive, where
        names = archive.namelist()
        pickles = [n for n in names if n == "data.pkl" or (n.endswith("/data.pkl") and n.count("/") == 1)]
        if len(pickles) != 1 or len(set(names)) != len(names):
            raise CheckpointError(
                "it is a zip file, but not a checkpoint: it must hold one data.pkl, and no name twice"
            )
        self._folder = pickles[0].removesuffix("data.pkl")
        if f"{self._folder}constants.pkl" in names:
            raise CheckpointError("it is a TorchScript program; save its state_dict() with PyTorch instead")
        self._storages: dict[str, Loaded] = {}

    def load(self, weights_only: bool) -> Any:
        """Returns the object."""
        if f"{self._folder}byteorder" in self._archive.namelist():
            order = self._read("byteorder").decode("ascii", "replace")
            if order != sys.byteorder:
                raise CheckpointError(f"its bytes are in {_shown(order)} order, this machine's are in {sys.byteorder}")
        data = self._read("data.pkl")
        if not weights_only:
            return load_objects(data, self._storage)
        try:
            return DataUnpickler(self._storage).load(data)
        except TensorError as error:
            name = _name_of(data, error.key)
            raise CheckpointError(
                f"{'tensor ' + repr(name) if name else 'a tensor'} (data/{error.key}): {error}"
            ) from None

    def _read(self, name: str) -> bytes:
        try:
            info = self._archive.getinfo(self._folder + name)
        except KeyError:
            raise CheckpointError(f"it has no record {name}") from None
        if info.compress_type != zipfile.ZIP_STORED or info.compress_size != info.file_size:
            raise CheckpointError(f"record {name} is compressed, which records of checkpoints are not")
        try:
            return self._archive.read(info)
        except (zipfile.BadZipFile, EOFError, OSError, NotImplementedError, RuntimeError) as error:
            raise CheckpointError(f"record {name} is damaged: {error}") from None

    def _storage(self, pid: Any) -> Loaded:
        if not isinstance(pid, tuple) or len(pid) != 5 or pid[0] != "storage":
            raise CheckpointError(f"it refers to {_shown(pid)}, want a storage")
        _, dtype, key, location, count = pid
        if (
            not isinstance(dtype, dt.dtype)
            or not isinstance(key, str)
            or not isinstance(location, str)
            or type(count) is not int
        ):
            raise CheckpointError(f"it refers to {_shown(pid)}, want a storage")
        if key in self._storages:
            if self._storages[key].elements.dtype is not dtype:
                raise TensorError(key, f"its memory is used as {self._storages[key].elements.dtype} and as {dtype}")
            return self._storages[key]
        try:
            data = self._read(f"data/{key}")
        except CheckpointError as error:
            raise TensorError(key, str(error)) from None
        if len(data) != count * dtype.itemsize:
            raise TensorError(
                key, f"it has {len(data)} bytes, want {count * dtype.itemsize} for {count} elements of {dtype}"
            )
        if dtype is dt.bool_ and data.translate(None, b"\0\1"):
            raise TensorError(key, "it has a byte other than 0 and 1 for a bool")
        s = self._storages[key] = Loaded(key, self._place(data, dtype, count, location, key))
        return s

    def _place(self, data: bytes, dtype: dt.dtype, count: int, location: str, key: str) -> Tensor:
        where = self._where
        if isinstance(where, dict):
            where = where.get(location, location)
        elif callable(where) and not isinstance(where, device):
            made = where(_elements(data, dtype, count, open_device("cpu")), location)
            if made is not None:
                return made
            where = None
        target = device(location if where is None else where)
        try:
            number = open_device(target)
        except RuntimeError as error:
            raise TensorError(key, f"it was saved on {location}: {error}; use map_location='cpu'") from None
        return _elements(data, dtype, count, number)


def _elements(data: bytes, dtype: dt.dtype, count: int, on: int) -> Tensor:
    view = np.frombuffer(data, np.uint8)
    shape = array("q", (count,))
    return own(call(_core.bind_TensorFromMemory, view.ctypes.data, len(data), dtype._number, address(shape), 1, on))


def _name_of(data: bytes, key: str) -> str:
    """Returns where in the object the first tensor with a storage lies: its key, or keys joined by dots."""

    def storage(pid: Any) -> Loaded:
        return Loaded(pid[2], Tensor(0))

    class Finder(DataUnpickler):
        def _step(self, name: str, arg: Any) -> None:
            if name == "REDUCE" and str(self._stack[-2]).startswith("torch._utils._rebuild"):
                args = self._stack.pop()
                self._stack[-1] = args[0]  # the storage, or for a parameter what its tensor became
            else:
                super()._step(name, arg)

    def find(value: Any, at: list[str]) -> str:
        if isinstance(value, Loaded):
            return ".".join(at) if value.key == key else ""
        if len(at) > 100:
            return ""
        pairs = (
            value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list | tuple) else ()
        )
        return next((found for k, v in pairs if (found := find(v, [*at, str(k)]))), "")

    try:
        return find(Finder(storage).load(data), [])
    except CheckpointError:
        return ""


__all__ = ["CheckpointError", "load", "save"]
