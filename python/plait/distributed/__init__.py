"""Ranks that act together, under the names of torch.distributed.

`spawn` runs a function on several ranks, which are threads of this process, each with a device of its own: in
scripts, tests and notebooks alike. Inside, `init_process_group()` needs no arguments. A rank has its own random
generator, default device and dtype, default group and grad mode, and a device without an index, "cpu" or "cuda", is
its own; `os.environ` and NumPy's generator belong to the process.

The tensors given to a collective are ordered by it: what is done with them later waits by itself. A synchronous call
returns when every rank has come and all agree; an asynchronous one returns a `Work` at once.
"""

from typing import Any as _Any

from plait._engine.missing_names import absent as _absent
from plait._errors import DistributedError as _DistributedError
from plait._public import publish as _publish
from plait.distributed._bucket import GradBucket as GradBucket
from plait.distributed._collectives import *
from plait.distributed._groups import *
from plait.distributed._objects import *
from plait.distributed._peers import *
from plait.distributed._single_thread import all_reduce_sync as all_reduce_sync
from plait.distributed._spawn import spawn as spawn
from plait.distributed._work import *
from plait.distributed.device_mesh import *

DistBackendError = DistError = _DistributedError

_publish(globals())


def __getattr__(name: str) -> _Any:
    raise _absent("distributed", "plait.distributed", name)
