"""What all optimisers have in common: groups of parameters, states, hooks and saved states."""

from __future__ import annotations

import functools
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable
from copy import deepcopy
from itertools import chain
from types import MappingProxyType
from typing import Any, TypeAlias

from plait import _core
from plait._autograd.hooks import RemovableHandle
from plait._engine.runtime import address, check, handles
from plait._modes import enable_grad
from plait._tensor import Tensor

ParamsT: TypeAlias = Iterable[Any]
Closure: TypeAlias = Callable[[], Any]


class _Required:
    """Stands for a hyperparameter without a default."""

    def __repr__(self) -> str:
        return "<required parameter>"


required = _Required()


class Optimizer:
    """The base of all optimisers, also of those that users write.

    A subclass calls `super().__init__(params, defaults)` and overrides `step`, which goes through `param_groups`: dicts
    with the list "params" and hyperparameters. `state` maps a parameter to a dict of what is kept for it.

    Args:
        params: parameters, pairs of names and parameters, or dicts with "params" and what differs from the defaults
        defaults: hyperparameters by name
    """

    param_groups: list[dict[str, Any]]
    state: Any

    # A subclass that wraps another optimiser may not call `__init__`.
    defaults: Any = MappingProxyType({})
    _inside_step = False
    _stepped = False  # for schedulers, which want to come after

    @functools.cached_property
    def _hooks(self) -> dict[str, OrderedDict[int, Callable[..., Any]]]:
        return {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "step" in cls.__dict__:
            cls.step = _hooked(cls.__dict__["step"])  # type: ignore[method-assign]

    def __init__(self, params: ParamsT, defaults: dict[str, Any]) -> None:
        self._prepare()
        self.defaults = defaults
        if isinstance(params, Tensor):
            raise TypeError("params: want parameters in a list or another iterable, got a single tensor")
        self.state = defaultdict(dict)
        self.param_groups = []
        groups = list(params)
        if not groups:
            raise ValueError("optimizer got an empty parameter list")
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        for group in groups:
            self.add_param_group(group)

    def _prepare(self) -> None:
        """Makes what is not saved with the optimiser."""
        self._hooks = {}

    def _patch_step_function(self) -> None:
        """Has no effect. Optimisers that wrap others call it where they skip `__init__`; `step` calls hooks anyway."""

    def __getstate__(self) -> dict[str, Any]:
        return {"defaults": self.defaults, "state": dict(self.state), "param_groups": self.param_groups}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._prepare()
        self.defaults = state["defaults"]
        self.param_groups = state["param_groups"]
        self.state = defaultdict(dict, state["state"])

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__} ("]
        for i, group in enumerate(self.param_groups):
            lines.append(f"Parameter Group {i}")
            lines += [f"    {key}: {group[key]}" for key in sorted(group) if key != "params"]
        return "\n".join([*lines, ")"])

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds parameters with hyperparameters of their own.

        Args:
            param_group: "params", and hyperparameters that differ from the defaults

        Raises:
            TypeError: if it is not a dict, or its parameters are no tensors or a set, which has no order.
            ValueError: for parameters that are no leaves or are there already, and for a missing hyperparameter.
        """
        if not isinstance(param_group, dict):
            raise TypeError(f"param_group must be a dict, but got {type(param_group)}")
        group = dict(param_group)
        params = group["params"]
        if isinstance(params, Tensor):
            params = [params]
        elif isinstance(params, set):
            raise TypeError("params: want an ordered collection, got a set")
        params = list(params)
        if params and all(isinstance(p, tuple) for p in params):
            group["param_names"] = [name for name, _ in params]
            params = [p for _, p in params]
        group["params"] = params
        for p in params:
            if not isinstance(p, Tensor):
                raise TypeError(f"optimizer can only optimize Tensors, but one of the params is {type(p).__name__}")
            if not (p.is_leaf or getattr(p, "retains_grad", False)):
                raise ValueError("can't optimize a non-leaf Tensor: a parameter is the result of an operation")
        for name, default in self.defaults.items():
            if default is required and name not in group:
                raise ValueError(f"parameter group didn't specify a value of required optimization parameter {name}")
            group.setdefault(name, default)
        if len({id(p) for p in params}) != len(params):
            raise ValueError("a parameter group has the same parameter twice")
        known = {id(p) for g in self.param_groups for p in g["params"]}
        if any(id(p) in known for p in params):
            raise ValueError("some parameters appear in more than one parameter group")
        named = ["param_names" in g for g in (*self.param_groups, group)]
        if any(named) != all(named):
            raise ValueError("all optimizer param groups should be with/without names")
        self.param_groups.append(group)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drops the gradients of all parameters, or fills them with zeros.

        Args:
            set_to_none: drop them, which takes no time and gives their memory back
        """
        params = [p for g in self.param_groups for p in g["params"]]
        if set_to_none:
            if params:
                list_ = handles(params) if len(params) > 1 else handles((params,))
                check(_core.bind_GradsDrop(address(list_), len(list_)))
            return
        for p in params:
            if (grad := p.grad) is not None:
                grad.detach().zero_()

    def step(self, closure: Closure | None = None) -> Any:
        """Updates the parameters by their gradients.

        Args:
            closure: clears the gradients, computes the loss and its gradients, and returns it
        """
        raise NotImplementedError(f"{type(self).__name__}.step")

    # --- saved states ---

    def state_dict(self) -> dict[str, Any]:
        """Returns what the optimiser must know to go on: "state" by number of the parameter, and "param_groups"."""
        for hook in self._all_hooks("state_dict_pre"):
            hook(self)
        number = {id(p): i for i, p in enumerate(chain.from_iterable(g["params"] for g in self.param_groups))}
        groups = [
            {**{k: v for k, v in g.items() if k != "params"}, "params": [number[id(p)] for p in g["params"]]}
            for g in self.param_groups
        ]
        state = {(number[id(k)] if isinstance(k, Tensor) else k): v for k, v in self.state.items()}
        out = {"state": state, "param_groups": groups}
        for hook in self._all_hooks("state_dict_post"):
            changed = hook(self, out)
            out = out if changed is None else changed
        return out

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Goes on from a state that `state_dict` returned, of as many groups with as many parameters.

        Args:
            state_dict: is not changed; its tensors are copied where device or dtype differ

        Raises:
            ValueError: if the groups do not fit.
        """
        state_dict = dict(state_dict)
        for hook in self._all_hooks("load_state_dict_pre"):
            changed = hook(self, state_dict)
            state_dict = state_dict if changed is None else changed
        saved = state_dict["param_groups"]
        if len(saved) != len(self.param_groups):
            raise ValueError(
                "loaded state dict has a different number of parameter groups: "
                f"got {len(saved)}, want {len(self.param_groups)}"
            )
        for i, (g, s) in enumerate(zip(self.param_groups, saved, strict=True)):
            if len(g["params"]) != len(s["params"]):
                raise ValueError(
                    f"loaded state dict contains a parameter group that doesn't match the size of optimizer's group: "
                    f"group {i} got {len(s['params'])} parameters, want {len(g['params'])}"
                )
        by_number = {
            n: p
            for g, s in zip(self.param_groups, saved, strict=True)
            for n, p in zip(s["params"], g["params"], strict=True)
        }
        state: dict[Any, Any] = {}
        for key, value in state_dict["state"].items():
            if key in by_number:
                p = by_number[key]
                state[p] = {k: self._cast(p, k, v) for k, v in value.items()} if isinstance(value, dict) else value
            else:
                state[key] = value
        groups = []
        for g, s in zip(self.param_groups, saved, strict=True):
            new = {k: deepcopy(v) for k, v in s.items() if k != "params"}
            if "param_names" in g and "param_names" not in new:
                new["param_names"] = g["param_names"]
            for name in self.defaults:
                if name not in new and name in g:
                    new[name] = g[name]
            groups.append({"params": g["params"], **new})
        self._load(state, groups)
        for hook in self._all_hooks("load_state_dict_post"):
            hook(self)

    def _cast(self, p: Tensor, key: str, value: Any) -> Any:
        """Returns a saved value as a parameter's state: on its device and, but for counts, of its dtype."""
        if isinstance(value, Tensor):
            if key == "step":
                return value.clone()
            if hasattr(p, "device_mesh") or hasattr(value, "device_mesh"):
                from plait.distributed.tensor._alike import state_like

                value = state_like(p, key, value)
            dtype = p.dtype if value.dtype.is_floating_point else None
            return value.to(device=p.device, dtype=dtype, copy=True)
        if isinstance(value, dict):
            return {k: self._cast(p, k, v) for k, v in value.items()}
        if isinstance(value, list | tuple):
            return type(value)(self._cast(p, key, v) for v in value)
        return value

    def _load(self, state: dict[Any, Any], groups: list[dict[str, Any]]) -> None:
        self.param_groups = groups
        self.state = defaultdict(dict, state)

    # --- hooks ---

    def _all_hooks(self, kind: str) -> list[Callable[..., Any]]:
        return list(self._hooks.get(kind, {}).values())

    def _register(self, kind: str, hook: Callable[..., Any], first: bool = False) -> RemovableHandle:
        hooks = self._hooks.setdefault(kind, OrderedDict())
        key = max(hooks, default=0) + 1
        hooks[key] = hook
        if first:
            hooks.move_to_end(key, last=False)
        return RemovableHandle(lambda: hooks.pop(key, None) and None)

    def register_step_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Calls `hook(optimizer, args, kwargs)` before each step; it may return other args and kwargs."""
        return self._register("step_pre", hook)

    def register_step_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Calls `hook(optimizer, args, kwargs)` after each step."""
        return self._register("step_post", hook)

    def register_state_dict_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Calls `hook(optimizer)` before a state is saved."""
        return self._register("state_dict_pre", hook, prepend)

    def register_state_dict_post_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Calls `hook(optimizer, state_dict)` after a state was saved; it may return another one."""
        return self._register("state_dict_post", hook, prepend)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Calls `hook(optimizer, state_dict)` before a state is loaded; it may return another one."""
        return self._register("load_state_dict_pre", hook, prepend)

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Calls `hook(optimizer)` after a state was loaded."""
        return self._register("load_state_dict_post", hook, prepend)


def _hooked(step: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a class's `step` with the hooks around it; a step that calls its base's runs them once."""

    @functools.wraps(step)
    def wrapped(self: Optimizer, *args: Any, **kwargs: Any) -> Any:
        if self._inside_step:
            return step(self, *args, **kwargs)
        self._inside_step = True
        try:
            if not self._hooks:
                out = step(self, *args, **kwargs)
            else:
                for hook in self._all_hooks("step_pre"):
                    changed = hook(self, args, kwargs)
                    if changed is not None:
                        if not (isinstance(changed, tuple) and len(changed) == 2):
                            raise RuntimeError(f"a step pre-hook must return None or (args, kwargs), got {changed!r}")
                        args, kwargs = changed
                out = step(self, *args, **kwargs)
                for hook in self._all_hooks("step_post"):
                    hook(self, args, kwargs)
        finally:
            self._inside_step = False
        self._stepped = True
        return out

    return wrapped


def evaluate(closure: Closure | None) -> Any:
    """Returns what a closure returns, called with gradients on; None without one."""
    if closure is None:
        return None
    with enable_grad():
        return closure()
