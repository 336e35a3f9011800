"""Sparse matrices on the CPU beside PyTorch: one call, and then one element read.

    python benchmarks/python/sparse.py --threads 1
    python benchmarks/python/sparse.py --only "coo @ x" --graphs cora --columns 16 --seconds 1

Both run in one process, in turns, on the same random graphs: one of the size of Cora, and one of 100,000 nodes and a
million edges. Times are the shortest of the milliseconds of one call.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import time
from collections.abc import Callable
from typing import Any

import numpy as np

GRAPHS = {"cora": (2708, 10600, (16, 1433)), "large": (100_000, 1_000_000, (16, 64))}  # nodes, edges, columns


def operations(torch: Any, nodes: int, edges: int, columns: int) -> dict[str, Callable[[], Any]]:
    """Returns a function for each operation on a random graph."""
    rng = np.random.default_rng(0)
    indices = torch.tensor(rng.integers(0, nodes, (2, edges)))
    values = torch.tensor(rng.standard_normal(edges).astype(np.float32))
    x = torch.tensor(rng.standard_normal((nodes, columns)).astype(np.float32))
    unordered = torch.sparse_coo_tensor(indices, values, (nodes, nodes))
    coo = unordered.coalesce()
    csr = coo.to_sparse_csr()
    leaf, weights, grad = x.clone().requires_grad_(), coo.values().clone().requires_grad_(), torch.ones(nodes, columns)

    def backward(matrix: Callable[[], Any], leaves: list[Any]) -> Any:
        for t in leaves:
            t.grad = None
        torch.sparse.mm(matrix(), leaf).backward(grad)
        return leaves[-1].grad

    made = {
        "coo @ x": lambda: torch.mm(coo, x),
        "csr @ x": lambda: torch.mm(csr, x),
        "coo @ x, gradient of x": lambda: backward(lambda: coo, [leaf]),
        "csr @ x, gradient of x": lambda: backward(lambda: csr, [leaf]),
        "coalesce": lambda: torch.sparse_coo_tensor(indices, values, (nodes, nodes)).coalesce().values(),
        "softmax": lambda: torch.sparse.softmax(coo, 1).coalesce().values(),
    }
    if nodes < 10_000:  # PyTorch computes the gradient of all elements, and takes those of the entries
        made["new coo @ x, gradients of both"] = lambda: backward(
            lambda: torch.sparse_coo_tensor(coo.indices(), weights, coo.shape), [leaf, weights]
        )
    return made


def timed(run: Callable[[], Any]) -> float:
    """Returns the milliseconds of one call."""
    start = time.perf_counter()
    run().reshape(-1)[0].item()
    return 1e3 * (time.perf_counter() - start)


def main() -> None:
    """Prints a table: speed relative to PyTorch, and milliseconds, by operation, graph and columns."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", help="names of operations")
    parser.add_argument("--graphs", nargs="*", default=list(GRAPHS), choices=GRAPHS)
    parser.add_argument("--columns", nargs="*", type=int)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0.5, help="for each operation, and two calls at least")
    args = parser.parse_args()
    sides = [importlib.import_module("plait")]
    if importlib.util.find_spec("torch"):
        sides.append(importlib.import_module("torch"))
    for side in sides:
        side.set_num_threads(args.threads)
    print(f"{args.threads} threads: speed relative to PyTorch, and milliseconds", flush=True)
    cases = [(g, n) for g in args.graphs for n in args.columns or GRAPHS[g][2]]
    print(f"{'':32}" + "".join(f"{f'{g}, {n}':>20}" for g, n in cases))
    made = [[operations(side, *GRAPHS[g][:2], n) for side in sides] for g, n in cases]
    for case in args.only or made[0][0]:
        cells = []
        for functions in made:
            if case not in functions[0]:
                cells.append(f"{'-':>20}")
                continue
            times: list[list[float]] = [[] for _ in sides]
            end = time.perf_counter() + args.seconds
            while time.perf_counter() < end or len(times[0]) < 3:
                for side, function in zip(times, functions, strict=True):
                    side.append(timed(function[case]))
            best = [min(t[1:]) for t in times]
            cells.append(f"{best[-1] / best[0]:10.2f} {best[0]:9.3f}")
        print(f"{case:32}" + "".join(cells), flush=True)


if __name__ == "__main__":
    main()
