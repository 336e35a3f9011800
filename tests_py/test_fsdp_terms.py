"""Parameters whose gradients come from several places: modules, reentrant checkpoints, terms of the loss."""

import plait
import pytest
from plait import nn
from plait.distributed.fsdp import CPUOffloadPolicy, fully_shard
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


def layers():
    plait.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3), nn.Linear(3, 3)).double()


def split(**options):
    m = layers()
    fully_shard(m[0], **options)
    return fully_shard(m, **options)


MADE = {
    "units": split,
    "one unit": lambda: fully_shard(layers()),
    "kept": lambda: fully_shard(layers(), reshard_after_forward=False),
    "offloaded": lambda: split(offload_policy=CPUOffloadPolicy()),
}
TERMS = {
    "parameters": lambda p: p.square().sum(),
    "wholes": lambda p: whole(p).square().sum(),
}


def whole(t):
    return t.full_tensor() if hasattr(t, "full_tensor") else t


@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize("before", [True, False], ids=["term first", "module first"])
@pytest.mark.parametrize("of", TERMS)
@pytest.mark.parametrize("how", MADE)
def test_hooks_run_once_on_the_gradients_of_modules_and_terms(how, of, before, ranks):
    def train(m, rank=0, world=1):
        seen = []
        for name, p in m.named_parameters():
            if name != "2.bias":  # one without hooks
                p.register_hook(lambda g, n=name: seen.append((n, whole(g).clone())))
                p.register_hook(lambda g: g.clamp(-0.1, 0.1))
                p.register_post_accumulate_grad_hook(lambda q, n=name: seen.append((n, whole(q.grad).clone())))
        for step in range(4):
            x = plait.arange(24.0).double().reshape(6, 4).sin().chunk(world)[rank]
            term = sum(0.03 * TERMS[of](p) for p in m.parameters()) if before else None
            loss = m(x + step).square().mean()
            if term is None:
                term = sum(0.03 * TERMS[of](p) for p in m.parameters())
            (loss + term).backward()
        return seen, [whole(p.grad) for p in m.parameters()]

    def run(rank):
        alone = layers()
        want, gradients = train(alone)
        seen, got = train(MADE[how](), rank, ranks)
        for name, _ in alone.named_parameters():
            mine, theirs = ([g for n, g in s if n == name] for s in (seen, want))
            assert len(mine) == len(theirs) == (0 if name == "2.bias" else 8), name
            for x, y in zip(mine, theirs, strict=True):
                assert plait.allclose(x, y, rtol=1e-9, atol=1e-12), name
        for x, y in zip(got, gradients, strict=True):
            assert plait.allclose(x, y, rtol=1e-9, atol=1e-12)

    on_ranks(ranks, run)


class Unused(nn.Module):
    def __init__(self):
        super().__init__()
        plait.manual_seed(0)
        self.used, self.unused = nn.Linear(4, 3).double(), nn.Linear(4, 3).double()

    def forward(self, x):
        return self.used(x)


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("hooked", [True, False])
@pytest.mark.parametrize("before", [True, False], ids=["term first", "module first"])
def test_terms_of_parameters_that_no_module_uses(before, hooked, ranks):
    def train(m):
        seen = []
        if hooked:
            m.unused.weight.register_hook(lambda g: seen.append(1))
            m.unused.weight.register_post_accumulate_grad_hook(lambda p: seen.append(2))
        for _ in range(2):
            x = plait.ones(2, 4).double()
            term = m.unused.weight.square().sum() if before else None
            loss = m(x).square().mean()
            (loss + (m.unused.weight.square().sum() if term is None else term)).backward()
        return seen

    def run(rank):
        alone, m = Unused(), fully_shard(Unused())
        want, seen = train(alone), train(m)
        assert seen == want
        for p, q in zip(m.parameters(), alone.parameters(), strict=True):
            assert (p.grad is None) == (q.grad is None)
            assert p.grad is None or plait.allclose(p.grad.full_tensor(), q.grad)

    on_ranks(ranks, run)
