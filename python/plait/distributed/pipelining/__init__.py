"""Pipelines: the layers of a model on several devices or ranks, and batches that pass through them in parts.

`plait.Pipeline` drives all devices from one thread. The classes with PyTorch's names, such as `Schedule1F1B`, are for
ranks, each of which has a `PipelineStage` or several. A `Schedule` is the order of the passes as data: it can be
written by hand, checked, simulated and drawn.
"""

from plait.distributed.pipelining._pipe import Pipe, SplitPoint, pipeline
from plait.distributed.pipelining._pipeline import Pipeline
from plait.distributed.pipelining._random import Fork, forks
from plait.distributed.pipelining._schedule import Picture, Schedule, Span, Timeline, schedule_names
from plait.distributed.pipelining.schedules import (
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
    ScheduleLoopedBFS,
    ScheduleZBVZeroBubble,
    get_schedule_class,
)
from plait.distributed.pipelining.stage import PipelineStage

__all__ = [
    "Fork",
    "Picture",
    "Pipe",
    "Pipeline",
    "PipelineStage",
    "Schedule",
    "Schedule1F1B",
    "ScheduleGPipe",
    "ScheduleInterleaved1F1B",
    "ScheduleInterleavedZeroBubble",
    "ScheduleLoopedBFS",
    "ScheduleZBVZeroBubble",
    "Span",
    "SplitPoint",
    "Timeline",
    "forks",
    "get_schedule_class",
    "pipeline",
    "schedule_names",
]
