"""The flags of `python -m plait.distributed.run`."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass

from plait import cuda


@dataclass
class Arguments:
    """What to start, and how."""

    processes: int  # on each node
    nodes: int
    hosts: list[str]
    host_file: str
    master_address: str
    master_port: int
    restarts: int
    mpi: str
    module: bool  # the script is a module's name
    python: bool  # the script is Python's
    verbose: bool
    dry_run: bool
    grace: float  # seconds that ranks get to end after one has failed
    program: list[str]


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


def _nodes(text: str) -> int:
    """Reads --nnodes. Of a range, the largest number counts."""
    try:
        numbers = [int(part) for part in text.split(":")]
    except ValueError:
        numbers = []
    if not 1 <= len(numbers) <= 2 or min(numbers) < 1 or numbers != sorted(numbers):
        raise argparse.ArgumentTypeError(f"want a number of at least 1, or a range such as 1:4, got {text!r}")
    return numbers[-1]


def read(argv: Sequence[str] | None = None) -> Arguments:
    """Reads the command line. Wrong flags end the program with a message, as argparse's do."""
    parser = argparse.ArgumentParser(
        prog="python -m plait.distributed.run", description="Starts a script on several processes.", allow_abbrev=False
    )

    def flag(name: str, **options: object) -> None:
        parser.add_argument(f"--{name}", f"--{name.replace('-', '_')}", **options)  # type: ignore[arg-type]

    flag("nproc-per-node", type=_count, default=1, help="processes on each node: a number, gpu, cpu or auto")
    flag("nnodes", type=_nodes, default=None, help="number of nodes; the number of hosts by default")
    flag("hosts", default="", help="names of the nodes, such as a,b; this machine by default")
    flag("hostfile", default="", help="a file with the nodes, as mpiexec takes it")
    flag("master-addr", default="", help="address of the first node, for the script's own use")
    flag("master-port", type=int, default=0, help="a port there; a free one by default")
    flag("max-restarts", type=int, default=0, help="how often all processes are started again after a failure")
    flag("grace", type=float, default=30.0, help="seconds that processes get to end after one has failed")
    flag("mpi", default=os.environ.get("PLAIT_MPI", ""), help="openmpi, mpich, or the path of an mpiexec")
    flag("no-python", action="store_true", help="the script is a program of its own")
    parser.add_argument("-m", "--module", action="store_true", help="the script is the name of a module")
    flag("verbose", action="store_true", help="show the command that starts the processes")
    flag("dry-run", action="store_true", help="show it, and start nothing")
    flag("standalone", action="store_true", help="has no effect")
    flag("node-rank", type=int, default=0, help="must be 0: one command starts the processes of all nodes")
    flag("rdzv-endpoint", default="", help="host:port, as --master-addr and --master-port")
    for name in (
        "rdzv-backend",
        "rdzv-id",
        "rdzv-conf",
        "role",
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
    nodes = given.nnodes or max(len(hosts), 1)
    if given.node_rank:
        parser.error(
            "--node-rank must be 0. Run the command once, on one node, with --hosts or --hostfile: it starts the "
            "processes of all nodes"
        )
    if nodes > 1 and not hosts and not given.hostfile and "SLURM_JOB_NODELIST" not in os.environ:
        parser.error(f"--nnodes {nodes} wants the names of the nodes: --hosts a,b or --hostfile FILE")
    if hosts and len(hosts) != nodes:
        parser.error(f"--hosts names {len(hosts)} nodes, --nnodes says {nodes}")
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
        hosts=hosts,
        host_file=given.hostfile,
        master_address=address or (hosts[0] if hosts else "127.0.0.1"),
        master_port=port,
        restarts=given.max_restarts,
        mpi=given.mpi,
        module=given.module,
        python=not given.no_python,
        verbose=given.verbose,
        dry_run=given.dry_run,
        grace=max(given.grace, 0.0),
        program=[given.script, *given.arguments],
    )
