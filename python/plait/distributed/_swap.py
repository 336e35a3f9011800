"""Classes of modules that a way of training adds methods to."""

from __future__ import annotations

from plait.nn import Module

_classes: dict[tuple[type, type], type] = {}


def swap_class(module: Module, mixin: type, prefix: str = "") -> None:
    """Changes a module's class to a subclass of `mixin` and its own class, whose name gets a prefix."""
    cls = type(module)
    if (mixin, cls) not in _classes:
        own = {"__module__": cls.__module__, "__doc__": cls.__doc__}
        made = type(f"{prefix}{cls.__name__}", (mixin, cls), own)
        _classes.setdefault((mixin, cls), made)  # another rank may have created it meanwhile
    module.__class__ = _classes[mixin, cls]
