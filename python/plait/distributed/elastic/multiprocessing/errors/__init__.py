"""`record`, which writes why a process failed into a file."""

from __future__ import annotations

import functools
import json
import os
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, TypeVar

from plait._errors import text_of

__all__ = ["record"]

P = ParamSpec("P")
R = TypeVar("R")


def record(fn: Callable[P, R], error_handler: None = None) -> Callable[P, R | None]:
    """Makes a function, such as a script's main, write the exception that ends it into a file, in PyTorch's format.

    The file is the one that the variable TORCHELASTIC_ERROR_FILE names; `plait.distributed.run` sets it, and keeps it
    if there is a `--log-dir`. Without the variable nothing is written. The exception goes on.

    Args:
        fn: the function. `sys.exit(0)` in it counts as a return of None
        error_handler: must be None
    """
    if error_handler is not None:
        raise NotImplementedError("record: error_handler must be None")

    @functools.wraps(fn)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R | None:
        try:
            return fn(*args, **kwargs)
        except SystemExit as end:
            if end.code == 0:
                return None
            raise
        except Exception as error:
            _write(error)
            raise

    return wrapper


def _write(error: Exception) -> None:
    """Writes an exception into the file, if there is one, and leaves it to the caller."""
    path = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if not path:
        return
    extra = {"py_callstack": traceback.format_exc(), "timestamp": str(int(time.time()))}
    text = json.dumps({"message": {"message": f"{type(error).__name__}: {text_of(error)}", "extraInfo": extra}})
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(text)
    except OSError as failed:
        error.add_note(f"record: {path}: {failed.strerror}")
