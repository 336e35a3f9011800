"""Schedules of learning rates. Their formulas are the engine's; rates go by way of an optimiser's `param_groups`."""

from plait.optim.lr_scheduler._base import LRScheduler
from plait.optim.lr_scheduler._combined import ChainedScheduler, SequentialLR
from plait.optim.lr_scheduler._cycles import CyclicLR, OneCycleLR
from plait.optim.lr_scheduler._formulas import (
    ConstantLR,
    CosineAnnealingLR,
    CosineAnnealingWarmRestarts,
    ExponentialLR,
    LinearLR,
    MultiStepLR,
    PolynomialLR,
    StepLR,
)
from plait.optim.lr_scheduler._functions import LambdaLR, MultiplicativeLR
from plait.optim.lr_scheduler._plateau import ReduceLROnPlateau

_LRScheduler = LRScheduler  # its name in older programs

__all__ = [
    "ChainedScheduler",
    "ConstantLR",
    "CosineAnnealingLR",
    "CosineAnnealingWarmRestarts",
    "CyclicLR",
    "ExponentialLR",
    "LRScheduler",
    "LambdaLR",
    "LinearLR",
    "MultiStepLR",
    "MultiplicativeLR",
    "OneCycleLR",
    "PolynomialLR",
    "ReduceLROnPlateau",
    "SequentialLR",
    "StepLR",
]
