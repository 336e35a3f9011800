"""Runs replicas on several devices from one thread."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from plait._device import device as Device
from plait.nn.modules.module import Module
from plait.nn.parallel._inputs import tensors_in


def parallel_apply(
    modules: Sequence[Module], inputs: Sequence[Any], kwargs_tup: Sequence[Any] | None = None, devices: Any = None
) -> list[Any]:
    """Runs each module on its inputs and returns the outputs. Calls only enqueue work, so devices run at the same time.

    Args:
        modules: one for each device
        inputs: the arguments of each module; a module whose arguments are None does not run
        kwargs_tup: the keyword arguments of each module
        devices: the default device of each module; that of its inputs by default

    Raises:
        Exception: the exception of a module, with a note that names the replica.
    """
    given = [{}] * len(modules) if kwargs_tup is None else list(kwargs_tup)
    places = [None] * len(modules) if devices is None else list(devices)
    outputs = []
    for i, (module, args, kwargs, where) in enumerate(zip(modules, inputs, given, places, strict=True)):
        if args is None:
            continue
        on = next((t.device for t in tensors_in((args, kwargs))), None) if where is None else Device(where)
        try:
            with on or contextlib.nullcontext():
                outputs.append(module(*(args if isinstance(args, tuple | list) else (args,)), **(kwargs or {})))
        except Exception as error:
            error.add_note(f"raised in replica {i} on {on}")
            raise
    return outputs
