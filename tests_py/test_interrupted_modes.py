"""Ctrl-C at every moment at which Python may raise it: no mode of the thread outlives what has set it."""

import gc
import signal
import sys
import threading
import time

import plait
import pytest
from plait import _core, nn
from plait._autograd.backward import passes
from plait._autograd.saved_tensors import stack
from plait.func._transform import local


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


def in_anomaly():
    with plait.autograd.detect_anomaly():
        plait.ones(2)


def in_device():
    with plait.device("meta"):
        plait.ones(2)


def in_transform():
    plait.func.grad(lambda x: x.sum())(plait.ones(2))


def in_pipeline():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    p = plait.Pipeline(model, ["cpu:0", "cpu:1"], chunks=2, loss_fn=nn.functional.mse_loss)
    p.step(plait.ones(2, 2), plait.ones(2, 2))


# From 3.14 on, Python may raise between the end of any __enter__ and the block: nothing then ends what has begun.
BETWEEN = sys.version_info >= (3, 14)


class Interrupt:
    """Raises KeyboardInterrupt at one of the calls and returns in the given files, and counts them."""

    def __init__(self, at, files):
        self.at, self.files, self.seen = at, files, 0

    def __call__(self, frame, event, called):
        code = frame.f_code
        if BETWEEN and event == "c_return" and called.__name__ == "__enter__":
            return
        if event == "c_call" or (event, code.co_name) == ("return", "_begin"):  # Python does not raise there
            return
        if not code.co_filename.endswith(self.files):
            return
        self.seen += 1
        if self.seen == self.at:
            sys.setprofile(None)
            raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("body", "files"),
    [
        (in_with, ("_modes.py")),
        (decorated, ("_modes.py")),
        (in_generator, ("_modes.py")),
        (in_autocast, ("autocast_mode.py")),
        (in_anomaly, ("_modes.py",)),
        (in_device, ("_device.py",)),
        (in_transform, ("func/_transform.py", "func/_gradients.py")),
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
        assert not plait.is_anomaly_enabled(), at
        assert plait.get_default_device() == plait.device("cpu"), at
        assert local.depth == 0, at
        assert not stack.hooks, at
        if interrupt.seen < at:
            break
    assert at > 4


class Counted(_core.Scope):
    """Fails at its end as often as it is told to."""

    def __init__(self, failures):
        self.failures, self.ended = failures, []

    def _begin(self):
        return object()

    def _end(self, before):
        self.ended.append(before)
        if len(self.ended) <= self.failures:
            raise KeyboardInterrupt


def test_an_interrupted_end_is_run_again_and_the_interrupt_is_raised():
    c = Counted(1)
    with pytest.raises(KeyboardInterrupt), c:
        pass
    assert len(c.ended) == 2
    assert c.ended[0] is c.ended[1]


def test_a_scope_may_be_in_use_several_times():
    c = Counted(0)
    with c, c:
        other = threading.Thread(target=lambda: (c.__enter__(), c.__exit__(None, None, None)))
        other.start()
        other.join()
        assert len(c.ended) == 1
    assert len(set(map(id, c.ended))) == 3
    with pytest.raises(RuntimeError, match="Counted: the calling thread leaves what it has not entered"):
        c.__exit__(None, None, None)


@pytest.mark.skipif(BETWEEN, reason="Python raises between __enter__ and the block")
@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs timers")
def test_signals_at_any_time_leave_no_mode_behind():
    def interrupt(*_):
        raise KeyboardInterrupt

    before, old = _core.bind_ModeGet(), signal.signal(signal.SIGALRM, interrupt)
    interrupted = 0
    gc.disable()  # Python drops what is raised while it finalises garbage, such as that of other tests
    try:
        for i in range(2000):
            try:
                signal.setitimer(signal.ITIMER_REAL, 1e-5 + 1e-7 * (i % 100))
                end = time.monotonic() + 10
                while time.monotonic() < end:
                    with plait.no_grad(), plait.autocast("cpu"), plait.enable_grad():
                        pass
                pytest.fail(f"interrupt {i} was lost")
            except KeyboardInterrupt:
                interrupted += 1
            assert _core.bind_ModeGet() == before, i
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
        gc.enable()
        _core.bind_ModeSet(before)
    assert interrupted == 2000
