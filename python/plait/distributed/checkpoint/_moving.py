"""Resharding without files: full tensors from pieces, and pieces from full tensors."""

from __future__ import annotations

import json
from array import array
from typing import Any

from plait import _core, _ops
from plait._engine.runtime import address, check
from plait._tensor import Tensor
from plait.distributed._groups import is_initialized, resolve_group
from plait.nn.modules._state import varies


def reshard(have: dict[str, Tensor], want: dict[str, Tensor]) -> None:
    """Fills the tensors in `want` from the tensors in `have` of all ranks, by name. All ranks call it."""
    own, wanted = describe_pieces(have), describe_pieces(want)
    header = json.dumps({"pieces": [p for p, _ in own + wanted]})
    handles = array("q", [h for _, h in own + wanted])
    group = resolve_group(None, "checkpoint")._h if is_initialized() else 0
    check(_core.bind_CheckpointReshard(header, address(handles), len(own), len(handles), group))


def describe_pieces(tensors: dict[str, Tensor]) -> list[tuple[dict[str, Any], int]]:
    """Returns, for each tensor, what the engine needs to know of it, and its handle."""
    return [({"name": name, "any": varies(t)}, t._h) for name, t in tensors.items()]


def gather_full(tensors: dict[str, Tensor], here: bool, device: Any) -> dict[str, Tensor]:
    """Gathers full tensors from the pieces of all ranks. All ranks call it.

    Args:
        tensors: this rank's pieces, by name
        here: whether this rank wants the full tensors; otherwise it gets an empty dict
        device: the device of the full tensors; None means the piece's device
    """
    whole: dict[str, Tensor] = {}
    if here:
        for name, t in tensors.items():
            whole[name] = _ops.empty(t.shape, dtype=t.dtype, device=t.device if device is None else device)
    reshard(tensors, whole)
    return whole
