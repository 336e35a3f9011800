"""Fourier transforms on the CPU beside PyTorch and SciPy.

    python benchmarks/python/fourier.py --threads 1
    python benchmarks/python/fourier.py --threads 2 --seconds 1

All run in one process, in turns, on the same numbers in float32 or complex64. Times are the shortest of the
microseconds of one call.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import time
from collections.abc import Callable
from typing import Any

import numpy as np

LENGTHS = [1 << k for k in range(8, 21, 2)]
# Lengths with large prime factors, such as those that `irfft` gives a line of 512, 1000 or 2^20 elements.
UNUSUAL = [(512, 1022), (1000, 1998), (1, 2_097_150), (64, 8 * 127), (64, 8 * 251), (64, 1021)]


def transforms(fft: Any, tensor: Callable[[Any], Any], options: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    """Returns a function for each transform: of one line of every length, and of many lines."""
    made: dict[str, Callable[[], Any]] = {}
    rng = np.random.default_rng(0)
    shapes = [*((1, n) for n in LENGTHS), (1, 30_000), (1, 10_007), (3000, 400), (4096, 256), (64, 1024), *UNUSUAL]
    for lines, n in shapes:
        real = rng.standard_normal((lines, n)).astype(np.float32)
        x, r = tensor((real + 1j * real[:, ::-1]).astype(np.complex64)), tensor(real)
        h = tensor(np.fft.rfft(real).astype(np.complex64))
        name = f"{lines} x {n}"
        made[f"fft {name}"] = lambda x=x: fft.fft(x, **options)
        made[f"rfft {name}"] = lambda r=r: fft.rfft(r, **options)
        made[f"irfft {name}"] = lambda h=h, n=n: fft.irfft(h, n, **options)
    square = tensor((rng.standard_normal((512, 512)) + 0j).astype(np.complex64))
    made["fft2 512 x 512"] = lambda: fft.fft2(square, **options)
    return made


def front_end(library: Any) -> Callable[[], Any]:
    """Returns the short-time transform that Whisper's features are made of, of 30 seconds of sound."""
    rng = np.random.default_rng(1)
    signal, window = library.tensor(rng.standard_normal(480_000).astype(np.float32)), library.hann_window(400)
    return lambda: library.stft(signal, 400, 160, window=window, return_complex=True)


def timed(run: Callable[[], Any]) -> float:
    """Returns the microseconds of one call."""
    start = time.perf_counter()
    out = run()
    if not isinstance(out, np.ndarray):
        out.reshape(-1)[0].item()
    return 1e6 * (time.perf_counter() - start)


def main() -> None:
    """Prints a table: microseconds, and speed relative to PyTorch and SciPy."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", help="parts of names")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0.3, help="for each transform, and three calls at least")
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
    print(f"{args.threads} threads: our microseconds, and how many times as fast as each we are", flush=True)
    print(f"{'':24}{'us':>10}" + "".join(f"{n:>10}" for n in list(sides)[1:]))
    for case in sides["plait"]:
        if args.only and not any(part in case for part in args.only):
            continue
        times: dict[str, list[float]] = {n: [] for n in sides if case in sides[n]}
        end = time.perf_counter() + args.seconds
        while time.perf_counter() < end or len(times["plait"]) < 3:
            for name, found in times.items():
                found.append(timed(sides[name][case]))
        best = {n: min(t[1:]) for n, t in times.items()}
        ratios = (f"{best[n] / best['plait']:10.2f}" if n in best else f"{'-':>10}" for n in list(sides)[1:])
        print(f"{case:24}{best['plait']:10.1f}" + "".join(ratios), flush=True)


if __name__ == "__main__":
    main()
