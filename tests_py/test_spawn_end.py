"""How jobs of ranks end when one fails and another does not notice."""

import gc
import os
import subprocess
import sys
import textwrap
import threading
from datetime import timedelta

import plait
import pytest
from plait import distributed as dist
from plait.distributed._threads import RankThread


def test_a_rank_that_is_stuck_is_named_and_left_behind():
    free, stuck, after = threading.Event(), threading.Event(), []

    def fn(rank):
        dist.init_process_group()
        if rank == 0:
            stuck.wait(60)
            raise KeyError("lost")
        stuck.set()
        free.wait(60)  # as a long computation, or a lock that nobody gives up
        try:
            dist.barrier()
        except plait.DistributedError as error:
            after.append(str(error))

    context = dist.spawn(fn, nprocs=2, join=False)
    assert context.join(timeout=0.05, grace_period=60) is False
    with pytest.raises(KeyError, match="lost") as caught:
        context.join(grace_period=0.1)
    notes = caught.value.__notes__
    assert notes[0] == "raised on rank 0 of 2"
    assert notes[1].startswith("rank 1 has not ended 0.1 s after that and is left behind, in wait, ")

    # Later jobs are not concerned, and the rank can do nothing any more.
    dist.spawn(lambda rank: (dist.init_process_group(), dist.barrier()), nprocs=2)
    free.set()
    for t in context._threads:
        t.join(60)
    assert len(after) == 1
    assert "is gone" in after[0]


class Unprintable(Exception):
    def __str__(self):
        raise RuntimeError("no text")


def test_an_error_that_cannot_be_printed_ends_the_others_too():
    def fn(rank):
        dist.init_process_group()
        if rank == 1:
            raise Unprintable
        with pytest.raises(plait.DistributedError, match="it raised Unprintable"):
            dist.barrier()

    with pytest.raises(Unprintable) as caught:
        dist.spawn(fn, nprocs=2, timeout=20)
    assert caught.value.__notes__ == ["raised on rank 1 of 2"]


def test_timeouts():
    for wrong in (0, -1, float("nan"), float("-inf"), timedelta(0)):
        with pytest.raises(ValueError, match="timeout: want a positive time"):
            dist.spawn(lambda rank: None, nprocs=1, timeout=wrong)
    for long in (1e300, float("inf"), timedelta.max):
        dist.spawn(lambda rank: (dist.init_process_group(), dist.barrier()), nprocs=2, timeout=long)


def test_no_grace_is_needed_where_all_notice():
    def fn(rank):
        dist.init_process_group()
        if rank == 1:
            raise KeyError("lost")
        dist.barrier()

    with pytest.raises(KeyError, match="lost") as caught:
        dist.spawn(fn, nprocs=3, grace_period=60)
    assert caught.value.__notes__ == ["raised on rank 1 of 3"]
    for wrong, error in (("1", TypeError), (-1, ValueError), (float("nan"), ValueError)):
        with pytest.raises(error, match="grace_period: want a time"):
            dist.spawn(fn, nprocs=1, grace_period=wrong)


def test_ctrl_c_and_the_end_of_the_program_with_a_rank_that_is_stuck():
    program = textwrap.dedent("""
        import os, signal, threading
        from plait import distributed as dist

        ready = threading.Barrier(3)

        def fn(rank):
            dist.init_process_group()
            if rank == 0:
                threading.Thread(target=threading.Event().wait).start()
            ready.wait()
            threading.Event().wait()

        def strike():
            ready.wait()
            os.kill(os.getpid(), signal.SIGINT)

        threading.Thread(target=strike, daemon=True).start()
        try:
            dist.spawn(fn, nprocs=2)
        except KeyboardInterrupt:
            dist.spawn(lambda rank: dist.init_process_group(), nprocs=2)
            print("interrupted")
    """)
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=120)
    assert (done.stdout.strip(), done.returncode) == ("interrupted", 0), done.stderr


def test_ctrl_c_while_ranks_start_ends_them(monkeypatch):
    started, start = [], RankThread.start

    def interrupted(self):
        start(self)
        started.append(self)
        if len(started) == 2:
            raise KeyboardInterrupt

    def fn(rank):
        dist.init_process_group()
        while True:
            dist.barrier()

    monkeypatch.setattr(RankThread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        dist.spawn(fn, nprocs=2)
    for rank in started:
        rank.join(timeout=30)
        assert not rank.is_alive()


def resident():
    """The memory of the process, in MB."""
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="needs /proc")
@pytest.mark.parametrize("jobs", [150, pytest.param(1000, marks=pytest.mark.slow)])
def test_jobs_leave_no_memory_behind(jobs):
    def fn(rank):
        dist.init_process_group()
        dist.all_reduce(plait.ones(64))

    def run(n):
        for _ in range(n):
            dist.spawn(fn, nprocs=3)
        gc.collect()
        return resident()

    before = run(10)
    assert run(jobs) - before < 100


@pytest.mark.parametrize("call", ["bind_RankNew", "bind_RankMode", "bind_GroupDetectDeadlocks"])
def test_a_rank_that_cannot_begin_is_an_error_of_the_job(monkeypatch, call):
    from plait import _core

    begin = getattr(_core, call)

    def refuse_one(*args):
        if threading.current_thread().name == "rank 1":
            raise RuntimeError("no such device")
        return begin(*args)

    monkeypatch.setattr(_core, call, refuse_one)

    def fn(rank):
        dist.init_process_group()
        dist.barrier()

    with pytest.raises(RuntimeError, match="no such device") as raised:
        dist.spawn(fn, nprocs=2, timeout=20)
    assert "raised on rank 1 of 2" in raised.value.__notes__


def test_ranks_that_cannot_all_be_started_end(monkeypatch):
    from plait.distributed import _spawn

    ended, start = [], _spawn.RankThread.start

    def refuse_one(self):
        if self.name == "rank 2":
            raise RuntimeError("can't start new thread")
        start(self)

    def fn(rank):
        dist.init_process_group()
        try:
            dist.barrier()
            dist.barrier()
        except plait.DistributedError as error:
            ended.append((rank, str(error)))

    monkeypatch.setattr(_spawn.RankThread, "start", refuse_one)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        dist.spawn(fn, nprocs=3, timeout=20)
    for t in [t for t in threading.enumerate() if t.name.startswith("rank ")]:
        t.join(10)
    assert sorted(r for r, _ in ended) == [0, 1]
    assert all("could not all be started" in why for _, why in ended)
