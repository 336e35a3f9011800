"""Optimisers of which every rank has a share, with the names of torch.distributed.optim."""

from plait._public import publish as _publish
from plait.distributed.optim.zero_redundancy_optimizer import ZeroRedundancyOptimizer as ZeroRedundancyOptimizer

_publish(globals())
