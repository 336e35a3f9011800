"""Decompositions and solutions that not every matrix has: a call waits to know, and says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from plait import _ops
from plait._autograd import batch as _batch


def _waiting(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function of matrices that waits for its result, and raises the LinAlgError of those it cannot take.

    Programs catch it, and go on with another matrix.
    """

    def waiting(*args: Any) -> Any:
        out = function(*args)
        first = _batch.behind(out[0] if isinstance(out, tuple) else out)
        if first.numel() and not first.is_meta:
            _ops.as_strided(first.detach(), [], []).item()
        return out

    return waiting


cholesky, inv, solve = _waiting(_ops.linalg_cholesky), _waiting(_ops.linalg_inv), _waiting(_ops.linalg_solve)
eig, eigvals = _waiting(_ops.linalg_eig), _waiting(_ops.linalg_eigvals)
eigh, eigvalsh = _waiting(_ops.linalg_eigh), _waiting(_ops.linalg_eigvalsh)
svd, svdvals = _waiting(_ops.linalg_svd), _waiting(_ops.linalg_svdvals)
