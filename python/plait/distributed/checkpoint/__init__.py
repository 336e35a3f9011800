"""Distributed checkpoints, which load into any other layout. Names are those of torch.distributed.checkpoint.

`save` writes a folder. Every rank writes its pieces of tensors to a safetensors file; a piece that several ranks hold
is written once. An index is put in place after all files are on disk, so a save that fails or is killed leaves the
folder's earlier checkpoint. `load` fills the given tensors, whatever ranks and shards saved them.

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
    load_state_dict,
    save,
    save_state_dict,
)
from plait.distributed.checkpoint.metadata import Metadata, TensorMetadata
from plait.distributed.checkpoint.planner import DefaultLoadPlanner, DefaultSavePlanner
from plait.distributed.checkpoint.stateful import Stateful

__all__ = [
    "DefaultLoadPlanner",
    "DefaultSavePlanner",
    "FileSystemReader",
    "FileSystemWriter",
    "Metadata",
    "Stateful",
    "TensorMetadata",
    "async_save",
    "load",
    "load_state_dict",
    "save",
    "save_state_dict",
]
