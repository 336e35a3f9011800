"""Sobol sequences: points that fill the unit cube more evenly than random ones."""

from __future__ import annotations

import functools
from importlib import resources
from typing import Any

import numpy as np

from plait import _dtype as dt
from plait._functions.drawing import randint
from plait._tensor import Tensor
from plait._tensors.arrays import from_numpy

__all__ = ["SobolEngine"]

_BITS = 30
_DEGREES = 18  # of the polynomials


class SobolEngine:
    """Draws the points of a Sobol sequence, with Joe and Kuo's direction numbers.

    Args:
        dimension: of the points, up to 21201
        scramble: whether digits are shuffled by random matrices and shifted, which keeps how even the points are
        seed: for PyTorch's matrices and shifts of that seed; without one they come from the default generator
    """

    MAXBIT = _BITS
    MAXDIM = 21201

    def __init__(self, dimension: int, scramble: bool = False, seed: int | None = None) -> None:
        if not 1 <= dimension <= self.MAXDIM:
            raise ValueError(f"SobolEngine: dimension must be 1 to {self.MAXDIM}, got {dimension}")
        self.seed, self.scramble, self.dimension = seed, scramble, dimension
        directions = _directions(dimension)
        shift = np.zeros(dimension, np.int64)
        if scramble:
            directions, shift = self._scrambled(directions)
        self.sobolstate: Tensor = from_numpy(directions)
        self.shift: Tensor = from_numpy(shift)
        self.quasi: Tensor = from_numpy(shift.copy())
        self.num_generated = 0

    def _scrambled(self, directions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the direction numbers times random lower triangular matrices of bits, and random shifts."""
        count = self.dimension * _BITS
        if self.seed is None:
            drawn = randint(2, (count * (1 + _BITS),), device="cpu").numpy()
        else:  # PyTorch's generator of that seed
            twister = np.random.RandomState()
            twister.seed(self.seed % (1 << 32))
            drawn = twister.randint(0, 1 << 32, count * (1 + _BITS), np.uint32).astype(np.int64) & 1
        places = np.arange(_BITS)
        shift = (drawn[:count].reshape(self.dimension, _BITS) << places).sum(1)
        matrices = np.tril(drawn[count:].reshape(self.dimension, _BITS, _BITS)).astype(np.float32)
        matrices[:, places, places] = 1
        highest_first = places[::-1]
        bits = (directions[:, None, :] >> highest_first[:, None] & 1).astype(np.float32)
        mixed = np.matmul(matrices, bits).astype(np.int64) & 1
        return (mixed << highest_first[:, None]).sum(1), shift

    def draw(self, n: int = 1, out: Tensor | None = None, dtype: dt.dtype | None = None) -> Tensor:
        """Returns the next points, as rows.

        Args:
            n: how many
            out: a tensor for them
            dtype: float32 or float64; by default the default dtype
        """
        dtype = dtype or dt.get_default_dtype()
        points = self._moved(n)
        kind: Any = np.float64 if dtype is dt.float64 else np.float32
        made = from_numpy(points.astype(kind) * kind(2.0**-_BITS)).to(dtype)
        if out is None:
            return made
        return out.resize_(made.shape).copy_(made)

    def draw_base2(self, m: int, out: Tensor | None = None, dtype: dt.dtype | None = None) -> Tensor:
        """Returns the next 2^m points; points that are drawn by powers of two from the first on are balanced.

        Args:
            m: the exponent
            out: a tensor for them
            dtype: as for `draw`

        Raises:
            ValueError: if with them the number of points that were drawn is no power of two.
        """
        n = 1 << m
        total = self.num_generated + n
        if total & (total - 1):
            raise ValueError(
                f"draw_base2: points are balanced if 2^m are drawn in all, and after {self.num_generated} another {n} "
                f"make {total}; use reset() first, or draw({n})"
            )
        return self.draw(n, out, dtype)

    def _moved(self, n: int) -> np.ndarray:
        """Returns the next points as whole numbers, and goes on behind them."""
        n = int(n)
        state, quasi = self.sobolstate.numpy(), self.quasi.numpy()
        points = np.empty((n, self.dimension), np.int64)
        if not n:
            return points
        # A point differs from the last one by the direction of the lowest zero bit of the last one's number.
        numbers = np.arange(self.num_generated - 1, self.num_generated + n - 1)
        lowest = np.log2((~numbers & (numbers + 1)).clip(1)).astype(np.int64)
        points[:] = state.T[lowest]
        if self.num_generated == 0:
            points[0] = 0
        points[0] ^= quasi
        np.bitwise_xor.accumulate(points, 0, out=points)
        quasi[:] = points[-1]
        self.num_generated += n
        return points

    def fast_forward(self, n: int) -> SobolEngine:
        """Leaves out the next points and returns self."""
        for start in range(0, n, 4096):  # in parts, which need less memory
            self._moved(min(4096, n - start))
        return self

    def reset(self) -> SobolEngine:
        """Goes back to the first point and returns self."""
        self.quasi.copy_(self.shift)
        self.num_generated = 0
        return self

    def __repr__(self) -> str:
        words = [f"dimension={self.dimension}"]
        if self.scramble:
            words.append("scramble=True")
        if self.seed is not None:
            words.append(f"seed={self.seed}")
        return f"{type(self).__name__}({', '.join(words)})"


@functools.cache
def _table() -> tuple[np.ndarray, np.ndarray]:
    """Returns the primitive polynomials over two elements, in order, and the bits of the first direction numbers."""
    packed = np.frombuffer(resources.files("plait").joinpath("_sobol.bin").read_bytes(), np.uint8)
    listed = np.unpackbits(packed[: (1 << _DEGREES) // 8], bitorder="little")
    return np.flatnonzero(listed) * 2 + 1, packed[(1 << _DEGREES) // 8 :]


def _directions(dimension: int) -> np.ndarray:
    """Returns the direction numbers of as many dimensions, as numbers of 30 bits with the first digit highest."""
    out = np.empty((dimension, _BITS), np.int64)
    out[0] = 1
    polynomials, packed = _table()
    at, row = 0, 1
    for degree in range(1, _DEGREES + 1):
        chosen = polynomials[(polynomials >> degree) == 1]
        width = degree * (degree - 1) // 2
        used = min(len(chosen), dimension - row)
        if used <= 0:
            break
        first = at // 8
        bits: np.ndarray = np.unpackbits(packed[first : (at + used * width + 7) // 8], bitorder="little")
        bits = bits[at - first * 8 :][: used * width].reshape(used, width).astype(np.int64)
        rows, start = out[row : row + used], 0
        for i in range(degree):
            rows[:, i] = ((bits[:, start : start + i] << np.arange(i)).sum(1) << 1) + 1
            start += i
        for j in range(degree, _BITS):
            made = rows[:, j - degree].copy()
            for k in range(degree):
                made ^= (rows[:, j - k - 1] << (k + 1)) * (chosen[:used] >> (degree - 1 - k) & 1)
            rows[:, j] = made
        at, row = at + len(chosen) * width, row + used
    return out << np.arange(_BITS)[::-1]
