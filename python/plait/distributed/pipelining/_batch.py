"""Splits batches into micro-batches, and merges their outputs."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import Any

from plait import _core, _ops
from plait._engine.runtime import address, check
from plait._tensor import Tensor
from plait.distributed.pipelining._values import pack


def micro_batch_sizes(samples: int, chunks: int) -> list[int]:
    """Returns the sizes of the micro-batches: at most `chunks`, none empty, the larger ones first."""
    out = array("q", bytes(8 * max(chunks, 1)))
    return list(out[: check(_core.bind_PipelineCut(samples, chunks, address(out)))])


def splitter(name: str, sizes: Sequence[int]) -> Callable[[Tensor], Sequence[Tensor]]:
    """Returns a function that splits tensors of a batch into micro-batches. `name` is for error messages."""

    def cut(t: Tensor) -> Sequence[Tensor]:
        if t.ndim == 0 or t.shape[0] != sum(sizes):
            raise ValueError(
                f"{name}: the batch has {sum(sizes)} samples, a tensor of shape {list(t.shape)} has another size in "
                "dimension 0"
            )
        return t.split(list(sizes), 0)

    return cut


def merge_outputs(parts: Sequence[Tensor]) -> Tensor:
    """Concatenates the outputs of micro-batches. Scalars become a vector."""
    return _ops.stack(parts) if parts[0].ndim == 0 else _ops.cat(parts, 0)


def move_to(value: Any, device: Any) -> Any:
    """Returns a nested value with its tensors moved to a device."""
    tensors, fill = pack(value)
    return fill([t.to(device) for t in tensors])
