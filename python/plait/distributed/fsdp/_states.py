"""State dicts of `FullyShardedDataParallel` modules and their optimisers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

from plait._tensor import Tensor
from plait.distributed._groups import ProcessGroup
from plait.distributed.checkpoint._states import part_for
from plait.distributed.checkpoint.state_dict import optimizer_state_of, state_from_rank0
from plait.distributed.fsdp._module import FSDPModule, unit_of
from plait.distributed.fsdp.api import OptimStateDictConfig, StateDictConfig, StateDictType, configs_of
from plait.nn.modules.module import Module


class StateDictSettings(NamedTuple):
    """The type and the options of what `state_dict` and `optim_state_dict` return."""

    state_dict_type: StateDictType
    state_dict_config: StateDictConfig
    optim_state_dict_config: OptimStateDictConfig


_DEFAULT = StateDictSettings(StateDictType.FULL_STATE_DICT, *configs_of(StateDictType.FULL_STATE_DICT, None, None))


class StateMethods(FSDPModule):
    """The methods of `FullyShardedDataParallel` for state dicts."""

    @staticmethod
    def set_state_dict_type(
        module: Module,
        state_dict_type: StateDictType,
        state_dict_config: StateDictConfig | None = None,
        optim_state_dict_config: OptimStateDictConfig | None = None,
    ) -> StateDictSettings:
        """Sets what `state_dict` and `optim_state_dict` return for a module, and returns the previous settings.

        Args:
            module: an FSDP module, or one that contains some
            state_dict_type: full tensors, or this rank's shards
            state_dict_config: options of the module's state dict
            optim_state_dict_config: options of the optimiser's state dict, which is on the CPU by default

        Raises:
            TypeError: if a config is for another type.
        """
        before = StateMethods.get_state_dict_type(module)
        configs = configs_of(state_dict_type, state_dict_config, optim_state_dict_config)
        for m in _units(module):
            m.__dict__["_fsdp_state"] = StateDictSettings(state_dict_type, *configs)
        return before

    @staticmethod
    def get_state_dict_type(module: Module) -> StateDictSettings:
        """Returns the settings of `set_state_dict_type`."""
        for m in _units(module)[:1]:
            if "_fsdp_state" in m.__dict__:
                return m.__dict__["_fsdp_state"]
        return _DEFAULT

    @staticmethod
    @contextlib.contextmanager
    def state_dict_type(
        module: Module,
        state_dict_type: StateDictType,
        state_dict_config: StateDictConfig | None = None,
        optim_state_dict_config: OptimStateDictConfig | None = None,
    ) -> Iterator[None]:
        """A context manager that sets the type of state dicts inside: see `set_state_dict_type`."""
        before = StateMethods.set_state_dict_type(module, state_dict_type, state_dict_config, optim_state_dict_config)
        try:
            yield
        finally:
            StateMethods.set_state_dict_type(module, *before)

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Returns parameters and buffers by name. By default they are full tensors, gathered on every rank."""
        state = super().state_dict(*args, **kwargs)
        kind, config, _ = self.__dict__.get("_fsdp_state", _DEFAULT)
        if kwargs.get("keep_vars"):
            return state
        if kind is not StateDictType.FULL_STATE_DICT:
            for name, value in state.items():
                if config.offload_to_cpu and isinstance(value, Tensor):
                    state[name] = value.to("cpu")
            return state
        rank0 = getattr(config, "rank0_only", False)
        for name, value in list(state.items()):
            full = value.full_tensor() if hasattr(value, "full_tensor") else value
            if isinstance(full, Tensor) and config.offload_to_cpu:
                full = full.to("cpu")
            state[name] = full
        if rank0:
            shards, copies = unit_of(self).groups  # type: ignore[union-attr]
            if any(g is not None and g.rank() != 0 for g in (shards, copies)):
                state.clear()
        return state

    @staticmethod
    def full_optim_state_dict(
        model: Module, optim: Any, optim_input: Any = None, rank0_only: bool = True, group: ProcessGroup | None = None
    ) -> dict[str, Any]:
        """Returns an optimiser's state by parameter name, with full tensors on the CPU. Every rank calls it.

        Args:
            model: the FSDP module
            optim: its optimiser
            optim_input: has no effect
            rank0_only: the other ranks get an empty state dict
            group: has no effect
        """
        return optimizer_state_of(model, optim, True, True, rank0_only)

    @staticmethod
    def sharded_optim_state_dict(model: Module, optim: Any, group: ProcessGroup | None = None) -> dict[str, Any]:
        """Returns an optimiser's state by parameter name, with this rank's shards."""
        return optimizer_state_of(model, optim, False, False, False)

    @staticmethod
    def optim_state_dict(
        model: Module, optim: Any, optim_state_dict: Any = None, group: ProcessGroup | None = None
    ) -> dict[str, Any]:
        """Returns an optimiser's state by parameter name, with full tensors or shards: see `set_state_dict_type`.

        Args:
            model: the FSDP module
            optim: its optimiser
            optim_state_dict: has no effect; the state is always the optimiser's
            group: has no effect
        """
        kind, _, config = StateMethods.get_state_dict_type(model)
        rank0 = getattr(config, "rank0_only", False)
        return optimizer_state_of(model, optim, kind is StateDictType.FULL_STATE_DICT, config.offload_to_cpu, rank0)

    @staticmethod
    def optim_state_dict_to_load(
        model: Module,
        optim: Any,
        optim_state_dict: dict[str, Any],
        is_named_optimizer: bool = False,
        load_directly: bool = False,
        group: ProcessGroup | None = None,
    ) -> dict[str, Any]:
        """Converts a result of `optim_state_dict` for the optimiser's `load_state_dict`.

        Args:
            model: the FSDP module
            optim: its optimiser
            optim_state_dict: a state with full tensors or this rank's shards
            is_named_optimizer: must be False
            load_directly: whether to load it, too
            group: has no effect
        """
        if is_named_optimizer:
            raise NotImplementedError("optim_state_dict_to_load: is_named_optimizer must be False")
        state = StateMethods.shard_full_optim_state_dict(optim_state_dict, model)
        if load_directly:
            optim.load_state_dict(state)
        return state

    @staticmethod
    def scatter_full_optim_state_dict(
        full_optim_state_dict: dict[str, Any] | None,
        model: Module,
        optim_input: Any = None,
        optim: Any = None,
        group: ProcessGroup | None = None,
    ) -> dict[str, Any]:
        """Scatters a full state from rank 0. Returns this rank's shards, for the optimiser's `load_state_dict`.

        Every rank calls it.
        """
        state = state_from_rank0(full_optim_state_dict or {}, dict(model.named_parameters()))
        return StateMethods.shard_full_optim_state_dict(state, model)

    @staticmethod
    def shard_full_optim_state_dict(full_optim_state_dict: dict[str, Any], model: Module, *args: Any) -> dict[str, Any]:
        """Returns this rank's shards of a full state, for the optimiser's `load_state_dict`."""
        params = dict(model.named_parameters())
        numbers: dict[str, int] = {}
        groups = []
        for g in full_optim_state_dict["param_groups"]:
            for n in g["params"]:
                numbers[n] = len(numbers)
            groups.append({**g, "params": [numbers[n] for n in g["params"]]})
        state = {}
        for name, kept in full_optim_state_dict["state"].items():
            p = params[name]
            state[numbers[name]] = {k: part_for(v, p) if k != "step" else v for k, v in kept.items()}
        return {"state": state, "param_groups": groups}


def _units(module: Module) -> list[Module]:
    return [m for m in module.modules() if isinstance(m, StateMethods)]
