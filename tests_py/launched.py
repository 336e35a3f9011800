"""Scripts that the launcher runs on several processes, for tests."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

# Open MPI, if the system has it, and the MPICH of the environment; "abi" is its library of the standard ABI.
OWN = Path(sys.prefix) / "bin" / "mpiexec"
KINDS = {
    "openmpi": shutil.which("mpiexec.openmpi"),
    "mpich": str(OWN) if OWN.exists() else shutil.which("mpiexec.mpich"),
}
kinds = pytest.mark.parametrize("kind", KINDS)


def start(kind, n, program, *flags, stdin=None, **variables):
    """Starts a program on n processes, and returns the launcher."""
    if not KINDS[kind]:
        pytest.skip(f"mpiexec of {kind} is not installed")
    command = [sys.executable, "-m", "plait.distributed.run", "--mpi", KINDS[kind], "--nproc-per-node", str(n), *flags]
    return subprocess.Popen(
        [*command, *map(str, program)],
        env=os.environ | {"PLAIT_MPI": kind, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": ""} | variables,
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(kind, n, program, *flags, limit=90, **variables):
    """Runs a program on n processes, and returns the exit code, stdout and stderr."""
    process = start(kind, n, program, *flags, **variables)
    try:
        out, err = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        process.terminate()
        out, err = process.communicate(timeout=30)
        pytest.fail(f"it hangs:\n{out}\n{err}")
    return process.returncode, out, err


def script(tmp_path, text):
    """Writes a script that has a process group."""
    path = tmp_path / "script.py"
    path.write_text(
        "import os, signal, sys, time\nimport plait as torch, plait.distributed as dist\n"
        "dist.init_process_group('gloo', heartbeat_timeout=float(os.environ.get('HEARTBEAT', 30)))\n"
        "rank, n = dist.get_rank(), dist.get_world_size()\n"
        "open(f'{sys.path[0]}/pid-{os.getpid()}', 'w').close()\n" + text
    )
    return path


def check_no_process_is_left(tmp_path):
    """Checks that the processes of a script have ended."""
    pids = [int(f.name[4:]) for f in tmp_path.glob("pid-*")]
    assert pids
    end = time.monotonic() + 10
    while alive := [pid for pid in pids if Path(f"/proc/{pid}").exists()]:
        assert time.monotonic() < end, f"processes {alive} are left behind"
        time.sleep(0.05)
