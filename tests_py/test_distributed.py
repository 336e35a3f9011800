"""Ranks that are threads, and what they do together."""

import threading
import time

import numpy as np
import plait
import pytest
from plait import distributed as dist
from plait import multiprocessing as mp
from ranks import on_ranks


def test_ranks_know_themselves():
    def fn(rank):
        x = plait.zeros(1)
        return dist.get_rank(), dist.get_world_size(), str(x.device), dist.get_backend(), dist.is_initialized()

    assert on_ranks(3, fn) == [(r, 3, f"cpu:{r}", "local", True) for r in range(3)]
    assert on_ranks(2, fn, devices=["cpu:0"]) == [(r, 2, "cpu:0", "local", True) for r in range(2)]
    assert not dist.is_initialized()


def test_a_rank_has_its_own_state():
    def fn(rank):
        plait.manual_seed(rank)
        a = plait.rand(3).tolist()
        plait.manual_seed(0)
        b = plait.rand(3).tolist()
        if rank == 1:
            plait.set_default_dtype(plait.float64)
            plait.set_grad_enabled(False)
        dist.barrier()
        return a, b, plait.get_default_dtype(), plait.is_grad_enabled()

    (a0, b0, d0, g0), (a1, b1, d1, g1) = on_ranks(2, fn)
    assert a0 == b0 == b1 != a1
    assert (d0, g0, d1, g1) == (plait.float32, True, plait.float64, False)
    assert plait.get_default_dtype() is plait.float32
    assert plait.is_grad_enabled()


def test_collectives():
    def fn(rank):
        out = {}
        x = plait.arange(3.0) + rank
        dist.all_reduce(x)
        out["all_reduce"] = x.tolist()
        x = plait.tensor([float(rank)])
        work = dist.all_reduce(x, op=dist.ReduceOp.AVG, async_op=True)
        assert work.wait()
        assert work.get_future().then(lambda f: f.value()[0].item() + 1).wait() == 2
        out["avg"] = x.item()
        x = plait.tensor([rank])
        dist.broadcast(x, src=2)
        out["broadcast"] = x.item()
        x = plait.tensor([rank])
        dist.reduce(x, dst=1, op=dist.ReduceOp.MAX)
        out["reduce"] = x.item()
        xs = [plait.zeros(r + 1) for r in range(3)]
        dist.all_gather(xs, plait.full((rank + 1,), float(rank)))
        out["all_gather"] = [t.tolist() for t in xs]
        x = plait.zeros(3, 2)
        dist.all_gather_into_tensor(x, plait.full((2,), float(rank)))
        out["into"] = x.tolist()
        x = plait.zeros(2)
        dist.reduce_scatter(x, [plait.full((2,), float(10 * rank + r)) for r in range(3)])
        out["reduce_scatter"] = x.tolist()
        dist.reduce_scatter_tensor(x, plait.arange(6.0))
        out["reduce_scatter_tensor"] = x.tolist()
        xs = [plait.zeros(1) for _ in range(3)]
        dist.all_to_all(xs, [plait.tensor([float(10 * rank + r)]) for r in range(3)])
        out["all_to_all"] = [t.item() for t in xs]
        x = plait.zeros(3, 2)
        dist.all_to_all_single(x, plait.arange(6.0).view(3, 2) + 10 * rank)
        out["single"] = x.tolist()
        xs = [plait.zeros(1) for _ in range(3)] if rank == 0 else None
        dist.gather(plait.tensor([float(rank)]), xs, dst=0)
        out["gather"] = xs and [t.item() for t in xs]
        x = plait.zeros(1)
        dist.scatter(x, [plait.tensor([float(r)]) for r in range(3)] if rank == 1 else None, src=1)
        out["scatter"] = x.item()
        return out

    for rank, out in enumerate(on_ranks(3, fn)):
        assert out["all_reduce"] == [3, 6, 9]
        assert out["avg"] == 1
        assert out["broadcast"] == 2
        assert out["reduce"] == (2 if rank == 1 else rank)
        assert out["all_gather"] == [[0.0], [1.0] * 2, [2.0] * 3]
        assert out["into"] == [[0, 0], [1, 1], [2, 2]]
        assert out["reduce_scatter"] == [30 + 3 * rank] * 2
        assert out["reduce_scatter_tensor"] == [6 * rank, 6 * rank + 3]
        assert out["all_to_all"] == [10 * r + rank for r in range(3)]
        assert out["single"] == [[10 * r + 2 * rank, 10 * r + 2 * rank + 1] for r in range(3)]
        assert out["gather"] == ([0, 1, 2] if rank == 0 else None)
        assert out["scatter"] == rank


def test_peers():
    def fn(rank):
        x = plait.zeros(2)
        if rank == 0:
            dist.send(plait.tensor([1.0, 2.0]), dst=1)
            dist.send_object_list([{"a": 1}, "b"], dst=1)
            return None
        first = dist.recv(x)
        objects = [None, None]
        second = dist.recv_object_list(objects, src=0)
        return x.tolist(), first, objects, second

    assert on_ranks(2, fn)[1] == ([1, 2], 0, [{"a": 1}, "b"], 0)

    def ring(rank):
        y = plait.zeros(1)
        works = dist.batch_isend_irecv(
            [
                dist.P2POp(dist.isend, plait.tensor([float(rank)]), (rank + 1) % 3),
                dist.P2POp(dist.irecv, y, (rank - 1) % 3),
            ]
        )
        for w in works:
            w.wait()
        return y.item()

    assert on_ranks(3, ring) == [2, 0, 1]


def test_objects():
    def fn(rank):
        everybody = [None] * 3
        dist.all_gather_object(everybody, {"rank": rank})
        cast = [rank, str(rank)] if rank == 1 else [None, None]
        dist.broadcast_object_list(cast, src=1)
        some = [None] * 3 if rank == 2 else None
        dist.gather_object(rank * "x", some, dst=2)
        one = [None]
        dist.scatter_object_list(one, ["a", "b", "c"] if rank == 0 else None, src=0)
        return everybody, cast, some, one[0]

    for rank, (everybody, cast, some, one) in enumerate(on_ranks(3, fn)):
        assert everybody == [{"rank": r} for r in range(3)]
        assert cast == [1, "1"]
        assert some == (["", "x", "xx"] if rank == 2 else None)
        assert one == "abc"[rank]


def test_groups():
    def fn(rank):
        pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
        mine, other = (pairs[0], pairs[1]) if rank < 2 else (pairs[1], pairs[0])
        assert other is dist.GroupMember.NON_GROUP_MEMBER
        assert dist.get_rank(other) == -1
        x = plait.tensor([float(rank)])
        dist.all_reduce(x, group=mine)
        dist.all_reduce(x, group=other)  # does nothing
        dist.broadcast(y := plait.tensor([rank]), src=dist.get_process_group_ranks(mine)[1], group=mine)
        sub, _ = dist.new_subgroups(2)
        return x.item(), y.item(), dist.get_rank(mine), dist.get_global_rank(mine, 0), sub.size()

    assert on_ranks(4, fn) == [(1, 1, 0, 0, 2), (1, 1, 1, 0, 2), (5, 3, 0, 2, 2), (5, 3, 1, 2, 2)]


def test_gradients_averaged_by_hand_are_those_of_the_joined_batch():
    x, y = plait.randn(8, 5, dtype=plait.float64), plait.randn(8, 1, dtype=plait.float64)

    def model():
        plait.manual_seed(3)
        return plait.nn.Sequential(plait.nn.Linear(5, 4), plait.nn.Tanh(), plait.nn.Linear(4, 1)).to(plait.float64)

    def train(x, y, average):
        m = model()
        opt = plait.optim.Adam(m.parameters(), lr=0.05)
        for _ in range(5):
            opt.zero_grad()
            plait.nn.functional.mse_loss(m(x), y).backward()
            if average:
                for p in m.parameters():
                    dist.all_reduce(p.grad, op=dist.ReduceOp.AVG, async_op=True)
            opt.step()
        return [p.detach().numpy().copy() for p in m.parameters()]

    want = train(x, y, False)
    for got in on_ranks(
        4, lambda r: train(x[2 * r : 2 * r + 2].to(f"cpu:{r}"), y[2 * r : 2 * r + 2].to(f"cpu:{r}"), True)
    ):
        for a, b in zip(got, want, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9)


def test_numpy_memory_is_ready_when_a_call_returns():
    def fn(rank):
        a = np.full(100_000, float(rank + 1))
        t = plait.from_numpy(a)
        dist.all_reduce(t)
        return a

    for a in on_ranks(2, fn):
        assert (a == 3).all()


def test_shared_memory_keeps_no_rank_out():
    """An operation on NumPy's memory waits for its device, which may wait for a rank that has yet to come."""
    shared = plait.from_numpy(np.ones(1 << 16, np.float32))

    def fn(rank):
        t = plait.ones(4, device=f"cpu:{rank}")
        for _ in range(3):
            if rank == 1:
                time.sleep(0.05)
            dist.all_reduce(t, async_op=True)
            t = t / 2  # behind the collective on the rank's stream
            mine = shared.to(f"cpu:{rank}") if rank else shared
            assert (mine * 2).sum().item() == 2 << 16
        return t.tolist()

    assert on_ranks(2, fn) == [[1] * 4] * 2


def test_a_rank_waits_for_its_own_work_alone():
    launched = threading.Event()

    def body(rank):
        dist.init_process_group()
        x = plait.ones(1000)
        if rank == 1:
            work = dist.all_reduce(x, async_op=True)
            y = x * 2  # behind a collective that rank 0 has not called
            launched.set()
            work.wait()
            plait.cpu.synchronize()
            assert y.sum().item() == 4000
        else:
            assert launched.wait(60)
            plait.cpu.synchronize()
            dist.all_reduce(x)

    dist.spawn(body, nprocs=2)


def test_all_reduce_sync():
    a, b = plait.tensor([1.0, 2.0]), plait.tensor([3.0, 6.0], device="cpu:1")
    dist.all_reduce_sync([a, b])
    assert a.tolist() == b.tolist() == [2, 4]
    dist.all_reduce_sync([[a, a + 1], [b, b + 1]], op=dist.ReduceOp.SUM)
    assert a.tolist() == b.tolist() == [4, 8]
    with pytest.raises(ValueError, match="tensor 0"):
        dist.all_reduce_sync([plait.zeros(2), plait.zeros(3)])
    with pytest.raises(ValueError, match="as many tensors"):
        dist.all_reduce_sync([[a], []])


def test_world_of_one(monkeypatch):
    dist.init_process_group("gloo", rank=0, world_size=1)
    try:
        x = plait.ones(2)
        dist.all_reduce(x)
        assert x.tolist() == [1, 1]
        assert dist.get_world_size() == 1
    finally:
        dist.destroy_process_group()
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(ValueError, match="spawn"):
        dist.init_process_group()


def test_names_of_multiprocessing():
    assert mp.get_start_method() == "spawn"
    assert mp.cpu_count() >= 1
    with pytest.raises(AttributeError, match="no attribute 'Prozess'"):
        mp.Prozess


def test_a_cpu_without_an_index_is_the_ranks_own():
    """So a script for processes, to each of which "cpu" is its own, runs on ranks as it is."""

    def fn(rank):
        here = plait.device("cpu", rank)
        x = plait.from_numpy(np.ones((4, 2), dtype=np.float32))
        batch = next(iter(plait.utils.data.DataLoader(np.ones((4, 2), dtype=np.float32), batch_size=4)))
        m = plait.nn.Linear(2, 1).to("cpu")
        places = {t.device for t in (x, batch, m.weight, plait.zeros(1, device="cpu"), plait.zeros(1), m(x), m(batch))}
        assert places == {here}
        assert x.to("cpu:0").device == plait.device("cpu:0")
        assert x.to("cpu:0").to(plait.device("cpu")).device == here == plait.device("cpu")
        assert (plait.device("cpu:0") == plait.device("cpu")) == (rank == 0)

    on_ranks(3, fn)
    assert plait.zeros(1, device="cpu").device == plait.device("cpu:0")


def test_print_shows_collectives():
    def run(rank):
        work = dist.all_reduce(plait.ones(2), async_op=True)
        shown = repr(work), repr(work.get_future())
        work.wait()
        assert {s.split(": ")[0] for s in shown} == {"<Work all_reduce", "<Future of all_reduce"}
        assert repr(work) == "<Work all_reduce: done>"
        assert repr(work.get_future().then(lambda f: f.value())) == "<Future of all_reduce: done>"
        assert repr(dist.barrier(async_op=True)).startswith("<Work barrier: ")
        assert repr(dist.new_group([0, 1])).endswith(f": rank {rank} of 2>")

    on_ranks(2, run)
