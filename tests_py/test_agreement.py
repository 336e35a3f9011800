"""Processes that do not fit are refused on every rank before training begins."""

import subprocess
import sys

import plait.distributed as dist
import pytest
from launched import KINDS, kinds, run
from plait._errors import DistributedError

KIND = next((k for k, path in KINDS.items() if path), "openmpi")
JOIN = (
    "try:\n    d.init_process_group(**options)\nexcept Exception as e:\n    print(f'{rank} {type(e).__name__}: {e}')\n"
    "else:\n    print(f'{rank} joined')\n"
)


def joins(tmp_path, before, kind=KIND, **variables):
    """Runs a script that joins on two ranks, and returns what each has printed, in order of ranks."""
    path = tmp_path / "joins.py"
    path.write_text(
        "import os, sys\nrank, options = int(os.environ['RANK']), {}\nother = rank == 1\n"
        f"import plait.distributed as d\nimport plait\n{before}\n{JOIN}"
    )
    code, out, err = run(kind, 2, [path], **variables)
    assert code == 0, err
    return [line[2:] for line in sorted(out.splitlines())]


@kinds
def test_processes_that_agree(kind, tmp_path):
    assert joins(tmp_path, "pass", kind) == ["joined", "joined"]


@pytest.mark.parametrize(
    ("before", "name", "first", "second"),
    [
        ("if other: os.environ['PLAIT_BLAS'] = 'none'", "PLAIT_BLAS", "unset", "none"),
        ("if other: sys.modules['plait.distributed._agreement'].__version__ = '9'", "Plait's version", "", "9"),
    ],
)
def test_processes_that_differ(tmp_path, before, name, first, second):
    for line in joins(tmp_path, before, PLAIT_BLAS=""):
        assert line.startswith(f"DistributedError: init_process_group: the processes differ in {name}: {first}")
        assert "on rank 0 on host " in line
        assert f"; {second} on rank 1 on host " in line


def test_scripts_that_differ(tmp_path):
    (tmp_path / "other.py").write_text("")
    first, second = joins(tmp_path, f"if other: sys.modules['__main__'].__file__ = {str(tmp_path / 'other.py')!r}")
    assert first == second
    assert "differ in the script: joins.py with digest " in first
    assert "other.py with digest e3b0c442 on rank 1 on host " in first


@pytest.mark.parametrize(
    ("before", "wants"),
    [
        (
            "options = {'rank': 0, 'world_size': 2}",
            "this is rank 1 of 2, got rank 0 of 2; the launcher says which rank",
        ),
        ("os.environ['RANK'] = '0'", "RANK is '0', but the launcher made this process rank 1 of 2"),
    ],
)
def test_two_processes_with_one_rank(tmp_path, before, wants):
    first, second = joins(tmp_path, before)
    assert first.startswith("DistributedError: init_process_group: rank 1 on host ")
    assert second.startswith("ValueError: init_process_group: ")
    assert wants in first
    assert wants in second


@kinds
def test_children_that_fork_are_no_ranks(kind, tmp_path):
    path = tmp_path / "forks.py"
    path.write_text(
        "import os, sys\nimport plait as torch, plait.distributed as d\n"
        "d.init_process_group()\n"
        "for ends in (lambda: sys.exit(0), lambda: sys.exit(3), lambda: d.barrier()):\n"
        "    if not (pid := os.fork()):\n        ends()\n        os._exit(9)\n"
        "    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n"
        "d.barrier()\n"
    )
    code, out, err = run(kind, 2, [path], PYTHONWARNINGS="ignore")
    assert code == 0, err
    assert sorted(out.split()) == ["0", "0", "1", "1", "3", "3"]
    assert "plait cannot be used in a process forked after it was imported" in err
    assert "atexit" not in err


def test_programs_are_compared_by_their_text(tmp_path):
    code = "from plait.distributed import _agreement as a; print(a._script())"
    script = tmp_path / "train.py"
    script.write_text(code)
    said = [
        subprocess.run([sys.executable, *args], check=True, capture_output=True, text=True).stdout
        for args in (["-c", code], [str(script)])
    ]
    assert said[0] == "no file\n"
    assert said[1].startswith("train.py with digest ")
    assert issubclass(DistributedError, dist.DistError)
