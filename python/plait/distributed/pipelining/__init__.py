"""Pipeline parallelism: the stages of a model are on several devices or ranks, and batches become micro-batches.

`plait.Pipeline` drives all devices from one thread. The classes with PyTorch's names, such as `Schedule1F1B`, are for
ranks, each of which runs one or more `PipelineStage`s. A `Schedule` is the order of the passes as data: it can be
written by hand, validated, simulated and drawn.
"""

from plait._public import publish as _publish
from plait.distributed.pipelining._pipe import *
from plait.distributed.pipelining._pipeline import Pipeline as Pipeline
from plait.distributed.pipelining._random import *
from plait.distributed.pipelining._schedule import *
from plait.distributed.pipelining.schedules import *
from plait.distributed.pipelining.stage import PipelineStage as PipelineStage

_publish(globals())
