"""What a checkpoint keeps of values, when a save has ended, and whose error a failure is."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import plait
import pytest
from checkpoint_cases import model, on_ranks, rows, whole
from plait import distributed as dist
from plait.distributed import checkpoint as dcp
from plait.distributed.checkpoint.state_dict import (
    get_model_state_dict,
)


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
        return one, two

    first, second = on_ranks(2, fn)
    assert "rank 1: " in first[0] and "cannot save a object" in first[0] and "cannot save a object" in second[0]
    assert "rank 1: " in first[1] and "wanted is [4]" in second[1]
    dcp.load({"w": kept}, checkpoint_id=tmp_path)
    assert kept.tolist() == [1, 1, 1]


def test_torn_files(tmp_path):
    dcp.save({"layer.weight": plait.ones(100)}, checkpoint_id=tmp_path)
    (file,) = Path(tmp_path).glob("*.safetensors")
    os.truncate(file, 60)
    with pytest.raises(ValueError, match=rf'{file.name}: tensor "layer.weight": the file has the wrong size') as info:
        dcp.load({"layer.weight": plait.zeros(100)}, checkpoint_id=tmp_path)
    assert str(file) in str(info.value)


def test_ctrl_c_as_an_asynchronous_save_starts_leaves_no_wait_without_end(tmp_path):
    script = """
        import sys, threading, plait
        from plait.distributed import checkpoint as dcp
        def interrupted(self):
            raise KeyboardInterrupt
        start, threading.Thread.start = threading.Thread.start, interrupted
        try:
            dcp.async_save({"a": plait.ones(3)}, checkpoint_id=sys.argv[1])
        except KeyboardInterrupt:
            print("interrupted")
        threading.Thread.start = start
    """
    command = [sys.executable, "-c", textwrap.dedent(script), str(tmp_path / "a")]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert (done.stdout.strip(), done.returncode) == ("interrupted", 0), done.stderr
