"""Training with parameters, gradients and optimiser state divided over ranks.

Under the names of torch.distributed.fsdp. `FullyShardedDataParallel` (`FSDP`) and `fully_shard` are two spellings of
one thing: both change a module in place, and the modules they make may be mixed.
"""

from plait.distributed.fsdp import wrap
from plait.distributed.fsdp._fully_shard import fully_shard, register_fsdp_forward_method
from plait.distributed.fsdp._module import FSDPModule, UnshardHandle
from plait.distributed.fsdp._states import StateDictSettings
from plait.distributed.fsdp._unit import ParameterLayout, Rows, Shard, ShardedParameter
from plait.distributed.fsdp.api import (
    BackwardPrefetch,
    CPUOffload,
    CPUOffloadPolicy,
    FullOptimStateDictConfig,
    FullStateDictConfig,
    LocalOptimStateDictConfig,
    LocalStateDictConfig,
    MixedPrecision,
    MixedPrecisionPolicy,
    OffloadPolicy,
    OptimStateDictConfig,
    ShardedOptimStateDictConfig,
    ShardedStateDictConfig,
    ShardingStrategy,
    StateDictConfig,
    StateDictType,
)
from plait.distributed.fsdp.fully_sharded_data_parallel import FullyShardedDataParallel
from plait.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler

FSDP = FullyShardedDataParallel

__all__ = [
    "FSDP",
    "BackwardPrefetch",
    "CPUOffload",
    "CPUOffloadPolicy",
    "FSDPModule",
    "FullOptimStateDictConfig",
    "FullStateDictConfig",
    "FullyShardedDataParallel",
    "LocalOptimStateDictConfig",
    "LocalStateDictConfig",
    "MixedPrecision",
    "MixedPrecisionPolicy",
    "OffloadPolicy",
    "OptimStateDictConfig",
    "ParameterLayout",
    "Rows",
    "Shard",
    "ShardedGradScaler",
    "ShardedOptimStateDictConfig",
    "ShardedParameter",
    "ShardedStateDictConfig",
    "ShardingStrategy",
    "StateDictConfig",
    "StateDictSettings",
    "StateDictType",
    "UnshardHandle",
    "fully_shard",
    "register_fsdp_forward_method",
    "wrap",
]
