"""Datasets, samplers and loaders. Names and arguments are PyTorch's; workers are threads."""

from plait._engine.missing_names import absent as _absent
from plait.utils.data import _utils as _utils
from plait.utils.data import distributed as distributed
from plait.utils.data._collate import default_collate, default_convert
from plait.utils.data._worker import WorkerInfo, get_worker_info
from plait.utils.data.dataloader import DataLoader
from plait.utils.data.dataset import (
    ChainDataset,
    ConcatDataset,
    Dataset,
    IterableDataset,
    StackDataset,
    Subset,
    TensorDataset,
    random_split,
)
from plait.utils.data.sampler import (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

__all__ = [
    "BatchSampler",
    "ChainDataset",
    "ConcatDataset",
    "DataLoader",
    "Dataset",
    "DistributedSampler",
    "IterableDataset",
    "RandomSampler",
    "Sampler",
    "SequentialSampler",
    "StackDataset",
    "Subset",
    "SubsetRandomSampler",
    "TensorDataset",
    "WeightedRandomSampler",
    "WorkerInfo",
    "default_collate",
    "default_convert",
    "get_worker_info",
    "random_split",
]


def __getattr__(name: str) -> object:
    raise _absent("data", "plait.utils.data", name)
