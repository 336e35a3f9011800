"""Memory and speed of FSDP beside the formulas and DistributedDataParallel, on CPU ranks, as a page in Markdown.

python benchmarks/python/fsdp.py > benchmarks/reports/2026-11-22-fsdp.md
"""

from __future__ import annotations

import argparse
import gc
import os
import platform
import time
from functools import partial
from typing import Any

import plait
from plait import distributed, nn
from plait._device import synchronize
from plait.distributed.fsdp import FSDP, ShardingStrategy
from plait.nn.parallel import DistributedDataParallel

WIDTH, LAYERS, TOKENS, BATCH = 256, 6, 64, 2
KEPT = ("parameters", "gradients", "optimiser", "communication")


class Layer(nn.Module):
    """Two matrices between which the width is four times as large."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Any) -> Any:
        """Adds what the layer computes."""
        return x + self.down(self.up(self.norm(x)).relu())


WAYS: dict[str, Any] = {
    "DDP": DistributedDataParallel,
    "FULL_SHARD": partial(FSDP, auto_wrap_policy={Layer}),
    "FULL_SHARD, no prefetch": partial(FSDP, auto_wrap_policy={Layer}, forward_prefetch=False, backward_prefetch=None),
    "SHARD_GRAD_OP": partial(FSDP, auto_wrap_policy={Layer}, sharding_strategy=ShardingStrategy.SHARD_GRAD_OP),
}


def formula(way: str, ranks: int) -> int:
    """Returns the most bytes, beside activations, that a rank may hold in a step with AdamW."""
    u = sum(p.numel() for p in Layer().parameters())
    total = LAYERS * u
    state = 2 * total // ranks
    elements = {
        "DDP": 4 * total,  # parameters, gradients, two states
        "FULL_SHARD": state + 2 * total // ranks + 4 * u,
        "FULL_SHARD, no prefetch": state + 2 * total // ranks + 2 * u,
        "SHARD_GRAD_OP": state + 2 * total // ranks + total + 2 * u,
    }
    return 4 * elements[way]


def peak_of(rank: int) -> int:
    """Returns the peaks of what a rank holds beside activations, added up, since the last call."""
    synchronize(plait.get_default_device())  # and not others', which wait for this rank
    stats = plait.memory_stats(rank=rank)
    plait.reset_peak_memory_stats()
    return sum(stats[f"peak.{c}"] for c in KEPT)


def measure(rank: int, way: str, steps: int, out: dict[int, tuple[float, int, int]]) -> None:
    """Trains and keeps the best time of a step, the peak bytes beside activations, and the bytes sent in a step."""
    distributed.init_process_group()
    plait.manual_seed(0)
    model = WAYS[way](nn.Sequential(*(Layer() for _ in range(LAYERS))))
    optimizer = plait.optim.AdamW(model.parameters())
    x = plait.randn(BATCH, TOKENS, WIDTH)
    group = distributed._groups.require(None, "benchmark")
    best, sent, peak = float("inf"), 0, 0
    for step in range(steps):
        distributed.barrier()
        before, start = group.bytes_moved(), time.perf_counter()
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        plait.cpu.synchronize()
        distributed.barrier()
        if step:
            best, sent = min(best, time.perf_counter() - start), group.bytes_moved() - before
    for _ in range(2):  # steps of their own: waiting after each part takes time
        peak_of(rank)
        loss = model(x).square().mean()
        peak = max(peak, peak_of(rank))
        loss.backward()
        peak = max(peak, peak_of(rank))
        optimizer.step()
        peak = max(peak, peak_of(rank))
        optimizer.zero_grad()
    out[rank] = best, peak, sent


def main() -> None:
    """Prints the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=8)
    args = parser.parse_args()
    size = 4 * LAYERS * sum(p.numel() for p in Layer().parameters())
    print("# FSDP on CPU ranks\n")
    print(f"{os.cpu_count()} cores of {platform.machine()}; `python benchmarks/python/fsdp.py`.\n")
    print(f"A residual MLP of {LAYERS} layers, {size:,} bytes of float32 parameters, {BATCH} x {TOKENS} tokens a rank,")
    print("AdamW. Peaks are the allocator's counters of the rank with the most, beside activations: the peaks of each")
    print("kind of memory in forward, backward or the optimiser's step, added up, and the largest of these. Times are")
    print("the best step of a rank; the ranks share the machine's cores, other programs too, so the ratios are only")
    print("of this run.\n")
    print("| ranks | way | peak bytes | formula | bytes sent in a step / parameters | ms a step | DDP's speed |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for ranks in (2, 4):
        reference = 0.0
        for way in WAYS:
            out: dict[int, tuple[float, int, int]] = {}
            gc.collect()  # an optimiser and its states refer to each other
            distributed.spawn(measure, args=(way, args.steps, out), nprocs=ranks)
            best, peak, sent = (max(v[i] for v in out.values()) for i in range(3))
            reference = reference or best
            print(
                f"| {ranks} | {way} | {peak:,} | {formula(way, ranks):,} | {sent / size:.2f} | {best * 1e3:.1f} "
                f"| {reference / best:.2f} |"
            )


if __name__ == "__main__":
    main()
