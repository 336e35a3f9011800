"""Datasets, samplers and data loaders, with PyTorch's names and arguments. Workers are threads, or processes."""

from plait._engine.missing_names import absent as _absent
from plait._public import publish as _publish
from plait.utils.data import _utils as _utils
from plait.utils.data import distributed as distributed
from plait.utils.data._collate import *
from plait.utils.data._worker import *
from plait.utils.data.dataloader import DataLoader as DataLoader
from plait.utils.data.dataset import *
from plait.utils.data.sampler import *

_publish(globals())


def __getattr__(name: str) -> object:
    raise _absent("data", "plait.utils.data", name)
