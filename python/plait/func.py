"""Functions of modules."""

from __future__ import annotations

from plait._errors import MissingFeatureError
from plait.nn.utils.stateless import functional_call

__all__ = ["functional_call"]


def __getattr__(name: str) -> object:
    if name.startswith("__"):
        raise AttributeError(name)
    raise MissingFeatureError(f"plait.func has no {name}")
