"""Checkpoints of pipelines: the names are those of the whole model, so that every other way of training loads them."""

import sys

import plait
import pytest
from plait import distributed as dist
from plait import nn
from plait.distributed import checkpoint as dcp
from plait.distributed import fsdp
from plait.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    get_state_dict,
    set_optimizer_state_dict,
)
from plait.distributed.pipelining import Schedule1F1B, ScheduleInterleaved1F1B, pipeline
from plait.nn.parallel import DistributedDataParallel

FLAT = StateDictOptions(flatten_optimizer_state_dict=True)


def model(seed=0):
    plait.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 2))


def x(i):
    return plait.arange(12.0).reshape(4, 3).sin() + i / 10


def loss_of(y, _=None):
    return y.square().mean()


OPTIMIZERS = {
    "AdamW": lambda params: plait.optim.AdamW(params, lr=0.05),
    "Muon": lambda params: plait.optim.Muon([p for p in params if p.dim() == 2], lr=0.05),
    "Adafactor": lambda params: plait.optim.Adafactor(params, lr=0.05),
    "NAdam": lambda params: plait.optim.NAdam(params, lr=0.05),
}
chosen = "AdamW"


class Trained:
    """A way of training: its module, or the part of one that a rank has, and a step on the whole batch."""

    def __init__(self, module, step):
        self.module, self.step = module, step
        self.optimizer = OPTIMIZERS[chosen](module.parameters())

    def train(self, start, steps=2):
        losses = []
        for i in range(start, start + steps):
            self.optimizer.zero_grad()
            losses.append(self.step(x(i)))
            self.optimizer.step()
        return [v for v in losses if v is not None]

    def state(self):
        return {"model": self.module, "optim": get_optimizer_state_dict(self.module, self.optimizer, options=FLAT)}


def plain(m):
    def step(batch):
        loss = loss_of(m(batch))
        loss.backward()
        return loss.item()

    return Trained(m, step)


def divided(seed):
    m = model(seed)
    fsdp.fully_shard(m[0])
    return plain(fsdp.fully_shard(m))


def of_devices(seed):
    p = plait.Pipeline(model(seed), ["cpu:0", "cpu:1"], chunks=2, schedule="1f1b", loss_fn=loss_of)
    return Trained(p, lambda batch: p.step(batch, batch)[0].item())


def of_ranks(sizes):
    """Returns what makes a pipeline whose stages have so many layers, in turns on the ranks."""

    def make(seed):
        rank, n = dist.get_rank(), dist.get_world_size()
        pipe = pipeline(model(seed), (x(0)[:1],), split_policy=lambda m: sizes)
        stages = [pipe.build_stage(i, f"cpu:{rank}") for i in range(rank, len(sizes), n)]
        schedule = (
            Schedule1F1B(stages[0], 4, loss_fn=loss_of)
            if len(stages) == 1
            else ScheduleInterleaved1F1B(stages, 4, loss_fn=loss_of)
        )
        module = stages[0].submod
        if len(stages) > 1:  # all layers that the rank has, under the names of the whole model
            module = nn.Module()
            for stage in stages:
                for name, layer in stage.submod.named_children():
                    module.add_module(name, layer)

        def step(batch):
            losses = []
            last = rank == (len(sizes) - 1) % n
            schedule.step(*[batch] * (rank == 0), **({"target": batch, "losses": losses} if last else {}))
            return sum(v.item() for v in losses) / 4 if last else None

        return Trained(module, step)

    return make


WAYS = {
    "one device": (0, lambda seed: plain(model(seed))),
    "ddp": (2, lambda seed: plain(DistributedDataParallel(model(seed)))),
    "fsdp": (3, divided),
    "devices": (0, of_devices),
    "ranks": (2, of_ranks([3, 2])),
    "more ranks": (3, of_ranks([1, 2, 2])),
    "two stages a rank": (2, of_ranks([1, 2, 1, 1])),
}
PIPELINES = {"devices", "ranks", "more ranks", "two stages a rank"}
# Every way from and to one that is no pipeline, and one that is; the rest is slow.
PAIRS = [
    pytest.param(a, b, marks=[] if {a, b} & {"one device", "ranks"} else pytest.mark.slow)
    for a in WAYS
    for b in WAYS
    if {a, b} & PIPELINES
]


def run(way, fn):
    n, make = WAYS[way]
    if not n:
        return [fn(make)]
    results = [None] * n

    def start(rank):
        dist.init_process_group(timeout=120)
        results[rank] = fn(make)

    dist.spawn(start, nprocs=n)
    return results


@pytest.mark.parametrize("saving,loading", PAIRS)
def test_every_way_loads_every_other(tmp_path, saving, loading):
    check(tmp_path, saving, loading)
    names = dcp.FileSystemReader(tmp_path).read_metadata().tensors
    assert {f"model.{n}" for n in model().state_dict()} <= names.keys()
    assert "optim.state.4.weight.exp_avg" in names


@pytest.mark.parametrize("name", ["Muon", "Adafactor", "NAdam"])
@pytest.mark.parametrize(
    "saving,loading", [("one device", "more ranks"), ("two stages a rank", "ddp"), ("ranks", "devices")]
)
def test_optimizers_whose_state_is_of_other_shapes(tmp_path, monkeypatch, name, saving, loading):
    monkeypatch.setattr(sys.modules[__name__], "chosen", name)
    check(tmp_path, saving, loading)


def check(tmp_path, saving, loading):
    """Training goes on in another way as it would have gone on."""

    def save(make):
        t = make(0)
        t.train(0)
        dcp.save(t.state(), checkpoint_id=tmp_path)
        return t.train(2)

    def load(make):
        t = make(1)
        state = t.state()
        dcp.load(state, checkpoint_id=tmp_path)
        set_optimizer_state_dict(t.module, t.optimizer, state["optim"])
        return t.train(2)

    want = next(r for r in run(saving, save) if r)
    for losses in run(loading, load):
        assert losses == pytest.approx(want, rel=1e-5) or not losses


def test_flat_states():
    t = plain(model())
    t.train(0)
    state = get_optimizer_state_dict(t.module, t.optimizer, options=FLAT)
    assert state["param_groups.2.bias.lr"] == 0.05
    other = plain(model(1))
    set_optimizer_state_dict(other.module, other.optimizer, dict(state))
    for p, q in zip(t.module.parameters(), other.module.parameters(), strict=True):
        for k, v in t.optimizer.state[p].items():
            assert plait.equal(v, other.optimizer.state[q][k])
    with pytest.raises(ValueError, match="are one group, the state has others"):
        set_optimizer_state_dict(other.module, other.optimizer, {**state, "param_groups.2.bias.lr": 1.0})
    with pytest.raises(ValueError, match="is no entry of an optimiser's state"):
        set_optimizer_state_dict(other.module, other.optimizer, {**state, "lr": 1.0})
    weights, flat = get_state_dict(t.module, t.optimizer, options=FLAT)
    assert weights.keys() == get_model_state_dict(t.module).keys()
    assert flat.keys() == state.keys()
