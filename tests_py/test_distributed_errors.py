"""Ranks that disagree, end early or never come, and wrong arguments."""

import subprocess
import sys
import textwrap
import threading

import plait
import pytest
from plait import distributed as dist
from plait import multiprocessing as mp
from plait.distributed import _spawn
from ranks import on_ranks


def test_disagreement_reaches_every_rank():
    def fn(rank):
        x = plait.ones(2 + (rank == 1))
        with pytest.raises(plait.DistributedError, match=r"all_reduce #1: the ranks disagree: .*float32\[3\]"):
            dist.all_reduce(x)
        assert x.sum().item() == 2 + (rank == 1)
        dist.barrier()
        with pytest.raises(plait.DistributedError, match="broadcast"):
            dist.broadcast(x, src=0) if rank == 0 else dist.barrier()

    on_ranks(2, fn)


def test_a_rank_that_raises_ends_the_others():
    seen = []

    def fn(rank):
        dist.init_process_group()
        if rank == 1:
            raise KeyError("lost")
        try:
            dist.all_reduce(plait.ones(3))
        except plait.DistributedError as error:
            seen.append(str(error))
            raise

    with pytest.raises(KeyError, match="lost") as caught:
        mp.spawn(fn, nprocs=3)
    assert "raised on rank 1 of 3" in caught.value.__notes__
    assert len(seen) == 2
    assert all("rank 1 is gone: it raised KeyError" in s for s in seen)


def test_a_rank_that_returns_early_ends_the_others():
    def fn(rank):
        dist.init_process_group()
        if rank == 0:
            dist.barrier()

    with pytest.raises(plait.DistributedError, match="rank 1 is gone: it has returned"):
        dist.spawn(fn, nprocs=2)


def test_a_rank_that_cannot_start_is_an_error(monkeypatch):
    """Even where what fails is spawn's own: without the rank's work there is no success."""

    def broken(*_):
        raise RuntimeError("no watch")

    monkeypatch.setattr(_spawn._core, "bind_GroupDetectDeadlocks", broken)
    with pytest.raises(RuntimeError, match="no watch"):
        on_ranks(2, lambda rank: None)


def test_deadline(capfd):
    over = threading.Event()

    def fn(rank):
        dist.init_process_group()
        if rank == 0:
            try:
                dist.monitored_barrier(timeout=0.05)
            finally:
                over.set()
        over.wait(60)

    with pytest.raises(plait.DistributedError, match="rank 1 has not arrived within 50ms"):
        dist.spawn(fn, nprocs=2)
    assert "the last of 0 operations" in capfd.readouterr().err


def test_wrong_arguments():
    with pytest.raises(ValueError, match="init_process_group first"):
        dist.get_rank()
    with pytest.raises(ValueError, match="at least one rank"):
        dist.spawn(print, nprocs=0)
    for wrong, what in (
        ({"fn": None}, "want a function, got NoneType"),
        ({"nprocs": "2"}, "want a whole number of ranks, got nprocs='2'"),
        ({"args": 3}, "want a tuple of arguments, got int"),
        ({"args": "ab"}, "want a tuple of arguments, got str"),
        ({"devices": "cpu:0"}, "want a list of devices, got 'cpu:0'"),
        ({"timeout": "1"}, "want a timedelta or seconds, got str"),
    ):
        with pytest.raises(TypeError, match=what):
            dist.spawn(**{"fn": print, **wrong})
    with pytest.raises(ValueError, match="empty list"):
        dist.spawn(print, nprocs=1, devices=[])
    with pytest.raises(ValueError, match="unknown type"):
        dist.spawn(print, nprocs=1, devices=["nothing"])
    with pytest.raises(AttributeError, match="has no attribute 'rpc'"):
        dist.rpc

    def fn(rank):
        with pytest.raises(RuntimeError, match="made before"):
            dist.init_process_group()
        with pytest.raises(ValueError, match="root 5"):
            dist.broadcast(plait.ones(1), src=5)
        with pytest.raises(TypeError, match="broadcast: want the root as the number of a rank, got '0'"):
            dist.broadcast(plait.ones(1), src="0")
        with pytest.raises(TypeError, match="want tensors"):
            dist.all_reduce([1.0])
        with pytest.raises(TypeError, match="avg"):
            dist.all_reduce(plait.ones(1, dtype=plait.int64), op=dist.ReduceOp.AVG)
        with pytest.raises(ValueError, match="one for each of the 2 ranks"):
            dist.all_gather([plait.ones(1)] * 3, plait.ones(1))
        with pytest.raises(ValueError, match="places for 2 objects"):
            dist.all_gather_object([None], 1)
        with pytest.raises(TypeError, match="process group"):
            dist.barrier(group=3)
        dist.barrier()

    on_ranks(2, fn)

    def other_backend(rank):
        dist.init_process_group("ucc")

    with pytest.raises(ValueError, match="backends"):
        dist.spawn(other_backend, nprocs=1)


def test_ctrl_c_ends_all_ranks():
    program = textwrap.dedent("""
        import os, signal, threading, time
        import plait
        from plait import distributed as dist

        ready = threading.Barrier(3)

        def fn(rank):
            dist.init_process_group()
            ready.wait()
            if rank == 0:
                dist.barrier()  # never comes
            while True:
                time.sleep(0.01)
                dist.barrier()

        def strike():
            ready.wait()
            time.sleep(0.2)
            os.kill(os.getpid(), signal.SIGINT)

        threading.Thread(target=strike, daemon=True).start()
        try:
            dist.spawn(fn, nprocs=2)
        except KeyboardInterrupt:
            print("interrupted")
    """)
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "interrupted", done.stderr
