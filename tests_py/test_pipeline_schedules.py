"""Schedules of pipelines as data, and how models are cut into stages."""

import copy
import re

import plait
import pytest
from plait import nn
from plait.distributed.pipelining import Schedule
from stages import DEVICES, NAMES, assert_same, batch, grads, model, whole


def test_order_is_the_schedules():
    for name in NAMES:
        p = plait.Pipeline(model(), DEVICES, chunks=5, schedule=name, loss_fn=nn.MSELoss())
        p.step(*batch(5))
        spans = sorted(p.timeline().spans, key=lambda s: s.start)
        for device, line in enumerate(str(p.schedule(5)).splitlines()[1:]):
            did = [f"{s.stage}{s.kind}{s.micro}" for s in spans if s.device == device]
            assert did == line.split(","), name


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
    with pytest.raises(ValueError, match=f'got "2f2b", want one of {", ".join(NAMES)}'):
        Schedule("2f2b", 2, 2)


@pytest.mark.parametrize("name", NAMES)
def test_every_schedule_is_listed(name):
    listed = re.search(r" name: (.*?)\n +devices: ", Schedule.__doc__, re.DOTALL).group(1)
    assert name in re.split(r",\s+|\s+or\s+", listed), f"add {name} to the argument name in the comment of Schedule"


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
