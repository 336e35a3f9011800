"""Damaged files: what a loader reads is what was saved, or CheckpointError."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import plait
import torch
from plait import safetensors

from tests_fuzz.report import Report


def run(rng: random.Random, report: Report) -> None:
    """Damages copies of a few files at random, and loads them, until there is no more time."""
    values = {"weight": torch.randn(4, 5), "bias": torch.arange(6), "half": torch.randn(3).half()}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        torch.save(values, root / "zip")
        torch.save(values, root / "legacy", _use_new_zipfile_serialization=False)
        ours = {k: plait.tensor(v.numpy()) for k, v in values.items()}
        plait.save(ours, root / "own")
        safetensors.save_file(ours, root / "safetensors")
        kinds: list[tuple[str, Callable[[Path], Any]]] = [
            ("zip", plait.load), ("legacy", plait.load), ("own", plait.load), ("safetensors", safetensors.load_file),
        ]  # fmt: skip
        originals = {name: (root / name).read_bytes() for name, _ in kinds}
        while report.more():
            name, load = rng.choice(kinds)
            seed = rng.getrandbits(32)
            report.begin(f"{name} {seed}")
            path = root / "damaged"
            path.write_bytes(damaged(originals[name], random.Random(seed)))
            try:
                load(path)
                report.held("loaded")
            except plait.CheckpointError:
                report.held("refused")
            except Exception as e:
                report.found("wrong error", f"{type(e).__name__}: {e}")


def damaged(data: bytes, rng: random.Random) -> bytes:
    """Returns `data` with bits flipped, parts cut out, doubled or overwritten, or the end missing."""
    out = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        a = rng.randrange(len(out))
        b = min(len(out), a + rng.choice((1, 2, 8, 100)))
        match rng.randrange(5):
            case 0:
                out[a] ^= 1 << rng.randrange(8)
            case 1:
                del out[a:b]
            case 2:
                out[a:a] = out[a:b]
            case 3:
                out[a:b] = bytes(rng.choice((0, 255, rng.randrange(256))) for _ in range(b - a))
            case 4:
                del out[a:]
        if not out:
            return b""
    return bytes(out)
