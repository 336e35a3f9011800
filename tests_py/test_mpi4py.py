"""MPI used beside mpi4py: one initialisation, one end, and communicators of mpi4py as worlds."""

import importlib.util

import pytest
from test_processes import check_no_process_is_left, kinds, run

# It is only looked for: who imports mpi4py.MPI initialises MPI.
pytestmark = pytest.mark.skipif(importlib.util.find_spec("mpi4py") is None, reason="mpi4py is not installed")

PLAIT = "import plait as torch, plait.distributed as dist\n"
OURS = "dist.init_process_group({})\n"
THEIRS = "from mpi4py import MPI\ncomm = MPI.COMM_WORLD\n"
BOTH = """
rank, n = dist.get_rank(), dist.get_world_size()
assert (rank, n) == (comm.Get_rank(), comm.Get_size()), (rank, n)
dist.all_reduce(x := torch.full((40_000,), rank + 1.0))
assert x[-1].item() == n * (n + 1) / 2
assert comm.allreduce(rank + 1) == n * (n + 1) // 2
work = dist.all_reduce(x, async_op=True)  # both at the same time
assert comm.allreduce(1) == n
work.wait()
assert MPI.Is_initialized() and not MPI.Is_finalized()
os.write(1, b"done\\n")
"""


def script(tmp_path, *parts):
    """Writes a script."""
    path = tmp_path / "script.py"
    path.write_text(
        "import os, sys\nopen(f'{sys.path[0]}/pid-{os.getpid()}', 'w').close()\n" + "".join(parts),
    )
    return path


def run_with(kind, n, path, *flags):
    """Runs a script. mpi4py would take the MPICH of the environment under any launcher."""
    theirs = {"openmpi": {"MPI4PY_LIBMPI": "libmpi.so.40"}}.get(kind, {})
    return run(kind, n, [path], *flags, **theirs)


def check(kind, path, n=2, out="done\n"):
    """Runs a script, which must end well on every process."""
    code, said, err = run_with(kind, n, path)
    assert code == 0, err
    assert said == out * n
    assert "Traceback" not in err and "rror" not in err, err
    check_no_process_is_left(path.parent)


@kinds
@pytest.mark.parametrize(
    "parts",
    [
        (THEIRS, PLAIT, OURS.format("")),
        (PLAIT, OURS.format(""), THEIRS),
        (PLAIT, THEIRS, OURS.format("")),
        (THEIRS, PLAIT, OURS.format("communicator=comm")),
    ],
    ids=["mpi4py first", "plait first", "both imported first", "communicator"],
)
def test_both_in_one_process(kind, parts, tmp_path):
    check(kind, script(tmp_path, *parts, BOTH))


@kinds
def test_destroyed_group_leaves_mpi_to_mpi4py(kind, tmp_path):
    end = "dist.destroy_process_group()\nassert comm.allreduce(1) == n\ndel comm\n"
    check(kind, script(tmp_path, THEIRS, PLAIT, OURS.format(""), BOTH, end))


@kinds
def test_communicator_of_some_processes(kind, tmp_path):
    text = """
own = comm.Split(comm.Get_rank() % 2, -comm.Get_rank())
dist.init_process_group(communicator=own)
assert (dist.get_rank(), dist.get_world_size()) == (own.Get_rank(), own.Get_size())
dist.all_reduce(x := torch.full((30_000,), float(comm.Get_rank())))
assert x[0].item() == own.allreduce(comm.Get_rank())
dist.destroy_process_group()
dist.init_process_group(communicator=own)
try:
    dist.destroy_process_group()
    dist.init_process_group(communicator=comm)
except ValueError as error:
    os.write(1, b"done\\n" * ("another communicator" in str(error)))
"""
    check(kind, script(tmp_path, THEIRS, PLAIT, text), n=4 if kind == "openmpi" else 2)


@kinds
def test_threads_of_the_processes_of_a_communicator(kind, tmp_path):
    text = """
def work(i):
    dist.init_process_group(communicator=comm)
    assert dist.get_rank() == 2 * comm.Get_rank() + i and dist.get_world_size() == 4
    dist.all_reduce(x := torch.ones(20_000))
    assert x[0].item() == 4
dist.spawn(work, nprocs=2)
os.write(1, b"done\\n")
"""
    check(kind, script(tmp_path, THEIRS, PLAIT, text))


@kinds
def test_killed_process_is_named(kind, tmp_path):
    text = """
dist.init_process_group(communicator=comm)
if dist.get_rank() == 1:
    os.kill(os.getpid(), 9)
dist.all_reduce(torch.ones(3))
"""
    # mpi4py finalises MPI at the end, which waits for the dead process without a limit.
    code, _, err = run_with(kind, 2, script(tmp_path, THEIRS, PLAIT, text), "--grace", "2")
    assert code == 1
    assert "rank 1 is gone: process 1 on host " in err
    check_no_process_is_left(tmp_path)


@kinds
def test_too_few_threads(kind, tmp_path):
    text = """
try:
    dist.init_process_group()
except torch.DistributedError as error:
    os.write(1, b"done\\n" * ("MPI_THREAD_MULTIPLE" in str(error)))
"""
    few = "import mpi4py\nmpi4py.rc.thread_level = 'serialized'\n"
    check(kind, script(tmp_path, few, THEIRS, PLAIT, text))


def test_what_is_no_communicator(tmp_path):
    from plait import distributed as dist

    with pytest.raises(TypeError, match=r"want a communicator of mpi4py, or Fortran's number of one, got str"):
        dist.init_process_group(communicator="world")
    with pytest.raises(RuntimeError, match="nobody has initialised MPI"):
        dist.init_process_group(communicator=0)
