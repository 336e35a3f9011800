"""Values that threads set for others."""

import threading

import plait
import pytest
from plait.futures import Future, collect_all, wait_all


def test_a_value_is_set_once():
    future = Future()
    assert not future.done() and plait.Future is Future
    with pytest.raises(RuntimeError, match="not there yet"):
        future.value()
    threading.Timer(0.05, future.set_result, [5]).start()
    assert future.wait() == 5 == future.value() and future.done()
    with pytest.raises(RuntimeError, match="already"):
        future.set_result(6)


def test_errors_are_raised_by_who_waits():
    future = Future()
    after = future.then(lambda f: f.value() + 1)
    future.set_exception(ValueError("no"))
    for f in (future, after):
        with pytest.raises(ValueError, match="no"):
            f.wait()
    with pytest.raises(TypeError, match="want an exception"):
        Future().set_exception("no")


def test_callbacks_run_in_order_and_at_once_when_it_is_done():
    seen, future = [], Future()
    future.add_done_callback(lambda f: seen.append(f.value()))
    later = future.then(lambda f: f.value() * 2).then(lambda f: f.value() + 1)
    assert seen == [] and not later.done()
    future.set_result(4)
    assert seen == [4] and later.value() == 9
    future.add_done_callback(lambda f: seen.append(-f.value()))
    assert seen == [4, -4] and future.then(lambda f: 3).done()
    with pytest.warns(UserWarning, match="a callback raised ZeroDivisionError"):
        future.add_done_callback(lambda f: 1 / 0)


def test_several():
    futures = [Future() for _ in range(3)]
    every = collect_all(futures)
    for i, f in enumerate(futures):
        assert not every.done()
        f.set_result(i)
    assert every.wait() == futures and wait_all(futures) == [0, 1, 2] and collect_all([]).value() == []
