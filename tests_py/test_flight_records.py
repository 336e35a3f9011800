"""Records of what ranks did last: while they run, after faults, and of ranks that hold up the others."""

import _thread
import json
import threading
import time
import warnings

import plait as torch
import pytest
from plait import distributed as dist
from plait.distributed import flight_records
from plait.distributed.flight_records import __main__ as command


def call(o):
    """Returns what a test compares of an operation."""
    return o["rank"], o["group"], o["seq"], o["name"], o["state"]


def test_record_while_ranks_are_stuck(tmp_path):
    records, stuck = [], threading.Barrier(3)

    def run(rank):
        dist.init_process_group()
        dist.all_reduce(torch.ones(4, 2))
        if rank == 2:
            stuck.wait()
            while sum(o["name"] == "all_gather" for o in dist.flight_recorder().operations) < 2:
                time.sleep(0.01)
            records.append(dist.flight_recorder(timeout=1))
            thread = threading.Thread(target=lambda: records.append(dist.flight_recorder()))
            thread.start()
            thread.join()
        else:
            stuck.wait()
        dist.all_gather([torch.zeros(3) for _ in range(3)], torch.ones(3))

    dist.spawn(run, nprocs=3)
    record = records[0]
    own = [call(o) for o in record.operations]
    for rank in range(3):
        assert (rank, "world", 1, "all_reduce", "done") in own
        assert ((rank, "world", 2, "all_gather", "waiting") in own) == (rank < 2)
    first = next(o for o in record.operations if o["name"] == "all_reduce")
    assert first["tensors"] == [{"dtype": "float32", "shape": [4, 2]}]
    assert (first["bytes"], first["detail"]) == (32, "sum")
    assert 0 < first["called_ns"] <= first["started_ns"] <= first["ended_ns"] <= time.time_ns() + 1_000_000_000
    assert [call(o) for o in records[1].operations] == own, "a thread of the rank gets the same"
    assert record.missing == {}
    table = str(record).splitlines()
    assert table[2].startswith("!")
    assert "all_gather" in table[2]
    assert "waiting" in table[2]
    assert "ranks 0, 1" in table[2]
    assert "not called" in table[3]
    assert "rank 2" in table[3]
    assert repr(record) == "<FlightRecord: 5 operations of 3 ranks>"

    record.save(tmp_path / "record.json")
    [again] = flight_records.load(tmp_path / "record.json")
    assert again.to_dict() == record.to_dict()
    record.export_chrome_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    slices = [(e["pid"], e["name"]) for e in events if e.get("cat") == "collective"]
    assert sorted(slices) == [
        (0, "all_gather #2"),
        (0, "all_reduce #1"),
        (1, "all_gather #2"),
        (1, "all_reduce #1"),
        (2, "all_reduce #1"),
    ]
    assert {e["ph"] for e in events} == {"M", "X"}


def test_record_from_a_thread_of_no_rank():
    go = threading.Event()

    def run(rank):
        dist.init_process_group()
        if rank == 0:
            go.wait(30)
        dist.barrier()

    dist.init_process_group()  # this thread's own world, which is over
    dist.destroy_process_group()
    context = dist.spawn(run, nprocs=2, join=False)
    try:
        end = time.monotonic() + 25
        while not any(o["rank"] == 1 and o["state"] == "waiting" for o in dist.flight_recorder().operations):
            assert time.monotonic() < end
            time.sleep(0.01)
        assert "not called" in dist.flight_recorder().table()
    finally:
        go.set()
        context.join()


def test_groups_and_purposes():
    def run(rank):
        dist.init_process_group()
        pair = dist.new_group([0, 1], group_desc="pair")
        if rank < 2:
            dist.all_reduce(torch.ones(2), group=pair)
        dist.barrier()
        if rank == 0:
            records.append(dist.flight_recorder())
        dist.barrier()

    records = []
    dist.spawn(run, nprocs=3)
    pairs = [o for o in records[0].operations if o["group"] == "pair"]
    assert [o["rank"] for o in sorted(pairs, key=lambda o: o["rank"])] == [0, 1]
    assert {g["name"]: g["ranks"] for g in records[0].to_dict()["groups"]}["pair"] == [0, 1]


def test_fault_is_written(tmp_path, capsys):
    errors = []

    def run(rank):
        dist.init_process_group(flight_records=tmp_path / "new")
        dist.all_reduce(torch.ones(2))
        if rank == 1:
            raise ValueError("no more paper")
        try:
            dist.all_reduce(torch.ones(3))
        except dist.DistError as error:
            errors.append(str(error))

    with pytest.raises(ValueError, match="no more paper"):
        dist.spawn(run, nprocs=3)
    [file] = (tmp_path / "new").glob("flight-*.json")
    assert len(errors) == 2
    for text in errors:
        assert text.endswith(f"rank 1 is gone: it raised ValueError: no more paper; the flight record is in {file}")
    assert (
        command.main([str(tmp_path / "new"), "--trace", str(tmp_path / "trace"), "--json", str(tmp_path / "json")]) == 0
    )
    shown = capsys.readouterr().out
    assert "it raised ValueError: no more paper" in shown
    assert "not called" in shown
    assert json.loads((tmp_path / "trace").read_text())["traceEvents"]
    assert [r.to_dict() for r in flight_records.load(tmp_path / "json")] == [
        r.to_dict() for r in flight_records.load(tmp_path / "new")
    ]


def test_jobs_of_a_folder(tmp_path, capsys):
    def run(rank):
        dist.init_process_group(flight_records=tmp_path)
        if rank == 0:
            raise ValueError("boom")
        dist.barrier()

    for _ in range(2):
        with pytest.raises(ValueError, match="boom"):
            dist.spawn(run, nprocs=2)
    assert len(flight_records.load(tmp_path)) == 2
    assert command.main([str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert shown.count("flight record of 2 ranks") == 1
    assert "1 earlier jobs are left out" in shown
    assert command.main([str(tmp_path), "--all"]) == 0
    assert capsys.readouterr().out.count("flight record of 2 ranks") == 2


def test_bad_input(tmp_path, capsys):
    with pytest.raises(ValueError, match="there are no ranks"):
        dist.flight_recorder()
    with pytest.raises(OSError, match="no such file"):
        flight_records.load(tmp_path / "none")
    (tmp_path / "flight-1-0.json").write_text("{")
    with pytest.raises(OSError, match="no file flight-"):
        flight_records.load(tmp_path)
    assert command.main([str(tmp_path)]) == 1
    assert "no file flight-" in capsys.readouterr().err

    def run(rank):
        dist.init_process_group()
        with pytest.raises(ValueError, match="want one between 0 and 1"):
            dist.warn_of_stragglers(share=1.5)
        with pytest.raises(ValueError, match="want a positive time"):
            dist.flight_recorder(timeout=0)
        with pytest.raises(TypeError, match="want a timedelta or seconds"):
            dist.flight_recorder("soon")

    dist.spawn(run, nprocs=2)


def test_straggler_is_named():
    def run(rank):
        dist.init_process_group()
        dist.warn_of_stragglers(share=0.6, lost=0.2, collectives=10, period=0.001)
        for _ in range(40):
            if rank == 1:
                time.sleep(0.005)
            dist.all_reduce(torch.ones(3))
        if rank == 0:
            ranks = {r["rank"]: r for r in dist.flight_recorder().to_dict()["ranks"]}
            assert ranks[1]["last"] > 20
            assert ranks[1]["late_ns"] > 1e6
            assert ranks[0]["wait_ns"] > 1e6
        dist.barrier()

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        dist.spawn(run, nprocs=3)
    texts = [str(w.message) for w in caught if w.category is dist.StragglerWarning]
    assert texts
    for text in texts:
        assert text.startswith("rank 1 holds up the group of the ranks [0 1 2]: it was the last to arrive in ")


def test_stragglers_can_be_ignored():
    def run(rank):
        dist.init_process_group()
        dist.warn_of_stragglers(False)
        for _ in range(30):
            if rank == 1:
                time.sleep(0.002)
            dist.barrier()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dist.spawn(run, nprocs=2)


def test_ctrl_c_leaves_a_record(tmp_path):
    def run(rank):
        dist.init_process_group(flight_records=tmp_path)
        if rank == 0:
            stop.wait(30)
        else:
            threading.Timer(0.3, _thread.interrupt_main).start()
        dist.barrier()

    stop = threading.Event()
    try:
        with pytest.raises(KeyboardInterrupt):
            dist.spawn(run, nprocs=2)
    finally:
        stop.set()
    [record] = flight_records.load(tmp_path)
    assert "the program was interrupted" in record.table()
    assert "not called" in record.table()
