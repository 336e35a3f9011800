"""`parallelize`: lays a model over the ranks of a mesh."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Iterator
from typing import Any

from plait import _core
from plait._device import get_default_device
from plait._engine.runtime import address, check
from plait.distributed._swap import swap_class
from plait.distributed.device_mesh import DeviceMesh
from plait.distributed.fsdp._fully_shard import parse_reshard_after_forward, shard_and_replica_groups
from plait.distributed.fsdp._meta import materialize, meta_digest
from plait.distributed.fsdp._module import (
    FSDPModule,
    UnitOptions,
    accept_full_state_dicts,
    make_unit,
)
from plait.distributed.fsdp._unit import ShardedParameter
from plait.distributed.fsdp.api import CPUOffloadPolicy
from plait.distributed.parallel._module import Layout, ParallelModule, StagedLayout
from plait.distributed.parallel._options import (
    Axes,
    FullyShardOptions,
    Loss,
    PipelineOptions,
    TensorParallelOptions,
    axes_of,
    checked,
)
from plait.distributed.parallel._stages import (
    Elsewhere,
    Stage,
    layers_in_order,
    own_name,
    put_elsewhere,
    schedule_class,
    stages_of,
)
from plait.distributed.pipelining.stage import PipelineStage
from plait.distributed.tensor._dtensor import DTensor, watch_passes
from plait.distributed.tensor.parallel._parallelize import matches, parallelize_module
from plait.distributed.tensor.parallel._ready import ready_plan
from plait.distributed.tensor.parallel._styles import ParallelStyle, described
from plait.nn.modules.module import Module
from plait.nn.parameter import is_lazy

NAME = "parallelize"
_OWN_OF_RANKS = ("axis", "ignored_params", "shard_placement_fn")  # options that are compared otherwise, by units


def parallelize(
    model: Module,
    mesh: DeviceMesh,
    *,
    dp: str | None = None,
    fsdp: str | FullyShardOptions | None = None,
    pp: str | PipelineOptions | None = None,
    tp: str | TensorParallelOptions | None = None,
    loss_fn: Loss | None = None,
    broadcast: bool = True,
) -> ParallelModule:
    """Lays a model over the ranks of a mesh in several ways at once, in place, and returns it.

    What happens along an axis of the mesh is said by its name, or by an option:

    - "pp": the layers are stages of a pipeline, and a batch becomes micro-batches
    - "dp": each rank has a copy of the parameters and a part of the batch
    - "fsdp": each rank has a part of each parameter and a part of the batch
    - "tp": each rank has a part of each layer that a plan names

    Any of them may be left out. Training equals that of one device on the whole batch. Every rank calls it with the
    same model on its own device, and makes the optimiser afterwards. `model.step(x, target=y)` trains on this rank's
    part of the batch, of which `data_parallel_size` and `data_parallel_rank` say how many there are and which; without
    a pipeline `model(x)` and `backward()` do so too.

    Args:
        model: the model; what is on the meta device gets memory and values, in as many parts as the ways say
        mesh: the mesh, whose axes have names; "dp" comes before "fsdp"
        dp: the name of the axis along which the model is copied; "dp" by default
        fsdp: the name of the axis along which parameters are sharded, or a `FullyShardOptions`
        pp: the name of the axis along which layers are stages, or a `PipelineOptions`
        tp: the name of the axis along which layers are divided, or a `TensorParallelOptions`. Without a plan it is
            that of `ready_plan`
        loss_fn: called with the output and the target, returns the mean loss of a batch, for `step`: not its sum
        broadcast: the first rank's parameters and buffers count. False: they are the same on all ranks already

    Raises:
        ValueError: if the mesh, the plan or the layers do not fit the model.
        TypeError: for an option of the wrong type, or an unknown one.
        plait.DistributedError: on every rank, if the ranks' models or options differ.
    """
    if not isinstance(model, Module):
        raise TypeError(f"{NAME}: want a module, got {type(model).__name__}")
    if isinstance(model, ParallelModule):
        raise RuntimeError(f"{NAME}: the model lies on {model.mesh} already")
    if loss_fn is not None and not callable(loss_fn):
        raise TypeError(f"{NAME}: want a loss_fn that can be called, got {loss_fn!r}")
    axes = axes_of(mesh, {"dp": dp, "fsdp": fsdp, "pp": pp, "tp": tp})
    reduction = getattr(loss_fn, "reduction", getattr(loss_fn, "keywords", {}).get("reduction", "mean"))
    if reduction == "sum" and (axes.pp or axes.data):
        raise ValueError(
            f"{NAME}: want a loss_fn that is a mean over samples, got one with reduction='sum': the losses of parts of "
            "a batch are averaged"
        )
    sharding = checked("fsdp", fsdp, FullyShardOptions)
    staging = checked("pp", pp, PipelineOptions)
    dividing = checked("tp", tp, TensorParallelOptions)
    if lazy := [name for name, p in model.named_parameters() if is_lazy(p)]:
        raise RuntimeError(f"{NAME}: parameter {lazy[0]} has no shape yet; run a batch through the model first")
    plan = _plan_of(model, dividing) if axes.tp else {}
    _check_names(model, sharding.get("units") or (), "units of fsdp")
    stages = _Stages(model, mesh, axes.pp, staging) if axes.pp else None
    facts = json.dumps(list(_description(model, axes, plan, stages, sharding).items()))
    check(_core.bind_ParallelAgree(mesh._h, NAME, facts))
    if broadcast:
        _broadcast(model, mesh)
    if stages is not None:
        stages.take_out(model)
    tp_mesh = mesh[axes.tp] if axes.tp else None
    if tp_mesh is not None:
        _divide(model, tp_mesh, plan)
    roots: list[Module] = [model] if stages is None else list(stages.modules.values())
    # Copies of a pipeline average their gradients once for all micro-batches, not in each backward pass.
    over = tuple(a for a in axes.data if stages is None or a != axes.dp)
    units = _shard(model, roots, mesh, over, sharding, axes.fsdp is not None) if over else []
    whole = {id(p) for p in model.parameters() if not isinstance(p, ShardedParameter)}
    for m in model.modules():
        materialize(m, None, whole)
    if tp_mesh is not None:
        watch_passes(
            tp_mesh, [t for t in (*model.parameters(), *model.buffers()) if not isinstance(t, ShardedParameter)]
        )
    accept_full_state_dicts(model)
    swap_class(model, ParallelModule, "Parallel")
    if stages is None:
        model.__dict__["_parallel"] = Layout(mesh, axes, loss_fn, units, tp_mesh)
    else:
        model.__dict__["_parallel"] = stages.layout(mesh, axes, loss_fn, units, tp_mesh)
    assert isinstance(model, ParallelModule)
    return model


def _plan_of(model: Module, options: dict[str, Any]) -> dict[str, ParallelStyle]:
    """Returns the plan of tensor parallelism.

    Raises:
        TypeError: unless it gives styles by names.
        ValueError: if a name is no module's.
    """
    plan = options.get("plan")
    if plan is None:
        return ready_plan(model, sequence=bool(options.get("sequence")), pieces=options.get("pieces", 1))
    for name in ("sequence", "pieces"):
        if name in options:
            raise ValueError(f"{NAME}: {name} is for the ready plan, got a plan, whose styles say it")
    if not hasattr(plan, "items") or not all(isinstance(s, ParallelStyle) for s in plan.values()):
        raise TypeError(f"{NAME}: want a plan of styles by names of modules, got {plan!r}")
    _check_names(model, plan, "the plan of tp")
    return dict(plan)


def _check_names(model: Module, patterns: Iterable[str], what: str) -> None:
    """Raises ValueError if a pattern matches the name of no module."""
    for pattern in patterns:
        if not any(matches(name, pattern) for name, _ in model.named_modules()):
            known = ", ".join(name for name, _ in model.named_modules() if name)
            raise ValueError(f"{NAME}: {what} names {pattern!r}; the model has {known or 'no submodules'}")


def _divide(model: Module, mesh: DeviceMesh, plan: dict[str, ParallelStyle]) -> None:
    """Divides the layers that this rank has."""
    here = [name for name, m in model.named_modules() if not isinstance(m, Elsewhere)]
    mine = {name: style for pattern, style in plan.items() for name in here if matches(name, pattern)}
    parallelize_module(model, mesh, mine)


class _Stages:
    """This rank's stages of a model.

    Args:
        model: the model
        mesh: the mesh
        axis: the axis of the pipeline
        options: `PipelineOptions`
    """

    def __init__(self, model: Module, mesh: DeviceMesh, axis: str, options: dict[str, Any]) -> None:
        self.group = mesh.get_group(axis)
        self.schedule = schedule_class(options.get("schedule", "1f1b"))
        self.micro_batches = options.get("micro_batches", 2 * self.group.size())
        self.layers = layers_in_order(model, options.get("layers"))
        self.as_one = options.get("layers") is None
        self.names, self.place = stages_of(self.layers, self.schedule, self.group.size(), options.get("sizes"))
        users: dict[int, list[int]] = {}
        for i, names in enumerate(self.names):
            for p in dict.fromkeys(p for n in names for p in self.layers[n].parameters()):
                users.setdefault(id(p), []).append(i)
        # The number of a parameter and the stages that use it, by its name within each of them.
        numbers = {id(p): i for i, p in enumerate(model.parameters())}
        self.tied = {
            f"{own_name(name)}.{own}": (numbers[id(p)], users[id(p)])
            for name, layer in self.layers.items()
            for own, p in layer.named_parameters(remove_duplicate=False)
            if len(users[id(p)]) > 1
        }
        first: dict[int, str] = {}
        named = list(model.named_parameters(remove_duplicate=False))
        self.first_names = {name: first.setdefault(id(p), name) for name, p in named}
        tensors = (*model.parameters(), *model.buffers())
        self.device = next((get_default_device() if t.is_meta else t.device for t in tensors), None)
        self.modules: dict[int, Stage] = {}

    def take_out(self, model: Module) -> None:
        """Makes this rank's stages, and takes the other layers out of the model."""
        for i, (names, rank) in enumerate(zip(self.names, self.place, strict=True)):
            if rank == self.group.rank():
                layers = {name: self.layers[name] for name in names}
                self.modules[i] = Stage(layers, i == len(self.place) - 1, self.as_one)
                self.modules[i].training = model.training
            else:
                for name in names:
                    put_elsewhere(model, name, rank)
        self.layers = {}

    def layout(
        self,
        mesh: DeviceMesh,
        axes: Axes,
        loss_fn: Loss | None,
        units: list[FSDPModule],
        dividing: DeviceMesh | None,
    ) -> StagedLayout:
        """Returns the layout of a model with these stages."""
        stages = []
        for i, module in self.modules.items():
            # In an order that is the same on all ranks.
            here = sorted((*self.tied[name], name) for name, _ in module.named_parameters() if name in self.tied)
            tied = {name: users for _, users, name in here}
            stages.append(PipelineStage(module, i, len(self.place), self.device, group=self.group, tied=tied))
        schedule = self.schedule(stages, self.micro_batches, loss_fn)
        last, copies = self.place[-1], None if axes.dp is None else mesh.get_group(axes.dp)
        return StagedLayout(
            mesh, axes, loss_fn, units, dividing, schedule, self.group, last, self.device, self.first_names, copies
        )


def _shard(
    model: Module, roots: list[Module], mesh: DeviceMesh, over: tuple[str, ...], options: dict[str, Any], sharded: bool
) -> list[FSDPModule]:
    """Shards, or only copies, the parameters over the given axes, and returns the outermost units."""
    on = mesh[over]
    groups: Any = shard_and_replica_groups(on, NAME) if sharded else (None, on.get_group(0))
    reshard, partial = parse_reshard_after_forward(options.get("reshard_after_forward"), groups[0])
    policy = options.get("offload_policy")
    chosen = UnitOptions(
        groups, on, reshard, partial, options.get("mp_policy"), isinstance(policy, CPUOffloadPolicy), broadcast=False
    )._replace(placement=options.get("shard_placement_fn"))
    ignored = {id(p) for p in options.get("ignored_params") or ()}
    sets = [[m] for m in _units(model, options.get("units"))]
    # Stages of one rank that share a parameter gather it together.
    parameters = [id(p) for m in roots for p in m.parameters()]
    sets += [roots] if len(set(parameters)) < len(parameters) else [[m] for m in roots]
    users: dict[int, set[Module]] = {}
    for m in model.modules():
        for p in m._parameters.values():
            if p is not None:
                users.setdefault(id(p), set()).add(m)
    for modules in sets:
        # A parameter that is used outside of the unit, too, is left to an outer unit that contains all users.
        inside = {m for top in modules for m in top.modules()}
        above = {i for i, all_users in users.items() if not all_users <= inside and not all_users.isdisjoint(inside)}
        make_unit(modules, chosen, ignored, shared_above=above - ignored)
        for m in modules:
            accept_full_state_dicts(m)
            swap_class(m, FSDPModule, "FSDP")
    return [m for m in roots if isinstance(m, FSDPModule)]


def _units(model: Module, patterns: Any) -> Iterator[Module]:
    """Yields the modules whose parameters are gathered together, inner ones first."""
    named = [(name, m) for name, m in model.named_modules() if name and any(True for _ in m.parameters())]
    if patterns is None:
        for name, m in reversed(named):
            parts = name.split(".")
            if parts[-1].isdecimal() and not any(part.isdecimal() for part in parts[:-1]):
                yield m
        return
    for name, m in reversed(named):
        if any(matches(name, pattern) for pattern in patterns):
            yield m


def _description(
    model: Module, axes: Axes, plan: dict[str, ParallelStyle], stages: _Stages | None, sharding: dict[str, Any]
) -> dict[str, str]:
    """Returns what must be the same on all ranks, in words."""
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    return {
        "axes": repr(axes),
        "model": type(model).__name__ + ", ".join(f" {n} {t.dtype}{list(t.shape)}" for n, t in tensors.items()),
        "values on the meta device, which want the same seed on all ranks,": "".join(
            f" {n}={meta_digest(t)}" for n, t in tensors.items() if t.is_meta
        ),
        "plan": described(plan),
        "stages": "" if stages is None else f"{stages.schedule.__name__} {stages.micro_batches} {stages.names}",
        "sharding": ", ".join(f"{k} {sharding[k]}" for k in sorted(sharding) if k not in _OWN_OF_RANKS),
    }


def _broadcast(model: Module, mesh: DeviceMesh) -> None:
    """Gives all ranks of a mesh the parameters and buffers of its first rank."""
    sent = {
        id(t): t._h
        for t in (*model.parameters(), *model.buffers())
        if not (t.is_meta or isinstance(t, DTensor) or is_lazy(t)) and t.numel()
    }
    handles = array("q", sent.values())
    check(_core.bind_ParallelBroadcast(mesh._h, address(handles), len(handles)))
