"""Parameters whose gradients come from several places: modules, reentrant checkpoints, terms of the loss."""

import plait
import pytest
from plait import nn
from plait.distributed.fsdp import fully_shard
from plait.utils.checkpoint import checkpoint
from ranks import on_ranks


class Net(nn.Module):
    """Layers that share reentrant checkpoints in one of several ways."""

    def __init__(self, how):
        super().__init__()
        plait.manual_seed(0)
        self.how = how
        self.a, self.b, self.c = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        def again(f, t):
            return checkpoint(f, t, use_reentrant=True)

        if self.how == "before a layer":
            return self.c(again(self.a, again(self.a, x)))
        if self.how == "after a layer":
            return self.b(again(self.a, again(self.a, self.c(x))))
        if self.how == "beside layers":
            return again(self.a, x) + again(lambda t: self.a(self.b(t)), x) + self.a(x) + self.c(x)
        if self.how == "nested":
            return again(lambda t: again(self.a, self.a(t)), self.c(x))
        return again(lambda t: self.b(self.a(t)), x) + again(lambda t: self.a(self.b(t)), self.c(x))


WAYS = ["before a layer", "after a layer", "beside layers", "nested", "two orders"]


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("kept", [True, False], ids=["kept", "resharded"])
@pytest.mark.parametrize("how", WAYS)
def test_reentrant_checkpoints_that_share_layers(how, kept, ranks):
    def run(rank):
        m, alone = Net(how), Net(how)
        fully_shard(m, reshard_after_forward=not kept)
        x = plait.arange(8.0).reshape(2, 4).sin().requires_grad_()
        for _ in range(2):
            for a in (m, alone):
                a(x).square().sum().backward()
        for p, q in zip(m.parameters(), alone.parameters(), strict=True):
            if q.grad is None:
                assert p.grad is None
            else:
                assert plait.allclose(p.grad.full_tensor(), q.grad, rtol=1e-5, atol=1e-5)

    on_ranks(ranks, run)
