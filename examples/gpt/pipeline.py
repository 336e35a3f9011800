"""Trains the GPT in a pipeline: each device has some of the layers, and micro-batches pass through them.

    python examples/gpt/pipeline.py
    python examples/gpt/pipeline.py --schedule zb-v --chunks 8 --devices gpu:0 gpu:1

No ranks are needed: one thread drives all devices. A schedule says in which order a device makes its passes. It prints
as text: stage, F for forward or B for backward, micro-batch. The losses are those of one_device.py.
"""

from __future__ import annotations

import plait
from gpt import GPT, loss_of, optimizer_of, validate, write
from options import Options
from plait import nn
from plait.distributed.pipelining import Schedule, schedule_names
from text import Text


def main(argv: list[str] | None = None) -> tuple[float, float]:
    """Trains, and returns the loss on held-out text at the start and at the end."""
    parser = Options("Trains a small GPT in a pipeline.", devices=("cpu:0", "cpu:1"))
    parser.add_argument("--schedule", default="1f1b", choices=schedule_names(), help="the order of the passes")
    parser.add_argument("--chunks", type=int, default=4, help="micro-batches of a batch")
    args = parser.parse_args(argv)
    schedule = Schedule(args.schedule, devices=len(args.devices), micro_batches=args.chunks)
    print(f"{schedule}\nidle, if all passes take as long as predicted: {schedule.simulate().bubble:.0%} of the time")

    plait.manual_seed(args.seed)
    text = Text(args)
    model = GPT(len(text.alphabet), args)
    layers = [model.start, *model.blocks, nn.Sequential(model.norm, model.head)]
    pipeline = plait.Pipeline(layers, args.devices, args.chunks, schedule, loss_of)
    optimizer, rate = optimizer_of(pipeline, args)
    order = plait.Generator().manual_seed(args.seed)
    start = validate(pipeline, text, args.devices[0])
    for step in range(1, args.steps + 1):
        x, y = text.batch(args.batch, order)
        optimizer.zero_grad()
        loss, _ = pipeline.step(x, y, return_outputs=False)  # forward and backward of all micro-batches
        nn.utils.clip_grad_norm_(pipeline.parameters(), 1.0)
        optimizer.step()
        rate.step()
        if step % max(1, args.steps // 5) == 0:
            print(f"step {step}: loss {loss.item():.3f}", flush=True)

    end = validate(pipeline, text, args.devices[0])
    print(f"held-out loss {start:.3f} -> {end:.3f} in {len(args.devices)} stages\n")
    print(write(pipeline, text, "def ", args.sample, args.devices[0]))
    return start, end


if __name__ == "__main__":
    main()
