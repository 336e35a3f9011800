"""A step of GPT-2 124M on one GPU, and on several with DistributedDataParallel and FSDP, in bfloat16 by autocast.

    python benchmarks/python/ranks.py --gpus 2
    python -m plait.distributed.run --nproc-per-node 2 benchmarks/python/ranks.py --processes

The ranks are threads, or with --processes processes. Each GPU has 8 sequences of 1024 tokens, whatever their number.
Times are medians of one rank's steps. All ranks wait for their GPUs and for each other after each step, or with
--every N after N steps, as a program does that looks at its loss now and then.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from typing import Any

import plait
from plait import distributed
from plait.distributed.fsdp import fully_shard
from plait.nn.parallel import DistributedDataParallel
from precision import gpt2_model


def train(rank: int, way: str, precision: str, steps: int, every: int, times: list[float]) -> None:
    """Trains on this rank's GPU, and appends the milliseconds of rank 0's steps, the mean between two waits."""
    if way != "one GPU" and not distributed.is_initialized():
        distributed.init_process_group()
    plait.manual_seed(0)
    device = plait.device("cuda", rank)
    model: Any = gpt2_model(plait).to(device)
    if way == "DDP":
        model = DistributedDataParallel(model)
    elif way == "FSDP":
        for block in model.blocks:
            fully_shard(block)
        fully_shard(model)
    optimizer = plait.optim.AdamW(model.parameters(), lr=1e-4)
    x = plait.randint(0, 50257, (8, 1024)).to(device)
    y = plait.randint(0, 50257, (8 * 1024,)).to(device)
    for i in range(steps + 3):
        start = time.perf_counter()
        for _ in range(every):
            optimizer.zero_grad(set_to_none=True)
            with plait.autocast("cuda", dtype=plait.bfloat16, enabled=precision == "bf16"):
                loss = plait.nn.functional.cross_entropy(model(x).view(-1, 50257), y)
            loss.backward()
            optimizer.step()
        plait.cuda.synchronize(device)
        if way != "one GPU":
            distributed.barrier()
        if rank == 0 and i >= 3:
            times.append(1e3 * (time.perf_counter() - start) / every)


def main() -> None:
    """Prints the time of a step in each way, and the speed beside as many GPUs that need not wait for each other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--processes", action="store_true", help="each rank is a process of a launcher")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--every", type=int, default=1, help="steps between two waits")
    parser.add_argument("--precision", nargs="*", default=["float32", "bf16"], choices=("float32", "bf16"))
    args = parser.parse_args()
    rank = int(os.environ["LOCAL_RANK"]) if args.processes else 0
    for precision in args.precision:
        one = 0.0
        for way in ("one GPU", "DDP", "FSDP"):
            count = 1 if way == "one GPU" else args.gpus
            times: list[float] = []
            arguments = way, precision, args.steps, args.every, times
            if not args.processes:
                distributed.spawn(train, arguments, nprocs=count, devices=[f"cuda:{i}" for i in range(count)])
            elif rank < count:
                train(rank, *arguments)
            if rank == 0:
                median = statistics.median(times)
                one = one or median
                print(f"{precision:8} {way:8} {count} x {median:8.2f} ms {count * one / median:6.2f}x", flush=True)


if __name__ == "__main__":
    main()
