"""Functions of many short rows and of many small matrices on a CPU beside PyTorch, to find those that are far behind.

    python benchmarks/python/short.py
    python benchmarks/python/short.py --only bmm softmax --rounds 50 --slowest 100

Work on short rows is mostly what begins and ends each of them. Both libraries run in one process, in turns, on the same
numbers: blocks of calls, of which the last is waited for. Times are those of a call in the fastest block.
"""

from __future__ import annotations

import argparse
import importlib
import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np

# Rows of 4 (w), 10 (x) and 3 (v) elements, and matrices of 3 x 3 (m), 4 x 4 (t) and 16 x 16 (s).
EXPRESSIONS = """
w.sum(1)
w.mean(1)
w.max(1)
w.argmax(1)
w.amax(1)
w.prod(1)
w.var(1)
w.norm(dim=1)
w.logsumexp(1)
w.cumsum(1)
w.cumprod(1)
w.cummax(1)
w.softmax(1)
w.log_softmax(1)
w.median(1)
w.sort(1)
w.topk(2, 1)
w.flip(1)
(w > 0).any(1)
(w > 0).sum(1)
w.double().max(1)
w.to(torch.bfloat16).max(1)
rows.max(1)
rows.sum(1)
x.sum(1)
x.max(1)
x.argmax(1)
x.prod(1)
x.cumsum(1)
x.median(1)
x.sort(1)
x.topk(3, 1)
t.sum(1)
t.max(1)
t.prod(1)
t.cumsum(1)
t.median(1)
t.softmax(1)
s.sum(1)
s.max(2)
s.softmax(-1)
s.softmax(1)
s.masked_fill(s > 0, 0.0)
v.unfold(0, 2, 1).sum(-1)
s.diagonal(dim1=1, dim2=2).sum(-1)
w.gather(1, columns)
w.gather(1, columns[:, :1])
w[:, [2, 0, 1]]
w[torch.arange(4096), columns[:, 0]]
w.scatter(1, columns[:, :1], 1.0)
torch.bmm(m, m)
torch.bmm(w[:, None], w[:, :, None])
torch.matmul(m, m.mT)
torch.bmm(s, s)
(m @ v[:, :, None]).squeeze(-1)
w @ small
x @ single
F.linear(w, small, small[0])
torch.einsum('bi,bi->b', w, w)
torch.einsum('bij,bj->bi', m, v)
torch.cross(v, v, dim=1)
torch.linalg.inv(m[:200])
torch.det(m[:200])
torch.linalg.eigh(m[:200] + m[:200].mT)
F.cross_entropy(x, classes)
F.cross_entropy(xg, classes).backward()
F.layer_norm(w, (4,))
F.layer_norm(x, (10,))
F.rms_norm(w, (4,))
F.normalize(w, dim=1)
F.cosine_similarity(w, w)
F.one_hot(classes, 10)
F.pad(w, (0, 1))
F.adaptive_avg_pool2d(maps, 1)
F.pixel_shuffle(maps, 2)
maps.sum((2, 3))
maps.permute(0, 2, 3, 1).contiguous()
torch.multinomial(shares, 1)
torch.searchsorted(ascending, v.reshape(-1))
torch.cat([w, w], 1)
torch.stack([w, w], 2)
wg.repeat(2, 1).sum().backward()
wg.max(1)[0].sum().backward()
wg.softmax(1).square().sum().backward()
"""


def arguments(torch: Any) -> dict[str, Any]:
    """Returns what the expressions name, the same numbers for both libraries."""
    rng = np.random.default_rng(0)

    def draw(*shape: int) -> Any:
        return torch.from_numpy(rng.standard_normal(shape).astype(np.float32))

    def below(high: int, *shape: int) -> Any:
        return torch.from_numpy(rng.integers(0, high, shape))

    w, x, maps = draw(4096, 4), draw(1000, 10), draw(8, 32, 8, 8)
    return {
        "torch": torch,
        "F": torch.nn.functional,
        "w": w,
        "x": x,
        "t": draw(500, 4, 4),
        "s": draw(256, 16, 16),
        "v": draw(1000, 3),
        "m": draw(1000, 3, 3),
        "small": draw(4, 4),
        "single": draw(10, 1),
        "maps": maps,
        "rows": below(100, 4096, 4),
        "columns": below(4, 4096, 4),
        "classes": below(10, 1000),
        "shares": torch.softmax(w, 1),
        "ascending": torch.sort(draw(1000))[0],
        "wg": w.clone().requires_grad_(),
        "xg": x.clone().requires_grad_(),
    }


def block(run: Callable[[], Any], done: Callable[[], Any], calls: int = 40) -> float:
    """Returns the microseconds of one of several calls."""
    done()
    start = time.perf_counter()
    for _ in range(calls):
        run()
    done()
    return 1e6 * (time.perf_counter() - start) / calls


def main() -> None:
    """Prints the geometric mean of the speeds relative to PyTorch, and the slowest expressions."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", help="parts of expressions")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=25, help="blocks of each side")
    parser.add_argument("--slowest", type=int, default=60)
    args = parser.parse_args()
    wanted = [e for e in EXPRESSIONS.split("\n") if e and (not args.only or any(part in e for part in args.only))]
    sides: dict[str, tuple[dict[str, Callable[[], Any]], Callable[[], Any]]] = {}
    for side in ("plait", "torch"):
        library = importlib.import_module(side)
        library.set_num_threads(args.threads)
        scope, last = arguments(library), library.zeros(1)
        sides[side] = {e: eval(f"lambda: {e}", scope) for e in wanted}, lambda last=last: last.add(1).item()
    found: list[tuple[float, str, float]] = []
    for e in wanted:
        best = dict.fromkeys(sides, math.inf)
        for _ in range(args.rounds):
            for side, (runs, done) in sides.items():
                best[side] = min(best[side], block(runs[e], done))
        found.append((best["torch"] / best["plait"], e, best["plait"]))
    found.sort()
    mean = math.exp(sum(math.log(ratio) for ratio, *_ in found) / len(found))
    print(f"{len(found)} expressions, {args.threads} threads: {mean:.2f} times as fast as PyTorch, geometric mean")
    print(f"{'the slowest':44}{'us':>10}{'torch':>10}")
    for ratio, e, us in found[: args.slowest]:
        print(f"{e:44}{us:10.1f}{ratio:10.2f}")


if __name__ == "__main__":
    main()
