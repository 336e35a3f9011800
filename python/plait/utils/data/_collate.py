"""Collate functions, which make batches of samples."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from plait import _ops
from plait._dtype import float64
from plait._tensor import Tensor
from plait._tensors.arrays import as_tensor, tensor

__all__ = ["DataChunk", "default_collate", "default_convert"]


class DataChunk(list[Any]):
    """A list of samples that belong together, which stays in `items` as it was made."""

    def __init__(self, items: Iterable[Any]) -> None:
        super().__init__(items)
        self.items = list(self)

    def as_str(self, indent: str = "") -> str:
        """Returns the samples as text, behind an indent."""
        return indent + "[" + ", ".join(str(i) for i in self) + "]"

    def raw_iterator(self) -> Iterator[Any]:
        """Returns an iterator over the samples, whatever a subclass makes of iteration."""
        yield from self.items


def default_convert(data: Any) -> Any:
    """Converts NumPy arrays to tensors, also in nested collections."""
    if isinstance(data, Tensor | str | bytes):
        return data
    if isinstance(data, np.ndarray | np.generic):
        return data if data.dtype.kind in "USO" else as_tensor(data)
    if isinstance(data, Mapping):
        return {k: default_convert(v) for k, v in data.items()}
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*(default_convert(d) for d in data))
    if isinstance(data, Sequence):
        return [default_convert(d) for d in data]
    return data


def default_collate(batch: Sequence[Any]) -> Any:
    """Stacks samples into a batch: tensors, arrays and numbers, also in nested collections.

    Raises:
        TypeError: for samples of other types.
        ValueError: for collections of different lengths.
    """
    first = batch[0]
    if isinstance(first, Tensor):
        return _ops.stack(list(batch))
    if isinstance(first, np.ndarray | np.generic):
        if first.dtype.kind in "USO":
            raise TypeError(f"default_collate: want tensors, numbers, dicts or lists, got {first.dtype}")
        return as_tensor(np.stack([np.asarray(b) for b in batch]))
    if isinstance(first, bool | int):
        return tensor(list(batch))
    if isinstance(first, float):
        return tensor(list(batch), dtype=float64)
    if isinstance(first, str | bytes):
        return batch if isinstance(batch, tuple) else list(batch)
    if isinstance(first, Mapping):
        return {k: default_collate([b[k] for b in batch]) for k in first}
    if isinstance(first, Sequence):
        if any(len(b) != len(first) for b in batch):
            raise ValueError("each element in list of batch should be of equal size")
        parts = [default_collate(p) for p in zip(*batch, strict=True)]
        return type(first)(*parts) if hasattr(first, "_fields") else parts
    raise TypeError(
        f"default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found {type(first)}"
    )


CollateFn = Callable[[list[Any]], Any]
