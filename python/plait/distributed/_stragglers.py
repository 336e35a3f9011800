"""Warnings of ranks that hold up the others."""

from __future__ import annotations

import warnings

from plait import _core

__all__ = ["StragglerWarning"]


class StragglerWarning(UserWarning):
    """A rank holds up the others: see `warn_of_stragglers`."""


def give_warnings() -> None:
    """Gives the warnings that are due. Calls of collectives end with it, since the engine never calls Python."""
    if _core.bind_WarningsDue():
        for text in _core.bind_WarningsTake().splitlines():
            warnings.warn(text, StragglerWarning, stacklevel=5)
