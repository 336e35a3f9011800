"""Ranks that are processes, on this machine's CPUs, as tables in Markdown.

    python benchmarks/python/processes.py [--mpi openmpi mpich] [--only sums training idle]

- sums: an all-reduce of two processes, and the MPI library's own MPI_Allreduce in the same processes and on the same
  memory, in turns. Own times are of blocks of calls, each of which is waited for; the ratio is that of the bandwidths.
- training: DistributedDataParallel with the small GPT of training.py, in processes and in threads, one core for each.
- idle: the share of a core that a process takes while nothing happens.

Times are medians. The machine is shared, so the sides take turns and the ratios count.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import plait
from plait import distributed
from plait.nn.parallel import DistributedDataParallel
from training import small_gpt

SIZES = [4, 256, 4 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20]
RANKS = 2


class Library:
    """The MPI library that the engine has opened, on a communicator of its own."""

    def __init__(self) -> None:
        maps = Path("/proc/self/maps").read_text().splitlines()
        path = next(p for line in maps if "libmp" in Path(p := line.split()[-1]).name)
        self._mpi, self.name = ctypes.CDLL(path), Path(path).name
        if hasattr(self._mpi, "ompi_mpi_float"):
            names = "ompi_mpi_comm_world", "ompi_mpi_float", "ompi_mpi_op_sum"
            symbols = (ctypes.addressof(ctypes.c_char.in_dll(self._mpi, name)) for name in names)
            world, self._float, self._sum = (ctypes.c_void_p(s) for s in symbols)
            self._in_place, self._comm = ctypes.c_void_p(1), ctypes.c_void_p()
        elif "_abi" in self.name:
            world, self._float, self._sum = ctypes.c_void_p(0x101), ctypes.c_void_p(0x210), ctypes.c_void_p(0x21)
            self._in_place, self._comm = ctypes.c_void_p(1), ctypes.c_void_p()
        else:
            world, self._float, self._sum = ctypes.c_int(0x44000000), ctypes.c_int(0x4C00040A), ctypes.c_int(0x58000003)
            self._in_place, self._comm = ctypes.c_void_p(-1), ctypes.c_int()
        if self._mpi.MPI_Comm_dup(world, ctypes.byref(self._comm)):
            raise RuntimeError("MPI_Comm_dup failed")

    def sum(self, address: int, elements: int) -> Callable[[], None]:
        """Returns a call that sums float32 elements in place."""
        call = self._mpi.MPI_Allreduce
        arguments = self._in_place, ctypes.c_void_p(address), ctypes.c_int(elements), self._float, self._sum, self._comm

        def run() -> None:
            if call(*arguments):
                raise RuntimeError("MPI_Allreduce failed")

        return run

    def meet(self) -> None:
        """Waits for the other process."""
        self._mpi.MPI_Barrier(self._comm)


def sums(blocks: int) -> None:
    """Prints a table of all-reduces."""
    library, rank = Library(), distributed.get_rank()
    if rank == 0:
        print(f"\n{library.name}, {blocks} blocks of each side\n")
        print("| bytes | MPI_Allreduce us | Plait us | GB/s | GB/s | ratio | ratios of blocks, quartiles |")
        print("| ---: | ---: | ---: | ---: | ---: | ---: | ---: |", flush=True)
    for size in SIZES:
        x = plait.zeros(size // 4)
        x.fill_(0)

        def own(x: Any = x) -> None:
            distributed.all_reduce(x, async_op=True).wait()

        own()
        sides = [library.sum(x.data_ptr(), size // 4), own]
        calls = max(1, min(20, (4 << 20) // size))  # few, so that most blocks are not interrupted by others
        times: list[list[float]] = [[], []]
        for _ in range(blocks * (5 if size < 1 << 20 else 1)):
            for side, run in enumerate(sides):
                library.meet()
                run()
                start = time.perf_counter()
                for _ in range(calls):
                    run()
                times[side].append((time.perf_counter() - start) / calls)
        if rank == 0:
            theirs, ours = (statistics.median(t) for t in times)
            low, _, high = statistics.quantiles([a / b for a, b in zip(*times, strict=True)], n=4)
            bus = 2 * (RANKS - 1) / RANKS * size / 1e9
            print(
                f"| {size} | {1e6 * theirs:.1f} | {1e6 * ours:.1f} | {bus / theirs:.2f} | {bus / ours:.2f} "
                f"| {theirs / ours:.2f} | {low:.2f} to {high:.2f} |",
                flush=True,
            )


def idle(seconds: float) -> None:
    """Prints the share of a core that each process takes while nothing happens."""
    x = plait.zeros(1)
    distributed.all_reduce(x)
    x.item()
    time.sleep(0.5)
    wall, used = time.perf_counter(), time.process_time()
    time.sleep(seconds)
    share = (time.process_time() - used) / (time.perf_counter() - wall)
    shares: list[Any] = [None] * RANKS
    distributed.all_gather_object(shares, share)
    if distributed.get_rank() == 0:
        print("\nidle: " + ", ".join(f"{100 * s:.2f} %" for s in shares) + " of a core", flush=True)


def train(rank: int, steps: int, times: list[float]) -> None:
    """Trains on a rank, and appends the seconds of rank 0's steps."""
    if not distributed.is_initialized():
        distributed.init_process_group()
    plait.manual_seed(rank)
    model: Any = DistributedDataParallel(small_gpt(plait))
    optimizer = plait.optim.AdamW(model.parameters())
    x, y = plait.randint(0, 96, (8, 128)), plait.randint(0, 96, (8 * 128,))
    for i in range(steps + 5):
        start = time.perf_counter()
        optimizer.zero_grad()
        loss = plait.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        loss.item()
        if rank == 0 and i >= 5:
            times.append(time.perf_counter() - start)


def part(args: argparse.Namespace) -> None:
    """Does what `main` has started this process for."""
    if args.part == "threads":
        plait.set_num_threads(RANKS)
        times: list[float] = []
        distributed.spawn(train, (args.steps, times), nprocs=RANKS)
        print(statistics.median(times))
        return
    distributed.init_process_group()
    if args.part == "training":
        times = []
        train(distributed.get_rank(), args.steps, times)
        if times:
            print(statistics.median(times))
    elif args.part == "sums":
        sums(args.blocks)
    else:
        idle(args.seconds)
    distributed.destroy_process_group()


def main() -> None:
    """Measures with each MPI."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mpi", nargs="*", default=["openmpi", "mpich"], help="launchers, as of distributed.run")
    parser.add_argument("--only", nargs="*", default=["sums", "training", "idle"])
    parser.add_argument("--blocks", type=int, default=41, help="of calls of each side, for each size")
    parser.add_argument("--rounds", type=int, default=5, help="of training in each way")
    parser.add_argument("--steps", type=int, default=60, help="of training in a round")
    parser.add_argument("--seconds", type=float, default=5, help="of doing nothing")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.part:
        part(args)
        return

    def start(name: str, *launcher: str, capture: bool = False) -> str:
        line = [sys.executable, *launcher, __file__, "--part", name]
        line += ["--blocks", str(args.blocks), "--steps", str(args.steps), "--seconds", str(args.seconds)]
        return subprocess.run(line, check=True, text=True, stdout=subprocess.PIPE if capture else None).stdout

    for mpi in args.mpi:
        launcher = "-m", "plait.distributed.run", "--nproc-per-node", str(RANKS), "--mpi", mpi
        print(f"\n{mpi}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}", flush=True)
        for name in ("sums", "idle"):
            if name in args.only:
                start(name, *launcher)
        if "training" in args.only:
            times: list[list[float]] = [[], []]
            for _ in range(args.rounds):
                times[0].append(float(start("threads", capture=True)))
                times[1].append(float(start("training", *launcher, capture=True)))
            threads, processes = (1e3 * statistics.median(t) for t in times)
            ratios = ", ".join(f"{a / b:.2f}" for a, b in zip(*times, strict=True))
            print(f"\nDDP: threads {threads:.1f} ms, processes {processes:.1f} ms a step; speed {ratios}", flush=True)


if __name__ == "__main__":
    main()
