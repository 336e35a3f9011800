"""One model in several ways at once: replicas, shards, a pipeline and divided layers, along the axes of one mesh."""

from plait._public import publish as _publish
from plait.distributed.parallel._module import ParallelModule as ParallelModule
from plait.distributed.parallel._options import FullyShardOptions as FullyShardOptions
from plait.distributed.parallel._options import PipelineOptions as PipelineOptions
from plait.distributed.parallel._options import TensorParallelOptions as TensorParallelOptions
from plait.distributed.parallel._parallelize import parallelize as parallelize

_publish(globals())
