"""Passes of DistributedDataParallel that not all ranks or parameters take part in: no_sync, join, unused parameters."""

import plait
import pytest
from plait import nn
from plait.distributed.algorithms.join import Join
from plait.nn.parallel import DistributedDataParallel
from ranks import on_ranks
from replicas import N, assert_close, batch, model, part, values


def test_case18_no_sync_in_another():
    def fn(rank):
        m = DistributedDataParallel(model())
        x, y = part(rank)
        with m.no_sync():
            with m.no_sync():
                assert not m.require_backward_grad_sync
            assert not m.require_backward_grad_sync
            nn.functional.mse_loss(m(x), y).backward()
            assert m.statistics()["bytes"] == 0
        assert m.require_backward_grad_sync
        nn.functional.mse_loss(m(x), y).backward()
        assert m.statistics()["bytes"] > 0

    on_ranks(2, fn)


def test_case18_no_sync():
    def fn(rank):
        m = DistributedDataParallel(model())
        x, y = part(rank)
        for i in range(2):
            with m.no_sync():
                (nn.functional.mse_loss(m(x[:2]), y[:2]) / 2).backward()
            if i == 0:
                before = m.statistics()["bytes"]
            (nn.functional.mse_loss(m(x[2:]), y[2:]) / 2).backward()
            if i == 0:
                for p in m.parameters():
                    p.grad = None
        return before, [p.grad.numpy().copy() for p in m.parameters()]

    m, (x, y) = model(), batch()
    nn.functional.mse_loss(m(x), y).backward()
    for before, grads in on_ranks(N, fn):
        assert before == 0
        assert_close(grads, [p.grad.numpy() for p in m.parameters()])


def test_case19_join_under_its_other_name():
    def fn(rank):
        m = DistributedDataParallel(model())
        x, y = part(rank)
        opt = plait.optim.SGD(m.parameters(), lr=0.1)
        with Join([m], divide_by_initial_world_size=False):
            for _ in range(rank + 1):
                opt.zero_grad()
                nn.functional.mse_loss(m(x), y).backward()
                opt.step()
        with pytest.raises(ValueError, match="one DistributedDataParallel, got Linear"):
            Join([nn.Linear(2, 2)])
        return values(m)

    results = on_ranks(N, fn)
    for other in results[1:]:
        assert all((a == b).all() for a, b in zip(results[0], other, strict=True))


def test_case19_join():
    def fn(rank):
        m = DistributedDataParallel(model())
        x, y = part(rank)
        opt = plait.optim.SGD(m.parameters(), lr=0.1)
        with m.join():
            for _ in range(rank + 1):
                opt.zero_grad()
                nn.functional.mse_loss(m(x), y).backward()
                opt.step()
        return values(m)

    results = on_ranks(N, fn)
    for other in results[1:]:
        assert_close(results[0], other)


@pytest.mark.parametrize("by_all", [True, False])
def test_case19_join_divisors(by_all):
    """Rank 0 has no batch: the sum is divided by both ranks, or by the one that has."""

    def fn(rank):
        m = DistributedDataParallel(model())
        x, y = part(1)
        with m.join(divide_by_initial_world_size=by_all):
            if rank == 1:
                nn.functional.mse_loss(m(x), y).backward()
        return [p.grad.numpy().copy() for p in m.parameters()] if rank == 1 else None

    m, (x, y) = model(), part(1)
    nn.functional.mse_loss(m.to(x.device)(x), y).backward()
    want = [p.grad.numpy() / (2 if by_all else 1) for p in m.parameters()]
    assert_close(on_ranks(2, fn, devices=["cpu:1"])[1], want)


@pytest.mark.parametrize(
    ("options", "first", "last"),
    [
        ({}, [0, 0, 0], [2, 2, 2]),  # the end of a join takes the highest rank with the most batches
        ({"broadcast_buffers": False}, [0, 10, 20], [2, 11, 22]),
        ({"forward_sync_buffers": False}, [0, 0, 0], [2, 1, 2]),
        ({"broadcast_buffers": False, "forward_sync_buffers": True}, [0, 0, 0], [2, 2, 2]),
    ],
)
def test_case22_buffers_in_a_join(options, first, last):
    def fn(rank):
        bn = nn.BatchNorm1d(6, dtype=plait.float64)
        bn.num_batches_tracked.fill_(10 * rank)
        m = DistributedDataParallel(nn.Sequential(bn, model()), **options)
        before = bn.num_batches_tracked.item()
        with m.join():
            for _ in range((2, 1, 2)[rank]):
                m(part(rank)[0]).sum().backward()
        return before, bn.num_batches_tracked.item()

    assert on_ranks(3, fn) == list(zip(first, last, strict=True))


def test_case19_a_join_that_an_error_ends():
    def fn(rank):
        m = DistributedDataParallel(model())
        with pytest.raises(KeyError), m.join():
            raise KeyError("lost")
        with m.join():
            pass

    on_ranks(1, fn)


def test_case20_unused_parameters():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(6, 2), nn.Linear(6, 2)

        def forward(self, x, use):
            return self.a(x) + self.b(x) if use else self.a(x)

    def fails(rank):
        m = DistributedDataParallel(Two())
        x = plait.ones(2, 6)
        for _ in range(2):
            m(x, False).sum().backward()

    with pytest.raises(RuntimeError, match=r"b\.weight"):
        on_ranks(2, fails)

    def works(rank):
        m = DistributedDataParallel(Two(), find_unused_parameters=True)
        x = plait.ones(2, 6)
        m(x, rank == 0).sum().backward()
        return m.module.b.weight.grad.tolist()

    assert on_ranks(2, works) == [[[1.0] * 6] * 2] * 2
