"""The parts of how tensors print, for classes that print themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from plait._tensors.repr import OPTIONS, elements_repr, tensor_repr, with_suffixes

__all__: list[str] = []

PRINT_OPTS = OPTIONS  # as `set_printoptions` says


def _tensor_str(self: Any, indent: int) -> str:
    """Returns the elements of a tensor as they print.

    Args:
        self: the tensor
        indent: how far lines but the first are indented
    """
    return elements_repr(self, indent)


def _add_suffixes(tensor_str: str, suffixes: Sequence[str], indent: int, force_newline: bool) -> str:
    """Returns a text with what is said behind the elements, in as many lines as it takes, and a bracket.

    Args:
        tensor_str: the text, with the bracket that is to be closed
        suffixes: what is said behind
        indent: how far further lines are indented
        force_newline: whether the first one begins a line
    """
    return with_suffixes(tensor_str, suffixes, indent, force_newline)


def _str(self: Any, *, tensor_contents: str | None = None) -> str:
    """Returns how a tensor prints.

    Args:
        self: the tensor
        tensor_contents: its elements as they print, if it has others to show than its own
    """
    return tensor_repr(self, tensor_contents)


_str_intern = _str
