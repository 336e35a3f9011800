"""Training on a GPU from Python."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from gpus import run

NETWORKS = """
        from plait import nn
        from plait.nn import functional as F

        class Block(nn.Module):
            def __init__(self, before, width, stride):
                super().__init__()
                self.first = self.layer(before, width, 3, stride)
                self.second = self.layer(width, width, 3, 1)
                self.short = self.layer(before, width, 1, stride)

            def layer(self, before, width, size, stride):
                conv = nn.Conv2d(before, width, size, stride, size // 2, bias=False)
                return nn.Sequential(conv, nn.BatchNorm2d(width))

            def forward(self, x):
                return F.relu(self.second(F.relu(self.first(x))) + self.short(x))

        class Reader(nn.Module):
            def __init__(self):
                super().__init__()
                self.embedding = nn.Embedding(20, 8)
                self.lstm = nn.LSTM(8, 16, 2, batch_first=True)
                self.head = nn.Linear(16, 20)

            def forward(self, x):
                return self.head(self.lstm(self.embedding(x))[0]).flatten(0, 1)

        def images():
            stem = nn.Sequential(nn.Conv2d(3, 4, 7, 2, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
            head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5))
            model = nn.Sequential(stem, Block(4, 4, 1), Block(4, 8, 2), head)
            optimizer = plait.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
            return model, optimizer, plait.randn(4, 3, 24, 24), plait.randint(0, 5, (4,))

        def texts():
            model = Reader()
            optimizer = plait.optim.Adam(model.parameters(), lr=1e-2)
            return model, optimizer, plait.randint(0, 20, (3, 7)), plait.randint(0, 20, (21,))

        def train(make, device):
            plait.manual_seed(3)
            model, optimizer, x, y = make()
            model, x, y = model.to(device), x.to(device), y.to(device)
            losses, moved = [], []
            for _ in range(4):
                optimizer.zero_grad()
                loss = F.cross_entropy(model(x), y)
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                losses.append(loss.item())
                moved.append(plait.cuda.transfer_stats(device) if device != "cpu" else {})
            names = "to_device", "from_device", "to_device.bytes", "from_device.bytes"
            return losses, [[b.get(n, 0) - a.get(n, 0) for n in names] for a, b in zip(moved, moved[1:])]

        for make in images, texts:
            (cpu, _), (gpu, moved) = train(make, "cpu"), train(make, "gpu:0")
            assert all(abs(a - b) < 1e-3 for a, b in zip(cpu, gpu)), (cpu, gpu)
            assert moved == [[0, 1, 0, 4]] * 3, f"a step reads its loss and nothing else, got {moved}"
"""


def test_networks_train_with_one_number_read_a_step() -> None:
    run(NETWORKS)


def test_the_example_trains_as_on_the_cpu() -> None:
    run("")  # skips without a GPU
    losses = []
    sizes = (
        "--steps 5 --batch 2 --context 16 --width 16 --layers 1 --heads 2 --dropout 0.1 --characters 20000 --sample 1"
    )
    example = Path(__file__).parents[1] / "examples" / "gpt" / "one_device.py"
    for device in "cpu", "gpu":
        done = subprocess.run(
            [sys.executable, str(example), *sizes.split(), "--device", device],
            env={**os.environ, "PLAIT_SOFTWARE_GPU": "1"},
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        losses.append([float(v) for v in re.findall(r"(?:training|held-out) loss ([\d.]+)", done.stdout)])
    assert len(losses[0]) == 12, "two of each step, and the first twice"
    assert losses[0] == pytest.approx(losses[1], abs=2e-3), "dropout too draws the same on both"
    assert losses[1][-2] < losses[1][0]


def test_cudnn_benchmark_measures_products_and_keeps_the_choices(tmp_path: Path) -> None:
    script = """
        assert plait.backends.cudnn.benchmark is False
        plait.backends.cudnn.benchmark = True
        assert plait.backends.cudnn.benchmark is True
        x = plait.ones(64, 96, device="gpu")
        print((x @ x.T).sum().item())
    """
    assert run(script, XDG_CACHE_HOME=str(tmp_path), HOME=str(tmp_path)) == "393216.0\n"
    assert len(list(tmp_path.rglob("tuning/*.json"))) == 1


def test_mixed_precision_with_a_scaler() -> None:
    run("""
        plait.manual_seed(0)
        net = plait.nn.Sequential(plait.nn.Linear(4, 16), plait.nn.Tanh(), plait.nn.Linear(16, 2)).cuda()
        optimizer = plait.optim.AdamW(net.parameters(), lr=1e-2)
        scaler = plait.cuda.amp.GradScaler()
        x = plait.randn(32, 4)
        y = (x.sum(1) > 0).long().cuda()
        losses = []
        for step in range(20):
            optimizer.zero_grad(set_to_none=True)
            with plait.autocast("cuda", dtype=plait.float16):
                loss = plait.nn.functional.cross_entropy(net(x.cuda()), y)
            losses.append(loss.item())
            before = [p.detach().clone() for p in net.parameters()]
            scaler.scale(loss * float("inf") if step == 3 else loss).backward()
            scaler.unscale_(optimizer)
            plait.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            same = all(plait.equal(a, b) for a, b in zip(before, net.parameters()))
            assert same == (step == 3), step
        assert scaler.get_scale() == 2.0**15 and losses[-1] < losses[0] / 2, losses
    """)
