"""Datasets: map-style, with samples by index, and iterable-style."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

from plait import _ops
from plait._random import Generator, default_generator
from plait._tensor import Tensor

__all__ = [
    "ChainDataset",
    "ConcatDataset",
    "Dataset",
    "IterableDataset",
    "StackDataset",
    "Subset",
    "TensorDataset",
    "random_split",
]

T_co = TypeVar("T_co", covariant=True)


class Dataset(Generic[T_co]):
    """A map-style dataset: a subclass implements `__getitem__` and `__len__`.

    It may also implement `__getitems__`, which takes a list of indices and returns a list of samples.
    """

    def __getitem__(self, index: Any) -> T_co:
        raise NotImplementedError("Subclasses of Dataset should implement __getitem__.")

    def __add__(self, other: Dataset[Any]) -> ConcatDataset:
        return ConcatDataset([self, other])


class IterableDataset(Dataset[T_co]):
    """An iterable-style dataset: a subclass implements `__iter__`.

    Each worker iterates over its own shallow copy. Use `get_worker_info` to give each worker a different part.
    """

    def __iter__(self) -> Iterator[T_co]:
        raise NotImplementedError("Subclasses of IterableDataset should implement __iter__.")

    def __add__(self, other: Dataset[Any]) -> Any:
        return ChainDataset([self, other])


class TensorDataset(Dataset[tuple[Tensor, ...]]):
    """A dataset of tensors with the same length: sample i is the tuple of their i-th elements."""

    tensors: tuple[Tensor, ...]

    def __init__(self, *tensors: Tensor) -> None:
        if not tensors or any(len(t) != len(tensors[0]) for t in tensors):
            raise ValueError(f"TensorDataset: size mismatch between tensors, got {[list(t.shape) for t in tensors]}")
        self.tensors = tensors

    def __getitem__(self, index: Any) -> tuple[Tensor, ...]:
        return tuple(t[index] for t in self.tensors)

    def __len__(self) -> int:
        return len(self.tensors[0])


class StackDataset(Dataset[Any]):
    """Combines datasets of the same length: a sample is a tuple or dict of their samples."""

    datasets: tuple[Any, ...] | dict[str, Any]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if bool(args) == bool(kwargs):
            raise ValueError("StackDataset: want datasets either as arguments or by name, and at least one")
        self.datasets = args or kwargs
        self._length = len(next(iter(self._all())))
        if any(len(d) != self._length for d in self._all()):
            raise ValueError(f"StackDataset: size mismatch between datasets, got {[len(d) for d in self._all()]}")

    def _all(self) -> Iterable[Any]:
        return self.datasets.values() if isinstance(self.datasets, dict) else self.datasets

    def __getitem__(self, index: Any) -> Any:
        if isinstance(self.datasets, dict):
            return {k: d[index] for k, d in self.datasets.items()}
        return tuple(d[index] for d in self.datasets)

    def __len__(self) -> int:
        return self._length


class ConcatDataset(Dataset[Any]):
    """Concatenates map-style datasets."""

    datasets: list[Any]
    cumulative_sizes: list[int]

    def __init__(self, datasets: Iterable[Dataset[Any]]) -> None:
        self.datasets = list(datasets)
        if not self.datasets:
            raise ValueError("ConcatDataset: datasets should not be an empty iterable")
        if any(isinstance(d, IterableDataset) for d in self.datasets):
            raise ValueError("ConcatDataset does not support IterableDataset; use ChainDataset")
        self.cumulative_sizes = list(itertools.accumulate(len(d) for d in self.datasets))

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]

    def __getitem__(self, index: int) -> Any:
        if not -len(self) <= index < len(self):
            raise IndexError(f"index {index} out of range for a dataset of {len(self)} samples")
        index %= len(self)
        which = bisect.bisect_right(self.cumulative_sizes, index)
        return self.datasets[which][index - (self.cumulative_sizes[which - 1] if which else 0)]


class ChainDataset(IterableDataset[Any]):
    """Concatenates iterable-style datasets."""

    def __init__(self, datasets: Iterable[Dataset[Any]]) -> None:
        self.datasets = datasets

    def __iter__(self) -> Iterator[Any]:
        for d in self.datasets:
            if not isinstance(d, IterableDataset):
                raise TypeError(f"ChainDataset only supports IterableDataset, got {type(d).__name__}")
            yield from d

    def __len__(self) -> int:
        return sum(len(d) for d in self.datasets)  # type: ignore[arg-type, misc]


class Subset(Dataset[T_co]):
    """The samples of a dataset with the given indices."""

    def __init__(self, dataset: Dataset[T_co], indices: Sequence[int]) -> None:
        self.dataset = dataset
        self.indices = indices

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, list):
            return self.dataset[[self.indices[i] for i in index]]
        return self.dataset[self.indices[index]]

    def __getitems__(self, indices: list[int]) -> list[Any]:
        """Returns the samples at a list of indices."""
        of_dataset = [self.indices[i] for i in indices]
        many = getattr(self.dataset, "__getitems__", None)
        return many(of_dataset) if callable(many) else [self.dataset[i] for i in of_dataset]

    def __len__(self) -> int:
        return len(self.indices)


def random_split(
    dataset: Dataset[Any], lengths: Sequence[float], generator: Generator | None = None
) -> list[Subset[Any]]:
    """Splits a dataset at random into subsets without common samples.

    Args:
        dataset: a dataset with a length
        lengths: the subsets' lengths, which sum to the dataset's length; or fractions, which sum to 1
        generator: the random generator

    Raises:
        ValueError: if the lengths do not sum to the dataset's length.
    """
    total = len(dataset)  # type: ignore[arg-type]
    if math.isclose(sum(lengths), 1) and sum(lengths) <= 1:
        if any(not 0 <= n <= 1 for n in lengths):
            raise ValueError(f"random_split: fractions must be between 0 and 1, got {list(lengths)}")
        sizes = [math.floor(total * n) for n in lengths]
        for i in range(total - sum(sizes)):
            sizes[i % len(sizes)] += 1
    else:
        sizes = [int(n) for n in lengths]
    if sum(sizes) != total:
        raise ValueError(f"random_split: lengths {list(lengths)} do not sum to the dataset's, which is {total}")
    order = _ops.randperm(total, generator=generator or default_generator()).tolist()
    ends = list(itertools.accumulate(sizes))
    return [Subset(dataset, order[end - n : end]) for end, n in zip(ends, sizes, strict=True)]
