"""Batches cut into parts on several devices, and outputs joined again. Values may be nested."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

from plait import _core
from plait._device import open_device
from plait._engine.pytree import flatten
from plait._engine.runtime import address, check, own
from plait._tensor import Tensor
from plait.nn.parallel._inputs import join

__all__ = ["gather", "scatter", "scatter_kwargs"]


def scatter(
    inputs: Any, target_gpus: Sequence[Any], dim: int = 0, *, weights: Sequence[float] | None = None
) -> list[Any]:
    """Returns a value in parts, one for each device: tensors cut along `dim`, everything else the same in each.

    There are fewer parts than devices if the last get no samples, and among the others None stands for one without any.
    Tensors without dimensions go to every device as they are. Gradients flow back.

    Args:
        inputs: tensors in tuples, lists and dicts
        target_gpus: devices of any type
        dim: the dimension that counts samples
        weights: the devices' shares, in any unit; equal by default

    Raises:
        ValueError: if tensors do not go to the same devices, or none has a dimension.
    """
    leaves, build = flatten(inputs)
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
    if not places:
        return [inputs for _ in target_gpus]
    handles, numbers = array("q", [leaves[i]._h for i in places]), array("q", [open_device(d) for d in target_gpus])
    shares, sizes = array("d", weights or ()), array("q", bytes(8 * len(numbers)))
    out = array("q", bytes(8 * len(numbers) * len(handles)))
    used = check(
        _core.bind_BatchScatter(
            address(handles),
            len(handles),
            address(numbers),
            len(numbers),
            address(shares),
            len(shares),
            dim,
            address(sizes),
            address(out),
        )
    )
    parts: list[Any] = []
    for k in range(used):
        mine = out[k * len(places) : (k + 1) * len(places)]
        if not mine[0]:
            parts.append(None)
            continue
        cut = list(leaves)
        for i, h in zip(places, mine, strict=True):
            cut[i] = own(check(h))
        parts.append(build(cut))
    return parts


def scatter_kwargs(
    inputs: Any, kwargs: dict[str, Any] | None, target_gpus: Sequence[Any], dim: int = 0, *, weights: Any = None
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Returns positional and keyword arguments in parts: see `scatter`."""
    args = tuple(inputs) if isinstance(inputs, tuple | list) else () if inputs is None else (inputs,)
    parts = scatter((args, dict(kwargs or {})), target_gpus, dim, weights=weights)
    return tuple(p and p[0] for p in parts), tuple(p and p[1] for p in parts)


def gather(outputs: Sequence[Any], target_device: Any, dim: int = 0) -> Any:
    """Returns values from several devices as one: tensors joined along `dim` on a device, of anything else a list.

    Tensors without dimensions become a vector. Gradients flow back.
    """
    number = open_device(target_device)

    def merge(parts: Sequence[Tensor]) -> Tensor:
        handles = array("q", [p._h for p in parts])
        return own(check(_core.bind_BatchGather(address(handles), len(handles), number, dim)))

    return join(outputs, merge)
