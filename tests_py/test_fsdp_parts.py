"""Parameters of FSDP while they are divided: operations and optimisers on them, and hooks on their gradients."""

import copy

import numpy as np
import plait
import pytest
from plait import nn
from plait.distributed.fsdp import FSDP, MixedPrecisionPolicy, fully_shard
from plait.nn.utils import clip_grad_norm_, get_total_norm, parameters_to_vector
from plait.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from plait.utils.checkpoint import checkpoint
from ranks import on_ranks


def model():
    plait.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 7), nn.Tanh(), nn.Linear(7, 2))


def batch(step, rows=range(6)):
    x = np.random.default_rng(step).standard_normal((6, 4))[list(rows)]
    return plait.tensor(x), plait.tensor(np.sin(x[:, :2]))


def backward(m, step, rank=0, world=1):
    each = 6 // world
    x, y = batch(step, range(rank * each, (rank + 1) * each))
    (m(x) - y).square().mean().backward()


def spawn(fn, nprocs=3):
    def run(rank):
        plait.set_default_dtype(plait.float64)
        fn(rank)

    on_ranks(nprocs, run)


def alone(fn):
    plait.set_default_dtype(plait.float64)
    try:
        return fn()
    finally:
        plait.set_default_dtype(plait.float32)


def divided():
    m = model()
    fully_shard(m[0])
    return fully_shard(m)


def same(m, want, tol=1e-9):
    for p, w in zip(m.parameters(), want, strict=True):
        np.testing.assert_allclose(p.full_tensor().detach().numpy(), w, rtol=tol, atol=tol / 1000)


def values(m):
    return [p.detach().numpy().copy() for p in m.parameters()]


WHOLES = {
    "lbfgs": lambda ps: plait.optim.LBFGS(ps, lr=0.5, max_iter=3, line_search_fn="strong_wolfe"),
    "adafactor": lambda ps: plait.optim.Adafactor(ps, lr=0.05),
    "muon": lambda ps: plait.optim.Muon([p for p in ps if p.dim() == 2], lr=0.02),
}


@pytest.mark.parametrize("name", WHOLES)
def test_optimisers_of_whole_parameters(name):
    """They step as on one device, also while parameters are gathered; made before the model is divided, they refuse."""

    def train(m, rank=0, world=1, before_step=lambda: None):
        opt = WHOLES[name](list(m.parameters()))
        for s in range(3):

            def closure(s=s):
                opt.zero_grad()
                backward(m, s, rank, world)
                loss = (m(batch(s)[0]) - batch(s)[1]).square().mean()  # the same on all ranks
                before_step()
                return loss

            opt.step(closure) if name == "lbfgs" else (closure(), opt.step())
        return m

    want = alone(lambda: values(train(model())))

    def run(rank):
        same(train(divided(), rank, 3), want, 1e-6 if name == "muon" else 1e-9)
        if name != "lbfgs":  # which reads the loss between its steps
            m = divided()
            train(m, rank, 3, before_step=m.unshard)
            m.reshard()
            same(m, want, 1e-6 if name == "muon" else 1e-9)
        late = model()
        opt = WHOLES[name](list(late.parameters()))
        fully_shard(late)
        backward(late, 0, rank, 3)
        with pytest.raises(RuntimeError, match="sharded over ranks"):
            opt.step(lambda: plait.tensor(0.0))

    spawn(run)


def test_operations_on_shards_see_the_whole():
    def first():
        return model()[0].weight.detach()

    whole = alone(first)

    def run(rank):
        m = divided()
        backward(m, 0, rank, 3)
        p = m[0].weight
        works = {
            "norm": lambda t: t.norm(),
            "mean": lambda t: plait.mean(t * 2),
            "max": lambda t: t.abs().max(),
            "matmul": lambda t: t @ t.T,
            "view": lambda t: t.view(-1),
            "index": lambda t: t[0],
            "all": lambda t: t.isfinite().all(),
            "cat": lambda t: plait.cat([t, t]),
            "softmax": lambda t: t.softmax(0),
            "vector_norm": plait.linalg.vector_norm,
            "vector": lambda t: parameters_to_vector([t]),
        }
        with plait.no_grad():
            for name, fn in works.items():
                for of in (p, p.detach(), p.clone(), p.data):
                    got = fn(of).full_tensor().numpy()
                    np.testing.assert_allclose(got, fn(whole).numpy(), rtol=1e-12, err_msg=name)
            assert plait.randn_like(p).placements == p.placements
            with pytest.raises(TypeError, match="ordinary tensor of shape"):
                p.detach() + plait.zeros(7, 4)
        with pytest.raises(RuntimeError, match="parameter weight is sharded over ranks and is not gathered"):
            p @ plait.zeros(4, 2)
        assert p.numel() == p.detach().numel() == p.grad.numel() == 28
        assert p.shape == p.grad.shape == (7, 4)
        assert p.to_local().shape == p.grad.to_local().shape == ([3, 3, 1][rank], 4)
        want = sum(q.grad.full_tensor().square().sum() for q in m.parameters()) ** 0.5
        assert get_total_norm([q.grad for q in m.parameters()]).item() == pytest.approx(want.item(), rel=1e-12)
        np.testing.assert_allclose(clip_grad_norm_(m.parameters(), 1e-3).item(), want.item(), rtol=1e-9)
        m.unshard()
        assert m[2].weight.norm() > 0
        m.reshard()
        for order in (0, float("-inf")):
            want = get_total_norm([q.grad.full_tensor() for q in m.parameters()], order)
            assert clip_grad_norm_(m.parameters(), 1e9, order).item() == pytest.approx(want.item(), rel=1e-12)
        with plait.no_grad():
            for view in (p[3], p.detach()[3], p[3].data, p[2:6][1:3], p.view(-1)[:4], p.chunk(2)[1].data):
                with pytest.raises(RuntimeError, match="the change would be lost"):
                    view.zero_()

    spawn(run)


def test_norms_of_zeros_have_gradients_of_zeros():
    def run(rank):
        m = divided()
        with plait.no_grad():
            for p in m.parameters():
                p.zero_()
        for order in (2, 3):
            m.zero_grad()
            sum(p.norm(order) for p in m.parameters()).backward()
            assert all((p.grad.full_tensor() == 0).all() for p in m.parameters())

    spawn(run)


def test_backward_does_not_read_memory_that_was_freed():
    def run(rank):
        m = divided()
        with pytest.raises(RuntimeError, match="whose storage was emptied"):  # a slower rank hears of another's error
            m[0].unshard()
            square = (m[0].weight * m[0].weight).sum()
            m[0].reshard()
            square.backward()

    spawn(run)


def test_terms_of_parameters_in_the_loss():
    """Parameters in the loss, outside of the modules that gather them, as in L2 terms."""

    def train(m, rank=0, world=1):
        opt = plait.optim.Adam(m.parameters(), lr=0.05)
        each = 6 // world
        for s in range(4):
            x, y = batch(s, range(rank * each, (rank + 1) * each))
            opt.zero_grad()
            loss = (m(x) - y).square().mean()
            if s != 1:
                loss = loss + sum(0.1 * p.square().sum() + 0.05 * p.norm() for p in m.parameters())
            loss.backward()
            opt.step()
        return m

    want = alone(lambda: values(train(model())))

    def run(rank):
        for make in MADE.values():
            same(train(make(), rank, 3), want)

    spawn(run)


class Momentum(plait.optim.Optimizer):
    """Element by element; with `trust`, by the ratio of norms of whole parameters."""

    def __init__(self, params, trust=False):
        super().__init__(params, {"lr": 0.1, "trust": trust})

    @plait.no_grad()
    def step(self):
        for g in self.param_groups:
            for p in g["params"]:
                b = self.state[p].setdefault("b", plait.zeros_like(p))
                b.mul_(0.9).add_(p.grad + 0.01 * p)
                rate = p.norm() / b.norm() if g["trust"] else 1.0
                p.add_(b * rate, alpha=-g["lr"])


@pytest.mark.parametrize("trust", [False, True])
def test_optimisers_of_ones_own(trust):
    def train(m, rank=0, world=1):
        opt = Momentum(m.parameters(), trust)
        for s in range(3):
            opt.zero_grad()
            backward(m, s, rank, world)
            opt.step()
        return values(m) if world == 1 else m

    want = alone(lambda: train(model()))

    def run(rank):
        m = train(divided(), rank, 3)
        same(m, want)
        adam = plait.optim.Adam(m.parameters())
        adam.step()
        average = adam.state[m[0].weight]["exp_avg"]
        assert average.norm().item() == pytest.approx(average.full_tensor().norm().item(), rel=1e-12)

    spawn(run)


def test_averages_of_models():
    def train(m, average, rank=0, world=1):
        opt = plait.optim.SGD(m.parameters(), lr=0.1)
        for s in range(3):
            opt.zero_grad()
            backward(m, s, rank, world)
            opt.step()
            average.update_parameters(m)
        return average

    def made(m):
        return AveragedModel(m, multi_avg_fn=get_ema_multi_avg_fn(0.9))

    def one():
        m = model()
        return values(train(m, made(m)))

    want = alone(one)

    def run(rank):
        m = model()
        average = made(m)
        fully_shard(m)
        fully_shard(average.module)
        same(train(m, average, rank, 3), want)
        with pytest.raises(TypeError, match="shard the copy too"):
            copy.deepcopy(m[0].weight)
        with pytest.raises(TypeError, match="is an ordinary tensor of shape"):
            made(model()).update_parameters(m)

    spawn(run)


def clamped(m, seen):
    """Limits gradients by hooks, some of which change nothing."""
    for i, p in enumerate(m.parameters()):
        p.register_hook(lambda g: g.clamp(-0.05, 0.05))
        p.register_hook(lambda g: None)
        p.register_hook(lambda g: g * 0).remove()

        def after(q, i=i, p=p):
            assert q is p
            assert q.grad is not None
            seen.append(i)

        p.register_post_accumulate_grad_hook(after)
    return m


def stepping(m):
    """Makes each parameter step, and drop its gradient, as soon as it has one."""
    for p in m.parameters():
        opt = plait.optim.SGD([p], lr=0.1, momentum=0.9)

        def step(q, opt=opt):
            opt.step()
            q.grad = None

        p.register_post_accumulate_grad_hook(step)
    return m


def hooked(m, steps, rank=0, world=1):
    opt = plait.optim.SGD(m.parameters(), lr=0.1, momentum=0.9)
    for s in range(3):
        for k in range(steps):  # gradients add up
            backward(m, s + k, rank, world)
        opt.step()
        opt.zero_grad()
    return values(m) if world == 1 else m


MADE = {
    "units": divided,
    "one unit": lambda: fully_shard(model()),
    "kept": lambda: fully_shard(model(), reshard_after_forward=False),
    "policy": lambda: FSDP(model(), auto_wrap_policy={nn.Linear}),
}


@pytest.mark.parametrize("how", MADE)
def test_hooks_on_gradients(how):
    """They see the averaged gradient; those that run after it can step and drop it."""
    order: list = []
    want = alone(lambda: hooked(clamped(model(), order), 2))
    stepped = alone(lambda: hooked(stepping(model()), 1))

    def run(rank):
        seen = []
        same(hooked(clamped(MADE[how](), seen), 2, rank, 3), want)
        assert sorted(seen) == sorted(order)
        same(hooked(stepping(MADE[how]()), 1, rank, 3), stepped)
        m = MADE[how]()
        units = [x for x in m.modules() if hasattr(x, "unshard")]
        for x in units:
            x.unshard()
        clamped(m, [])
        for x in units:
            x.reshard()
        same(hooked(m, 2, rank, 3), want)

    spawn(run)


class Twice(nn.Module):
    """One layer in two reentrant checkpoints: its gradients come in two passes of backward."""

    def __init__(self):
        super().__init__()
        plait.manual_seed(0)
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        for _ in range(2):
            x = checkpoint(self.layer, x.tanh(), use_reentrant=True)
        return x[:, :2]


@pytest.mark.parametrize("lowered", [False, True])
def test_hooks_see_the_sum_of_passes(lowered):
    """Ranks reduce a parameter's gradient once, and hooks see that, where one device adds up a part from each pass."""
    parts: list = []

    def one():
        m = Twice()
        m.layer.weight.register_hook(lambda g: parts.append(g.numpy().copy()))
        x, y = batch(0)
        (m(x.requires_grad_()) - y).square().mean().backward()

    alone(one)
    assert len(parts) == 2

    def run(rank):
        dtype = plait.float32 if lowered else None
        m, seen = fully_shard(Twice(), mp_policy=MixedPrecisionPolicy(param_dtype=dtype)), []
        weight = m.layer.weight
        weight.register_hook(lambda g: seen.append(g.to_local().numpy().copy()))
        x, y = batch(0, range(2 * rank, 2 * rank + 2))
        (m(x.requires_grad_()) - y).square().mean().backward()
        (got,) = seen
        tol = 1e-6 if lowered else 1e-12
        np.testing.assert_allclose(weight.grad.full_tensor().numpy(), sum(parts), rtol=tol, atol=tol)
        np.testing.assert_array_equal(got, weight.grad.to_local().numpy())

    spawn(run)


def test_hooks_from_before_a_model_is_divided():
    order: list = []
    want = alone(lambda: hooked(clamped(model(), order), 2))

    def run(rank):
        seen = []
        m = clamped(model(), seen)
        fully_shard(m[0])
        same(hooked(fully_shard(m), 2, rank, 3), want)
        assert sorted(seen) == sorted(order)

    spawn(run)


def test_hooks_wait_for_synchronisation():
    def run(rank):
        m, seen = FSDP(model()), []
        p = m[0].weight
        p.register_post_accumulate_grad_hook(lambda q: seen.append(q.grad.full_tensor().numpy()))
        with m.no_sync():
            backward(m, 0, rank, 3)
        assert seen == []
        backward(m, 1, rank, 3)
        want = model()
        backward(want, 0)
        backward(want, 1)
        (got,) = seen
        np.testing.assert_allclose(got, want[0].weight.grad.numpy(), rtol=1e-9, atol=1e-12)

        def broken(g):
            raise KeyError("of the hook")

        hook = p.register_hook(broken)
        with pytest.raises(KeyError, match="of the hook"):
            backward(m, 0, rank, 3)
        hook.remove()
        p.register_hook(lambda g: g.to_local())
        with pytest.raises(TypeError, match=r"register_hook: want a distributed tensor or None, got Tensor"):
            backward(m, 0, rank, 3)

    spawn(run)


def penalised(m, rank=0, world=1):
    """A penalty on the gradient of the input, as of a critic."""
    each = 6 // world
    x, y = batch(0, range(rank * each, (rank + 1) * each))
    x.requires_grad = True
    out = m(x)
    (g,) = plait.autograd.grad(out.square().sum(), x, create_graph=True)
    (g.square().sum(1).mean() + (out - y).square().mean()).backward()
    return m


@pytest.mark.parametrize("how", MADE)
def test_gradients_of_gradients(how):
    want = alone(lambda: [p.grad.numpy().copy() for p in penalised(model()).parameters()])

    def run(rank):
        m = MADE[how]()
        before = plait.memory_stats(f"cpu:{rank}")["current.communication"]
        penalised(m, rank, 3)
        for p, w in zip(m.parameters(), want, strict=True):
            np.testing.assert_allclose(p.grad.full_tensor().numpy(), w, rtol=1e-9, atol=1e-12)
        assert plait.memory_stats(f"cpu:{rank}")["current.communication"] <= before
        m.zero_grad()
        x, y = batch(0)
        with pytest.raises(NotImplementedError, match=r"weight of .* its gradient cannot be differentiated again"):
            (m(x) - y).square().mean().backward(create_graph=True)

    spawn(run)
