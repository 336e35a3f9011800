"""Linear algebra: norms, decompositions, solutions of equations."""

from __future__ import annotations

from typing import Any

from plait._engine.missing_names import absent as _absent
from plait._errors import LinAlgError
from plait.linalg._decompositions import (
    cholesky,
    cholesky_ex,
    eigh,
    eigvalsh,
    householder_product,
    lu,
    lu_factor,
    lu_factor_ex,
    matrix_sqrth,
    qr,
    svd,
    svdvals,
)
from plait.linalg._norms import cond, matrix_norm, norm, vector_norm
from plait.linalg._products import (
    cross,
    det,
    diagonal,
    matmul,
    matrix_exp,
    matrix_power,
    multi_dot,
    slogdet,
    vander,
    vecdot,
)
from plait.linalg._solving import (
    inv,
    inv_ex,
    lstsq,
    lu_solve,
    matrix_rank,
    pinv,
    solve,
    solve_ex,
    solve_triangular,
    tensorinv,
    tensorsolve,
)

__all__ = [
    "LinAlgError",
    "cholesky",
    "cholesky_ex",
    "cond",
    "cross",
    "det",
    "diagonal",
    "eigh",
    "eigvalsh",
    "householder_product",
    "inv",
    "inv_ex",
    "lstsq",
    "lu",
    "lu_factor",
    "lu_factor_ex",
    "lu_solve",
    "matmul",
    "matrix_exp",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "matrix_sqrth",
    "multi_dot",
    "norm",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "solve_ex",
    "solve_triangular",
    "svd",
    "svdvals",
    "tensorinv",
    "tensorsolve",
    "vander",
    "vecdot",
    "vector_norm",
]

for _name in __all__:  # functions are pickled, and shown, as of here
    if _name != "LinAlgError":
        globals()[_name].__module__ = __name__


def __getattr__(name: str) -> Any:
    raise _absent("linalg", "plait.linalg", name)
