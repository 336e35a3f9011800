"""Splits models into stages, for the schedules of ranks."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Sequence
from enum import Enum
from typing import Any

from plait._device import DeviceLike
from plait.distributed._groups import ProcessGroup
from plait.distributed.pipelining._model import layers_of, try_stages
from plait.distributed.pipelining.stage import PipelineStage
from plait.nn.modules.container import Sequential
from plait.nn.modules.module import Module, _indent, describe

__all__ = ["Pipe", "SplitPoint", "pipeline"]


class SplitPoint(Enum):
    """Where a model is split: before a layer, or after it."""

    BEGINNING = 1
    END = 2


class Pipe:
    """A model that `pipeline` has split into stages. The stages share its modules, whose parameters keep their names.

    Attributes:
        num_stages: the number of stages
    """

    def __init__(self, stages: Sequence[Module]) -> None:
        self._stages = list(stages)
        self.num_stages = len(self._stages)

    def get_stage_module(self, stage_idx: int) -> Module:
        """Returns a stage's part of the model."""
        if not 0 <= stage_idx < self.num_stages:
            raise ValueError(f"get_stage_module: invalid stage index {stage_idx}, there are {self.num_stages}")
        return self._stages[stage_idx]

    def build_stage(self, stage_index: int, device: DeviceLike, group: ProcessGroup | None = None) -> PipelineStage:
        """Creates a stage on a device, for the schedules of ranks. Parameters of several stages are tied."""
        module = self.get_stage_module(stage_index)
        users: dict[int, list[int]] = {}
        for i, stage in enumerate(self._stages):
            for p in stage.parameters():
                users.setdefault(id(p), []).append(i)
        names = {id(p): name for name, p in module.named_parameters()}
        # In the order of the model, which is the same on every rank.
        tied = {names[i]: stages for i, stages in users.items() if i in names and len(stages) > 1}
        return PipelineStage(module, stage_index, self.num_stages, device, group=group, tied=tied)

    def info(self) -> dict[str, Any]:
        """Returns the number of stages and the names of their parameters."""
        return {
            "num_stages": self.num_stages,
            "parameters": [[n for n, _ in s.named_parameters()] for s in self._stages],
        }

    def __repr__(self) -> str:
        return describe("Pipe", "", [_indent(f"(stage {i}): {s!r}") for i, s in enumerate(self._stages)])


def pipeline(
    module: Any,
    mb_args: tuple[Any, ...],
    mb_kwargs: dict[str, Any] | None = None,
    split_spec: dict[str, SplitPoint] | None = None,
    split_policy: Any = None,
) -> Pipe:
    """Splits a model into stages, and runs them once on a micro-batch, without gradients, to check that they fit.

    Args:
        module: a `Sequential`, which may contain others
        mb_args: the arguments of the first layer, for one micro-batch
        mb_kwargs: its keyword arguments
        split_spec: the points to split at, by name of layer, such as "2", or "blocks.2" in an inner `Sequential`
        split_policy: called with the model, returns the number of layers of each stage

    Raises:
        ValueError: for an unknown layer, or if a stage does not accept the output of the one before.
        TypeError: if the model, or the parent of a layer to split at, is not a `Sequential`.
    """
    model = layers_of(module)
    if not isinstance(mb_args, list | tuple):
        raise TypeError(f"pipeline: want mb_args to be a tuple of arguments, got {type(mb_args).__name__}")
    if split_spec is not None and split_policy is not None:
        raise ValueError("pipeline: want one of split_spec and split_policy, got both")
    if split_policy is not None:
        sizes = [int(n) for n in split_policy(model)]
        if sum(sizes) != len(model) or min(sizes, default=0) < 1:
            raise ValueError(f"pipeline: the policy gave stages of {sizes} layers, the model has {len(model)}")
        ends = list(itertools.accumulate(sizes))
        stages: list[Module] = [model[end - n : end] for n, end in zip(sizes, ends, strict=True)]
    else:
        points = {}
        for name, point in (split_spec or {}).items():
            if not isinstance(point, SplitPoint):
                raise TypeError(f"pipeline: want a SplitPoint for {name!r}, got {point!r}")
            points[tuple(name.split("."))] = point
        stages = [part for part in _cut(model, points, "") if len(part)]
    pipe = Pipe(stages)
    try_stages(pipe._stages, *mb_args, **(mb_kwargs or {}))
    return pipe


def _cut(layers: Sequential, points: dict[tuple[str, ...], SplitPoint], prefix: str) -> list[Sequential]:
    """Splits a sequence at the given points. The first and the last part may be empty."""
    parts: list[dict[str, Module]] = [{}]
    for name in {path[0]: None for path in points}:
        if name not in layers._modules:
            raise ValueError(
                f"pipeline: the model has no layer {prefix + name!r} to split at, only "
                + ", ".join(prefix + n for n in layers._modules)
            )
    for name, layer in layers._modules.items():
        here = points.get((name,))
        below = {path[1:]: point for path, point in points.items() if path[0] == name and len(path) > 1}
        inner: list[Any] = [layer]
        if below:
            if not isinstance(layer, Sequential) or type(layer).forward is not Sequential.forward:
                raise TypeError(
                    f"pipeline: {prefix}{name} is a {type(layer).__name__}, want a Sequential to be split below it"
                )
            inner = _cut(layer, below, f"{prefix}{name}.")
        if here is SplitPoint.BEGINNING:
            parts.append({})
        for i, part in enumerate(inner):
            if i:
                parts.append({})
            if not below or len(part):
                parts[-1][name] = part
        if here is SplitPoint.END:
            parts.append({})
    made = []
    for modules in parts:
        made.append(Sequential(OrderedDict(modules)))
        made[-1].training = layers.training
    return made
