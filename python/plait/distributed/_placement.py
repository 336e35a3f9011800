"""The placement of a rank's part in a sharded tensor."""

from __future__ import annotations

from typing import Any, NamedTuple

_NAME = "_placement"


class Placement(NamedTuple):
    """The region of the full tensor that a rank's tensor holds."""

    shape: tuple[int, ...]  # of the full tensor
    offset: tuple[int, ...]  # of the rank's part


def set_placement(tensor: Any, placement: Placement | None) -> Any:
    """Sets the placement of a tensor that has none, and returns the tensor. None means a full tensor."""
    if placement is not None and placement_of(tensor) is None:
        setattr(tensor, _NAME, placement)
    return tensor


def placement_of(tensor: Any) -> Placement | None:
    """Returns the placement of a tensor, or None for a full tensor."""
    return getattr(tensor, _NAME, None)


def reshard(tensor: Any) -> None:
    """Reshards a sharded parameter if it is gathered, for example after a forward pass."""
    if hasattr(tensor, "reshard"):
        tensor.reshard()


def copy_placement(tensor: Any, model: Any) -> Any:
    """Gives a tensor the placement of `model` if they have the same shape, and returns the tensor."""
    placement = placement_of(model)
    if placement is not None and tensor.shape == model.shape:
        set_placement(tensor, placement)
    return tensor


def local_part(tensor: Any, model: Any) -> Any:
    """Returns the part of a full tensor that `model`, a part of a tensor of the same full shape, holds.

    It returns `tensor` itself if `model` is no part, if `tensor` is a part already, or if the full shapes differ.
    """
    placed = placement_of(model)
    reshard(model)
    shape = getattr(tensor, "shape", None)
    if placed is None or shape is None or placement_of(tensor) is not None or tuple(shape) != placed.shape:
        return tensor
    if 0 in model.shape:
        return tensor.flatten()[:0].reshape(model.shape)
    for dim, (start, length) in enumerate(zip(placed.offset, model.shape, strict=True)):
        tensor = tensor.narrow(dim, start, length)
    return tensor
