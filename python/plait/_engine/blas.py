"""Where OpenBLAS lies: for its LAPACK, and for processors that the engine has no matrix products of its own for."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from plait import _core


def find() -> Path | None:
    """Returns the library of the package scipy-openblas32, if that is installed; it is not imported."""
    spec = importlib.util.find_spec("scipy_openblas32")
    for folder in (spec and spec.submodule_search_locations) or ():
        for path in sorted(Path(folder, "lib").glob("libscipy_openblas.*")):
            return path
    return None


if _found := find():
    _core.bind_BlasPrefer(str(_found))
