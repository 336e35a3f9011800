"""Names that are not there: an error says which of PyTorch's they are, and of others what was perhaps meant."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable
from typing import Any

from plait._errors import MissingFeatureError


class UnknownNameError(AttributeError):
    """A name that neither the package nor PyTorch has. What it is like is looked up when the error is shown."""

    def __init__(self, text: str, name: str = "", owner: Any = None) -> None:
        super().__init__(text, name=name, obj=None)  # or the interpreter would guess, too
        self._owner = owner

    def __str__(self) -> str:
        text = super().__str__()
        like = _alike(self.name or "", self._owner)
        return f"{text}; did you mean {like!r}?" if like else text


def _alike(name: str, owner: Any) -> str:
    """Returns the name of a module or class that was perhaps meant; what differs only in case comes first."""
    if owner is None:
        return ""
    # Of a short name, another one with half as many letters again is not a slip.
    names = [n for n in dir(owner) if n[0] != "_" and abs(len(n) - len(name)) * 4 <= max(len(n), len(name))]
    found = difflib.get_close_matches(name.lower(), {n.lower() for n in names}, 1, 0.75)
    spelled = [n for n in names if n.lower() in found]
    return (difflib.get_close_matches(name, spelled, 1, 0) or [""])[0]


def absent(area: str, where: str, name: str, owner: Any = None) -> AttributeError:
    """Returns the error for a name that is not there.

    Args:
        area: the list of names to look it up in
        where: the module or class, for the message
        name: what was asked for
        owner: the module or class; by default the module that is called `where`
    """
    from plait._names import NAMES

    if name.startswith("_") or name not in NAMES.get(area, "").split():
        return UnknownNameError(f"{where} has no attribute {name!r}", name, owner or sys.modules.get(where))
    return MissingFeatureError(
        f"{where}.{name}: this name of PyTorch's is not there yet; docs/coverage.md lists what is"
    )


class Refused(type):
    """The class of names that can be imported and inherited from, and raise when they are used."""

    _why = ""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        raise MissingFeatureError(cls._why)

    def __getattr__(cls, name: str) -> Any:
        raise MissingFeatureError(cls._why)


def refusing(where: str, names: str, why: str) -> Callable[[str], Any]:
    """Returns the `__getattr__` of a module whose names are there to be imported, and raise when they are used.

    Args:
        where: the module
        names: its names
        why: why they are not there, for the message
    """

    def missing(name: str) -> Any:
        if name not in names.split():
            raise absent("", where, name)
        refused = Refused(name, (), {"_why": f"{where}.{name}: {why}", "__module__": where})
        setattr(sys.modules[where], name, refused)
        return refused

    return missing
