"""Schedules against PyTorch's rates, and what they promise besides."""

import json
import math
from pathlib import Path

import numpy as np
import plait
import plait.nn
import pytest
from plait import optim
from plait.optim import lr_scheduler as lr
from plait.optim import swa_utils

FACTS = json.loads((Path(__file__).parent / "golden" / "lr_scheduler.json").read_text())
CASES = [(name, i) for name, cases in FACTS["cases"].items() for i in range(len(cases))]


class Mine(optim.Optimizer):
    def step(self, closure=None):
        pass


def two_groups(kind=optim.SGD):
    a, b = (plait.zeros(1, requires_grad=True) for _ in range(2))
    groups = [{"params": [a]}, {"params": [b], "lr": 0.05}]
    return kind(groups, lr=0.1, momentum=0.9) if kind is optim.SGD else kind(groups, {"lr": 0.1, "momentum": 0.9})


def follow(optimizer, schedule, want):
    rates, momenta = [schedule.get_last_lr()], [optimizer.param_groups[0]["momentum"]]
    for _ in range(len(want["lr"]) - 1):
        optimizer.step()
        schedule.step()
        rates.append(schedule.get_last_lr())
        momenta.append(optimizer.param_groups[0]["momentum"])
    np.testing.assert_allclose(rates, want["lr"], rtol=1e-9, atol=1e-14)
    np.testing.assert_allclose(momenta, want["momentum"], rtol=1e-9)


@pytest.mark.parametrize("kind", [optim.SGD, Mine])
@pytest.mark.parametrize(("name", "number"), CASES)
def test_rates(name, number, kind):
    want = FACTS["cases"][name][number]
    optimizer = two_groups(kind)
    follow(optimizer, getattr(lr, name)(optimizer, **want["options"]), want)


MADE = {
    "sequential": lambda o: lr.SequentialLR(o, [lr.LinearLR(o, 0.1, total_iters=5), lr.CosineAnnealingLR(o, 20)], [5]),
    "chained": lambda o: lr.ChainedScheduler([lr.ConstantLR(o, 0.1, 4), lr.ExponentialLR(o, 0.9)]),
    "lambda": lambda o: lr.LambdaLR(o, [lambda e: 0.9**e, lambda e: 1 / (1 + e)]),
    "swa": lambda o: swa_utils.SWALR(o, 0.02, anneal_epochs=7),
    "multiplicative": lambda o: lr.MultiplicativeLR(o, lambda e: 0.95),
}


@pytest.mark.parametrize("name", MADE)
def test_combinations(name):
    optimizer = two_groups()
    follow(optimizer, MADE[name](optimizer), FACTS["more"][name])


@pytest.mark.parametrize(("name", "number"), CASES)
def test_goes_on_from_a_state(name, number):
    want = FACTS["cases"][name][number]
    optimizer = two_groups()
    schedule = getattr(lr, name)(optimizer, **want["options"])
    for _ in range(11):
        optimizer.step()
        schedule.step()
    saved = json.loads(json.dumps(schedule.state_dict()))
    other = two_groups()
    again = getattr(lr, name)(other, **want["options"])
    other.load_state_dict(optimizer.state_dict())
    again.load_state_dict(saved)
    other.step()
    for _ in range(5):
        again.step()
    np.testing.assert_allclose(again.get_last_lr(), want["lr"][16], rtol=1e-9)


@pytest.mark.parametrize(("name", "number"), CASES)
def test_goes_on_from_the_last_epoch_that_was_trained(name, number):
    want = FACTS["cases"][name][number]
    optimizer = two_groups()
    schedule = getattr(lr, name)(optimizer, **want["options"])
    for done in range(1, 9):
        optimizer.step()
        schedule.step()
        other = two_groups()
        other.load_state_dict(optimizer.state_dict())
        again = getattr(lr, name)(other, **want["options"], last_epoch=done - 1)
        np.testing.assert_allclose(again.get_last_lr(), want["lr"][done], rtol=1e-9)
        other.step()
        again.step()
        np.testing.assert_allclose(again.get_last_lr(), want["lr"][done + 1], rtol=1e-9)


def test_plateau():
    want = FACTS["more"]["plateau"]
    optimizer = optim.SGD([plait.zeros(1, requires_grad=True)], lr=0.1)
    schedule = lr.ReduceLROnPlateau(optimizer, patience=2, factor=0.5, cooldown=1, min_lr=0.01)
    seen = []
    for m in want["metrics"]:
        schedule.step(plait.tensor(m))
        seen.append(optimizer.param_groups[0]["lr"])
    np.testing.assert_allclose(seen, want["lr"], rtol=1e-12)
    assert schedule.state_dict()["best"] == pytest.approx(1 / 7)


def test_restarts_at_fractions():
    optimizer = two_groups()
    schedule = lr.CosineAnnealingWarmRestarts(optimizer, 4, 2)
    optimizer.step()
    schedule.step(5.5)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.05 * (1 + math.cos(math.pi * 1.5 / 8)))
    assert schedule.last_epoch == 5


def test_betas_cycle():
    optimizer = optim.Adam([plait.zeros(1, requires_grad=True)], lr=0.1)
    schedule = lr.OneCycleLR(optimizer, 0.5, 10)
    assert optimizer.param_groups[0]["betas"] == (0.95, 0.999)
    for _ in range(10):  # as a loop over total_steps batches does
        optimizer.step()
        last = optimizer.param_groups[0]["lr"]
        schedule.step()
    assert last == schedule.get_last_lr()[0] == pytest.approx(0.5 / 25 / 1e4)
    with pytest.raises(ValueError, match="ends after"):
        schedule.step()


def test_users_schedule():
    class Half(lr.LRScheduler):
        def get_lr(self):
            return [base / 2**self.last_epoch for base in self.base_lrs]

    optimizer = two_groups()
    schedule = Half(optimizer)
    optimizer.step()
    schedule.step()
    assert schedule.get_last_lr() == [0.05, 0.025]


def test_warns_before_the_optimizer():
    schedule = lr.StepLR(two_groups(), 2)
    with pytest.warns(UserWarning, match="before `optimizer.step"):
        schedule.step()


def test_errors():
    optimizer = two_groups()
    for bad in (
        lambda: lr.StepLR(optimizer, 0),
        lambda: lr.OneCycleLR(optimizer, 0.1),
        lambda: lr.CyclicLR(optimizer, 0.1, 0.2, mode="square"),
        lambda: lr.LinearLR(optimizer, start_factor=2),
        lambda: lr.SequentialLR(optimizer, [], []),
    ):
        with pytest.raises(ValueError):
            bad()
    with pytest.raises(TypeError, match="not an Optimizer"):
        lr.StepLR(None, 1)


def test_averaged_model():
    model = plait.nn.Linear(2, 1, bias=False)
    average = swa_utils.AveragedModel(model)
    seen = []
    for i in range(3):
        model.weight.data.copy_(plait.tensor([[float(i), 1.0]]))
        average.update_parameters(model)
        seen.append(average.module.weight.tolist())
    assert seen[-1] == [[1.0, 1.0]]
    moving = swa_utils.AveragedModel(model, multi_avg_fn=swa_utils.get_ema_multi_avg_fn(0.75))
    moving.update_parameters(model)
    model.weight.data.copy_(plait.tensor([[6.0, 1.0]]))
    moving.update_parameters(model)
    assert moving.module.weight.tolist() == [[3.0, 1.0]]
    assert int(moving.n_averaged) == 2


@pytest.mark.parametrize(
    ("schedule", "want"),
    [
        (lambda o: lr.StepLR(o, 2, 0.5), [0.4, 0.4, 0.2, 0.2]),
        (lambda o: lr.ConstantLR(o, 0.5, 3), [0.1, 0.1, 0.1, 0.2]),
        (lambda o: lr.LinearLR(o, 0.5, 1.0, 3), [0.1, 0.4 / 3, 0.5 / 3, 0.2]),
        (lambda o: lr.CosineAnnealingLR(o, 4), [0.4 / math.cos(math.pi / 8) ** 2, 0.3414214, 0.2, 0.0585786]),
    ],
)
def test_rates_of_epochs_that_programs_set(schedule, want):
    optimizer = optim.SGD([plait.nn.Parameter(plait.zeros(1))], lr=0.4)
    s, got = schedule(optimizer), []
    for s.last_epoch in range(4):
        got += s.get_lr()
        optimizer.param_groups[0]["lr"] = got[-1]
    assert got == pytest.approx(want, rel=1e-6)


def test_cycles_note_momenta_in_the_groups():
    for make, most in (
        (lambda o: optim.lr_scheduler.OneCycleLR(o, 1.0, total_steps=10), 0.95),
        (lambda o: optim.lr_scheduler.CyclicLR(o, 0.1, 1.0, base_momentum=0.85, max_momentum=0.95), 0.95),
    ):
        for kind, options in ((optim.SGD, {"momentum": 0.9}), (optim.Adam, {})):
            optimizer = kind([plait.ones(1, requires_grad=True)], lr=0.1, **options)
            make(optimizer)
            group = optimizer.param_groups[0]
            assert (group["max_momentum"], group["base_momentum"]) == (most, 0.85)
    optimizer = optim.SGD([plait.ones(1, requires_grad=True)], lr=0.1)
    optim.lr_scheduler.OneCycleLR(optimizer, 1.0, total_steps=10, cycle_momentum=False)
    assert "max_momentum" not in optimizer.param_groups[0]
