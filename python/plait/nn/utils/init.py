"""Making modules without their first values, and those values later."""

from __future__ import annotations

from typing import Any

from plait import _core
from plait._device import DeviceLike, open_device
from plait._engine.runtime import check, own
from plait._tensor import Tensor
from plait.nn.modules.module import Module

__all__ = ["materialize", "skip_init"]


def skip_init(module_cls: type[Module], *args: Any, **kwargs: Any) -> Module:
    """Returns a module whose parameters have values that do not matter, which are to be loaded."""
    if not issubclass(module_cls, Module):
        raise RuntimeError(f"skip_init: want a class of modules, got {module_cls}")
    return module_cls(*args, **kwargs)


def materialize(module: Module, device: DeviceLike | None = None) -> Module:
    """Gives a module that was made on the meta device its values, in place, and returns it.

    They have the bits that the module would have had it been made on the device: `with plait.device("meta")` writes
    down what is done, random draws with their places in the sequence, and this does it. Tensors that have values stay.

    Args:
        module: whose parameters and buffers to make
        device: where; the rank's own by default

    Raises:
        ValueError: for values that came from another device.
    """
    number = -1 if device is None else open_device(device)

    def made(t: Tensor) -> Tensor:
        return own(check(_core.bind_TensorMaterialize(t._h, number))) if t.is_meta else t

    return module._apply(made)
