"""Linear algebra on the CPU beside PyTorch: one call, and then one element read.

    python benchmarks/python/linalg.py --threads 1
    python benchmarks/python/linalg.py --only svd eigh --sizes 64 200 --dtypes float64 --seconds 1

Both run in one process, in turns. Times are the shortest of the milliseconds of one call. Matrices of size 4 come a
thousand at a time.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import time
from collections.abc import Callable
from typing import Any

# Each operation by its name, as an expression of what `operations` makes.
OPERATIONS = {
    "cholesky": "la.cholesky(positive)",
    "cholesky_solve": "torch.cholesky_solve(b, factor)",
    "cholesky_inverse": "torch.cholesky_inverse(factor)",
    "inv": "la.inv(a)",
    "solve": "la.solve(a, b)",
    "solve 1": "la.solve(a, b[..., :1])",
    "solve_triangular": "la.solve_triangular(factor, b, upper=False)",
    "det": "la.det(a)",
    "slogdet": "la.slogdet(a)[1]",
    "lu_factor": "la.lu_factor(a)[0]",
    "lu": "la.lu(a)[2]",
    "lu_solve": "la.lu_solve(lu, pivots, b)",
    "qr": "la.qr(a)[0]",
    "qr tall": "la.qr(tall)[0]",
    "householder": "la.householder_product(tall, tau)",
    "eigh": "la.eigh(symmetric)[1]",
    "eigvalsh": "la.eigvalsh(symmetric)",
    "svd": "la.svd(a)[0]",
    "svd tall": "la.svd(tall, full_matrices=False)[0]",
    "svdvals": "la.svdvals(a)",
    "lstsq": "la.lstsq(tall, right)[0]",
    "pinv": "la.pinv(a)",
    "matrix_rank": "la.matrix_rank(a)",
    "cond": "la.cond(a)",
    "matrix_exp": "la.matrix_exp(small)",
}


def operations(torch: Any, n: int, dtype: str) -> dict[str, Callable[[], Any]]:
    """Returns a function for each operation on matrices of size n."""
    torch.manual_seed(0)
    batch = (1000,) if n < 10 else ()

    def real(*shape: int) -> Any:
        return torch.randn(*batch, *shape).to(getattr(torch, dtype))

    a, b, tall = real(n, n), real(n, n), real(2 * n, n)
    positive = a @ a.mT + n * torch.eye(n).to(a.dtype)
    lu, pivots = torch.linalg.lu_factor(a)
    scope = {
        "torch": torch, "la": torch.linalg, "a": a, "b": b, "tall": tall, "right": real(2 * n, 8),
        "symmetric": a + a.mT, "positive": positive, "factor": torch.linalg.cholesky(positive), "small": a / n**0.5,
        "lu": lu, "pivots": pivots, "tau": 2 / (tall.tril(-1).square().sum(-2) + 1),
    }  # fmt: skip
    return {name: eval(f"lambda: {text}", scope) for name, text in OPERATIONS.items()}


def timed(run: Callable[[], Any]) -> float:
    """Returns the milliseconds of one call."""
    start = time.perf_counter()
    run().reshape(-1)[0].item()
    return 1e3 * (time.perf_counter() - start)


def main() -> None:
    """Prints a table for each dtype: speed relative to PyTorch, or without it milliseconds, by operation and size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", help="names of operations")
    parser.add_argument("--sizes", nargs="*", type=int, default=[4, 64, 200, 500, 1000])
    parser.add_argument("--dtypes", nargs="*", default=["float32", "float64"])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0.3, help="for each operation, and two calls at least")
    args = parser.parse_args()
    sides = [importlib.import_module("plait")]
    if importlib.util.find_spec("torch"):
        sides.append(importlib.import_module("torch"))
    for side in sides:
        side.set_num_threads(args.threads)
    for dtype in args.dtypes:
        print(f"{dtype}, {args.threads} threads: speed relative to PyTorch, and milliseconds", flush=True)
        print(f"{'':18}" + "".join(f"{n:>18}" for n in args.sizes))
        made = [[operations(side, n, dtype) for side in sides] for n in args.sizes]
        for case in args.only or OPERATIONS:
            cells = []
            for functions in made:
                times: list[list[float]] = [[] for _ in sides]
                end = time.perf_counter() + args.seconds
                while time.perf_counter() < end or len(times[0]) < 3:
                    for side, function in zip(times, functions, strict=True):
                        side.append(timed(function[case]))
                best = [min(t[1:]) for t in times]
                cells.append(f"{best[-1] / best[0]:9.2f} {best[0]:8.3f}")
            print(f"{case:18}" + "".join(cells), flush=True)


if __name__ == "__main__":
    main()
