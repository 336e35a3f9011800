"""Inference mode and anomaly mode, what is said of gradients that will not come, and the older name of tensors."""

import warnings
from functools import partial

import plait
import pytest
from plait.autograd import Function, Variable, detect_anomaly, set_detect_anomaly


def leaf(*values):
    return plait.tensor(values, dtype=plait.float64, requires_grad=True)


def made():
    with plait.inference_mode():
        return plait.ones(2)


def test_inference_tensors_say_so():
    t = made()
    assert t.is_inference()
    assert t.view(2).is_inference()
    assert not t.clone().is_inference()
    assert not (t * 2).is_inference()
    x = plait.ones(2)
    with plait.inference_mode():
        assert not x.view(2).is_inference()
        assert (x * 2).is_inference()
        assert not x.add_(1).is_inference()
    with pytest.raises(RuntimeError, match="version"):
        _ = t._version


def test_inference_tensors_stay_out_of_graphs():
    t = made()
    x = plait.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="cannot be saved for backward"):
        x * t
    with pytest.raises(RuntimeError, match="cannot be saved for backward"):
        (x * 1).mul_(t)
    with pytest.raises(RuntimeError, match="outside InferenceMode"):
        t.requires_grad_()
    with pytest.raises(RuntimeError, match="outside InferenceMode"):
        t.add_(1)
    with plait.inference_mode():
        t.add_(1)
        assert t.tolist() == [2.0, 2.0]
    (x + t).sum().backward()
    (x * t.clone()).sum().backward()
    with plait.no_grad():
        x * t
    assert x.grad.tolist() == [3.0, 3.0]


def test_changes_in_inference_mode_are_seen():
    x = leaf(1.0)
    y = x * 2
    z = y * y
    with plait.inference_mode():
        y.add_(1)
    with pytest.raises(RuntimeError, match="in-place"):
        z.backward()


class Broken(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, g):
        return g * float("nan")


def test_detect_anomaly():
    x = leaf(0.0)
    with detect_anomaly():
        assert plait.is_anomaly_enabled()
        with pytest.raises(RuntimeError, match=r"sqrt.*returned nan values in its 0th output"):
            (plait.sqrt(x) * 0).backward()
        with pytest.raises(RuntimeError, match=r"BrokenBackward.*returned nan values"):
            Broken.apply(x).backward()
        plait.where(x > 0, plait.log(x - 1), plait.zeros_like(x))  # a NaN that nothing is made of
    assert not plait.is_anomaly_enabled()
    Broken.apply(x).backward()
    with detect_anomaly(check_nan=False):
        assert not plait.is_anomaly_check_nan_enabled()
        Broken.apply(x).backward()
    set_detect_anomaly(True)
    try:
        with pytest.raises(RuntimeError, match="nan"):
            Broken.apply(x).backward()
    finally:
        set_detect_anomaly(False)
    with set_detect_anomaly(True):
        assert plait.is_anomaly_enabled()
    assert not plait.is_anomaly_enabled()


def test_the_gradient_of_a_result_is_asked_for_in_vain():
    x = leaf(1.0)
    y = x * 2
    with pytest.warns(UserWarning, match="call its retain_grad") as seen:
        assert y.grad is None
    assert seen[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert x.grad is None and plait.ones(1).grad is None
        y.retain_grad()
        assert y.grad is None
        y.backward()
        assert y.grad.tolist() == [1]


def test_tensors_by_their_older_name():
    x = plait.ones(2)
    v = Variable(x, requires_grad=True)
    assert isinstance(v, Variable) and isinstance(x, Variable) and not isinstance(1, Variable)
    (v * 3).sum().backward()
    assert v.grad.tolist() == [3, 3] and not x.requires_grad and not Variable(v).requires_grad
    v.data[0] = 5
    assert x.tolist() == [5, 1], "they share memory"
    with pytest.raises(TypeError, match="want a tensor, got list"):
        Variable([1.0])


@pytest.mark.parametrize("mode", [plait.no_grad, plait.inference_mode, partial(plait.set_grad_enabled, False)])
def test_generators_run_in_the_mode_and_their_callers_do_not(mode):
    seen = []

    @mode()
    def body(n):
        for i in range(n):
            try:
                seen.append((plait.is_grad_enabled(), (yield i)))
            except KeyError:
                seen.append((plait.is_grad_enabled(), "thrown"))
        try:
            yield n
        finally:
            seen.append((plait.is_grad_enabled(), "closed"))
        return "end"

    running = body(3)
    assert next(running) == 0 and plait.is_grad_enabled()
    assert running.send("a") == 1 and plait.is_grad_enabled()
    assert running.throw(KeyError()) == 2 and plait.is_grad_enabled()
    assert next(running) == 3
    running.close()
    assert seen == [(False, "a"), (False, "thrown"), (False, None), (False, "closed")] and plait.is_grad_enabled()

    def outer():
        return (yield from body(0))

    running = outer()
    assert next(running) == 0
    with pytest.raises(StopIteration) as end:
        next(running)
    assert end.value.value == "end"
