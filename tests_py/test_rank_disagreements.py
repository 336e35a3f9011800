"""Ranks that do different things with tensors of the same shapes are told so, each with both sides."""

import re

import plait
import pytest
from plait import distributed as dist
from plait import nn, optim
from ranks import on_ranks


def refused(fn):
    """Returns the error of each of two ranks, which must be the same."""

    def run(rank):
        with pytest.raises(plait.DistributedError, match="disagree") as caught:
            fn(rank)
        return re.sub(r"#\d+", "#", str(caught.value))

    one, two = on_ranks(2, run)
    assert one == two
    return one


def twins():
    return nn.ModuleList([nn.Linear(4, 4, bias=False) for _ in "ab"])


def test_units_of_one_shape_are_not_mixed():
    def fn(rank):
        m = twins()
        for part in m:
            plait.fully_shard(part)
        m[rank](plait.ones(1, 4)).tolist()

    error = refused(fn)
    assert re.search(r"rank 0 calls all_gather .* for FSDP unit 1 Linear \(weight\)", error)
    assert re.search(r"rank 1 calls all_gather .* for FSDP unit 2 Linear \(weight\)", error)


def test_a_branch_that_one_rank_takes_in_backward():
    def fn(rank):
        m = twins()
        for part in m:
            plait.fully_shard(part, reshard_after_forward=False)
        sums = [part(plait.ones(1, 4)).sum() for part in m]
        sums[rank].backward()
        m[rank].weight.grad.tolist()

    assert "reduce_scatter" in refused(fn)


def test_models_that_go_backward_in_another_order():
    def fn(rank):
        models = [nn.parallel.DistributedDataParallel(part) for part in twins()]
        losses = [m(plait.ones(1, 4)).sum() for m in models]
        losses[rank].backward()
        models[rank].module.weight.grad.tolist()

    error = refused(fn)
    assert "for bucket 0 (weight) of DDP model 1" in error
    assert "for bucket 0 (weight) of DDP model 2" in error


def test_a_scaler_that_meets_another_sum():
    def fn(rank):
        model = plait.fully_shard(nn.Linear(4, 4, bias=False))
        scaler = plait.amp.GradScaler(device="cpu")
        scaler.scale(model(plait.ones(1, 4)).sum()).backward()
        if rank:
            dist.all_reduce(plait.zeros(2), op=dist.ReduceOp.MAX)
        else:
            scaler.unscale_(optim.SGD(model.parameters(), lr=0.1))

    assert re.search(r"rank 0 calls all_reduce.* for whether a GradScaler steps; rank 1 calls all_reduce", refused(fn))
