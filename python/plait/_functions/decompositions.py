"""Decompositions and solutions that not every matrix has: a call waits to know, and says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from plait import _ops


def _settled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns `function`, of matrices, such that the call waits, and raises the LinAlgError of those it cannot take.

    Programs catch it, and go on with another matrix.
    """

    def settled(*args: Any) -> Any:
        out = function(*args)
        first = out[0] if isinstance(out, tuple) else out
        if first.numel() and not first.is_meta:
            _ops.as_strided(first.detach(), [], []).item()
        return out

    return settled


cholesky, inv, solve = _settled(_ops.linalg_cholesky), _settled(_ops.linalg_inv), _settled(_ops.linalg_solve)
eigh, svd = _settled(_ops.linalg_eigh), _settled(_ops.linalg_svd)
