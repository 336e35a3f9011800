"""What is saved of modules, optimisers and other objects, and how they take it back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from plait import _ops
from plait._errors import CheckpointError
from plait._tensor import Tensor
from plait.distributed._placement import copy_placement, local_part, placement_of, reshard, set_placement
from plait.distributed.checkpoint.metadata import Metadata
from plait.nn.modules._state import varies, vary
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
    for p in model.parameters():
        reshard(p)
    return {
        plain(name): vary(set_placement(v.detach(), placement_of(v)), varies(v)) if isinstance(v, Tensor) else v
        for name, v in model.state_dict(keep_vars=True).items()
    }


def optimizer_state(optimizer: Optimizer) -> dict[str, Any]:
    """Returns an optimiser's state; tensors of a parameter's shape belong where that does."""
    params = parameters(optimizer)
    for p in params.values():
        reshard(p)
    state = optimizer.state_dict()
    numbers = {"step", getattr(optimizer, "_count", "step"), *getattr(optimizer, "_numbers", ())}
    states = States({}, params, numbers)
    for n, kept in state["state"].items():
        states[n] = states.placed(n, kept)
    state["state"] = states
    return state


def parameters(optimizer: Optimizer) -> dict[Any, Tensor]:
    """Returns an optimiser's parameters by number."""
    return dict(enumerate(p for g in optimizer.param_groups for p in g["params"]))


class States(dict[Any, Any]):
    """What an optimiser keeps, by parameter.

    It knows the parameters, so that loading can make what is not there yet.

    Args:
        states: what there is
        params: the parameters, by the same keys
        numbers: the names of states that are one number, whatever the parameter is
    """

    def __init__(self, states: dict[Any, Any], params: dict[Any, Tensor], numbers: set[str]) -> None:
        super().__init__(states)
        self.params, self.numbers = params, numbers

    def placed(self, key: Any, kept: Any) -> Any:
        """Returns a copy of what is kept for a parameter, with tensors of its shape belonging where it does.

        The optimiser's own dict would change under whoever has it, such as back to what it was before a load.
        """
        param = self.params.get(key)
        if not isinstance(kept, dict):
            return kept
        if param is None or placement_of(param) is None:
            return dict(kept)
        return {
            k: copy_placement(v.detach(), param) if isinstance(v, Tensor) and k not in self.numbers else v
            for k, v in kept.items()
        }

    def local_part(self, key: Any, kept: dict[str, Any]) -> dict[str, Any]:
        """Returns what is kept for a parameter, with this rank's parts of whole tensors."""
        return {k: v if k in self.numbers else local_part(v, self.params[key]) for k, v in kept.items()}

    def make(self, name: str, stored: Metadata) -> None:
        """Makes what a checkpoint holds under `name` and is not here; lists, such as of vectors, as long as there."""
        keys = {str(k): k for k in self.params}
        lists: dict[tuple[Any, str], dict[int, Tensor]] = {}
        for entry, info in stored.tensors.items():
            key, field = _split(entry.removeprefix(name + "."), keys)
            if not entry.startswith(name + ".") or key is None:
                continue
            if info.problem:
                raise CheckpointError(info.problem)  # before there is room for what may have any size
            field, _, index = field.partition(".")
            if index.isdecimal():
                lists.setdefault((key, field), {})[int(index)] = self.empty(key, field, info.size, info.dtype)
            elif not isinstance(self.get(key, {}).get(field), Tensor):
                self.setdefault(key, {})[field] = self.empty(key, field, info.size, info.dtype)
        for (key, field), items in lists.items():
            self.setdefault(key, {})[field] = [items[i] for i in sorted(items)]
        for entry, value in stored.values.items():
            key, field = _split(entry.removeprefix(name + "."), keys)
            if entry.startswith(name + ".") and key is not None and (key, field) not in lists:
                self.setdefault(key, {})[field] = value

    def empty(self, key: Any, name: str, shape: Sequence[int], dtype: Any) -> Tensor:
        """Returns a tensor for the rank's part of a parameter's state that has the given shape as a whole."""
        param = self.params[key]
        placement = None if name in self.numbers else placement_of(param)
        if placement is None or tuple(shape) != placement.shape:
            return _ops.empty(shape, dtype=dtype, device=param.device)
        return set_placement(_ops.empty(param.shape, dtype=dtype, device=param.device), placement)


def _split(entry: str, keys: dict[str, Any]) -> tuple[Any, str]:
    """Returns the parameter and the field that an entry like "0.weight.old_dirs.3" is of; None for another's.

    Both may hold dots: the longest name counts.
    """
    at = len(entry)
    while (at := entry.rfind(".", 0, at)) > 0:
        if entry[:at] in keys:
            return keys[entry[:at]], entry[at + 1 :]
    return None, ""


class FlatStates(dict[str, Any]):
    """An optimiser's state without nested dicts: "state.0.weight.exp_avg", "param_groups.0.weight.lr".

    Every parameter has its group's values under its name, so that ranks with other parameters can save theirs together.
    """

    def __init__(self, states: dict[Any, Any], groups: list[dict[str, Any]]) -> None:
        super().__init__()
        self.states = states
        for group in groups:
            for name in group["params"]:
                self.update({f"param_groups.{name}.{k}": v for k, v in group.items() if k != "params"})
        self._spread()

    def _spread(self) -> None:
        for name, kept in self.states.items():
            self.update({f"state.{name}.{k}": v for k, v in kept.items()})

    def make(self, name: str, stored: Metadata) -> None:
        """Makes what a checkpoint holds under `name` and is not here."""
        if isinstance(self.states, States):
            self.states.make(f"{name}.state" if name else "state", stored)
            self._spread()


def nested(flat: dict[str, Any], groups: list[list[str]]) -> dict[str, Any]:
    """Returns a state like that of `FlatStates` with "state" and "param_groups", for groups of parameters."""
    tables: dict[str, dict[str, dict[str, Any]]] = {"state": {}, "param_groups": {}}
    for key, value in flat.items():
        table, _, rest = key.partition(".")
        name, _, field = rest.rpartition(".")
        if table not in tables:
            raise ValueError(f"set_optimizer_state_dict: {key!r} is no entry of an optimiser's state")
        tables[table].setdefault(name, {})[field] = value
    made = []
    for params in groups:
        if params:
            values = [tables["param_groups"].get(name) for name in params]
            if any(v is None or v != values[0] for v in values):
                raise ValueError(f"set_optimizer_state_dict: {params} are one group, the state has others: {values}")
            made.append({**(values[0] or {}), "params": params})
    return {"state": tables["state"], "param_groups": made}


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
