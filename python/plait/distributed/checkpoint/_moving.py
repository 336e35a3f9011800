"""Whole tensors from pieces, and pieces from whole tensors, without files."""

from __future__ import annotations

import json
from array import array
from typing import Any

from plait import _core, _ops
from plait._engine.runtime import address, check
from plait._tensor import Tensor
from plait.distributed._groups import is_initialized, resolve_group
from plait.distributed._placement import placement_of
from plait.nn.modules._state import varies


def reshard(have: dict[str, Tensor], want: dict[str, Tensor]) -> None:
    """Writes to the tensors that each rank wants what the ranks have, by name. All ranks call it."""
    own, wanted = pieces_of(have), pieces_of(want)
    header = json.dumps({"pieces": [p for p, _ in own + wanted]})
    handles = array("q", [h for _, h in own + wanted])
    group = resolve_group(None, "checkpoint")._h if is_initialized() else 0
    check(_core.bind_CheckpointReshard(header, address(handles), len(own), len(handles), group))


def pieces_of(tensors: dict[str, Tensor]) -> list[tuple[dict[str, Any], int]]:
    """Returns what the engine must know of tensors: for each its name and place, and its handle."""
    pieces: list[tuple[dict[str, Any], int]] = []
    for name, t in tensors.items():
        placed = placement_of(t)
        if placed is None:
            pieces.append(({"name": name, "any": varies(t)}, t._h))
        elif 0 not in t.shape:  # else the rank has nothing of it
            pieces.append(({"name": name, "shape": placed.shape, "offset": placed.offset}, t._h))
    return pieces


def gathered(tensors: dict[str, Tensor], here: bool, device: Any) -> dict[str, Tensor]:
    """Returns the whole tensors that the ranks hold pieces of.

    Args:
        tensors: this rank's pieces, by name
        here: this rank wants them; others get an empty dict
        device: where they go; None for the device of the piece
    """
    whole: dict[str, Tensor] = {}
    if here:
        for name, t in tensors.items():
            placed = placement_of(t)
            shape = t.shape if placed is None else placed.shape
            whole[name] = _ops.empty(shape, dtype=t.dtype, device=t.device if device is None else device)
    reshard(tensors, whole)
    return whole
