"""What functions that export operations are made with. They are never called."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

__all__ = ["parse_args"]

T = TypeVar("T")


def parse_args(*arg_descriptors: str) -> Callable[[T], T]:
    """Returns a decorator that returns a function as it is."""
    return lambda function: function
