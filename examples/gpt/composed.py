"""Trains the GPT in several ways at once: a pipeline, copies, shards and divided layers, along the axes of one mesh.

    python examples/gpt/composed.py
    python examples/gpt/composed.py --pp 1 --fsdp 2 --tp 2 --devices gpu:0 gpu:1 gpu:2 gpu:3

There are as many ranks as the product of the axes. Ranks take the devices in turn. Those along --dp and --fsdp have
different parts of a batch. The losses are those of one_device.py.
"""

from __future__ import annotations

import argparse

import plait
from gpt import GPT, loss_of, optimizer_of, validate, write
from options import Options
from plait import distributed
from plait.distributed.device_mesh import init_device_mesh
from text import Text


def train(rank: int, args: argparse.Namespace, results: list[tuple[float, float]]) -> None:
    """Trains on one rank. The first one reports, and adds its losses on held-out text to `results`."""
    distributed.init_process_group()
    device = args.devices[rank % len(args.devices)]
    sizes = {"pp": args.pp, "dp": args.dp, "fsdp": args.fsdp, "tp": args.tp}
    mesh = init_device_mesh(plait.device(device).type, tuple(sizes.values()), mesh_dim_names=tuple(sizes))
    plait.manual_seed(args.seed)
    text = Text(args)
    model = GPT(len(text.alphabet), args).to(device)
    stages = {"layers": ["start", "blocks.*", "norm", "head"], "schedule": args.schedule, "micro_batches": args.chunks}
    model = plait.parallelize(model, mesh, pp=stages, loss_fn=loss_of)
    optimizer, schedule = optimizer_of(model, args)
    order = plait.Generator().manual_seed(args.seed)
    start = validate(model, text, device)
    for step in range(1, args.steps + 1):
        parts = (part.chunk(model.data_parallel_size) for part in text.batch(args.batch, order))
        x, y = (part[model.data_parallel_rank].to(device) for part in parts)
        optimizer.zero_grad()
        loss = model.step(x, target=y)
        model.clip_grad_norm_(1.0)
        optimizer.step()
        schedule.step()
        if rank == 0 and step % max(1, args.steps // 5) == 0:
            print(f"step {step}: loss {loss.item():.3f}", flush=True)

    end = validate(model, text, device)
    sample = write(model, text, "def ", args.sample, device)
    if rank == 0:
        own = sum(p.to_local().numel() if hasattr(p, "to_local") else p.numel() for p in model.parameters())
        print(f"held-out loss {start:.3f} -> {end:.3f}; rank 0 has {own:,} parameters\n\n{sample}")
        results.append((start, end))
    distributed.destroy_process_group()


def main(argv: list[str] | None = None) -> tuple[float, float]:
    """Trains, and returns the loss on held-out text at the start and at the end."""
    parser = Options("Trains a small GPT in several ways at once.", devices=("cpu:0", "cpu:1"))
    parser.add_argument("--pp", type=int, default=2, help="ranks of the pipeline")
    parser.add_argument("--dp", type=int, default=1, help="copies")
    parser.add_argument("--fsdp", type=int, default=1, help="parts of each parameter")
    parser.add_argument("--tp", type=int, default=2, help="parts of each layer")
    parser.add_argument("--schedule", default="1f1b", choices=["gpipe", "1f1b", "zb-h1", "zb-v"])
    parser.add_argument("--chunks", type=int, default=4, help="micro-batches of a batch")
    args = parser.parse_args(argv)
    ranks = args.pp * args.dp * args.fsdp * args.tp
    if ranks < 1 or args.batch % (args.dp * args.fsdp):
        parser.error("the axes must be at least 1, and --batch a multiple of --dp times --fsdp")
    results: list[tuple[float, float]] = []
    devices = [args.devices[rank % len(args.devices)] for rank in range(ranks)]
    distributed.spawn(train, args=(args, results), nprocs=ranks, devices=devices)
    return results[0]


if __name__ == "__main__":
    main()
