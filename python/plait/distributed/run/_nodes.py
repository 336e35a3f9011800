"""Which nodes are there when processes are started, of a range such as --nnodes 1:4."""

from __future__ import annotations

import dataclasses
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

from plait.distributed.run._arguments import Arguments
from plait.distributed.run._mpiexec import LaunchError

ANSWER = 20  # seconds that a node has to answer


def present(a: Arguments, folder: Path) -> Arguments:
    """Returns what to start on the nodes that answer now. Without a range, all nodes have to be there.

    Args:
        a: what to start
        folder: for a list of hosts

    Raises:
        LaunchError: if too few nodes answer.
    """
    if a.least == a.nodes and len(a.hosts) <= a.nodes:
        return a
    if not a.hosts and not a.host_file:  # Slurm's allocation
        nodes = int(re.match("[0-9]*", os.environ.get("SLURM_NNODES", ""))[0] or a.nodes)  # type: ignore[index]
        return dataclasses.replace(a, nodes=_bounded(a, nodes, []))
    lines = a.hosts or [line for line in Path(a.host_file).read_text().splitlines() if _name(line)]
    there = _answering([_name(line) for line in lines])
    kept = [line for line in lines if _name(line) in there]
    nodes = _bounded(a, len(kept), [_name(line) for line in lines if _name(line) not in there])
    kept = kept[:nodes]
    if a.hosts:
        address = _name(kept[0]) if a.master_address == _name(a.hosts[0]) else a.master_address
        return dataclasses.replace(a, nodes=nodes, hosts=kept, master_address=address)
    (folder / "hosts").write_text("".join(line + "\n" for line in kept))
    return dataclasses.replace(a, nodes=nodes, host_file=str(folder / "hosts"))


def _bounded(a: Arguments, nodes: int, gone: list[str]) -> int:
    if gone:
        print(f"plait.distributed.run: no answer from {', '.join(gone)}", file=sys.stderr, flush=True)
    if nodes < a.least:
        raise LaunchError(f"{nodes} nodes are there, and --nnodes wants at least {a.least}")
    return min(nodes, a.nodes)


def _name(line: str) -> str:
    """Returns the host's name in a line of a list of hosts, such as "alpha slots=4" or "alpha:4"."""
    word = (line.partition("#")[0].split() or [""])[0]
    return word if word.count(":") > 1 else word.partition(":")[0]


def _answering(hosts: list[str]) -> set[str]:
    """Returns the hosts on which a command can be run."""
    own = {"localhost", "127.0.0.1", "::1", socket.gethostname()}
    agent = ["ssh", "-o", "BatchMode=yes", "-o", f"ConnectTimeout={ANSWER // 2}"]
    asked = {
        host: subprocess.Popen(
            [*agent, host, "true"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        for host in dict.fromkeys(hosts)
        if host not in own
    }
    there = own.intersection(hosts)
    for host, process in asked.items():
        try:
            if process.wait(ANSWER) == 0:
                there.add(host)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    return there
