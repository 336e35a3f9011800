"""The flags of `python -m plait.distributed.run`."""

from __future__ import annotations

import argparse
import os
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from plait import cuda
from plait.distributed.run import _logs

T = TypeVar("T")


@dataclass
class Arguments:
    """What to start, and how."""

    processes: int  # on each node
    nodes: int
    least: int  # nodes that will do, when others are gone
    hosts: list[str]
    host_file: str
    master_address: str
    master_port: int
    restarts: int
    mpi: str
    module: bool  # the script is a module's name
    python: bool  # the script is Python's
    local_rank: bool  # its first argument is the local rank
    verbose: bool
    dry_run: bool
    grace: float  # seconds that ranks get to end after one has failed
    name: str  # of the run
    role: str
    logs: _logs.Logs = field(default_factory=_logs.Logs)
    program: list[str] = field(default_factory=list)


def _count(text: str) -> int:
    """Reads --nproc-per-node."""
    if text in ("auto", "gpu", "cpu"):
        gpus = 0 if text == "cpu" else cuda.device_count()
        if text == "gpu" and not gpus:
            raise argparse.ArgumentTypeError("there is no GPU here")
        return gpus or os.cpu_count() or 1
    try:
        n = int(text)
    except ValueError:
        n = 0
    if n < 1:
        raise argparse.ArgumentTypeError(f"want a number of at least 1, auto, gpu or cpu, got {text!r}")
    return n


def _nodes(text: str) -> tuple[int, int]:
    """Reads --nnodes, and returns the smallest and the largest number."""
    try:
        numbers = [int(part) for part in text.split(":")]
    except ValueError:
        numbers = []
    if not 1 <= len(numbers) <= 2 or min(numbers) < 1 or numbers != sorted(numbers):
        raise argparse.ArgumentTypeError(f"want a number of at least 1, or a range such as 1:4, got {text!r}")
    return numbers[0], numbers[-1]


def _rendezvous(text: str) -> str:
    """Reads --rdzv-backend."""
    if text not in ("c10d", "static"):
        raise argparse.ArgumentTypeError(
            f"want c10d or static, which have no effect, got {text!r}: MPI joins the processes by itself"
        )
    return text


def _said(read: Callable[[str], T]) -> Callable[[str], T]:
    """Makes a function's ValueError the message of a flag."""

    def flag(text: str) -> T:
        try:
            return read(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return flag


def read(argv: Sequence[str] | None = None, launch: bool = False) -> Arguments:
    """Reads the command line. Wrong flags end the program with a message, as argparse's do.

    Args:
        argv: the flags; by default this program's
        launch: they are those of `plait.distributed.launch`
    """
    parser = argparse.ArgumentParser(
        prog=f"python -m plait.distributed.{'launch' if launch else 'run'}",
        description="Starts a script on several processes.",
        allow_abbrev=False,
    )

    def flag(name: str, **options: object) -> None:
        parser.add_argument(f"--{name}", f"--{name.replace('-', '_')}", **options)  # type: ignore[arg-type]

    flag("nproc-per-node", type=_count, default=1, help="processes on each node: a number, gpu, cpu or auto")
    flag("nnodes", type=_nodes, default=None, help="nodes, or MIN:MAX; the number of hosts by default")
    flag("hosts", default="", help="names of the nodes, such as a,b; this machine by default")
    flag("hostfile", default="", help="a file with the nodes, as mpiexec takes it")
    flag("master-addr", default="", help="address of the first node, for the script's own use")
    flag("master-port", type=int, default=0, help="a port there; a free one by default")
    flag("max-restarts", type=int, default=0, help="how often all processes are started again after a failure")
    flag("grace", type=float, default=30.0, help="seconds that processes get to end after one has failed")
    flag("mpi", default=os.environ.get("PLAIT_MPI", ""), help="openmpi, mpich, or the path of an mpiexec")
    flag("no-python", action="store_true", help="the script is a program of its own")
    if launch:
        flag("use-env", action="store_true", help="do not give the script --local-rank: it reads LOCAL_RANK")
    flag("log-dir", default="", help="folder for files of each process's output, in a folder of this run")
    both = "0 none, 1 stdout, 2 stderr, 3 both, or local ranks, as in 0:1,1:2"
    parser.add_argument("-r", "--redirects", type=_said(_logs.streams), default={}, help=f"what goes to files: {both}")
    parser.add_argument(
        "-t", "--tee", type=_said(_logs.streams), default={}, help="what goes to files and to the console: the same"
    )
    flag(
        "local-ranks-filter",
        type=_said(_logs.ranks),
        default=None,
        help="local ranks whose output the console gets, as in 0,1",
    )
    default = _logs.Logs.prefix
    flag("log-line-prefix-template", type=_said(_logs.prefix), default=default, help="begins lines of --tee")
    flag("role", default="default", help="name of the processes in lines of --tee, and ROLE_NAME")
    flag("rdzv-id", default="", help="name of the run, TORCHELASTIC_RUN_ID")
    flag("rdzv-backend", type=_rendezvous, default="c10d", help="c10d or static; has no effect")
    parser.add_argument("-m", "--module", action="store_true", help="the script is the name of a module")
    flag("verbose", action="store_true", help="show the command that starts the processes")
    flag("dry-run", action="store_true", help="show it, and start nothing")
    flag("standalone", action="store_true", help="has no effect")
    flag("node-rank", type=int, default=0, help="must be 0: one command starts the processes of all nodes")
    flag("rdzv-endpoint", default="", help="host:port, as --master-addr and --master-port")
    for name in (
        "rdzv-conf",
        "run-path",
        "start-method",
        "monitor-interval",
        "local-addr",
    ):
        flag(name, default=None, help="has no effect")
    parser.add_argument("script", help="the script, or with -m the module")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="its arguments")
    given = parser.parse_args(argv)
    hosts = [h for h in given.hosts.split(",") if h]
    least, nodes = given.nnodes or (max(len(hosts), 1),) * 2
    if least < nodes and not hosts and not given.hostfile and "SLURM_JOB_NODELIST" not in os.environ:
        nodes = least  # there is no other to be had
    if given.node_rank:
        parser.error(
            "--node-rank must be 0. Run the command once, on one node, with --hosts or --hostfile: it starts the "
            "processes of all nodes"
        )
    if nodes > 1 and not hosts and not given.hostfile and "SLURM_JOB_NODELIST" not in os.environ:
        parser.error(f"--nnodes {nodes} wants the names of the nodes: --hosts a,b or --hostfile FILE")
    if hosts and least < nodes and least <= len(hosts):
        nodes = min(nodes, len(hosts))  # more than that are spare
    elif hosts and len(hosts) != nodes:
        parser.error(f"--hosts names {len(hosts)} nodes, --nnodes says {nodes}")
    local_rank = launch and not given.use_env
    if given.no_python and local_rank:
        parser.error("--no-python wants --use-env: the program is not given --local-rank")
    if given.no_python and given.module:
        parser.error("--module is for Python, and --no-python says that the script is not")
    if given.max_restarts < 0:
        parser.error(f"--max-restarts must not be negative, got {given.max_restarts}")
    if not 0 <= given.master_port < 2**16:
        parser.error(f"--master-port wants a number below 65536, got {given.master_port}")
    address, port = given.master_addr, given.master_port
    if given.rdzv_endpoint:
        host, _, number = (
            given.rdzv_endpoint.rpartition(":") if ":" in given.rdzv_endpoint else (given.rdzv_endpoint, "", "")
        )
        host = host.strip("[]")
        if number and not number.isdigit():
            parser.error(f"--rdzv-endpoint wants host:port, got {given.rdzv_endpoint!r}")
        address, port = address or host, port or int(number or 0)
    return Arguments(
        processes=given.nproc_per_node,
        nodes=nodes,
        least=least,
        hosts=hosts,
        host_file=given.hostfile,
        master_address=address or (hosts[0] if hosts else "127.0.0.1"),
        master_port=port,
        restarts=given.max_restarts,
        mpi=given.mpi,
        module=given.module,
        python=not given.no_python,
        local_rank=local_rank,
        verbose=given.verbose,
        dry_run=given.dry_run,
        grace=max(given.grace, 0.0),
        name=given.rdzv_id or uuid.uuid4().hex[:12],
        role=given.role,
        logs=_logs.Logs(
            given.log_dir, given.redirects, given.tee, given.local_ranks_filter, given.log_line_prefix_template
        ),
        program=[given.script, *given.arguments],
    )
