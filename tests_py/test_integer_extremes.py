"""Integers at the ends of their dtypes, through every function that stores or divides a plain number."""

import plait
import pytest
from plait.nn import functional as F

I64, I32, U8 = (-(2**63), -1, 2**53 + 1, 2**63 - 1), (-(2**31), -3, 2**31 - 1), (0, 127, 255)


def tensor(values):
    return plait.tensor(values, dtype={I64: plait.int64, I32: plait.int32, U8: plait.uint8}[values])


# PyTorch's values; floor_divide by -1, at which PyTorch ends the process, is the negative, which wraps around.
RESULTS = [
    (lambda t: t // 2, I64, [-(2**62), -1, 2**52, 2**62 - 1]),
    (lambda t: t // -1, I64, [-(2**63), 1, -(2**53) - 1, -(2**63) + 1]),
    (lambda t: plait.div(t, -1, rounding_mode="trunc"), I32, [-(2**31), 3, -(2**31) + 1]),
    (lambda t: t % (2**63 - 1), I64, [2**63 - 2, 2**63 - 2, 2**53 + 1, 0]),
    (lambda t: t.remainder(-2), I32, [0, -1, -1]),
    (lambda t: t.fmod(-2), I32, [0, -1, 1]),
    (lambda t: t + 1, I64, [-(2**63) + 1, 0, 2**53 + 2, -(2**63)]),
    (lambda t: t * 3, U8, [0, 125, 253]),
    (lambda t: 1 - t, I32, [-(2**31) + 1, 4, -(2**31) + 2]),
    (lambda t: t.clamp(min=2**53 + 1), I64, [2**53 + 1] * 3 + [2**63 - 1]),
    (lambda t: t.clamp(max=2**53 + 1), I64, [-(2**63), -1, 2**53 + 1, 2**53 + 1]),
    (lambda t: t.clamp(-5, 300), U8, [0, 127, 255]),
    (lambda t: t.eq(2**53 + 1), I64, [False, False, True, False]),
    (lambda t: t.lt(2**63 - 1), I64, [True, True, True, False]),
    (lambda t: t.abs(), I64, [-(2**63), 1, 2**53 + 1, 2**63 - 1]),
    (lambda t: t.sum(), I64, 2**53 - 1),
    (lambda t: t.sum(), U8, 382),
    (lambda t: t.cumsum(0), I32, [-(2**31), -(2**31) - 3, -4]),
    (lambda t: plait.full_like(t, 2**53 + 1), I64, [2**53 + 1] * 4),
    (lambda t: t.masked_fill(t > 0, -1), U8, [0, 255, 255]),
    (lambda t: plait.where(t > 0, t, 2**53 + 1), I64, [2**53 + 1] * 3 + [2**63 - 1]),
    (lambda t: plait.arange(2**63 - 3, 2**63 - 1), I64, [2**63 - 3, 2**63 - 2]),
    (lambda t: plait.arange(-(2**63), -(2**63) + 2), I64, [-(2**63), -(2**63) + 1]),
    (lambda t: plait.linspace(0, 255, 3, dtype=plait.uint8), U8, [0, 127, 255]),
]


@pytest.mark.parametrize(("function", "values", "want"), RESULTS)
def test_results_are_exact_or_wrap_around(function, values, want):
    assert function(tensor(values)).tolist() == want


STORES = [
    lambda t, n: t.clone().fill_(n),
    lambda t, n: plait.full((2,), n, dtype=t.dtype),
    plait.full_like,
    lambda t, n: t.new_full((1,), n),
    lambda t, n: plait.tensor([n], dtype=t.dtype),
    lambda t, n: plait.tensor(n, dtype=t.dtype),
    lambda t, n: plait.linspace(0, n, 2, dtype=t.dtype),
    lambda t, n: t.index_fill(0, plait.tensor([0]), n),
    lambda t, n: t.scatter(0, plait.tensor([0]), n),
    lambda t, n: t.clone().__setitem__(0, n),
    lambda t, n: F.pad(t, (1, 1), value=n),
]


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize(
    ("values", "number"), [(U8, 300), (U8, -256), (I32, 2**31), (I32, -(2**40)), (U8, float("nan")), (I32, 1e12)]
)
def test_a_number_that_a_dtype_cannot_hold_is_refused(store, values, number):
    with pytest.raises(ValueError, match="cannot hold the number"):
        store(tensor(values), number)


def test_whole_numbers_that_do_not_fit_are_refused_by_masks_and_bounds():
    t = tensor(U8)
    for call in (
        lambda: t.masked_fill(t > 0, 300), lambda: plait.where(t > 0, t, 300), lambda: t.clamp(min=300),
        lambda: t.clamp(max=-1), lambda: tensor(I32).clamp_(max=-(2**40)), lambda: plait.tensor(2**63),
        lambda: plait.tensor([2**63], dtype=plait.int32), lambda: plait.tensor([[2**63], [-1]]),
    ):  # fmt: skip
        with pytest.raises(ValueError, match="cannot hold the number"):
            call()
    assert plait.tensor([-1, 7], dtype=plait.uint8).tolist() == [255, 7]
    assert plait.tensor([2**63], dtype=plait.float64).tolist() == [2.0**63]
    assert plait.tensor([2**63, -1], dtype=plait.float64).tolist() == [2.0**63, -1.0]
    assert plait.tensor([2.0**63, -1]).tolist() == [2.0**63, -1.0]
