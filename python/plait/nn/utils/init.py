"""Making modules without their first values."""

from __future__ import annotations

from typing import Any

from plait.nn.modules.module import Module


def skip_init(module_cls: type[Module], *args: Any, **kwargs: Any) -> Module:
    """Returns a module whose parameters have values that do not matter, which are to be loaded."""
    if not issubclass(module_cls, Module):
        raise RuntimeError(f"skip_init: want a class of modules, got {module_cls}")
    return module_cls(*args, **kwargs)
