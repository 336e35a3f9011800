"""What tensor parallelism costs: operations on distributed tensors, the bytes of a block, and the time of one.

    python benchmarks/python/tensor_parallel.py
    python benchmarks/python/tensor_parallel.py --devices cuda:0 cuda:1 --width 1280 --heads 20 --batch 8 --length 1024

The first table compares operations that exchange nothing with those on the local parts. The second counts what a block
of GPT moves between the ranks. The third compares a block's forward and backward on all devices with those of the same
block on one device.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import plait
from plait import distributed, nn
from plait.distributed.device_mesh import init_device_mesh
from plait.distributed.tensor import Replicate, Shard, distribute_tensor
from plait.nn import functional as F


class Block(nn.Module):
    """A block of GPT, with queries, keys and values of three layers, or what one of several ranks computes of it."""

    def __init__(self, width: int, heads: int, ranks: int = 1) -> None:
        super().__init__()
        self.heads, part = heads // ranks, width // ranks
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(width, part) for _ in range(3))
        self.o_proj = nn.Linear(part, width)
        self.fc1, self.fc2 = nn.Linear(width, 4 * part), nn.Linear(4 * part, width)

    def forward(self, x: plait.Tensor) -> plait.Tensor:
        """Returns what the block makes of x [batch, length, width]."""
        b, t = x.shape[:2]
        h = self.norm1(x)
        q, k, v = (p(h).view(b, t, self.heads, -1).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj))
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o_proj(seen.transpose(1, 2).flatten(2))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x)), approximate="tanh"))


def best(run: Callable[[], Any], repeats: int, rounds: int = 7) -> float:
    """Returns the seconds of one run, the best of several rounds."""
    least = float("inf")
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(repeats):
            run()
        least = min(least, (time.perf_counter() - start) / repeats)
    return least


def operations(rank: int) -> None:
    """Prints what operations on a distributed tensor take more than on its part, in one world of one rank."""
    mesh = init_device_mesh("cpu", (1,))
    rows = distribute_tensor(plait.randn(8, 8), mesh, [Shard(0)])
    every, part = distribute_tensor(plait.randn(8, 8), mesh, [Replicate()]), plait.randn(8, 8)
    print("| operation | distributed, us | local, us | more |\n| --- | ---: | ---: | ---: |")
    for name, run, x, w in [
        ("x + w", lambda x, w: x + w, rows, rows),
        ("linear(x, w)", F.linear, every, rows),
        ("x.transpose(0, 1)", lambda x, w: x.transpose(0, 1), rows, rows),
        ("x.view(8, 2, 4)", lambda x, w: x.view(8, 2, 4), rows, rows),
        ("x.softmax(1)", lambda x, w: x.softmax(1), rows, rows),
        ("gelu(x)", lambda x, w: F.gelu(x), rows, rows),
    ]:
        whole = 1e6 * best(partial(run, x, w), 3000)
        local = 1e6 * best(partial(run, part, part), 3000)
        print(f"| `{name}` | {whole:.2f} | {local:.2f} | {whole - local:.2f} |")


def block(rank: int, args: argparse.Namespace) -> None:
    """Prints the bytes of a block's exchanges, and the times of blocks on all ranks and on the first alone."""
    device, n = args.devices[rank], len(args.devices)
    mesh = init_device_mesh(plait.device(device).type, (n,), mesh_dim_names=("tp",))
    group = mesh.get_group("tp")
    dtype = getattr(plait, args.dtype)
    x = plait.randn(args.batch, args.length, args.width).to(device, dtype).requires_grad_()
    unit = x.numel() * x.element_size()

    def step(m: Callable[[plait.Tensor], plait.Tensor]) -> None:
        x.grad = None
        m(x).sum().backward()
        assert x.grad is not None
        x.grad[0, 0, 0].item()

    def timed(m: Callable[[plait.Tensor], plait.Tensor]) -> tuple[float, float]:
        """Returns the least milliseconds of a step, and the process's mean processor time meanwhile."""
        rounds = 5
        step(m)
        used = time.process_time()
        least = best(lambda: step(m), args.repeats, rounds)
        return 1e3 * least, 1e3 * (time.process_time() - used) / (rounds * args.repeats)

    def more(make: Callable[[int], Callable[[plait.Tensor], plait.Tensor]]) -> tuple[float, float]:
        """What one more block takes."""
        (two, used_two), (one, used_one) = timed(make(2)), timed(make(1))
        return two - one, used_two - used_one

    def blocks(depth: int, ranks: int = 1) -> nn.Module:
        return nn.Sequential(*(Block(args.width, args.heads, ranks) for _ in range(depth))).to(device, dtype)

    def moved(m: Callable[[plait.Tensor], plait.Tensor], kind: str) -> float:
        distributed.barrier()
        before = group.bytes_moved(kind)
        step(m)
        distributed.barrier()
        return (group.bytes_moved(kind) - before) / unit

    y = plait.empty_like(x)

    def exchange() -> None:
        with plait.no_grad():
            for _ in range(4):
                distributed.all_reduce(y, group=group)
            y[0, 0, 0].item()

    nothing = 0.0, 0.0
    alone, _ = more(blocks) if rank == 0 else nothing
    share, used = more(partial(blocks, ranks=n)) if rank == 0 else nothing
    distributed.barrier()
    part, used_by_all = more(partial(blocks, ranks=n))  # on all ranks at once
    distributed.barrier()
    if rank == 0:
        print(
            f"\na share of the block {share:.2f} ms alone, {part:.2f} ms with the others at the same time, "
            f"in processor time {used:.2f} and {used_by_all / n:.2f} ms"
        )
    exchanges = 1e3 * best(exchange, args.repeats, 5)
    for sequence, pieces in itertools.product((False, True), args.pieces):
        one, two = (
            plait.parallelize(blocks(depth), mesh, tp={"sequence": sequence, "pieces": pieces}) for depth in (1, 2)
        )
        kinds = ("all_reduce", "all_gather", "reduce_scatter")
        words = ", ".join(f"{kind} {moved(two, kind) - moved(one, kind):.2f}" for kind in kinds)
        together = timed(two)[0] - timed(one)[0]
        if rank == 0:
            print(f"\nsequence={sequence}, pieces={pieces}: a block moves, in activations: {words}")
            print(
                f"one device {alone:.2f} ms, {n} devices {together:.2f} ms ({alone / together:.2f} times as fast); "
                f"a share of the block and four all-reduces alone {share + exchanges:.2f} ms, and "
                f"{part + exchanges:.2f} ms with the shares computed at the same time"
            )


def main() -> None:
    """Prints the three tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--devices", nargs="+", default=["cpu:0", "cpu:1"])
    for name, value in {"width": 512, "heads": 8, "batch": 4, "length": 256, "repeats": 5}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--pieces", nargs="+", type=int, default=[1])
    parser.add_argument("--dtype", default="float32")
    args = parser.parse_args()
    distributed.spawn(operations, nprocs=1, devices=["cpu:0"])
    distributed.spawn(block, args=(args,), nprocs=len(args.devices), devices=args.devices)


if __name__ == "__main__":
    main()
