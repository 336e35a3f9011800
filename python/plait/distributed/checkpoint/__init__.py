"""Checkpoints of many ranks that load into any other layout, under the names of torch.distributed.checkpoint.

`save` makes a folder: every rank writes the pieces it holds as safetensors, a piece that several hold is written by
one, and an index of all goes into place when the rest is on the disk. A save that fails or is killed leaves what the
folder held before. `load` fills the tensors it is given, whatever the ranks and shards were that saved them.

    state = {"model": model, "optimizer": optimizer, "scheduler": scheduler, "step": 3}
    dcp.save(state, checkpoint_id="checkpoint")
    dcp.load(state, checkpoint_id="checkpoint")  # state["step"] is what was saved
"""

from __future__ import annotations

from plait.distributed.checkpoint.filesystem import (
    FileSystemReader,
    FileSystemWriter,
    async_save,
    load,
    save,
)
from plait.distributed.checkpoint.metadata import Metadata, TensorMetadata
from plait.distributed.checkpoint.stateful import Stateful

__all__ = [
    "FileSystemReader",
    "FileSystemWriter",
    "Metadata",
    "Stateful",
    "TensorMetadata",
    "async_save",
    "load",
    "save",
]
