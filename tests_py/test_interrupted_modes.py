"""Ctrl-C at every moment at which Python may raise it: no mode of the thread outlives what has set it."""

import sys

import plait
import pytest
from plait import _core, nn
from plait._autograd.backward import passes

LEAVING = ("__exit__", "leave")  # what a manager does before it has restored anything, which Python may interrupt


def in_with():
    with plait.no_grad():
        plait.ones(2)


@plait.no_grad()
def decorated():
    plait.ones(2)


@plait.inference_mode()
def values():
    yield plait.ones(2)
    yield plait.ones(2)


def in_generator():
    for _ in values():
        plait.ones(2)


def in_autocast():
    with plait.autocast("cpu"):
        plait.ones(2)


def in_backward():
    x = plait.ones(2, requires_grad=True)
    y = x * 2
    y.register_hook(lambda g: g * 2)
    y.sum().backward()


def in_saved_tensors():
    with plait.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
        plait.ones(2, requires_grad=True).exp().sum().backward()


def in_pipeline():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    p = plait.Pipeline(model, ["cpu:0", "cpu:1"], chunks=2, loss_fn=nn.functional.mse_loss)
    p.step(plait.ones(2, 2), plait.ones(2, 2))


class Interrupt:
    """Raises KeyboardInterrupt at one of the calls and returns in the given files, and counts them."""

    def __init__(self, at, files):
        self.at, self.files, self.seen = at, files, 0

    def __call__(self, frame, event, _):
        code = frame.f_code
        if event == "c_call" or (event, code.co_name) == ("return", "__enter__"):  # Python does not raise there
            return
        if code.co_name in LEAVING or not code.co_filename.endswith(self.files):
            return
        self.seen += 1
        if self.seen == self.at:
            sys.setprofile(None)
            raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("body", "files"),
    [
        (in_with, ("_modes.py", "context_stack.py")),
        (decorated, ("_modes.py", "context_stack.py")),
        (in_generator, ("_modes.py", "context_stack.py")),
        (in_autocast, ("autocast_mode.py", "context_stack.py")),
        (in_backward, ("_autograd/backward.py",)),
        (in_saved_tensors, ("_autograd/saved_tensors.py",)),
        (in_pipeline, ("pipelining/_executor.py",)),
    ],
)
def test_ctrl_c_leaves_no_mode_behind(body, files):
    before, at = _core.bind_ModeGet(), 0
    body()
    while True:
        at += 1
        sys.setprofile(interrupt := Interrupt(at, files))
        try:
            body()
        except KeyboardInterrupt:
            pass
        finally:
            sys.setprofile(None)
        after = _core.bind_ModeGet()
        _core.bind_ModeSet(before)
        assert after == before, at
        assert passes.run == 0, at
        if interrupt.seen < at:
            break
    assert at > 4
