"""A step of DistributedDataParallel that fails on one rank fails on all, and the next is as if it had not been."""

import plait
import pytest
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


@pytest.mark.parametrize("lacking", [in_engine, in_python], ids=["engine", "python"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"bucket_cap_mb": 0.0001},
        {"gradient_as_bucket_view": True},
        {"find_unused_parameters": True},
        {"static_graph": True},
    ],
    ids=str,
)
@pytest.mark.parametrize("accumulate", [False, True])
def test_out_of_memory_in_backward(options, lacking, accumulate):
    def fn(rank):
        m = DistributedDataParallel(model(), **options)
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
