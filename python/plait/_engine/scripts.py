"""Running a script or a module as Python itself does."""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path


def run(name: str, module: bool) -> None:
    """Runs a script or a module, with its folder, or the current one, first on the path."""
    if not sys.flags.safe_path:  # with it, Python has put nothing there
        sys.path[0] = os.getcwd() if module else str(Path(name).resolve().parent)
    if module:
        runpy.run_module(name, run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(name, run_name="__main__")
