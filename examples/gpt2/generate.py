"""Writes on from a text by a GPT-2 whose files are in a folder: those of train.py, or of any GPT-2 under its names.

python examples/gpt2/generate.py gpt2-small "def read("
python examples/gpt2/generate.py gpt2-small "import " --temperature 1 --top-k 40 --length 200
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path

import plait
import plait.nn.functional as F
from bpe import Tokenizer
from gpt2 import GPT2
from plait import Tensor


def choose(scores: Tensor, temperature: float, top_k: int) -> Tensor:
    """Returns a token [1, 1], drawn from the `top_k` with the highest scores [1, V], or the first at temperature 0."""
    if temperature == 0:
        return scores.argmax(1, keepdim=True)
    best, tokens = scores.topk(min(top_k, scores.shape[1]))
    return tokens.gather(1, plait.multinomial(F.softmax(best / temperature, dim=1), 1))


@plait.no_grad()
def generate(model: GPT2, tokens: list[int], length: int, temperature: float, top_k: int) -> Iterator[int]:
    """Yields tokens that follow. Keys and values of earlier ones are kept: a step computes one token alone."""
    device, most = model.wte.weight.device, model.config.n_positions
    cache, fresh = None, plait.tensor([tokens[-most:]], device=device)
    tokens = list(tokens)
    for _ in range(length):
        if cache and cache[0][0].shape[2] == most:  # no place is left: it goes on from the second half
            cache, fresh = None, plait.tensor([tokens[-most // 2 :]], device=device)
        scores, cache = model(fresh, cache)
        fresh = choose(scores[:, -1], temperature, top_k)
        tokens.append(fresh.item())
        yield tokens[-1]


def main(argv: list[str] | None = None) -> str:
    """Prints and returns a text and what follows it."""
    parser = argparse.ArgumentParser(description="Writes on from a text by a GPT-2.")
    parser.add_argument("folder", type=Path, help="with vocab.json, merges.txt, config.json and model.safetensors")
    parser.add_argument("text", help="what the text begins with")
    parser.add_argument("--length", type=int, default=120, help="tokens to write")
    parser.add_argument("--temperature", type=float, default=0.7, help="0 takes the likeliest token each time")
    parser.add_argument("--top-k", type=int, default=20, help="draw among so many of the likeliest tokens")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args(argv)
    plait.manual_seed(args.seed)

    tokenizer, model = Tokenizer.load(args.folder), GPT2.load(args.folder, args.device)
    start = tokenizer.encode(args.text)
    if not start:
        parser.error("the text is empty")
    began = time.perf_counter()
    written = list(generate(model, start, args.length, args.temperature, args.top_k))
    seconds = time.perf_counter() - began
    text = tokenizer.decode([*start, *written])
    print(f"{text}\n\n{len(written)} tokens, {len(written) / seconds:.0f} a second")
    return text


if __name__ == "__main__":
    main()
