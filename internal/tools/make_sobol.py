"""Writes python/plait/_sobol.bin: the primitive polynomials and first direction numbers of Joe and Kuo, packed.

The numbers are those of `new-joe-kuo-6.21201`, which SciPy has in a file of its own. Run it by hand where SciPy is.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import scipy.stats

ROOT = Path(__file__).resolve().parent.parent.parent
DEGREES = 18


def main() -> None:
    """Writes the file: a bit for each odd number, whether it is one of the polynomials; and the bits of the numbers."""
    table = np.load(Path(scipy.stats.__file__).parent / "_sobol_direction_numbers.npz")
    polynomials, first = table["poly"][1:], table["vinit"][1:]
    listed = np.zeros(1 << DEGREES, np.uint8)
    listed[polynomials >> 1] = 1
    bits = []
    for degree in range(1, DEGREES + 1):
        rows = first[(polynomials >> degree) == 1]
        # The number at place i is odd and below 2^(i+1): i bits say which.
        columns = [(rows[:, i] >> 1)[:, None] >> np.arange(i) & 1 for i in range(1, degree)]
        if columns:
            bits.append(np.concatenate(columns, 1).astype(np.uint8).ravel())
    packed = np.packbits(np.concatenate([listed, *bits]), bitorder="little")
    (ROOT / "python/plait/_sobol.bin").write_bytes(packed.tobytes())


if __name__ == "__main__":
    main()
