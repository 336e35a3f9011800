"""Ranks, process groups and collectives, with the names of torch.distributed.

`spawn` runs a function on several ranks, in scripts, tests and notebooks. Ranks are threads of this process, each with
its own device. Inside, `init_process_group()` needs no arguments. A rank has its own random generator, default device
and dtype, default group and grad mode. A device without an index, "cpu" or "cuda", is the rank's own. `os.environ` and
NumPy's generator are shared by the process.

Later operations on a collective's tensors run after the collective, without an explicit wait. A synchronous call
returns when every rank has made the call and all agree. An asynchronous call returns a `Work` at once.
"""

from typing import Any as _Any

from plait._engine.missing_names import absent as _absent
from plait._errors import DistNetworkError as DistNetworkError
from plait._errors import DistributedError as _DistributedError
from plait._errors import DistStoreError as DistStoreError
from plait._errors import QueueEmptyError as QueueEmptyError
from plait._public import publish as _publish
from plait.distributed._bucket import GradBucket as GradBucket
from plait.distributed._collectives import *
from plait.distributed._default_group import *
from plait.distributed._groups import *
from plait.distributed._objects import *
from plait.distributed._peers import *
from plait.distributed._single_thread import all_reduce_sync as all_reduce_sync
from plait.distributed._spawn import spawn as spawn
from plait.distributed._stores import *
from plait.distributed._stragglers import *
from plait.distributed._work import *
from plait.distributed.device_mesh import *
from plait.distributed.flight_records import FlightRecord as FlightRecord
from plait.distributed.flight_records import flight_recorder as flight_recorder
from plait.distributed.flight_records import warn_of_stragglers as warn_of_stragglers

DistBackendError = DistError = _DistributedError

_publish(globals())


def __getattr__(name: str) -> _Any:
    raise _absent("distributed", "plait.distributed", name)
