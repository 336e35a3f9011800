"""Where NVIDIA's compiler and library of matrix products lie, which GPUs under CUDA use."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

from plait import _core


def find() -> list[str]:
    """Returns the folders of libraries of the packages `nvidia-*` that are installed; none of them is imported."""
    spec = importlib.util.find_spec("nvidia")
    places = (spec and spec.submodule_search_locations) or ()
    return [str(folder) for place in places for folder in sorted(Path(place).glob("*/lib"))]


if _found := find():
    _core.bind_DeviceLibraryFolders(os.pathsep.join(_found))
