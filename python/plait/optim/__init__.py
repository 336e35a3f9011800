"""Optimisers: `step` changes parameters by their gradients. Names and arguments are PyTorch's."""

from typing import Any

from plait._engine.missing_names import absent as _absent
from plait.optim.adam import Adam, Adamax, AdamW, NAdam, RAdam
from plait.optim.adaptive import ASGD, Adadelta, Adagrad, RMSprop, Rprop
from plait.optim.factored import Adafactor, Muon
from plait.optim.lbfgs import LBFGS
from plait.optim.optimizer import Optimizer
from plait.optim.sgd import SGD, Lion
from plait.optim.sparse_adam import SparseAdam

__all__ = [
    "ASGD",
    "LBFGS",
    "SGD",
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "Lion",
    "Muon",
    "NAdam",
    "Optimizer",
    "RAdam",
    "RMSprop",
    "Rprop",
    "SparseAdam",
]


def __getattr__(name: str) -> Any:
    """Imports a submodule at its first use, as PyTorch's are there without an import of their own."""
    if name in ("lr_scheduler", "swa_utils"):
        import importlib

        return importlib.import_module(f"{__name__}.{name}")
    raise _absent("optim", "plait.optim", name)
