"""Forward-mode derivatives: tensors with a tangent, which operations push forward to their results."""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

from plait._autograd import forward as _forward
from plait._engine.missing_names import absent as _absent
from plait._tensor import Tensor

__all__ = ["UnpackedDualTensor", "dual_level", "enter_dual_level", "exit_dual_level", "make_dual", "unpack_dual"]


class UnpackedDualTensor(NamedTuple):
    """What `unpack_dual` returns: the tensor without its tangent, and the tangent, or None where there is none."""

    primal: Tensor
    tangent: Tensor | None


class _Local(threading.local):
    def __init__(self) -> None:
        self.entered: list[int] = []  # levels of this module, of which a thread has one at a time


_local = _Local()


def enter_dual_level() -> int:
    """Opens the level at which `make_dual` gives tangents, and returns its number, 0.

    Raises:
        RuntimeError: if it is open already. `plait.func.jvp` nests.
    """
    if _local.entered:
        raise RuntimeError("Nested forward mode AD is not supported at the moment; plait.func.jvp nests")
    _local.entered.append(_forward.enter())
    return 0


def exit_dual_level(*, level: int | None = None) -> None:
    """Closes the level: tensors lose their tangents."""
    if not _local.entered or level not in (None, 0):
        raise RuntimeError(
            "Trying to exit a forward AD level that was not the last one that was created. This is not supported."
        )
    _forward.leave(_local.entered[-1])
    _local.entered.pop()


class dual_level:  # noqa: N801
    """The block inside which `make_dual` gives tangents; as `enter_dual_level` and `exit_dual_level`."""

    def __enter__(self) -> int:
        return enter_dual_level()

    def __exit__(self, *_: object) -> None:
        exit_dual_level()


def _level(name: str, level: int | None) -> int:
    if not _local.entered or level not in (None, 0):
        raise RuntimeError(
            f"{name}: Trying to create a dual Tensor for forward AD but no level exists, make sure to "
            "enter_dual_level() first."
        )
    return _local.entered[-1]


def make_dual(tensor: Tensor, tangent: Tensor, *, level: int | None = None) -> Tensor:
    """Returns a view of a tensor with a tangent of its shape, dtype and device.

    Raises:
        RuntimeError: if no level is open, or the tensor has a tangent already.
    """
    for what, t in (("tensor", tensor), ("tangent", tangent)):
        if not isinstance(t, Tensor):
            raise TypeError(f"make_dual: want a tensor as {what}, got {type(t).__name__}")
    return _forward.dual(tensor, tangent, _level("make_dual", level))


def unpack_dual(tensor: Tensor, *, level: int | None = None) -> UnpackedDualTensor:
    """Returns a view of a tensor without its tangent, and the tangent. Outside of a level it has none."""
    if not _local.entered and level in (None, 0):
        return UnpackedDualTensor(tensor, None)
    at = _level("unpack_dual", level)
    return UnpackedDualTensor(_forward.dual(tensor, None, at), _forward.tangent_of(tensor, at))


def __getattr__(name: str) -> Any:
    raise _absent("autograd", "plait.autograd.forward_ad", name)
