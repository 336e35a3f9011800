"""Writes ctc.json: PyTorch's CTC losses and their gradients by scores. Run it where PyTorch is installed."""

import itertools
import json
from pathlib import Path

import torch

SIZES = [(8, 3, 4, 3), (5, 3, 3, 4)]  # steps, samples, classes, labels


def case(size, reduction, zero_infinity, blank, joined):
    """Returns the arguments of one loss, and what PyTorch makes of them."""
    steps, samples, classes, labels = size
    scores = torch.randn(steps, samples, classes, dtype=torch.float64).round(decimals=2).requires_grad_()
    inputs = torch.randint(steps // 2, steps + 1, (samples,))
    lengths = torch.randint(0, labels + 1, (samples,))
    targets = torch.randint(0, classes - 1, (samples, labels))
    targets += targets >= blank
    if joined:
        targets = torch.cat([t[:n] for t, n in zip(targets, lengths, strict=True)])
    options = {"blank": blank, "reduction": reduction, "zero_infinity": zero_infinity}
    loss = torch.nn.CTCLoss(**options)(scores.log_softmax(-1), targets, inputs, lengths)
    loss.sum().backward()
    return {
        "options": options,
        "scores": scores.tolist(),
        "targets": targets.tolist(),
        "inputs": inputs.tolist(),
        "lengths": lengths.tolist(),
        "loss": [x if x != float("inf") else None for x in loss.flatten().tolist()],
        # Where a loss is infinite, PyTorch's gradients are NaN and ours 0.
        "grad": scores.grad.round(decimals=9).tolist() if bool(loss.isfinite().all()) else None,
    }


def main():
    """Writes the file."""
    torch.manual_seed(5)
    cases = [
        case(size, reduction, zero, blank, joined)
        for size, reduction, (zero, blank), joined in itertools.product(
            SIZES, ("none", "mean", "sum"), ((False, 0), (True, 1)), (False, True)
        )
    ]
    Path(__file__).with_name("ctc.json").write_text(json.dumps(cases) + "\n")


if __name__ == "__main__":
    main()
