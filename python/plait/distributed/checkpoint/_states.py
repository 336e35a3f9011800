"""The states of modules, optimisers and other objects that checkpoints hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from plait import _ops
from plait._errors import CheckpointError
from plait._tensor import Tensor
from plait.distributed.checkpoint.metadata import Metadata
from plait.distributed.tensor._alike import empty_like, laid_like
from plait.distributed.tensor._dtensor import is_distributed
from plait.nn.modules._state import varies, vary
from plait.nn.modules.module import Module
from plait.nn.parallel.data_parallel import DataParallel
from plait.nn.parallel.distributed import DistributedDataParallel
from plait.optim.optimizer import Optimizer


def unwrapped_names(model: Module) -> Callable[[str], str]:
    """Returns a function that removes the prefixes of DDP and DataParallel wrappers from names of a model's state."""
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
    """Returns a model's state by unwrapped name. The tensors share the model's memory."""
    plain = unwrapped_names(model)
    for p in model.parameters():
        reshard(p)
    return {
        plain(name): vary(v.detach(), varies(v)) if isinstance(v, Tensor) else v
        for name, v in model.state_dict(keep_vars=True).items()
    }


def optimizer_state(optimizer: Optimizer) -> dict[str, Any]:
    """Returns an optimiser's state."""
    params = parameters(optimizer)
    for p in params.values():
        reshard(p)
    state = optimizer.state_dict()
    numbers = {"step", getattr(optimizer, "_count", "step"), *getattr(optimizer, "_numbers", ())}
    # The optimiser may change its own dicts later.
    kept = {n: dict(s) if isinstance(s, dict) else s for n, s in state["state"].items()}
    state["state"] = States(kept, params, numbers)
    return state


def parameters(optimizer: Optimizer) -> dict[Any, Tensor]:
    """Returns an optimiser's parameters by index."""
    return dict(enumerate(p for g in optimizer.param_groups for p in g["params"]))


def reshard(tensor: Any) -> None:
    """Reshards a sharded parameter if it is gathered, for example after a forward pass."""
    if hasattr(tensor, "reshard"):
        tensor.reshard()


def part_for(value: Any, model: Tensor) -> Any:
    """Returns what a rank keeps of a full tensor for `model`: all of it, or a distributed tensor."""
    reshard(model)
    if is_distributed(model) and isinstance(value, Tensor) and value.dim() == model.dim():
        return laid_like(value, model)
    return value


class States(dict[Any, Any]):
    """An optimiser's state by parameter. It knows the parameters, so that a load can create missing tensors.

    Args:
        states: the state by parameter
        params: the parameters, with the same keys
        numbers: the names of fields that are one number, whatever the parameter's shape
    """

    def __init__(self, states: dict[Any, Any], params: dict[Any, Tensor], numbers: set[str]) -> None:
        super().__init__(states)
        self.params, self.numbers = params, numbers
        self.made: Metadata | None = None  # the checkpoint whose entries `make` has created

    def local_part(self, key: Any, kept: dict[str, Any]) -> dict[str, Any]:
        """Returns a parameter's state with this rank's parts of full tensors."""
        return {
            k: v if k in self.numbers or getattr(v, "ndim", None) == 0 else part_for(v, self.params[key])
            for k, v in kept.items()
        }

    def await_all(self, full: bool = False, device: Any = None, flat: bool = False) -> None:
        """Adds an empty entry for each parameter without a state. A load fills it, whichever dict holds it by then.

        Args:
            full: whether a load makes full tensors, not this rank's parts
            device: the device of full tensors; that of the parameter by default
            flat: whether the entry belongs to a flat dict
        """
        for key in self.params:
            if key not in self:
                self[key] = Awaited(self, key, full, device, flat)

    def make(self, name: str, stored: Metadata) -> None:
        """Creates the entries that a checkpoint holds under `name` and that are missing here. Lists get its lengths."""
        keys = {str(k): k for k in self.params}
        lists: dict[tuple[Any, str], dict[int, Tensor]] = {}
        for entry, info in stored.tensors.items():
            key, field = _split(entry.removeprefix(name + "."), keys)
            if not entry.startswith(name + ".") or key is None:
                continue
            if info.problem:
                raise CheckpointError(info.problem)  # before memory is allocated for a wrong size
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
        """Returns an empty tensor for this rank's part of a field with the given full shape."""
        param, place = self.params[key], self.get(key)
        if isinstance(place, Awaited) and place.full:
            return _ops.empty(shape, dtype=dtype, device=place.device or param.device)
        if is_distributed(param) and name not in self.numbers and len(shape) == param.dim() > 0:
            return empty_like(param, shape, dtype)
        return _ops.empty(shape, dtype=dtype, device=param.device)


def _split(entry: str, keys: dict[str, Any]) -> tuple[Any, str]:
    """Splits an entry such as "0.weight.old_dirs.3" into the parameter's key, None if unknown, and the field.

    Both may contain dots. The longest known parameter name counts.
    """
    at = len(entry)
    while (at := entry.rfind(".", 0, at)) > 0:
        if entry[:at] in keys:
            return keys[entry[:at]], entry[at + 1 :]
    return None, ""


class Awaited(dict[str, Any]):
    """The state of a parameter whose optimiser has made no step: empty until a load fills it from a checkpoint.

    It can be moved to another dict, such as one that joins the states of several optimisers, and is filled there.
    """

    def __init__(self, states: States, key: Any, full: bool, device: Any, flat: bool) -> None:
        super().__init__()
        self.states, self.key, self.full, self.device, self.flat = states, key, full, device, flat

    def make(self, name: str, stored: Metadata) -> None:
        """Creates the entries that a checkpoint holds under `name`, which ends in the parameter's name."""
        if self.states.made is not stored:
            self.states.make(name.removesuffix(f".{self.key}"), stored)
            self.states.made = stored

    def __reduce__(self) -> Any:
        return dict, (dict(self),)


def complete(state: Any, name: str, stored: Metadata) -> None:
    """Creates the missing states of optimisers that have made no step, anywhere in a nested state."""
    if isinstance(state, States | Awaited):
        state.make(name, stored)
    elif isinstance(state, dict):
        for key, value in state.items():
            complete(value, f"{name}.{key}" if name else str(key), stored)


def spread(state: Any) -> None:
    """Replaces filled entries of flat dicts, anywhere in a nested state, by one entry for each field."""
    if not isinstance(state, dict):
        return
    for key, value in list(state.items()):
        if isinstance(value, Awaited) and value.flat and value:
            del state[key]
            state.update({f"{key}.{field}": v for field, v in value.items()})
        else:
            spread(value)


def flat_states(states: dict[Any, Any], groups: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns an optimiser's state as one flat dict: "state.0.weight.exp_avg", "param_groups.0.weight.lr".

    Each parameter has its own copy of its group's values, so that ranks with different parameters can save together.
    """
    flat: dict[str, Any] = {}
    for group in groups:
        for name in group["params"]:
            flat.update({f"param_groups.{name}.{k}": v for k, v in group.items() if k != "params"})
    for name, kept in states.items():
        if isinstance(kept, Awaited):
            flat[f"state.{name}"] = kept
        else:
            flat.update({f"state.{name}.{k}": v for k, v in kept.items()})
    return flat


def nested(flat: dict[str, Any], groups: list[list[str]]) -> dict[str, Any]:
    """Converts a flat state to one with "state" and "param_groups", for the given groups of parameter names."""
    tables: dict[str, dict[str, dict[str, Any]]] = {"state": {}, "param_groups": {}}
    known = {name for params in groups for name in params}
    for key, value in flat.items():
        table, _, rest = key.partition(".")
        if table not in tables:
            raise ValueError(f"set_optimizer_state_dict: {key!r} is no entry of an optimiser's state")
        if table == "state" and rest in known:
            tables[table].setdefault(rest, {}).update(value)
            continue
        name, _, field = rest.rpartition(".")
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
    """Returns the state of a `Stateful` object that a checkpoint holds."""
    if isinstance(obj, Module):
        return model_state(obj)
    if isinstance(obj, Optimizer):
        return optimizer_state(obj)
    return obj.state_dict()


def load_into(obj: Any, state: Any) -> None:
    """Loads a state into an object. A module's tensors were already written in place."""
    if not isinstance(obj, Module):
        obj.load_state_dict(state)
        return
    plain = unwrapped_names(obj)
    rest = {
        name: state[plain(name)]
        for name in obj.state_dict(keep_vars=True)
        if not isinstance(state[plain(name)], Tensor)
    }
    if rest:
        obj.load_state_dict(rest, strict=False)
