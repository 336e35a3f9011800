"""Products, attention and training steps on an NVIDIA GPU in float32, tf32 and bfloat16, beside PyTorch.

    python benchmarks/python/precision.py                          # everything
    python benchmarks/python/precision.py --only gpt2 --seconds 5

"gpt2_replayed" and "resnet50_replayed" replay Plait's steps by `compile`; PyTorch's run as they are. The two take turns
in one process. Times are medians, in milliseconds, between two moments at which the GPU has done all its work. PyTorch
runs as a user would have it run fast: with its fused AdamW, and with cuDNN's choice measured.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.util
import statistics
import time
from collections.abc import Callable
from typing import Any

Run = Callable[[], None]
PRECISIONS = ("float32", "tf32", "bf16")


def gpt2_model(torch: Any, heads: int = 12, layers: int = 12, width: int = 768, vocabulary: int = 50257) -> Any:
    """Returns a GPT-2 of 124M parameters. Its embedding is its last layer too."""
    nn, functional = torch.nn, torch.nn.functional

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: Any) -> Any:
            b, t, c = x.shape
            q, k, v = (y.view(b, t, heads, c // heads).transpose(1, 2) for y in self.qkv(self.norm1(x)).split(c, dim=2))
            a = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(a.transpose(1, 2).reshape(b, t, c))
            return x + self.down(functional.gelu(self.up(self.norm2(x)), approximate="tanh"))

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.token, self.position = nn.Embedding(vocabulary, width), nn.Embedding(1024, width)
            self.blocks = nn.Sequential(*[Block() for _ in range(layers)])
            self.norm = nn.LayerNorm(width)

        def forward(self, x: Any) -> Any:
            h = self.token(x) + self.position(torch.arange(x.shape[1], device=x.device))
            return functional.linear(self.norm(self.blocks(h)), self.token.weight)

    return Model()


def gpt2(torch: Any, precision: str) -> Run:
    """GPT-2 124M on 8 sequences of 1024 tokens, AdamW; bfloat16 by autocast."""
    model = gpt2_model(torch).to("cuda")
    fused = {"fused": True} if torch.__name__ == "torch" else {}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, **fused)
    x = torch.randint(0, 50257, (8, 1024)).to("cuda")
    y = torch.randint(0, 50257, (8 * 1024,)).to("cuda")
    return step(torch, precision, model, optimizer, x, y, lambda out: out.view(-1, 50257))


def resnet50(torch: Any, precision: str) -> Run:
    """ResNet-50 on 64 images of 3 x 224 x 224, SGD with momentum; bfloat16 by autocast."""
    nn, functional = torch.nn, torch.nn.functional

    class Block(nn.Module):
        def __init__(self, before: int, width: int, stride: int) -> None:
            super().__init__()
            self.conv1, self.norm1 = nn.Conv2d(before, width, 1, bias=False), nn.BatchNorm2d(width)
            self.conv2, self.norm2 = nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
            self.conv3, self.norm3 = nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width)
            self.short = nn.Identity()
            if stride != 1 or before != 4 * width:
                self.short = nn.Sequential(
                    nn.Conv2d(before, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width)
                )

        def forward(self, x: Any) -> Any:
            y = functional.relu(self.norm1(self.conv1(x)))
            y = functional.relu(self.norm2(self.conv2(y)))
            return functional.relu(self.norm3(self.conv3(y)) + self.short(x))

    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    before = 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for i in range(blocks):
            layers.append(Block(before, width, 2 if i == 0 and width > 64 else 1))
            before = 4 * width
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000)).to("cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    x, y = torch.randn(64, 3, 224, 224).to("cuda"), torch.randint(0, 1000, (64,)).to("cuda")
    return step(torch, precision, model, optimizer, x, y, lambda out: out)


def step(torch: Any, precision: str, model: Any, optimizer: Any, x: Any, y: Any, rows: Callable[[Any], Any]) -> Run:
    """Returns a training step. Autocast covers the forward pass and the loss, as in PyTorch's guide."""

    def run() -> None:
        optimizer.zero_grad(set_to_none=True)
        low = torch.autocast("cuda", dtype=torch.bfloat16) if precision == "bf16" else contextlib.nullcontext()
        with low:
            loss = torch.nn.functional.cross_entropy(rows(model(x)), y)
        loss.backward()
        optimizer.step()

    return run


def attention(torch: Any, precision: str) -> Run:
    """Causal attention of 8 x 12 x 1024 x 64, forward and backward."""
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    q, k, v = (torch.randn(8, 12, 1024, 64).to("cuda", dtype).requires_grad_() for _ in range(3))
    g = torch.randn(8, 12, 1024, 64).to("cuda", dtype)

    def run() -> None:
        q.grad = k.grad = v.grad = None
        torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).backward(g)

    return run


def product(size: int) -> Callable[[Any, str], Run]:
    """The product of two square matrices, twenty times."""

    def make(torch: Any, precision: str) -> Run:
        dtype = torch.bfloat16 if precision == "bf16" else torch.float32
        a, b = (torch.randn(size, size).to("cuda", dtype) for _ in range(2))

        def run() -> None:
            for _ in range(20):
                a @ b

        return run

    return make


def small_ops(torch: Any, _: str) -> Run:
    """A chain of 10 000 additions of 1 000 elements."""
    x, one = torch.randn(1000).to("cuda"), torch.ones(1000).to("cuda")

    def run() -> None:
        y = x
        for _ in range(10_000):
            y = y + one

    return run


def replayed(case: Callable[[Any, str], Run]) -> Callable[[Any, str], Run]:
    """A case whose runs are replayed by Plait."""

    def make(torch: Any, precision: str) -> Run:
        run = case(torch, precision)
        return torch.compile(run, fullgraph=True) if torch.__name__ == "plait" else run

    return make


CASES: dict[str, tuple[Callable[[Any, str], Run], tuple[str, ...]]] = {
    **{f"product{n}": (product(n), PRECISIONS) for n in (1024, 2048, 4096, 8192)},
    "attention": (attention, ("float32", "bf16")),
    "small_ops": (small_ops, ("float32",)),
    "gpt2": (gpt2, PRECISIONS),
    "resnet50": (resnet50, PRECISIONS),
    "gpt2_replayed": (replayed(gpt2), PRECISIONS),
    "resnet50_replayed": (replayed(resnet50), PRECISIONS),
}


def measure(sides: dict[str, Any], case: str, precision: str, seconds: float) -> None:
    """Prints the median time of each side, the ratio, and the peak of memory."""
    make, _ = CASES[case]
    runs, times, peaks = {}, {}, {}
    for name, module in sides.items():
        module.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
        module.backends.cudnn.allow_tf32 = precision == "tf32"
        module.manual_seed(0)
        runs[name], times[name] = make(module, precision), []
        module.cuda.reset_peak_memory_stats()
        for _ in range(5):
            runs[name]()
        module.cuda.synchronize()
        peaks[name] = module.cuda.max_memory_allocated() / 2**30
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times["plait"]) < 3:
        for name, module in sides.items():
            runs[name]()
            module.cuda.synchronize()
            for _ in range(3):
                start = time.perf_counter()
                runs[name]()
                module.cuda.synchronize()
                times[name].append(1e3 * (time.perf_counter() - start))
    medians = {name: statistics.median(t) for name, t in times.items()}
    line = f"{case:17} {precision:8}" + "".join(f"{medians[name]:10.3f} ms {peaks[name]:6.2f} GiB" for name in sides)
    if "torch" in medians:
        line += f"{medians['torch'] / medians['plait']:8.2f}x"
    print(line, flush=True)


def main() -> None:
    """Measures the cases that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=list(CASES), choices=list(CASES))
    parser.add_argument("--precision", nargs="*", default=list(PRECISIONS), choices=PRECISIONS)
    parser.add_argument("--seconds", type=float, default=2, help="for each case")
    args = parser.parse_args()
    sides = {"plait": importlib.import_module("plait")}
    if importlib.util.find_spec("torch"):
        sides["torch"] = importlib.import_module("torch")
        sides["torch"].backends.cudnn.benchmark = True
    print(f"{'':26}" + "".join(f"{name:>24}" for name in sides) + f"{'speed':>9}")
    for case in args.only:
        for precision in CASES[case][1]:
            if precision in args.precision:
                measure(sides, case, precision, args.seconds)
    properties = sides["plait"].cuda.get_device_properties(0)
    print(properties)


if __name__ == "__main__":
    main()
