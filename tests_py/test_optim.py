"""Optimisers against PyTorch's trajectories, and what they promise besides."""

import copy
import gc
import json
import pickle
import weakref
from pathlib import Path

import numpy as np
import plait
import pytest
from plait import optim

HERE = Path(__file__).parent / "golden"
GOLDEN = np.load(HERE / "optim.npz")
FACTS = json.loads((HERE / "optim.json").read_text())
CASES = [(name, i) for name, cases in FACTS["cases"].items() for i in range(len(cases))]


def leaf(values, dtype=plait.float64):
    return plait.tensor(values, dtype=dtype, requires_grad=True)


def problem():
    params = {k: leaf(GOLDEN[f"start.{k}"]) for k in "ab"}
    scale = {k: plait.tensor(GOLDEN[f"scale.{k}"]) for k in "ab"}
    centre = {k: plait.tensor(GOLDEN[f"centre.{k}"]) for k in "ab"}

    def loss():
        return sum((scale[k] * (p - centre[k]) ** 2).sum() for k, p in params.items())

    return params, loss


def closure_of(optimizer, loss):
    def closure():
        optimizer.zero_grad()
        out = loss()
        out.backward()
        return out

    return closure


@pytest.mark.parametrize(("name", "number"), CASES)
def test_trajectory(name, number):
    params, loss = problem()
    optimizer = getattr(optim, name)(list(params.values()), **FACTS["cases"][name][number])
    closure = closure_of(optimizer, loss)
    for step in range(FACTS["steps"]):
        optimizer.step(closure)
        for k, p in params.items():
            want = GOLDEN[f"{name}.{number}.{step}.{k}"]
            np.testing.assert_allclose(p.detach().numpy(), want, rtol=1e-6, atol=1e-7 if name == "LBFGS" else 1e-9)


@pytest.mark.parametrize(("name", "number"), [c for c in CASES if c[0] != "LBFGS"])
def test_state_dict_is_exchanged(name, number):
    key = f"{name}.{number}"
    facts = FACTS["states"][key]
    saved = {
        "param_groups": facts["param_groups"],
        "state": {
            int(i): {k: plait.tensor(GOLDEN[f"{key}.state.{i}.{k}"]) for k in names}
            for i, names in facts["state"].items()
        },
    }
    params, loss = problem()
    optimizer = getattr(optim, name)(list(params.values()), **FACTS["cases"][name][number])
    closure = closure_of(optimizer, loss)
    for _ in range(FACTS["steps"]):
        optimizer.step(closure)
    ours = optimizer.state_dict()
    assert {i: set(s) for i, s in ours["state"].items()} == {i: set(s) for i, s in saved["state"].items()}
    for i, state in saved["state"].items():
        for k, v in state.items():
            np.testing.assert_allclose(np.asarray(ours["state"][i][k]), np.asarray(v), rtol=1e-6, atol=1e-9, err_msg=k)
    assert ours["param_groups"][0].keys() == saved["param_groups"][0].keys()

    other, other_loss = problem()
    for k, p in other.items():
        p.data.copy_(params[k].detach())
    second = getattr(optim, name)(list(other.values()), lr=123.0)
    second.load_state_dict(saved)
    assert second.param_groups[0]["lr"] == optimizer.param_groups[0]["lr"]
    other_closure = closure_of(second, other_loss)
    for _ in range(3):
        optimizer.step(closure)
        second.step(other_closure)
    for k, p in params.items():
        np.testing.assert_allclose(other[k].detach().numpy(), p.detach().numpy(), rtol=1e-5, atol=1e-8)


def test_strong_wolfe_finds_the_minimum():
    p = leaf([-1.5, 2.0])
    optimizer = optim.LBFGS([p], max_iter=50, line_search_fn="strong_wolfe")

    def rosenbrock():
        return (1 - p[0]) ** 2 + 100 * (p[1] - p[0] ** 2) ** 2

    closure = closure_of(optimizer, rosenbrock)
    first = optimizer.step(closure)
    assert first.item() == pytest.approx(6.25 + 100 * 0.0625)
    optimizer.step(closure)
    np.testing.assert_allclose(p.detach().numpy(), [1, 1], atol=1e-5)
    saved = optimizer.state_dict()
    assert set(saved["state"][0]) >= {"func_evals", "n_iter", "d", "t", "old_dirs", "old_stps", "ro", "H_diag"}
    again = optim.LBFGS([p], max_iter=50, line_search_fn="strong_wolfe")
    again.load_state_dict(saved)
    assert again.state_dict()["state"][0]["n_iter"] == saved["state"][0]["n_iter"]


# Losses and slopes that a closure says whatever the parameter is, and where PyTorch's line search then looks.
SEARCHES = {
    "a loss that has not fallen, with a slope that is flat enough": (
        {"max_eval": 25},
        [(-2.0, -2.0), (-3.0, -2.0), (-3.0, 0.5)],
        [0.0, 1.0, 5.505, 5.505],
    ),
    "no more evaluations": (
        {"max_eval": 3},
        [(0.0, -1.0), (-1.0, -2.0), (-2.0, -2.0), (-3.0, -2.0)],
        [0.0, 1.0, 5.505, 5.55005, 5.55005],
    ),
}


@pytest.mark.parametrize("name", SEARCHES)
def test_strong_wolfe_looks_where_pytorch_does(name):
    options, said, want = SEARCHES[name]
    p = leaf([0.0])
    optimizer = optim.LBFGS([p], line_search_fn="strong_wolfe", max_iter=1, **options)
    script, seen = iter(said), []

    def closure():
        loss, slope = next(script)
        seen.append(p.item())
        p.grad = plait.tensor([slope], dtype=p.dtype)
        return plait.tensor(loss, dtype=p.dtype)

    optimizer.step(closure)
    np.testing.assert_allclose([*seen, p.item()], want, rtol=1e-12)


def test_lbfgs_closure_that_raises_changes_nothing():
    p = leaf([1.0, 2.0])
    optimizer = optim.LBFGS([p], lr=0.1)
    calls = []

    def closure():
        calls.append(0)
        if len(calls) == 3:
            raise KeyError("mine")
        optimizer.zero_grad()
        loss = (p**4).sum()
        loss.backward()
        return loss

    with pytest.raises(KeyError, match="mine"):
        optimizer.step(closure)
    assert p.tolist() == [1.0, 2.0]
    assert not optimizer.state_dict()["state"]


def test_groups_and_changed_hyperparameters():
    a, b = leaf([1.0]), leaf([1.0])
    optimizer = optim.SGD([{"params": [a], "lr": 0.5}, {"params": b}], lr=0.25)
    a.grad, b.grad = leaf([1.0]).detach(), leaf([1.0]).detach()
    optimizer.step()
    assert (a.item(), b.item()) == (0.5, 0.75)
    optimizer.param_groups[1]["lr"] = 0.75
    optimizer.step()
    assert (a.item(), b.item()) == (0.0, 0.0)
    c = leaf([1.0])
    optimizer.add_param_group({"params": [c], "lr": 2.0})
    c.grad = leaf([1.0]).detach()
    optimizer.step()
    assert c.item() == -1.0
    optimizer.param_groups[0]["lr"] = -1.0
    with pytest.raises(ValueError, match="lr must be at least 0"):
        optimizer.step()
    assert c.item() == -1.0


def test_parameters_may_come_and_go_with_their_states():
    a, b = leaf([1.0]), leaf([2.0])
    optimizer = optim.Adam([a], lr=0.1)
    for p in (a, b):
        p.grad = leaf([1.0]).detach()
    optimizer.step()
    optimizer.param_groups[0]["params"].append(b)
    optimizer.step()
    assert optimizer.state[a]["step"].item() == 2
    assert optimizer.state[b]["step"].item() == 1
    optimizer.param_groups[0]["params"].remove(a)
    optimizer.step()
    assert optimizer.state[b]["step"].item() == 2
    assert a not in optimizer.state


def test_without_gradient_is_skipped_and_zero_grad():
    a, b = leaf([1.0]), leaf([1.0])
    optimizer = optim.AdamW([a, b], lr=0.1)
    a.grad = leaf([1.0]).detach()
    optimizer.step()
    assert b.item() == 1.0
    assert list(optimizer.state) == [a]
    optimizer.zero_grad(set_to_none=False)
    assert a.grad.item() == 0.0
    optimizer.zero_grad()
    assert a.grad is None


def test_failing_step_changes_nothing():
    a, b = leaf([1.0]), leaf([1.0, 2.0])
    optimizer = optim.Adam([a, b], lr=0.1)
    a.grad, b.grad = leaf([1.0]).detach(), leaf([1.0, 1.0]).detach()
    b.grad = b.grad.to(plait.float32)
    with pytest.raises(TypeError, match="dtype"):
        optimizer.step()
    assert a.item() == 1.0
    assert len(optimizer.state) == 0


def test_construction_errors():
    p = leaf([1.0])
    with pytest.raises(ValueError, match="empty"):
        optim.SGD([], lr=0.1)
    with pytest.raises(TypeError, match="single tensor"):
        optim.SGD(p, lr=0.1)
    with pytest.raises(ValueError, match="lr must be at least 0"):
        optim.SGD([p], lr=-1)
    with pytest.raises(ValueError, match="nesterov"):
        optim.SGD([p], lr=0.1, nesterov=True)
    with pytest.raises(ValueError, match="non-leaf"):
        optim.SGD([p * 2], lr=0.1)
    with pytest.raises(ValueError, match="more than one"):
        optim.SGD([{"params": [p]}, {"params": [p]}], lr=0.1)
    with pytest.raises(ValueError, match="empty"):
        optim.SparseAdam([])


def test_loading_misfits_changes_nothing():
    p = leaf([1.0, 2.0])
    optimizer = optim.Adam([p], lr=0.1)
    p.grad = leaf([1.0, 1.0]).detach()
    optimizer.step()
    saved = optimizer.state_dict()
    bad = copy.deepcopy(saved)
    bad["state"][0]["exp_avg"] = plait.zeros(3)
    bad["param_groups"][0]["lr"] = 7.0
    with pytest.raises(ValueError, match="shape"):
        optimizer.load_state_dict(bad)
    assert optimizer.param_groups[0]["lr"] == 0.1
    assert optimizer.state[p]["exp_avg"].tolist() == saved["state"][0]["exp_avg"].tolist()
    with pytest.raises(ValueError, match="number of parameter groups"):
        optimizer.load_state_dict({"state": {}, "param_groups": []})


class Halver(optim.Optimizer):
    def __init__(self, params, lr=0.5):
        super().__init__(params, {"lr": lr})

    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                self.state[p]["seen"] = self.state[p].get("seen", 0) + 1
                with plait.no_grad():
                    p.sub_(p.grad * group["lr"])


def test_users_optimizer():
    p = leaf([1.0])
    optimizer = Halver([p])
    p.grad = leaf([1.0]).detach()
    seen = []
    before = optimizer.register_step_pre_hook(lambda o, args, kwargs: seen.append("before"))
    optimizer.register_step_post_hook(lambda o, args, kwargs: seen.append("after"))
    optimizer.step()
    before.remove()
    optimizer.step()
    assert seen == ["before", "after", "after"]
    assert p.item() == 0.0
    assert optimizer.state_dict() == {"state": {0: {"seen": 2}}, "param_groups": [{"lr": 0.5, "params": [0]}]}
    other = Halver([leaf([1.0])])
    other.load_state_dict(optimizer.state_dict())
    assert next(iter(other.state.values())) == {"seen": 2}
    assert "lr: 0.5" in repr(other)


def test_copies_go_on_alone():
    p = leaf([1.0])
    optimizer = optim.Adam([p], lr=0.1)
    p.grad = leaf([1.0]).detach()
    optimizer.step()
    for other in (pickle.loads(pickle.dumps(optimizer)), copy.deepcopy(optimizer)):
        q = other.param_groups[0]["params"][0]
        assert q is not p
        q.grad = leaf([1.0]).detach()
        other.step()
        assert other.state[q]["step"].item() == 2
        assert q.item() < p.item()
    assert optimizer.state[p]["step"].item() == 1


def test_half_parameters_keep_float_states():
    p = plait.tensor([1.0, 2.0], dtype=plait.bfloat16, requires_grad=True)
    optimizer = optim.Adam([p], lr=1e-2)
    p.grad = plait.tensor([0.1, 0.2], dtype=plait.bfloat16)
    optimizer.step()
    saved = optimizer.state_dict()
    assert saved["state"][0]["exp_avg"].dtype is plait.float32
    optimizer.load_state_dict(saved)
    assert optimizer.state[p]["exp_avg"].dtype is plait.float32


@pytest.mark.parametrize(
    ("shape", "scale", "want"),
    [
        ((2, 3), 1, [-0.388671875, 0.11474609375, -0.69921875, -0.66015625, -0.75390625, -0.2373046875]),
        ((3, 2), 1.5**0.5, [-0.193359375, 0.63671875, -0.70703125, -0.35546875, -0.5390625, 0.20703125]),
    ],
)
def test_muon_rounds_where_pytorch_does(shape, scale, want):
    p = leaf(np.zeros(shape), plait.float32)
    optimizer = optim.Muon([p], lr=1, weight_decay=0.0, momentum=0.0, nesterov=False)
    p.grad = plait.tensor([0.5, -1.25, 2.0, 0.75, 1.5, -0.375]).reshape(shape)
    optimizer.step()
    np.testing.assert_allclose(p.detach().numpy().ravel(), np.array(want) * scale, rtol=1e-6)


def test_muon_moves_along_an_orthogonal_matrix():
    p = leaf(np.eye(3, 4), plait.float32)
    optimizer = optim.Muon([p], lr=0.1, weight_decay=0.0)
    p.grad = plait.tensor(np.random.default_rng(0).normal(size=(3, 4)), dtype=plait.float32)
    optimizer.step()
    move = (np.eye(3, 4) - p.detach().numpy()) / 0.1
    assert np.all(np.abs(np.linalg.svd(move, compute_uv=False) - 1) < 0.35)
    with pytest.raises(ValueError, match="matrices"):
        optim.Muon([leaf([1.0])])


def test_a_dropped_optimizer_frees_its_parameters_at_once():
    gc.disable()
    try:
        p = plait.nn.Parameter(plait.ones(3))
        seen = weakref.ref(p)
        o = optim.SGD([p], lr=0.1, momentum=0.9)
        p.sum().backward()
        o.step()
        assert "momentum_buffer" in o.state[p]
        del o, p
        assert seen() is None
    finally:
        gc.enable()


def test_a_wrapper_need_not_call_init():
    class Wrapper(optim.Optimizer):
        def __init__(self, inner):
            self.inner, self.param_groups, self.state = inner, inner.param_groups, inner.state

        def step(self, closure=None):
            return self.inner.step(closure)

    p = plait.nn.Parameter(plait.ones(2))
    wrapper = Wrapper(optim.SGD([p], lr=0.5))
    seen = []
    wrapper.register_step_post_hook(lambda *_: seen.append(1))
    schedule = optim.lr_scheduler.StepLR(wrapper, 1, 0.1)
    p.sum().backward()
    wrapper.step()
    schedule.step()
    wrapper.zero_grad()
    assert p.tolist() == [0.5, 0.5] and p.grad is None and seen == [1]
    assert wrapper.state_dict()["param_groups"][0]["lr"] == pytest.approx(0.05) and wrapper.defaults == {}
    assert repr(wrapper).startswith("Wrapper")


@pytest.mark.parametrize("kind", [plait.optim.SGD, plait.optim.AdamW, plait.optim.RMSprop])
def test_groups_without_parameters(kind):
    x, y = (plait.nn.Parameter(plait.tensor([v])) for v in (2.0, 3.0))
    nothing = kind([{"params": []}], lr=0.1)
    nothing.step()
    nothing.load_state_dict(nothing.state_dict())
    assert nothing.state_dict()["state"] == {}
    for optimizer in (
        kind([{"params": []}, {"params": [x], "lr": 0.5}, {"params": []}, {"params": [y]}], lr=0.1),
        nothing,
    ):
        if optimizer is nothing:
            nothing.add_param_group({"params": [x], "lr": 0.5})
            nothing.add_param_group({"params": [y]})
        alone = [plait.nn.Parameter(p.detach().clone()) for p in (x, y)]
        same = kind([{"params": alone[:1], "lr": 0.5}, {"params": alone[1:]}], lr=0.1)
        for _ in range(2):
            (x * y).backward()
            alone[0].mul(alone[1]).backward()
            optimizer.param_groups[-1]["lr"] = same.param_groups[-1]["lr"] = 0.2
            for o in (optimizer, same):
                o.step()
                o.zero_grad()
        assert [x.tolist(), y.tolist()] == [p.tolist() for p in alone]
