"""Differentiable collectives, with the names of torch.distributed.nn."""

from plait._public import publish as _publish
from plait.distributed.nn.functional import *

_publish(globals())
