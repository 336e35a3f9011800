"""Small calls on one thread of a CPU beside PyTorch: what Python and the way to the kernel cost.

    python benchmarks/python/calls.py
    python benchmarks/python/calls.py --only out= reshape --rounds 50

Both run in one process, in turns, on tensors of 12 elements. Times are microseconds of the processor for one call, the
shortest and the median of the rounds.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import statistics
from collections.abc import Callable
from typing import Any

import numpy as np

REPEATS = 400  # in a round

# Each call as an expression, or a statement, of what `arguments` makes.
CALLS = """
x.reshape(-1); x.reshape(2, 6); x.flatten(); x.view(12); x.view(2, 6); x[0]; x[0, 1]; x[:1]; x[:, 0]; x[:, 1:3]; x[None]
x[..., 0]; x.t(); x.T; x.transpose(0, 1); x.permute(1, 0); x.unsqueeze(0); x.squeeze(0); x.expand(3, 4); x.select(0, 1)
x.narrow(0, 0, 2); x.unbind(0); x.split(1); x.detach(); x.contiguous()
x.shape; x.size(0); x.dtype; x.device; x.requires_grad; x.ndim; x.numel(); len(x); x.is_contiguous(); x.stride()
one.item(); float(one); one.tolist(); v.tolist(); x.tolist(); v[0].item(); v[:1].tolist(); x.numpy()
torch.from_numpy(array); torch.zeros(3); torch.zeros(3, 4); torch.ones(3); torch.empty(3); torch.empty_like(x)
torch.zeros_like(x); torch.arange(3); torch.full((3,), 1.0); torch.tensor([1.0, 2.0]); torch.tensor(1.0)
torch.add(x, y); x + y; x + 1; x + 1.0; 1 - x; -x; torch.neg(x); torch.relu(x); x.exp(); x.clone(); x.to(torch.float32)
x > y; torch.where(m, x, y); x.sum(); x.sum(1); x @ w; torch.cat([x, y]); torch.stack([x, y])
x.add_(y); x.mul_(y); x.copy_(y); x.fill_(1.0); x.zero_(); x[0] = 1.0; x[:, 0] = v
x.max(); x.min(); x.max(1); x.argmax(1); x.mean(); x.mean(1); x.var(); x.std(); x.norm(); x.prod(); m.any(); m.all()
m.sum(); x.amax(0); x.logsumexp(1); x.cumsum(1); x.cumprod(1); x.sort(); x.topk(2); x.argsort(); x.median(1); x.unique()
m.nonzero()
x.abs(); x.sign(); x.round(); x.floor(); x.sqrt(); x.log(); x.sin(); x.sigmoid(); x.tanh(); x.isnan(); ~m; m & m
x.clamp(0, 1); x.clamp(min=0); torch.clamp(x, 0.0, 1.0); torch.maximum(x, y); torch.pow(x, 2); x ** 2; x - y; x * 2
x / y; x == y; x.lerp(y, 0.5); torch.addcmul(x, x, y); torch.equal(x, y); torch.allclose(x, y); torch.isclose(x, y)
x.masked_fill(m, 0.0); x[i]; x[:, i]; x[m]; x.index_select(0, i); x.gather(1, j); x.scatter(1, j, x); x.tril()
x.diag()
x.flip(0); x.roll(1); x.repeat(2, 1); x.chunk(3); x.half(); x.double(); x.long(); x.float(); x.to(torch.float64)
torch.mm(x, w); w @ u; torch.dot(u, u); torch.outer(u, u); torch.bmm(b, b); torch.einsum("ij,jk->ik", x, w)
torch.cdist(x, x); torch.zeros(3, dtype=torch.int64); torch.zeros((3, 4)); torch.rand(3); torch.randn(3, 4)
torch.randint(0, 5, (3,))
torch.randperm(4); torch.eye(3); torch.linspace(0, 1, 3); torch.ones_like(x); torch.randn_like(x); torch.arange(0, 3)
torch.tensor([1, 2]); torch.bernoulli(p); torch.multinomial(p, 2); torch.bincount(i); torch.cat((x, y), 1)
F.relu(x); F.gelu(x); F.softmax(x, 1); F.log_softmax(x, 1); F.linear(x, w, u); F.layer_norm(x, (4,)); F.dropout(x, 0.5)
F.dropout(x, 0.5, False); F.embedding(i, x); F.one_hot(i, 4); F.mse_loss(x, y); F.cross_entropy(x, i)
g.sum().backward(); (g * 2).sum().backward(); linear(x); x.sub_(y); x.zero_()
torch.add(x, y, out=z); torch.neg(x, out=z); torch.exp(x, out=z); torch.matmul(x, w, out=z); torch.sum(x, 1, out=r)
"""


def arguments(torch: Any) -> dict[str, Any]:
    """Returns the tensors of the calls, and the module that they call."""
    x = torch.ones(3, 4)
    return {
        "torch": torch, "x": x, "y": torch.zeros(3, 4), "z": torch.zeros(3, 4), "v": torch.ones(3), "r": torch.ones(3),
        "w": torch.ones(4, 4), "m": x > 0, "one": torch.ones(1), "array": np.ones(3, np.float32),
        "F": torch.nn.functional, "i": torch.tensor([2, 0, 1]), "j": torch.zeros(3, 4, dtype=torch.int64),
        "u": torch.ones(4), "b": torch.ones(2, 3, 3),
        "p": torch.full((4,), 0.5), "g": torch.ones(4, requires_grad=True), "linear": torch.nn.Linear(4, 4),
    }  # fmt: skip


def timed(call: str, torch: Any) -> Callable[[], float]:
    """Returns a function that runs a call many times and returns the microseconds of one."""
    lines = ("def run():", " start = clock()", f" for _ in range({REPEATS}): {call}", " return clock() - start")
    scope = arguments(torch)
    exec("from time import process_time_ns as clock\n" + "\n".join(lines), scope)
    return lambda: scope["run"]() / REPEATS / 1e3


def main() -> None:
    """Prints the times of each call on both sides, and the ratio of the shortest."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[""], help="parts of the calls")
    parser.add_argument("--rounds", type=int, default=20)
    args = parser.parse_args()
    sides = [importlib.import_module(n) for n in ("plait", "torch") if importlib.util.find_spec(n)]
    for module in sides:
        module.set_num_threads(1)
    print(f"{'us':28}" + "".join(f"{m.__name__:>16}" for m in sides) + f"{'ratio':>8}")
    for call in (c.strip() for line in CALLS.split("\n") for c in line.split(";")):
        if not call or not any(o in call for o in args.only):
            continue
        runs = [timed(call, module) for module in sides]
        times: list[list[float]] = [[] for _ in runs]
        for _ in range(args.rounds):
            for run, t in zip(runs, times, strict=True):
                t.append(run())
        shown = "".join(f"{min(t):8.2f}{statistics.median(t):8.2f}" for t in times)
        print(f"{call:28}{shown}{min(times[0]) / min(times[-1]):8.2f}", flush=True)


if __name__ == "__main__":
    main()
