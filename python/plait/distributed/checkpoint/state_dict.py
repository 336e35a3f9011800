"""State dicts of models and optimisers, with full tensors or with each rank's pieces.

Names have no prefixes of parallel wrappers, so a state of one layout (one device, DistributedDataParallel, FSDP) fits
every other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from plait import _ops
from plait._device import device
from plait._modes import no_grad
from plait._tensor import Tensor
from plait.distributed._groups import get_rank, is_initialized, resolve_group
from plait.distributed._objects import broadcast_object_list
from plait.distributed.checkpoint._moving import gather_full, reshard
from plait.distributed.checkpoint._nested import fill, flatten
from plait.distributed.checkpoint._stages import gather_stages
from plait.distributed.checkpoint._states import (
    States,
    flat_states,
    model_state,
    nested,
    optimizer_state,
    part_for,
    unwrapped_names,
)
from plait.distributed.tensor._dtensor import DTensor
from plait.nn.modules._state import IncompatibleKeys, varies, vary
from plait.nn.modules.module import Module
from plait.optim.optimizer import Optimizer

Optimizers = Optimizer | Iterable[Optimizer]


@dataclass
class StateDictOptions:
    """Options of getting and setting state dicts.

    Args:
        full_state_dict: full tensors instead of each rank's pieces
        cpu_offload: tensors on the CPU; with full tensors only on rank 0, and empty states on the other ranks
        ignore_frozen_params: leave out parameters that do not require a gradient
        keep_submodule_prefixes: must be True
        strict: the names must match when a state is set
        broadcast_from_rank0: set rank 0's state, which must be full, on all ranks
        flatten_optimizer_state_dict: return an optimiser's state as one flat dict, where each parameter has its group's
            values; for ranks with different parameters, such as pipeline stages
    """

    full_state_dict: bool = False
    cpu_offload: bool = False
    ignore_frozen_params: bool = False
    keep_submodule_prefixes: bool = True
    strict: bool = True
    broadcast_from_rank0: bool = False
    flatten_optimizer_state_dict: bool = False

    def __post_init__(self) -> None:
        if self.broadcast_from_rank0 and not self.full_state_dict:
            raise ValueError("StateDictOptions: broadcast_from_rank0 needs full_state_dict")
        if not self.keep_submodule_prefixes:
            raise NotImplementedError("StateDictOptions: keep_submodule_prefixes must be True")


@no_grad()
def get_model_state_dict(
    model: Module, *, submodules: None = None, options: StateDictOptions | None = None
) -> dict[str, Any]:
    """Returns a model's parameters and buffers by unwrapped name. All ranks call it."""
    _no_submodules(submodules)
    o = options or StateDictOptions()
    state = model_state(model)
    if o.ignore_frozen_params:
        plain = unwrapped_names(model)
        for name, p in model.named_parameters(remove_duplicate=False):
            if not p.requires_grad:
                state.pop(plain(name), None)
    return _apply_options(model, state, o)


@no_grad()
def get_optimizer_state_dict(
    model: Module, optimizers: Optimizers, *, submodules: None = None, options: StateDictOptions | None = None
) -> dict[str, Any]:
    """Returns the state of a model's optimisers by unwrapped parameter name. All ranks call it.

    Returns:
        a dict with "state", by name, and "param_groups", whose "params" are names; or one flat dict.
    """
    _no_submodules(submodules)
    o = options or StateDictOptions()
    states, groups = _optimizer_states_by_name(model, _as_list(optimizers))
    if o.ignore_frozen_params:
        for name in [n for n, p in states.params.items() if not p.requires_grad]:
            states.pop(name, None)
            del states.params[name]
            groups = [{**g, "params": [n for n in g["params"] if n != name]} for g in groups]
    states.await_all(o.full_state_dict, device("cpu") if o.cpu_offload else None, o.flatten_optimizer_state_dict)
    if o.flatten_optimizer_state_dict:
        return _apply_options(model, flat_states(states, groups), o)
    # A full state may be saved by other means, so it is a plain dict without parameters.
    state = {"state": dict(states) if o.full_state_dict else states, "param_groups": groups}
    return _apply_options(model, state, o)


def _optimizer_states_by_name(model: Module, optimizers: Sequence[Optimizer]) -> tuple[States, list[dict[str, Any]]]:
    """Returns the states and groups of optimisers, by unwrapped parameter name."""
    names = _names(model)
    states = States({}, {}, set())
    groups: list[dict[str, Any]] = []
    for optimizer in optimizers:
        one = optimizer_state(optimizer)
        by_number = {n: _name(names, p) for n, p in one["state"].params.items()}
        states.numbers |= one["state"].numbers
        states.params.update({by_number[n]: p for n, p in one["state"].params.items()})
        states.update({by_number[n]: s for n, s in one["state"].items()})
        groups += [{**g, "params": [by_number[n] for n in g["params"]]} for g in one["param_groups"]]
    return states, groups


@no_grad()
def optimizer_state_of(
    model: Module, optimizer: Optimizer, whole: bool, to_cpu: bool, rank0_only: bool
) -> dict[str, Any]:
    """Returns an optimiser's state by unwrapped parameter name. All ranks call it.

    Args:
        model: the model
        optimizer: its optimiser
        whole: full tensors instead of each rank's pieces
        to_cpu: tensors on the CPU
        rank0_only: the other ranks get an empty state
    """
    states, groups = _optimizer_states_by_name(model, [optimizer])
    state = {"state": dict(states) if whole else states, "param_groups": groups}
    return _gather_and_move(state, whole, device("cpu") if to_cpu else None, not rank0_only or _is_rank0())


def get_state_dict(
    model: Module, optimizers: Optimizers, *, submodules: None = None, options: StateDictOptions | None = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the results of `get_model_state_dict` and `get_optimizer_state_dict`."""
    return (
        get_model_state_dict(model, submodules=submodules, options=options),
        get_optimizer_state_dict(model, optimizers, submodules=submodules, options=options),
    )


@no_grad()
def set_model_state_dict(
    model: Module, model_state_dict: dict[str, Any], *, options: StateDictOptions | None = None
) -> IncompatibleKeys:
    """Loads a state with unwrapped names into a model. All ranks call it.

    Args:
        model: the model
        model_state_dict: full tensors, this rank's pieces, or distributed tensors
        options: with `broadcast_from_rank0`, the state of rank 0 is loaded

    Returns:
        the missing and unexpected names; without `strict` there may be some.

    Raises:
        ValueError: for missing or unexpected names, and wrong shapes. Nothing is changed then.
    """
    o = options or StateDictOptions()
    mine = model_state(model)
    if o.broadcast_from_rank0:
        given = {n: v for n, v in model_state_dict.items() if isinstance(v, Tensor)} if _is_rank0() else {}
        reshard(given, {n: v for n, v in mine.items() if isinstance(v, Tensor)})
        return IncompatibleKeys([], [])
    missing = [n for n in mine if n not in model_state_dict]
    elsewhere = tuple(f"{name}." for name, m in model.named_modules() if getattr(m, "_elsewhere", False))
    unexpected = [n for n in model_state_dict if n not in mine and not n.startswith(elsewhere)]
    if o.strict and (missing or unexpected):
        raise ValueError(f"set_model_state_dict: missing: {missing}; unexpected: {unexpected}")
    pairs = []
    for name, target in mine.items():
        if name not in missing and isinstance(target, Tensor):
            source = part_for(model_state_dict[name], target)
            fits = isinstance(source, DTensor) == isinstance(target, DTensor)
            if not fits or source.shape != target.shape:
                raise ValueError(f"set_model_state_dict: {name!r}: got {_described(source)}, want {_described(target)}")
            pairs.append((target, source))
    for target, source in pairs:
        target.copy_(source)
    return IncompatibleKeys(missing, unexpected)


@no_grad()
def set_optimizer_state_dict(
    model: Module, optimizers: Optimizers, optim_state_dict: dict[str, Any], *, options: StateDictOptions | None = None
) -> None:
    """Loads a result of `get_optimizer_state_dict` into a model's optimisers. All ranks call it.

    Args:
        model: the model
        optimizers: optimisers with the same groups of parameters as in the state
        optim_state_dict: a state with full tensors, or this rank's pieces
        options: with `broadcast_from_rank0`, the state of rank 0 is loaded

    Raises:
        ValueError: if no group of the state has the parameters of a group.
    """
    o = options or StateDictOptions()
    names = _names(model)
    listed = _as_list(optimizers)
    mine: States = get_optimizer_state_dict(model, listed)["state"]
    state = optim_state_dict
    if "param_groups" not in state:
        own_groups = [[_name(names, p) for p in g["params"]] for optimizer in listed for g in optimizer.param_groups]
        state = nested(state, own_groups if state else [])
    if o.broadcast_from_rank0:
        state = _from_rank0(state, mine)
    for optimizer in listed:
        number = 0
        states: dict[int, Any] = {}
        groups = []
        for group in optimizer.param_groups:
            own = [_name(names, p) for p in group["params"]]
            saved = next((g for g in state["param_groups"] if set(own) <= set(g["params"])), None)
            if saved is None:
                raise ValueError(f"set_optimizer_state_dict: no group of the state has the parameters {own}")
            groups.append({**saved, "params": list(range(number, number + len(own)))})
            for name in own:
                if state["state"].get(name):
                    states[number] = mine.local_part(name, state["state"][name])
                number += 1
        optimizer.load_state_dict({"state": states, "param_groups": groups})


def set_state_dict(
    model: Module,
    optimizers: Optimizers,
    *,
    model_state_dict: dict[str, Any],
    optim_state_dict: dict[str, Any],
    options: StateDictOptions | None = None,
) -> IncompatibleKeys:
    """Calls `set_model_state_dict` and `set_optimizer_state_dict`."""
    keys = set_model_state_dict(model, model_state_dict, options=options)
    set_optimizer_state_dict(model, optimizers, optim_state_dict, options=options)
    return keys


def _init_optim_state(optim: Optimizer) -> None:
    """Makes an optimizer's state by a step that changes nothing, unless there is a state or a gradient already."""
    params = [p for group in optim.param_groups for p in group["params"]]
    if optim.state or any(p.grad is not None for p in params):
        return
    rates = [group["lr"] for group in optim.param_groups]
    for p in params:
        if p.requires_grad:
            p.grad = _ops.zeros_like(p)
    for group in optim.param_groups:
        group["lr"] = _ops.zeros_like(group["lr"]) if isinstance(group["lr"], Tensor) else 0.0
    optim.step()
    for group, rate in zip(optim.param_groups, rates, strict=True):
        group["lr"] = rate
    optim.zero_grad()


def _apply_options(model: Module, state: dict[str, Any], o: StateDictOptions) -> dict[str, Any]:
    """Gathers and moves the tensors of a state as the options say."""
    here = not (o.full_state_dict and o.cpu_offload) or _is_rank0()
    where, stages = device("cpu") if o.cpu_offload else None, getattr(model, "_stage_group", None)
    if o.full_state_dict and stages is not None:
        return gather_stages(state, stages, where, here)
    return _gather_and_move(state, o.full_state_dict, where, here)


def _gather_and_move(state: dict[str, Any], whole: bool, where: device | None, here: bool) -> dict[str, Any]:
    """Returns a state with full tensors or pieces, moved to `where` if given. It is empty unless `here`."""
    gathers: dict[str, Tensor] = {}
    if whole:
        pieces: dict[str, Tensor] = {n: t for n, t in flatten(state).items() if isinstance(t, DTensor)}
        if pieces:
            gathers = gather_full(pieces, here, where)
    if not here:
        return {}

    def take(name: str, value: Any) -> Any:
        if name in gathers:
            return gathers[name]
        if isinstance(value, Tensor) and where is not None:
            return vary(value.to(where), varies(value))
        return value

    return fill(state, take)


def _from_rank0(state: dict[str, Any], mine: States) -> dict[str, Any]:
    """Scatters rank 0's state of optimisers. Returns it with this rank's pieces of the tensors."""
    if not is_initialized():
        return state
    described: list[Any] = [None, None]
    if _is_rank0():
        shapes = {
            n: {k: (tuple(v.shape), v.dtype) if isinstance(v, Tensor) else v for k, v in s.items()}
            for n, s in state["state"].items()
        }
        described = [shapes, state["param_groups"]]
    group = resolve_group(None, "set_optimizer_state_dict")._for("the state of optimisers")
    broadcast_object_list(described, group=group, group_src=0)
    states = States({}, mine.params, mine.numbers)
    have: dict[str, Tensor] = {}
    want: dict[str, Tensor] = {}
    for name, fields in described[0].items():
        states[name] = {}
        for key, v in fields.items():
            states[name][key] = v
            if isinstance(v, tuple):  # shape and dtype of a tensor
                states[name][key] = want[f"{name}.{key}"] = states.empty(name, key, *v)
                if _is_rank0():
                    have[f"{name}.{key}"] = state["state"][name][key]
    reshard(have, want)
    return {"state": states, "param_groups": described[1]}


def state_from_rank0(state: dict[str, Any], params: dict[str, Tensor]) -> dict[str, Any]:
    """Scatters rank 0's full state of an optimiser. Returns this rank's pieces. All ranks call it.

    Args:
        state: on rank 0, the state by parameter name
        params: the parameters by name
    """
    return _from_rank0(state, States({}, dict(params), {"step"}))


def _described(t: Tensor) -> str:
    placed = f" placed {list(t.placements)}" if isinstance(t, DTensor) else ""
    return f"shape {list(t.shape)}{placed}"


def _is_rank0() -> bool:
    return not is_initialized() or get_rank() == 0


def _names(model: Module) -> dict[int, str]:
    plain, first = unwrapped_names(model), getattr(model, "_first_names", {})
    names: dict[int, str] = {}
    for name, p in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(p), first.get(name, plain(name)))
    return names


def _name(names: dict[int, str], p: Tensor) -> str:
    if id(p) not in names:
        raise ValueError(f"a parameter of shape {list(p.shape)} of the optimizer is not among the model's")
    return names[id(p)]


def _as_list(optimizers: Optimizers) -> Sequence[Optimizer]:
    return [optimizers] if isinstance(optimizers, Optimizer) else list(optimizers)


def _no_submodules(submodules: Any) -> None:
    if submodules:
        raise NotImplementedError("submodules must be None; call it with the submodule as the model")
