"""Training steps in Plait and, where it is installed, PyTorch: the same script, threads and process.

    python benchmarks/python/training.py [--threads 2] [--seconds 3]
    python benchmarks/python/training.py --device cuda    # float32 on both sides, and larger models too

The two take turns, so that a busy machine slows both alike, and the ratio of their fastest steps is what counts.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.util
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any


def mlp(torch: Any, device: str) -> Callable[[], None]:
    """784-256-128-10 with ReLU, cross entropy and SGD, batch 64."""
    nn = torch.nn
    model = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10))
    model.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    return step(torch, model, torch.randn(64, 784), torch.randint(0, 10, (64,)), optimizer)


def cnn(torch: Any, device: str) -> Callable[[], None]:
    """Two convolutions with pooling and a linear layer on 32 images of 1x28x28, Adam."""
    nn = torch.nn
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 49, 10),
    )  # fmt: skip
    model.to(device)
    optimizer = torch.optim.Adam(model.parameters())
    return step(torch, model, torch.randn(32, 1, 28, 28), torch.randint(0, 10, (32,)), optimizer)


def resnet(torch: Any, device: str) -> Callable[[], None]:
    """ResNet-18 on 32 images of 3x224x224, SGD with momentum."""
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self, before: int, width: int, stride: int) -> None:
            super().__init__()
            self.layers = nn.Sequential(
                nn.Conv2d(before, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
                nn.Conv2d(width, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width),
            )  # fmt: skip
            self.short = nn.Identity()
            if stride != 1 or before != width:
                self.short = nn.Sequential(nn.Conv2d(before, width, 1, stride, bias=False), nn.BatchNorm2d(width))

        def forward(self, x: Any) -> Any:
            return nn.functional.relu(self.layers(x) + self.short(x))

    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    before = 64
    for width in (64, 128, 256, 512):
        layers += [Block(before, width, 1 if width == 64 else 2), Block(width, width, 1)]
        before = width
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    return step(torch, model, torch.randn(32, 3, 224, 224), torch.randint(0, 1000, (32,)), optimizer)


def lstm(torch: Any, device: str) -> Callable[[], None]:
    """Two layers of 128 units over 64 steps of batch 16, Adam."""
    return recurrent(torch, device, 128, 64, 16)


def large_lstm(torch: Any, device: str) -> Callable[[], None]:
    """Two layers of 512 units over 128 steps of batch 64, Adam."""
    return recurrent(torch, device, 512, 128, 64)


def recurrent(torch: Any, device: str, width: int, length: int, batch: int) -> Callable[[], None]:
    """Two layers of an LSTM and a linear layer on the last step, Adam."""
    nn = torch.nn

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = nn.LSTM(width, width, num_layers=2)
            self.head = nn.Linear(width, 10)

        def forward(self, x: Any) -> Any:
            return self.head(self.rnn(x)[0][-1])

    model = Model().to(device)
    optimizer = torch.optim.Adam(model.parameters())
    return step(torch, model, torch.randn(length, batch, width), torch.randint(0, 10, (batch,)), optimizer)


def gpt(torch: Any, device: str) -> Callable[[], None]:
    """Four transformer blocks of 128 channels and four heads on 8 sequences of 128 characters, AdamW."""
    model = small_gpt(torch).to(device)
    target = torch.randint(0, 96, (8 * 128,))
    return step(torch, model, torch.randint(0, 96, (8, 128)), target, torch.optim.AdamW(model.parameters()))


def small_gpt(torch: Any) -> Any:
    """Returns the model of `gpt`."""
    nn, functional = torch.nn, torch.nn.functional

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(128), nn.LayerNorm(128)
            self.qkv, self.out = nn.Linear(128, 384), nn.Linear(128, 128)
            self.up, self.down = nn.Linear(128, 512), nn.Linear(512, 128)

        def forward(self, x: Any) -> Any:
            b, t, c = x.shape
            q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, 4, c // 4).permute(2, 0, 3, 1, 4).unbind(0)
            a = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(a.transpose(1, 2).reshape(b, t, c))
            return x + self.down(functional.gelu(self.up(self.norm2(x))))

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.token, self.position = nn.Embedding(96, 128), nn.Embedding(128, 128)
            self.blocks = nn.Sequential(*[Block() for _ in range(4)])
            self.norm, self.head = nn.LayerNorm(128), nn.Linear(128, 96)

        def forward(self, x: Any) -> Any:
            h = self.token(x) + self.position(torch.arange(x.shape[1], device=x.device))
            return self.head(self.norm(self.blocks(h))).reshape(-1, 96)

    return Model()


def step(torch: Any, model: Any, x: Any, y: Any, optimizer: Any) -> Callable[[], None]:
    """Returns a training step on the model's device that ends when its loss is known."""
    device = next(model.parameters()).device
    x, y = x.to(device), y.to(device)
    loss_of = torch.nn.CrossEntropyLoss()

    def run() -> None:
        optimizer.zero_grad()
        loss = loss_of(model(x), y)
        loss.backward()
        optimizer.step()
        loss.item()

    return run


def small_op(torch: Any, device: str, times: int = 1000) -> Callable[[], None]:
    """A thousand additions of 1 000 elements with gradients, enqueued; the time is of one."""
    a, b = torch.randn(1000, device=device).requires_grad_(), torch.randn(1000, device=device)

    def run() -> None:
        for _ in range(times):
            a + b

    return run


def many_ops(torch: Any, device: str) -> Callable[[], None]:
    """A hundred thousand such additions in one loop; the time is of one."""
    return small_op(torch, device, 100_000)


def read_op(torch: Any, device: str) -> Callable[[], None]:
    """A thousand such additions of which one element is read; the time is of one."""
    a, b = torch.randn(1, device=device).requires_grad_(), torch.randn(1, device=device)

    def run() -> None:
        for _ in range(1000):
            (a + b).item()

    return run


@contextlib.contextmanager
def busy_thread(on: bool) -> Iterator[None]:
    """Inside, another Python thread is busy, if `on`."""
    stop = threading.Event()

    def spin() -> None:
        while not stop.is_set():
            pass

    thread = threading.Thread(target=spin)
    if on:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        if on:
            thread.join()


def main() -> None:
    """Prints the fastest step of each model and side, and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--seconds", type=float, default=3, help="for each model")
    args = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", str(args.threads))
    sides = {"plait": importlib.import_module("plait")}
    if importlib.util.find_spec("torch"):
        sides["torch"] = importlib.import_module("torch")
    for module in sides.values():
        module.set_num_threads(args.threads)
        module.manual_seed(0)
    print(f"{'':14}" + "".join(f"{name:>12}" for name in sides) + f"{'speed':>10}")
    if args.device == "cuda" and "torch" in sides:
        sides["torch"].backends.cudnn.allow_tf32 = False  # products have it off at first
    steps = [(make, 1, False) for make in (mlp, cnn, lstm, gpt)]
    small = [(small_op, 1000, False), (small_op, 1000, True), (many_ops, 100_000, False), (read_op, 1000, False)]
    if args.device == "cuda":
        steps += [(large_lstm, 1, False), (resnet, 1, False)]
        small = [(small_op, 1000, False), (read_op, 1000, False)]
    for make, per, busy in steps + small:
        runs = {name: make(module, args.device) for name, module in sides.items()}
        best = dict.fromkeys(runs, float("inf"))
        end = time.perf_counter() + args.seconds
        with busy_thread(busy):
            while time.perf_counter() < end:
                for name, run in runs.items():
                    run()  # the other side's threads may still be spinning
                    for _ in range(5):
                        start = time.perf_counter()
                        run()
                        best[name] = min(best[name], time.perf_counter() - start)
        texts = "".join(f"{1e6 * b / per:10.2f}us" for b in best.values())
        ratio = f"{best['torch'] / best['plait']:9.2f}x" if "torch" in best else ""
        moved = ""
        if args.device == "cuda" and per == 1:
            before = sides["plait"].cuda.transfer_stats()
            runs["plait"]()
            moved = f"  {transfers(before, sides['plait'].cuda.transfer_stats())}"
        print(f"{make.__name__ + (' busy' if busy else ''):14}{texts}{ratio}{moved}", flush=True)


def transfers(before: dict[str, int], after: dict[str, int]) -> str:
    """Says what a step of Plait's moved between the host and the GPU."""
    moved = {name: n - before[name] for name, n in after.items()}
    sent, read = moved["to_device"], moved["from_device"]
    return f"sent {sent}, read {read} of {moved['from_device.bytes']} bytes, {moved['dispatches']} kernels"


if __name__ == "__main__":
    main()
