"""Computing activations again in backward."""

import copy
import gc
from array import array
from contextlib import contextmanager, nullcontext

import plait
import plait.autograd
import pytest
from plait import _core, nn
from plait._engine import callbacks as _kept
from plait._engine.runtime import address
from plait.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    CheckpointImpl,
    CheckpointWrapper,
    apply_activation_checkpointing,
    checkpoint_wrapper,
)
from plait.distributed.fsdp import fully_shard
from plait.distributed.fsdp.wrap import ModuleWrapPolicy
from plait.utils.checkpoint import CheckpointError, checkpoint, checkpoint_sequential, set_checkpoint_early_stop
from ranks import on_ranks


def used():
    now, peak = array("q", [0]), array("q", [0])
    _core.bind_MemoryUsed(0, -1, 0, address(now), address(peak))  # activations
    return now[0]


def collect():
    """Frees what neither Python nor the engine uses any more, also of earlier tests."""
    gc.collect()
    assert _core.bind_MemoryReclaim() >= 0


def weights(n=1, size=4):
    plait.manual_seed(0)
    return [(plait.rand(size, size, dtype=plait.float64) - 0.5).requires_grad_() for _ in range(n)]


def test_gradients_are_the_same():
    (w,) = weights()
    x = plait.ones(2, 4, dtype=plait.float64).requires_grad_()

    def f(x, scale, extra=None):
        return plait.tanh(x @ w) * scale, plait.sigmoid(x)

    a, b = f(x, 2.0)
    (a.sum() + b.sum()).backward()
    want = x.grad.tolist(), w.grad.tolist()
    x.grad = w.grad = None
    a, b = checkpoint(f, x, 2.0, use_reentrant=False, extra=1)
    (a.sum() + b.sum()).backward()
    assert (x.grad.tolist(), w.grad.tolist()) == want


def test_no_argument_needs_a_gradient():
    (w,) = weights()
    x = plait.ones(2, 4, dtype=plait.float64)
    checkpoint(lambda x: x @ w, x).sum().backward()
    assert w.grad.tolist() == [[2.0] * 4] * 4


def test_random_numbers_are_drawn_again():
    x = plait.ones(64, dtype=plait.float64).requires_grad_()
    masks = []

    def noisy(x):
        mask = plait.rand(64, dtype=plait.float64)
        masks.append(mask)
        return x * mask

    y = checkpoint(noisy, x)
    after = plait.rand(1).item()
    y.sum().backward()
    assert masks[0].tolist() == masks[1].tolist() == x.grad.tolist()
    plait.rand(1)
    assert after != plait.rand(1).item()


def test_activations_are_not_kept():
    ws = weights(8, 64)

    def layer(i):
        return lambda x: plait.tanh(plait.tanh(plait.tanh(x @ ws[i]))) * 2

    layers = [layer(i) for i in range(8)]
    x = plait.ones(256, 64, dtype=plait.float64)

    def kept(run):
        before = used()
        y = run(x)
        held = used() - before
        y.sum().backward()
        return held

    plain = kept(lambda x: checkpoint_sequential(layers, 1, x))
    grads = [w.grad.clone() for w in ws]
    for w in ws:
        w.grad = None
    assert kept(lambda x: checkpoint_sequential(layers, 4, x)) < 0.55 * plain
    for w, g in zip(ws, grads, strict=True):
        assert plait.allclose(w.grad, g)


def test_the_older_kind():
    (w,) = weights()
    x = plait.ones(2, 4, dtype=plait.float64).requires_grad_()
    y = checkpoint(lambda x, k: x @ w * k, x, 3.0, use_reentrant=True)
    with pytest.raises(RuntimeError, match="use_reentrant=True"):
        plait.autograd.grad(y.sum(), x)
    y.sum().backward()
    assert w.grad.tolist() == [[6.0] * 4] * 4
    assert plait.allclose(x.grad, 3 * w.detach().sum(1).expand(2, 4))
    with pytest.raises(ValueError, match="scale"):
        checkpoint(plait.tanh, x, use_reentrant=True, scale=1)
    with pytest.raises(ValueError, match="context_fn"):
        checkpoint(plait.tanh, x, use_reentrant=True, context_fn=lambda: (nullcontext(), nullcontext()))
    with pytest.warns(UserWarning, match="None of the inputs"):
        checkpoint(plait.tanh, x.detach(), use_reentrant=True)


def test_every_kind_of_pass():
    (w,) = weights()
    x = plait.ones(2, 4, dtype=plait.float64).requires_grad_()

    def f(x, *, k):
        return plait.tanh(x @ w).exp() * k

    def second(y):
        gx, gw = plait.autograd.grad(y.sum(), (x, w), create_graph=True)
        return [gx, gw, *plait.autograd.grad((gx**2).sum() + (gw**2).sum(), (x, w))]

    k = plait.tensor(2.0, dtype=plait.float64, requires_grad=True)
    want = second(f(x, k=k))
    for g, h in zip(second(checkpoint(f, x, k=k, use_reentrant=False)), want, strict=True):
        assert plait.allclose(g, h)
    y = checkpoint(f, x, k=k, use_reentrant=False).sum()
    y.backward(inputs=[k], retain_graph=True)
    assert plait.allclose(k.grad * 2, f(x, k=k).sum())
    assert x.grad is None
    y.backward(retain_graph=True)
    y.backward()
    assert plait.allclose(x.grad, 2 * want[0])
    with pytest.raises(RuntimeError, match="freed"):
        y.backward()


def test_nested_checkpoints():
    ws = weights(3)
    calls = []

    def layer(i):
        def run(x):
            calls.append(i)
            return plait.tanh(x @ ws[i]).exp()

        return run

    def inner(x):
        return checkpoint(layer(1), checkpoint(layer(0), x, use_reentrant=False), use_reentrant=False)

    def outer(x):
        return layer(2)(checkpoint(inner, x, use_reentrant=False))

    x = plait.ones(2, 4, dtype=plait.float64).requires_grad_()
    layer(2)(layer(1)(layer(0)(x))).sum().backward()
    want = [t.grad for t in (x, *ws)]
    for t in (x, *ws):
        t.grad = None
    calls.clear()
    checkpoint(outer, x, use_reentrant=False).sum().backward()
    for t, g in zip((x, *ws), want, strict=True):
        assert plait.allclose(t.grad, g)
    assert calls[:3] == [0, 1, 2]
    assert len(calls) > 6


def test_functions_of_their_own_kind_inside():
    class Cube(plait.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return 3 * x**2 * g

    x = plait.full((2,), 2.0, dtype=plait.float64).requires_grad_()
    before = used()
    y = checkpoint(lambda x: Cube.apply(x * 2), x, use_reentrant=False)
    assert used() - before == y.nbytes or used() - before <= 2 * 64
    y.sum().backward()
    assert x.grad.tolist() == [96.0, 96.0]


def test_the_second_run_ends_early():
    x = plait.ones(2, dtype=plait.float64).requires_grad_()
    log = []

    def f(x):
        y = x.exp()
        log.append("after")
        return y

    checkpoint(f, x, use_reentrant=False).sum().backward()
    assert log == ["after"]
    checkpoint(f, x, use_reentrant=False, early_stop=False).sum().backward()
    with set_checkpoint_early_stop(False):
        y = checkpoint(f, x, use_reentrant=False)
    y.sum().backward()
    assert len(log) == 5


def test_contexts_of_both_runs():
    log = []

    @contextmanager
    def noted(name):
        log.append(name)
        yield
        log.append("end of " + name)

    x = plait.ones(2, dtype=plait.float64).requires_grad_()
    y = checkpoint(plait.exp, x, use_reentrant=False, context_fn=lambda: (noted("first"), noted("second")))
    assert log == ["first", "end of first"]
    y.sum().backward()
    assert log[2:3] == ["second"]


def test_functions_that_do_not_compute_the_same():
    x = plait.ones(2, dtype=plait.float64).requires_grad_()

    def changing(first, second):
        runs = []

        def f(x):
            runs.append(1)
            return first(x) if len(runs) == 1 else second(x)

        return f

    def fewer(x):
        return x.exp() * 1

    def more(x):
        return x.exp().exp()

    def shorter(x):
        return x[:1].exp().expand(2)

    with pytest.raises(CheckpointError, match="different number of tensors"):
        checkpoint(changing(more, fewer), x, use_reentrant=False).sum().backward()
    with pytest.raises(CheckpointError, match="more values"):
        checkpoint(changing(fewer, more), x, use_reentrant=False, early_stop=False).sum().backward()
    with pytest.raises(CheckpointError, match="different metadata"):
        checkpoint(changing(fewer, shorter), x, use_reentrant=False).sum().backward()
    same = checkpoint(changing(fewer, fewer), x, use_reentrant=False, determinism_check="none")
    same.sum().backward()
    with pytest.raises(ValueError, match="determinism_check"):
        checkpoint(plait.exp, x, use_reentrant=False, determinism_check="some")
    changed = x * 1
    y = checkpoint(plait.exp, changed, use_reentrant=False)
    changed.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace"):
        y.sum().backward()


def test_nothing_stays_behind():
    x = plait.ones(64, dtype=plait.float64).requires_grad_()
    collect()
    keys, objects, before = _kept.kept_count(), _core.bind_ObjectCount(), used()
    for _ in range(20):
        y = checkpoint(lambda x: (x * 2).exp().exp(), x, use_reentrant=False).sum()
        y.backward(retain_graph=True)
        plait.autograd.grad(y, x)
        checkpoint(lambda x: (x * 2).exp().exp(), x, use_reentrant=False)
    del y
    x.grad = None
    collect()
    assert (_kept.kept_count(), _core.bind_ObjectCount(), used()) == (keys, objects, before)


def test_without_gradients():
    x = plait.ones(2).requires_grad_()
    with plait.no_grad():
        assert not checkpoint(plait.tanh, x).requires_grad


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.runs = nn.Linear(4, 4), 0

    def forward(self, x, scale=None):
        self.runs += 1
        return x + self.linear(x).tanh() * scale


class Blocks(nn.Module):
    def __init__(self):
        super().__init__()
        plait.manual_seed(0)
        self.blocks = nn.ModuleList(Block() for _ in range(2))

    def forward(self, x):
        for b in self.blocks:
            x = b(x, scale=plait.tensor(2.0))
        return x


@pytest.mark.parametrize(
    "picks",
    [
        {"check_fn": lambda m: isinstance(m, Block)},
        {"auto_wrap_policy": ModuleWrapPolicy([Block])},
        {
            "check_fn": lambda m: isinstance(m, Block),
            "checkpoint_wrapper_fn": lambda m: checkpoint_wrapper(m, checkpoint_impl=CheckpointImpl.REENTRANT),
        },
    ],
)
def test_modules_as_checkpoints(picks):
    m, want = Blocks(), Blocks()
    names = list(m.state_dict())
    apply_activation_checkpointing(m, **picks)
    assert list(m.state_dict()) == names == [n for n, _ in m.named_parameters()]
    assert all(isinstance(b, Block) and isinstance(b, CheckpointWrapper) for b in m.blocks)
    assert not isinstance(m, CheckpointWrapper)
    m = copy.deepcopy(m)
    for each in (m, want):
        each(plait.ones(3, 4).requires_grad_()).square().sum().backward()
    assert [b.runs for b in m.blocks] == [2, 2]
    for p, q in zip(m.parameters(), want.parameters(), strict=True):
        assert p.grad.tolist() == q.grad.tolist()


def test_modules_as_checkpoints_say_what_is_wrong():
    m = nn.Linear(2, 2)
    for wrong, what in (((3,), "want a module, got int"), ((m, "reentrant"), "want a CheckpointImpl")):
        with pytest.raises(TypeError, match=what):
            checkpoint_wrapper(*wrong)
    seen = []

    def own(function, *args, **kwargs):
        seen.append(kwargs)
        return function(*args)

    assert checkpoint_wrapper(m, checkpoint_fn=own, debug=True) is m
    m(plait.ones(1, 2))
    assert seen == [{"debug": True}]


@pytest.mark.parametrize("first", ["checkpoints", "shards"])
def test_divided_modules_as_checkpoints(first):
    def train(rank, again):
        m = Blocks()
        for step in ("checkpoints", "shards") if first == "checkpoints" else ("shards", "checkpoints"):
            if step == "shards":
                for b in m.blocks:
                    fully_shard(b)
                fully_shard(m)
            elif again:
                apply_activation_checkpointing(m, check_fn=lambda m: isinstance(m, Block))
        m(plait.ones(3, 4) * (rank + 1)).square().sum().backward()
        assert [b.runs for b in m.blocks] == [1 + again] * 2
        return [p.grad.full_tensor().tolist() for p in m.parameters()]

    assert on_ranks(2, train, True) == on_ranks(2, train, False)
