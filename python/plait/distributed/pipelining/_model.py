"""Models as sequences of layers: balancing their costs over stages, and checking that stages fit."""

from __future__ import annotations

import time
from array import array
from collections.abc import Sequence
from typing import Any

from plait import _core
from plait._engine.runtime import address, check, wait_value
from plait._modes import no_grad
from plait._tensor import Tensor
from plait.distributed.pipelining._values import pack
from plait.nn.modules.container import Sequential
from plait.nn.modules.module import Module


def layers_of(model: Any) -> Sequential:
    """Returns a model as a sequence of layers.

    Raises:
        TypeError: if it is not a Sequential or a list of modules.
    """
    if isinstance(model, Sequential) and type(model).forward is Sequential.forward:
        return model
    if isinstance(model, list | tuple) and model and all(isinstance(m, Module) for m in model):
        return Sequential(*model)
    got = type(model).__name__
    if isinstance(model, list | tuple):
        got += f" of {', '.join(type(m).__name__ for m in model) or 'nothing'}"
    if isinstance(model, Module):
        got += ", whose own forward nothing traces: give its layers in order, or make a PipelineStage of each part"
    raise TypeError(f"Pipeline: want a Sequential, or a list of modules, got {got}")


def balance(costs: Sequence[float], parts: int) -> list[int]:
    """Returns the number of layers of each part, so that the most expensive part costs as little as possible."""
    values, out = array("d", costs), array("q", bytes(8 * max(parts, 1)))
    check(_core.bind_PipelineBalance(address(values), len(values), parts, address(out)))
    return list(out)


def estimate(model: Sequential) -> list[float]:
    """Estimates the layers' costs by their numbers of parameters."""
    return [1.0 + sum(p.numel() for p in layer.parameters()) for layer in model]


def measure(model: Sequential, example: Any, repeats: int = 3) -> list[float]:
    """Measures the seconds of each layer's forward pass on an example, the best of several runs."""
    seconds = []
    value = example
    with no_grad():
        for layer in model:
            best = float("inf")
            for _ in range(repeats + 1):
                _wait(value)
                start = time.perf_counter()
                out = layer(value)
                _wait(out)
                best = min(best, time.perf_counter() - start)
            seconds.append(best)
            value = out
    return seconds


def _wait(value: Any) -> None:
    for t in pack(value)[0]:
        wait_value(t._h)


def describe(value: Any) -> str:
    """Returns the shapes of the tensors in a nested value, for error messages."""
    return ", ".join(str(list(t.shape)) for t in pack(value)[0])


def try_stages(stages: Sequence[Module], *args: Any, **kwargs: Any) -> None:
    """Runs the stages once, without gradients. An error gets a note with the stage and its input shapes."""
    with no_grad():
        values: tuple[Any, ...] = args
        for i, stage in enumerate(stages):
            try:
                out = stage(*values, **kwargs)
            except Exception as error:
                gives = f", which gets {describe(values)} from stage {i - 1}" if i else ""
                error.add_note(f"raised in stage {i}{gives}")
                raise
            values = out if isinstance(out, tuple) else (out,)
            kwargs = {}


def tensors_of(stage: Sequence[Module]) -> list[Tensor]:
    """Returns the parameters and buffers of a stage's layers, each once."""
    seen: dict[int, Tensor] = {}
    for layer in stage:
        for t in (*layer.parameters(), *layer.buffers()):
            seen[id(t)] = t
    return list(seen.values())
