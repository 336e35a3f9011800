"""Schedules of learning rates. Their formulas are the engine's; rates go by way of an optimiser's `param_groups`."""

from plait._public import publish as _publish
from plait.optim.lr_scheduler._base import LRScheduler as LRScheduler
from plait.optim.lr_scheduler._combined import *
from plait.optim.lr_scheduler._cycles import *
from plait.optim.lr_scheduler._formulas import *
from plait.optim.lr_scheduler._functions import *
from plait.optim.lr_scheduler._plateau import ReduceLROnPlateau as ReduceLROnPlateau

_LRScheduler = LRScheduler  # its name in older programs

_publish(globals())
