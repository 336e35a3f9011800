"""Warnings that point at the program, not at the package."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path

# What the names of the package's files begin with.
PACKAGE = str(Path(__file__).parent.parent) + os.sep


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warns at the line outside the package that led here, however many of its functions lie between."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith(PACKAGE):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)
