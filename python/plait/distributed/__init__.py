"""Ranks that act together, under the names of torch.distributed.

`spawn` runs a function on several ranks, which are threads of this process, each with a device of its own: in
scripts, tests and notebooks alike. Inside, `init_process_group()` needs no arguments. A rank has its own random
generator, default device and dtype, default group and grad mode, and a device without an index, "cpu" or "cuda", is
its own; `os.environ` and NumPy's generator belong to the process.

The tensors given to a collective are ordered by it: what is done with them later waits by itself. A synchronous call
returns when every rank has come and all agree; an asynchronous one returns a `Work` at once.
"""

from __future__ import annotations

from typing import Any as _Any

from plait._engine.missing_names import absent as _absent
from plait._errors import DistributedError as DistBackendError
from plait._errors import DistributedError as DistError
from plait.distributed._bucket import GradBucket
from plait.distributed._collectives import (
    all_gather,
    all_gather_into_tensor,
    all_reduce,
    all_to_all,
    all_to_all_single,
    barrier,
    broadcast,
    gather,
    monitored_barrier,
    reduce,
    reduce_scatter,
    reduce_scatter_tensor,
    scatter,
)
from plait.distributed._groups import (
    Backend,
    GroupMember,
    ProcessGroup,
    destroy_process_group,
    get_backend,
    get_global_rank,
    get_group_rank,
    get_node_local_rank,
    get_process_group_ranks,
    get_rank,
    get_world_size,
    group,
    init_process_group,
    is_available,
    is_gloo_available,
    is_initialized,
    is_mpi_available,
    is_nccl_available,
    is_torchelastic_launched,
    new_group,
    new_subgroups,
    split_group,
)
from plait.distributed._objects import (
    all_gather_object,
    broadcast_object_list,
    gather_object,
    recv_object_list,
    scatter_object_list,
    send_object_list,
)
from plait.distributed._peers import P2POp, batch_isend_irecv, irecv, isend, recv, send
from plait.distributed._single_thread import all_reduce_sync
from plait.distributed._spawn import spawn
from plait.distributed._work import ReduceOp, Work
from plait.distributed.device_mesh import DeviceMesh, init_device_mesh

__all__ = [
    "Backend",
    "DeviceMesh",
    "DistBackendError",
    "DistError",
    "GradBucket",
    "GroupMember",
    "P2POp",
    "ProcessGroup",
    "ReduceOp",
    "Work",
    "all_gather",
    "all_gather_into_tensor",
    "all_gather_object",
    "all_reduce",
    "all_reduce_sync",
    "all_to_all",
    "all_to_all_single",
    "barrier",
    "batch_isend_irecv",
    "broadcast",
    "broadcast_object_list",
    "destroy_process_group",
    "gather",
    "gather_object",
    "get_backend",
    "get_global_rank",
    "get_group_rank",
    "get_node_local_rank",
    "get_process_group_ranks",
    "get_rank",
    "get_world_size",
    "group",
    "init_device_mesh",
    "init_process_group",
    "irecv",
    "is_available",
    "is_gloo_available",
    "is_initialized",
    "is_mpi_available",
    "is_nccl_available",
    "is_torchelastic_launched",
    "isend",
    "monitored_barrier",
    "new_group",
    "new_subgroups",
    "recv",
    "recv_object_list",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "scatter",
    "scatter_object_list",
    "send",
    "send_object_list",
    "spawn",
    "split_group",
]


def __getattr__(name: str) -> _Any:
    raise _absent("distributed", "plait.distributed", name)
