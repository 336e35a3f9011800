"""Files: `save` and `load` objects with tensors, in PyTorch's own format."""

from __future__ import annotations

import contextlib
import io
import mmap
import os
import pickle
import struct
import sys
import zipfile
from collections.abc import Iterator
from typing import IO, Any, TypeAlias

import numpy as np

from plait import _core
from plait._engine.runtime import check, wait_value
from plait._errors import CheckpointError, checkpoint_error, checkpoint_errors
from plait._serialization.allowed_classes import (
    add_safe_globals,
    clear_safe_globals,
    get_safe_globals,
    safe_globals,
)
from plait._serialization.archives import MAGIC, Archive, CallerError, MapLocation, Row, name_of
from plait._serialization.files import replaced
from plait._serialization.pickling import Pickler
from plait._serialization.unpickling import refused_names
from plait._tensor import Tensor

MAP_LOCATION: TypeAlias = MapLocation  # PyTorch's name
FileLike: TypeAlias = str | os.PathLike[str] | IO[bytes]

DEFAULT_PROTOCOL = 2  # of pickle, which `save` writes; libraries have it as their own default
_ALIGNMENT = 64  # of the tensors' bytes in a file


def save(
    obj: Any,
    f: FileLike,
    pickle_module: Any = pickle,
    pickle_protocol: int = DEFAULT_PROTOCOL,
    _use_new_zipfile_serialization: bool = True,
) -> None:
    """Writes an object with tensors to a file that `load` and `torch.load` read.

    Tensors that share memory share it in the file, and when they are loaded. A path is written beside the file and then
    renamed to it: after an error, or a crash, it holds what it held before. For a path that ends in `.safetensors`,
    `obj` is a dict of tensors by name, and `plait.safetensors.save_file` writes it.

    Args:
        obj: dicts, lists, tuples, numbers, strings, tensors; other objects are pickled, and need `weights_only=False`
        f: a path, or a file open for writing bytes
        pickle_module: only Python's own
        pickle_protocol: has no effect, PyTorch's is 2

    Raises:
        CheckpointError: for what cannot be written; it names the file and the tensor. It is an OSError, such as
            FileNotFoundError, if the file system refuses.
    """
    if pickle_module is not pickle:
        raise NotImplementedError(f"save: pickle_module must be Python's pickle, got {pickle_module!r:.60}")
    if isinstance(f, str | os.PathLike) and os.fspath(f).endswith(".safetensors"):
        from plait.safetensors import save_file

        save_file(obj, f)
        return
    if not isinstance(f, str | os.PathLike) and not hasattr(f, "write"):
        raise TypeError(f"save: want a path or a file open for writing, got {type(f).__name__}")
    with checkpoint_errors("save", _path_of(f)):
        _save(obj, f)


def _save(obj: Any, f: FileLike) -> None:
    text = io.BytesIO()
    pickler = Pickler(text)
    pickler.dump(obj)
    name = os.path.basename(_path_of(f)) if isinstance(f, str | os.PathLike) else "archive"
    folder = name.rpartition(".")[0] or name
    with _opened(f) as file:
        out = zipfile.ZipFile(file, "w", zipfile.ZIP_STORED)
        try:
            _write(out, f"{folder}/data.pkl", text.getvalue())
            _write(out, f"{folder}/byteorder", sys.byteorder.encode())
            for s in pickler.storages.values():
                try:
                    _write(out, f"{folder}/data/{s.key}", raw_bytes(s.elements))
                except Exception as error:
                    raise checkpoint_error("tensor", repr(name_of(text.getvalue(), s.key)), error) from error
            _write(out, f"{folder}/version", b"3\n")
        except BaseException:
            out.fp = None  # it would write an end, and fail again
            raise
        out.close()


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
    if isinstance(f, str | os.PathLike):
        with replaced(os.fsdecode(f)) as file:
            yield file
    else:
        yield f


def _path_of(f: FileLike) -> str:
    return os.fsdecode(f) if isinstance(f, str | os.PathLike) else str(getattr(f, "name", "file"))


def load(
    f: FileLike,
    map_location: MapLocation = None,
    pickle_module: Any = None,
    *,
    weights_only: bool | None = None,
    mmap: bool | None = None,
    **pickle_load_args: Any,
) -> Any:
    """Returns the object of a file that `save` or `torch.save` wrote, or the tensors of a safetensors file.

    Args:
        f: a path, or a file open for reading bytes
        map_location: where tensors go: a device, a dict from the file's devices to others, or a function of a tensor of
            all elements on the CPU and the file's device that returns the tensor to use, or None; by default they go
            where they were
        pickle_module: only Python's own
        weights_only: take tensors, numbers, strings and containers alone, and what `add_safe_globals` allows. With
            False the file can run any code: load what you trust. None is True
        mmap: has no effect
        pickle_load_args: encoding, errors and fix_imports, which mean nothing for strings of Python 3

    Raises:
        CheckpointError: a pickle.UnpicklingError, for a file that is damaged, of another format, or names what is not
            allowed; it names the file and the tensor. It is an OSError, such as FileNotFoundError, if the file cannot
            be read.
    """
    if pickle_module not in (None, pickle):
        raise NotImplementedError(f"load: pickle_module must be Python's pickle, got {pickle_module!r:.60}")
    if odd := sorted(pickle_load_args.keys() - {"encoding", "errors", "fix_imports"}):
        raise TypeError(f"load: got an unexpected argument {odd[0]!r}")
    if not isinstance(f, str | os.PathLike) and not (hasattr(f, "read") and hasattr(f, "seek")):
        raise TypeError(f"load: want a path or a file open for reading that can seek, got {type(f).__name__}")
    path = _path_of(f)
    try:
        with checkpoint_errors("load", path):
            if not isinstance(f, str | os.PathLike):
                return _load(f, path, map_location, weights_only is not False)
            with open(f, "rb") as file:
                return _load(file, path, map_location, weights_only is not False)
    except CallerError as caller:
        raise caller.error from None


def get_unsafe_globals_in_checkpoint(f: FileLike) -> list[str]:
    """Returns the classes and functions that a file names and `load` refuses, as "module.name", in order.

    Args:
        f: a path, or a file open for reading bytes that can seek, of a zip archive as `save` writes

    Raises:
        CheckpointError: if it is no such file.
    """
    with checkpoint_errors("get_unsafe_globals_in_checkpoint", _path_of(f)), contextlib.ExitStack() as stack:
        file = f if not isinstance(f, str | os.PathLike) else stack.enter_context(open(f, "rb"))
        try:
            return refused_names(Archive(file, None).pickle())
        except (zipfile.BadZipFile, EOFError) as error:
            raise CheckpointError(f"it is no checkpoint in a zip archive: {error}") from None


def _load(file: IO[bytes], path: str, where: MapLocation, weights_only: bool) -> Any:
    start = file.tell()
    head = file.read(len(MAGIC))
    file.seek(start)
    if head[8:9] == b"{":
        from plait.safetensors import load as from_bytes
        from plait.safetensors import load_file

        on = None if where is None else where
        if isinstance(on, dict) or callable(on):
            raise TypeError("load: map_location of a safetensors file must be a device")
        return load_file(path, device=on) if os.path.isfile(path) else from_bytes(file.read(), device=on)
    if head == MAGIC:
        contents = _contents(file)
        value = Row(contents, where).load(weights_only)
        file.seek(contents.tell() if isinstance(contents, mmap.mmap) else start + contents.tell())
        return value
    if not head.startswith(b"PK"):
        raise CheckpointError(f"it is neither a checkpoint nor a safetensors file: it begins with {head!r}")
    try:
        return Archive(file, where).load(weights_only)
    except (zipfile.BadZipFile, EOFError, NotImplementedError, UnicodeError, struct.error) as error:
        raise CheckpointError(f"it is damaged: {error}") from None


def _contents(file: IO[bytes]) -> io.BytesIO | mmap.mmap:
    """Returns a file mapped, or what is left of it in memory; it stands where the file does."""
    try:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, AttributeError, ValueError):  # a file without a number
        return io.BytesIO(file.read())
    mapped.seek(file.tell())
    return mapped


__all__ = [
    "CheckpointError", "add_safe_globals", "clear_safe_globals", "get_safe_globals", "get_unsafe_globals_in_checkpoint",
    "load", "safe_globals", "save",
]  # fmt: skip
