"""Functions over all parts of a batch, `vmap` and what is made of it, on the CPU beside PyTorch.

    python benchmarks/python/batching.py --threads 1

Both run in one process, in turns, on the same numbers in float32. Times are the shortest of the milliseconds of one
call. The loop is Plait's too: the same function called for each part.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import time
from collections.abc import Callable
from typing import Any

import numpy as np


def cases(library: Any, func: Any) -> dict[str, tuple[Callable[[], Any], Callable[[], Any] | None]]:
    """Returns a function for each case, and the same as a loop where that is not absurd."""
    nn, functional = library.nn, library.nn.functional
    rng = np.random.default_rng(0)

    def numbers(*shape: int) -> Any:
        return library.tensor(rng.standard_normal(shape).astype(np.float32))

    def classes(n: int, *shape: int) -> Any:
        return library.tensor(rng.integers(0, n, shape))

    def samples(net: Any, x: Any, y: Any) -> tuple[Callable[[], Any], Callable[[], Any]]:
        weights = {name: numbers(*p.shape) * 0.1 for name, p in net.named_parameters()}

        def loss(w: Any, x: Any, y: Any) -> Any:
            return functional.cross_entropy(func.functional_call(net, w, (x[None],)), y[None])

        each = func.vmap(func.grad(loss), in_dims=(None, 0, 0))
        alone = func.grad(loss)
        return lambda: each(weights, x, y), lambda: [alone(weights, a, b) for a, b in zip(x, y, strict=True)]

    made: dict[str, tuple[Callable[[], Any], Callable[[], Any] | None]] = {}
    mlp = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 10))
    made["per-sample gradients, MLP, 64"] = samples(mlp, numbers(64, 32), classes(10, 64))
    cnn = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16 * 15 * 15, 10))
    made["per-sample gradients, CNN, 16"] = samples(cnn, numbers(16, 3, 32, 32), classes(10, 16))
    models = {name: numbers(8, *p.shape) * 0.1 for name, p in mlp.named_parameters()}
    x, y = numbers(128, 32), classes(10, 128)

    def forward(w: Any) -> Any:
        return func.functional_call(mlp, w, (x,))

    def loss(w: Any) -> Any:
        return functional.cross_entropy(forward(w), y)

    def part(i: int) -> Any:
        return {name: w[i] for name, w in models.items()}

    together, gradients, alone = func.vmap(forward), func.vmap(func.grad(loss)), func.grad(loss)
    made["8 models, forward"] = lambda: together(models), lambda: [forward(part(i)) for i in range(8)]
    made["8 models, gradients"] = lambda: gradients(models), lambda: [alone(part(i)) for i in range(8)]
    a, v = numbers(32, 32), numbers(32)
    made["jacrev, 32"] = lambda: func.jacrev(lambda v: (a @ v).tanh())(v), None
    made["jacfwd, 32"] = lambda: func.jacfwd(lambda v: (a @ v).tanh())(v), None
    made["hessian, 32"] = lambda: func.hessian(lambda v: (a @ v).tanh().sum())(v), None
    matrices, right = numbers(100, 8, 8) + 8 * library.eye(8), numbers(100, 8)
    solve = library.linalg.solve
    made["100 solutions of 8 equations"] = (
        lambda: func.vmap(solve)(matrices, right),
        lambda: [solve(m, r) for m, r in zip(matrices, right, strict=True)],
    )
    return made


def timed(run: Callable[[], Any]) -> float:
    """Returns the milliseconds of one call, until all elements are there."""
    start = time.perf_counter()
    out = run()
    for t in out if isinstance(out, list) else [out]:
        for part in t.values() if isinstance(t, dict) else [t]:
            part.reshape(-1)[0].item()
    return 1e3 * (time.perf_counter() - start)


def main() -> None:
    """Prints a table: milliseconds, and speed relative to the loop and to PyTorch."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1.0, help="for each case")
    given = parser.parse_args()
    plait = importlib.import_module("plait")
    plait.set_num_threads(given.threads)
    ours = cases(plait, importlib.import_module("plait.func"))
    theirs: dict[str, Any] = {}
    if importlib.util.find_spec("torch"):
        torch = importlib.import_module("torch")
        torch.set_num_threads(given.threads)
        theirs = cases(torch, importlib.import_module("torch.func"))
        print(f"PyTorch {torch.__version__}, ", end="")
    print(f"Plait {plait.__version__}, {given.threads} threads\n")
    print(f"{'':34}{'loop':>9}{'Plait':>9}{'PyTorch':>9}{'to loop':>9}{'to PyTorch':>12}")
    for name, (run, loop) in ours.items():
        turns = {"Plait": run} | ({"loop": loop} if loop else {})
        turns |= {"PyTorch": theirs[name][0]} if theirs else {}
        for call in turns.values():
            timed(call)
        best = dict.fromkeys(turns, float("inf"))
        end = time.perf_counter() + given.seconds
        while time.perf_counter() < end:
            for who, call in turns.items():
                best[who] = min(best[who], timed(call))
        cells = [f"{best[who]:9.3f}" if who in best else f"{'':9}" for who in ("loop", "Plait", "PyTorch")]
        ratios = [f"{best[who] / best['Plait']:.2f}" if who in best else "" for who in ("loop", "PyTorch")]
        print(f"{name:34}{''.join(cells)}{ratios[0]:>9}{ratios[1]:>12}")


if __name__ == "__main__":
    main()
