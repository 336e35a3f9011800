"""Out of memory: operations, backward passes and optimiser steps under limits that do not suffice.

Each case is tried in a process of its own with a limit between what is needed and nothing; it ends in a result or in
MemoryError, leaves what it was to change as it was, and the next operation works.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys

from tests_fuzz.report import Report

PRELUDE = """
import plait
from plait import nn, optim
n = {n}
x, y = plait.rand(n, n), plait.rand(n, n)
i = plait.randint(0, n, (n,))
model = nn.Sequential(nn.Linear(n, n), nn.GELU(), nn.LayerNorm(n), nn.Linear(n, n))
optimizer = optim.AdamW(model.parameters(), fused={fused})
before = [t.sum().item() for t in (x, y)]
def step():
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
failed = 0
for _ in range(2):
    try:
        {action}
    except MemoryError:
        failed += 1
        after = [t.sum().item() for t in (x, y)]
        assert before == after, (before, after)
small = plait.arange(3)
assert (small + 1).tolist() == [1, 2, 3]
plait.cpu.synchronize() if hasattr(plait, "cpu") and hasattr(plait.cpu, "synchronize") else None
print("out of memory" if failed else "enough memory")
"""
ACTIONS = (
    "x.add_(x.T)", "x[1:].add_(x[:-1])", "x.copy_(x.T)", "x.index_add_(0, i, x.T)", "x[i] = x", "x.addcmul_(x.T, y)",
    "x.lerp_(x.T, 0.5)", "x.clamp_(x.T)", "x.pow_(x.T)", "x.div_(x.T)", "x.index_copy_(0, i, x.T)", "x.scatter_(0, i[:, None], x.T)",
    "x.masked_fill_(x.T > 0.5, 1)", "x.sort(0)", "(x @ y) @ x", "plait.linalg.svd(x)", "plait.cat([x, y, x])", "x.cumsum(0)",
    "x.softmax(1).log().sum(0)", "plait.einsum('ij,kj->ik', x, y)", "x[i].unique()", "x.double().half().float()", "step()", "step()",
    "nn.functional.conv2d(x[None, None], y[None, None, :9, :9])", "x.repeat(3, 3)", "x.T.contiguous().view(-1)", "x.std(0)",
)  # fmt: skip


def run(rng: random.Random, report: Report) -> None:
    """Tries random actions under random limits until there is no more time."""
    while report.more():
        n = rng.choice((100, 300, 500))
        action = rng.choice(ACTIONS)
        limit = int(4 * n * n * rng.uniform(4, 22))
        report.begin(f"PLAIT_CPU_MEMORY={limit} n={n}: {action}")
        program = PRELUDE.format(n=n, action=action, fused=rng.random() < 0.5)
        try:
            done = subprocess.run(
                [sys.executable, "-c", program],
                env={**os.environ, "PLAIT_CPU_MEMORY": str(limit)},
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
        except subprocess.TimeoutExpired:
            report.found("hang", program)
            continue
        last = done.stderr.strip().splitlines()[-1:] or [""]
        if done.returncode == 0:
            report.held(done.stdout.strip())
        elif last[0].startswith(("MemoryError", "plait._errors.OutOfMemory")):
            report.held("out of memory before the action")
        else:
            report.found(
                "crash" if done.returncode < 0 else "wrong error", f"exit {done.returncode}: {last[0]}\n{program}"
            )
