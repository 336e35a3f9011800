"""Checkpoints of many ranks, loaded into other layouts."""

import functools
import os
import subprocess
import sys
from pathlib import Path

import plait
import pytest
from plait import distributed as dist
from plait import nn
from plait.distributed import checkpoint as dcp
from plait.distributed import fsdp
from plait.distributed._placement import Placement, place
from plait.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_state_dict,
    set_model_state_dict,
    set_state_dict,
)
from plait.nn.parallel import DistributedDataParallel
from plait.optim.lr_scheduler import StepLR
from ranks import on_ranks as on_ranks_with

on_ranks = functools.partial(on_ranks_with, devices=["cpu:0"])


def model(seed=0):
    plait.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 2))


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


def rows(whole, rank, n):
    size = -(-whole.shape[0] // n)
    start = min(rank * size, whole.shape[0])
    part = whole[start : min(start + size, whole.shape[0])].clone()
    return place(part, Placement(tuple(whole.shape), (start, *[0] * (whole.dim() - 1))))


WHOLE = {"w": (7, 3), "few": (2,), "even": (8, 2)}


def whole(name):
    return plait.arange(float(plait.zeros(WHOLE[name]).numel())).reshape(WHOLE[name])


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


def test_values_come_back_as_they_were(tmp_path):
    values = {
        "list": [1, 2.5, None, True, "text"],
        "tuple": (1, (2, 3)),
        "big": 1 << 80,
        "inf": float("inf"),
        "bytes": b"\x00\xff",
        "mixed": [{"t": plait.ones(2), "n": 1}, {"t": plait.zeros(3), "n": (2,)}],
        3: "a key that is a number",
        "keys": [{1: 2, "a": {2: 3}}],
    }
    dcp.save(values, checkpoint_id=tmp_path)
    blank = {
        "list": None,
        "tuple": None,
        "big": 0,
        "inf": 0.0,
        "bytes": b"",
        "mixed": [{"t": plait.zeros(2), "n": 0}, {"t": plait.ones(3), "n": 0}],
        3: "",
        "keys": [{1: 0, "a": {2: 0}}],
    }
    dcp.load(blank, checkpoint_id=tmp_path)
    for key, value in values.items():
        if key != "mixed":
            assert blank[key] == value, key
    assert blank["mixed"][0]["t"].tolist() == [1, 1]
    assert blank["mixed"][1] == {"t": blank["mixed"][1]["t"], "n": (2,)}


def test_async_save(tmp_path):
    def fn(rank):
        t = rows(whole("w"), rank, 2)
        future = dcp.async_save({"w": t}, checkpoint_id=tmp_path)
        t.zero_()
        dist.barrier()
        future.result(60)
        dcp.load({"w": t}, checkpoint_id=tmp_path)
        return plait.equal(t, rows(whole("w"), rank, 2))

    assert on_ranks(2, fn) == [True, True]
    assert dcp.async_save({"a": plait.ones(1)}, checkpoint_id=tmp_path / "b").result(60) is None


def test_a_rank_waits_for_its_saves(tmp_path):
    for i in range(20):

        def fn(rank, i=i):
            dist.init_process_group()
            dcp.async_save({"w": rows(whole("w"), rank, 2)}, checkpoint_id=tmp_path / str(i))

        dist.spawn(fn, nprocs=2, devices=["cpu:0"])
        w = plait.zeros(7, 3)
        dcp.load({"w": w}, checkpoint_id=tmp_path / str(i))
        assert plait.equal(w, whole("w"))


@pytest.mark.parametrize("asks", [False, True])
def test_a_save_that_fails_behind_a_rank_is_its_error(tmp_path, asks):
    def fn(rank):
        dist.init_process_group()
        future = dcp.async_save({"w": rows(whole("w"), rank, 2)}, checkpoint_id=tmp_path)
        if asks:
            assert "index.json" in str(future.exception())

    (tmp_path / "index.json").mkdir()
    if asks:
        dist.spawn(fn, nprocs=2, devices=["cpu:0"])
    else:
        with pytest.raises(OSError, match=r"index\.json"):
            dist.spawn(fn, nprocs=2, devices=["cpu:0"])


def test_a_process_waits_for_its_saves(tmp_path):
    script = f"""
import plait
from plait.distributed import checkpoint as dcp
for name in ("good", "bad"):
    dcp.async_save({{"w": plait.ones(300000)}}, checkpoint_id={str(tmp_path)!r} + "/" + name)
"""
    (tmp_path / "bad" / "index.json").mkdir(parents=True)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert f"async_save to {tmp_path}/bad failed" in done.stderr and "index.json" in done.stderr
    assert "good" not in done.stderr
    w = plait.zeros(300000)
    dcp.load({"w": w}, checkpoint_id=tmp_path / "good")
    assert w.min().item() == 1


def test_ranks_that_name_different_folders(tmp_path):
    def fn(rank):
        with pytest.raises(RuntimeError) as info:
            dcp.save({"w": rows(whole("w"), rank, 3)}, checkpoint_id=tmp_path / str(rank // 2))
        return str(info.value)

    for message in on_ranks(3, fn):
        assert f"rank 0 to {tmp_path}/0, rank 2 to {tmp_path}/1" in message
    assert not list(tmp_path.iterdir())


def test_what_ranks_must_agree_on(tmp_path):
    def fn(rank):
        with pytest.raises(RuntimeError, match=r'tensor "a\.w": ranks 0 and 1 hold different values'):
            dcp.save({"a": {"w": plait.full((2,), float(rank))}}, checkpoint_id=tmp_path)
        m = model()  # whose statistics differ
        m[1].running_mean.fill_(float(rank))
        for state in ({"m": m}, {"m": m.state_dict()}, {"m": get_model_state_dict(m)}):
            dcp.save(state, checkpoint_id=tmp_path)

    on_ranks(3, fn)
    other = model()
    dcp.load({"m": other}, checkpoint_id=tmp_path)
    assert other[1].running_mean.tolist() == [0.0] * 5


def test_errors_are_everybodys(tmp_path):
    dcp.save({"w": plait.ones(3), "n": 1}, checkpoint_id=tmp_path)

    def message(state, load=True):
        with pytest.raises((ValueError, TypeError, RuntimeError, OSError)) as info:
            (dcp.load if load else dcp.save)(state, checkpoint_id=tmp_path)
        return str(info.value)

    kept = plait.zeros(3)
    assert "no tensors named a, b" in message({"w": kept, "a": plait.ones(1), "b": plait.ones(1)})
    assert "no values named m" in message({"w": kept, "m": 0})
    assert "w (the checkpoint's is [3], wanted is [2 2])" in message({"w": plait.ones(2, 2)})
    assert kept.tolist() == [0, 0, 0]
    assert "'f': cannot save a function" in message({"f": message}, load=False)
    assert "two entries that are called 'a.b'" in message({"a": {"b": 1}, "a.b": 2}, load=False)
    assert "want a dict" in message([1], load=False)
    with pytest.raises(OSError, match="is no checkpoint"):
        dcp.load({}, checkpoint_id=tmp_path / "nothing")
    with pytest.raises(ValueError, match="checkpoint_id"):
        dcp.save({})

    def fn(rank):
        one = message({"w": plait.ones(3), "v": object() if rank == 1 else 1}, load=False)
        two = message({"w": plait.ones(3 + rank)})
        three = message({"w": rows(plait.ones(4), 2 * rank, 4)}, load=False)
        return one, two, three

    first, second = on_ranks(2, fn)
    assert "rank 1: " in first[0] and "cannot save a object" in first[0] and "cannot save a object" in second[0]
    assert "rank 1: " in first[1] and "wanted is [4]" in second[1]
    assert "the ranks hold 2 of its 4 elements" in first[2] and first[2] == second[2]
    dcp.load({"w": kept}, checkpoint_id=tmp_path)
    assert kept.tolist() == [1, 1, 1]


def test_torn_files(tmp_path):
    dcp.save({"layer.weight": plait.ones(100)}, checkpoint_id=tmp_path)
    (file,) = Path(tmp_path).glob("*.safetensors")
    os.truncate(file, 60)
    with pytest.raises(ValueError, match=rf'{file.name}: tensor "layer.weight": the file is torn') as info:
        dcp.load({"layer.weight": plait.zeros(100)}, checkpoint_id=tmp_path)
    assert str(file) in str(info.value)


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
        p = nn.Parameter(rows(whole("w") * (not loading), rank, n).detach())
        place(p, Placement((7, 3), (min(rank * -(-7 // n), 7), 0)))
        optimizer = plait.optim.Adam([p], lr=0.1)
        if loading:
            dcp.load(
                {"p": p.detach() if n == 1 else place(p.detach(), p._placement), "o": optimizer}, checkpoint_id=tmp_path
            )
        else:
            p.grad = p.detach() * 2
            optimizer.step()
            dcp.save({"p": place(p.detach(), p._placement), "o": optimizer}, checkpoint_id=tmp_path)
        kept = optimizer.state_dict()["state"][0]
        return p.detach().tolist(), kept["exp_avg"].tolist(), float(kept["step"])

    saved = on_ranks(3, fn, 3, False)
    loaded = on_ranks(2, fn, 2, True)
    for field in range(2):
        assert [v for rank in saved for v in rank[field]] == [v for rank in loaded for v in rank[field]]
    assert loaded[0][2] == 1
