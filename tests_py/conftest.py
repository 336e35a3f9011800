"""What every test begins with."""

from __future__ import annotations

import os

os.environ.setdefault("MPLBACKEND", "agg")

import plait
import pytest


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Random numbers are the same whichever tests ran before."""
    plait.manual_seed(0)
