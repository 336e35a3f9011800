"""The average of gradients over copies of a pipeline, once for all micro-batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from plait import _ops
from plait._modes import no_grad
from plait._tensor import Tensor
from plait.distributed._collectives import all_reduce
from plait.distributed._groups import ProcessGroup
from plait.distributed._objects import exchange
from plait.distributed._work import ReduceOp
from plait.distributed.tensor._dtensor import is_distributed

_BUCKET = 25 << 20  # bytes that are averaged at once


@no_grad()
def average_gradients(parameters: Iterable[Tensor], group: ProcessGroup) -> None:
    """Replaces the gradients of parameters by their averages over the ranks of a group. Every rank calls it.

    A gradient that some ranks lack counts as zero there, and one that all lack stays absent.
    """
    trained = [p for p in parameters if p.requires_grad]
    own = bytes(p.grad is not None for p in trained)
    found = exchange(group, "which parameters of a pipeline have gradients", own)
    somewhere = [any(flags) for flags in zip(*found, strict=True)]
    parts = []
    for p, there in zip(trained, somewhere, strict=True):
        if there and p.grad is None:
            p.grad = _ops.zeros_like(p)
        if p.grad is not None:
            parts.append(p.grad._local_tensor if is_distributed(p.grad) else p.grad)
    purpose = group._for("the gradients of copies of a pipeline")
    for bucket in _buckets(parts):
        flat = _ops.cat([_ops.flatten(t) for t in bucket])
        all_reduce(flat, ReduceOp.AVG, purpose)
        at = 0
        for t in bucket:
            t.copy_(flat[at : at + t.numel()].view(t.shape))
            at += t.numel()


def _buckets(tensors: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Yields lists of tensors of one dtype on one device, each of about as many bytes as are averaged at once."""
    bucket: list[Tensor] = []
    size = 0
    for t in tensors:
        if bucket and (size >= _BUCKET or t.dtype != bucket[0].dtype or t.device != bucket[0].device):
            yield bucket
            bucket, size = [], 0
        bucket.append(t)
        size += t.numel() * t.element_size()
    if bucket:
        yield bucket
