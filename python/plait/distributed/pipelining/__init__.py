"""Pipelines: the layers of a model on several devices or ranks, and batches that pass through them in parts.

`plait.Pipeline` drives all devices from one thread. The classes with PyTorch's names, such as `Schedule1F1B`, are for
ranks, each of which has a `PipelineStage` or several. A `Schedule` is the order of the passes as data: it can be
written by hand, checked, simulated and drawn.
"""

from plait._public import publish as _publish
from plait.distributed.pipelining._pipe import *
from plait.distributed.pipelining._pipeline import Pipeline as Pipeline
from plait.distributed.pipelining._random import *
from plait.distributed.pipelining._schedule import *
from plait.distributed.pipelining.schedules import *
from plait.distributed.pipelining.stage import PipelineStage as PipelineStage

_publish(globals())
