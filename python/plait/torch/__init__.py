"""Lets programs that import PyTorch run on Plait as they are: `python -m plait.torch SCRIPT`, or `install()` first.

After `install()`, `import torch` and the modules under it mean Plait's. All but a few are the same objects, so that an
operation costs what it costs by Plait's own name. docs/torch.md says more.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from plait._engine import spelling
from plait.torch._finder import Finder

__all__ = ["install", "installed", "uninstall"]

# A folder that has a module `torch`, which installs the hook, and the metadata of a distribution of that name.
_PATH = str(Path(__file__).parent / "path")

_finder: Finder | None = None


def install() -> None:
    """Makes `import torch` mean Plait, here and in the processes that are started from here; again, it has no effect.

    Raises:
        RuntimeError: if another torch has been imported.
    """
    global _finder
    if _finder is not None:
        return
    if (other := sys.modules.get("torch")) is not None:
        raise RuntimeError(
            f"plait.torch.install: torch is imported already, from {getattr(other, '__file__', None)}; "
            "call install before whatever imports torch"
        )
    _finder = Finder()
    sys.meta_path.insert(0, _finder)
    sys.modules["torch"] = _finder.top
    spelling.package = "torch"
    if _PATH not in sys.path:  # a child has it there
        sys.path.insert(1, _PATH)  # after the script's folder
    paths = os.environ.get("PYTHONPATH", "")
    if _PATH not in paths.split(os.pathsep):
        os.environ["PYTHONPATH"] = _PATH + (os.pathsep + paths if paths else "")


def installed() -> bool:
    """Whether `import torch` means Plait."""
    return _finder is not None


def uninstall() -> None:
    """Undoes what `install` did. What was imported stays what it is."""
    global _finder
    if _finder is None:
        return
    sys.meta_path.remove(_finder)
    _finder.undo()
    _finder = None
    spelling.package = "plait"
    if _PATH in sys.path:
        sys.path.remove(_PATH)
    paths = [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p != _PATH]
    if any(paths):
        os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    else:
        os.environ.pop("PYTHONPATH", None)
