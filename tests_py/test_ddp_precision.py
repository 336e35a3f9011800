"""DistributedDataParallel in mixed precision."""

import plait
from plait import nn
from plait.nn.parallel import DistributedDataParallel
from plait.nn.parallel.distributed import _MixedPrecision
from plait.utils.checkpoint import checkpoint
from ranks import on_ranks
from replicas import N, assert_close, one_device, part, values


def test_case14_mixed_precision():
    seen = []

    class Watched(nn.Sequential):
        def forward(self, x):
            seen.append((x.dtype, self[0].weight.dtype))
            return super().forward(x)

    def fn(rank):
        plait.manual_seed(5)
        m = Watched(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2))
        lowered = _MixedPrecision(param_dtype=plait.bfloat16, reduce_dtype=plait.float16, buffer_dtype=plait.bfloat16)
        many = DistributedDataParallel(m, mixed_precision=lowered)
        x, y = (t.float() for t in part(rank))
        opt = plait.optim.SGD(many.parameters(), lr=0.1)
        for _ in range(3):
            opt.zero_grad()
            out = many(x)
            assert out.dtype == plait.bfloat16
            nn.functional.mse_loss(out.float(), y).backward()
            opt.step()
        assert all(p.dtype == p.grad.dtype == plait.float32 for p in many.parameters())
        assert all(v.dtype == plait.float32 for v in many.state_dict().values())
        return values(many)

    results = on_ranks(N, fn)
    assert set(seen) == {(plait.bfloat16, plait.bfloat16)}
    for other in results[1:]:
        assert all((a == b).all() for a, b in zip(results[0], other, strict=True))
    want = one_device(3, make=lambda p: plait.optim.SGD(p, lr=0.1))
    assert_close(results[0], want, rtol=0.03)


def test_case14_mixed_precision_of_inputs_that_stay():
    seen = []

    class Watched(nn.Linear):
        def forward(self, x):
            seen.append((x.dtype, self.weight.dtype))
            return super().forward(x.to(self.weight.dtype))

    def fn(rank):
        lowered = _MixedPrecision(param_dtype=plait.bfloat16, cast_forward_inputs=False)
        DistributedDataParallel(Watched(6, 2), mixed_precision=lowered)(plait.ones(3, 6))

    on_ranks(1, fn)
    assert seen == [(plait.float32, plait.bfloat16)]


def test_case26_mixed_precision_of_checkpointed_blocks():
    """A block that is run again in backward has the parameters that it had in forward."""

    class Blocks(nn.Module):
        def __init__(self, again):
            super().__init__()
            self.first, self.last, self.again = nn.Linear(6, 8), nn.Linear(8, 2), again

        def block(self, x):
            return plait.tanh(self.first(x))

        def forward(self, x):
            x = checkpoint(self.block, x, use_reentrant=False) if self.again else self.block(x)
            return self.last(x)

    def fn(rank):
        grads = []
        for again in (False, True):
            plait.manual_seed(5)
            many = DistributedDataParallel(Blocks(again), mixed_precision=_MixedPrecision(param_dtype=plait.bfloat16))
            x, _ = part(rank)
            many(x.float()).sum().backward()
            grads.append([p.grad.numpy().copy() for p in many.parameters()])
        return grads

    for plain, again in on_ranks(N, fn):
        assert all((a == b).all() for a, b in zip(plain, again, strict=True))
