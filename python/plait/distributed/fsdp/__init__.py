"""Training with parameters, gradients and optimiser state sharded over ranks.

Under the names of torch.distributed.fsdp. `FullyShardedDataParallel` (`FSDP`) and `fully_shard` are two spellings of
one thing: both change a module in place, and the modules they make may be mixed.
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
