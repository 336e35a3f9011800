"""Threads that a rank's code starts belong to the rank."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import plait
import pytest
from plait import distributed as dist
from ranks import on_ranks


def in_thread(function, **options):
    """Returns what a function returns in a new thread."""
    out = []
    thread = threading.Thread(target=lambda: out.append(function()), **options)
    thread.start()
    thread.join()
    return out[0]


def place():
    x = plait.tensor([2.0 ** dist.get_rank()])
    dist.all_reduce(x)
    return dist.get_rank(), dist.get_world_size(), str(x.device), x.item(), plait.get_default_dtype()


def test_a_thread_has_its_ranks_group_device_and_dtype():
    def fn(rank):
        plait.set_default_dtype(plait.float64)
        with plait.no_grad():
            assert in_thread(plait.is_grad_enabled)  # a thread's own
        seen = [place(), in_thread(place), in_thread(place, daemon=True)]
        with ThreadPoolExecutor(1) as pool:
            seen.append(pool.submit(place).result())
            seen += pool.map(lambda _: place(), range(2))
        seen.append(in_thread(lambda: in_thread(place)))
        return set(seen)

    want = [{(r, 3, f"cpu:{r}", 7, plait.float64)} for r in range(3)]
    assert on_ranks(3, fn) == want
    assert not dist.is_initialized()


def test_a_subclass_with_a_run_of_its_own():
    class Worker(threading.Thread):
        def run(self):
            self.seen = place()

    def fn(rank):
        worker = Worker()
        worker.start()
        worker.join()
        return worker.seen[:3]

    assert on_ranks(2, fn) == [(r, 2, f"cpu:{r}") for r in range(2)]


def test_a_pool_that_serves_several_ranks():
    with ThreadPoolExecutor(2) as pool:
        got = on_ranks(2, lambda rank: [pool.submit(place).result()[:3] for _ in range(3)])
        assert pool.submit(dist.is_initialized).result() is False
    assert got == [[(r, 2, f"cpu:{r}")] * 3 for r in range(2)]


def test_a_rank_ends_when_its_threads_have():
    seen = []

    def fn(rank):
        dist.init_process_group()
        go = threading.Event()

        def late():
            go.wait(60)
            time.sleep(0.02)
            seen.append(place()[3])

        pool = ThreadPoolExecutor(1)
        if rank:
            threading.Thread(target=late).start()
        else:
            pool.submit(late)
            pool.shutdown(wait=False)
        threading.Thread(target=threading.Event().wait, args=(60,), daemon=True).start()  # nobody waits for this one
        go.set()

    dist.spawn(fn, nprocs=2)
    assert seen == [3, 3]


def test_a_thread_of_no_rank_is_told_where_to_start():
    outside, asked, out = threading.Event(), threading.Event(), []

    def ask():
        outside.wait(60)
        try:
            dist.init_process_group()
        except RuntimeError as error:
            out.append(str(error))
        asked.set()

    thread = threading.Thread(target=ask)
    thread.start()

    def fn(rank):
        dist.init_process_group()
        outside.set()
        asked.wait(60)

    dist.spawn(fn, nprocs=2)
    thread.join()
    assert len(out) == 1
    assert "this thread belongs to no rank" in out[0]


def test_a_task_that_begins_after_its_rank():
    held = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(held.wait, 60)

        def fn(rank):
            fn.task = pool.submit(place)
            raise KeyError("early")

        with pytest.raises(KeyError, match="early"):
            dist.spawn(fn, nprocs=1)
        held.set()
        assert first.result()
        with pytest.raises(RuntimeError, match="rank 0 submitted this task to a pool and ended before it began"):
            fn.task.result()
