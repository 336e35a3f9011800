"""Collate functions, which make batches of samples."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, MutableSequence, Sequence
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


def _mapped(data: Any, convert: Callable[[Any], Any]) -> Any:
    """Returns a mapping like this one, of its class where that can be made, with a value for each key."""
    values = {k: convert(k) for k in data}
    try:
        if not isinstance(data, MutableMapping):
            return type(data)(values)  # type: ignore[call-arg]
        out = copy.copy(data)  # which keeps what else the class has
        out.update(values)
        return out
    except TypeError:
        return values


def _sequence(data: Any, values: list[Any]) -> Any:
    """Returns a sequence like this one, of its class where that can be made, with these values; a list for a tuple."""
    if isinstance(data, tuple):
        return type(data)(*values) if hasattr(data, "_fields") else values
    try:
        if not isinstance(data, MutableSequence):
            return type(data)(values)  # type: ignore[call-arg]
        out = copy.copy(data)
        for i, value in enumerate(values):
            out[i] = value
        return out
    except TypeError:
        return values


def default_convert(data: Any) -> Any:
    """Converts NumPy arrays to tensors, also in nested collections, whose classes stay; tuples become lists."""
    if isinstance(data, Tensor | str | bytes):
        return data
    if isinstance(data, np.ndarray | np.generic):
        return data if data.dtype.kind in "USO" else as_tensor(data)
    if isinstance(data, Mapping):
        return _mapped(data, lambda k: default_convert(data[k]))
    if isinstance(data, Sequence):
        return _sequence(data, [default_convert(d) for d in data])
    return data


def collate(batch: Sequence[Any], *, collate_fn_map: CollateMap | None = None) -> Any:
    """Makes a batch of samples: collections of each part's batch, whose functions a dict has.

    Args:
        batch: the samples
        collate_fn_map: functions by the class of what they make a batch of, or by several classes; a class that is not
            there has the first whose class it is derived from

    Raises:
        RuntimeError: for collections of different lengths.
        TypeError: for samples of other types.
    """
    first, functions = batch[0], collate_fn_map or {}
    function = functions.get(type(first)) or next((f for k, f in functions.items() if isinstance(first, k)), None)
    if function is not None:
        return function(batch, collate_fn_map=collate_fn_map)
    if isinstance(first, Mapping):
        return _mapped(first, lambda k: collate([b[k] for b in batch], collate_fn_map=collate_fn_map))
    if isinstance(first, Sequence):
        if not hasattr(first, "_fields") and any(len(b) != len(first) for b in batch):
            raise RuntimeError("each element in list of batch should be of equal size")
        return _sequence(first, [collate(p, collate_fn_map=collate_fn_map) for p in zip(*batch, strict=False)])
    raise _unknown(type(first))


def _unknown(what: Any) -> TypeError:
    return TypeError(
        f"default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found {what}"
    )


def collate_tensor_fn(batch: Sequence[Tensor], *, collate_fn_map: CollateMap | None = None) -> Any:
    """Stacks tensors."""
    return _ops.stack(list(batch))


def collate_numpy_array_fn(batch: Sequence[Any], *, collate_fn_map: CollateMap | None = None) -> Any:
    """Makes tensors of arrays, and a batch of those."""
    if batch[0].dtype.kind in "USO":
        raise _unknown(batch[0].dtype)
    return collate([as_tensor(b) for b in batch], collate_fn_map=collate_fn_map)


def collate_numpy_scalar_fn(batch: Sequence[Any], *, collate_fn_map: CollateMap | None = None) -> Any:
    """Makes a tensor of NumPy's scalars."""
    return as_tensor(np.stack([np.asarray(b) for b in batch]))


def collate_float_fn(batch: Sequence[float], *, collate_fn_map: CollateMap | None = None) -> Any:
    """Makes a tensor of numbers, in float64."""
    return tensor(list(batch), dtype=float64)


def collate_int_fn(batch: Sequence[int], *, collate_fn_map: CollateMap | None = None) -> Any:
    """Makes a tensor of integers."""
    return tensor(list(batch))


def collate_str_fn(batch: Sequence[Any], *, collate_fn_map: CollateMap | None = None) -> Any:
    """Returns texts as they are."""
    return batch


# A library that adds a class here adds it for all loaders.
default_collate_fn_map: CollateMap = {
    Tensor: collate_tensor_fn,
    np.ndarray: collate_numpy_array_fn,
    (np.bool_, np.number, np.object_): collate_numpy_scalar_fn,
    float: collate_float_fn,
    int: collate_int_fn,
    str: collate_str_fn,
    bytes: collate_str_fn,
}


def default_collate(batch: Sequence[Any]) -> Any:
    """Stacks samples into a batch: tensors, arrays and numbers, also in nested collections, whose classes stay.

    Raises:
        RuntimeError: for collections of different lengths.
        TypeError: for samples of other types.
    """
    return collate(batch, collate_fn_map=default_collate_fn_map)


CollateFn = Callable[[list[Any]], Any]
CollateMap = dict[Any, Callable[..., Any]]
