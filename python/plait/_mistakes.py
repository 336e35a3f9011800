"""Where an error came from: a `raise`, the interpreter at work on a wrong value, or a function of the caller's."""

from __future__ import annotations

import dis
import os
from pathlib import Path
from types import TracebackType

import numpy as np

from plait._warnings import PACKAGE

_OURS = (PACKAGE, str(Path(np.__file__).parent) + os.sep)
_RAISE = dis.opmap["RAISE_VARARGS"]


def _last(error: BaseException) -> TracebackType | None:
    """Returns where an error was raised, or where the package called what raised it."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
        if not trace.tb_frame.f_code.co_filename.startswith(PACKAGE):
            break
    return trace


def is_callers(error: BaseException) -> bool:
    """Whether a function of the caller's, which the package called, raised an error."""
    trace = error.__traceback__
    if trace is None or trace.tb_next is None:
        return False
    last = _last(error)
    return last is not None and not last.tb_frame.f_code.co_filename.startswith(_OURS)


def is_accident(error: BaseException) -> bool:
    """Whether the interpreter, or NumPy, raised an error in the package's code: what a `raise` says explains itself."""
    last = _last(error)
    if last is None or is_callers(error):
        return False
    code = last.tb_frame.f_code
    return not code.co_filename.startswith(PACKAGE) or code.co_code[last.tb_lasti] != _RAISE
