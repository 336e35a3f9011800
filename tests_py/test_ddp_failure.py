"""A step of DistributedDataParallel that fails on one rank fails on all, and the next is as if it had not been."""

import numpy as np
import plait
import pytest
from plait import distributed as dist
from plait import nn
from plait.nn.parallel import DistributedDataParallel
from ranks import on_ranks
from replicas import N, assert_close, model, one_device, part, values


def huge(t):
    """Returns a zero whose gradient takes more memory than there is."""
    return t.sum().expand(1 << 24, 1 << 24)[0, 0] * 0


class LacksMemory(plait.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, grad):
        return grad + plait.zeros(1 << 24, 1 << 24).sum()


def in_engine(m, x, y):
    return nn.functional.mse_loss(m(x), y) + huge(next(m.parameters()))


def in_python(m, x, y):
    return nn.functional.mse_loss(m(LacksMemory.apply(x.requires_grad_())), y)


def average(group, bucket):
    """A communication hook of a user: it names the group that its module has."""
    future = dist.all_reduce(bucket.buffer(), group=group, async_op=True).get_future()
    return future.then(lambda f: f.value()[0] / N)


@pytest.mark.parametrize("lacking", [in_engine, in_python], ids=["engine", "python"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"bucket_cap_mb": 0.0001},
        {"gradient_as_bucket_view": True},
        {"find_unused_parameters": True},
        {"static_graph": True},
        {"hook": average, "bucket_cap_mb": 0.0001},
        {"hook": average, "gradient_as_bucket_view": True},
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("accumulate", [False, True])
def test_out_of_memory_in_backward(options, lacking, accumulate):
    def fn(rank):
        given = dict(options)
        hook = given.pop("hook", None)
        m = DistributedDataParallel(model(), **given)
        if hook is not None:
            m.register_comm_hook(None, hook)
        x, y = part(rank)
        opt = plait.optim.Adam(m.parameters(), lr=0.05)
        told = 0

        def step(loss):
            opt.zero_grad()
            if accumulate:
                with m.no_sync():
                    nn.functional.mse_loss(m(x), y).backward()
            loss(m, x, y).backward()
            opt.step()

        for n in range(4):
            try:
                step(lacking if n in (0, 2) and rank == 1 else lambda m, x, y: nn.functional.mse_loss(m(x), y))
            except MemoryError as error:
                assert n in (0, 2)
                assert rank == 1 or "rank 1 has failed" in str(error)
                told += 1
                step(lambda m, x, y: nn.functional.mse_loss(m(x), y))
        assert told == 2
        return values(m)

    results = on_ranks(N, fn)
    for other in results[1:]:
        assert all((a == b).all() for a, b in zip(results[0], other, strict=True))
    if not accumulate:
        assert_close(results[0], one_device())


def test_an_error_in_a_hook_is_told_to_all():
    def fn(rank):
        m = DistributedDataParallel(model())
        x, y = part(rank)
        opt = plait.optim.Adam(m.parameters(), lr=0.05)
        for n in range(4):
            opt.zero_grad()
            loss = nn.functional.mse_loss(m(x), y)
            if n == 1:
                out = m(x)
                if rank == 1:
                    out.register_hook(lambda grad: 1 / 0)
                with pytest.raises(ZeroDivisionError if rank == 1 else RuntimeError, match="zero"):
                    nn.functional.mse_loss(out, y).backward()
                opt.zero_grad()
                loss = nn.functional.mse_loss(m(x), y)
            loss.backward()
            opt.step()
        return values(m)

    assert_close(on_ranks(N, fn)[0], one_device())


@pytest.mark.parametrize("where", ["module", "loss"])
def test_out_of_memory_in_forward(where):
    """A rank that lacks memory in forward tells the others; they begin the step anew, with the buffers of rank 0."""
    x = plait.randn(8, 4, dtype=plait.float64)
    armed, norms, got = set(), [], {}

    class Tight(nn.Module):
        def forward(self, x):
            if where == "module" and dist.get_rank() in armed:
                raise plait.OutOfMemoryError("no memory for the output")
            return x

    def run(rank, fails):
        dist.init_process_group()
        plait.manual_seed(3)
        inner = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), Tight(), nn.Linear(4, 2)).double().to(f"cpu:{rank}")
        model = DistributedDataParallel(inner, bucket_cap_mb=1e-5)
        optimizer = plait.optim.SGD(model.parameters(), lr=0.1)
        errors = 0
        for step in range(3):
            if fails and step == 1 and rank == 1:
                armed.add(rank)
            while True:
                optimizer.zero_grad()
                try:
                    out = model(x[4 * rank : 4 * rank + 4].to(f"cpu:{rank}"))
                    if where == "loss" and rank in armed:
                        raise plait.OutOfMemoryError("no memory for the loss")
                    (out * out).sum().backward()
                    break
                except (plait.OutOfMemoryError, dist.DistError) as error:
                    assert step == 1 and errors < 2
                    assert where == "loss" or "no memory for the output" in str(error)
                    errors += 1
                    armed.discard(rank)
            optimizer.step()
        assert (errors > 0) == fails
        if rank == 0:
            norms.append(inner[1].running_mean.numpy().copy())
            got[fails] = [p.detach().numpy().copy() for p in model.parameters()]

    for fails in (False, True):
        dist.spawn(run, args=(fails,), nprocs=2)
    for a, b in zip(got[False], got[True], strict=True):
        np.testing.assert_array_equal(a, b)
    assert all(np.isfinite(n).all() for n in norms)
