"""Stages: the layers of a model that a rank of a pipeline runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from plait.distributed.pipelining import schedules
from plait.distributed.pipelining._model import balance
from plait.distributed.pipelining._schedule import placement, schedule_names
from plait.distributed.tensor._dtensor import whole
from plait.distributed.tensor.parallel._parallelize import matches
from plait.nn.modules.container import Sequential
from plait.nn.modules.module import Module


class Stage(Module):
    """Consecutive layers of a model, each of which takes what the one before returns.

    Args:
        layers: the layers, by name
        last: whether the outputs are the model's: those of other stages are whole tensors, since ranks send them
        as_one: layers take a tuple as one argument, as those of a `Sequential` do, and not as several
    """

    def __init__(self, layers: dict[str, Module], last: bool, as_one: bool) -> None:
        super().__init__()
        self.last, self.as_one = last, as_one
        for name, layer in layers.items():
            self.add_module(own_name(name), layer)

    def forward(self, *args: Any) -> Any:
        """Runs the layers."""
        out: Any = args if len(args) > 1 or not self.as_one else args[0]
        for layer in self._modules.values():
            assert layer is not None
            out = layer(*out) if isinstance(out, tuple) and not self.as_one else layer(out)
        return out if self.last else whole(out)


def own_name(name: str) -> str:
    """Returns the name, within a stage, of a layer of the model."""
    return name.replace(".", "/")


class Elsewhere(Module):
    """Takes the place of a layer that another rank of the pipeline runs.

    Args:
        name: the layer
        rank: the rank within the pipeline
    """

    _elsewhere = True

    def __init__(self, name: str, rank: int) -> None:
        super().__init__()
        self.name, self.rank = name, rank
        self._register_load_state_dict_pre_hook(_leave_out)

    def forward(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raises an error."""
        raise RuntimeError(f"layer {self.name} is on rank {self.rank} of the pipeline; call the model")

    def extra_repr(self) -> str:
        """Returns where the layer is."""
        return f"rank {self.rank} of the pipeline"


def _leave_out(state: dict[str, Any], prefix: str, *rest: Any) -> None:
    """A hook before `load_state_dict`: leaves out the state of a layer that another rank has."""
    for name in [n for n in state if n.startswith(prefix)]:
        del state[name]


def layers_in_order(model: Module, patterns: Sequence[str] | None) -> dict[str, Module]:
    """Returns the layers of a model in the order in which data passes them, by name.

    Raises:
        TypeError: if there are no patterns and the model is no Sequential.
        ValueError: if a pattern matches nothing, a layer is named twice or within another, or parameters or buffers
            are in none.
    """
    if patterns is None:
        if not isinstance(model, Sequential):
            children = ", ".join(name for name, _ in model.named_children())
            raise TypeError(
                f"parallelize: {type(model).__name__} is no Sequential, so a pipeline needs the names of its layers in "
                f"the order in which data passes them, such as pp={{'layers': ['embed', 'blocks.*', 'head']}}; it has "
                f"{children}"
            )
        if type(model).forward is not Sequential.forward:
            raise TypeError(
                f"parallelize: {type(model).__name__} is a Sequential with a forward of its own, which a pipeline does "
                "not run; if its layers in order are the model, give pp={'layers': ['*']}"
            )
        patterns = list(model._modules)
    if isinstance(patterns, str) or not all(isinstance(p, str) for p in patterns):
        raise TypeError(f"parallelize: want the names of layers as a list, got {patterns!r}")
    layers: dict[str, Module] = {}
    parents: dict[tuple[int, str], str] = {}
    every = list(model.named_modules(remove_duplicate=False))  # data may pass a layer several times
    for pattern in patterns:
        found = [(name, m) for name, m in every if name and matches(name, pattern)]
        if not found:
            known = ", ".join(name for name, _ in model.named_modules() if name)
            raise ValueError(f"parallelize: no layer is named {pattern!r}; the model has {known}")
        for name, m in found:
            inside = next(
                (n for n in layers if n == name or name.startswith(f"{n}.") or n.startswith(f"{name}.")), None
            )
            if inside is not None:
                raise ValueError(f"parallelize: {name} is named twice as a layer of the pipeline, also by {inside}")
            parent, _, own = name.rpartition(".")
            other = parents.setdefault((id(model.get_submodule(parent)), own), name)
            if other != name:
                raise ValueError(
                    f"parallelize: {other} and {name} are one layer of a module that the model has in several places; "
                    "name this module as a layer of the pipeline"
                )
            layers[name] = m
    owned = {id(t) for m in layers.values() for t in (*m.parameters(), *m.buffers())}
    named = [*model.named_parameters(), *model.named_buffers()]
    if missing := [name for name, t in named if id(t) not in owned]:
        raise ValueError(
            f"parallelize: {', '.join(missing[:5])} belong to none of the layers of the pipeline, {', '.join(layers)}: "
            "a stage runs only these"
        )
    return layers


def schedule_class(name: Any) -> type[Any]:
    """Returns the class of schedules with one of the names of `pipelining.schedule_names()`."""
    for value in vars(schedules).values():
        if isinstance(value, type) and issubclass(value, schedules._Schedule) and value._name and value._name == name:
            return value
    raise ValueError(f"parallelize: there is no schedule {name!r}, want one of {', '.join(schedule_names())}")


def stages_of(
    layers: dict[str, Module], schedule: type[Any], ranks: int, sizes: Sequence[int] | None
) -> tuple[list[list[str]], list[int]]:
    """Returns the names of each stage's layers, and the rank of each stage.

    Raises:
        ValueError: if there are fewer layers than stages, or sizes do not fit.
    """
    if sizes is not None and len(sizes) % ranks:
        raise ValueError(f"parallelize: got sizes of {len(sizes)} stages for {ranks} ranks, want equally many on each")
    place = placement(schedule._name, ranks, len(sizes) // ranks if sizes is not None else None)
    if len(layers) < len(place):
        raise ValueError(f"parallelize: {len(layers)} layers cannot be {len(place)} stages, {', '.join(layers)}")
    if sizes is None:
        sizes = balance([1.0 + sum(p.numel() for p in m.parameters()) for m in layers.values()], len(place))
    if len(sizes) != len(place) or sum(sizes) != len(layers) or min(sizes) < 1:
        raise ValueError(f"parallelize: stages of {list(sizes)} layers are not the {len(layers)} layers of the model")
    names = iter(layers)
    return [[next(names) for _ in range(n)] for n in sizes], place


def put_elsewhere(model: Module, name: str, rank: int) -> None:
    """Takes a layer out of a model."""
    parent, _, own = name.rpartition(".")
    model.get_submodule(parent)._modules[own] = Elsewhere(name, rank)
