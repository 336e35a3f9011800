"""Ranks that do different things with tensors of the same shapes are told so, each with both sides."""

import ast
import inspect
import re
from pathlib import Path

import plait
import pytest
from plait import distributed as dist
from plait import nn, optim
from plait.distributed.nn import functional as collectives
from ranks import on_ranks


def refused(fn):
    """Returns the error of each of two ranks, which must be the same."""

    def run(rank):
        with pytest.raises(plait.DistributedError, match=r"disagree|wait for each other") as caught:
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
        m[rank].weight.grad.to_local().tolist()

    assert "reduce_scatter" in refused(fn)


def test_models_that_go_backward_in_another_order():
    def fn(rank):
        models = [nn.parallel.DistributedDataParallel(part) for part in twins()]
        losses = [m(plait.ones(1, 4)).sum() for m in models]
        losses[rank].backward()
        models[rank].module.weight.grad.tolist()

    error = refused(fn)
    assert "rank 0 in backward" in error and "of DDP model 1" in error
    assert "rank 1 in backward" in error and "of DDP model 2" in error


def test_a_scaler_that_meets_another_sum():
    def fn(rank):
        model = plait.fully_shard(nn.Linear(4, 4, bias=False))
        scaler = plait.amp.GradScaler(device="cpu")
        scaler.scale(model(plait.ones(1, 4)).sum()).backward()
        if rank:
            dist.all_reduce(plait.zeros(2), op=dist.ReduceOp.MAX)
        else:
            scaler.step(optim.SGD(model.parameters(), lr=0.1))

    assert re.search(r"rank 0 calls all_reduce.* for whether a GradScaler steps; rank 1 calls all_reduce", refused(fn))


def test_norms_of_one_size_are_not_mixed():
    def fn(rank):
        m = nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(nn.BatchNorm1d(4), nn.BatchNorm1d(4)))
        m[rank](plait.randn(3, 4)).tolist()

    assert re.search(r"rank 0 calls all_gather .* for SyncBatchNorm 0 .*; rank 1 .* for SyncBatchNorm 1", refused(fn))


def test_hooks_of_different_buckets_are_not_mixed():
    def average(group, bucket):
        dist.all_reduce(bucket.buffer())
        return bucket.buffer()

    def fn(rank):
        models = [nn.parallel.DistributedDataParallel(part) for part in twins()]
        for m in models:
            m.register_comm_hook(None, average)
        losses = [m(plait.ones(1, 4)).sum() for m in models]
        losses[rank].backward()
        models[rank].module.weight.grad.tolist()

    error = refused(fn)
    assert "for bucket 0 (weight) of DDP model 1" in error
    assert "for bucket 0 (weight) of DDP model 2" in error


def test_hooks_of_different_units_are_not_mixed():
    def fn(rank):
        m = twins()
        for part in m:
            plait.fully_shard(part, reshard_after_forward=False)
            part.set_all_reduce_hook(lambda part: None)
        sums = [part(plait.ones(1, 4)).sum() for part in m]
        sums[rank].backward()
        m[rank].weight.grad.to_local().tolist()

    error = refused(fn)
    assert "rank 0 in reduce_scatter" in error
    assert "for FSDP unit 1" in error
    assert "for FSDP unit 2" in error


def test_a_gradient_is_not_taken_for_a_value():
    def fn(rank):
        x = plait.ones(4, requires_grad=True)
        y = collectives.all_reduce(x)
        if rank:
            collectives.all_reduce(plait.ones(4))
        else:
            y.sum().backward()

    assert re.search(r"rank 0 in all_reduce # for a gradient of the group .*; rank 1 in all_reduce", refused(fn))


COLLECTIVES = {f for f in dir(dist) if re.match(r"i?send|i?recv|barrier|broadcast|scatter|gather|reduce|all_", f)}
COLLECTIVES |= {
    f for f, v in vars(dist).items() if inspect.isfunction(v) and "async_op" in inspect.signature(v).parameters
}
USERS = {  # whose calls are the user's own, or serve a hook
    "distributed/_objects.py",
    "distributed/_peers.py",
    "distributed/_collectives.py",
    "distributed/nn/functional.py",
    "distributed/fsdp/_module.py",
    "distributed/algorithms/_comm_hooks/default_hooks.py",
    "distributed/algorithms/ddp_comm_hooks/default_hooks.py",
}


def test_collectives_of_the_package_say_what_they_are_for():
    root, seen = Path(plait.__file__).parent, 0
    for file in root.rglob("*.py"):
        tree = ast.parse(file.read_text())
        imported = {
            n.asname or n.name
            for i in ast.walk(tree)
            if isinstance(i, ast.ImportFrom) and str(i.module).startswith("plait.distributed")
            for n in i.names
        }
        named = {
            t.id
            for a in ast.walk(tree)
            if isinstance(a, ast.Assign) and isinstance(a.value, ast.Call) and "._for(" in ast.unparse(a.value)
            for t in a.targets
            if isinstance(t, ast.Name)
        }
        for call in ast.walk(tree):
            if (
                isinstance(call, ast.Call)
                and isinstance(call.func, ast.Name)
                and call.func.id in COLLECTIVES & imported
            ):
                words = {n.id for n in ast.walk(call) if isinstance(n, ast.Name)}
                seen += 1
                at = f"{file}:{call.lineno}: {call.func.id}"
                assert str(file.relative_to(root)) in USERS or "._for(" in ast.unparse(call) or words & named, at
    assert seen > 5
