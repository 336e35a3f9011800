"""Trains the GPT by DDP: each rank has the whole model and a part of each batch; backward averages the gradients.

    python examples/gpt/ddp.py
    python examples/gpt/ddp.py --devices gpu:0 gpu:1 gpu:2 gpu:3
    python -m plait.distributed.run --nproc-per-node 2 examples/gpt/ddp.py    # the ranks are processes

All ranks draw the same batches, and each takes its part: the losses are those of one_device.py.
"""

from __future__ import annotations

import argparse
import os

import plait
from gpt import GPT, loss_of, optimizer_of, validate, write
from options import Options
from plait import distributed, nn
from plait.nn.parallel import DistributedDataParallel
from text import Text


def train(rank: int, args: argparse.Namespace, results: list[tuple[float, float]]) -> None:
    """Trains on one rank. The first one reports, and adds its losses on held-out text to `results`."""
    distributed.init_process_group()
    ranks, device = distributed.get_world_size(), args.devices[rank % len(args.devices)]
    plait.manual_seed(args.seed)
    text = Text(args)
    model = GPT(len(text.alphabet), args).to(device)
    # weighted: a rank's gradients count as its part of the batch does, where the ranks cannot have equal parts.
    ddp = DistributedDataParallel(model, weighted=True)
    optimizer, schedule = optimizer_of(model, args)
    order = plait.Generator().manual_seed(args.seed)
    start = validate(model, text, device)
    for step in range(1, args.steps + 1):
        x, y = (part.tensor_split(ranks)[rank].to(device) for part in text.batch(args.batch, order))
        loss = loss_of(ddp(x), y)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if rank == 0 and step % max(1, args.steps // 5) == 0:
            print(f"step {step}: loss of rank 0's part {loss.item():.3f}", flush=True)
    if rank == 0:
        results.append((start, validate(model, text, device)))
        print(f"held-out loss {start:.3f} -> {results[0][1]:.3f} on {ranks} ranks\n")
        print(write(model, text, "def ", args.sample, device))
    distributed.destroy_process_group()


def main(argv: list[str] | None = None) -> tuple[float, float]:
    """Trains, and returns the loss on held-out text at the start and at the end."""
    args = Options("Trains a small GPT by DDP.", devices=("cpu:0", "cpu:1")).parse_args(argv)
    results: list[tuple[float, float]] = []
    if "RANK" in os.environ:  # a launcher started this process
        train(int(os.environ["RANK"]), args, results)
    else:
        distributed.spawn(train, args=(args, results), nprocs=len(args.devices), devices=args.devices)
    return results[0] if results else (0.0, 0.0)


if __name__ == "__main__":
    main()
