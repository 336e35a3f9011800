"""Ranks that are processes, started by a launcher."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import process_work
import pytest
from launched import KINDS, check_no_process_is_left, kinds, run, script, start
from plait.distributed import flight_records
from plait.distributed.run import _arguments, _child, _mpiexec
from ranks import on_ranks


@pytest.mark.parametrize(("kind", "n"), [("openmpi", 3), ("mpich", 2)])
def test_bits_are_those_of_threads(kind, n):
    code, out, err = run(kind, n, [Path(process_work.__file__)])
    assert code == 0, err
    assert json.loads(out.strip().splitlines()[-1]) == on_ranks(n, process_work.everything)


@kinds
def test_exception_is_told_to_the_others(kind, tmp_path):
    path = script(tmp_path, "if rank == 1: raise ValueError('boom')\ndist.all_reduce(torch.ones(3))\n")
    code, _, err = run(kind, 2, [path])
    assert code == 1
    assert "DistributedError: all_reduce #1: rank 1 is gone: it raised ValueError: boom" in err
    assert "first: rank 1 on " in err
    assert "runpy" not in err
    assert "worker.py" not in err
    check_no_process_is_left(tmp_path)


@kinds
def test_killed_process_is_named(kind, tmp_path):
    # Not before rank 0 has left init_process_group, which would fail instead of all_reduce.
    path = script(
        tmp_path,
        "import pathlib, time\n"
        "begun = pathlib.Path(__file__).with_name('begun')\n"
        "if rank == 1:\n"
        "    while not begun.exists(): time.sleep(0.01)\n"
        "    time.sleep(0.1)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "begun.touch()\n"
        "dist.all_reduce(torch.ones(3))\n",
    )
    code, _, err = run(kind, 2, [path])
    assert code == 1
    assert "DistributedError: all_reduce #1: rank 1 is gone: process 1 on host " in err
    assert "exited or was killed (connection closed)" in err
    assert "first: rank 1: it was killed, or ended without a word" in err
    check_no_process_is_left(tmp_path)


@kinds
def test_killed_process_is_a_failure_though_nobody_needs_it(kind, tmp_path):
    path = script(tmp_path, "dist.barrier()\nif rank == 1: os.kill(os.getpid(), signal.SIGKILL)\n")
    code, _, err = run(kind, 2, [path], "--max-restarts", "1")
    assert code == 1
    assert "rank 1: it was killed, or ended without a word" in err
    assert "restart 1 of 1" in err


@kinds
def test_flight_record_of_stuck_processes(kind, tmp_path):
    path = script(
        tmp_path,
        "import glob, json\n"
        "def stopped(pid):\n"
        "    threads = [open(f).read() for f in glob.glob(f'/proc/{pid}/task/*/stat')]\n"
        "    return all(t.rpartition(') ')[2][0] == 'T' for t in threads)\n"
        "dist.all_reduce(torch.ones(3))\n"
        "pids = [None] * n\n"
        "dist.all_gather_object(pids, os.getpid())\n"
        "go = f'{sys.path[0]}/go'\n"
        "if rank == 0:\n"
        "    work = dist.all_reduce(torch.ones(5), async_op=True)\n"
        "    records = [dist.flight_recorder()]\n"
        "    os.kill(pids[1], signal.SIGSTOP)\n"
        "    while not stopped(pids[1]): time.sleep(0.01)\n"
        "    records.append(dist.flight_recorder(timeout=0.5))\n"
        "    os.kill(pids[1], signal.SIGCONT)\n"
        "    open(go, 'w').close()\n"
        "    work.wait()\n"
        "    print(json.dumps([r.to_dict() for r in records]))\n"
        "while not os.path.exists(go): time.sleep(0.01)\n"
        "if rank == 1: dist.all_reduce(torch.ones(5))\n",
    )
    code, out, err = run(kind, 2, [path])
    assert code == 0, err
    whole, partial = json.loads(out.strip().splitlines()[-1])
    for record in whole, partial:
        first, last = (
            [o for o in record["operations"] if o["rank"] == rank and o["name"] == "all_reduce"] for rank in (0, 1)
        )
        assert [o["state"] for o in first] == ["done", "waiting"]
        assert [o["state"] for o in last] == ["done"]
        assert last[0].get("heard", False) == (record is partial)
    assert not any(p.get("missing") for p in whole["processes"])
    assert "has not answered within 500ms" in partial["processes"][1]["missing"]


@kinds
def test_lost_process_leaves_a_flight_record(kind, tmp_path):
    path = script(
        tmp_path,
        "dist.all_reduce(torch.ones(3))\n"
        "if rank == 1: os.kill(os.getpid(), signal.SIGKILL)\n"
        "dist.all_reduce(torch.ones(5))\n",
    )
    code, _, err = run(kind, 2, [path], PLAIT_FLIGHT_RECORDER=str(tmp_path / "records"))
    assert code == 1
    [file] = (tmp_path / "records").glob("flight-*-0.json")
    assert f"; the flight record is in {file}" in err
    [record] = flight_records.load(tmp_path / "records")
    assert list(record.missing) == [1]
    assert "exited or was killed" in record.table()
    assert "rank 1 (heard by another process)" in record.table()


@kinds
def test_rank_that_raises_leaves_a_flight_record_everywhere(kind, tmp_path):
    path = script(
        tmp_path,
        "dist.all_reduce(torch.ones(3))\nif rank == 1: raise ValueError('boom')\ndist.all_reduce(torch.ones(5))\n",
    )
    code, _, err = run(kind, 2, [path], PLAIT_FLIGHT_RECORDER=str(tmp_path / "records"))
    assert code == 1
    assert "rank 1 is gone: it raised ValueError: boom; the flight record is in " in err
    [record] = flight_records.load(tmp_path / "records")
    assert record.missing == {}
    assert "rank 1 fails: it raised ValueError: boom" in record.table()
    assert "not called" in record.table()


def test_process_that_hangs_is_named(tmp_path):
    kind = next((k for k, path in KINDS.items() if path), "openmpi")
    path = script(tmp_path, "if rank == 1: os.kill(os.getpid(), signal.SIGSTOP)\ndist.all_reduce(torch.ones(3))\n")
    code, _, err = run(kind, 2, [path], "--grace", "0.5", HEARTBEAT="2")
    assert code == 1
    assert "rank 1 is gone: process 1 on host " in err
    assert "has not been heard from by process 0 for " in err
    check_no_process_is_left(tmp_path)


@kinds
def test_variables_and_arguments(kind, tmp_path):
    path = tmp_path / "variables.py"
    path.write_text(
        "import os, sys, json\n"
        "names = 'RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE GROUP_RANK MASTER_ADDR TORCHELASTIC_RESTART_COUNT'\n"
        "values, port = [os.environ[n] for n in names.split()], int(os.environ['MASTER_PORT'])\n"
        "os.write(1, (json.dumps([__name__, sys.argv[1:], values, port > 0]) + '\\n').encode())\n"
    )
    odd = ["a b", "", "'q\"", "--nproc-per-node", "é", "$HOME", "*"]
    code, out, err = run(kind, 2, [path, *odd])
    assert code == 0, err
    lines = sorted(json.loads(line) for line in out.splitlines())
    assert lines == [["__main__", odd, [str(r), str(r), "2", "2", "0", "127.0.0.1", "0"], True] for r in range(2)]


@kinds
def test_modules_and_programs(kind, tmp_path):
    (tmp_path / "some").mkdir()
    (tmp_path / "some" / "__init__.py").touch()
    (tmp_path / "some" / "thing.py").write_text("import os, sys; os.write(1, f'module {sys.argv[1:]}\\n'.encode())\n")
    code, out, err = run(kind, 2, ["some.thing", "x"], "-m", PYTHONPATH=str(tmp_path))
    assert (code, out) == (0, "module ['x']\n" * 2), err
    code, out, err = run(kind, 1, ["/bin/sh", "-c", "echo rank $RANK of $WORLD_SIZE; exit 0"], "--no-python")
    assert (code, out) == (0, "rank 0 of 1\n"), err
    failing = "if [ $RANK = 1 ]; then sleep 0.5; exit 3; fi"
    code, _, err = run(kind, 2, ["/bin/sh", "-c", failing], "--no-python")
    assert code == 1
    assert "first: rank 1 on " in err
    assert "exit code 3: it exited with 3" in err
    assert "rank 0" not in err
    code, _, err = run(kind, 1, ["/no/such/program"], "--no-python")
    assert code == 1
    assert "/no/such/program: No such file or directory" in err


@kinds
def test_restarts(kind, tmp_path):
    path = script(
        tmp_path,
        "count = int(os.environ['TORCHELASTIC_RESTART_COUNT'])\n"
        "if count < 2 and rank == count: sys.exit(7)\n"
        "dist.barrier()\nos.write(1, b'done after %d\\n' % count)\n",
    )
    code, out, err = run(kind, 2, [path], "--max-restarts", "3")
    assert code == 0, err
    assert out == "done after 2\n" * 2
    assert "restart 2 of 3" in err
    assert "rank 0 on " in err
    assert "exit code 7: it exited with 7" in err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_end_all(number, tmp_path):
    kind = next((k for k, path in KINDS.items() if path), "openmpi")
    path = script(tmp_path, "dist.barrier()\nos.write(1, b'there\\n')\ntime.sleep(60)\n")
    process = start(kind, 2, [path])
    assert process.stdout.readline() == "there\n"
    process.send_signal(number)
    process.communicate(timeout=30)
    assert process.returncode == 128 + number
    check_no_process_is_left(tmp_path)


@kinds
@pytest.mark.parametrize("whole", [True, False], ids=["the command", "mpiexec"])
def test_launcher_that_is_killed_leaves_nothing(kind, whole, tmp_path):
    text = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\ndist.barrier()\nos.write(1, b'there\\n')\ntime.sleep(60)\n"
    process = start(kind, 2, [script(tmp_path, text)])
    assert process.stdout.readline() == "there\n"
    if whole:
        process.kill()
    else:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.kill(int(children[0]), signal.SIGKILL)
    process.communicate(timeout=30)
    check_no_process_is_left(tmp_path)


def test_ranks_set_by_hand_are_refused():
    text = "import plait.distributed as dist\ndist.init_process_group()"
    variables = os.environ | {"RANK": "0", "WORLD_SIZE": "2"}
    said = subprocess.run([sys.executable, "-c", text], check=False, env=variables, capture_output=True, text=True)
    assert said.returncode == 1
    assert "WORLD_SIZE is 2, but no launcher started this process" in said.stderr
    assert "python -m plait.distributed.run --nproc-per-node N script.py" in said.stderr


@kinds
def test_wrong_rank_is_refused_everywhere(kind, tmp_path):
    path = tmp_path / "wrong.py"
    path.write_text("import plait.distributed as dist\ndist.init_process_group(rank=0, world_size=2)\n")
    code, _, err = run(kind, 2, [path])
    assert code == 1
    assert "this is rank 1 of 2, got rank 0 of 2" in err


def test_flags():
    a = _arguments.read(
        [
            "--nproc_per_node=2",
            "--hosts",
            "a,b",
            "--rdzv-endpoint",
            "h:1234",
            "--rdzv_backend=c10d",
            "-m",
            "train",
            "-x",
            "1",
        ]
    )
    assert (a.processes, a.nodes, a.hosts, a.module, a.program) == (2, 2, ["a", "b"], True, ["train", "-x", "1"])
    assert (a.master_address, a.master_port) == ("h", 1234)
    line = _mpiexec.command("mpiexec", "openmpi", a, {"A": "1"}, ["program"])
    assert line[1:3] == ["-n", "4"]
    assert "a:2,b:2" in line
    assert line[-3:] == ["-x", "A", "program"]
    line = _mpiexec.command("mpiexec", "mpich", a, {}, ["program"])
    assert line[-len(_child.held(["program"])) - 4 :] == ["-ppn", "2", "-n", "4", *_child.held(["program"])]


@pytest.mark.parametrize(
    ("flags", "wants"),
    [
        (["--nproc-per-node", "0", "x"], "want a number of at least 1, auto, gpu or cpu, got '0'"),
        (["--nnodes", "2", "x"], "--nnodes 2 wants the names of the nodes"),
        (["--nnodes", "3:2", "x"], "or a range such as 1:4"),
        (["--node-rank", "1", "x"], "Run the command once"),
        (["--hosts", "a,b", "--nnodes", "3", "x"], "--hosts names 2 nodes"),
        (["--no-python", "-m", "x"], "--module is for Python"),
        (["--max-restarts", "-1", "x"], "must not be negative"),
        (["--rdzv-endpoint", "h:p", "x"], "wants host:port"),
        (["--rdzv-backend", "etcd-v2", "x"], "want c10d or static, which have no effect, got 'etcd-v2'"),
        (["--hosts", "a,b", "--nnodes", "3:4", "x"], "--hosts names 2 nodes"),
        (["-r", "4", "x"], "or 3 for both, or such numbers of local ranks as in 0:1,1:2, got '4'"),
        (["--tee", "1,2", "x"], "got '1,2'"),
        (["--redirects", "0:1,1", "x"], "got '0:1,1'"),
        (["--local-ranks-filter", "a", "x"], "want local ranks such as 0,1, got 'a'"),
        (["--log-line-prefix-template", "${pid}", "x"], "want the macros role_name, rank, local_rank, hostname, got"),
        ([], "the following arguments are required: script"),
    ],
)
def test_wrong_flags(flags, wants, capsys, monkeypatch):
    monkeypatch.delenv("SLURM_JOB_NODELIST", raising=False)
    with pytest.raises(SystemExit):
        _arguments.read(flags)
    assert wants in capsys.readouterr().err


def test_missing_launcher(monkeypatch):
    with pytest.raises(_mpiexec.LaunchError, match="there is no /no/mpiexec"):
        _mpiexec.find("/no/mpiexec")
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(sys, "prefix", "/no")
    with pytest.raises(_mpiexec.LaunchError, match="no mpiexec of openmpi was found: pip install mpich"):
        _mpiexec.find("openmpi")


def test_example_is_the_same_with_threads_and_processes():
    kind = next((k for k, path in KINDS.items() if path), "openmpi")
    path = Path(__file__).resolve().parent.parent / "examples" / "ranks.py"
    said = subprocess.run([sys.executable, path], check=True, capture_output=True, text=True)
    code, out, err = run(kind, 2, [path])
    assert code == 0, err
    assert out == said.stdout
    assert "weight" in out
