"""Options of FSDP, with PyTorch's names: sharding, prefetching, mixed precision, offloading, state dicts."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from plait._dtype import dtype

__all__ = [
    "BackwardPrefetch",
    "CPUOffload",
    "CPUOffloadPolicy",
    "FullOptimStateDictConfig",
    "FullStateDictConfig",
    "LocalOptimStateDictConfig",
    "LocalStateDictConfig",
    "MixedPrecision",
    "MixedPrecisionPolicy",
    "OffloadPolicy",
    "OptimStateDictConfig",
    "ShardedOptimStateDictConfig",
    "ShardedStateDictConfig",
    "ShardingStrategy",
    "StateDictConfig",
    "StateDictType",
]


class ShardingStrategy(enum.Enum):
    """What is sharded over ranks, and when parameters are gathered."""

    FULL_SHARD = enum.auto()
    """Parameters, gradients and optimiser state; parameters are gathered for forward and again for backward."""
    SHARD_GRAD_OP = enum.auto()
    """The same, but parameters stay gathered from forward to backward."""
    NO_SHARD = enum.auto()
    """No sharding; gradients are all-reduced as in DDP."""
    HYBRID_SHARD = enum.auto()
    """FULL_SHARD within groups of ranks; the groups are replicas."""
    _HYBRID_SHARD_ZERO2 = enum.auto()
    """SHARD_GRAD_OP within groups of ranks; the groups are replicas."""


class BackwardPrefetch(enum.Enum):
    """When backward starts to gather the next unit."""

    BACKWARD_PRE = enum.auto()
    """Before the current unit's backward: overlaps with its computation, and holds two units' parameters at once."""
    BACKWARD_POST = enum.auto()
    """After the current unit's backward: overlaps with the reduction of its gradients."""


@dataclass(frozen=True)
class MixedPrecisionPolicy:
    """The dtypes in which `fully_shard` computes and reduces. Shards and the optimiser keep the parameters' dtype.

    Attributes:
        param_dtype: dtype of gathered parameters, in which forward and backward compute
        reduce_dtype: dtype in which gradients are reduced; param_dtype by default
        output_dtype: dtype that floating-point outputs are cast to
        cast_forward_inputs: cast floating-point inputs to param_dtype
    """

    param_dtype: dtype | None = None
    reduce_dtype: dtype | None = None
    output_dtype: dtype | None = None
    cast_forward_inputs: bool = True


@dataclass(frozen=True)
class MixedPrecision:
    """The dtypes in which `FullyShardedDataParallel` computes and reduces.

    Attributes:
        param_dtype: dtype of gathered parameters, in which forward and backward compute
        reduce_dtype: dtype in which gradients are reduced; param_dtype by default
        buffer_dtype: dtype that floating-point buffers are cast to, once
        keep_low_precision_grads: must be False: gradients have the dtype of the shards
        cast_forward_inputs: cast the inputs of every unit
        cast_root_forward_inputs: cast the inputs of the root unit
    """

    param_dtype: dtype | None = None
    reduce_dtype: dtype | None = None
    buffer_dtype: dtype | None = None
    keep_low_precision_grads: bool = False
    cast_forward_inputs: bool = False
    cast_root_forward_inputs: bool = True
    _module_classes_to_ignore: Iterable[type] = field(default=())


@dataclass(frozen=True)
class OffloadPolicy:
    """No offloading: shards stay on the device that computes."""


@dataclass(frozen=True)
class CPUOffloadPolicy(OffloadPolicy):
    """Keeps shards, their gradients and the optimiser's state on the CPU.

    Attributes:
        pin_memory: has no effect
    """

    pin_memory: bool = True


@dataclass
class CPUOffload:
    """With `offload_params`, keeps shards, their gradients and the optimiser's state on the CPU."""

    offload_params: bool = False


class StateDictType(enum.Enum):
    """What `state_dict` holds for a sharded parameter."""

    FULL_STATE_DICT = enum.auto()
    """The full parameter, gathered on every rank."""
    LOCAL_STATE_DICT = enum.auto()
    """The rank's shard."""
    SHARDED_STATE_DICT = enum.auto()
    """The rank's shard, whose `full_tensor` gathers the full parameter."""


@dataclass
class StateDictConfig:
    """Options of a model's state dict: `offload_to_cpu` moves its tensors to the CPU."""

    offload_to_cpu: bool = False


@dataclass
class FullStateDictConfig(StateDictConfig):
    """With `rank0_only`, the other ranks get an empty state dict."""

    rank0_only: bool = False


@dataclass
class LocalStateDictConfig(StateDictConfig):
    """Has no options of its own."""


@dataclass
class ShardedStateDictConfig(StateDictConfig):
    """Has no options of its own."""


@dataclass
class OptimStateDictConfig:
    """Options of an optimiser's state dict: `offload_to_cpu` moves its tensors to the CPU."""

    offload_to_cpu: bool = True


@dataclass
class FullOptimStateDictConfig(OptimStateDictConfig):
    """With `rank0_only`, the other ranks get an empty state dict."""

    rank0_only: bool = False


@dataclass
class LocalOptimStateDictConfig(OptimStateDictConfig):
    """Tensors stay on their devices by default."""

    offload_to_cpu: bool = False


@dataclass
class ShardedOptimStateDictConfig(OptimStateDictConfig):
    """Has no options of its own."""


_CONFIGS: dict[StateDictType, tuple[type[StateDictConfig], type[OptimStateDictConfig]]] = {
    StateDictType.FULL_STATE_DICT: (FullStateDictConfig, FullOptimStateDictConfig),
    StateDictType.LOCAL_STATE_DICT: (LocalStateDictConfig, LocalOptimStateDictConfig),
    StateDictType.SHARDED_STATE_DICT: (ShardedStateDictConfig, ShardedOptimStateDictConfig),
}


def configs_of(
    kind: StateDictType, model: StateDictConfig | None, optim: OptimStateDictConfig | None
) -> tuple[StateDictConfig, OptimStateDictConfig]:
    """Returns the configs for a type of state dict, with defaults for those that are None.

    Raises:
        TypeError: if the type is invalid, or a config is for another type.
    """
    if not isinstance(kind, StateDictType):
        raise TypeError(f"set_state_dict_type: want a StateDictType, got {kind!r}")
    found = []
    for given, cls in zip((model, optim), _CONFIGS[kind], strict=True):
        if given is not None and not isinstance(given, cls):
            raise TypeError(f"set_state_dict_type: {kind.name} wants a {cls.__name__}, got {type(given).__name__}")
        found.append(cls() if given is None else given)
    return found[0], found[1]  # type: ignore[return-value]


def precision_of(policy: Any, root: bool) -> tuple[int, int, int, bool]:
    """Converts a policy for the engine: param, reduce and output dtypes, -1 for none, and whether to keep inputs."""
    if policy is None:
        return -1, -1, -1, True
    if not isinstance(policy, MixedPrecision | MixedPrecisionPolicy):
        raise TypeError(f"fully_shard: want a MixedPrecisionPolicy, got {type(policy).__name__}")
    numbers = []
    for name in ("param_dtype", "reduce_dtype", "output_dtype"):
        d = getattr(policy, name, None)
        if d is not None and not isinstance(d, dtype):
            raise TypeError(f"{type(policy).__name__}: {name} must be a dtype, got {d!r}")
        numbers.append(-1 if d is None else d._number)
    cast = policy.cast_forward_inputs
    if isinstance(policy, MixedPrecision):
        if policy.keep_low_precision_grads:
            raise NotImplementedError("MixedPrecision: keep_low_precision_grads is not available")
        cast = cast or (root and policy.cast_root_forward_inputs)
    return numbers[0], numbers[1], numbers[2], not cast
