"""Fourier transforms on the CPU beside PyTorch and SciPy.

    python benchmarks/python/fourier.py --threads 1
    python benchmarks/python/fourier.py --threads 2 --seconds 1

All run in one process, in turns, on the same numbers in float32 or complex64. Times are medians of the microseconds
of one call, of the processor on one thread.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

LENGTHS = [1 << k for k in range(8, 21)]
BATCHES = [(4096, 256), (1024, 1024), (64, 1024), (1000, 300), (512, 480), (3000, 400)]
# Lengths with large prime factors, such as those that `irfft` gives a line of 512, 1000 or 2^20 elements, and others.
UNUSUAL = [(512, 1022), (1000, 1998), (1, 2_097_150), (64, 8 * 127), (64, 8 * 251), (64, 1021), (64, 1009), (1, 1021)]
UNUSUAL += [(1, 30_000), (1, 10_007), (1, 100_003), (8, 251 * 32), (8, 127 * 64), (8, 509 * 16)]
IMAGES = [(1, 512, 512), (1, 480, 640), (16, 128, 128), (64, 32, 32)]
# The microseconds that a turn of calls takes at least.
TURN = 1000


def transforms(fft: Any, tensor: Callable[[Any], Any], options: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    """Returns a function for each transform: of one line of every length, of many lines, and of images."""
    made: dict[str, Callable[[], Any]] = {}
    rng = np.random.default_rng(0)
    for shape in [*((1, n) for n in LENGTHS), *BATCHES, *UNUSUAL, *IMAGES]:
        real = rng.standard_normal(shape).astype(np.float32)
        x, r = tensor((real + 1j * real[..., ::-1]).astype(np.complex64)), tensor(real)
        name, n = " x ".join(map(str, shape)), shape[-1]
        if len(shape) == 3:
            h = tensor(np.fft.rfft2(real).astype(np.complex64))
            made[f"fft2 {name}"] = lambda x=x: fft.fft2(x, **options)
            made[f"ifft2 {name}"] = lambda x=x: fft.ifft2(x, **options)
            made[f"rfft2 {name}"] = lambda r=r: fft.rfft2(r, **options)
            made[f"irfft2 {name}"] = lambda h=h, s=shape[1:]: fft.irfft2(h, s, **options)
            continue
        h = tensor(np.fft.rfft(real).astype(np.complex64))
        made[f"fft {name}"] = lambda x=x: fft.fft(x, **options)
        made[f"ifft {name}"] = lambda x=x: fft.ifft(x, **options)
        made[f"rfft {name}"] = lambda r=r: fft.rfft(r, **options)
        made[f"irfft {name}"] = lambda h=h, n=n: fft.irfft(h, n, **options)
    return made


def front_end(library: Any) -> Callable[[], Any]:
    """Returns the short-time transform that Whisper's features are made of, of 30 seconds of sound."""
    rng = np.random.default_rng(1)
    signal, window = library.tensor(rng.standard_normal(480_000).astype(np.float32)), library.hann_window(400)
    return lambda: library.stft(signal, 400, 160, window=window, return_complex=True)


def timed(run: Callable[[], Any], calls: int, clock: Callable[[], float]) -> float:
    """Returns the microseconds of one call of several, the last of which is waited for."""
    start = clock()
    for _ in range(calls):
        out = run()
    if not isinstance(out, np.ndarray):
        out.reshape(-1)[0].item()
    return 1e6 * (clock() - start) / calls


def main() -> None:
    """Prints a table: microseconds, and speed relative to PyTorch and SciPy."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", help="parts of names")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0.3, help="for each transform, and five turns at least")
    args = parser.parse_args()
    sides: dict[str, dict[str, Callable[[], Any]]] = {}
    for name in ("plait", "torch"):
        if importlib.util.find_spec(name):
            library = importlib.import_module(name)
            library.set_num_threads(args.threads)
            sides[name] = transforms(library.fft, library.tensor, {})
            sides[name]["stft of 30 s"] = front_end(library)
    if importlib.util.find_spec("scipy"):
        sides["scipy"] = transforms(importlib.import_module("scipy.fft"), np.asarray, {"workers": args.threads})
    clock = time.process_time if args.threads == 1 else time.perf_counter
    print(f"{args.threads} threads: our microseconds, and how many times as fast as each we are", flush=True)
    print(f"{'':24}{'us':>10}" + "".join(f"{n:>10}" for n in list(sides)[1:]))
    for case in sides["plait"]:
        if args.only and not any(part in case for part in args.only):
            continue
        times: dict[str, list[float]] = {n: [] for n in sides if case in sides[n]}
        calls = {n: 1 + int(TURN / min(timed(sides[n][case], 1, clock) for _ in range(3))) for n in times}
        end = time.perf_counter() + args.seconds
        while time.perf_counter() < end or len(times["plait"]) < 5:
            for name, found in times.items():
                found.append(timed(sides[name][case], calls[name], clock))
        took = {n: statistics.median(t) for n, t in times.items()}
        ratios = (f"{took[n] / took['plait']:10.2f}" if n in took else f"{'-':>10}" for n in list(sides)[1:])
        print(f"{case:24}{took['plait']:10.1f}" + "".join(ratios), flush=True)


if __name__ == "__main__":
    main()
