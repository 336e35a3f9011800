"""Networks in Plait and, where it is installed, PyTorch: training and inference on CPUs, in one process.

    python benchmarks/python/networks.py [--threads 2] [--seconds 3] [--only vgg16 dla] [--modes train infer train-bf16]
                                           [--cpu-time]

The two take turns, so that a busy machine slows both alike, and the ratio of their fastest steps is what counts. The
slowest network beside PyTorch is the last line.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.util
import math
import os
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any


def blocks(torch: Any) -> SimpleNamespace:
    """Returns what the networks are made of."""
    nn = torch.nn

    class Residual(nn.Module):
        """activation(body(x) + shortcut(x))"""

        def __init__(self, body: Any, shortcut: Any = None, activation: Any = None) -> None:
            super().__init__()
            self.body, self.shortcut = body, shortcut or nn.Identity()
            self.activation = activation or nn.Identity()

        def forward(self, x: Any) -> Any:
            return self.activation(self.body(x) + self.shortcut(x))

    class Concat(nn.Module):
        """The channels of all branches."""

        def __init__(self, *branches: Any) -> None:
            super().__init__()
            self.branches = nn.ModuleList(branches)

        def forward(self, x: Any) -> Any:
            return torch.cat([branch(x) for branch in self.branches], 1)

    class Excite(nn.Module):
        """Squeeze and excitation: weighs channels by what a small network makes of their means."""

        def __init__(self, width: int, hidden: int, activation: Any) -> None:
            super().__init__()
            self.gate = nn.Sequential(
                nn.AdaptiveAvgPool2d(1),
                nn.Conv2d(width, hidden, 1),
                activation,
                nn.Conv2d(hidden, width, 1),
                nn.Sigmoid(),
            )

        def forward(self, x: Any) -> Any:
            return x * self.gate(x)

    class Tree(nn.Module):
        """A binary tree of blocks whose root joins both subtrees, as in deep layer aggregation."""

        def __init__(
            self, make: Callable[[int, int, int], Any], before: int, width: int, depth: int, stride: int
        ) -> None:
            super().__init__()
            if depth == 1:
                self.left, self.right = make(before, width, stride), make(width, width, 1)
            else:
                self.left = Tree(make, before, width, depth - 1, stride)
                self.right = Tree(make, width, width, depth - 1, 1)
            self.root = conv(2 * width, width, 1)

        def forward(self, x: Any) -> Any:
            left = self.left(x)
            return self.root(torch.cat([left, self.right(left)], 1))

    def conv(before: int, width: int, kernel: int, stride: int = 1, groups: int = 1, activation: Any = nn.ReLU) -> Any:
        """A convolution with batch normalisation and, if any, an activation."""
        padding = (kernel - 1) // 2
        layers = [nn.Conv2d(before, width, kernel, stride, padding, groups=groups, bias=False), nn.BatchNorm2d(width)]
        return nn.Sequential(*layers, *([activation()] if activation else []))

    def shortcut(before: int, width: int, stride: int) -> Any:
        return None if stride == 1 and before == width else conv(before, width, 1, stride, activation=None)

    def basic(before: int, width: int, stride: int) -> Any:
        """The block of ResNet-18."""
        body = nn.Sequential(conv(before, width, 3, stride), conv(width, width, 3, activation=None))
        return Residual(body, shortcut(before, width, stride), nn.ReLU())

    def bottleneck(before: int, width: int, out: int, stride: int, groups: int = 1) -> Any:
        """The block of ResNet-50 and ResNeXt."""
        body = nn.Sequential(
            conv(before, width, 1), conv(width, width, 3, stride, groups), conv(width, out, 1, activation=None)
        )
        return Residual(body, shortcut(before, out, stride), nn.ReLU())

    def classifier(width: int, classes: int = 10) -> list[Any]:
        return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, classes)]

    return SimpleNamespace(**{k: v for k, v in locals().items() if k != "torch"})


def vgg16(torch: Any) -> tuple[Any, Any]:
    """VGG-16 with batch normalisation on images of 32 x 32."""
    b, layers, before = blocks(torch), [], 3
    for width in (64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0):
        layers.append(b.conv(before, width, 3) if width else torch.nn.MaxPool2d(2))
        before = width or before
    return torch.nn.Sequential(*layers, *b.classifier(512)), torch.randn(8, 3, 32, 32)


def resnet18(torch: Any) -> tuple[Any, Any]:
    """ResNet-18 on images of 32 x 32."""
    b = blocks(torch)
    layers, before = [b.conv(3, 64, 3)], 64
    for width in (64, 128, 256, 512):
        layers += [b.basic(before, width, 1 if width == 64 else 2), b.basic(width, width, 1)]
        before = width
    return torch.nn.Sequential(*layers, *b.classifier(512)), torch.randn(8, 3, 32, 32)


def dla(torch: Any) -> tuple[Any, Any]:
    """Deep layer aggregation (Yu et al. 2018) in its simple form, on images of 32 x 32."""
    b = blocks(torch)
    layers = [b.conv(3, 16, 3), b.conv(16, 16, 3), b.conv(16, 32, 3)]
    for before, width, depth, stride in ((32, 64, 1, 1), (64, 128, 2, 2), (128, 256, 2, 2), (256, 512, 1, 2)):
        layers.append(b.Tree(b.basic, before, width, depth, stride))
    return torch.nn.Sequential(*layers, *b.classifier(512)), torch.randn(8, 3, 32, 32)


def senet18(torch: Any) -> tuple[Any, Any]:
    """ResNet-18 with squeeze and excitation (Hu et al. 2018), on images of 32 x 32."""
    b, nn = blocks(torch), torch.nn
    layers, before = [b.conv(3, 64, 3)], 64
    for width in (64, 64, 128, 128, 256, 256, 512, 512):
        stride = 1 if width == before else 2
        body = [b.conv(before, width, 3, stride), b.conv(width, width, 3, activation=None)]
        body.append(b.Excite(width, width // 16, nn.ReLU()))
        layers.append(b.Residual(nn.Sequential(*body), b.shortcut(before, width, stride), nn.ReLU()))
        before = width
    return nn.Sequential(*layers, *b.classifier(512)), torch.randn(8, 3, 32, 32)


def inverted(
    torch: Any,
    stages: tuple[tuple[int, int, int, int, int], ...],
    first: int,
    last: int,
    activation: Any,
    squeeze: bool,
) -> Any:
    """Stages of (expansion, width, blocks, stride, kernel) of inverted residuals."""
    b, nn = blocks(torch), torch.nn
    layers, before = [b.conv(3, first, 3, activation=activation)], first
    for expansion, width, count, stage_stride, kernel in stages:
        for i in range(count):
            stride, hidden = stage_stride if i == 0 else 1, before * expansion
            body = [b.conv(before, hidden, 1, activation=activation)] if expansion > 1 else []
            body.append(b.conv(hidden, hidden, kernel, stride, hidden, activation))
            if squeeze:
                body.append(b.Excite(hidden, before // 4, activation()))
            body.append(b.conv(hidden, width, 1, activation=None))
            whole = nn.Sequential(*body)
            layers.append(b.Residual(whole) if stride == 1 and before == width else whole)
            before = width
    return nn.Sequential(*layers, b.conv(before, last, 1, activation=activation), *b.classifier(last))


def mobilenet_v2(torch: Any) -> tuple[Any, Any]:
    """MobileNetV2 (Sandler et al. 2018) on images of 32 x 32."""
    stages = (
        (1, 16, 1, 1, 3), (6, 24, 2, 1, 3), (6, 32, 3, 2, 3), (6, 64, 4, 2, 3), (6, 96, 3, 1, 3), (6, 160, 3, 2, 3),
        (6, 320, 1, 1, 3),
    )  # fmt: skip
    return inverted(torch, stages, 32, 1280, torch.nn.ReLU6, squeeze=False), torch.randn(8, 3, 32, 32)


def efficientnet_b0(torch: Any) -> tuple[Any, Any]:
    """EfficientNet-B0 (Tan and Le 2019) on images of 32 x 32."""
    stages = (
        (1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3), (6, 112, 3, 1, 5), (6, 192, 4, 2, 5),
        (6, 320, 1, 1, 3),
    )  # fmt: skip
    return inverted(torch, stages, 32, 1280, torch.nn.SiLU, squeeze=True), torch.randn(8, 3, 32, 32)


def resnext29(torch: Any) -> tuple[Any, Any]:
    """ResNeXt-29 (Xie et al. 2017) with 2 groups of 64 channels, on images of 32 x 32."""
    b = blocks(torch)
    layers, before = [b.conv(3, 64, 1)], 64
    for i in range(9):
        width = 128 << i // 3
        layers.append(b.bottleneck(before, width, 2 * width, 2 if i in (3, 6) else 1, 2))
        before = 2 * width
    return torch.nn.Sequential(*layers, *b.classifier(before)), torch.randn(8, 3, 32, 32)


def googlenet(torch: Any) -> tuple[Any, Any]:
    """GoogLeNet (Szegedy et al. 2015) with batch normalisation, on images of 32 x 32."""
    b, nn = blocks(torch), torch.nn
    layers, before = [b.conv(3, 192, 3)], 192
    for plan in (
        (64, 96, 128, 16, 32, 32), (128, 128, 192, 32, 96, 64), None, (192, 96, 208, 16, 48, 64),
        (160, 112, 224, 24, 64, 64), (128, 128, 256, 24, 64, 64), (112, 144, 288, 32, 64, 64),
        (256, 160, 320, 32, 128, 128), None, (256, 160, 320, 32, 128, 128), (384, 192, 384, 48, 128, 128),
    ):  # fmt: skip
        if plan is None:
            layers.append(nn.MaxPool2d(3, 2, 1))
            continue
        one, before3, three, before5, five, pool = plan
        layers.append(
            b.Concat(
                b.conv(before, one, 1),
                nn.Sequential(b.conv(before, before3, 1), b.conv(before3, three, 3)),
                nn.Sequential(b.conv(before, before5, 1), b.conv(before5, five, 3), b.conv(five, five, 3)),
                nn.Sequential(nn.MaxPool2d(3, 1, 1), b.conv(before, pool, 1)),
            )
        )
        before = one + three + five + pool
    return nn.Sequential(*layers, *b.classifier(before)), torch.randn(8, 3, 32, 32)


def densenet(torch: Any) -> tuple[Any, Any]:
    """DenseNet-121 (Huang et al. 2017) with a growth of 12, on images of 32 x 32."""
    b, nn, growth = blocks(torch), torch.nn, 12
    width = 2 * growth
    layers = [nn.Conv2d(3, width, 3, padding=1, bias=False)]
    for i, count in enumerate((6, 12, 24, 16)):
        for _ in range(count):
            body = nn.Sequential(
                nn.BatchNorm2d(width), nn.ReLU(), b.conv(width, 4 * growth, 1),
                nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False),
            )  # fmt: skip
            layers.append(b.Concat(body, nn.Identity()))
            width += growth
        layers += [nn.BatchNorm2d(width), nn.ReLU()]
        if i < 3:
            layers += [nn.Conv2d(width, width // 2, 1, bias=False), nn.AvgPool2d(2)]
            width //= 2
    return nn.Sequential(*layers, *b.classifier(width)), torch.randn(8, 3, 32, 32)


def resnet50(torch: Any) -> tuple[Any, Any]:
    """ResNet-50 on two images of 224 x 224."""
    b, nn = blocks(torch), torch.nn
    layers, before = [b.conv(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)], 64
    for i, count in enumerate((3, 4, 6, 3)):
        width = 64 << i
        for k in range(count):
            layers.append(b.bottleneck(before, width, 4 * width, 2 if k == 0 and i > 0 else 1))
            before = 4 * width
    return nn.Sequential(*layers, *b.classifier(before, 1000)), torch.randn(2, 3, 224, 224)


def encoder(torch: Any, width: int, heads: int, depth: int) -> Any:
    """Returns the layers of a transformer that normalises first."""
    nn = torch.nn
    layers = [
        nn.TransformerEncoderLayer(width, heads, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True)
        for _ in range(depth)
    ]
    return nn.ModuleList(layers)


def vit_s(torch: Any) -> tuple[Any, Any]:
    """ViT-S/16 on two images of 224 x 224."""
    nn = torch.nn

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.patches = nn.Conv2d(3, 384, 16, 16)
            self.position = nn.Parameter(0.02 * torch.randn(1, 196, 384))
            self.layers = encoder(torch, 384, 6, 12)
            self.norm, self.head = nn.LayerNorm(384), nn.Linear(384, 1000)

        def forward(self, x: Any) -> Any:
            x = self.patches(x).flatten(2).transpose(1, 2) + self.position
            for layer in self.layers:
                x = layer(x)
            return self.head(self.norm(x.mean(1)))

    return Model(), torch.randn(2, 3, 224, 224)


def gpt2(torch: Any) -> tuple[Any, Any]:
    """GPT-2 124M on a sequence of 256 tokens."""
    nn = torch.nn

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.token, self.position = nn.Embedding(50257, 768), nn.Embedding(1024, 768)
            self.layers = encoder(torch, 768, 12, 12)
            self.norm = nn.LayerNorm(768)
            mask = torch.full((256, 256), -math.inf).triu(1)
            self.register_buffer("mask", mask)

        def forward(self, x: Any) -> Any:
            h = self.token(x) + self.position(torch.arange(x.shape[1]))
            for layer in self.layers:
                h = layer(h, self.mask, is_causal=True)
            return nn.functional.linear(self.norm(h), self.token.weight).reshape(-1, 50257)

    return Model(), torch.randint(0, 50257, (1, 256))


def lstm(torch: Any) -> tuple[Any, Any]:
    """Two layers of 256 units over 64 steps of batch 16."""
    nn = torch.nn

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn, self.head = nn.LSTM(256, 256, num_layers=2), nn.Linear(256, 10)

        def forward(self, x: Any) -> Any:
            return self.head(self.rnn(x)[0][-1])

    return Model(), torch.randn(64, 16, 256)


NETWORKS = (
    vgg16, resnet18, dla, senet18, mobilenet_v2, efficientnet_b0, resnext29, googlenet, densenet, resnet50, vit_s, gpt2,
    lstm,
)  # fmt: skip
MODES = ("train", "infer", "train-bf16", "infer-bf16")


def runner(torch: Any, make: Callable[[Any], tuple[Any, Any]], mode: str) -> Callable[[], None]:
    """Returns a step of training, or a forward pass, that ends when its result is known."""
    torch.manual_seed(0)
    model, x = make(torch)
    reduced = torch.autocast("cpu", torch.bfloat16) if mode.endswith("bf16") else contextlib.nullcontext()
    if mode.startswith("infer"):
        model.eval()

        def infer() -> None:
            with torch.no_grad(), reduced:
                out = model(x)
            out.flatten()[0].item()

        return infer
    with torch.no_grad():
        y = torch.zeros(model(x).shape[0], dtype=torch.int64)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)

    def train() -> None:
        optimizer.zero_grad()
        with reduced:
            loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        loss.item()

    return train


def main() -> None:
    """Prints the fastest step of each network, mode and side, and their ratio, sorted."""
    names = [make.__name__ for make in NETWORKS]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=3, help="for each network and mode")
    parser.add_argument("--only", nargs="*", choices=names, default=names)
    parser.add_argument("--modes", nargs="*", choices=MODES, default=MODES)
    parser.add_argument("--cpu-time", action="store_true", help="of the process, for one thread on a busy machine")
    args = parser.parse_args()
    clock = time.process_time if args.cpu_time else time.perf_counter
    os.environ.setdefault("OMP_NUM_THREADS", str(args.threads))
    sides = {"plait": importlib.import_module("plait")}
    if importlib.util.find_spec("torch"):
        sides["torch"] = importlib.import_module("torch")
    for module in sides.values():
        module.set_num_threads(args.threads)
    lines = []
    for make in NETWORKS:
        for mode in args.modes:
            if make.__name__ not in args.only:
                continue
            runs = {name: runner(module, make, mode) for name, module in sides.items()}
            best = dict.fromkeys(runs, math.inf)
            end, rounds = time.perf_counter() + args.seconds, 0
            while time.perf_counter() < end or rounds < 2:
                rounds += 1
                for name, run in runs.items():
                    run()  # the other side's threads may still be spinning
                    for _ in range(2):
                        start = clock()
                        run()
                        best[name] = min(best[name], clock() - start)
            speed = best.get("torch", 0.0) / best["plait"]
            times = "".join(f"{1e3 * best[name]:10.2f}" for name in sides)
            lines.append((speed, f"{make.__name__:16}{mode:12}{times}{speed:8.2f}x"))
            print(lines[-1][1], flush=True)
    print(f"\n{'ms':28}" + "".join(f"{name:>10}" for name in sides) + f"{'speed':>9}")
    for _, line in sorted(lines, reverse=True):
        print(line)
    if "torch" in sides:
        mean = math.exp(sum(math.log(speed) for speed, _ in lines) / len(lines))
        print(f"geometric mean {mean:.2f}x")


if __name__ == "__main__":
    main()
