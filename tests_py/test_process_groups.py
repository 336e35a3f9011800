"""The lives of process groups: made, ended, made again."""

import threading
import time

import plait
import pytest
from plait import distributed as dist
from plait import nn, optim
from ranks import on_ranks


def total(rank, group=None):
    """The sum of 1, 2, 4, ... over the ranks of a group."""
    x = plait.tensor([2**rank])
    dist.all_reduce(x, group=group)
    return x.item()


def test_the_default_group_begins_anew():
    def fn(rank):
        for _ in range(5):
            assert (dist.get_rank(), dist.get_world_size(), total(rank)) == (rank, 3, 7)
            dist.destroy_process_group()
            assert not dist.is_initialized()
            with pytest.raises(ValueError, match="init_process_group first"):
                dist.get_rank()
            dist.init_process_group("gloo", rank=rank, world_size=3)

    on_ranks(3, fn)


def test_a_slow_rank_still_has_the_group_that_others_have_left():
    """Who destroys a group and makes it anew does not meet those who are still in the old one."""

    def fn(rank):
        if rank == 1:
            with pytest.raises(plait.DistributedError, match="rank 0 is gone: it has left the group"):
                while True:
                    dist.barrier()
        dist.destroy_process_group()
        dist.init_process_group()
        return total(rank)

    assert on_ranks(2, fn) == [3, 3]


def test_groups_of_some_ranks_begin_anew():
    def fn(rank):
        for _ in range(3):
            pair = dist.new_group([0, 2])
            if rank != 1:
                assert total(rank, pair) == 5
                dist.destroy_process_group(pair)
            assert total(rank) == 7
        pair = dist.new_group([1, 2])
        dist.destroy_process_group()
        dist.init_process_group(timeout=30)
        pair = dist.new_group([1, 2])
        return total(rank, pair) if rank else None

    assert on_ranks(3, fn) == [None, 6, 6]


def test_training_after_the_group_began_anew():
    def fn(rank, ranks=2):
        if ranks == 2:
            dist.destroy_process_group()
            dist.init_process_group()
        plait.manual_seed(0)
        model = nn.Linear(3, 1)
        wrapped = nn.parallel.DistributedDataParallel(model) if ranks == 2 else model
        optimiser = optim.SGD(model.parameters(), lr=0.1)
        x = plait.arange(12.0).reshape(4, 3) / 10
        for _ in range(3):
            optimiser.zero_grad()
            (wrapped(x if ranks == 1 else x[2 * rank : 2 * rank + 2]) ** 2).mean().backward()
            optimiser.step()
        return model.weight.tolist()[0]

    want = pytest.approx(fn(0, ranks=1), rel=1e-5)
    assert on_ranks(2, fn) == [want, want]


def test_a_world_of_one_begins_anew():
    for _ in range(3):
        dist.init_process_group()
        assert (total(0), dist.get_world_size()) == (1, 1)
        dist.destroy_process_group()


def test_a_group_that_was_destroyed():
    def fn(rank):
        group = dist.new_group([0, 1])
        x = plait.ones(2)
        work = dist.all_reduce(x, group=group, async_op=True)
        dist.destroy_process_group(group)  # with work pending, which goes on
        work.wait()
        for call in (
            lambda: dist.all_reduce(x, group=group),
            lambda: dist.barrier(group),
            lambda: dist.all_gather_object([None] * 2, 1, group),
            lambda: dist.send(x, 1 - rank, group) if rank else dist.recv(x, 1 - rank, group),
        ):
            with pytest.raises(RuntimeError, match="this rank has left the group: it was destroyed"):
                call()
        with pytest.raises(RuntimeError, match="made before"):
            dist.init_process_group()
        return x.tolist()

    assert on_ranks(2, fn) == [[2, 2]] * 2


def test_a_group_of_another_rank():
    groups = {}

    def fn(rank):
        groups[rank] = dist.new_group([0, 1])
        dist.barrier()
        with pytest.raises(
            ValueError, match=rf"all_reduce: got the process group .* of rank {1 - rank} on rank {rank}"
        ):
            dist.all_reduce(plait.ones(1), group=groups[1 - rank])
        outside = dist.new_group([0])
        if rank == 1:
            assert dist.all_reduce(plait.ones(1), group=outside) is None
        dist.barrier()

    on_ranks(2, fn)


def test_ranks_in_different_groups_are_told_that_they_wait_for_each_other():
    def fn(rank):
        groups = [dist.new_group([0, 1], group_desc=name) for name in ("first", "second")]
        with pytest.raises(plait.DistributedError, match="wait for each other") as caught:
            dist.all_reduce(plait.ones(1), group=groups[rank])
        return str(caught.value)

    one, two = on_ranks(2, fn)
    assert one == two
    assert 'rank 0 in all_reduce #1 of the group "first"; rank 1 in all_reduce #1 of the group "second"' in one


def test_ranks_that_both_receive():
    def fn(rank):
        with pytest.raises(plait.DistributedError, match=r"rank 0 in recv of the group .*; rank 1 in recv"):
            dist.recv(plait.ones(1), 1 - rank)

    on_ranks(2, fn)


def test_a_rank_with_a_thread_that_will_call_is_waited_for():
    def fn(rank):
        first, second = (dist.new_group([0, 1]) for _ in range(2))
        x, y = plait.ones(1), plait.ones(1)

        def late():
            time.sleep(0.6)
            dist.all_reduce(y, group=second)

        if rank:
            thread = threading.Thread(target=late)
            thread.start()
            dist.all_reduce(x, group=first)
            thread.join()
        else:
            dist.all_reduce(y, group=second)
            dist.all_reduce(x, group=first)
        return x.item() + y.item()

    assert on_ranks(2, fn) == [4, 4]
