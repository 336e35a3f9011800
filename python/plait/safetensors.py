"""Files of named tensors in the safetensors format: mapped when they are read, replaced in one step when written."""

from __future__ import annotations

import json
import os
from array import array
from types import TracebackType
from typing import Any

import numpy as np

from plait import _core
from plait._device import DeviceLike, device_of, open_device
from plait._engine.runtime import address, check, own
from plait._errors import checkpoint_errors
from plait._layout import Size
from plait._tensor import Tensor


def save_file(
    tensors: dict[str, Tensor], filename: str | os.PathLike[str], metadata: dict[str, str] | None = None
) -> None:
    """Writes tensors to a file, which replaces what is at `filename` once it is complete.

    Args:
        tensors: by name; of any layout, each is written whole, also those that share memory
        filename: where to
        metadata: text to go with them

    Raises:
        TypeError: for names that are not text, and values that are not tensors.
        CheckpointError: if the file cannot be written; it names the file and the tensor, and is an OSError too.
    """
    if not isinstance(tensors, dict):
        raise TypeError(f"save_file: want a dict of tensors, got {type(tensors).__name__}")
    for name, t in tensors.items():
        if not isinstance(name, str) or not isinstance(t, Tensor):
            raise TypeError(f"save_file: want tensors by name, got {type(t).__name__} for {name!r}")
    for key, value in (metadata or {}).items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise TypeError(f"save_file: metadata must be text, got {key!r}: {value!r}")
    header = json.dumps({"names": list(tensors), "metadata": metadata or {}}, ensure_ascii=False)
    handles = array("q", [t._h for t in tensors.values()])
    path = os.fsdecode(filename)
    with checkpoint_errors("save_file", path):
        check(_core.bind_FileSave(path, header, address(handles), len(handles)))


def load_file(filename: str | os.PathLike[str], device: DeviceLike | None = None) -> dict[str, Tensor]:
    """Returns the tensors of a file by name. On the CPU they share its map: pages are read when they are touched.

    Args:
        filename: the file; a later change of it in place would show in the tensors, a replacement does not
        device: where the tensors go; the default device
    """
    with safe_open(filename, device=device) as f:
        return {name: f.get_tensor(name) for name in f.keys()}  # noqa: SIM118


def load(data: bytes, device: DeviceLike | None = None) -> dict[str, Tensor]:
    """Returns the tensors of a file that is in memory."""
    view = np.frombuffer(data, np.uint8)
    with checkpoint_errors("load", "file in memory"):
        handle = check(_core.bind_FileParse(view.ctypes.data, len(data)))
    with safe_open._of(handle, device) as f:
        return {name: f.get_tensor(name) for name in f.keys()}  # noqa: SIM118


class safe_open(_core.ObjectOwner):  # noqa: N801
    """A file whose tensors are read one by one: `with safe_open(path) as f: w = f.get_tensor("w")`.

    Args:
        filename: the file
        framework: has no effect
        device: where tensors go; the default device

    Raises:
        CheckpointError: for a file that breaks the format, and, then an OSError too, for one that cannot be read.
    """

    def __init__(
        self, filename: str | os.PathLike[str], framework: str = "plait", device: DeviceLike | None = None
    ) -> None:
        path = os.fsdecode(filename)
        with checkpoint_errors("safe_open", path):
            handle = check(_core.bind_FileOpen(path))
        self._open(handle, device, path)

    @classmethod
    def _of(cls, handle: int, device: DeviceLike | None) -> safe_open:
        self = cls.__new__(cls)
        self._open(handle, device)
        return self

    def _open(self, handle: int, device: DeviceLike | None, path: str = "file in memory") -> None:
        self._h, self._path = handle, path
        self._device = None if device is None else device_of(open_device(device))
        described = json.loads(_core.bind_FileDescribe(handle))
        self._metadata: dict[str, str] | None = described["metadata"]
        self._infos: dict[str, Any] = {t["name"]: t for t in described["tensors"]}

    def __enter__(self) -> safe_open:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the use of the file; tensors made from it stay valid."""
        handle, self._h = self._h, 0
        if handle:
            _core.bind_ObjectRelease(handle)

    def keys(self) -> list[str]:
        """Returns the names of the tensors, sorted."""
        return sorted(self._infos)

    def offset_keys(self) -> list[str]:
        """Returns the names of the tensors in the order of their bytes."""
        return list(self._infos)

    def metadata(self) -> dict[str, str] | None:
        """Returns the text that goes with the tensors, or None."""
        return self._metadata

    def get_shape(self, name: str) -> Size:
        """Returns the shape of a tensor, without reading it."""
        if name not in self._infos:
            raise KeyError(name)
        return Size(self._infos[name]["shape"])

    def get_dtype(self, name: str) -> str:
        """Returns the dtype of a tensor as the file spells it, such as "F32", without reading it."""
        return self._infos[name]["dtype"]

    def get_tensor(self, name: str) -> Tensor:
        """Returns a tensor.

        Raises:
            CheckpointError: if there is none of this name, or its values are none of a tensor; a TypeError too if the
                file's dtype is not one of tensors.
        """
        with checkpoint_errors("safe_open", self._path):
            t = own(check(_core.bind_FileTensor(self._h, name)))
        return t if self._device is None else t.to(device=self._device)


__all__ = ["load", "load_file", "safe_open", "save_file"]
