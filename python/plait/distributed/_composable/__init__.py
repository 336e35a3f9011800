"""Where scripts imported functions from before these moved up."""

from plait.distributed._composable import fsdp as fsdp
from plait.distributed.fsdp import fully_shard

__all__ = ["fully_shard"]
