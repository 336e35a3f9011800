"""Trains the GPT by FSDP: each rank keeps a part of every parameter, gradient and state of AdamW, and of each batch.

    python examples/gpt/fsdp.py
    python examples/gpt/fsdp.py --devices gpu:0 gpu:1 gpu:2 gpu:3

A block's parameters are gathered when it computes, and freed after that: the peak of memory is beside the formula's.
"""

from __future__ import annotations

import argparse

import plait
from gpt import GPT, loss_of, optimizer_of, validate, write
from options import Options
from plait import distributed, nn
from plait.distributed.fsdp import fully_shard
from text import Text


def train(rank: int, args: argparse.Namespace, results: list[tuple[float, float]]) -> None:
    """Trains on one rank. The first one reports, and adds its losses on held-out text to `results`."""
    distributed.init_process_group()
    ranks, device = distributed.get_world_size(), args.devices[rank]
    plait.manual_seed(args.seed)
    text = Text(args)
    plait.reset_peak_memory_stats(device)
    with plait.device("meta"):  # without memory: no rank ever has the whole model
        model = GPT(len(text.alphabet), args)
    count, block = (sum(p.numel() for p in m.parameters()) for m in (model, model.blocks[0]))
    for layer in model.blocks:
        fully_shard(layer)
    fully_shard(model)
    optimizer, schedule = optimizer_of(model, args)
    order = plait.Generator().manual_seed(args.seed)
    start = validate(model, text, device)  # all ranks must run a model that is divided among them
    for step in range(1, args.steps + 1):
        x, y = (part.tensor_split(ranks)[rank].to(device) for part in text.batch(args.batch, order))
        loss = loss_of(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if rank == 0 and step % max(1, args.steps // 5) == 0:
            print(f"step {step}: loss of rank 0's part {loss.item():.3f}", flush=True)

    end = validate(model, text, device)
    peaks = plait.memory_stats(device, rank)
    peak = sum(peaks[f"peak.{kind}"] for kind in ("parameters", "gradients", "optimiser", "communication"))
    sample = write(model, text, "def ", args.sample, device)
    if rank == 0:
        # A part of parameters, gradients and two states of AdamW; two blocks gathered, and the gradients of two; the
        # rest of the model, which stays gathered from its forward pass to its backward pass, and its gradients.
        formula = 4 * (4 * count / ranks + 4 * block + 2 * (count - args.layers * block))
        print(f"held-out loss {start:.3f} -> {end:.3f} on {ranks} ranks")
        print(f"rank 0: at most {peak:,} bytes beside activations; the formula allows {formula:,.0f}\n\n{sample}")
        results.append((start, end))
    distributed.destroy_process_group()


def main(argv: list[str] | None = None) -> tuple[float, float]:
    """Trains, and returns the loss on held-out text at the start and at the end."""
    parser = Options("Trains a small GPT by FSDP.", devices=("cpu:0", "cpu:1"))
    args = parser.parse_args(argv)
    if args.batch % len(args.devices):
        parser.error("--batch must be a multiple of the number of --devices: the gradients of all ranks count alike")
    results: list[tuple[float, float]] = []
    distributed.spawn(train, args=(args, results), nprocs=len(args.devices), devices=args.devices)
    return results[0]


if __name__ == "__main__":
    main()
