"""`ExceptionWrapper`, at PyTorch's path."""

from __future__ import annotations

import sys
import traceback
from typing import Any, NoReturn

__all__ = ["ExceptionWrapper"]


class _KeyText(str):
    """The text of a KeyError, which shows its argument by `repr`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class ExceptionWrapper:
    """An exception of another thread or process, as text that can be sent; `reraise` raises one like it.

    Args:
        exc_info: what `sys.exc_info` returns; that of the exception which is being handled by default
        where: where it was raised, as the message says
    """

    def __init__(self, exc_info: Any = None, where: str = "in background") -> None:
        kind, error, trace = sys.exc_info() if exc_info is None else exc_info
        self.exc_type: Any = kind
        self.exc_msg = "".join(traceback.format_exception(kind, error, trace))
        self.where = where

    def reraise(self) -> NoReturn:
        """Raises an exception of the same class, or a RuntimeError where one cannot be made of a text."""
        msg = f"Caught {self.exc_type.__name__} {self.where}.\nOriginal {self.exc_msg}"
        try:
            if self.exc_type is KeyError:
                raised: Any = KeyError(_KeyText(msg))
            elif hasattr(self.exc_type, "message"):
                raised = self.exc_type(message=msg)
            else:
                raised = self.exc_type(msg)
        except Exception:
            raise RuntimeError(msg) from None
        raise raised
