"""Pipelines of one thread train as one device does, and say what is wrong with what they are given."""

import copy
import gc
import pickle

import numpy as np
import plait
import pytest
from plait import _core, nn
from plait import distributed as dist
from plait._engine.callbacks import collect
from plait.distributed import pipelining
from plait.distributed.pipelining import Schedule
from plait.utils.checkpoint import checkpoint
from stages import DEVICES, NAMES, assert_same, batch, block, grads, model, tied, whole


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_parity_with_one_device(name, reduction):
    loss_fn = nn.MSELoss(reduction=reduction)
    wants = []
    for n in (8, 10, 5, 3, 1):  # 5 and 10 do not divide by 4, 3 and 1 are fewer than the chunks
        x, y = batch(n)
        wants.append((x, y, whole(model(), x, y, loss_fn)))
    p = plait.Pipeline(model(), DEVICES, chunks=4, schedule=name, loss_fn=loss_fn)
    for x, y, (loss, out, want) in wants:
        got, output = p.step(x, y)
        assert abs(got.item() - loss) < 1e-12
        np.testing.assert_allclose(output.numpy(), out, atol=1e-12)
        assert_same(grads(p), want)
        got, output = p.evaluate(x, y)
        assert abs(got.item() - loss) < 1e-12
        np.testing.assert_allclose(output.numpy(), out, atol=1e-12)
        np.testing.assert_allclose(p(x).numpy(), out, atol=1e-12)
        assert not grads(p)


@pytest.mark.parametrize("name", NAMES)
def test_same_bits_as_a_loop_with_the_same_dropout(name):
    x, y = batch(10)
    m, loss_fn = model(dropout=0.4), nn.MSELoss()
    state = plait.get_rng_state()
    for _ in range(2):
        for fork, a, b in zip(pipelining.forks(4), x.split([3, 3, 2, 2]), y.split([3, 3, 2, 2]), strict=True):
            with fork:
                loss_fn(m(a), b).backward(plait.tensor(len(a) / 10, dtype=plait.float64))
    want, after = grads(m), plait.get_rng_state()
    p = plait.Pipeline(model(dropout=0.4), DEVICES, chunks=4, schedule=name, loss_fn=loss_fn)
    plait.set_rng_state(state)
    for _ in range(2):
        p.step(x, y)
    assert plait.equal(plait.get_rng_state(), after)
    for k, g in grads(p).items():
        assert (g == want[k]).all(), k


def test_trains_and_keeps_the_names():
    x, y = batch(8)
    a, b = model(), model()
    names = list(b.state_dict())
    p = plait.Pipeline(b, DEVICES, chunks=4, loss_fn=nn.MSELoss())
    assert list(p.state_dict()) == names
    assert [n for n, _ in p.named_parameters()] == [n for n, _ in a.named_parameters()]
    assert {str(q.device) for q in p.parameters()} == set(DEVICES)
    for m, step in ((a, lambda: nn.functional.mse_loss(a(x), y).backward()), (p, lambda: p.step(x, y))):
        optimizer = plait.optim.AdamW(m.parameters(), lr=0.01)
        for _ in range(5):
            step()
            nn.utils.clip_grad_norm_(m.parameters(), 0.1)
            optimizer.step()
            optimizer.zero_grad()
    for u, v in zip(a.parameters(), p.parameters(), strict=True):
        np.testing.assert_allclose(u.detach().numpy(), v.detach().numpy(), atol=1e-9)
    p.load_state_dict(a.state_dict())


@pytest.mark.parametrize("name", NAMES)
def test_tied_weights(name):
    x, y = plait.randint(0, 7, (6, 3)), plait.randint(0, 7, (6, 3))

    def loss_fn(out, target):
        return nn.functional.cross_entropy(out.flatten(0, 1), target.flatten())

    a = tied()
    p = plait.Pipeline(tied(), DEVICES, chunks=3, schedule=name, loss_fn=loss_fn)
    assert len(list(a.parameters())) == len(list(p.parameters()))
    optimizers = [plait.optim.SGD(m.parameters(), lr=0.5) for m in (a, p)]
    for _ in range(3):
        a_loss = loss_fn(a(x), y)
        a_loss.backward()
        loss, _ = p.step(x, y)
        assert abs(loss.item() - a_loss.item()) < 1e-12
        norms = [nn.utils.clip_grad_norm_(m.parameters(), 1e9).item() for m in (a, p)]
        assert abs(norms[0] - norms[1]) < 1e-12
        for o in optimizers:
            o.step()
        assert_same(grads(p), grads(a))


def test_nested_values_and_modes_of_layers():
    class Two(nn.Module):
        def forward(self, x):
            assert self.training == (phase == "step")
            return {"a": x["a"] * 2, "b": (x["b"], x["n"])}

    class One(nn.Module):
        def forward(self, v):
            return v["a"] * v["b"][0] + v["b"][1]

    a = plait.randn(4, 3, dtype=plait.float64).requires_grad_()
    p = plait.Pipeline(
        [Two(), nn.Sequential(One(), nn.Linear(3, 1).double())], DEVICES, 2, loss_fn=lambda o, _: o.mean()
    )
    value = {"a": a.detach(), "b": plait.ones(4, 3, dtype=plait.float64), "n": plait.arange(12).reshape(4, 3)}
    phase = "step"
    loss, out = p.step(value)
    assert out.shape == (4, 1)
    p.eval()
    phase = "evaluate"
    again, same = p.evaluate(value)
    assert again is None
    np.testing.assert_allclose(out.numpy(), same.numpy(), atol=1e-12)
    assert abs(loss.item() - out.mean().item()) < 1e-12


@pytest.mark.parametrize("name", ["1f1b", "zb-h1"])
def test_hooks_and_checkpoints_run(name):
    class Again(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner
            self.runs = 0

        def forward(self, x):
            def run(v):
                self.runs += 1
                return self.inner(v)

            return checkpoint(run, x, use_reentrant=False)

    seen = []

    class Twice(plait.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            seen.append("function")
            return g * 2

    class Custom(nn.Module):
        def forward(self, x):
            y = Twice.apply(x)
            y.register_hook(lambda g: seen.append("hook"))
            return y

    def make():
        plait.manual_seed(3)
        return nn.Sequential(Again(block(dropout=0.5)), Custom(), Again(block(dropout=0.5)), nn.Linear(4, 4)).double()

    x, y = batch(4)
    m, loss_fn = make(), nn.MSELoss()
    state = plait.get_rng_state()
    for fork, a, b in zip(pipelining.forks(2), x.split(2), y.split(2), strict=True):
        with fork:
            (loss_fn(m(a), b) / 2).backward()
    want = grads(m)
    plait.set_rng_state(state)
    seen.clear()
    p = plait.Pipeline(make(), DEVICES, 2, name, loss_fn, split=[2, 2])
    p.step(x, y)
    assert_same(grads(p), want)
    assert sorted(seen) == ["function"] * 2 + ["hook"] * 2
    assert [layer.runs for layer in (p[0] if hasattr(p, "__getitem__") else p._modules["0"], p._modules["2"])] == [4, 4]


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "zb-h1"])
@pytest.mark.parametrize("phase", ["forward", "loss", "backward"])
@pytest.mark.parametrize("stage", [0, 1])
def test_faults_name_stage_and_micro_batch(name, phase, stage):
    class Fault(Exception):
        pass

    class Raise(plait.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, g):
            raise Fault("boom")

    calls = [0, 0]
    armed = True

    class Faulty(nn.Module):
        def __init__(self, where):
            super().__init__()
            self.where = where
            self.linear = nn.Linear(4, 4).double()

        def forward(self, x):
            x = self.linear(x)
            calls[self.where] += 1
            if not armed or self.where != stage or calls[stage] != 3:
                return x
            if phase == "forward":
                raise Fault("boom")
            return Raise.apply(x) if phase == "backward" else x

    def loss_fn(out, y):
        if armed and phase == "loss" and calls[1] == 3:
            raise Fault("boom")
        return ((out - y) ** 2).mean()

    p = plait.Pipeline([Faulty(0), Faulty(1)], DEVICES, 4, name, loss_fn)
    with pytest.raises(Fault, match="boom") as caught:
        p.step(*batch(4))
    where = 1 if phase == "loss" else stage
    assert caught.value.__notes__ == [f"raised in stage {where} on cpu:{where}, {phase} of micro-batch 2"]
    armed = False
    p.zero_grad()
    p.step(*batch(4))


def test_failures_of_devices_name_stage_and_micro_batch():
    p = plait.Pipeline([nn.Embedding(5, 4), nn.Linear(4, 4)], DEVICES, 2, loss_fn=lambda o, y: ((o - y) ** 2).mean())
    x = plait.tensor([0, 1, 2, 9])
    with pytest.raises(IndexError, match=r"stage 0 on cpu:0, forward of micro-batch 1: .*9"):
        p.step(x, plait.randn(4, 4))[0].item()


def test_copies_files_and_dtypes():
    x, y = plait.randint(0, 7, (6, 3)), plait.randint(0, 7, (6, 3))

    def loss_fn(out, target):
        return nn.functional.cross_entropy(out.flatten(0, 1), target.flatten())

    p = plait.Pipeline(tied(), DEVICES, 3, "ZB-H1", loss_fn, split=[1, 3])
    loss, _ = p.step(x, y)
    want = grads(p)
    for q in (copy.deepcopy(p), copy.deepcopy(p.eval()).train()):
        assert [len(q.stage(i)) for i in range(2)] == [1, 3]
        assert q.step(x, y)[0].item() == loss.item()
        assert_same(grads(q), want, 0)
    assert not copy.deepcopy(p.eval()).training
    p.train()
    table = next(iter(p.parameters()))
    table.requires_grad_(False)  # so is the other stage's copy
    p.step(x, y)
    assert table.grad is None
    assert_same(grads(p), {n: g for n, g in want.items() if n != "0.weight"}, 0)
    table.requires_grad_()
    for change in (lambda: p.to("cpu:0"), p.float):  # what the stages have stays on their devices
        change()
        assert {str(q.device) for q in p.parameters()} == set(DEVICES)
        assert abs(p.step(x, y)[0].item() - loss.item()) < 1e-6
        assert_same(grads(p), want, 1e-6)
    s = Schedule("zb-v", 2, 4)
    assert str(copy.copy(s)) == str(pickle.loads(pickle.dumps(s))) == str(s)
    with pytest.raises(TypeError, match="cannot be copied or saved"):
        copy.copy(s.simulate())
    m = plait.Pipeline(model(), DEVICES, 4, loss_fn=nn.MSELoss())
    loss, _ = m.step(*(data := batch(8)))
    assert pickle.loads(pickle.dumps(m)).step(*data)[0].item() == loss.item()


def test_an_interrupted_step_leaves_the_pipeline_sound():
    interrupted = False

    class Interrupted(nn.Module):
        def forward(self, v):
            if interrupted:
                raise KeyboardInterrupt
            return v

    x, y = batch(8)
    stages = [block().double(), nn.Sequential(Interrupted(), block().double())]
    p = plait.Pipeline(stages, DEVICES, 4, loss_fn=nn.MSELoss())
    loss, _ = p.step(x, y)
    want = grads(p)
    interrupted = True
    with pytest.raises(KeyboardInterrupt):
        p.step(x, y)
    interrupted = False
    p.zero_grad()
    assert p.step(x, y)[0].item() == loss.item()
    assert_same(grads(p), want, 0)


def test_nothing_is_left_of_a_pipeline():
    def handles():
        gc.collect()
        collect()
        return _core.bind_ObjectCount(), _core.bind_TensorCount()

    def use(name):
        p = plait.Pipeline(tied(), DEVICES, 3, name, lambda out, y: nn.functional.cross_entropy(out.mT, y))
        p.step(plait.randint(0, 7, (6, 3)), plait.randint(0, 7, (6, 3)))
        assert p.timeline().spans
        p.step(plait.randint(0, 7, (6, 3)), plait.randint(0, 7, (6, 3)))
        with pytest.raises(IndexError):
            p.step(plait.full((6, 3), 9), plait.randint(0, 7, (6, 3)))[0].item()

    use("1f1b")
    before = handles()
    for name in ("1f1b", "zb-v"):
        use(name)
    assert handles() == before


def test_replicas_of_a_pipeline():
    x, y = batch(8)
    _, _, want = whole(model(), x, y, nn.MSELoss())
    pipes = [
        plait.Pipeline(model(), devices, 2, loss_fn=nn.MSELoss())
        for devices in (["cpu:0", "cpu:1"], ["cpu:2", "cpu:3"])
    ]
    for p, a, b in zip(pipes, x.split(4), y.split(4), strict=True):
        p.step(a, b)
    dist.all_reduce_sync([[q.grad for q in p.parameters()] for p in pipes])
    for p in pipes:
        assert_same(grads(p), want)


@pytest.mark.parametrize("name", NAMES)
def test_scaled_gradients(name):
    x, y = batch(6)
    a = model()
    p = plait.Pipeline(model(), DEVICES, 3, name, nn.MSELoss())
    scalers = [plait.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=1) for _ in range(2)]
    optimizers = [plait.optim.SGD(m.parameters(), lr=0.1) for m in (a, p)]
    for step in range(3):
        want = nn.functional.mse_loss(a(x), y)
        scalers[0].scale(want).backward()
        loss, _ = p.step(x, y, scaler=scalers[1])
        assert abs(loss.item() - want.item()) < 1e-12
        if step == 1:  # one bad gradient, on one of the devices, leaves the step out
            for m in (a, p):
                list(m.parameters())[-1].grad[0] = float("inf")
        for s, o in zip(scalers, optimizers, strict=True):
            s.step(o)
            s.update()
            o.zero_grad()
        assert scalers[0].get_scale() == scalers[1].get_scale() == (2048, 1024, 2048)[step]
    for u, v in zip(a.parameters(), p.parameters(), strict=True):
        np.testing.assert_allclose(u.detach().numpy(), v.detach().numpy(), atol=1e-12)
