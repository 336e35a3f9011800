"""Training steps in Plait and, where it is installed, PyTorch: the same script, threads and process.

    python benchmarks/python/training.py [--threads 2] [--seconds 3]

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


def mlp(torch: Any) -> Callable[[], None]:
    """784-256-128-10 with ReLU, cross entropy and SGD, batch 64."""
    nn = torch.nn
    model = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10))
    return step(
        torch, model, torch.randn(64, 784), torch.randint(0, 10, (64,)), torch.optim.SGD(model.parameters(), lr=0.01)
    )


def cnn(torch: Any) -> Callable[[], None]:
    """Two convolutions with pooling and a linear layer on 32 images of 1x28x28, Adam."""
    nn = torch.nn
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 49, 10),
    )  # fmt: skip
    return step(
        torch, model, torch.randn(32, 1, 28, 28), torch.randint(0, 10, (32,)), torch.optim.Adam(model.parameters())
    )


def lstm(torch: Any) -> Callable[[], None]:
    """Two layers of 128 units over 64 steps of batch 16, Adam."""
    nn = torch.nn

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = nn.LSTM(128, 128, num_layers=2)
            self.head = nn.Linear(128, 10)

        def forward(self, x: Any) -> Any:
            return self.head(self.rnn(x)[0][-1])

    model = Model()
    return step(
        torch, model, torch.randn(64, 16, 128), torch.randint(0, 10, (16,)), torch.optim.Adam(model.parameters())
    )


def gpt(torch: Any) -> Callable[[], None]:
    """Four transformer blocks of 128 channels and four heads on 8 sequences of 128 characters, AdamW."""
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
            h = self.token(x) + self.position(torch.arange(x.shape[1]))
            return self.head(self.norm(self.blocks(h))).reshape(-1, 96)

    model = Model()
    target = torch.randint(0, 96, (8 * 128,))
    return step(torch, model, torch.randint(0, 96, (8, 128)), target, torch.optim.AdamW(model.parameters()))


def step(torch: Any, model: Any, x: Any, y: Any, optimizer: Any) -> Callable[[], None]:
    """Returns a training step that ends when its loss is known."""
    loss_of = torch.nn.CrossEntropyLoss()

    def run() -> None:
        optimizer.zero_grad()
        loss = loss_of(model(x), y)
        loss.backward()
        optimizer.step()
        loss.item()

    return run


def small_op(torch: Any, times: int = 1000) -> Callable[[], None]:
    """A thousand additions of 1 000 elements with gradients, enqueued; the time is of one."""
    a, b = torch.randn(1000).requires_grad_(), torch.randn(1000)

    def run() -> None:
        for _ in range(times):
            a + b

    return run


def many_ops(torch: Any) -> Callable[[], None]:
    """A hundred thousand such additions in one loop; the time is of one."""
    return small_op(torch, 100_000)


def read_op(torch: Any) -> Callable[[], None]:
    """A thousand such additions of which one element is read; the time is of one."""
    a, b = torch.randn(1).requires_grad_(), torch.randn(1)

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
    steps = [(make, 1, False) for make in (mlp, cnn, lstm, gpt)]
    small = [(small_op, 1000, False), (small_op, 1000, True), (many_ops, 100_000, False), (read_op, 1000, False)]
    for make, per, busy in steps + small:
        runs = {name: make(module) for name, module in sides.items()}
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
        print(f"{make.__name__ + (' busy' if busy else ''):14}{texts}{ratio}", flush=True)


if __name__ == "__main__":
    main()
