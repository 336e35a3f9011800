"""What every test begins with."""

from __future__ import annotations

import os
import signal

os.environ.setdefault("MPLBACKEND", "agg")
# What a script's shell starts in the background ignores Ctrl-C, and so would the programs that tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

import plait
import pytest


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Random numbers are the same whichever tests ran before."""
    plait.manual_seed(0)
