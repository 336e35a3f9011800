"""Writes windows.json: PyTorch's windows. Run it where PyTorch is installed."""

import json
from pathlib import Path

import torch

CASES = [
    [name, n, periodic, extra]
    for name, extra in [
        ("hann_window", {}), ("hamming_window", {}), ("hamming_window", {"alpha": 0.6, "beta": 0.3}),
        ("blackman_window", {}), ("bartlett_window", {}), ("kaiser_window", {}), ("kaiser_window", {"beta": 3.0}),
    ]
    for n in (0, 1, 2, 7, 8)
    for periodic in (True, False)
]  # fmt: skip


def main() -> None:
    """Writes the file."""
    lines = []
    for name, n, periodic, extra in CASES:
        values = getattr(torch, name)(n, periodic, **extra, dtype=torch.float64).tolist()
        lines.append(json.dumps([name, n, periodic, extra, values]))
    (Path(__file__).parent / "windows.json").write_text("[\n" + ",\n".join(lines) + "\n]\n", "utf-8")


if __name__ == "__main__":
    main()
