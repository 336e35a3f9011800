"""Processes that run one function, and what comes of their errors; an optimiser that several processes share."""

import os
import pickle
import signal
import time

import plait
import plait.multiprocessing as mp
import pytest
from plait import nn


def test_each_process_gets_its_number():
    queue = mp.SimpleQueue()
    context = mp.start_processes(_got, args=(queue,), nprocs=2, join=False)
    assert len(context.pids()) == 2 and os.getpid() not in context.pids()
    found = sorted(queue.get() for _ in range(2))
    assert found == [(0, 0.0), (1, 3.0)]
    while not context.join():
        pass
    assert context.join()


def _got(number, queue):
    queue.put((number, (plait.ones(3) * number).sum().item()))


def _raises(number):
    if number == 1:
        raise KeyError("missing" + "g" * 100_000)  # more than a pipe holds
    time.sleep(60)


def test_an_error_ends_the_others():
    begin = time.monotonic()
    with pytest.raises(mp.ProcessRaisedException, match="process 1 raised an error:\n\nTraceback") as caught:
        mp.start_processes(_raises, nprocs=2)
    assert "KeyError: 'missingg" in str(caught.value) and caught.value.error_index == 1
    assert time.monotonic() - begin < 50
    again = pickle.loads(pickle.dumps(caught.value))
    assert again.pid == caught.value.pid and again.msg == caught.value.msg


def _ends(number, how):
    if how == "exit":
        os._exit(3)
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_process_that_ends_otherwise():
    with pytest.raises(mp.ProcessExitedException, match="process 0 ended with status 3") as caught:
        mp.start_processes(_ends, args=("exit",))
    assert caught.value.exit_code == 3 and caught.value.signal_name is None
    with pytest.raises(mp.ProcessExitedException, match="process 0 was ended by SIGKILL") as caught:
        mp.start_processes(_ends, args=("kill",))
    assert pickle.loads(pickle.dumps(caught.value)).signal_name == "SIGKILL"
    with pytest.raises(ValueError, match="start_processes: want 'spawn', got 'fork'"):
        mp.start_processes(_ends, start_method="fork")


# --- an optimiser whose states processes share, as of A3C ---


class SharedAdam(plait.optim.Adam):
    """Has its states before the first step, in memory that processes share."""

    def __init__(self, params, lr, shared_step=True):
        super().__init__(params, lr=lr)
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                state["step"] = plait.zeros(1)
                state["exp_avg"], state["exp_avg_sq"] = plait.zeros_like(p.data), plait.zeros_like(p.data)
                for name in ("exp_avg", "exp_avg_sq", *(["step"] if shared_step else [])):
                    state[name].share_memory_()


class OwnStep(SharedAdam):
    """Makes its steps in Python."""

    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                state["step"] += 1
                state["exp_avg"].mul_(0.9).add_(p.grad, alpha=0.1)
                state["exp_avg_sq"].mul_(0.999).addcmul_(p.grad, p.grad, value=0.001)
                n = state["step"].item()
                size = group["lr"] * (1 - 0.999**n) ** 0.5 / (1 - 0.9**n)
                p.data.addcdiv_(state["exp_avg"], state["exp_avg_sq"].sqrt().add_(1e-8), value=-size)


def _model():
    model = nn.Linear(3, 2)
    with plait.no_grad():
        for p in model.parameters():
            p.copy_(plait.linspace(-1, 1, p.numel()).view_as(p))
    return model


def _train(number, shared, optimizer, steps):
    model = _model()
    for i in range(steps):
        model.load_state_dict(shared.state_dict())
        x = plait.full((4, 3), 0.1 * (i + 1))
        loss = (model(x) - x[:, :2]).square().mean()
        optimizer.zero_grad()
        model.zero_grad()
        loss.backward()
        for p, s in zip(model.parameters(), shared.parameters(), strict=True):
            s._grad = p.grad
        optimizer.step()


@pytest.mark.parametrize("cls", [SharedAdam, OwnStep])
def test_processes_share_the_states_of_an_optimizer(cls):
    """Two processes, one after the other, make the steps that one optimiser in one process makes."""
    want = _model()
    alone = plait.optim.Adam(want.parameters(), lr=0.05)
    _train(0, want, alone, 3)
    _train(0, want, alone, 3)
    shared = _model().share_memory()
    optimizer = cls(shared.parameters(), 0.05)
    for _ in range(2):
        mp.start_processes(_train, args=(shared, optimizer, 3))
    for a, b in zip(shared.parameters(), want.parameters(), strict=True):
        assert plait.allclose(a, b, atol=1e-6)
        mine, theirs = optimizer.state[a], alone.state[b]
        assert plait.allclose(mine["exp_avg"], theirs["exp_avg"], atol=1e-6) and mine["exp_avg"].is_shared()
        assert mine["step"].item() == theirs["step"].item() == 6
    _train(0, shared, optimizer, 1)  # here, too
    assert optimizer.state[next(shared.parameters())]["step"].item() == 7


def test_states_that_a_program_makes_are_those_of_the_next_step():
    def made(**states):
        p = nn.Parameter(plait.ones(2))
        optimizer = plait.optim.Adam([p], lr=0.1)
        optimizer.state[p].update(states)
        p.grad = plait.ones(2)
        optimizer.step()
        return p.tolist(), optimizer.state[p]

    average = plait.full((2,), 0.5)
    moved, state = made(step=plait.tensor(9.0), exp_avg=average.clone(), exp_avg_sq=average.clone())
    assert moved != made()[0] and state["step"].item() == 10
    assert state["exp_avg"].tolist() == pytest.approx([0.55, 0.55])
    size = 0.1 / (1 - 0.9**10)
    want = 1 - size * 0.55 / ((0.5 * 0.999 + 0.001) ** 0.5 / (1 - 0.999**10) ** 0.5 + 1e-8)
    assert moved == pytest.approx([want, want])
    p = nn.Parameter(plait.ones(2))
    optimizer = plait.optim.Adam([p], lr=0.1)
    optimizer.state[p]["exp_avg"] = plait.ones(3)
    p.grad = plait.ones(2)
    with pytest.raises(ValueError, match="exp_avg"):
        optimizer.step()
    assert p.tolist() == [1.0, 1.0]


def test_the_default_generator_is_a_generator():
    generator = plait.default_generator
    assert isinstance(generator, plait.Generator) and generator.device == plait.device("cpu")
    generator.manual_seed(5)
    state, first = generator.get_state(), plait.rand(3)
    plait.manual_seed(5)
    assert plait.equal(plait.rand(3), first) and generator.initial_seed() == 5
    generator.set_state(state)
    assert plait.equal(plait.rand(3, generator=generator), first) and plait.equal(
        plait.default_generator().get_state(), plait.get_rng_state()
    )


def test_errors_are_carried_as_text():
    from plait._utils import ExceptionWrapper
    from plait.utils.data._utils.pin_memory import pin_memory

    class Odd(Exception):
        def __init__(self, a, b):
            super().__init__(a, b)

    def carried(error):
        try:
            raise error
        except type(error):
            return pickle.loads(pickle.dumps(ExceptionWrapper(where="in thread 3")))

    with pytest.raises(ValueError, match=r"Caught ValueError in thread 3.\nOriginal Traceback"):
        carried(ValueError("wrong")).reraise()
    with pytest.raises(KeyError) as caught:
        carried(KeyError("a")).reraise()
    assert "\nOriginal" in str(caught.value)
    try:
        raise Odd(1, 2)
    except Odd:
        odd = ExceptionWrapper()
    with pytest.raises(RuntimeError, match="Caught Odd in background"):
        odd.reraise()
    data = [plait.ones(1)]
    assert pin_memory(data) is data
