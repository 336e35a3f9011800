"""`save`, `async_save` and `load` of states, which are nested dicts."""

from __future__ import annotations

import contextlib
import json
import os
from array import array
from collections.abc import Callable
from concurrent.futures import Future
from types import NoneType
from typing import Any, TypeAlias

import plait
from plait import _core
from plait._engine.runtime import address, check
from plait._errors import checkpoint_errors, damage, text_of
from plait._layout import Size
from plait._tensor import Tensor
from plait.distributed._groups import ProcessGroup, is_initialized, resolve_group
from plait.distributed.checkpoint._moving import describe_pieces
from plait.distributed.checkpoint._nested import fill, flatten
from plait.distributed.checkpoint._saving import Saving
from plait.distributed.checkpoint._states import complete, load_into, spread, state_of
from plait.distributed.checkpoint._values import decode, encode
from plait.distributed.checkpoint.metadata import Metadata, TensorMetadata
from plait.distributed.checkpoint.planner import DefaultLoadPlanner, DefaultSavePlanner
from plait.distributed.checkpoint.stateful import Stateful

Folder: TypeAlias = str | os.PathLike[str]


class FileSystemWriter:
    """The folder that `save` writes to.

    Args:
        path: the folder
        single_file_per_rank: has no effect: each rank writes one file
        sync_files: must be True: all files are on disk before the checkpoint is valid
        thread_count: has no effect
        per_thread_copy_ahead: has no effect
        cache_staged_state_dict: has no effect
        overwrite: must be True: a new checkpoint replaces the one before
        serialization_format: has no effect: the format is always safetensors
    """

    def __init__(
        self,
        path: Folder,
        single_file_per_rank: bool = True,
        sync_files: bool = True,
        thread_count: int = 1,
        per_thread_copy_ahead: int = 10_000_000,
        cache_staged_state_dict: bool = False,
        overwrite: bool = True,
        _extensions: Any = None,
        serialization_format: Any = None,
    ) -> None:
        if not (sync_files and overwrite):
            raise NotImplementedError("FileSystemWriter: sync_files and overwrite must be True")
        self.path = os.fspath(path)


class FileSystemReader:
    """The folder that `load` reads."""

    def __init__(self, path: Folder, _extension_registry: Any = None) -> None:
        self.path = os.fspath(path)

    def read_metadata(self) -> Metadata:
        """Returns the description of the checkpoint's contents."""
        return inspect(self.path)


def save(
    state_dict: dict[str, Any],
    *,
    checkpoint_id: Folder | None = None,
    storage_writer: FileSystemWriter | None = None,
    planner: DefaultSavePlanner | None = None,
    process_group: ProcessGroup | None = None,
    no_dist: bool = False,
    use_collectives: bool = True,
) -> None:
    """Saves a state to a folder. Whatever happens, the folder holds either this checkpoint or the one before.

    All ranks call it with the same folder. Only one save at a time may write to a folder. FSDP tensors and distributed
    ones are saved as shards, and what several ranks have is saved once. Ranks on devices of one kind must then have
    equal values, except in buffers of modules, such as the statistics of a batch norm, where the lowest rank's values
    are saved. Other values may be numbers, text, lists, tuples and dicts. Values that differ between ranks need
    different names.

    Args:
        state_dict: nested dicts; modules, optimisers and other objects with `state_dict` and `load_state_dict` are
            replaced by their states, where names of modules have no prefixes of parallel wrappers
        checkpoint_id: the folder
        storage_writer: the folder, as an object
        planner: must be None or a default one
        process_group: the ranks that save; the default group, or only this rank if there is none
        no_dist: whether only this rank saves
        use_collectives: must be True

    Raises:
        plait.CheckpointError: on every rank, if the checkpoint cannot be written. It is also a TypeError for a value
            that cannot be saved, an OSError for a file that cannot be written, and a plait.DistributedError on the
            other ranks, which names the failed rank, or if ranks pass different folders or different values under one
            name. It is also raised if the pieces of a tensor are incomplete, or if another save to the folder is still
            running; then it names the process.
    """
    if not use_collectives:
        raise NotImplementedError("save: use_collectives must be True; no_dist is for one rank alone")
    folder, group = _folder_and_group("save", checkpoint_id, storage_writer, planner, process_group, no_dist)
    with checkpoint_errors("save", folder):
        state = _replace_objects("save", state_dict)
        header, handles = _header("save", state)
        check(_core.bind_CheckpointSave(folder, header, address(handles), len(handles), group))


def async_save(
    state_dict: dict[str, Any],
    *,
    checkpoint_id: Folder | None = None,
    storage_writer: FileSystemWriter | None = None,
    planner: DefaultSavePlanner | None = None,
    process_group: ProcessGroup | None = None,
    async_checkpointer_type: Any = None,
    async_stager: None = None,
    no_dist: bool = False,
    use_collectives: bool = True,
) -> Future[None]:
    """Saves like `save`, but returns once the state is copied to host memory. A thread writes the files.

    Later changes of the tensors are not saved. Only one save at a time may write to a folder. A rank whose function
    returns, and a process that ends, wait for their saves. If nobody has asked for the result, the rank raises an
    error of the save, and the process prints it.

    `async_checkpointer_type` has no effect, `async_stager` must be None, and the other arguments are those of `save`.

    Returns:
        a future that is done when the checkpoint is complete; its `result` raises the save's error.
    """
    if async_stager is not None or not use_collectives:
        raise NotImplementedError("async_save: async_stager must be None, and use_collectives True")
    folder, group = _folder_and_group("async_save", checkpoint_id, storage_writer, planner, process_group, no_dist)
    with checkpoint_errors("async_save", folder):
        state = _replace_objects("async_save", state_dict)
        header, handles = _header("async_save", state)
        pending = check(_core.bind_CheckpointSaveAsync(folder, header, address(handles), len(handles), group))
    return Saving(pending, folder)


def load(
    state_dict: dict[str, Any],
    *,
    checkpoint_id: Folder | None = None,
    storage_reader: FileSystemReader | None = None,
    planner: DefaultLoadPlanner | None = None,
    process_group: ProcessGroup | None = None,
    no_dist: bool = False,
) -> None:
    """Loads a checkpoint into a state. Ranks and shards may differ from those that saved it.

    All needed files are verified before anything is changed. Entries that the state does not have are not read.

    Args:
        state_dict: nested dicts as for `save`; tensors are written in place, values are replaced. An optimiser need not
            have made a step: missing state is created as the checkpoint has it.
        checkpoint_id: the folder
        storage_reader: the folder, as an object
        planner: must be None or a default one
        process_group: the ranks that load; the default group, or only this rank if there is none
        no_dist: whether only this rank loads

    Raises:
        plait.CheckpointError: if the checkpoint lacks an entry or has it in another shape, or if a file is truncated or
            modified; the message names file and tensor. It is also an OSError if there is no checkpoint, and a
            plait.DistributedError on the other ranks, which names the failed rank.
    """
    folder, group = _folder_and_group("load", checkpoint_id, storage_reader, planner, process_group, no_dist)
    with checkpoint_errors("load", folder):
        _load(state_dict, folder, group)


def save_state_dict(
    state_dict: dict[str, Any],
    storage_writer: FileSystemWriter,
    process_group: ProcessGroup | None = None,
    coordinator_rank: int = 0,
    no_dist: bool = False,
    planner: DefaultSavePlanner | None = None,
) -> None:
    """Does what `save` does, under its older name.

    Args:
        state_dict: as for `save`
        storage_writer: the folder, as an object
        process_group: the ranks that save
        coordinator_rank: has no effect
        no_dist: whether only this rank saves
        planner: must be None or a default one
    """
    save(state_dict, storage_writer=storage_writer, planner=planner, process_group=process_group, no_dist=no_dist)


def load_state_dict(
    state_dict: dict[str, Any],
    storage_reader: FileSystemReader,
    process_group: ProcessGroup | None = None,
    coordinator_rank: int = 0,
    no_dist: bool = False,
    planner: DefaultLoadPlanner | None = None,
) -> None:
    """Does what `load` does, under its older name.

    Args:
        state_dict: as for `load`
        storage_reader: the folder, as an object
        process_group: the ranks that load
        coordinator_rank: has no effect
        no_dist: whether only this rank loads
        planner: must be None or a default one
    """
    load(state_dict, storage_reader=storage_reader, planner=planner, process_group=process_group, no_dist=no_dist)


def _load(state_dict: dict[str, Any], folder: str, group: int) -> None:
    state = _replace_objects("load", state_dict)
    stored: list[Metadata] = []

    def prepare() -> None:
        with contextlib.suppress(OSError):  # the engine raises it on every rank
            stored.append(inspect(folder))
            complete(state, "", stored[0])

    header, handles = _header("load", state, prepare)
    text = _text(check(_core.bind_CheckpointLoad(folder, header, address(handles), len(handles), group)))
    values = json.loads(text)
    fill(state, lambda name, value: value if isinstance(value, Tensor) else _decoded(name, values[name]))
    for key, value in state_dict.items():
        if isinstance(value, Stateful):
            load_into(value, state[key])
        else:
            state_dict[key] = state[key]
    spread(state_dict)


def inspect(folder: Folder) -> Metadata:
    """Returns the description of a checkpoint's contents. It reads only the index."""
    with checkpoint_errors("load", os.fsdecode(folder)):
        index = json.loads(_text(check(_core.bind_CheckpointInspect(os.fsdecode(folder)))))
        tensors = {
            name: TensorMetadata(getattr(plait, t["dtype"]), Size(t["shape"]), t["problem"])
            for name, t in index["tensors"].items()
        }
        values = {name: _decoded(name, v) for name, v in (index["values"] or {}).items()}
    return Metadata(tensors, values)


def _decoded(name: str, value: Any) -> Any:
    with damage(f"value {name!r}"):
        return decode(value)


def _text(handle: int) -> str:
    try:
        return _core.bind_CheckpointText(handle)
    finally:
        _core.bind_ObjectRelease(handle)


def _folder_and_group(
    name: str, checkpoint_id: Folder | None, storage: Any, planner: Any, group: ProcessGroup | None, no_dist: bool
) -> tuple[str, int]:
    """Returns the folder and the handle of the group, 0 for only this rank."""
    if type(planner) not in (NoneType, DefaultSavePlanner, DefaultLoadPlanner):
        kind = type(planner).__name__
        raise NotImplementedError(
            f"{name}: planner must be None or a default one, got {kind}; what is saved follows from the tensors"
        )
    if checkpoint_id is None and storage is None:
        raise ValueError(f"{name}: want checkpoint_id, the folder of the checkpoint")
    folder = os.fsdecode(checkpoint_id) if checkpoint_id is not None else storage.path
    if no_dist or (group is None and not is_initialized()):
        return folder, 0
    return folder, resolve_group(group, name)._h


def _header(name: str, state: dict[str, Any], prepare: Callable[[], None] | None = None) -> tuple[str, array[int]]:
    """Returns the description of a state for the engine, as JSON, and the handles of its tensors.

    An error in the state becomes part of the description, so that all ranks get it.
    """
    pieces: list[dict[str, Any]] = []
    values: dict[str, Any] = {}
    handles = array("q")
    problem = ""
    try:
        if prepare is not None:
            prepare()
        flat = flatten(state)
        for piece, handle in describe_pieces({key: v for key, v in flat.items() if isinstance(v, Tensor)}):
            pieces.append(piece)
            handles.append(handle)
        for key, value in flat.items():
            if not isinstance(value, Tensor):
                try:
                    values[key] = encode(value)
                except TypeError as error:
                    raise TypeError(f"{name}: {key!r}: {error}") from None
    except Exception as error:
        if not is_initialized():
            raise
        pieces, values, handles, problem = [], {}, array("q"), text_of(error)
    header = {"pieces": pieces, "values": values, "problem": problem}
    return json.dumps(header, allow_nan=False), handles


def _replace_objects(name: str, state: Any) -> dict[str, Any]:
    """Replaces the `Stateful` objects of a state by their states."""
    if not isinstance(state, dict):
        raise TypeError(f"{name}: want a dict of what to {name.removeprefix('async_')}, got {type(state).__name__}")
    return {k: state_of(v) if isinstance(v, Stateful) else v for k, v in state.items()}
