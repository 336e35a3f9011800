"""Threads on one object: whatever they do to a tensor, a module or a loader ends in results or in errors.

A process that dies, or a case that does not end, is what the runner finds.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any

import plait
from plait import nn, optim
from plait.utils.data import DataLoader

from tests_fuzz.report import Report

STEPS = 40


def run(rng: random.Random, report: Report) -> None:
    """Tries random sets of actions on shared objects until there is no more time."""
    while report.more():
        for scene in (_tensor, _training, _loader):
            seed = rng.getrandbits(32)
            report.begin(f"{scene.__name__} {seed}")
            _race(scene(random.Random(seed)), report)


def _race(actions: list[Callable[[], Any]], report: Report) -> None:
    start = threading.Barrier(len(actions))
    internal: list[str] = []

    def work(action: Callable[[], Any]) -> None:
        start.wait()
        for _ in range(STEPS):
            try:
                action()
            except StopIteration:
                return
            except Exception as e:  # an error that says what happened is an answer
                if "internal error" in str(e) or "nil pointer" in str(e):
                    internal.append(str(e))

    threads = [threading.Thread(target=work, args=(a,)) for a in actions]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if internal:
        report.found("internal error", internal[0])
    else:
        report.held()


def _tensor(rng: random.Random) -> list[Callable[[], Any]]:
    x = plait.rand(rng.choice((3, 1000)), requires_grad=rng.random() < 0.5)
    other = plait.rand(5)

    def assign(value: Any) -> None:
        x.data = value

    def forget() -> None:
        x.grad = None

    choices: list[Callable[[], Any]] = [
        lambda: x.detach().set_(plait.rand(4)),
        lambda: x.set_(other),
        lambda: x.detach().numpy(),
        lambda: assign(plait.rand(3)),
        lambda: (x * x).sum().backward(),
        lambda: x.detach().add_(1),
        lambda: x.detach().resize_(7),
        lambda: x.clone().tolist(),
        lambda: x.sum().item(),
        lambda: str(x),
        lambda: x.requires_grad_(not x.requires_grad),
        lambda: x.detach().copy_(x.detach() + 1),
        forget,
    ]
    return rng.sample(choices, rng.randint(2, 5))


def _training(rng: random.Random) -> list[Callable[[], Any]]:
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    make = rng.choice((optim.SGD, optim.AdamW, optim.Adagrad))
    optimizer = make(model.parameters(), lr=1e-3)

    def step() -> None:
        optimizer.zero_grad()
        model(plait.rand(3, 4)).sum().backward()
        optimizer.step()

    def forget() -> None:
        for p in model.parameters():
            p.grad = None

    choices: list[Callable[[], Any]] = [
        step,
        step,
        forget,
        model.zero_grad,
        lambda: model.load_state_dict(model.state_dict()),
        lambda: optimizer.load_state_dict(optimizer.state_dict()),
        lambda: nn.utils.clip_grad_norm_(model.parameters(), 1.0),
        lambda: model.to(rng.choice((plait.float32, plait.float64))),
        lambda: [p.detach().numpy() for p in model.parameters()],
    ]
    return rng.sample(choices, rng.randint(2, 6))


def _loader(rng: random.Random) -> list[Callable[[], Any]]:
    batches = iter(
        DataLoader(list(range(rng.randint(0, 20))), batch_size=rng.randint(1, 4), num_workers=rng.randint(0, 2))
    )
    return [lambda: next(batches)] * rng.randint(2, 4)
