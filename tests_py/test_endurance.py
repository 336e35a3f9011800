"""Many calls leave nothing behind: no bytes, no tensors, no other objects."""

import contextlib
import gc
import subprocess
import sys
from array import array

import plait
import pytest
from plait import _core
from plait._device import synchronize
from plait._engine.callbacks import collect


def held():
    """Returns the bytes, tensors and other objects that are in use."""
    gc.collect()
    synchronize()
    collect()
    used, peak = array("q", (0,)), array("q", (0,))
    assert _core.bind_MemoryUsed(0, -1, -1, used.buffer_info()[0], peak.buffer_info()[0]) >= 0
    return used[0], _core.bind_TensorCount(), _core.bind_ObjectCount()


def work(n):
    x = plait.ones(10, requires_grad=True)
    index = plait.tensor([0, 3])
    for i in range(n // 20):
        y = (x * 2.0 + 1.0 - x).reshape(2, 5)
        a, b = y.split(1)
        z = plait.cat([a, b]).t().contiguous()[1:, 0].sum() + x[index].mean() + plait.stack([x, x]).max()
        if i % 5 == 0:
            z.backward()
            x.grad = None
        with plait.no_grad():
            x.clamp_(0, 2).mul_(1.0)
        with contextlib.suppress(RuntimeError):
            plait.matmul(a, b)
        y.detach().numpy()


@pytest.mark.parametrize("calls", [100_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_calls_leave_nothing_behind(calls):
    # In a process of its own: what other tests left to threads and cycles goes away at any time.
    done = subprocess.run(
        [sys.executable, __file__, str(calls)], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    before, after = done.stdout.splitlines()
    assert before == after


if __name__ == "__main__":
    work(2000)
    print(held())
    work(int(sys.argv[1]))
    print(held())
