"""Workers of loaders that are processes."""

import itertools
import multiprocessing
import os
import queue
import random
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import plait
import pytest
from plait.utils import data
from plait.utils.data import _process, _worker


class Mixed(data.Dataset):
    """Samples of all kinds, some of which are large enough for shared memory."""

    def __len__(self):
        return 9

    def __getitem__(self, i):
        grid = np.asfortranarray(np.arange(600.0).reshape(20, 30) + i)
        own = {"plait": plait.rand(3), "python": random.random(), "numpy": np.random.rand()}
        large = plait.full((1000 + 100 * i,), float(i), dtype=plait.bfloat16)
        large = large if i % 2 else plait.nn.Parameter(large)
        return {"large": large, "small": plait.tensor([i]), "grid": grid, "text": str(i), "whole": i, "own": own}


def as_lists(batch):
    if isinstance(batch, dict):
        return {k: as_lists(v) for k, v in batch.items()}
    if isinstance(batch, list):
        return [as_lists(v) for v in batch]
    return (batch.dtype, batch.tolist()) if isinstance(batch, plait.Tensor | np.ndarray) else batch


def same(samples):
    return samples


def process_loader(dataset, batch_size=2, num_workers=2, **options):
    return data.DataLoader(
        dataset, batch_size, num_workers=num_workers, multiprocessing_context="spawn", timeout=100, **options
    )


def ended(pids, seconds=20):
    """Whether processes are gone in time. Of one that is another's child, a zombie counts."""

    def there(pid):
        try:
            with open(f"/proc/{pid}/stat", encoding="ascii") as file:
                return file.read().rpartition(")")[2].split()[0] != "Z"
        except OSError:
            return False

    deadline = time.monotonic() + seconds
    while any(there(p) for p in pids):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def test_batches_are_those_of_threads():
    def batches(make, **options):
        plait.manual_seed(3)
        return [as_lists(b) for b in make(Mixed(), batch_size=2, shuffle=True, collate_fn=same, **options)]

    got, want = batches(process_loader), batches(data.DataLoader, num_workers=2)
    assert len(got) == 5
    for b in got + want:
        for sample in b:
            del sample["own"]["python"], sample["own"]["numpy"]  # threads share the process's generators
    assert got == want


class Own(data.Dataset):
    """What a process has to itself."""

    def __init__(self):
        self.large = plait.arange(2000.0)
        self.seen = plait.zeros(1, dtype=plait.int64).share_memory_()
        self.lock = multiprocessing.get_context("spawn").Lock()

    def __len__(self):
        return 4

    def __getitem__(self, i):
        with self.lock:
            assert self.large.tolist() == list(range(2000)) and not self.large.is_shared()
            self.seen += 1
        info = data.get_worker_info()
        return os.environ["INIT"], info.id, info.seed, random.random(), np.random.rand(), plait.get_num_threads()


def initialise(worker):
    os.environ["INIT"] = f"worker {worker}"


def test_a_process_has_its_own_state():
    generator = plait.Generator().manual_seed(1)
    seed = data.sampler.draw_seed(plait.Generator().manual_seed(1))
    dataset = Own()
    loader = process_loader(dataset, None, generator=generator, worker_init_fn=initialise, collate_fn=same)
    samples = list(loader)
    assert [s[:3] for s in samples] == [("worker 0", 0, seed), ("worker 1", 1, seed + 1)] * 2
    assert [s[3] for s in samples[:2]] == [random.Random(seed).random(), random.Random(seed + 1).random()]
    assert len({s[4] for s in samples}) == 4
    assert [s[5] for s in samples] == [1] * 4 and "INIT" not in os.environ
    assert dataset.seen.item() == 4


class Numbers(data.IterableDataset):
    def __iter__(self):
        info = data.get_worker_info()
        yield from ((i, os.getpid()) for i in range(info.id, 11, info.num_workers))


def test_persistent_workers():
    loader = process_loader(Numbers(), 3, persistent_workers=True)
    first, second = iter(loader), iter(loader)
    both = [[b.tolist() for b in batch] for batch in (next(first), next(second), next(first), next(second))]
    assert [b[0] for b in both] == [[0, 2, 4], [0, 2, 4], [1, 3, 5], [1, 3, 5]]
    pids = {b[1][0] for b in both}
    assert len(pids) == 2 and os.getpid() not in pids
    del first, second
    again = [[b.tolist() for b in batch] for batch in loader]
    assert [b[0] for b in again] == [[0, 2, 4], [1, 3, 5], [6, 8, 10], [7, 9]]
    assert {p for b in again for p in b[1]} == pids
    del loader
    assert ended(pids)


class OddError(Exception):
    """One whose `__init__` does not take its `args`."""

    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")
        self.two = two


class Failing(data.Dataset):
    def __init__(self, pause=0.0):
        self.pause = pause

    def __len__(self):
        return 8

    def __getitem__(self, i):
        time.sleep(self.pause)
        if i == 4:
            raise OddError(1, 2)
        if i == 5:
            os._exit(3)
        if i == 6:
            os.kill(os.getpid(), signal.SIGKILL)
        return os.getpid()


def test_what_fails_is_named():
    passes = iter(process_loader(Failing(), batch_size=None, num_workers=4))
    pids = [next(passes) for _ in range(4)]
    with pytest.raises(OddError, match="1 and 2") as raised:
        next(passes)
    assert raised.value.two == 2 and raised.value.__notes__[0] == "raised in DataLoader worker 0"
    assert "in __getitem__" in raised.value.__notes__[1]
    with pytest.raises(RuntimeError, match=rf"worker 1 \(process {pids[1]}\) exited with code 3"):
        next(passes)
    with pytest.raises(RuntimeError, match=rf"worker 2 \(process {pids[2]}\) was killed by SIGKILL"):
        next(passes)
    assert next(passes) == pids[3]
    with pytest.raises(StopIteration):
        next(passes)
    del raised
    assert ended(pids)


def test_passes_that_are_dropped_end_their_processes():
    passes = iter(process_loader(Failing(pause=0.02), batch_size=None, num_workers=1))
    pids = [next(passes)]
    del passes
    assert ended(pids)


def test_dead_workers_are_replaced():
    loader = process_loader(Numbers(), 3, num_workers=1, persistent_workers=True)
    batch = next(iter(loader))
    os.kill(batch[1][0].item(), signal.SIGKILL)
    with pytest.raises(RuntimeError, match="was killed by SIGKILL"):
        list(loader)
    assert [b[0].tolist() for b in loader] == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10]]


def test_messages_to_the_dead_reach_nobody_else():
    """A message that is sent while its socket is closed does not go to the next socket with the same number."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    context = multiprocessing.get_context("spawn")

    def send(link, closed):
        while not closed.is_set():
            link.send("for the dead")

    try:
        for _ in range(100):
            here, there = context.Pipe()
            there.close()
            link, closed, pipes = _process._Link(0, None, here), threading.Event(), []
            threads = [threading.Thread(target=send, args=(link, closed)) for _ in range(2)]
            threads.append(threading.Thread(target=lambda new=pipes: new.extend(context.Pipe() for _ in range(50))))
            for t in threads:
                t.start()
            link.close()
            closed.set()
            for t in threads:
                t.join()
            assert not any(end.poll() for ends in pipes for end in ends)
            for end in itertools.chain.from_iterable(pipes):
                end.close()
    finally:
        sys.setswitchinterval(before)


def test_what_cannot_be():
    for method, why in (("fork", "none of the engine's threads"), ("forkserver", "before it forks"), ("no", "'spawn'")):
        with pytest.raises(ValueError, match=why):
            data.DataLoader([1], num_workers=1, multiprocessing_context=method)
    with pytest.raises(ValueError, match="wants workers"):
        data.DataLoader([1], multiprocessing_context="spawn")
    with pytest.raises(TypeError, match="want 'spawn' or a context"):
        data.DataLoader([1], num_workers=1, multiprocessing_context=1)
    with pytest.raises((AttributeError, TypeError), match="pickle") as raised:
        list(process_loader([1], collate_fn=lambda batch: batch))
    assert "processes get the dataset" in raised.value.__notes__[0]


SCRIPT = """
import os, time
import torch
from torch.utils.data import DataLoader, Dataset

class Slow(Dataset):
    def __len__(self):
        return 100

    def __getitem__(self, i):
        time.sleep(1000 * (i > 3))
        return torch.full((2000,), os.getpid())

if __name__ == "__main__":
    context = torch.multiprocessing.get_context("spawn")
    passes = iter(DataLoader(Slow(), None, num_workers=2, multiprocessing_context=context))
    print(*(int(next(passes)[0]) for _ in range(2)), flush=True)
    for _ in passes:
        pass
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_programs_that_are_ended(tmp_path, number):
    script = tmp_path / "slow.py"
    script.write_text(SCRIPT)
    program = subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "plait.torch", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    pids = [int(p) for p in program.stdout.readline().split()]
    assert len(pids) == 2
    if number == signal.SIGINT:
        os.killpg(program.pid, number)  # as the terminal does
    else:
        program.kill()
    error = program.communicate(timeout=60)[1]
    assert ended(pids)
    assert error.count("Traceback") == (number == signal.SIGINT)
    assert "resource_tracker" not in error


def test_an_interrupt_at_the_end_of_a_wait():
    class Queue:
        def get(self, timeout):
            try:
                raise queue.Empty
            except queue.Empty:
                raise KeyboardInterrupt  # noqa: B904 (as of a signal that is seen only now)

    share = _worker.Share(queue.SimpleQueue())
    share.results = Queue()
    with pytest.raises(KeyboardInterrupt) as found:
        share.result(0)
    assert found.value.__suppress_context__  # the traceback speaks of the interrupt alone
