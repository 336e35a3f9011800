"""Writes quantization.json: what PyTorch's fake quantization makes of values. Run it where PyTorch is installed."""

import json
from pathlib import Path

import torch

DTYPES = ["float32", "float64", "float16", "bfloat16"]


def kept(x, y):
    """Returns the numbers of a result and of the gradient of its sum of squares."""
    (grad,) = torch.autograd.grad(y.square().sum(), x)
    return {"input": x.tolist(), "output": y.tolist(), "grad": grad.tolist()}


def main():
    """Writes the file."""
    torch.manual_seed(6)
    cases = []
    for dtype in DTYPES:
        halves = torch.arange(-8, 24) / 2  # levels, and halves between them
        for scale, zero, low, high in ((0.25, 0, -4, 7), (0.1, 3, 0, 15), (1 / 3, -2, -8, -1)):
            values = torch.cat((halves * scale, torch.randn(16) * 5 * scale)).to(getattr(torch, dtype))
            x = values.requires_grad_()
            y = torch.fake_quantize_per_tensor_affine(x, scale, zero, low, high)
            cases.append({"dtype": dtype, "arguments": [scale, zero, low, high], **kept(x, y)})
        for axis, zeros in ((0, [0, 3, 15]), (1, [5, 0, 2, 9]), (1, [0.5, 0.0, 1.25, 2.0])):
            x = (torch.randn(3, 4) * 2).to(getattr(torch, dtype)).requires_grad_()
            scales = torch.rand(len(zeros)) + 0.05
            zero = torch.tensor(zeros, dtype=torch.float32 if isinstance(zeros[0], float) else torch.int32)
            y = torch.fake_quantize_per_channel_affine(x, scales, zero, axis, 0, 15)
            cases.append({"dtype": dtype, "scale": scales.tolist(), "zero_point": zeros, "axis": axis, **kept(x, y)})
    Path(__file__).with_name("quantization.json").write_text(json.dumps(cases) + "\n")


if __name__ == "__main__":
    main()
