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
from stages import assert_same, batch, block, grads, model, tied

NAMES = pipelining.schedule_names()
DEVICES = ["cpu:0", "cpu:1"]


def whole(m, x, y, loss_fn):
    out = m(x)
    loss = loss_fn(out, y)
    loss.backward()
    return loss.item(), out.detach().numpy(), grads(m)


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
    assert plait.get_rng_state() == after
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


def test_order_is_the_schedules():
    for name in NAMES:
        p = plait.Pipeline(model(), DEVICES, chunks=5, schedule=name, loss_fn=nn.MSELoss())
        p.step(*batch(5))
        spans = sorted(p.timeline().spans, key=lambda s: s.start)
        for device, line in enumerate(str(p.schedule(5)).splitlines()[1:]):
            did = [f"{s.stage}{s.kind}{s.micro}" for s in spans if s.device == device]
            assert did == line.split(","), name


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


def test_hand_written_schedules():
    text = "0F0,0F1,0I0,0B1,0W0\n1F0,1I0,1F1,1W0,1B1"
    x, y = batch(4)
    _, _, want = whole(model(), x, y, nn.MSELoss())
    for schedule in (text, Schedule.parse(text)):
        p = plait.Pipeline(model(), DEVICES, 2, schedule, nn.MSELoss())
        p.step(x, y)
        assert_same(grads(p), want)
    s = Schedule("1f1b", devices=4, micro_batches=8)
    assert str(Schedule.parse(str(s))) == str(s)
    assert Schedule.parse(str(s.with_transfers())).micro_batches == 8
    assert s.placement == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="it deadlocks: device 0 waits at 0B0 for 1B0; device 1 waits at 1F1 for 0F1"):
        Schedule.parse("0F0 0B0 0F1 0B1\n1F0 1F1 1B0 1B1")
    with pytest.raises(ValueError, match="device 0 would keep 8 activations at its peak, and more than its limit of 4"):
        Schedule("gpipe", 4, 8).check_memory(4)
    s.check_memory(4)
    with pytest.raises(ValueError, match='got "2f2b", want one of gpipe, 1f1b'):
        Schedule("2f2b", 2, 2)


def test_predictions_and_pictures():
    s = Schedule("1f1b", devices=4, micro_batches=8)
    t = s.simulate()
    assert t.time == 33
    assert abs(t.bubble - 3 / 11) < 1e-12
    assert t.live == [4, 3, 2, 1]
    assert len(t.spans) == 64
    t = s.simulate(forward=[1, 2, 1, 1], input=1, weight=1, link=0.5, saved=10)
    assert t.peak == [40, 30, 20, 10]
    short = Schedule("gpipe", devices=2, micro_batches=2)
    assert short.simulate(forward=[2, 1], link=1).time == 13
    assert short.simulate(forward=[2, 1], link=1, overlap=False).time == 14
    assert short.simulate(overlap=False).time == short.simulate().time
    assert short.simulate(ties=[([0, 1], 5)]).time == 12  # 5 after stage 1's last pass
    with pytest.raises(ValueError, match="want 4 numbers in forward, got 2"):
        s.simulate(forward=[1, 2])
    with pytest.raises(ValueError, match=r"got a tie of the stages \[0 4\], want some from 0 to 3"):
        s.simulate(ties=[([0, 4], 1)])
    assert s._repr_svg_().startswith("<svg")
    assert s.plot().svg.count("<title>") == 64
    p = plait.Pipeline(model(), DEVICES, 4, loss_fn=nn.MSELoss())
    assert p._repr_svg_().count("<title>") == 16
    p.step(*batch(4))
    svg = p._repr_svg_()
    assert svg.count("<title>") == 32
    assert "1f1b, measured: " in svg
    assert p.timeline().costs().keys() == {"forward", "input", "weight"}


def test_splits():
    layers = [nn.Linear(4, n) for n in (4, 4)] + [nn.Linear(4, 64), nn.Linear(64, 4)]
    p = plait.Pipeline(nn.Sequential(*layers), DEVICES, 2)
    assert [len(p.stage(i)) for i in range(2)] == [3, 1]
    p = plait.Pipeline(nn.Sequential(*layers), DEVICES, 2, split=[1, 3])
    assert [len(p.stage(i)) for i in range(2)] == [1, 3]
    p = plait.Pipeline(nn.Sequential(*layers).cpu(), DEVICES, 2, example=plait.randn(2, 4))
    assert sum(len(p.stage(i)) for i in range(2)) == 4


def test_bad_input():
    mse = nn.MSELoss()
    with pytest.raises(ValueError, match="got 1 layers for 2 stages: a stage needs at least one"):
        plait.Pipeline(model(1), DEVICES, 2)
    with pytest.raises(ValueError, match="at least as many micro-batches as devices, got 1 for 2"):
        plait.Pipeline(model(), DEVICES, 1)
    with pytest.raises(ValueError, match='got "5f1b", want one of'):
        plait.Pipeline(model(), DEVICES, 2, "5f1b")
    with pytest.raises(ValueError, match=r"2 stages that make up 6 layers, got a split of \[1, 1\]"):
        plait.Pipeline(model(), DEVICES, 2, split=[1, 1])
    with pytest.raises(
        TypeError, match=r"want a Sequential, or a list of modules, got Linear, .* or make a PipelineStage"
    ):
        plait.Pipeline(nn.Linear(1, 1), DEVICES, 2)
    with pytest.raises(ValueError, match='must be a "mean" or a "sum" over samples, got \'none\''):
        plait.Pipeline(model(), DEVICES, 2, loss_fn=nn.MSELoss(reduction="none"))
    with pytest.raises(ValueError, match="device 0 would keep 4 activations at its peak, and more than its limit of 2"):
        plait.Pipeline(model(), DEVICES, 4, "gpipe", max_live=2)
    plait.Pipeline(model(), DEVICES, 4, "1f1b", max_live=2)
    p = plait.Pipeline(model(), DEVICES, 2, loss_fn=nn.MSELoss(reduction="none"), reduction="mean")
    with pytest.raises(RuntimeError, match=r"got a loss of shape \[2, 4\]|got a loss of shape \[2 4\], want a scalar"):
        p.step(*batch(4))
    p = plait.Pipeline(model(), DEVICES, 2, loss_fn=mse)
    with pytest.raises(RuntimeError, match="under no_grad"), plait.no_grad():
        p.step(*batch(4))
    with pytest.raises(ValueError, match="without samples"):
        p.step(*batch(0))
    with pytest.raises(ValueError, match="the batch has 4 samples, a tensor of shape"):
        p.step(batch(4)[0], batch(3)[1])
    with pytest.raises(TypeError, match="want a tensor, or tensors in tuples, lists and dicts, got ndarray"):
        p.step(batch(4)[0].numpy(), batch(4)[1])
    with pytest.raises(TypeError, match="want a GradScaler, got int"):
        p.step(*batch(4), scaler=3)
    for wrong_devices in ([], "cpu:0"):
        with pytest.raises(TypeError, match="want a list of devices, got"):
            plait.Pipeline(model(), wrong_devices, 2)
    for chunks in ("4", 4.0, True):
        with pytest.raises(TypeError, match="want a whole number of chunks, got"):
            plait.Pipeline(model(), DEVICES, chunks)
    with pytest.raises(TypeError, match="want a loss_fn that can be called, got 'mse'"):
        plait.Pipeline(model(), DEVICES, 2, loss_fn="mse")
    with pytest.raises(TypeError, match="want a schedule or its name, got None"):
        plait.Pipeline(model(), DEVICES, 2, None)
    with pytest.raises(TypeError, match='split must be "balanced" or numbers of layers, got 3'):
        plait.Pipeline(model(), DEVICES, 2, split=3)
    with pytest.raises(TypeError, match="want a Sequential, or a list of modules, got list of Linear, function"):
        plait.Pipeline([nn.Linear(1, 1), lambda x: x], DEVICES, 2)
    wrong = nn.Sequential(nn.Linear(4, 5), nn.Linear(7, 4))
    with pytest.raises((ValueError, RuntimeError), match=r"got input .2 5. and weight .4 7.") as caught:
        plait.Pipeline(wrong, DEVICES, 2, example=plait.randn(2, 4), split=[1, 1])
    assert caught.value.__notes__ == ["raised in stage 1, which gets [2, 5] from stage 0"]


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
    scalers = [plait.amp.GradScaler(init_scale=1024.0, growth_interval=1) for _ in range(2)]
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


def test_print_shows_stages_and_devices():
    p = plait.Pipeline(nn.Sequential(nn.Linear(4, 2), nn.ReLU(), nn.Tanh()), DEVICES[:2], 4, "zb-h1", split=[1, 2])
    want = """Pipeline(
  schedule=zb-h1, chunks=4, devices=[cpu:0, cpu:1]
  (stage 0, cpu:0): (
    (0): Linear(in_features=4, out_features=2, bias=True)
  )
  (stage 1, cpu:1): (
    (1): ReLU()
    (2): Tanh()
  )
)"""
    assert repr(p) == str(p) == want
    assert repr(copy.deepcopy(p)) == want
    s = Schedule("gpipe", 2, 3)
    assert repr(s) == "<Schedule gpipe: 2 stages on 2 devices, 3 micro-batches>"
    assert repr(s.simulate()) == "<Timeline gpipe: time 12, bubble 25.0 %>"
    assert repr(s.plot()).startswith("<Picture: ")
