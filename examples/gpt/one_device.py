"""Trains a small GPT, one character at a time, on the source of Python's standard library.

    python examples/gpt/one_device.py    # or: make train
    python examples/gpt/one_device.py --device gpu --steps 5000 --width 256

It prints the loss on text that it does not train on, a curve of the losses, and what the model writes. The default 1000
steps take a minute or two on two CPU cores: it learns words, indentation and the look of Python, but no sense.
The other scripts of this folder do the same on several devices, and reach the same losses but for rounding.
"""

from __future__ import annotations

import time

import plait
from gpt import GPT, loss_of, optimizer_of, validate, write
from options import Options
from plait import nn
from text import Text, curve


def main(argv: list[str] | None = None) -> tuple[float, float]:
    """Trains, and returns the loss on held-out text at the start and at the end."""
    args = Options("Trains a small GPT on the source of Python's standard library.").parse_args(argv)
    plait.manual_seed(args.seed)
    text = Text(args)
    model = GPT(len(text.alphabet), args).to(args.device)
    plait.manual_seed(args.seed + 1)  # every device begins here, and draws the same for dropout
    optimizer, schedule = optimizer_of(model, args)
    count = sum(p.numel() for p in model.parameters())
    print(f"{len(text.training):,} characters of {len(text.alphabet)} kinds; {count:,} parameters on {args.device}")

    start = end = validate(model, text, args.device)
    print(f"step 0: held-out loss {start:.3f}")
    order = plait.Generator().manual_seed(args.seed)  # of batches alone: every script here sees the same
    losses: list[float] = []
    began = time.perf_counter()
    for step in range(1, args.steps + 1):
        x, y = (part.to(args.device) for part in text.batch(args.batch, order))
        loss = loss_of(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
        if step % max(1, args.steps // 5) == 0 or step == args.steps:
            end = validate(model, text, args.device)
            seconds = time.perf_counter() - began
            print(f"step {step}: training loss {losses[-1]:.3f}, held-out loss {end:.3f}, {seconds:.0f} s", flush=True)

    print(f"\n{curve(losses)}\n\nheld-out loss {start:.3f} -> {end:.3f} nats a character. The model writes:\n")
    print(write(model, text, "def ", args.sample, args.device))
    return start, end


if __name__ == "__main__":
    main()
