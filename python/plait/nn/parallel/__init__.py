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

__all__ = [
    "Asynchronous",
    "BoundedStaleness",
    "DataParallel",
    "DistributedDataParallel",
    "Synchronous",
    "asynchronous",
    "bounded_staleness",
    "data_parallel",
    "synchronous",
]
