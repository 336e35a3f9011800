"""Errors of execution: at their line with PLAIT_SYNC, and otherwise when a value is read."""

import plait
import pytest
from gpus import run

SCRIPT = """
import os
import plait.nn.functional as F

device = os.environ["ON"]
def t(values): return plait.tensor(values, device=device)
x = plait.ones(3, 4, device=device)
for name, fails in {
    "index_select": lambda: plait.ones(3, device=device).index_select(0, t([0, 5])),
    "gather": lambda: x.gather(1, t([[9, 0]])),
    "scatter": lambda: x.scatter(1, t([[9, 0]]), 1.0),
    "scatter_": lambda: x.clone().scatter_(1, t([[9, 0]]), 1.0),
    "scatter_add_": lambda: x.clone().scatter_add_(1, t([[9, 0]]), x),
    "embedding": lambda: F.embedding(t([7]), x),
    "nll_loss": lambda: F.nll_loss(x, t([0, 1, 9])),
    "index": lambda: x[t([5])],
    "index_put": lambda: x.clone().__setitem__(t([5]), 1.0),
    "index_add_": lambda: x.clone().index_add_(0, t([5]), x[:1]),
    "cholesky": lambda: plait.linalg.cholesky(-plait.eye(2, device=device)),
    "inv": lambda: plait.linalg.inv(plait.zeros(2, 2, device=device)),
}.items():
    try:
        fails()
    except (IndexError, RuntimeError) as error:
        assert name.rstrip("_") in str(error), error
    else:
        raise SystemExit(f"{name} was accepted")
    plait.zeros(1, device=device).item()  # nothing is left of it
"""


@pytest.mark.parametrize("device", ["cpu", "gpu:0"])
def test_an_error_of_execution_is_raised_at_its_line(device):
    run(SCRIPT, PLAIT_SYNC="1", ON=device)


@pytest.mark.parametrize(
    "read",
    [lambda t: t.numpy(), lambda t: t.tolist(), repr, lambda t: t.sum().item(), lambda t: t.__array__()],
    ids=["numpy", "tolist", "repr", "item", "array"],
)
def test_reading_an_empty_result_raises_what_went_wrong(read):
    t = plait.zeros(0).scatter_add(0, plait.tensor([0]), plait.ones(1))
    with pytest.raises(IndexError, match="scatter_add"):
        read(t)
    plait.zeros(1).item()


THREADS = """
import threading

wrong, gate = [], threading.Barrier(4)

def fails():
    gate.wait()
    for _ in range(300):
        try:
            plait.ones(3).index_select(0, plait.tensor([0, 5]))
        except IndexError:
            continue
        wrong.append("an error went elsewhere")

def works():
    gate.wait()
    x = plait.ones(20000)
    for _ in range(300):
        try:
            x = (x * 1.5).clamp(0, 2)
        except Exception as error:
            wrong.append(error)

threads = [threading.Thread(target=f) for f in (fails, works, fails, works)]
for t in threads: t.start()
for t in threads: t.join()
assert not wrong, wrong[:3]
"""


def test_an_error_of_execution_is_raised_in_its_own_thread():
    run(THREADS, PLAIT_SYNC="1")
