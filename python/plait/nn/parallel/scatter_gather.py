"""Splits batches over devices, and gathers outputs. Values may be nested."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

from plait import _core
from plait._device import open_device
from plait._engine.pytree import flatten
from plait._engine.runtime import address, check, own
from plait._tensor import Tensor
from plait.nn.parallel._inputs import merge_nested

__all__ = ["gather", "scatter", "scatter_kwargs"]


def scatter(
    inputs: Any, target_gpus: Sequence[Any], dim: int = 0, *, weights: Sequence[float] | None = None
) -> list[Any]:
    """Splits a value into parts, one for each device. Tensors are split along `dim`; every part gets all other values.

    The list ends at the last device that gets samples; an earlier device without samples gets None. 0-d tensors go to
    every device. Gradients flow back.

    Args:
        inputs: tensors in tuples, lists and dicts
        target_gpus: devices of any type
        dim: the batch dimension
        weights: the devices' relative shares; equal by default

    Raises:
        ValueError: if the tensors' batch sizes would give different devices, or all tensors are 0-d.
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
    """Splits positional and keyword arguments: see `scatter`."""
    args = tuple(inputs) if isinstance(inputs, tuple | list) else () if inputs is None else (inputs,)
    parts = scatter((args, dict(kwargs or {})), target_gpus, dim, weights=weights)
    return tuple(p and p[0] for p in parts), tuple(p and p[1] for p in parts)


def gather(outputs: Sequence[Any], target_device: Any, dim: int = 0) -> Any:
    """Gathers values on a device. Tensors are concatenated along `dim`; other values become a list.

    0-d tensors become a vector. Gradients flow back.
    """
    number = open_device(target_device)

    def merge(parts: Sequence[Tensor]) -> Tensor:
        handles = array("q", [p._h for p in parts])
        return own(check(_core.bind_BatchGather(address(handles), len(handles), number, dim)))

    return merge_nested(outputs, merge)
