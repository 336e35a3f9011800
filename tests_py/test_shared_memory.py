"""Tensors in memory that processes share, and multiprocessing with them."""

import gc
import os
import pickle
import signal
import subprocess
import sys
import time
from multiprocessing.reduction import ForkingPickler

import numpy as np
import plait
import plait.multiprocessing as mp
import pytest
from plait import nn

DTYPES = [
    plait.float64, plait.float32, plait.float16, plait.bfloat16, plait.int8, plait.int16, plait.int32, plait.int64,
    plait.uint8, plait.uint16, plait.uint32, plait.uint64, plait.bool, plait.complex64, plait.complex128,
]  # fmt: skip


class Own(plait.Tensor):
    pass


def _serve(connection):
    """Answers calls until there are no more."""
    kept = {}
    while True:
        try:
            function, args = connection.recv()
        except EOFError:
            return
        try:
            connection.send((function(kept, *args), None))
        except Exception as error:
            connection.send((None, f"{type(error).__name__}: {error}"))
        del function, args


class Other:
    """Another process, which calls functions with a dict of its own and what they are given."""

    def __init__(self):
        self.connection, there = mp.Pipe()
        self.process = mp.Process(target=_serve, args=(there,))
        self.process.start()
        there.close()

    def __call__(self, function, *args):
        self.connection.send((function, args))
        out, error = self.connection.recv()
        assert error is None, error
        return out

    def end(self):
        self.connection.close()
        self.process.join(30)
        assert self.process.exitcode == 0


@pytest.fixture(scope="module")
def other():
    made = Other()
    yield made
    made.end()


def _add(_kept, t, n):
    t += n
    return t.tolist()


def _keep(kept, name, t):
    kept[name] = t


def _kept(kept, name):
    return kept[name].tolist()


def _drop(kept):
    kept.clear()
    gc.collect()


def _same(_kept, *tensors):
    return tensors


def _places(kept, name, *tensors):
    kept[name] = tensors
    return [t.data_ptr() for t in tensors]


def _describe(_kept, what):
    return [
        (type(t).__name__, str(t.dtype), tuple(t.shape), t.stride(), t.storage_offset(), t.requires_grad, t.is_leaf,
         dict(t.__dict__), t.is_meta or t.is_shared())
        for t in what
    ]  # fmt: skip


def test_writes_are_seen_both_ways(other):
    t = plait.zeros(3)
    assert not t.is_shared()
    assert other(_add, t, 1) == [1, 1, 1]
    assert t.is_shared() and t.tolist() == [1, 1, 1]
    other(_keep, "t", t)
    t[1] = 5
    assert other(_kept, "t") == [1, 5, 1]
    large = plait.zeros(1 << 20)
    other(_keep, "large", large)
    for n in range(1, 4):
        large += 1  # done when it returns
        assert other(_add, large[-2:], 1) == [2 * n, 2 * n]


def test_a_queued_write_is_there_when_a_tensor_is_sent(other):
    t = plait.rand(400, 400, dtype=plait.float64)
    for _ in range(8):
        t = t @ t / 100
    assert other(_add, t[0, :3], 0) == t[0, :3].tolist()


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
def test_every_dtype_arrives(other, dtype):
    t = plait.tensor([[0, 1, 2], [3, 4, 5]]).to(dtype)
    (made,) = other(_same, t.t()[1:])
    assert made.dtype is dtype and made.stride() == (1, 3) and made.storage_offset() == 1
    assert made.data_ptr() == t.data_ptr() + t.element_size() and made.tolist() == t.t()[1:].tolist()


def test_what_a_tensor_is_arrives_with_it(other):
    marked = plait.ones(2)
    marked.mark = "here"
    own = plait.ones(3).as_subclass(Own) if hasattr(plait.Tensor, "as_subclass") else plait.ones(3)
    what = [
        plait.ones(2, 3), plait.arange(12.0).reshape(3, 4).t()[1:, ::2], plait.tensor(3.0), plait.empty(0, 2), marked,
        plait.ones(2, requires_grad=True), nn.Parameter(plait.ones(2)), nn.Parameter(plait.ones(2), False),
        nn.Buffer(plait.ones(2)), plait.ones(3)[3:], plait.ones(2, 0).t(), plait.ones(1).expand(4),
        plait.ones(2, 2, device="meta"), own,
    ]  # fmt: skip
    assert other(_describe, what) == _describe({}, what)


def test_views_of_one_storage_share_one_mapping(other):
    whole = plait.arange(10.0)
    a, b = whole[2:6], whole.view(plait.int32)[4:]
    at = other(_places, "views", whole, a, b)
    assert [p - at[0] for p in at] == [0, 8, 16]
    assert other(_places, "again", b)[0] == at[2]  # sent by itself, it finds the memory
    assert a.is_shared() and whole.untyped_storage().is_shared()
    (back,) = other(_same, a)
    assert back.data_ptr() == a.data_ptr()
    other(_drop)


def _train(_kept, module):
    for p in module.parameters():
        p.data.fill_(2)
    module.running_mean.fill_(3)


def test_a_module(other):
    module = nn.BatchNorm1d(2)
    module(plait.randn(4, 2)).sum().backward()
    assert module.share_memory() is module
    assert all(t.is_shared() and t.grad.is_shared() for t in module.parameters())
    assert all(b.is_shared() for b in module.buffers())
    other(_train, module)
    assert module.weight.tolist() == module.bias.tolist() == [2, 2] and module.running_mean.tolist() == [3, 3]
    module.load_state_dict({k: v * 0 for k, v in module.state_dict().items()})
    assert module.weight.is_shared() and other(_add, module.weight.detach(), 1) == [1, 1]
    assert module.weight.tolist() == [1, 1]


def _fill(_kept, storage):
    made = storage._tensor
    made.zero_()
    return storage.is_shared(), storage.nbytes()


def test_a_storage(other):
    t = plait.ones(4)
    storage = t[1:].untyped_storage()
    assert not storage.is_shared() and storage.share_memory_() is storage and storage.is_shared() and t.is_shared()
    assert other(_fill, storage) == (True, 16)
    assert t.tolist() == [1, 0, 0, 0]


def test_memory_moves_with_all_that_lies_in_it():
    base = plait.arange(6.0, requires_grad=True)
    x = base * 2  # saves nothing
    y = x.exp()  # saves itself
    view = y[1:3]
    y.detach().share_memory_()
    assert y.is_shared() and view.is_shared() and not x.is_shared()
    y.sum().backward()
    assert np.allclose(base.grad, 2 * np.exp(2 * np.arange(6.0)))
    array = np.ones(3, np.float32)
    t = plait.from_numpy(array)
    lent = t.numpy()
    t.share_memory_()
    t += 1
    array[0] = 9
    assert t.tolist() == [2, 2, 2] and lent.tolist() == [9, 1, 1]
    del t, array
    gc.collect()
    assert lent.tolist() == [9, 1, 1]
    t = plait.zeros(4)
    before = t.numpy()
    t.share_memory_()
    after = t.numpy()
    t += 1
    assert before.tolist() == [0, 0, 0, 0] and after.tolist() == [1, 1, 1, 1]
    assert t.share_memory_() is t and t.data_ptr() == after.ctypes.data  # the second time does nothing


OPTIMIZERS = [
    (plait.optim.SGD, {"momentum": 0.9}), (plait.optim.SGD, {"fused": True}), (plait.optim.Adam, {}),
    (plait.optim.AdamW, {"fused": True}), (plait.optim.AdamW, {"foreach": True}), (plait.optim.RMSprop, {}),
    (plait.optim.Adagrad, {}),
]  # fmt: skip


@pytest.mark.parametrize(("optimizer", "options"), OPTIMIZERS, ids=lambda v: v.__name__ if callable(v) else "".join(v))
def test_optimizers_write_into_the_memory(optimizer, options):
    plait.manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1)).share_memory()
    plait.manual_seed(0)
    same = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1))
    places = [p.data_ptr() for p in module.parameters()]
    for m in (module, same):
        steps = optimizer(m.parameters(), lr=0.1, **options)
        for _ in range(3):
            steps.zero_grad()
            m(plait.ones(2, 3)).square().sum().backward()
            steps.step()
    assert places == [p.data_ptr() for p in module.parameters()]
    assert all(p.is_shared() for p in module.parameters())
    assert all(plait.equal(p, q) for p, q in zip(module.parameters(), same.parameters(), strict=True))


def test_other_data_is_other_memory():
    p = nn.Parameter(plait.ones(3).share_memory_())
    assert p.is_shared()
    p.data = plait.zeros(3)
    assert not p.is_shared()
    assert not p.clone().is_shared() and not plait.zeros(2).share_memory_().double().is_shared()


def test_a_compiled_step_finds_moved_memory():
    w = plait.ones(3)

    @plait.compile
    def step(x):
        return (x * w).sum()

    x = plait.arange(3.0)
    assert [step(x).item() for _ in range(4)] == [3.0] * 4
    w.share_memory_()
    w += 1
    with pytest.warns(UserWarning, match="step runs without a replay"):
        assert [step(x).item() for _ in range(4)] == [6.0] * 4


def _work(model, lock, event, n):
    event.wait(60)
    optimizer = plait.optim.SGD(model.parameters(), lr=0.05)
    plait.manual_seed(n)
    for _ in range(40):
        x = plait.randn(16, 3)
        loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    for _ in range(200):
        with lock:
            model.count += 1


def test_two_processes_train_the_parents_model():
    plait.manual_seed(0)
    model = nn.Linear(3, 1)
    model.register_buffer("count", plait.zeros(1, dtype=plait.int64))
    model.share_memory()
    x = plait.randn(64, 3)
    with plait.no_grad():
        before = (model(x) - x.sum(1, keepdim=True)).square().mean().item()
    lock, event = mp.Lock(), mp.Event()
    processes = [mp.Process(target=_work, args=(model, lock, event, n)) for n in range(2)]
    for p in processes:
        p.start()
    event.set()
    for p in processes:
        p.join(60)
    assert [p.exitcode for p in processes] == [0, 0]
    with plait.no_grad():
        after = (model(x) - x.sum(1, keepdim=True)).square().mean().item()
    assert after < before / 100
    assert model.count.item() == 400


def _descriptors():
    return set(os.listdir("/proc/self/fd"))


def _settled():
    """Returns how many descriptors are open, once what was dropped before has been given back by other threads."""
    gc.collect()
    last, since = len(_descriptors()), time.monotonic()
    while time.monotonic() < since + 0.3:
        time.sleep(0.01)
        if (now := len(_descriptors())) != last:
            last, since = now, time.monotonic()
    return last


def _wait_for(what, wanted):
    """Waits until the thread that gives memory back has done so."""
    end = time.monotonic() + 10
    while (got := what()) != wanted and time.monotonic() < end:
        time.sleep(0.01)
    assert got == wanted


needs_proc = pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs /proc")


def _loop(into, out):
    """Sends back what it gets, as new tensors, and the number of its open files."""
    while (got := into.get()) is not None:
        out.put((got + 1, len(_descriptors())))
        del got


@needs_proc
@pytest.mark.parametrize("kind", ["Queue", "SimpleQueue"])
def test_a_queue_leaves_no_descriptor(kind):
    into, out = (getattr(mp.get_context("spawn"), kind)() for _ in range(2))
    process = mp.Process(target=_loop, args=(into, out))
    process.start()
    into.put(plait.zeros(7))
    got, first = out.get()  # what is made once is there now
    del got
    before = _settled()
    for i in range(50):
        into.put(plait.full((7,), float(i)))
        got, last = out.get()
        assert got.tolist() == [i + 1.0] * 7
    del got
    gc.collect()
    assert last < first + 8
    _wait_for(lambda: len(_descriptors()), before)
    into.put(None)
    process.join(30)
    assert process.exitcode == 0


def _hold(connection, t):
    t += 1
    connection.send("held")
    time.sleep(100)


def test_a_killed_process_leaves_the_memory_to_the_others():
    t = plait.zeros(1000)
    here, there = mp.Pipe()
    process = mp.Process(target=_hold, args=(there, t))
    process.start()
    assert here.recv() == "held"
    os.kill(process.pid, signal.SIGKILL)
    process.join(30)
    assert process.exitcode == -signal.SIGKILL
    t += 1
    assert t.sum().item() == 2000


class Copies:
    """Pickles copies, which are gone after the pickling."""

    def __init__(self, n):
        self.tensor = plait.full((100,), n)

    def __reduce__(self):
        return list, ([self.tensor.clone(), self.tensor + 1],)


def _sums(connection, *lists):
    connection.send([t.sum().item() for each in lists for t in each])


def test_what_is_made_by_pickling_arrives(other):
    here, there = mp.Pipe()
    other(_keep, "once", plait.ones(1))  # what is made once is there now
    before = _settled() if os.path.isdir("/proc/self/fd") else None
    process = mp.Process(target=_sums, args=(there, *map(Copies, range(20))))
    process.start()
    process.join(60)
    assert here.recv() == [100 * n for m in range(20) for n in (m, m + 1)]
    if before is not None:
        process.close()
        _wait_for(lambda: len(_descriptors()), before)


def _make(connection, event):
    connection.send([plait.arange(5.0), {"a": plait.ones(2)}])
    event.wait(60)


def _make_and_leave(connection):
    connection.send(plait.arange(5.0))


def test_memory_outlives_the_process_that_made_it():
    here, there = mp.Pipe()
    event = mp.Event()
    process = mp.Process(target=_make, args=(there, event))
    process.start()
    got, more = here.recv()
    event.set()
    process.join(30)
    got += 1
    assert got.tolist() == [1, 2, 3, 4, 5] and more["a"].tolist() == [1, 1]
    process = mp.Process(target=_make_and_leave, args=(there,))
    process.start()
    process.join(30)
    with pytest.raises(RuntimeError, match="must not end before the tensor is received"):
        here.recv()


def _double(t):
    t *= 2
    return t


def test_pools_and_managers(other):
    with mp.Pool(1) as pool:
        t = plait.ones(3)
        out = pool.map(_double, [t, plait.zeros(2)])
        assert t.tolist() == [2, 2, 2] and out[0].data_ptr() == t.data_ptr() and out[1].tolist() == [0, 0]
    with mp.Manager() as manager:
        shared = manager.dict(t=t)
        t += 1
        assert shared["t"].tolist() == [3, 3, 3] and shared["t"].data_ptr() == t.data_ptr()
    queue = mp.JoinableQueue()
    queue.put(t)
    assert queue.get().data_ptr() == t.data_ptr()
    queue.task_done()
    queue.join()
    sparse = plait.eye(3).to_sparse()
    (made,) = other(_same, sparse)
    assert made.is_sparse and made.to_dense().tolist() == sparse.to_dense().tolist()


def test_wrong_uses_are_refused():
    w = plait.ones(2, requires_grad=True)
    queue = mp.Queue()
    with pytest.raises(RuntimeError, match=r"requires a gradient and is no leaf.*send t\.detach\(\)"):
        queue.put(w * 2)
    with pytest.raises(RuntimeError, match=r"shape \(2, 2\) requires a gradient and is no leaf"):
        queue.put((plait.eye(2, requires_grad=True) * 2).to_sparse())
    queue.put((w * 2).detach())
    assert queue.get().tolist() == [2, 2]
    pickle.dumps(w * 2)  # elsewhere values are enough
    with pytest.raises(TypeError, match="share_memory_: got a sparse tensor"):
        plait.eye(2).to_sparse().share_memory_()
    with pytest.raises(NotImplementedError, match="share_memory_: want a tensor on a CPU device"):
        plait.ones(2, device="meta").share_memory_()
    t = plait.zeros(2).share_memory_()
    with pytest.raises(RuntimeError, match="resize_: 5 elements do not fit into the shared memory"):
        t.resize_(5)
    for method in ("fork", "forkserver", "thread"):
        with pytest.raises(ValueError, match=f"want 'spawn', got '{method}'"):
            mp.get_context(method)
        with pytest.raises(ValueError, match=f"want 'spawn', got '{method}'"):
            mp.set_start_method(method)
    assert mp.get_start_method() == mp.get_context().get_start_method() == "spawn"
    assert mp.get_all_start_methods() == ["spawn"]


SCRIPT = """
import multiprocessing
import torch
import torch.multiprocessing as mp
from torch import nn

def train(rank, model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)
    for _ in range(20):
        optimizer.zero_grad()
        (model(torch.ones(4, 2)) - 3).square().mean().backward()
        optimizer.step()

def double(t):
    t *= 2

if __name__ == "__main__":
    mp.set_start_method("spawn", force=True)
    model = nn.Linear(2, 1)
    model.share_memory()
    processes = [mp.Process(target=train, args=(rank, model)) for rank in range(2)]
    for p in processes:
        p.start()
    for p in processes:
        p.join()
    print(abs(model(torch.ones(1, 2)).item() - 3) < 0.1)
    with multiprocessing.Pool(1) as pool:
        pool.map(double, [t := torch.ones(2)])
    print(t.tolist())
"""


def test_a_program_that_imports_torch(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    command = [sys.executable, "-m", "plait.torch", script]
    out = subprocess.run(command, check=False, capture_output=True, text=True, timeout=100)
    assert (out.returncode, out.stdout, out.stderr) == (0, "True\n[2.0, 2.0]\n", "")


def test_plain_pickles_stay_copies():
    t = plait.ones(3).share_memory_()
    made = pickle.loads(pickle.dumps(t))
    assert not made.is_shared() and made.tolist() == [1, 1, 1]
    made = ForkingPickler.loads(ForkingPickler.dumps(t))
    assert made.data_ptr() == t.data_ptr()
