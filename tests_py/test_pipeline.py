"""Pipelines train as one device does, for every schedule, and say what is wrong with what they are given."""

import copy
import pickle

import numpy as np
import plait
import pytest
from plait import distributed as dist
from plait import nn
from plait.distributed import pipelining
from plait.distributed.fsdp import fully_shard
from plait.distributed.pipelining import PipelineStage, Schedule, SplitPoint
from plait.utils.checkpoint import checkpoint

NAMES = pipelining.schedule_names()
DEVICES = ["cpu:0", "cpu:1"]


def block(width=4, dropout=0.0):
    return nn.Sequential(nn.Linear(width, width), nn.LayerNorm(width), nn.Tanh(), nn.Dropout(dropout))


def model(layers=6, **kwargs):
    plait.manual_seed(5)
    return nn.Sequential(*(block(**kwargs) for _ in range(layers))).double()


def batch(n, width=4):
    return plait.randn(n, width, dtype=plait.float64), plait.randn(n, width, dtype=plait.float64)


def grads(m):
    out = {n: p.grad.numpy().copy() for n, p in m.named_parameters() if p.grad is not None}
    m.zero_grad()
    return out


def assert_same(got, want, tolerance=1e-12):
    assert got.keys() == want.keys()
    for name, g in got.items():
        np.testing.assert_allclose(g, want[name], rtol=0, atol=tolerance, err_msg=name)


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


class Head(nn.Module):
    def __init__(self, weight):
        super().__init__()
        self.weight = weight

    def forward(self, x):
        return x @ self.weight.T


def tied():
    plait.manual_seed(2)
    embedding = nn.Embedding(7, 4)
    return nn.Sequential(embedding, block(), block(), Head(embedding.weight)).double()


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
    with pytest.raises(ValueError, match="want 4 numbers in forward, got 2"):
        s.simulate(forward=[1, 2])
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
    with pytest.raises(TypeError, match="want a Sequential, or a list of modules, got Linear"):
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


CLASSES = ["GPipe", "1F1B", "Interleaved1F1B", "LoopedBFS", "InterleavedZeroBubble", "ZBVZeroBubble"]


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize("scale", [True, False])
def test_schedules_of_ranks(name, scale):
    cls = pipelining.get_schedule_class(name)
    ranks, m = 2, 4
    chunks = 1 if name in ("GPipe", "1F1B", "InterleavedZeroBubble") else 2
    x, y = batch(10)
    reference = model(ranks * chunks)
    sizes = [3, 3, 2, 2]
    for a, b in zip(x.split(sizes), y.split(sizes), strict=True):
        loss = nn.functional.mse_loss(reference(a), b)
        loss.backward(plait.tensor(len(a) / 10 if scale else 1.0, dtype=plait.float64))
    with plait.no_grad():
        out = reference(x).numpy()
    want, got, results = grads(reference), {}, {}

    def run(rank):
        dist.init_process_group()
        pipe = pipelining.pipeline(
            model(ranks * chunks).to("cpu:0"),
            (x[:1],),
            split_spec={str(i): SplitPoint.BEGINNING for i in range(1, ranks * chunks)},
        )
        mine = [i for i, r in enumerate(pipelining._stages.placement(cls._name, ranks, chunks)) if r == rank]
        stages = [pipe.build_stage(i, f"cpu:{rank}") for i in mine]
        schedule = cls(stages if chunks > 1 else stages[0], m, nn.MSELoss(), scale_grads=scale)
        losses = []
        last = any(s.is_last for s in stages)
        args = (x,) if any(s.is_first for s in stages) else ()
        kwargs = {"target": y, "losses": losses} if last else {}
        result = schedule.step(*args, **kwargs)
        again = schedule.eval(*args)
        if last:
            results.update(out=result.numpy(), eval=again.numpy(), losses=len(losses))
        else:
            assert result is None
        for s in stages:
            got.update({n: p.grad.numpy().copy() for n, p in s.submod.named_parameters()})

    dist.spawn(run, nprocs=ranks)
    assert_same(got, want)
    np.testing.assert_allclose(results["out"], out, atol=1e-12)
    np.testing.assert_allclose(results["eval"], out, atol=1e-12)
    assert results["losses"] == m


def test_ranks_say_what_is_wrong():
    def run(rank):
        dist.init_process_group()
        stage = PipelineStage(nn.Linear(4, 4), rank, 2, f"cpu:{rank}")
        with pytest.raises(ValueError, match=r"number of microbatches \(1\) must be greater than or equal"):
            pipelining.Schedule1F1B(stage, 1)
        with pytest.raises(ValueError, match="out of range of 2 stages"):
            PipelineStage(nn.Linear(4, 4), 2, 2, "cpu:0")
        with pytest.raises(ValueError, match="zb-v has 2 stages on each device, got 1"):
            pipelining.ScheduleZBVZeroBubble(stage, 4)
        with pytest.raises(ValueError, match=r"must have the stages .*got"):
            pipelining.Schedule1F1B(PipelineStage(nn.Linear(4, 4), 1 - rank, 2, f"cpu:{rank}"), 2)
        s = pipelining.Schedule1F1B(stage, 2, nn.MSELoss())
        with pytest.raises(TypeError, match="losses must be a list but got a tuple"):
            s.step(losses=())
        with pytest.raises(RuntimeError, match="requires gradients to be enabled"), plait.no_grad():
            s.step()
        for wrong in (None, [], nn.Linear(1, 1)):
            with pytest.raises(TypeError, match="want a PipelineStage, or a list of some, got"):
                pipelining.Schedule1F1B(wrong, 2)
        with pytest.raises(TypeError, match="want a whole number of microbatches, got '2'"):
            pipelining.Schedule1F1B(stage, "2")
        with pytest.raises(TypeError, match="want a loss_fn that can be called, got 'mse'"):
            pipelining.Schedule1F1B(stage, 2, "mse")
        with pytest.raises(TypeError, match="PipelineStage: want a module, got str"):
            PipelineStage("m", 0, 2, "cpu:0")
        with pytest.raises(TypeError, match="want whole numbers of stages, got '0' of 2"):
            PipelineStage(nn.Linear(4, 4), "0", 2, "cpu:0")
        if rank == 0:
            with pytest.raises(ValueError, match="the target goes to the rank with the last stage"):
                s.step(plait.randn(4, 4), target=plait.randn(4, 4))
            with pytest.raises(ValueError, match="which got none"):
                s.step()
            with pytest.raises(ValueError, match="got 1 samples for 2 microbatches"):
                s.step(plait.randn(1, 4))
        else:
            with pytest.raises(ValueError, match="the batch goes to the rank with the first stage"):
                s.step(plait.randn(4, 4), target=plait.randn(4, 4))
            with pytest.raises(ValueError, match="needs a target"):
                s.step()

    dist.spawn(run, nprocs=2)


@pytest.mark.parametrize("failing", [0, 1])
def test_a_failing_rank_ends_the_others(failing):
    class Faulty(nn.Linear):
        def forward(self, x):
            self.calls = getattr(self, "calls", 0) + 1
            if dist.get_rank() == failing and self.calls == 3:
                raise KeyError("boom")
            return super().forward(x)

    def run(rank):
        dist.init_process_group()
        s = pipelining.Schedule1F1B(PipelineStage(Faulty(4, 4), rank, 2, f"cpu:{rank}"), 4, nn.MSELoss())
        s.step(*([plait.randn(4, 4)] if rank == 0 else []), **({"target": plait.randn(4, 4)} if rank else {}))

    with pytest.raises(KeyError, match="boom") as caught:
        dist.spawn(run, nprocs=2)
    assert f"raised in stage {failing} on cpu:{failing}, forward of micro-batch 2" in caught.value.__notes__


@pytest.mark.parametrize(
    ("way", "name"),
    [("fsdp", n) for n in ("GPipe", "1F1B", "Interleaved1F1B")]
    + [("ddp", n) for n in ("1F1B", "InterleavedZeroBubble", "ZBVZeroBubble")],
)
def test_data_parallel_stages(way, name):
    """Each of two pipelines of two ranks has half of the batch; the ranks with the same stages divide or copy them."""
    cls = pipelining.get_schedule_class(name)
    chunks = 2 if name in ("ZBVZeroBubble", "Interleaved1F1B") else 1
    count, (x, y) = 2 * chunks, batch(8)
    reference = model(count)
    optimizer = plait.optim.AdamW(reference.parameters(), lr=0.01)
    for _ in range(3):
        optimizer.zero_grad()
        nn.functional.mse_loss(reference(x), y).backward()
        nn.utils.clip_grad_norm_(reference.parameters(), 0.01)
        optimizer.step()
    got = {}

    def run(rank):
        dist.init_process_group()
        mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("stages", "copies"))
        place, half = mesh["stages"].get_local_rank(), mesh["copies"].get_local_rank()
        spec = {str(i): SplitPoint.BEGINNING for i in range(1, count)}
        pipe = pipelining.pipeline(model(count).to("cpu:0"), (x[:1],), split_spec=spec)
        mine = [i for i, r in enumerate(pipelining._stages.placement(cls._name, 2, chunks)) if r == place]
        stages = []
        for i in mine:
            part = pipe.get_stage_module(i).to(f"cpu:{rank}")
            if way == "fsdp":
                fully_shard(part, mesh=mesh["copies"])
            else:
                part = nn.parallel.DistributedDataParallel(part, process_group=mesh["copies"].get_group())
            stages.append(PipelineStage(part, i, count, f"cpu:{rank}", group=mesh["stages"].get_group()))
        schedule = cls(stages if chunks > 1 else stages[0], 2, nn.MSELoss())
        optimizer = plait.optim.AdamW([p for s in stages for p in s.submod.parameters()], lr=0.01)
        args = (x.split(4)[half],) if 0 in mine else ()
        kwargs = {"target": y.split(4)[half]} if count - 1 in mine else {}
        for _ in range(3):
            optimizer.zero_grad()
            schedule.step(*args, **kwargs)
            schedule.clip_grad_norm_(0.01)
            optimizer.step()
        for s in stages:
            for n, p in s.submod.named_parameters():
                full = p.full_tensor() if way == "fsdp" else p.detach()
                got[n.removeprefix("module."), half] = full.numpy().copy()

    dist.spawn(run, nprocs=4)
    want = {n: p.detach().numpy() for n, p in reference.named_parameters()}
    assert {n for n, _ in got} == set(want)
    for (n, _), value in got.items():
        np.testing.assert_allclose(value, want[n], atol=1e-12, err_msg=n)


def test_divided_parameters_want_whole_backward_passes():
    def run(rank):
        dist.init_process_group()
        mesh = dist.init_device_mesh("cpu", (2, 1), mesh_dim_names=("stages", "parts"))
        part = fully_shard(nn.Linear(4, 4), mesh=mesh["parts"])
        stage = PipelineStage(part, rank, 2, f"cpu:{rank}", group=mesh["stages"].get_group())
        with pytest.raises(NotImplementedError, match=r"parameters that ranks divide \(FSDP\) are not whole any more"):
            pipelining.ScheduleInterleavedZeroBubble(stage, 2)

    dist.spawn(run, nprocs=2)


@pytest.mark.parametrize("name", ["GPipe", "1F1B", "InterleavedZeroBubble", "ZBVZeroBubble"])
def test_weights_tied_between_ranks(name):
    cls = pipelining.get_schedule_class(name)
    ranks, m = 2, 3
    chunks = 2 if name == "ZBVZeroBubble" else 1
    x, y = plait.randint(0, 7, (6, 3)), plait.randint(0, 7, (6, 3))

    def loss_fn(out, target):
        return nn.functional.cross_entropy(out.flatten(0, 1), target.flatten())

    def build(seed=2):
        plait.manual_seed(seed)
        embedding, middle = nn.Embedding(7, 4), nn.Linear(4, 4)
        again = nn.Linear(4, 4)
        again.weight = middle.weight
        return nn.Sequential(embedding, middle, block(), again, Head(embedding.weight)).double().to("cpu:0")

    whole_model, states, norms, losses_of = build(), {}, [], []
    optimizer = plait.optim.SGD(whole_model.parameters(), lr=0.3)
    for _ in range(3):
        for _ in range(2):  # gradients add up over two steps
            loss = loss_fn(whole_model(x), y)
            loss.backward()
        losses_of.append(loss.item())
        norms.append(nn.utils.clip_grad_norm_(whole_model.parameters(), 0.5).item())
        optimizer.step()
        optimizer.zero_grad()
    want = {n: p.detach().numpy().copy() for n, p in whole_model.named_parameters(remove_duplicate=False)}

    def run(rank):
        dist.init_process_group()
        full = build() if rank == 0 else build(9)
        if rank:  # all but what is tied with the first rank is as there
            full.load_state_dict({**build().state_dict(), "0.weight": full[0].weight, "4.weight": full[0].weight})
        spec = {"2": SplitPoint.BEGINNING} if chunks == 1 else {str(i): SplitPoint.BEGINNING for i in (1, 3, 4)}
        pipe = pipelining.pipeline(full, (x[:1],), split_spec=spec)
        mine = [rank] if chunks == 1 else [rank, 3 - rank]
        stages = [pipe.build_stage(i, f"cpu:{rank}") for i in mine]
        schedule = cls(stages if chunks > 1 else stages[0], m, loss_fn)
        first, last = any(s.is_first for s in stages), any(s.is_last for s in stages)
        params = {id(p): p for s in stages for p in s.submod.parameters()}
        optimizer = plait.optim.SGD(list(params.values()), lr=0.3)
        for i in range(3):
            for _ in range(2):
                losses = []
                schedule.step(*((x,) if first else ()), **({"target": y, "losses": losses} if last else {}))
            if last:
                assert abs(sum(v.item() for v in losses) / m - losses_of[i]) < 1e-12
            assert abs(schedule.clip_grad_norm_(0.5).item() - norms[i]) < 1e-12
            optimizer.step()
            optimizer.zero_grad()
        for s in stages:
            for n, p in s.submod.named_parameters():
                states[n, rank] = p.detach().numpy().copy()

    dist.spawn(run, nprocs=ranks)
    for (n, _), value in states.items():
        np.testing.assert_allclose(value, want[n], atol=1e-12, err_msg=n)
    assert {n for n, _ in states} == set(want)


def test_wrong_ties_are_named():
    def run(rank):
        dist.init_process_group()
        layer = nn.Linear(4, 4)
        with pytest.raises(ValueError, match=r"weight is tied between the stages \[0, 2\], not 1"):
            PipelineStage(layer, 1, 3, "cpu:0", tied={"weight": [0, 2]})
        with pytest.raises(AttributeError, match="wheight"):
            PipelineStage(layer, 1, 3, "cpu:0", tied={"wheight": [0, 1]})
        stage = PipelineStage(layer, rank, 2, f"cpu:{rank}", tied={"weight": [0, 1, 5]})
        with pytest.raises(ValueError, match=r"shared by the stages \[0 1 5\], there are 2"):
            pipelining.Schedule1F1B(stage, 2)
        stages = [
            PipelineStage(nn.Linear(4, 4), i, 4, f"cpu:{rank}", tied={"weight": [0, 1, 2, 3]}) for i in (rank, 3 - rank)
        ]
        with pytest.raises(ValueError, match=r"different tensors that are tied between the stages \[0, 1, 2, 3\]"):
            pipelining.ScheduleZBVZeroBubble(stages, 2)

    dist.spawn(run, nprocs=2)


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


def test_splits_below_the_top_level():
    def build():
        plait.manual_seed(4)
        return nn.Sequential(nn.Linear(4, 4), nn.Sequential(block(), nn.Sequential(block(), block())), block()).double()

    m, x = build(), batch(2)[0]
    begin, end = SplitPoint.BEGINNING, SplitPoint.END
    for spec, want in (
        ({"1.1": begin}, [["0", "1.0"], ["1.1.0", "1.1.1", "2"]]),
        ({"1.1.1": begin}, [["0", "1.0", "1.1.0"], ["1.1.1", "2"]]),
        ({"1.1.0": begin, "1": end}, [["0", "1.0"], ["1.1.0", "1.1.1"], ["2"]]),
        ({"1.0": begin, "1": begin, "1.1.1": end}, [["0"], ["1.0", "1.1.0", "1.1.1"], ["2"]]),
        ({"0": begin, "2": end}, [["0", "1.0", "1.1.0", "1.1.1", "2"]]),
    ):
        pipe = pipelining.pipeline(m, (x,), split_spec=spec)
        names = [n for part in pipe.info()["parameters"] for n in part]
        assert names == [n for n, _ in m.named_parameters()], spec
        every = {n for layers in want for n in layers}
        for i, layers in enumerate(want):
            found = {n for n, _ in pipe.get_stage_module(i).named_modules() if n in every}
            assert sorted(found) == layers, spec
        value = x
        for i in range(pipe.num_stages):
            value = pipe.get_stage_module(i)(value)
        np.testing.assert_array_equal(value.detach().numpy(), m(x).detach().numpy())
    with pytest.raises(TypeError, match="0 is a Linear, want a Sequential to be split below it"):
        pipelining.pipeline(m, (x,), split_spec={"0.weight": begin})
    with pytest.raises(ValueError, match=r"no layer '1\.7' to split at, only 1\.0, 1\.1"):
        pipelining.pipeline(m, (x,), split_spec={"1.7": begin})
    with pytest.raises(TypeError, match="want a SplitPoint for '1', got 'begin'"):
        pipelining.pipeline(m, (x,), split_spec={"1": "begin"})
    m.eval()
    assert not any(part.training for part in pipelining.pipeline(m, (x,), split_spec={"1.1": begin})._stages)


def test_pipeline_function():
    m = model(4)
    pipe = pipelining.pipeline(m, (batch(2)[0],), split_spec={"2": SplitPoint.BEGINNING, "0": SplitPoint.END})
    assert pipe.num_stages == 3
    assert [len(pipe.get_stage_module(i)) for i in range(3)] == [1, 1, 2]
    assert pipe.info()["parameters"][2][0] == "2.0.weight"
    with pytest.raises(ValueError, match="no layer 'x'"):
        pipelining.pipeline(m, (batch(2)[0],), split_spec={"x": SplitPoint.END})
    assert pipelining.pipeline(m, (batch(2)[0],), split_policy=lambda _: [3, 1]).num_stages == 2
    with pytest.raises(TypeError, match="want mb_args to be a tuple of arguments, got Tensor"):
        pipelining.pipeline(m, batch(2)[0])
    with pytest.raises(TypeError, match="want a name, got 3"):
        pipelining.get_schedule_class(3)
    with pytest.raises(ValueError, match="unknown schedule name"):
        pipelining.get_schedule_class("2F2B")
