"""`DataLoader`: iterates over batches of a dataset, which workers prepare ahead."""

from __future__ import annotations

import itertools
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from plait._random import Generator
from plait._tensors.arrays import tensor
from plait.utils.data._collate import CollateFn, default_collate, default_convert
from plait.utils.data._worker import End, Fetch, Worker, WorkerInfo
from plait.utils.data.dataset import Dataset, IterableDataset, TensorDataset
from plait.utils.data.sampler import BatchSampler, RandomSampler, Sampler, SequentialSampler, draw_seed

if TYPE_CHECKING:
    from multiprocessing.context import BaseContext

T_co = TypeVar("T_co", covariant=True)


class _DatasetKind:
    Map = 0
    Iterable = 1


class DataLoader(Generic[T_co]):
    """Iterates over a dataset in batches. Each iteration is a new pass, with its own random order.

    Workers are threads of this process: tensor operations run in parallel, Python code does not. With
    `multiprocessing_context="spawn"` they are processes, in which Python code runs in parallel too. Those get the
    dataset, `collate_fn` and `worker_init_fn` pickled, and send tensors and arrays back through shared memory; a script
    that starts them does so below `if __name__ == "__main__":`. The order of batches and plait's random numbers in a
    worker depend only on the seed. So do those of `random` and NumPy in a process; threads share the process's.

    Args:
        dataset: a map-style dataset, or an `IterableDataset`
        batch_size: the number of samples in a batch; None returns single samples
        shuffle: whether to visit samples in a random order
        sampler: an iterable of indices, instead of `shuffle`
        batch_sampler: an iterable of lists of indices, instead of `batch_size`, `shuffle`, `sampler` and `drop_last`
        num_workers: the number of workers that prepare batches; with 0 the reader prepares them
        collate_fn: makes a batch of a list of samples
        pin_memory, pin_memory_device: have no effect
        drop_last: whether to drop a last batch that is smaller
        timeout: seconds after which waiting for a batch raises an error; 0 means no limit
        worker_init_fn: called first in each worker, with the worker's number
        multiprocessing_context: None for threads; "spawn" for processes, or such a context of multiprocessing's
        generator: the random generator of the order and of the workers' seeds
        prefetch_factor: the number of batches that each worker prepares ahead; 2 by default
        persistent_workers: whether to keep the workers between passes
        in_order: has no effect: batches always come in order
    """

    def __init__(
        self,
        dataset: Dataset[T_co],
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Sampler[Any] | Iterable[Any] | None = None,
        batch_sampler: Sampler[list[Any]] | Iterable[list[Any]] | None = None,
        num_workers: int = 0,
        collate_fn: CollateFn | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: str | BaseContext | None = None,
        generator: Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
    ) -> None:
        if num_workers < 0:
            raise ValueError(f"num_workers must be at least 0, got {num_workers}")
        if timeout < 0:
            raise ValueError(f"timeout must be at least 0, got {timeout}")
        if prefetch_factor is not None and (num_workers == 0 or prefetch_factor < 1):
            raise ValueError(
                f"prefetch_factor wants workers and at least 1, got {prefetch_factor} with {num_workers} workers"
            )
        if persistent_workers and num_workers == 0:
            raise ValueError("persistent_workers option needs num_workers > 0")
        iterable = isinstance(dataset, IterableDataset)
        if iterable and (shuffle or sampler is not None or batch_sampler is not None):
            raise ValueError("an IterableDataset has an order of its own: want no shuffle, sampler or batch_sampler")
        if sampler is not None and shuffle:
            raise ValueError("sampler option is mutually exclusive with shuffle")
        if batch_sampler is not None:
            if batch_size != 1 or shuffle or sampler is not None or drop_last:
                raise ValueError(
                    "batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, and drop_last"
                )
            batch_size = None
        elif batch_size is None and drop_last:
            raise ValueError("batch_size=None makes no batches, of which drop_last could leave one out")
        if batch_size is not None and (not isinstance(batch_size, int) or batch_size < 1):
            raise ValueError(f"batch_size must be a positive integer, got {batch_size}")
        self._iterable = iterable
        self._context: Any = None
        self.dataset = dataset
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.num_workers = num_workers
        self.pin_memory = pin_memory
        self.pin_memory_device = pin_memory_device
        self.timeout = timeout
        self.worker_init_fn = worker_init_fn
        self.multiprocessing_context = multiprocessing_context
        self.generator = generator
        self.prefetch_factor = 2 if prefetch_factor is None and num_workers else prefetch_factor
        self.persistent_workers = persistent_workers
        self.in_order = in_order
        if sampler is None and not iterable:
            sampler = RandomSampler(dataset, generator=generator) if shuffle else SequentialSampler(dataset)  # type: ignore[arg-type]
        self.sampler = sampler
        if batch_sampler is None and batch_size is not None and not iterable:
            assert sampler is not None
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.batch_sampler = batch_sampler
        batched = batch_sampler is not None or batch_size is not None
        if collate_fn is None:
            collate_fn = default_collate if batched else default_convert
        self.collate_fn = collate_fn
        self._workers: list[Any] = []
        self._starting = threading.Lock()

    @property
    def multiprocessing_context(self) -> BaseContext | None:
        """What starts the workers; None if they are threads."""
        return self._context

    @multiprocessing_context.setter
    def multiprocessing_context(self, wanted: str | BaseContext | None) -> None:
        if wanted is not None:
            from plait.utils.data._process import checked_context

            wanted = checked_context(wanted, self.num_workers)
        self._context = wanted

    def __iter__(self) -> Iterator[Any]:
        return self._get_iterator()

    def _get_iterator(self) -> Any:
        """Returns an iterator over a new pass; subclasses return one of their own around it."""
        return _MultiProcessingDataLoaderIter(self) if self.num_workers else _SingleProcessDataLoaderIter(self)

    @property
    def _dataset_kind(self) -> int:
        return _DatasetKind.Iterable if self._iterable else _DatasetKind.Map

    @property
    def _auto_collation(self) -> bool:
        return self.batch_sampler is not None or (self._iterable and self.batch_size is not None)

    @property
    def _index_sampler(self) -> Any:
        """What gives the requests of a pass: an index or a list of indices for each batch."""
        if self._iterable:
            return itertools.repeat(None)
        return self.sampler if self.batch_sampler is None else self.batch_sampler

    def __len__(self) -> int:
        if self.batch_sampler is not None:
            return len(self.batch_sampler)  # type: ignore[arg-type]
        if not self._iterable:
            return len(self.sampler)  # type: ignore[arg-type]
        n = len(self.dataset)  # type: ignore[arg-type]
        if self.batch_size is None:
            return n
        return n // self.batch_size if self.drop_last else -(-n // self.batch_size)

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k not in ("_workers", "_starting")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._workers, self._starting = [], threading.Lock()

    def _fetcher(self) -> Fetch:
        """Returns the function that makes a batch. It has no reference to the loader."""
        if self._iterable:
            return _FromIterable(self.collate_fn, self.batch_size, self.drop_last)
        return _ByIndex(self.collate_fn) if self.batch_sampler is None else _ByIndices(self.collate_fn)

    def _start_workers(self) -> list[Any]:
        with self._starting:
            seed = draw_seed(self.generator)
            if self._workers and all(w.alive() for w in self._workers):
                return self._workers
            infos = [WorkerInfo(i, self.num_workers, seed + i, self.dataset) for i in range(self.num_workers)]
            workers: list[Any]
            if self._context is None:
                workers = [Worker(i, self._fetcher(), self.worker_init_fn) for i in infos]
            else:
                from plait.utils.data._process import start_workers

                workers = start_workers(self._context, infos, self._fetcher(), self.worker_init_fn)
            if self.persistent_workers:
                self._workers = workers
            return workers


@dataclass
class _FromIterable:
    """Makes a batch of the next samples of an iterable dataset."""

    collate: CollateFn
    size: int | None
    drop: bool

    def __call__(self, _dataset: Any, samples: Iterator[Any] | None, _what: Any) -> Any:
        assert samples is not None
        if self.size is None:
            for sample in samples:
                return self.collate(sample)
            return End
        batch = list(itertools.islice(samples, self.size))
        return End if not batch or (self.drop and len(batch) < self.size) else self.collate(batch)


@dataclass
class _ByIndex:
    """Converts the sample at an index."""

    collate: CollateFn

    def __call__(self, dataset: Any, _samples: Any, what: Any) -> Any:
        return self.collate(dataset[what])


@dataclass
class _ByIndices:
    """Makes a batch of the samples at indices."""

    collate: CollateFn

    def __call__(self, dataset: Any, _samples: Any, what: Any) -> Any:
        if type(dataset) is TensorDataset and self.collate is default_collate:  # faster, without a tensor per sample
            places = tensor(what)
            return [t[places] for t in dataset.tensors]
        many = getattr(dataset, "__getitems__", None)
        return self.collate(many(what) if callable(many) else [dataset[i] for i in what])


class _BaseDataLoaderIter:
    """A pass over a loader's batches."""

    _loader: DataLoader[Any]

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        raise NotImplementedError

    def __len__(self) -> int:
        return len(self._loader)

    def __getstate__(self) -> Any:
        raise NotImplementedError(f"{type(self).__name__} cannot be pickled: it is in the middle of a pass")


class _SingleProcessDataLoaderIter(_BaseDataLoaderIter):
    """A pass without workers: the reader makes the batches. Threads that share it make one at a time."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        draw_seed(loader.generator)  # as with workers, so that the order does not depend on their number
        self._loader = loader
        self._fetch = loader._fetcher()
        self._requests = iter(loader._index_sampler)
        self._samples = iter(loader.dataset) if isinstance(loader.dataset, IterableDataset) else None
        self._turn = threading.Lock()

    def __next__(self) -> Any:
        with self._turn:
            batch = self._fetch(self._loader.dataset, self._samples, next(self._requests))
            if batch is End:
                self._requests = iter(())
                raise StopIteration
            return batch


class _MultiProcessingDataLoaderIter(_BaseDataLoaderIter):
    """A pass with workers. Threads that share it read one at a time."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        self._loader = loader
        self._reading = threading.Lock()
        self._workers = loader._start_workers()
        self._shares = [w.share() for w in self._workers]
        self._requests: Iterator[Any] = iter(loader._index_sampler)
        self._waiting: deque[int] = deque()  # the workers of outstanding requests, in order
        self._ended: set[int] = set()
        self._turn = 0
        self._done = False
        assert loader.prefetch_factor is not None
        for _ in range(loader.prefetch_factor * len(self._workers)):
            self._request_next()

    def _request_next(self) -> None:
        """Requests a batch from the next worker that has samples left."""
        if len(self._ended) == len(self._workers):
            return
        try:
            what = next(self._requests)
        except StopIteration:
            return
        while self._turn in self._ended:
            self._turn = (self._turn + 1) % len(self._workers)
        self._shares[self._turn].request(what)
        self._waiting.append(self._turn)
        self._turn = (self._turn + 1) % len(self._workers)

    def __getattr__(self, name: str) -> Any:
        if name == "__del__":  # libraries call it; as a method, Python would, and could lose Ctrl-C there
            return self._shutdown_workers
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def __next__(self) -> Any:
        with self._reading:
            return self._next()

    def _next(self) -> Any:
        while self._waiting:
            which = self._waiting[0]
            try:
                batch, error = self._shares[which].result(self._loader.timeout)
            except queue.Empty:
                seconds = self._loader.timeout
                raise RuntimeError(f"DataLoader: worker {which} made no batch in {seconds} seconds") from None
            self._waiting.popleft()
            if batch is End:
                self._ended.add(which)
                self._request_next()
                continue
            self._request_next()
            if error is not None:
                try:
                    raise error
                finally:
                    del error  # or its traceback would keep this frame, and the frame it
            return batch
        self._shutdown_workers()
        raise StopIteration

    def _shutdown_workers(self) -> None:
        if not self._done and not self._loader.persistent_workers:
            for w in self._workers:
                w.stop()
        self._done = True
