"""Whether devices compute what they should: `python -m plait.selftest` runs every operation on each of them.

It compares results and gradients with the CPU's, measures copies and matrix products, and writes a report that tells
what the machine is: attach it when you report a fault, above all one of a GPU that nobody has tried before.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from plait import _core, _ops
from plait import _dtype as dt
from plait._device import device, device_count, open_device
from plait._tensor import Tensor
from plait.info import describe


@dataclass
class Outcome:
    """What became of the operations on one device."""

    device: str
    agree: int = 0
    lacking: dict[str, str] = field(default_factory=dict)
    """The operations that the device has no kernel for, with the reason."""
    differ: dict[str, str] = field(default_factory=dict)
    """The operations whose results or gradients are not the CPU's, with the first difference."""


def operations() -> Iterator[tuple[int, str]]:
    """Yields the number and the name of every operation."""
    i = 0
    while name := _core.bind_SelftestName(i):
        yield i, name
        i += 1


def run(on: str | device, only: Sequence[str] = (), progress: Callable[[str], object] | None = None) -> Outcome:
    """Compares operations on a device with the same ones on the CPU: float32 samples with their gradients, and samples
    in float16 and bfloat16.

    Args:
        on: the device
        only: names of operations; none for all
        progress: is called with the name of each before it runs

    Raises:
        ValueError: for a name that no operation has.
    """
    known = {name: i for i, name in operations()}
    if unknown := [name for name in only if name not in known]:
        raise ValueError(f"selftest: there is no operation {unknown[0]!r}; docs/reference lists them")
    number, found = open_device(on), Outcome(str(on))
    for name in only or known:
        if progress:
            progress(name)
        text = _core.bind_SelftestRun(number, known[name])
        if not text:
            found.agree += 1
        elif text.startswith("lacks "):
            found.lacking[name] = text.removeprefix("lacks ")
        else:
            found.differ[name] = text
    return found


def speeds(on: str | device, seconds: float = 0.3) -> dict[str, str]:
    """Measures copies and matrix products on a device, each for about the given time, and returns rates by name."""
    place = device(on)
    out = {}
    host = _ops.zeros((1 << 24,))
    there = host.to(place)
    size = host.numel() * 4 / 1e9
    if place.type != "cpu":
        out["copy to the device"] = f"{size / _time(lambda: host.to(place), seconds):.1f} GB/s"
        out["copy to the host"] = f"{size / _time(lambda: there.to('cpu'), seconds):.1f} GB/s"
    out["addition in float32"] = f"{3 * size / _time(lambda: there + there, seconds):.1f} GB/s"
    n = 512 if place.type == "cpu" else 4096
    for d in (dt.float32, dt.float16, dt.bfloat16):
        x = _ops.ones((n, n), dtype=d, device=place)
        rate = 2 * n**3 / _time(lambda x=x: x @ x, seconds)  # type: ignore[misc]
        out[f"product of {n} x {n} in {str(d).removeprefix('plait.')}"] = f"{rate / 1e12:.3g} TFLOP/s"
    return out


def _time(call: Callable[[], Tensor], seconds: float) -> float:
    """Returns the seconds that a call takes, the least of several runs of as many calls as take some time."""
    calls, least, end = 1, float("inf"), time.perf_counter() + seconds
    call().reshape(-1)[0].item()  # compiles what it needs
    while True:
        start = time.perf_counter()
        for _ in range(calls):
            result = call()
        result.reshape(-1)[0].item()
        now = time.perf_counter()
        least = min(least, (now - start) / calls)
        if now > end:
            return least
        if now - start < seconds / 10:
            calls *= 2


def report(outcomes: Sequence[Outcome], rates: dict[str, dict[str, str]]) -> str:
    """Returns the text of a report: what the machine is, what became of the operations, and how fast it is."""
    lines = [describe()]
    for o in outcomes:
        lines.append(f"operations on {o.device}")
        lines.append(f"  {o.agree} agree with the CPU, {len(o.differ)} differ, {len(o.lacking)} have no kernel there")
        lines += [f"  differs: {name}: {text}" for name, text in o.differ.items()]
        lines += [f"  no kernel: {name}: {text}" for name, text in o.lacking.items()]
    for place, own in rates.items():
        lines.append(f"speed of {place}")
        width = max(map(len, own))
        lines += [f"  {name.ljust(width)}  {value}" for name, value in own.items()]
    return "\n".join(lines) + "\n"


def _places() -> list[str]:
    """Returns the machine's GPUs, or without one a second CPU device, whose results must be those of the first."""
    return [f"gpu:{i}" for i in range(device_count("gpu"))] or ["cpu:1"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the program, and returns its exit status: 1 if something differs."""
    parser = argparse.ArgumentParser(
        "python -m plait.selftest", description="Compare what devices compute with the CPU."
    )
    parser.add_argument("devices", nargs="*", help="such as gpu:0; by default all GPUs, or cpu:1 if there is none")
    parser.add_argument(
        "--only", action="append", default=[], metavar="NAME", help="run this operation; may be repeated"
    )
    parser.add_argument("--no-speed", action="store_true", help="measure nothing")
    parser.add_argument("--output", default="plait-selftest.txt", help="where the report goes (default: %(default)s)")
    options = parser.parse_args(arguments)
    total = len(options.only) or sum(1 for _ in operations())
    outcomes, rates = [], {}
    for place in options.devices or _places():
        done = 0

        def show(name: str, place: str = place) -> None:
            nonlocal done
            done += 1
            if sys.stderr.isatty():
                print(f"\r\x1b[K{place}: {done} of {total}, {name}", end="", file=sys.stderr, flush=True)

        outcomes.append(run(place, options.only, show))
        if sys.stderr.isatty():
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
        if not options.no_speed:
            rates[place] = speeds(place)
    text = report(outcomes, rates)
    print(text, end="")
    with open(options.output, "w", encoding="utf-8") as file:
        file.write(text)
    print(f"the report is in {options.output}")
    return 1 if any(o.differ for o in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
