"""Where the launcher puts output, which nodes it starts, and how scripts end in it."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import plait.distributed as dist
import pytest
from launched import KINDS, kinds, run, start
from plait.distributed.elastic.multiprocessing.errors import record
from plait.distributed.run import _arguments, _job, _logs, _mpiexec, _nodes

KIND = next((k for k, path in KINDS.items() if path), "openmpi")
TALK = (
    "import os, sys\n"
    "r = os.environ['RANK']\n"
    "print('out', r)\nprint('err', r, file=sys.stderr)\nsys.stdout.write('é' + r)\n"
)


def written(path, text):
    path.write_text(text)
    return path


def files(folder):
    """Returns the files of the only run in a folder, by their names in it."""
    (run,) = folder.iterdir()
    return {f.relative_to(run).as_posix(): f.read_text() for f in run.rglob("*") if f.is_file()}


ALL = {f"attempt_0/{r}/{s}.log": t for r in "01" for s, t in (("stdout", f"out {r}\né{r}"), ("stderr", f"err {r}\n"))}


@kinds
def test_output_in_files(kind, tmp_path):
    path, logs = written(tmp_path / "talk.py", TALK), tmp_path / "logs" / "é"
    code, out, err = run(kind, 2, [path], "--log-dir", str(logs), "-r", "3", "--rdzv-id", "job/1")
    assert (code, out) == (0, ""), err
    assert files(logs) == ALL
    assert f"output is in {logs}/job-1_" in err


@kinds
def test_output_in_files_and_on_the_console(kind, tmp_path):
    path, logs = written(tmp_path / "talk.py", TALK), tmp_path / "logs"
    code, out, err = run(kind, 2, [path], "--log-dir", str(logs), "--tee", "3")
    assert code == 0, err
    assert files(logs) == ALL
    assert sorted(out.splitlines()) == ["[default0]:out 0", "[default0]:é0", "[default1]:out 1", "[default1]:é1"]
    assert {"[default0]:err 0", "[default1]:err 1"} <= set(err.splitlines())


def test_output_of_some_ranks(tmp_path):
    path, logs = written(tmp_path / "talk.py", TALK), tmp_path / "logs"
    code, out, err = run(KIND, 2, [path], "--log-dir", str(logs), "-r", "0:1", "-t", "1:2")
    assert code == 0, err
    assert files(logs) == {k: v for k, v in ALL.items() if "/0/stdout" in k or "/1/stderr" in k}
    assert out == "out 1\né1"
    assert "[default1]:err 1\n" in err
    flags = [
        "--local-ranks-filter",
        "1",
        "-t",
        "3",
        "--role",
        "r",
        "--log-line-prefix-template",
        "<${role_name} ${rank}>",
    ]
    code, out, err = run(KIND, 2, [path], "--log-dir", str(tmp_path / "more"), *flags)
    assert (code, out) == (0, "<r 1>out 1\n<r 1>é1\n"), err
    assert files(tmp_path / "more") == ALL
    code, _, err = run(KIND, 1, [path], "--log-dir", str(written(tmp_path / "file", "")), "-r", "3")
    assert code == 1
    assert "plait.distributed.run: --log-dir: " in err


def test_output_of_each_start_and_of_a_process_that_is_killed(tmp_path):
    text = "import os, signal\nprint('there')\nos.kill(os.getpid(), signal.SIGKILL)\n"
    path, logs = written(tmp_path / "killed.py", text), tmp_path / "logs"
    code, out, err = run(KIND, 1, [path], "--log-dir", str(logs), "-t", "1", "--max-restarts", "1")
    assert (code, out) == (1, "[default0]:there\n" * 2), err
    assert files(logs) == {f"attempt_{i}/0/stdout.log": "there\n" for i in range(2)}


def test_large_output_and_children_that_outlive_their_rank(tmp_path):
    text = (
        "import os, subprocess, sys\n"
        "sys.stdout.write('x' * 3_000_000 + '\\n')\n"
        "child = subprocess.Popen(['sleep', '60'])\nopen(sys.argv[1], 'w').write(str(child.pid))\n"
    )
    path = written(tmp_path / "large.py", text)
    flags = ["--log-dir", str(tmp_path / "logs"), "-t", "3", "--grace", "2"]
    code, out, err = run(KIND, 1, [path, tmp_path / "pid"], *flags)
    os.kill(int((tmp_path / "pid").read_text()), 9)
    assert code == 0, err
    assert out.replace("[default0]:", "") == "x" * 3_000_000 + "\n"


def test_streams():
    assert _logs.streams("3") == {"": 3}
    assert _logs.streams("0:1,12:2") == {"0": 1, "12": 2}
    a = _arguments.read(["--redirects=1", "-t", "0:3", "--log_dir=x", "--nnodes", "1:3", "--hosts", "a,b", "s"])
    assert (a.logs.redirects, a.logs.tee, a.logs.folder, a.least, a.nodes) == ({"": 1}, {"0": 3}, "x", 1, 2)
    assert not _arguments.read(["s"]).logs.wanted


@pytest.mark.parametrize(
    ("code", "ends"), [("256", 0), ("-1", 255), ("2**80", 255), ("True", 1), ("3", 3), ("'why'", 1), ("None", 0)]
)
def test_exit_codes_are_those_of_the_process(code, ends, tmp_path):
    got, _, err = run(KIND, 1, [written(tmp_path / "exits.py", f"import sys; sys.exit({code})")])
    assert got == int(ends != 0)
    assert (f"exit code {ends}: it exited with" in err) == (ends != 0)


def test_errors_of_scripts(tmp_path):
    for name, text, wants in (
        ("no.py", None, "FileNotFoundError: [Errno 2] No such file or directory"),
        ("wrong.py", "def f(:\n", "SyntaxError: "),
        ("hook.py", "import sys\nsys.excepthook = lambda *a: print('mine')\nraise ValueError('é')", "ValueError: é"),
    ):
        path = tmp_path / name
        if text:
            path.write_text(text)
        code, out, err = run(KIND, 1, [path])
        assert code == 1
        assert "first: rank 0 on " in err
        assert wants in err
        assert out == ("mine\n" if name == "hook.py" else "")
        assert "runpy" not in err
        assert "_worker" not in err


def test_path_of_scripts(tmp_path, monkeypatch):
    path = written(tmp_path / "script.py", "import sys\nprint(sys.path[0], sys.flags.safe_path, sys.flags.optimize)\n")
    assert run(KIND, 1, [path])[1] == f"{tmp_path} False 0\n"
    got = run(KIND, 1, [path], PYTHONSAFEPATH="1")[1].split()
    assert got[0] != str(tmp_path)
    assert got[1:] == ["True", "0"]
    monkeypatch.setattr(sys, "orig_argv", sys.orig_argv)
    assert run(KIND, 1, [path], PYTHONOPTIMIZE="1")[1] == f"{tmp_path} False 1\n"


@kinds
def test_launch_inside_of_a_launch(kind, tmp_path):
    inner = written(
        tmp_path / "inner.py",
        "import plait.distributed as d\nd.init_process_group()\nd.barrier()\nprint(d.get_rank(), d.get_world_size())\n",
    )
    flags = f"'--mpi', {KINDS[kind]!r}, '--nproc-per-node', '2', {str(inner)!r}"
    outer = written(
        tmp_path / "outer.py",
        "import subprocess, sys\n"
        f"sys.exit(subprocess.run([sys.executable, '-m', 'plait.distributed.run', {flags}]).returncode)\n",
    )
    code, out, err = run(kind, 1, [outer])
    assert code == 0, err
    assert sorted(out.splitlines()) == ["0 2", "1 2"]


@kinds
def test_process_that_dies_before_it_joins(kind, tmp_path):
    """Nobody notices but the launcher: the others wait in MPI's initialisation."""
    text = (
        "import os, signal\nimport plait.distributed as d\n"
        "if os.environ['RANK'] == '1': os.kill(os.getpid(), signal.SIGKILL)\n"
        "d.init_process_group()\n"
    )
    code, _, err = run(kind, 2, [written(tmp_path / "early.py", text)], "--grace", "0.5")
    assert code == 1
    assert "rank 1: it was killed, or ended without a word" in err


@kinds
def test_input_is_rank_0s(kind, tmp_path):
    path = written(tmp_path / "reads.py", "import os, sys\nprint(os.environ['RANK'], repr(sys.stdin.readline()))\n")
    process = start(kind, 2, [path], stdin=subprocess.PIPE)
    out, err = process.communicate("hello\n", timeout=90)
    assert process.returncode == 0, err
    assert sorted(out.splitlines()) == ["0 'hello\\n'", "1 ''"]


def test_free_port_is_none_that_connections_get():
    first, last = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    assert all(not first <= _job._free_port() <= last for _ in range(20))


SSH = """#!/bin/sh
# Every host is this machine, but those that are gone.
while :; do case "$1" in -o) shift 2;; -*) shift;; *) break;; esac; done
host=$1; shift
if grep -qx "$host" "$GONE"; then exit 255; fi
# Open MPI keeps files in a folder that is named after the machine. Daemons that share it remove it from under
# each other.
TMPDIR=$(mktemp -d) || exit
export TMPDIR
trap 'rm -rf "$TMPDIR"' EXIT
/bin/sh -c "$*"
"""


@kinds
def test_nodes_that_are_gone(kind, tmp_path):
    """The world of three nodes starts again with two when one is gone, and with three when it is back."""
    (tmp_path / "ssh").write_text(SSH)
    (tmp_path / "ssh").chmod(stat.S_IRWXU)
    gone = written(tmp_path / "gone", "")
    path = written(
        tmp_path / "nodes.py",
        "import os, sys\n"
        "count, e = int(os.environ['TORCHELASTIC_RESTART_COUNT']), os.environ\n"
        "print(count, e['RANK'], e['LOCAL_RANK'], e['WORLD_SIZE'], e['GROUP_RANK'], e['MASTER_ADDR'])\n"
        "open(e['GONE'], 'w').write(['alpha\\n', '', ''][count])\n"
        "sys.exit(count < 2)\n",
    )
    flags = ["--hosts", "alpha,beta,gamma", "--nnodes", "2:3", "--max-restarts", "2", "--grace", "5"]
    variables = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "GONE": str(gone)}
    code, out, err = run(kind, 1, [path], *flags, **variables)
    assert code == 0, err
    starts = [[line[2:] for line in sorted(out.splitlines()) if line[0] == str(i)] for i in range(3)]
    assert starts[0] == [f"{r} 0 3 {r} alpha" for r in range(3)], err
    assert starts[1] == [f"{r} 0 2 {r} beta" for r in range(2)]
    assert starts[2] == starts[0]
    assert "no answer from alpha\n" in err
    gone.write_text("alpha\nbeta\n")
    code, _, err = run(kind, 1, [path], *flags, **variables)
    assert code == 1
    assert "1 nodes are there, and --nnodes wants at least 2" in err


def test_nodes_of_a_host_file(tmp_path, monkeypatch):
    monkeypatch.setattr(_nodes, "_answering", {"beta", "gamma", "delta"}.intersection)
    listed = written(tmp_path / "list", "# nodes\nalpha slots=2\nbeta:2\n\ngamma  # last\ndelta\n")
    a = _arguments.read(["--hostfile", str(listed), "--nnodes", "1:2", "s"])
    now = _nodes.present(a, tmp_path)
    assert now.nodes == 2
    assert Path(now.host_file).read_text() == "beta:2\ngamma  # last\n"
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[1-3]")
    monkeypatch.setenv("SLURM_NNODES", "3")
    assert _nodes.present(_arguments.read(["--nnodes", "1:8", "s"]), tmp_path).nodes == 3
    with pytest.raises(_mpiexec.LaunchError, match="3 nodes are there, and --nnodes wants at least 4"):
        _nodes.present(_arguments.read(["--nnodes", "4:8", "s"]), tmp_path)


def test_record(tmp_path, monkeypatch):
    path = tmp_path / "folder" / "error.json"
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(path))

    @record
    def main(x, fail=None):
        """Has a name."""
        if fail:
            raise fail
        return x

    assert (main(3), main.__doc__) == (3, "Has a name.")
    assert main(3, fail=SystemExit(0)) is None
    with pytest.raises(SystemExit):
        main(3, fail=SystemExit(2))
    assert not path.exists()
    with pytest.raises(ValueError, match="é"):
        main(3, fail=ValueError("é"))
    said = json.loads(path.read_text())["message"]
    assert said["message"] == "ValueError: é"
    assert "in main" in said["extraInfo"]["py_callstack"]
    assert said["extraInfo"]["timestamp"].isdecimal()
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", "/proc/no/error.json")
    with pytest.raises(ValueError, match="é") as failed:
        main(3, fail=ValueError("é"))
    assert "record: /proc/no/error.json" in failed.value.__notes__[0]
    monkeypatch.delenv("TORCHELASTIC_ERROR_FILE")
    with pytest.raises(NotImplementedError):
        record(main, error_handler=object())
    assert not dist.is_torchelastic_launched()


def test_record_in_a_launched_script(tmp_path):
    text = (
        "from plait.distributed.elastic.multiprocessing.errors import record\n"
        "@record\ndef main():\n    raise ValueError('boom')\nmain()\n"
    )
    code, _, err = run(KIND, 1, [written(tmp_path / "r.py", text)], "--log-dir", str(tmp_path / "logs"))
    assert code == 1, err
    (name,) = files(tmp_path / "logs")
    assert name == "attempt_0/0/error.json"
    assert "ValueError: boom" in files(tmp_path / "logs")[name]


def test_the_older_command_says_the_local_rank(tmp_path):
    if not KINDS[KIND]:
        pytest.skip("no mpiexec is installed")
    path = written(
        tmp_path / "says.py",
        "import sys, os\nsys.stdout.write(f\"{' '.join(sys.argv[1:])} {'RANK' in os.environ}\\n\")\n",
    )
    for extra, said in (([], "--local-rank=1 --lr 1 True"), (["--use-env"], "--lr 1 True")):
        done = subprocess.run(
            [sys.executable, "-m", "plait.torch", "-m", "torch.distributed.launch", "--mpi", KINDS[KIND],
             "--nproc-per-node", "2", *extra, path, "--lr", "1"],
            check=False, capture_output=True, text=True, timeout=90,
            env=os.environ | {"PLAIT_MPI": KIND, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert sorted(done.stdout.splitlines())[-1] == said
    with pytest.raises(SystemExit):
        _arguments.read(["--no-python", "program"], launch=True)
    with pytest.raises(SystemExit):
        _arguments.read(["--use-env", "program"])
