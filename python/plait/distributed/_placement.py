"""Where the tensor of one rank belongs in a tensor that several ranks hold together."""

from __future__ import annotations

from typing import Any, NamedTuple

_NAME = "_placement"


class Placement(NamedTuple):
    """The box of a whole tensor that a rank's tensor is."""

    shape: tuple[int, ...]  # of the whole tensor
    offset: tuple[int, ...]  # where the rank's part begins


def place(tensor: Any, placement: Placement | None) -> Any:
    """Records the placement of a tensor that has none, and returns the tensor; None stands for one that is whole."""
    if placement is not None and placement_of(tensor) is None:
        setattr(tensor, _NAME, placement)
    return tensor


def placement_of(tensor: Any) -> Placement | None:
    """Returns where a tensor belongs; None for one that is whole."""
    return getattr(tensor, _NAME, None)


def reshard(tensor: Any) -> None:
    """Makes a parameter of FSDP that is gathered, such as after a forward pass, the rank's part again."""
    if placement_of(tensor) is not None and hasattr(tensor, "reshard"):
        tensor.reshard()


def placed_like(tensor: Any, model: Any) -> Any:
    """Places a tensor of `model`'s shape as `model` is, and returns it."""
    placement = placement_of(model)
    if placement is not None and tensor.shape == model.shape:
        place(tensor, placement)
    return tensor


def local(tensor: Any, model: Any) -> Any:
    """Returns the part of a whole tensor that belongs to a rank, if `model` is such a part of one of its shape.

    Anything else comes back as it is.
    """
    placed = placement_of(model)
    reshard(model)
    whole = getattr(tensor, "shape", None)
    if placed is None or whole is None or placement_of(tensor) is not None or tuple(whole) != placed.shape:
        return tensor
    if 0 in model.shape:
        return tensor.flatten()[:0].reshape(model.shape)
    for dim, (start, length) in enumerate(zip(placed.offset, model.shape, strict=True)):
        tensor = tensor.narrow(dim, start, length)
    return tensor
