"""Losses of scores that are divided along the classes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from plait._tensor import Tensor
from plait.distributed.tensor._dtensor import DTensor
from plait.distributed.tensor._placements import Placement, Replicate, Shard, _StridedShard
from plait.nn.functional._loss_reduction import laying_class_losses


@contextmanager
def loss_parallel() -> Iterator[None]:
    """Inside, `cross_entropy` and `nll_loss` of distributed scores [N, C, ...] want them divided along the classes.

    Without it they never gather such scores either. What the context adds: it refuses scores that lie otherwise, takes
    targets and weights that are ordinary tensors, the same on all ranks, and gives losses that lie as the targets, or
    with a reduction are on all ranks. It concerns the calling thread, and backward may run outside.

    Raises:
        ValueError: unless one dimension of the mesh divides the classes, and none is pending; and for an ordinary
            target beside scores whose other dimensions are divided.
    """
    with laying_class_losses(_laid):
        yield


def _laid(loss: Callable[..., Tensor], input: Tensor, target: Tensor, weight: Tensor | None, *rest: Any) -> Tensor:
    if not isinstance(input, DTensor):
        return loss(input, target, weight, *rest)
    name, mesh, classes = loss.__name__, input.device_mesh, min(1, input.dim() - 1)
    others = [p for p in input.placements if not p.is_shard(classes)]
    if len(others) != mesh.ndim - 1 or any(p.is_partial() for p in others):
        raise ValueError(
            f"{name}: loss_parallel wants scores that one dimension of the mesh divides along dimension {classes}, the "
            f"classes, got placements {list(input.placements)}"
        )

    def replicated(t: Tensor) -> Tensor:
        return t if isinstance(t, DTensor) else DTensor.from_local(t, mesh, [Replicate()] * mesh.ndim)

    if not isinstance(target, DTensor) and not all(p.is_replicate() for p in others):
        raise ValueError(
            f"{name}: got an ordinary target beside scores placed {list(input.placements)}, want a distributed one, "
            "which says whether it is the target of the whole batch"
        )
    out = loss(input, replicated(target), None if weight is None else replicated(weight), *rest)
    assert isinstance(out, DTensor)

    def target_like(p: Placement) -> Placement:
        if not isinstance(p, Shard | _StridedShard) or p.dim == classes or out.dim() == 0:
            return Replicate()
        dim = p.dim - (p.dim > classes)
        return Shard(dim) if isinstance(p, Shard) else _StridedShard(dim, split_factor=p.split_factor)

    return out.redistribute(placements=[target_like(p) for p in input.placements])
