"""Samplers: the order in which a `DataLoader` visits samples."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import Any, Generic, TypeVar

from plait import _ops
from plait._dtype import float64, int64
from plait._random import Generator
from plait._tensor import Tensor
from plait._tensors.arrays import as_tensor

__all__ = [
    "BatchSampler",
    "DistributedSampler",
    "RandomSampler",
    "Sampler",
    "SequentialSampler",
    "SubsetRandomSampler",
    "WeightedRandomSampler",
]

T_co = TypeVar("T_co", covariant=True)


def draw_seed(generator: Generator | None = None) -> int:
    """Draws a seed from a generator, the default one by default."""
    return int(_ops.randint(0, high=1 << 62, size=(1,), dtype=int64, generator=generator).item())


class Sampler(Generic[T_co]):
    """The base class of samplers: a subclass implements `__iter__` and, if the length is known, `__len__`."""

    def __init__(self, data_source: Sized | None = None) -> None:
        pass

    def __iter__(self) -> Iterator[T_co]:
        raise NotImplementedError(f"{type(self).__name__}.__iter__")


class SequentialSampler(Sampler[int]):
    """Visits samples in order."""

    def __init__(self, data_source: Sized) -> None:
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


class RandomSampler(Sampler[int]):
    """Visits samples in a random order.

    Args:
        data_source: the dataset
        replacement: whether samples are drawn with replacement
        num_samples: the number of samples to draw; the dataset's length by default
        generator: the random generator
    """

    def __init__(
        self,
        data_source: Sized,
        replacement: bool = False,
        num_samples: int | None = None,
        generator: Generator | None = None,
    ) -> None:
        if not isinstance(replacement, bool):
            raise TypeError(f"replacement should be a boolean value, but got replacement={replacement}")
        if num_samples is not None and (not isinstance(num_samples, int) or num_samples <= 0):
            raise ValueError(f"num_samples should be a positive integer value, but got num_samples={num_samples}")
        self.data_source = data_source
        self.replacement = replacement
        self._num_samples = num_samples
        self.generator = generator

    @property
    def num_samples(self) -> int:
        """The number of samples in a pass."""
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self) -> Iterator[int]:
        n = len(self.data_source)
        generator = self.generator or Generator().manual_seed(draw_seed())
        if self.replacement:
            for start in range(0, self.num_samples, 1024):
                count = min(1024, self.num_samples - start)
                yield from _ops.randint(0, high=n, size=(count,), dtype=int64, generator=generator).tolist()
            return
        left = self.num_samples
        while left > 0 and n > 0:
            yield from _ops.randperm(n, generator=generator).tolist()[:left]
            left -= n

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(Sampler[int]):
    """Visits the samples with the given indices in a random order."""

    def __init__(self, indices: Sequence[int], generator: Generator | None = None) -> None:
        self.indices = indices
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        for i in _ops.randperm(len(self.indices), generator=self.generator).tolist():
            yield self.indices[i]

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler[int]):
    """Draws samples with probabilities proportional to weights.

    Args:
        weights: the samples' weights, which need not sum to 1
        num_samples: the number of samples to draw
        replacement: whether samples are drawn with replacement
        generator: the random generator
    """

    weights: Tensor

    def __init__(
        self,
        weights: Sequence[float],
        num_samples: int,
        replacement: bool = True,
        generator: Generator | None = None,
    ) -> None:
        if not isinstance(num_samples, int) or isinstance(num_samples, bool) or num_samples <= 0:
            raise ValueError(f"num_samples should be a positive integer value, but got num_samples={num_samples}")
        if not isinstance(replacement, bool):
            raise ValueError(f"replacement should be a boolean value, but got replacement={replacement}")
        self.weights = as_tensor(weights, dtype=float64)
        if self.weights.dim() != 1:
            raise ValueError(f"weights should be a 1d sequence, got shape {list(self.weights.shape)}")
        self.num_samples = num_samples
        self.replacement = replacement
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        drawn = _ops.multinomial(self.weights, self.num_samples, self.replacement, generator=self.generator)
        return iter(drawn.tolist())

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler[list[int]]):
    """Groups the indices of another sampler into batches.

    Args:
        sampler: any iterable of indices
        batch_size: the number of indices in a batch
        drop_last: whether to drop a last batch that is smaller
    """

    def __init__(self, sampler: Iterable[Any], batch_size: int, drop_last: bool) -> None:
        if not isinstance(batch_size, int) or isinstance(batch_size, bool) or batch_size <= 0:
            raise ValueError(f"batch_size should be a positive integer value, but got batch_size={batch_size}")
        if not isinstance(drop_last, bool):
            raise ValueError(f"drop_last should be a boolean value, but got drop_last={drop_last}")
        self.sampler = sampler
        self.batch_size = batch_size
        self.drop_last = drop_last

    def __iter__(self) -> Iterator[list[Any]]:
        visit = iter(self.sampler)
        while batch := list(itertools.islice(visit, self.batch_size)):
            if len(batch) == self.batch_size or not self.drop_last:
                yield batch

    def __len__(self) -> int:
        n = len(self.sampler)  # type: ignore[arg-type]
        return n // self.batch_size if self.drop_last else math.ceil(n / self.batch_size)


class DistributedSampler(Sampler[int]):
    """Visits this rank's part of a dataset. All ranks' parts have the same length, which does not change.

    Args:
        dataset: a dataset with a length
        num_replicas: the number of ranks; that of the default group by default
        rank: this rank
        shuffle: whether to use a random order, which depends only on seed and epoch: see `set_epoch`
        seed: the seed of the order, the same on all ranks
        drop_last: whether to drop the last samples if the length is not divisible; otherwise the first ones repeat
    """

    def __init__(
        self,
        dataset: Sized,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        if num_replicas is None or rank is None:
            from plait import distributed  # type: ignore[attr-defined,unused-ignore]

            num_replicas = distributed.get_world_size() if num_replicas is None else num_replicas
            rank = distributed.get_rank() if rank is None else rank
        if not 0 <= rank < num_replicas:
            raise ValueError(f"Invalid rank {rank}, rank should be in the interval [0, {num_replicas - 1}]")
        self.dataset = dataset
        self.num_replicas = num_replicas
        self.rank = rank
        self.shuffle = shuffle
        self.seed = seed
        self.drop_last = drop_last
        self.epoch = 0
        n = len(dataset)
        self.num_samples = n // num_replicas if drop_last else math.ceil(n / num_replicas)
        self.total_size = self.num_samples * num_replicas

    def __iter__(self) -> Iterator[int]:
        n = len(self.dataset)
        if n < self.total_size if self.drop_last else n > self.total_size:
            raise RuntimeError(
                f"DistributedSampler: the dataset's length has changed, got {n} samples, want "
                f"{'at least' if self.drop_last else 'at most'} {self.total_size}; make a new sampler"
            )
        order = list(range(n))
        if self.shuffle:
            order = _ops.randperm(n, generator=Generator().manual_seed(self.seed + self.epoch)).tolist()
        if order:
            order = list(itertools.islice(itertools.cycle(order), self.total_size))
        return iter(order[self.rank : self.total_size : self.num_replicas])

    def __len__(self) -> int:
        return self.num_samples

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch, so that each epoch has another order."""
        self.epoch = epoch
