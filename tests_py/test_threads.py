"""Many Python threads that use tensors at once."""

import gc
import threading
from concurrent.futures import ThreadPoolExecutor

import plait
import plait.distributed
import pytest


def together(n, work):
    """Runs `work(i)` in n threads at once, while another thread is busy, and returns the results."""
    stop = threading.Event()

    def spin():
        k = 0
        while not stop.is_set():
            k += 1

    busy = threading.Thread(target=spin)
    busy.start()
    try:
        gate = threading.Barrier(n)

        def run(i):
            gate.wait()
            return work(i)

        with ThreadPoolExecutor(n) as pool:
            return list(pool.map(run, range(n)))
    finally:
        stop.set()
        busy.join()


def test_results_of_threads_do_not_mix():
    def work(i):
        x = plait.ones(8, 8) * float(i)
        for _ in range(60):
            x = (x + 1.0) - 1.0
        return plait.sum(x).item()

    assert together(8, work) == [64.0 * i for i in range(8)]


def test_backward_in_threads():
    shared = plait.ones(4).requires_grad_()

    def work(i):
        w = plait.ones(4).requires_grad_()
        for _ in range(20):
            plait.sum(w * float(i)).backward()
            plait.sum(shared * 1.0).backward()
        return w.grad.tolist()

    assert together(6, work) == [[20.0 * i] * 4 for i in range(6)]
    assert shared.grad.tolist() == [120.0] * 4


def test_modes_belong_to_their_thread():
    x = plait.ones(2).requires_grad_()

    def work(i):
        seen = []
        for _ in range(50):
            if i % 2:
                with plait.no_grad():
                    seen.append((x * 2.0).requires_grad)
            else:
                seen.append((x * 2.0).requires_grad)
        return set(seen)

    assert together(6, work) == [{i % 2 == 0} for i in range(6)]
    assert plait.is_grad_enabled()


def test_tensors_are_released_by_other_threads_than_made_them():
    gc.collect()
    before = plait._core.bind_TensorCount()
    made = [[plait.ones(16) for _ in range(100)] for _ in range(4)]

    def work(i):
        part, made[i] = made[i], None
        total = sum(t[0].item() for t in part)
        part.clear()
        return total

    assert together(4, work) == [100.0] * 4
    assert plait._core.bind_TensorCount() == before


def test_one_tensor_read_and_changed_by_many():
    x = plait.zeros(1)

    def work(i):
        for _ in range(50):
            x.add_(1.0)
            x.item()

    together(6, work)
    assert x.item() == 300.0


def test_errors_in_threads_stay_there():
    def work(i):
        try:
            plait.matmul(plait.ones(2, 3), plait.ones(2 if i % 2 else 3, 3))
        except RuntimeError as error:
            return type(error).__mro__[1]
        return None

    assert together(6, work) == [None, ValueError] * 3


@pytest.mark.parametrize("shared", ["decorator", "manager", "device", "autocast", "set_grad_enabled"])
def test_a_mode_shared_by_ranks_is_restored_in_each(shared):
    # Two ranks are inside at once, and the first to come is the first to go.
    inside, left = [threading.Event(), threading.Event()], threading.Event()
    results = [None, None]
    mode = plait.set_grad_enabled(False) if shared == "set_grad_enabled" else plait.no_grad()
    managers = {"manager": mode, "device": plait.device("cpu:1"), "autocast": plait.autocast("cpu")}

    def wait(rank):
        inside[rank].set()
        (left if rank else inside[1]).wait(20)

    decorated = mode(wait)

    def run(rank):
        if rank:
            inside[0].wait(20)
        with plait.inference_mode(bool(rank)):
            if shared in managers:
                with managers[shared]:
                    wait(rank)
            else:
                decorated(rank)
            modes = plait.is_grad_enabled(), plait.is_inference_mode_enabled(), plait.is_autocast_enabled("cpu")
            results[rank] = (str(plait.ones(1).device), *modes)
        left.set()

    plait.distributed.spawn(run, nprocs=2, timeout=60)
    assert results == [("cpu:0", True, False, False), ("cpu:1", False, True, False)]
    assert plait.is_grad_enabled()
