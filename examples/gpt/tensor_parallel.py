"""Trains the GPT by tensor parallelism: each rank has some of the heads and some of the features of each block.

    python examples/gpt/tensor_parallel.py
    python examples/gpt/tensor_parallel.py --devices gpu:0 gpu:1

All ranks see the whole batch. A layer divided by columns feeds one divided by rows, and a sum over the ranks follows
each pair: nothing else is exchanged in a forward pass. The losses are those of one_device.py.
"""

from __future__ import annotations

import argparse

import plait
from gpt import GPT, loss_of, optimizer_of, validate, write
from options import Options
from plait import distributed, nn
from plait.distributed.device_mesh import init_device_mesh
from plait.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from text import Text

PLAN = {
    "blocks.*.qkv": ColwiseParallel(),
    "blocks.*.out": RowwiseParallel(),
    "blocks.*.up": ColwiseParallel(),
    "blocks.*.down": RowwiseParallel(),
}


def train(rank: int, args: argparse.Namespace, results: list[tuple[float, float]]) -> None:
    """Trains on one rank. The first one reports, and adds its losses on held-out text to `results`."""
    distributed.init_process_group()
    ranks, device = distributed.get_world_size(), args.devices[rank]
    plait.manual_seed(args.seed)
    text = Text(args)
    model = GPT(len(text.alphabet), args).to(device)
    mesh = init_device_mesh(plait.device(device).type, (ranks,))
    parallelize_module(model, mesh, PLAN)
    optimizer, schedule = optimizer_of(model, args)
    order = plait.Generator().manual_seed(args.seed)
    start = validate(model, text, device)
    for step in range(1, args.steps + 1):
        x, y = (part.to(device) for part in text.batch(args.batch, order))
        loss = loss_of(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if rank == 0 and step % max(1, args.steps // 5) == 0:
            print(f"step {step}: loss {loss.item():.3f}", flush=True)

    end = validate(model, text, device)
    sample = write(model, text, "def ", args.sample, device)
    own = sum(p.to_local().numel() if hasattr(p, "to_local") else p.numel() for p in model.parameters())
    if rank == 0:
        count = sum(p.numel() for p in model.parameters())
        print(
            f"held-out loss {start:.3f} -> {end:.3f}; rank 0 of {ranks} has {own:,} of {count:,} parameters\n\n{sample}"
        )
        results.append((start, end))
    distributed.destroy_process_group()


def main(argv: list[str] | None = None) -> tuple[float, float]:
    """Trains, and returns the loss on held-out text at the start and at the end."""
    parser = Options("Trains a small GPT by tensor parallelism.", devices=("cpu:0", "cpu:1"))
    args = parser.parse_args(argv)
    if args.heads % len(args.devices):
        parser.error("--heads must be a multiple of the number of --devices")
    results: list[tuple[float, float]] = []
    distributed.spawn(train, args=(args, results), nprocs=len(args.devices), devices=args.devices)
    return results[0]


if __name__ == "__main__":
    main()
