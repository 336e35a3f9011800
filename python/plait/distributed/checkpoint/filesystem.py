"""`save` and `load`: a state, as nested dicts, to a folder and back."""

from __future__ import annotations

import contextlib
import json
import os
from array import array
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeAlias

import plait
from plait import _core
from plait._engine.runtime import address, check
from plait._errors import CheckpointError, checkpoint_errors, text_of
from plait._layout import Size
from plait._tensor import Tensor
from plait.distributed._groups import ProcessGroup, is_initialized, resolve_group
from plait.distributed.checkpoint._moving import pieces_of
from plait.distributed.checkpoint._nested import fill, flatten
from plait.distributed.checkpoint._saving import Saving
from plait.distributed.checkpoint._states import FlatStates, States, give, state_of
from plait.distributed.checkpoint._values import decode, encode
from plait.distributed.checkpoint.metadata import Metadata, TensorMetadata
from plait.distributed.checkpoint.stateful import Stateful

Folder: TypeAlias = str | os.PathLike[str]


class FileSystemWriter:
    """Names the folder that `save` writes to.

    Args:
        path: the folder
        single_file_per_rank: has no effect: each rank writes one file
        sync_files: must be True: files are on the disk before a checkpoint counts
        thread_count: has no effect
        per_thread_copy_ahead: has no effect
        cache_staged_state_dict: has no effect
        overwrite: must be True: a new checkpoint takes the place of the one before
        serialization_format: has no effect: there is one
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
    """Names the folder that `load` reads."""

    def __init__(self, path: Folder, _extension_registry: Any = None) -> None:
        self.path = os.fspath(path)

    def read_metadata(self) -> Metadata:
        """Returns what the checkpoint holds."""
        return inspect(self.path)


def save(
    state_dict: dict[str, Any],
    *,
    checkpoint_id: Folder | None = None,
    storage_writer: FileSystemWriter | None = None,
    planner: None = None,
    process_group: ProcessGroup | None = None,
    no_dist: bool = False,
    use_collectives: bool = True,
) -> None:
    """Saves a state to a folder, which holds either this checkpoint or the one before, whatever happens.

    All ranks call it, with one folder, to which one save at a time writes. Tensors of FSDP are saved as the shards they
    are, tensors that all ranks have once: ranks on devices of one kind must have the same values, except of modules'
    buffers, such as the statistics of a batch normalisation, of which the lowest rank's are saved. Values beside
    tensors are numbers, text, lists, tuples and dicts; such that differ from rank to rank need names of their own.

    Args:
        state_dict: nested dicts; a module, an optimiser or another object with `state_dict` and `load_state_dict`
            stands for its state, a module for that under its plain names
        checkpoint_id: the folder
        storage_writer: the folder, in PyTorch's other spelling
        planner: must be None
        process_group: the ranks that save; the default group, or this rank alone without one
        no_dist: this rank alone
        use_collectives: must be True

    Raises:
        plait.CheckpointError: if the checkpoint cannot be written, on every rank. It is a TypeError too for values that
            cannot be saved, an OSError if a file cannot be written, and a plait.DistributedError on the other ranks,
            with the number of the one that failed, or if ranks name different folders or hold different values under
            one name. Others are for pieces that leave out a part of a tensor, and for another save to the folder, of
            this process or another, that is still running; it names the process.
    """
    if not use_collectives:
        raise NotImplementedError("save: use_collectives must be True; no_dist is for one rank alone")
    folder, group = _where("save", checkpoint_id, storage_writer, planner, process_group, no_dist)
    with checkpoint_errors("save", folder):
        state = _expanded("save", state_dict)
        header, handles = _header("save", state)
        check(_core.bind_CheckpointSave(folder, header, address(handles), len(handles), group))


def async_save(
    state_dict: dict[str, Any],
    *,
    checkpoint_id: Folder | None = None,
    storage_writer: FileSystemWriter | None = None,
    planner: None = None,
    process_group: ProcessGroup | None = None,
    async_checkpointer_type: Any = None,
    async_stager: None = None,
    no_dist: bool = False,
    use_collectives: bool = True,
) -> Future[None]:
    """Does what `save` does, but returns when the state has been copied to host memory.

    Later changes of the tensors are not saved. One save to a folder runs at a time. A rank whose function returns, and
    a process that ends, wait for it. An error that nobody has asked the result for is raised by the rank, and printed
    by the process.

    A thread saves, whatever async_checkpointer_type is; async_stager must be None; the other arguments are those of
    `save`.

    Returns:
        a future that is done when the checkpoint is whole; its `result` raises what `save` would have.
    """
    if async_stager is not None or not use_collectives:
        raise NotImplementedError("async_save: async_stager must be None, and use_collectives True")
    folder, group = _where("async_save", checkpoint_id, storage_writer, planner, process_group, no_dist)
    with checkpoint_errors("async_save", folder):
        state = _expanded("async_save", state_dict)
        header, handles = _header("async_save", state)
        pending = check(_core.bind_CheckpointSaveAsync(folder, header, address(handles), len(handles), group))
    return Saving(pending, folder)


def load(
    state_dict: dict[str, Any],
    *,
    checkpoint_id: Folder | None = None,
    storage_reader: FileSystemReader | None = None,
    planner: None = None,
    process_group: ProcessGroup | None = None,
    no_dist: bool = False,
) -> None:
    """Fills a state from a folder that `save` wrote, on any number of ranks and with any shards.

    Every file that is needed is checked before anything is changed. Entries of the checkpoint that the state does not
    have are not read.

    Args:
        state_dict: nested dicts as `save` takes; tensors are written in place, values replaced. An optimiser need not
            have made a step: its state is made as the checkpoint has it.
        checkpoint_id: the folder
        storage_reader: the folder, in PyTorch's other spelling
        planner: must be None
        process_group: the ranks that load; the default group, or this rank alone without one
        no_dist: this rank alone

    Raises:
        plait.CheckpointError: for entries that the checkpoint lacks or has in another shape, and for files that are
            torn or foreign; the message names the file and the tensor. It is an OSError too if there is no checkpoint,
            and a plait.DistributedError on the other ranks, with the number of the one that failed.
    """
    folder, group = _where("load", checkpoint_id, storage_reader, planner, process_group, no_dist)
    with checkpoint_errors("load", folder):
        _load(state_dict, folder, group)


def _load(state_dict: dict[str, Any], folder: str, group: int) -> None:
    state = _expanded("load", state_dict)
    stored: list[Metadata] = []

    def complete(at: Any, name: str) -> None:
        """Makes what optimisers that have not made a step will keep."""
        if isinstance(at, States | FlatStates):
            at.make(name, stored[0])
        elif isinstance(at, dict):
            for key, value in at.items():
                complete(value, f"{name}.{key}" if name else str(key))

    def prepare() -> None:
        with contextlib.suppress(OSError):  # which the engine tells every rank
            stored.append(inspect(folder))
            complete(state, "")

    header, handles = _header("load", state, prepare)
    text = _text(check(_core.bind_CheckpointLoad(folder, header, address(handles), len(handles), group)))
    values = json.loads(text)
    fill(state, lambda name, value: value if isinstance(value, Tensor) else _decoded(name, values[name]))
    for key, value in state_dict.items():
        if isinstance(value, Stateful):
            give(value, state[key])
        else:
            state_dict[key] = state[key]


def inspect(folder: Folder) -> Metadata:
    """Returns what a checkpoint holds, from its index alone."""
    with checkpoint_errors("load", os.fsdecode(folder)):
        index = json.loads(_text(check(_core.bind_CheckpointInspect(os.fsdecode(folder)))))
        tensors = {
            name: TensorMetadata(getattr(plait, t["dtype"]), Size(t["shape"]), t["problem"])
            for name, t in index["tensors"].items()
        }
        values = {name: _decoded(name, v) for name, v in (index["values"] or {}).items()}
    return Metadata(tensors, values)


def _decoded(name: str, value: Any) -> Any:
    try:
        return decode(value)
    except Exception as error:
        raise CheckpointError(f"value {name!r} is damaged: {type(error).__name__}: {error}") from None


def _text(handle: int) -> str:
    try:
        return _core.bind_CheckpointText(handle)
    finally:
        _core.bind_ObjectRelease(handle)


def _where(
    name: str, checkpoint_id: Folder | None, storage: Any, planner: Any, group: ProcessGroup | None, no_dist: bool
) -> tuple[str, int]:
    """Returns the folder and the handle of the group, 0 for a rank alone."""
    if planner is not None:
        raise NotImplementedError(f"{name}: planner must be None; what is saved, and where, follows from the tensors")
    if checkpoint_id is None and storage is None:
        raise ValueError(f"{name}: want checkpoint_id, the folder of the checkpoint")
    folder = os.fsdecode(checkpoint_id) if checkpoint_id is not None else storage.path
    if no_dist or (group is None and not is_initialized()):
        return folder, 0
    return folder, resolve_group(group, name)._h


def _header(name: str, state: dict[str, Any], prepare: Callable[[], None] | None = None) -> tuple[str, array[int]]:
    """Returns the description of a state, as the engine takes it, and the handles of its tensors.

    What is wrong with it is part of the description, so that all ranks hear of it.
    """
    pieces: list[dict[str, Any]] = []
    values: dict[str, Any] = {}
    handles = array("q")
    problem = ""
    try:
        if prepare is not None:
            prepare()
        flat = flatten(state)
        for piece, handle in pieces_of({key: v for key, v in flat.items() if isinstance(v, Tensor)}):
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


def _expanded(name: str, state: Any) -> dict[str, Any]:
    """Returns a state with the states of objects in their places."""
    if not isinstance(state, dict):
        raise TypeError(f"{name}: want a dict of what to {name.removeprefix('async_')}, got {type(state).__name__}")
    return {k: state_of(v) if isinstance(v, Stateful) else v for k, v in state.items()}
