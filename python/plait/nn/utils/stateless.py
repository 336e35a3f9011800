"""Calling a module with other parameters than its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from plait._engine.param_swap import Place, swapped
from plait._tensor import Tensor
from plait.nn.modules.module import Module


def _reparametrize_module(
    module: Module,
    parameters_and_buffers: Mapping[str, Tensor],
    tie_weights: bool = False,
    strict: bool = False,
    stack_weights: bool = False,
) -> AbstractContextManager[None]:
    """Puts tensors in the places of a module's own, by dotted name, inside `with`."""
    every = {
        **dict(module.named_parameters(remove_duplicate=False)),
        **dict(module.named_buffers(remove_duplicate=False)),
    }
    unknown = [n for n in parameters_and_buffers if n not in every]
    if strict:
        missing = [n for n in every if n not in parameters_and_buffers]
        if unknown or missing:
            raise RuntimeError(f"functional_call: missing keys {missing}, unexpected keys {unknown}")
    wanted = {n: v for n, v in parameters_and_buffers.items() if n in every}
    if tie_weights:
        by_tensor = {id(every[n]): v for n, v in wanted.items()}
        for n, t in every.items():
            if n not in wanted and id(t) in by_tensor:
                wanted[n] = by_tensor[id(t)]
    places: list[Place] = []
    for name, value in wanted.items():
        where, _, last = name.rpartition(".")
        owner = module.get_submodule(where)
        places.append((owner._parameters if last in owner._parameters else owner._buffers, last, value))
    return swapped(places)


def functional_call(
    module: Module,
    parameter_and_buffer_dicts: Mapping[str, Tensor] | Sequence[Mapping[str, Tensor]],
    args: Any = None,
    kwargs: dict[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """Returns what a module computes with the given parameters and buffers in place of its own.

    Args:
        module: to call
        parameter_and_buffer_dicts: tensors by dotted name, in one mapping or several
        args: the argument, or a tuple of them
        kwargs: keyword arguments
        tie_weights: a given tensor also replaces others that the module shares with the one named
        strict: raise if names are missing, or are there that the module does not have
    """
    if isinstance(parameter_and_buffer_dicts, Mapping):
        values = dict(parameter_and_buffer_dicts)
    else:
        values = {}
        for part in parameter_and_buffer_dicts:
            twice = [k for k in part if k in values]
            if twice:
                raise ValueError(f"functional_call: {twice} are given twice")
            values.update(part)
    arguments = () if args is None else args if isinstance(args, tuple) else (args,)
    with _reparametrize_module(module, values, tie_weights, strict):
        return module(*arguments, **(kwargs or {}))
