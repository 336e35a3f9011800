"""What PyTorch calls experimental of distributed tensors."""

from __future__ import annotations

from plait import _core
from plait._modes import _Mode

__all__ = ["implicit_replication"]


class implicit_replication(_Mode):  # noqa: N801
    """Ordinary tensors inside, beside distributed ones, count as replicated: `with implicit_replication():`.

    They must be the same on all ranks of the mesh. It concerns the calling thread. Activation checkpoints that are made
    inside compute again as they did. Without it, ordinary tensors and distributed ones do not mix.
    """

    def _begin(self) -> int:
        return _core.bind_ReplicateSet(True)
