"""Checkpoints of many ranks, loaded into other layouts."""

import plait
import pytest
from checkpoint_cases import WHOLE, model, on_ranks, rows, whole
from plait import nn
from plait.distributed import checkpoint as dcp
from plait.distributed import fsdp
from plait.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_state_dict,
    set_model_state_dict,
    set_state_dict,
)
from plait.nn.parallel import DistributedDataParallel
from plait.optim.lr_scheduler import StepLR


def train(m, optimizer, steps, start=0, scheduler=None):
    losses = []
    for i in range(start, start + steps):
        x = plait.arange(12.0).reshape(4, 3).sin() + i / 10
        loss = m(x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if scheduler is not None:
            scheduler.step()
        losses.append(loss.item())
    return losses


def everything(m, steps=0):
    optimizer = plait.optim.AdamW(m.parameters(), lr=0.05)
    return {"model": m, "optimizer": optimizer, "scheduler": StepLR(optimizer, 2, 0.5), "step": steps}


def test_training_goes_on_as_if_unbroken(tmp_path):
    state = everything(model())
    train(state["model"], state["optimizer"], 3, scheduler=state["scheduler"])
    state["step"] = 3
    dcp.save(state, checkpoint_id=tmp_path)
    want = train(state["model"], state["optimizer"], 3, 3, state["scheduler"])

    other = everything(model(seed=1))  # an optimizer without a step
    dcp.load(other, checkpoint_id=tmp_path)
    assert other["step"] == 3
    assert train(other["model"], other["optimizer"], 3, other["step"], other["scheduler"]) == want


@pytest.mark.parametrize("saving,loading", [(0, 2), (2, 0), (3, 2), (2, 2)])
def test_ddp_and_one_device_load_each_others(tmp_path, saving, loading):
    def save(rank):
        m = DistributedDataParallel(model()) if rank is not None else model()
        state = everything(m)
        train(m, state["optimizer"], 2)
        state["step"] = 2
        dcp.save(state, checkpoint_id=tmp_path)
        return train(m, state["optimizer"], 2, 2)

    def load(rank):
        m = DistributedDataParallel(model(seed=1)) if rank is not None else model(seed=1)
        state = everything(m)
        dcp.load(state, checkpoint_id=tmp_path)
        return train(m, state["optimizer"], 2, state["step"])

    want = on_ranks(saving, save)[0] if saving else save(None)
    got = on_ranks(loading, load) if loading else [load(None)]
    for losses in got:
        assert losses == pytest.approx(want, rel=1e-6)


def test_shards_load_on_other_numbers_of_ranks(tmp_path):
    def save(rank):
        shards = {name: rows(whole(name), rank, 4) for name in WHOLE}
        dcp.save({"nested": {"deep": shards}, f"seed of {rank}": rank}, checkpoint_id=tmp_path)

    def load(rank, n):
        shards = {name: rows(plait.zeros(WHOLE[name]), rank, n) for name in WHOLE}
        dcp.load({"nested": {"deep": shards}}, checkpoint_id=str(tmp_path))
        return all(plait.equal(shards[name], rows(whole(name), rank, n)) for name in WHOLE)

    on_ranks(4, save)
    for n in (1, 2, 3, 8):
        assert all(on_ranks(n, load, n))
    state = {"nested": {"deep": {name: plait.zeros(shape, dtype=plait.float64) for name, shape in WHOLE.items()}}}
    dcp.load(state, checkpoint_id=tmp_path)
    for name, t in state["nested"]["deep"].items():
        assert plait.equal(t, whole(name).double())
    found = dcp.FileSystemReader(tmp_path).read_metadata()
    assert found.tensors["nested.deep.w"].size == (7, 3)
    assert found.tensors["nested.deep.w"].dtype == plait.float32
    assert found.values == {f"seed of {r}": r for r in range(4)}


class Odd(nn.Module):
    """Parameters of every kind: smaller than the world, without dimensions, frozen, shared."""

    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(3, 7), nn.Linear(7, 3)
        self.scale = nn.Parameter(plait.tensor(1.5))
        self.pair = nn.Parameter(plait.tensor([0.5, 2.0]))
        self.frozen = nn.Parameter(plait.ones(3), requires_grad=False)
        self.again = self.up
        self.norm = nn.BatchNorm1d(7)

    def forward(self, x):
        y = self.norm(self.again(x)).tanh() * self.scale
        return self.down(y) * self.frozen + self.pair.sum()


def odd(seed):
    plait.manual_seed(seed)
    return Odd()


def divided(kind, seed):
    m = odd(seed)
    if kind == "ddp":
        return DistributedDataParallel(m)
    if kind == "fsdp":
        fsdp.fully_shard(m.down)
        fsdp.fully_shard(m)
        return m
    if kind == "wrapped":
        return fsdp.FSDP(m)
    return m


@pytest.mark.parametrize("saving", ["fsdp", "ddp", "wrapped", None])
@pytest.mark.parametrize("loading", ["fsdp", "ddp", "wrapped", None])
def test_every_way_of_training_loads_every_other(tmp_path, saving, loading):
    def save(rank):
        state = everything(divided(saving, 0))
        train(state["model"], state["optimizer"], 2, scheduler=state["scheduler"])
        with plait.no_grad():
            state["model"](plait.ones(4, 3))  # which leaves parameters gathered
        # Under names, because not every way has the parameters in one order.
        weights, optim = get_state_dict(state["model"], state["optimizer"])
        dcp.save({"model": weights, "optim": optim, "scheduler": state["scheduler"]}, checkpoint_id=tmp_path)
        return train(state["model"], state["optimizer"], 3, 2, state["scheduler"])

    def load(rank):
        state = everything(divided(loading, 1))
        weights, optim = get_state_dict(state["model"], state["optimizer"])
        dcp.load({"model": weights, "optim": optim, "scheduler": state["scheduler"]}, checkpoint_id=tmp_path)
        set_state_dict(state["model"], state["optimizer"], model_state_dict=weights, optim_state_dict=optim)
        return train(state["model"], state["optimizer"], 3, 2, state["scheduler"])

    want = on_ranks(4, save)[0] if saving else save(0)
    for losses in on_ranks(3, load) if loading else [load(0)]:
        assert losses == pytest.approx(want, rel=1e-5)


def test_the_same_shards_go_on_bit_for_bit(tmp_path):
    def fn(rank):
        state = everything(divided("fsdp", 0))
        train(state["model"], state["optimizer"], 2)
        dcp.save(state, checkpoint_id=tmp_path)
        want = train(state["model"], state["optimizer"], 3, 2)
        other = everything(divided("fsdp", 1))
        dcp.load(other, checkpoint_id=tmp_path)
        return want == train(other["model"], other["optimizer"], 3, 2)

    assert on_ranks(3, fn) == [True] * 3


def test_whole_states_of_fsdp(tmp_path):
    def fn(rank):
        state = everything(divided("fsdp", 0))
        train(state["model"], state["optimizer"], 2)
        options = StateDictOptions(full_state_dict=True, cpu_offload=True)
        weights, optim = get_state_dict(state["model"], state["optimizer"], options=options)
        if rank != 0:
            assert not weights and not optim
        else:
            plait.save(optim, tmp_path / "optim.pt")
            again = plait.load(tmp_path / "optim.pt")
            assert again["state"].keys() == optim["state"].keys()
        other = everything(divided("fsdp", 5))
        given = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
        set_state_dict(
            other["model"], other["optimizer"], model_state_dict=weights, optim_state_dict=optim, options=given
        )
        again, _ = get_state_dict(other["model"], other["optimizer"], options=options)
        same = all(plait.equal(weights[n], again[n]) for n in weights)
        return same, [tuple(t.shape) for t in weights.values()], train(other["model"], other["optimizer"], 2, 2)

    first, *others = on_ranks(3, fn)
    assert all(same for same, _, _ in (first, *others))
    assert first[1] == [tuple(t.shape) for t in odd(0).state_dict().values()]
    assert all(losses == first[2] for _, _, losses in others)


def test_states_by_name():
    def fn(rank):
        state = everything(DistributedDataParallel(model(rank)))
        train(state["model"], state["optimizer"], 2)
        return get_state_dict(state["model"], state["optimizer"], options=StateDictOptions(full_state_dict=True))

    weights, optim = on_ranks(2, fn)[1]
    single = everything(model(3))
    assert list(weights) == list(single["model"].state_dict())
    set_state_dict(single["model"], single["optimizer"], model_state_dict=weights, optim_state_dict=optim)
    assert set(optim["state"]) == {n for n, _ in single["model"].named_parameters()}
    again = get_state_dict(single["model"], single["optimizer"])
    for name, kept in optim["state"].items():
        for field, value in kept.items():
            assert plait.equal(plait.as_tensor(again[1]["state"][name][field]), plait.as_tensor(value)), (name, field)
    with pytest.raises(ValueError, match=r"missing: \['0.weight'\]; unexpected: \['x'\]"):
        set_model_state_dict(
            single["model"], {("x" if n == "0.weight" else n): v for n, v in single["model"].state_dict().items()}
        )


def test_rank_0_gives_its_state():
    def fn(rank):
        state = everything(model(rank))
        if rank == 0:
            train(state["model"], state["optimizer"], 2)
        weights, optim = get_state_dict(state["model"], state["optimizer"])
        options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
        set_state_dict(
            state["model"],
            state["optimizer"],
            model_state_dict=weights if rank == 0 else {},
            optim_state_dict=optim if rank == 0 else {},
            options=options,
        )
        return train(state["model"], state["optimizer"], 2, 2)

    first, *others = on_ranks(3, fn)
    assert others == [first, first]

    def offloaded(rank):
        options = StateDictOptions(full_state_dict=True, cpu_offload=True)
        return len(get_model_state_dict(model(), options=options))

    assert on_ranks(2, offloaded) == [9, 0]
    with pytest.raises(ValueError, match="needs full_state_dict"):
        StateDictOptions(broadcast_from_rank0=True)


def test_the_optimizers_own_state_knows_where_its_tensors_belong(tmp_path):
    def fn(rank, n, loading):
        p = nn.Parameter(rows(whole("w") * (not loading), rank, n))
        optimizer = plait.optim.Adam([p], lr=0.1)
        if loading:
            dcp.load({"p": p.detach(), "o": optimizer}, checkpoint_id=tmp_path)
        else:
            p.grad = p.detach() * 2
            optimizer.step()
            dcp.save({"p": p.detach(), "o": optimizer}, checkpoint_id=tmp_path)
        kept = optimizer.state_dict()["state"][0]
        return p.to_local().tolist(), kept["exp_avg"].to_local().tolist(), float(kept["step"])

    saved = on_ranks(3, fn, 3, False)
    loaded = on_ranks(2, fn, 2, True)
    for field in range(2):
        assert [v for rank in saved for v in rank[field]] == [v for rank in loaded for v in rank[field]]
    assert loaded[0][2] == 1


def test_older_names(tmp_path):
    """As programs of FSDP save a model's shards and the optimiser's states."""
    writer, reader = dcp.FileSystemWriter(tmp_path), dcp.FileSystemReader(tmp_path)

    def saving(rank):
        m = fsdp.FullyShardedDataParallel(model())
        optimizer = plait.optim.AdamW(m.parameters(), lr=0.05)
        train(m, optimizer, 2)
        with fsdp.FullyShardedDataParallel.state_dict_type(m, fsdp.StateDictType.SHARDED_STATE_DICT):
            state = {"model": m.state_dict(), "optim": fsdp.FullyShardedDataParallel.optim_state_dict(m, optimizer)}
            dcp.save_state_dict(state_dict=state, storage_writer=writer, planner=dcp.DefaultSavePlanner())
            m.load_state_dict({k: v * 0 for k, v in state["model"].items()})
            state = {"model": m.state_dict()}
            dcp.load_state_dict(state, reader, planner=dcp.DefaultLoadPlanner())
            m.load_state_dict(state["model"])
        return train(m, optimizer, 2, 2)

    want = train(m := model(), plait.optim.AdamW(m.parameters(), lr=0.05), 4)[2:]
    for losses in on_ranks(2, saving):
        assert losses == pytest.approx(want, rel=1e-5)


def test_planners_have_one_way():
    with pytest.raises(NotImplementedError, match="flatten_state_dict must be True, got False"):
        dcp.DefaultSavePlanner(flatten_state_dict=False)
    with pytest.raises(NotImplementedError, match="allow_partial_load must be False, got True"):
        dcp.DefaultLoadPlanner(allow_partial_load=True)
    with pytest.raises(NotImplementedError, match="save: planner must be None or a default one, got str"):
        dcp.save({}, checkpoint_id="nowhere", planner="mine")
