"""Optimisers and checkpoints of distributed tensors: training goes on as on one device, in every layout."""

import copy
import time

import plait
import pytest
from checkpoint_cases import on_ranks
from plait import nn
from plait.distributed import checkpoint as dcp
from plait.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    get_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
    set_state_dict,
)
from plait.distributed.device_mesh import init_device_mesh
from plait.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_module, distribute_tensor
from plait.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

NAMES = [
    *("ASGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "LBFGS", "Lion", "Muon", "NAdam", "RAdam"),
    *("RMSprop", "Rprop", "SGD"),
]
MORE = {
    "SGD": {"momentum": 0.9},
    "Adam": {"amsgrad": True},
    "RMSprop": {"momentum": 0.5, "centered": True},
    "LBFGS": {"history_size": 3, "max_iter": 4},
}


def start(seed=0):
    """Returns a model whose second weight has an empty part on the second of two ranks, if divided by rows."""
    plait.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 5, bias=False), nn.Tanh(), nn.Linear(5, 1, bias=False)).double()


def optimizer_of(name, m):
    return getattr(plait.optim, name)(m.parameters(), lr=0.05, **MORE.get(name, {}))


def divided(m, mesh, placements):
    """Distributes the parameters that have the dimensions to divide; others are replicated."""

    def divide(_, module, mesh):
        for key, p in list(module._parameters.items()):
            if p is not None:
                fit = [q if not q.is_shard() or q.dim < p.dim() else Replicate() for q in placements]
                module.register_parameter(key, nn.Parameter(distribute_tensor(p.detach(), mesh, fit)))

    return distribute_module(m, mesh, divide)


def full(t):
    return t.full_tensor() if isinstance(t, DTensor) else t


def train(m, optimizer, begin, end):
    spread = next((p for p in m.parameters() if isinstance(p, DTensor)), None)
    for i in range(begin, end):
        x = plait.arange(12.0).double().reshape(4, 3).sin() + i / 10
        if spread is not None:
            x = distribute_tensor(x, spread.device_mesh)

        def closure(x=x):
            optimizer.zero_grad()
            loss = m(x).square().mean()
            loss.backward()
            return loss

        optimizer.step(closure)
    return [full(p).detach() for p in m.parameters()]


def close(got, want):
    for x, y in zip(got, want, strict=True):
        assert x.shape == y.shape
        assert plait.allclose(x, y, rtol=1e-9, atol=1e-9), (x - y).abs().max()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "first,then", [(Shard(0), Shard(1)), (Shard(1), Replicate()), (Replicate(), Shard(0))], ids=str
)
def test_optimizers_go_on_in_another_layout(name, first, then):
    alone = start()
    want = train(alone, optimizer_of(name, alone), 0, 4)

    def fn(rank):
        mesh = init_device_mesh("cpu", (2,))
        m = divided(start(), mesh, [first])
        o = optimizer_of(name, m)
        half = train(m, o, 0, 2)
        state = o.state_dict()
        for n, p in enumerate(m.parameters()):
            for key, value in state["state"].get(n, {}).items():
                if isinstance(value, plait.Tensor) and value.shape == p.shape:
                    assert isinstance(value, DTensor) and value.placements == p.placements, key
                    assert value.device_mesh == p.device_mesh
        other = start()
        for p, x in zip(other.parameters(), half, strict=True):
            p.data.copy_(x)
        other = divided(other, mesh, [then])
        others = optimizer_of(name, other)
        others.load_state_dict(copy.deepcopy(state))
        close(train(other, others, 2, 4), want)

    on_ranks(2, fn)


def test_states_of_other_shapes_are_refused():
    def fn(rank):
        mesh = init_device_mesh("cpu", (2,))
        m = divided(start(), mesh, [Shard(0)])
        o = optimizer_of("Adam", m)
        train(m, o, 0, 1)
        state = o.state_dict()
        parts = copy.deepcopy(state)
        for kept in parts["state"].values():
            kept.update({k: v.to_local() for k, v in kept.items() if isinstance(v, DTensor)})
        o.load_state_dict(parts)  # this rank's parts fit
        bad = copy.deepcopy(state)
        bad["state"][0]["exp_avg"] = plait.zeros(5, 3)
        with pytest.raises(ValueError, match=r"state \"exp_avg\" of parameter 0 .*got \[5 3\], want .*\[Shard\(0\)\]"):
            o.load_state_dict(bad)
        alone = optimizer_of("Adam", start())
        with pytest.raises(TypeError, match=r"parameter 0 of group 0, which is not distributed: got .*\[Shard\(0\)\]"):
            alone.load_state_dict(state)

    on_ranks(2, fn)


class Momentum(plait.optim.Optimizer):
    """An optimiser that users write."""

    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})

    @plait.no_grad()
    def step(self, closure=None):
        loss = closure and plait.enable_grad()(closure)()
        for g in self.param_groups:
            for p in g["params"]:
                m = self.state[p].setdefault("m", plait.zeros_like(p))
                m.mul_(0.9).add_(p.grad)
                p.add_(m, alpha=-g["lr"])
        return loss


def test_optimizers_that_users_write():
    alone = start()
    want = train(alone, Momentum(alone.parameters(), 0.1), 0, 4)

    def fn(rank):
        mesh = init_device_mesh("cpu", (2,))
        m = divided(start(), mesh, [Shard(0)])
        o = Momentum(m.parameters(), 0.1)
        half = train(m, o, 0, 2)
        other = start()
        for p, x in zip(other.parameters(), half, strict=True):
            p.data.copy_(x)
        other = divided(other, mesh, [Shard(1)])
        others = Momentum(other.parameters(), 0.1)
        others.load_state_dict(o.state_dict())
        close(train(other, others, 2, 4), want)
        bad = o.state_dict()
        bad["state"][0] = {"m": plait.zeros(5, 3)}
        with pytest.raises(ValueError, match=r"state 'm': got an ordinary tensor of shape \[5, 3\], want a distr"):
            others.load_state_dict(bad)

    on_ranks(2, fn)


LAYOUTS = {
    "one device": None,
    "rows on 2": ((2,), [Shard(0)]),
    "columns on 3": ((3,), [Shard(1)]),
    "rows and columns on 2 x 2": ((2, 2), [Shard(0), Shard(1)]),
    "copies of rows on 2 x 2": ((2, 2), [Replicate(), Shard(0)]),
}


def in_layout(layout, fn):
    """Runs fn(distribute) on one device, or on the ranks of a mesh."""
    if layout is None:
        return [fn(lambda m: m)]
    shape, placements = layout

    def run(rank):
        mesh = init_device_mesh("cpu", shape)
        return fn(lambda m: divided(m, mesh, placements))

    return on_ranks(plait.zeros(shape).numel(), run)


@pytest.mark.parametrize("name", ["Adafactor", "AdamW", "LBFGS", "Muon"])
@pytest.mark.parametrize("saving", LAYOUTS.values(), ids=LAYOUTS)
def test_every_layout_loads_every_other(tmp_path, saving, name):
    alone = start()
    want = train(alone, optimizer_of(name, alone), 0, 4)

    def save(distribute):
        m = distribute(start())
        o = optimizer_of(name, m)
        train(m, o, 0, 2)
        dcp.save({"m": m, "o": o}, checkpoint_id=tmp_path / "objects")
        dcp.async_save(dict(zip("mo", get_state_dict(m, o), strict=True)), checkpoint_id=tmp_path / "names").result()

    def load(distribute):
        for seed in (1, 2):
            m = distribute(start(seed))
            o = optimizer_of(name, m)
            if seed == 2:
                train(m, o, 0, 1)
            dcp.load({"m": m, "o": o}, checkpoint_id=tmp_path / "objects")
            close(train(m, o, 2, 4), want)
        m = distribute(start(1))
        o = optimizer_of(name, m)
        state = dict(zip("mo", get_state_dict(m, o), strict=True))
        dcp.load(state, checkpoint_id=tmp_path / "names")
        set_state_dict(m, o, model_state_dict=state["m"], optim_state_dict=state["o"])
        close(train(m, o, 2, 4), want)

    in_layout(saving, save)
    for layout in LAYOUTS.values():
        in_layout(layout, load)


@pytest.mark.parametrize("search", [None, "strong_wolfe"])
def test_lbfgs_of_ordinary_and_distributed_parameters(search):
    """The loss is a distributed tensor; one parameter is the same on both ranks."""

    def build():
        plait.manual_seed(0)
        return [plait.randn(s).double().requires_grad_() for s in [(3, 5), (4,), (2, 2)]]

    def run(params, scale):
        o = plait.optim.LBFGS(params, lr=0.1, max_iter=5, history_size=2, line_search_fn=search)

        def closure():
            o.zero_grad()
            whole = [p.sub(0.5).square().mul(i + 1.0).sum() for i, p in enumerate(params)]
            loss = sum(x.square() + x for x in (scale(x) for x in whole))
            loss.backward()
            return loss

        losses = [full(o.step(closure)).item() for _ in range(4)]
        return losses, [full(p).detach() for p in params]

    losses, want = run(build(), lambda x: x)

    def fn(rank):
        mesh = init_device_mesh("cpu", (2,))
        a, b, c = build()
        a, b = (distribute_tensor(x.detach(), mesh, [Shard(0)]).requires_grad_() for x in (a, b))
        got, params = run([a, b, c], lambda x: x if isinstance(x, DTensor) else distribute_tensor_of(x, mesh))
        assert got == pytest.approx(losses, rel=1e-9)
        close(params, want)

    def distribute_tensor_of(x, mesh):
        return DTensor.from_local(x, mesh, [Replicate()])

    on_ranks(2, fn)


@pytest.mark.parametrize("placement", [Shard(0), Shard(1), Replicate()], ids=str)
def test_grad_scaler(placement):
    alone = start()
    o, scaler = optimizer_of("SGD", alone), plait.amp.GradScaler("cpu", init_scale=8.0)

    def step(m, o, scaler, bad):
        x = plait.ones(4, 3).double()
        if isinstance(m[0].weight, DTensor):
            x = distribute_tensor(x, m[0].weight.device_mesh)
        o.zero_grad()
        scaler.scale(m(x).square().sum()).backward()
        if bad:
            g = full(m[0].weight.grad).clone()
            g[0, 0] = float("inf")  # of one rank, if it is divided
            w = m[0].weight
            w.grad = distribute_tensor(g, w.device_mesh, w.placements) if isinstance(w, DTensor) else g
        scaler.step(o)
        scaler.update()

    for i in range(4):
        step(alone, o, scaler, i == 1)
    assert scaler.get_scale() == 4

    def fn(rank):
        m = divided(start(), init_device_mesh("cpu", (2,)), [placement])
        o, mine = optimizer_of("SGD", m), plait.amp.GradScaler("cpu", init_scale=8.0)
        for i in range(4):
            step(m, o, mine, i == 1)
        assert mine.get_scale() == 4
        close([full(p) for p in m.parameters()], alone.parameters())

    on_ranks(2, fn)


@pytest.mark.parametrize("name", ["Adafactor", "AdamW", "Muon"])
@pytest.mark.parametrize("flat", [False, True])
def test_full_states(flat, name):
    alone = start()
    o = optimizer_of(name, alone)
    train(alone, o, 0, 2)
    options = {"full_state_dict": True, "flatten_optimizer_state_dict": flat}
    model_state, optim_state = get_state_dict(alone, o, options=StateDictOptions(**options))
    model_state, optim_state = copy.deepcopy(model_state), copy.deepcopy(optim_state)
    want = train(alone, o, 2, 4)

    def fn(rank):
        for shape, placements in [((2,), [Shard(0)]), ((1, 2), [Replicate(), Shard(1)])]:
            mesh = init_device_mesh("cpu", shape)
            for broadcast in (False, True):
                mine = StateDictOptions(**options, broadcast_from_rank0=broadcast)
                m = divided(start(1), mesh, placements)
                o = optimizer_of(name, m)
                given = ({}, {}) if broadcast and rank > 0 else (model_state, optim_state)
                set_model_state_dict(m, given[0], options=mine)
                set_optimizer_state_dict(m, o, given[1], options=mine)
                got = get_model_state_dict(m, options=StateDictOptions(full_state_dict=True))
                assert not any(isinstance(v, DTensor) for v in got.values())
                close(got.values(), model_state.values())
                kept = get_optimizer_state_dict(m, o, options=StateDictOptions(full_state_dict=True))
                assert not any(isinstance(v, DTensor) for s in kept["state"].values() for v in s.values())
                if not flat:
                    for key, state in optim_state["state"].items():
                        close([v.double() for v in kept["state"][key].values()], [v.double() for v in state.values()])
                there = get_model_state_dict(m, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
                assert bool(there) == (rank == 0)
                pieces = get_model_state_dict(m, options=StateDictOptions(cpu_offload=True))
                assert all(isinstance(v, DTensor) for v in pieces.values())
                close(train(m, o, 2, 4), want)

    on_ranks(2, fn)


def test_buffers_without_dimensions(tmp_path):
    norm = nn.BatchNorm1d(3)
    norm(plait.arange(12.0).reshape(4, 3))
    full_state = copy.deepcopy(get_model_state_dict(norm))
    dcp.save({"m": norm}, checkpoint_id=tmp_path)

    def fn(rank):
        for load in (
            lambda m: set_model_state_dict(m, full_state),
            lambda m: dcp.load({"m": m}, checkpoint_id=tmp_path),
        ):
            m = distribute_module(nn.BatchNorm1d(3), init_device_mesh("cpu", (2,)))
            load(m)
            assert m.num_batches_tracked.full_tensor().item() == 1
            got = get_model_state_dict(m, options=StateDictOptions(full_state_dict=True))
            assert {k: v.tolist() for k, v in got.items()} == {k: v.tolist() for k, v in full_state.items()}

    on_ranks(2, fn)


def test_states_that_do_not_fit():
    def fn(rank):
        mesh = init_device_mesh("cpu", (2,))
        m = divided(start(), mesh, [Shard(0)])
        state = {n: full(v) for n, v in m.state_dict().items()}
        state["0.weight"] = plait.zeros(3, 3)
        with pytest.raises(ValueError, match=r"'0.weight': got shape \[3, 3\] placed .*, want shape \[5, 3\] placed"):
            set_model_state_dict(m, state)
        with pytest.raises(ValueError, match=r"'0.weight': got shape \[5, 3\] placed .*, want shape \[5, 3\]$"):
            set_model_state_dict(start(), m.state_dict())

    on_ranks(2, fn)


def test_pending_tensors_are_refused(tmp_path):
    def fn(rank):
        mesh = init_device_mesh("cpu", (2,))
        x = DTensor.from_local(plait.ones(3), mesh, [Partial()])
        with pytest.raises(ValueError, match=r"tensor \"a.x\" is placed \[Partial\(sum\)\], want Shard or Replicate"):
            dcp.save({"a": {"x": x}}, checkpoint_id=tmp_path)

    on_ranks(2, fn)


def test_parallel_layers_go_on(tmp_path):
    """Layers under tensor parallelism, beside ordinary ones, are saved, and loaded on one device and on other ranks."""
    plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}

    def build(seed):
        plait.manual_seed(seed)
        # Of 4 ranks, the last has none of the features.
        return nn.Sequential(nn.Linear(3, 6), nn.GELU(), nn.Linear(6, 4), nn.LayerNorm(4)).double()

    def steps(m, o, begin, end):
        for i in range(begin, end):
            o.zero_grad()
            m(plait.arange(12.0).double().reshape(4, 3).sin() + i / 10).square().mean().backward()
            o.step()
        return [full(p).detach() for p in m.parameters()]

    alone = build(0)
    want = steps(alone, optimizer_of("AdamW", alone), 0, 4)

    def run(n, seed, begin, end, save):
        def fn(rank):
            m = parallelize_module(build(seed), init_device_mesh("cpu", (n,)), plan) if n else build(seed)
            o = optimizer_of("AdamW", m)
            if begin:
                dcp.load({"m": m, "o": o}, checkpoint_id=tmp_path)
            got = steps(m, o, begin, end)
            if save:
                dcp.save({"m": m, "o": o}, checkpoint_id=tmp_path)
            else:
                close(got, want)

        on_ranks(n, fn) if n else fn(0)

    run(2, 0, 0, 2, True)
    for n in (0, 2, 3, 4):
        run(n, 1, 2, 4, False)


@pytest.mark.parametrize("name", ["Adafactor", "Muon"])
def test_more_calls_than_a_queue_holds_before_the_other_rank_comes(name):
    """A rank whose queue is full lets the others, whose threads need Python's lock, come."""

    def fn(rank):
        mesh = init_device_mesh("cpu", (2,))
        whole = plait.arange(6.0).reshape(2, 3)
        params = [distribute_tensor(whole + i, mesh, [Shard(i % 2)]).requires_grad_() for i in range(150)]
        optimizer = getattr(plait.optim, name)(params, lr=0.01)
        for p in params:
            p.grad = p.detach()
        if rank == 1:
            time.sleep(0.3)
        optimizer.step()
        moved = params[0].detach()
        for i in range(1500):
            moved = moved.redistribute(placements=[Shard(i % 2)])
        assert plait.allclose(moved.full_tensor(), params[0].full_tensor())

    on_ranks(2, fn)
