"""FSDP: parameters, gradients and optimiser state are sharded over ranks. Names are those of torch.distributed.fsdp.

`FullyShardedDataParallel` (`FSDP`) and `fully_shard` are two APIs for the same thing. Both change a module in place,
and they may be mixed in one model.
"""

from plait._public import publish as _publish
from plait.distributed.fsdp import wrap as wrap
from plait.distributed.fsdp._fully_shard import *
from plait.distributed.fsdp._module import *
from plait.distributed.fsdp._states import StateDictSettings as StateDictSettings
from plait.distributed.fsdp._unit import *
from plait.distributed.fsdp.api import *
from plait.distributed.fsdp.fully_sharded_data_parallel import FullyShardedDataParallel as FullyShardedDataParallel
from plait.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler as ShardedGradScaler

FSDP = FullyShardedDataParallel

_publish(globals(), "wrap")
