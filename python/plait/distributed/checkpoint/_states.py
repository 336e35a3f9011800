"""What is saved of modules, optimisers and other objects, and how they take it back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from plait import _ops
from plait._tensor import Tensor
from plait.distributed._placement import place, placed_like, placement_of
from plait.distributed.checkpoint.metadata import Metadata
from plait.nn.modules.module import Module
from plait.nn.parallel.data_parallel import DataParallel
from plait.nn.parallel.distributed import DistributedDataParallel
from plait.optim.optimizer import Optimizer


def plain_names(model: Module) -> Callable[[str], str]:
    """Returns a function from names of a model's state to those without the wrappers of parallel training."""
    wrapped = [
        f"{name}.module." if name else "module."
        for name, m in model.named_modules()
        if isinstance(m, DataParallel | DistributedDataParallel)
    ]

    def plain(name: str) -> str:
        for prefix in reversed(wrapped):  # inner ones first
            if name.startswith(prefix):
                name = prefix.removesuffix("module.") + name[len(prefix) :]
        return name

    return plain


def model_state(model: Module) -> dict[str, Any]:
    """Returns a model's state under plain names: tensors that share its memory, and say where they belong."""
    plain = plain_names(model)
    return {
        plain(name): place(v.detach(), placement_of(v)) if isinstance(v, Tensor) else v
        for name, v in model.state_dict(keep_vars=True).items()
    }


def optimizer_state(optimizer: Optimizer) -> dict[str, Any]:
    """Returns an optimiser's state; tensors of a parameter's shape belong where that does."""
    state = optimizer.state_dict()
    params = parameters(optimizer)
    state["state"] = States(
        {
            n: {k: _placed(v, params.get(n)) for k, v in s.items()} if isinstance(s, dict) else s
            for n, s in state["state"].items()
        },
        params,
    )
    return state


def _placed(value: Any, param: Tensor | None) -> Any:
    if param is None or not isinstance(value, Tensor) or placement_of(param) is None:
        return value
    return placed_like(value.detach(), param)


def parameters(optimizer: Optimizer) -> dict[Any, Tensor]:
    """Returns an optimiser's parameters by number."""
    return dict(enumerate(p for g in optimizer.param_groups for p in g["params"]))


class States(dict[Any, Any]):
    """What an optimiser keeps, by parameter.

    It knows the parameters, so that loading can make what is not there yet.
    """

    def __init__(self, states: dict[Any, Any], params: dict[Any, Tensor]) -> None:
        super().__init__(states)
        self.params = params

    def make(self, name: str, stored: Metadata) -> None:
        """Makes what a checkpoint holds under `name` and is not here."""
        keys = {str(k): k for k in self.params}
        for entry, info in stored.tensors.items():
            key, _, field = entry.removeprefix(name + ".").rpartition(".")
            if entry.startswith(name + ".") and key in keys and field not in self.get(keys[key], {}):
                self.setdefault(keys[key], {})[field] = self.empty(keys[key], info.size, info.dtype)
        for entry, value in stored.values.items():
            key, _, field = entry.removeprefix(name + ".").rpartition(".")
            if entry.startswith(name + ".") and key in keys:
                self.setdefault(keys[key], {}).setdefault(field, value)

    def empty(self, key: Any, shape: Sequence[int], dtype: Any) -> Tensor:
        """Returns a tensor for the rank's part of what belongs to a parameter and is of the given shape as a whole."""
        param = self.params[key]
        placement = placement_of(param)
        if placement is None or tuple(shape) != placement.shape:
            return _ops.empty(shape, dtype=dtype, device=param.device)
        return place(_ops.empty(param.shape, dtype=dtype, device=param.device), placement)


def state_of(obj: Any) -> Any:
    """Returns what is saved of an object that saves and loads itself."""
    if isinstance(obj, Module):
        return model_state(obj)
    if isinstance(obj, Optimizer):
        return optimizer_state(obj)
    return obj.state_dict()


def give(obj: Any, state: Any) -> None:
    """Gives an object the state that was loaded for it; a module's tensors have been written in place."""
    if not isinstance(obj, Module):
        obj.load_state_dict(state)
        return
    plain = plain_names(obj)
    rest = {
        name: state[plain(name)]
        for name in obj.state_dict(keep_vars=True)
        if not isinstance(state[plain(name)], Tensor)
    }
    if rest:
        obj.load_state_dict(rest, strict=False)
