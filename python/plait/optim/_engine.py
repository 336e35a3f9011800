"""Optimisers whose arithmetic and states are the engine's."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator, MutableMapping
from typing import Any, ClassVar

from plait import _core
from plait._dtype import float64
from plait._engine.replay import note_step
from plait._engine.runtime import Owner, address, call, check, own
from plait._modes import no_grad
from plait._tensor import Tensor
from plait._tensors.arrays import as_tensor, tensor
from plait.optim.optimizer import Closure, Optimizer, evaluate


class States(MutableMapping[Any, Any]):
    """What an optimiser keeps, by parameter. The tensors in it share the engine's memory; other keys are the user's."""

    def __init__(self, optimizer: EngineOptimizer, dicts: dict[Any, Any]) -> None:
        self._optimizer, self._dicts = optimizer, dicts

    def __getitem__(self, key: Any) -> Any:
        kept = self._optimizer._kept(key)
        if not isinstance(self._dicts.get(key), dict):
            if key in self._dicts:
                return self._dicts[key]
            self._dicts[key] = {}
        out, given = self._dicts[key], self._optimizer._given.setdefault(id(key), {})
        for name, value in kept.items():
            if name not in out or out[name] is given.get(name):  # else it is the user's, until the next step takes it
                out[name] = given[name] = value
        return out

    def __setitem__(self, key: Any, value: Any) -> None:
        self._dicts[key] = value
        if isinstance(key, Tensor) and isinstance(value, dict):
            self._optimizer._replace({**self, key: value})
            self._optimizer._take()

    def __delitem__(self, key: Any) -> None:
        rest = {k: v for k, v in self.items() if k is not key}
        self._dicts.pop(key, None)
        self._optimizer._replace(rest)

    def __iter__(self) -> Iterator[Any]:
        own_keys = [
            p
            for g in self._optimizer.param_groups
            for p in g["params"]
            if self._dicts.get(p) or self._optimizer._kept(p)
        ]
        return iter([*own_keys, *(k for k in self._dicts if not isinstance(k, Tensor))])

    def __contains__(self, key: object) -> bool:
        return any(k is key for k in self)

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __repr__(self) -> str:
        return repr(dict(self))


class EngineOptimizer(Optimizer):
    """An optimiser of the engine's. Hyperparameters changed in `param_groups` count from the next step on."""

    _algorithm: ClassVar[str]
    # Hyperparameters of the engine: its name, the key in a group, and which element of a pair.
    _hyper: ClassVar[tuple[tuple[str, str, int | None], ...]]
    # States by PyTorch's names: tensors, numbers, and whether "step" is shown.
    _tensors: ClassVar[tuple[str, ...]] = ()
    _numbers: ClassVar[tuple[str, ...]] = ()
    _counts: ClassVar[bool] = True
    _count: ClassVar[str] = "step"

    def __init__(self, params: Any, defaults: dict[str, Any]) -> None:
        if defaults.get("differentiable"):
            raise NotImplementedError(f"{type(self).__name__}: differentiable steps are not there")
        super().__init__(params, defaults)
        self._sync()

    def _prepare(self) -> None:
        super()._prepare()
        self._handle = 0
        self._owner: Owner | None = None  # of the handle
        self._sent: list[tuple[float, ...]] = []  # hyperparameters that the engine has
        self._members: list[list[int]] = []  # ids of the parameters that it has
        self._numbered: list[int] = []  # the numbers of its groups; -1 for one without parameters, which it lacks
        self._names = ",".join(name for name, _, _ in self._hyper)
        # States refers to the optimiser, which therefore does not hold it: a cycle waits for the garbage collector.
        self._dicts: dict[Any, Any] = {}
        self._places: dict[int, int] = {}
        self._given: dict[int, dict[str, Any]] = {}  # what the dicts have of the engine's
        self._steps: dict[int, Tensor] = {}  # counts of steps in memory that processes share, by place
        self._pending: dict[Any, Any] = {}  # states to load when the engine's optimiser is made

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._sync()

    @property
    def state(self) -> States:  # type: ignore[override]
        """What is kept for each parameter."""
        return States(self, self._dicts)

    @state.setter
    def state(self, value: Any) -> None:
        if self._handle:
            self._replace(dict(value))
        else:
            self._pending = dict(value)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds parameters with hyperparameters of their own; see `Optimizer.add_param_group`."""
        super().add_param_group(param_group)
        if self._handle:
            try:
                self._sync()
            except Exception:
                self.param_groups.pop()
                raise

    @no_grad()
    def step(self, closure: Closure | None = None) -> Any:
        """Updates the parameters that have a gradient; on an error nothing has changed.

        Args:
            closure: clears the gradients, computes the loss and its gradients, and returns it
        """
        loss = evaluate(closure)
        self._sync()
        if self._dicts:
            self._collect()
        note_step(self)
        if self._handle and not self._steps:
            call(_core.bind_OptimStep, self._handle)
        elif self._handle:
            self._step_shared()
        return loss

    def _collect(self) -> None:
        """Gives the engine the states that the user has put into dicts since the last step."""
        names = self._own_names()
        for key, state in self._dicts.items():
            if id(key) in self._places and isinstance(state, dict):
                given = self._given.get(id(key), {})
                if any(n in state and state[n] is not given.get(n) for n in names):
                    self._replace(dict(self.state))
                    self._take()
                    return

    def _take(self) -> None:
        """Notes that the engine has what is in the dicts."""
        for key, state in self._dicts.items():
            if isinstance(state, dict):
                self._given[id(key)] = {n: state[n] for n in self._own_names() if n in state}

    def _own_names(self) -> set[str]:
        return {*self._tensors, *self._numbers, *([self._count] if self._counts else [])}

    def _step_shared(self) -> None:
        """Makes a step whose counts other processes have raised and see."""
        for at, count in self._steps.items():
            check(_core.bind_OptimSetStep(self._handle, at, float(count.item())))
        call(_core.bind_OptimStep, self._handle)
        for at, count in self._steps.items():
            count.fill_(json.loads(_core.bind_OptimState(self._handle, at) or '{"step": 0}')["step"])

    # --- keeping the engine informed ---

    def _values(self, group: dict[str, Any]) -> tuple[float, ...]:
        out = []
        for _, key, part in self._hyper:
            v = group[key] if part is None else group[key][part]
            out.append(float(v))
        return tuple(out)

    def _sync(self) -> None:
        """Tells the engine what has changed in `param_groups`."""
        groups = self.param_groups
        if [list(map(id, g["params"])) for g in groups] != self._members:
            self._rebuild()
            return
        for i, g in enumerate(groups):
            values = self._values(g)
            if values != self._sent[i]:
                if self._numbered[i] >= 0:
                    numbers = array("d", values)
                    given = (self._names, address(numbers), len(numbers))
                    check(_core.bind_OptimSet(self._handle, self._numbered[i], *given))
                self._sent[i] = values

    def _rebuild(self) -> None:
        """Makes the engine's optimiser anew for other parameters; states move over."""
        states = {**self._pending, **dict(self.state)} if self._handle else self._pending
        owner: Owner | None = None
        sent, members = [], []
        numbered: list[int] = []
        for g in self.param_groups:
            values = self._values(g)
            numbers = array("d", values)
            params = array("q", [p._h for p in g["params"]])
            given = (self._names, address(numbers), len(numbers), address(params), len(params))
            numbered.append(1 + max(numbered, default=-1) if params else -1)
            if not params:
                pass
            elif owner is None:
                owner = Owner(check(_core.bind_OptimNew(self._algorithm, *given)))
            else:
                check(_core.bind_OptimAddGroup(owner._h, *given))
            sent.append(values)
            members.append(list(map(id, g["params"])))
        places = {id(p): i for i, p in enumerate(p for g in self.param_groups for p in g["params"])}
        handle = owner._h if owner is not None else 0
        if states and handle:
            self._send(handle, places, states)
        self._owner, self._handle = owner, handle
        self._sent, self._members, self._places, self._numbered = sent, members, places, numbered
        self._pending = {}

    def _replace(self, states: dict[Any, Any]) -> None:
        if self._handle:
            self._send(self._handle, self._places, states)

    def _load(self, state: dict[Any, Any], groups: list[dict[str, Any]]) -> None:
        for g in groups:
            self._values(g)  # raises what is wrong before anything changes
        old = self.param_groups
        self.param_groups = groups
        try:
            self._sync()
            self._replace(state)
        except BaseException:
            self.param_groups = old
            self._sync()
            raise
        self._dicts.clear()
        self._given.clear()
        own_names = {"step", *self._own_names()}
        for key, value in state.items():
            users = {k: v for k, v in value.items() if k not in own_names} if isinstance(key, Tensor) else value
            if users:
                self._dicts[key] = users

    def _cast(self, p: Tensor, key: str, value: Any) -> Any:
        # The engine copies and converts its own.
        return value if key in self._tensors or key in self._numbers else super()._cast(p, key, value)

    # --- states ---

    def _kept(self, p: Any) -> dict[str, Any]:
        """Returns the engine's state of a parameter in PyTorch's form."""
        at = self._places.get(id(p), -1)
        said = _core.bind_OptimState(self._handle, at) if self._handle and at >= 0 else ""
        if not said:
            return {}
        known = json.loads(said)
        shared = self._steps.get(at)
        count = tensor(float(known["step"])) if shared is None else shared
        out: dict[str, Any] = {"step": count} if self._counts else {}
        for name, value in known["numbers"].items():
            out[name] = tensor(float(value), dtype=float64)  # all of its bits, so that training goes on with the same
        for name in known["tensors"]:
            out[name] = own(check(_core.bind_OptimStateTensor(self._handle, at, name)))
        return out

    def _split(self, state: dict[str, Any]) -> tuple[dict[str, float], dict[str, Tensor]]:
        """Returns the numbers and the tensors of a state in PyTorch's form by the engine's names."""
        numbers = {k: float(state[k]) for k in self._numbers if state.get(k) is not None}
        return numbers, {k: as_tensor(state[k]).detach() for k in self._tensors if state.get(k) is not None}

    def _send(self, handle: int, places: dict[int, int], states: dict[Any, Any]) -> None:
        """Gives the engine states in PyTorch's form."""
        batch = check(_core.bind_OptimStatesNew())
        keep: list[Any] = []
        steps = {}
        try:
            for p, state in states.items():
                if id(p) not in places or not isinstance(state, dict):
                    continue
                numbers, tensors = self._split(state)
                count = float(state.get(self._count, 1 if tensors else 0))
                if not numbers and not tensors and count == 0:
                    continue
                step = state.get(self._count)
                if isinstance(step, Tensor) and step.is_cpu and step.is_shared():
                    steps[places[id(p)]] = step
                values, list_ = array("d", numbers.values()), array("q", [t._h for t in tensors.values()])
                keep.append(tensors)
                check(
                    _core.bind_OptimStatesAdd(
                        batch,
                        places[id(p)],
                        count,
                        ",".join(numbers),
                        address(values),
                        len(values),
                        ",".join(tensors),
                        address(list_),
                        len(list_),
                    )
                )
            check(_core.bind_OptimLoad(handle, batch))
            self._steps = steps
        finally:
            _core.bind_ObjectRelease(batch)


def pairs(*names: str, **others: tuple[str, int] | str) -> tuple[tuple[str, str, int | None], ...]:
    """Returns a class's table of hyperparameters: named as in a group, and those with another name or in a pair."""
    table: list[tuple[str, str, int | None]] = [(n, n, None) for n in names]
    for name, key in others.items():
        table.append((name, key, None) if isinstance(key, str) else (name, key[0], key[1]))
    return tuple(table)


BETAS: dict[str, Any] = {"beta1": ("betas", 0), "beta2": ("betas", 1)}


def arguments(names: dict[str, Any]) -> dict[str, Any]:
    """Returns the hyperparameters among an `__init__`'s `locals()`: every argument but self and params."""
    return {k: v for k, v in names.items() if k not in ("self", "params", "__class__")}
