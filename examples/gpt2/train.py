"""Makes the files of a small GPT-2: learns a tokenizer from the source of Python, and trains the model on its tokens.

python examples/gpt2/train.py gpt2-small
python examples/gpt2/generate.py gpt2-small "def read("
"""

from __future__ import annotations

import argparse
import sysconfig
from pathlib import Path

import plait
import plait.nn.functional as F
from bpe import Tokenizer
from gpt2 import GPT2, Config
from plait import nn


def main(argv: list[str] | None = None) -> tuple[float, float]:
    """Writes vocab.json, merges.txt, config.json and model.safetensors, and returns the first and the last loss."""
    parser = argparse.ArgumentParser(description="Makes the files of a small GPT-2.")
    parser.add_argument("folder", type=Path, help="where to")
    parser.add_argument("--merges", type=int, default=300, help="tokens beside those of bytes")
    parser.add_argument("--characters", type=int, default=600_000, help="how much text to read")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--context", type=int, default=64, help="tokens that the model sees at once")
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args(argv)
    if min(args.steps, args.batch) < 1:
        parser.error("steps and batch must be at least 1")
    plait.manual_seed(args.seed)
    args.folder.mkdir(parents=True, exist_ok=True)

    files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    text = "".join(p.read_text(encoding="utf-8", errors="replace") for p in files)[: args.characters]
    tokenizer = Tokenizer.learn(text[:200_000], args.merges)
    tokens = plait.tensor(tokenizer.encode(text))
    print(f"{len(text):,} characters are {len(tokens):,} tokens of {len(tokenizer.vocabulary)} kinds")

    config = Config(len(tokenizer.vocabulary), args.context, args.width, args.layers)
    model = GPT2(config).to(args.device)
    optimizer = plait.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.1)
    schedule = plait.optim.lr_scheduler.OneCycleLR(optimizer, args.lr, total_steps=args.steps, pct_start=0.1)
    losses: list[float] = []
    for step in range(1, args.steps + 1):
        starts = plait.randint(0, len(tokens) - args.context, (args.batch, 1))
        pieces = tokens[starts + plait.arange(args.context + 1)].to(args.device)
        scores, _ = model(pieces[:, :-1])
        loss = F.cross_entropy(scores.flatten(0, 1), pieces[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
        if step == 1 or step % max(1, args.steps // 5) == 0:
            print(f"step {step}: loss {losses[-1]:.3f} nats a token", flush=True)
    tokenizer.save(args.folder)
    model.save(args.folder)
    print(f"wrote {', '.join(sorted(p.name for p in args.folder.iterdir()))} to {args.folder}")
    return losses[0], losses[-1]


if __name__ == "__main__":
    main()
