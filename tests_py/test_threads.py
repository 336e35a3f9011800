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


def in_threads(*functions, times=200):
    """Runs each function so many times in a thread of its own, and returns what they raised."""
    errors = []

    def run(function):
        try:
            for _ in range(times):
                function()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(f,), daemon=True) for f in functions]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
        assert not t.is_alive(), "a thread hangs"
    return errors


LOOPS = [200, pytest.param(5_000, marks=pytest.mark.slow)]


@pytest.mark.parametrize("times", LOOPS)
@pytest.mark.parametrize("change", ["set_", "data"])
def test_a_tensor_gets_other_memory_while_it_is_read(change, times):
    x, others = plait.ones(100_000), [plait.ones(100_000), plait.ones(7)]
    turn = 0

    def write():
        nonlocal turn
        turn += 1
        if change == "set_":
            x.set_(others[turn % 2])
        else:
            x.data = others[turn % 2]

    def look():
        assert x.numpy().shape in ((100_000,), (7,))
        assert x.nonzero().shape in ((100_000, 1), (7, 1))

    errors = in_threads(write, look, look, times=times)
    assert not errors, errors


@pytest.mark.parametrize("times", LOOPS)
def test_gradients_are_dropped_during_backward(times):
    p = plait.ones(100, requires_grad=True)

    def train():
        (p * p).sum().backward()

    def drop():
        p.grad = None
        assert p.grad is None or p.grad is not p

    assert not in_threads(train, train, drop, times=times)
    p.grad = None
    train()
    assert p.grad.tolist() == [2.0] * 100


@pytest.mark.parametrize("times", [20, pytest.param(2000, marks=pytest.mark.slow)])
def test_threads_train_one_module(times):
    model = plait.nn.Sequential(plait.nn.Linear(8, 8), plait.nn.ReLU(), plait.nn.Linear(8, 8))
    optimizer = plait.optim.AdamW(model.parameters(), lr=1e-3)
    x = plait.ones(4, 8)

    def train():
        try:
            model(x).sum().backward()
        except RuntimeError as error:  # another thread has made a step since forward
            assert "modified by an in-place operation" in str(error)
        optimizer.step()
        optimizer.zero_grad()

    assert not in_threads(*[train] * 8, times=times)
    assert all(p.isfinite().all().item() for p in model.parameters())


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_threads_share_an_iterator(workers):
    from plait.utils.data import DataLoader

    for _ in range(5):
        it, got = iter(DataLoader(list(range(8)), num_workers=workers)), []

        def consume(it=it, got=got):
            got.extend(int(b) for b in it)

        assert not in_threads(consume, consume, consume, times=1)
        assert sorted(got) == list(range(8))


def test_two_passes_use_the_same_workers():
    from plait.utils.data import DataLoader, IterableDataset

    class Numbers(IterableDataset):
        def __iter__(self):
            return iter(range(5))

    for dataset in (list(range(5)), Numbers()):
        loader = DataLoader(dataset, num_workers=1, persistent_workers=True)
        first, second = iter(loader), iter(loader)
        pairs = [(int(a), int(b)) for a, b in zip(first, second, strict=True)]
        assert pairs == [(i, i) for i in range(5)]
        assert [int(b) for b in loader] == list(range(5))
