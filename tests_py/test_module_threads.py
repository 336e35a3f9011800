"""Threads that use one parallel module at once end, with results or with errors that say what they do."""

import threading

import plait
import pytest
from plait import nn
from plait.distributed.fsdp import FSDP, MixedPrecision, fully_shard
from ranks import on_ranks

DEVICES = ["cpu:0", "cpu:1"]
NAMED = ("two threads use one", "the reduction of the last step has not finished")


def plain():
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 6))


def loss_of(m):
    m(plait.randn(4, 6)).square().mean().backward()


def contend(uses, times=25):
    """Runs functions on threads of their own, so many times each, and returns how often they succeeded."""
    done, wrong, gate = [], [], threading.Barrier(len(uses))

    def run(use):
        gate.wait()
        for _ in range(times):
            try:
                use()
                done.append(use)
            except Exception as error:  # a named one is what the test is about
                if not any(said in str(error) for said in NAMED):
                    wrong.append(error)

    threads = [threading.Thread(target=run, args=(use,), daemon=True) for use in uses]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert not any(t.is_alive() for t in threads)
    assert not wrong, wrong[:3]
    return len(done)


def data_parallel():
    return nn.DataParallel(plain(), device_ids=DEVICES)


def ddp():
    return nn.parallel.DistributedDataParallel(plain())


def sharded():
    m = plain()
    for part in (m[0], m):
        fully_shard(part)
    return m


def fsdp():
    return FSDP(plain(), mixed_precision=MixedPrecision(param_dtype=plait.bfloat16))  # one rank gathers too


def check(make):
    m = make()

    def state():
        m.state_dict()
        m.zero_grad()

    assert contend([lambda: loss_of(m), lambda: loss_of(m), state])
    m.zero_grad()
    loss_of(m)  # as if nothing had been
    assert all(p.grad is not None for p in m.parameters())


def test_data_parallel():
    check(data_parallel)


@pytest.mark.parametrize("make", [ddp, sharded, fsdp])
def test_on_a_rank(make):
    on_ranks(1, lambda rank: check(make))


def test_pipeline():
    p = plait.Pipeline(plain(), DEVICES, chunks=2, loss_fn=nn.MSELoss())
    x = plait.randn(4, 6)

    def rest():
        p.state_dict()
        p.zero_grad()
        p.timeline()

    assert contend([lambda: p.step(x, x), lambda: p.step(x, x), rest])
    p.zero_grad()
    p.step(x, x)
    assert all(q.grad is not None for q in p.parameters())
