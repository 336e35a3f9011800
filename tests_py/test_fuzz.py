"""Every public function, class and method with wrong arguments: an exception, no crash, and no wait without end."""

import os
import subprocess
import sys

import plait
import pytest
from plait.distributed.checkpoint._saving import Saving
from plait.distributed.pipelining._batch import micro_batch_sizes

SCRIPT = r"""
import faulthandler, importlib, inspect, os, pkgutil, random, sys, tempfile, warnings
import numpy as np
import plait
from plait import _core

warnings.simplefilter("ignore")
os.chdir(tempfile.mkdtemp())
_core.bind_CpuSetMemoryLimit(1 << 28)
random.seed(int(sys.argv[1]))


def itself():
    made = []
    made.append(made)
    return made


def tree():
    made = {}
    made["a"] = made
    return made


def closed():
    file = open(os.devnull, "rb")
    file.close()
    return file


class Number:
    def __float__(self):
        return float("nan")

    def __index__(self):
        return -(1 << 40)


VALUES = [
    lambda: None, lambda: "x", lambda: b"ab", object, lambda: float("nan"), lambda: float("inf"), lambda: -1,
    lambda: 0,
    lambda: -(1 << 63), lambda: 1j, lambda: True, lambda: "/nonexistent/x", lambda: "gpu:99", lambda: {1},
    lambda: [[[]]],
    lambda: [1, 2], lambda: [plait.ones(2)], lambda: int, lambda: (i for i in range(3)), lambda: np.array([None]),
    lambda: np.ones((2, 3)), lambda: lambda *a, **k: None, lambda: lambda *a, **k: 1 / 0, itself, tree, closed, Number,
    lambda: plait.ones(2, 3, device="meta"), lambda: plait.ones(2, 3, device="cpu:1"), lambda: plait.empty(0),
    lambda: plait.ones(2, 3, dtype=plait.bool), lambda: plait.ones(2, 3, dtype=plait.int64),
    lambda: plait.nn.Linear(3, 3),
]
HUGE = [lambda: 1 << 40, lambda: 1 << 62, lambda: 1 << 63, lambda: 1 << 70]  # a class would make that many parts
SUITABLE = {
    "Tensor": lambda: plait.rand(2, 3), "Sequence[int]": lambda: [1], "int": lambda: 1, "float": lambda: 0.5,
    "str": lambda: "mean", "Module": lambda: plait.nn.Linear(3, 3), "Callable": lambda: lambda x: x,
}


def callables():
    yield from ((f"Tensor.{n}", getattr(plait.Tensor, n)) for n in sorted(dir(plait.Tensor)) if n[0] != "_")
    found = (m.name for m in pkgutil.walk_packages(plait.__path__, "plait."))
    names = ["plait", *(n for n in found if "._" not in n and "tensorboard" not in n)]  # which may not be installed
    seen = set()
    for module in map(importlib.import_module, names):
        for name in sorted(getattr(module, "__all__", None) or [n for n in dir(module) if n[0] != "_"]):
            found = getattr(module, name)
            if callable(found) and str(getattr(found, "__module__", "")).startswith("plait") and id(found) not in seen:
                seen.add(id(found))
                yield f"{module.__name__}.{name}", found


def suitable(parameter):
    kind = str(parameter.annotation)
    found = next((make() for name, make in SUITABLE.items() if name in kind), None)
    return plait.rand(2, 3) if found is None and parameter.name in ("self", "input", "x") else found


def call(function):
    parameters = list(inspect.signature(function).parameters.values())
    values = VALUES if inspect.isclass(function) else VALUES + HUGE
    chosen = random.choice(parameters) if parameters else None
    positional, named = [], {}
    for p in parameters:
        if p.kind is p.VAR_KEYWORD or (p.default is not p.empty and p is not chosen):
            continue
        value = random.choice(values)() if p is chosen else suitable(p)
        if p.kind is p.KEYWORD_ONLY or p.default is not p.empty:
            named[p.name] = value
        else:
            positional.append(value)
    return function(*positional, **named)


# Those that start threads, wait for others, change what the rest of this process can do, or make as many things as they
# are asked for.
APART = ("spawn", "set_num_threads", "set_num_interop_threads", "init_process_group", "irecv", "recv", "summary",
         "forks", "TCPStore", "svd_lowrank", "pca_lowrank")
log = os.fdopen(os.dup(1), "w", buffering=1)
for name, function in callables():
    if name.rpartition(".")[2] in APART:
        continue
    try:
        inspect.signature(function)
    except (TypeError, ValueError):
        continue
    for _ in range(int(sys.argv[2])):
        print(name, file=log)
        faulthandler.dump_traceback_later(60, exit=True)
        try:
            out = call(function)
            if isinstance(out, plait.Tensor) and out.numel() < 1000 and not out.is_meta:
                out.tolist()
        except Exception as error:
            if isinstance(error, SystemError) or (isinstance(error, RuntimeError) and "internal error" in str(error)):
                print("internal:", name, repr(error), file=log)
        faulthandler.cancel_dump_traceback_later()
print("all done", file=log)
os._exit(0)  # threads of what was made may still wait
"""


def fuzz(seed, times):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(seed), str(times)],
        env={**os.environ, "PLAIT_CPU_DEVICES": "2"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    lines = done.stdout.strip().split("\n")
    assert (done.returncode, lines[-1]) == (0, "all done"), f"{lines[-1]}\n{done.stderr[-4000:]}"
    assert [line for line in lines if line.startswith("internal:")] == []


def test_a_wrong_argument_is_an_exception():
    fuzz(1, 2)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 6))
def test_many_wrong_arguments(seed):
    fuzz(seed, 20)


@pytest.mark.parametrize(("samples", "chunks"), [(-1, 1), (-(1 << 63), 2), (4, 0), (4, -1)])
def test_batches_that_cannot_be_cut(samples, chunks):
    with pytest.raises(ValueError, match="want at least one micro-batch"):
        micro_batch_sizes(samples, chunks)


def test_options_of_printing_are_numbers():
    for name in ("precision", "threshold", "edgeitems", "linewidth"):
        with pytest.raises(TypeError, match=f"{name} must be a number"):
            plait.set_printoptions(**{name: b"ab"})
    assert repr(plait.ones(1)) == "tensor([1.])"


def test_a_save_whose_thread_fails_is_over():
    with pytest.raises(TypeError):
        Saving({}, "nowhere").result(60)
