"""Modules that train on many devices."""

from plait.nn.parallel.data_parallel import DataParallel, data_parallel
from plait.nn.parallel.distributed import DistributedDataParallel
from plait.nn.parallel.modes import (
    Asynchronous,
    BoundedStaleness,
    Synchronous,
    asynchronous,
    bounded_staleness,
    synchronous,
)
from plait.nn.parallel.parallel_apply import parallel_apply
from plait.nn.parallel.replicate import replicate
from plait.nn.parallel.scatter_gather import gather, scatter, scatter_kwargs

__all__ = [
    "Asynchronous",
    "BoundedStaleness",
    "DataParallel",
    "DistributedDataParallel",
    "Synchronous",
    "asynchronous",
    "bounded_staleness",
    "data_parallel",
    "gather",
    "parallel_apply",
    "replicate",
    "scatter",
    "scatter_kwargs",
    "synchronous",
]
