"""Data parallelism: `DataParallel` with one thread, `DistributedDataParallel` with ranks."""

from plait._public import publish as _publish
from plait.nn.parallel.data_parallel import *
from plait.nn.parallel.distributed import DistributedDataParallel as DistributedDataParallel
from plait.nn.parallel.modes import *
from plait.nn.parallel.parallel_apply import parallel_apply as parallel_apply
from plait.nn.parallel.replicate import replicate as replicate
from plait.nn.parallel.scatter_gather import *

_publish(globals())
