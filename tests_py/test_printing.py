"""How tensors print, and how they are formatted."""

import math

import plait
import pytest


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([1.0, 2000.0], "[1.0000e+00, 2.0000e+03]"),
        ([1.0, 100.0], "[  1., 100.]"),
        ([2e8], "[2.0000e+08]"),
        ([1e8, 1e8], "[100000000., 100000000.]"),
        ([math.nan, math.inf, -math.inf], "[nan, inf, -inf]"),
        ([0.0, math.nan], "[0., nan]"),
        ([1.0, math.inf], "[1., inf]"),
        ([0.5, math.nan], "[0.5000,    nan]"),
        ([0.0, 0.25], "[0.0000, 0.2500]"),
        ([-1.5, 2.0], "[-1.5000,  2.0000]"),
        ([0.25, 1e-5], "[2.5000e-01, 1.0000e-05]"),
        ([0.0, 0.0], "[0., 0.]"),
    ],
)
def test_floating_point_numbers(values, text):
    assert repr(plait.tensor(values)) == f"tensor({text})"


def test_formats_are_for_one_number():
    assert f"{plait.tensor(3.14159):.2f} {plait.tensor(7):03d} {plait.ones(2)}" == "3.14 007 tensor([1., 1.])"
    loss = plait.tensor(1.5, requires_grad=True)
    assert f"{loss} {plait.tensor(3)} {plait.tensor(True)}" == "1.5 3 True"
    assert str(loss) == "tensor(1.5000, requires_grad=True)"
    with pytest.raises(TypeError, match=r"'\.2f' is for one number, got a tensor of shape \[2\]"):
        f"{plait.ones(2):.2f}"


def test_many_elements_are_cut():
    assert repr(plait.arange(2000)) == "tensor([   0,    1,    2,  ..., 1997, 1998, 1999])"
    lines = repr(plait.zeros(1001, 2)).split("\n")
    assert len(lines) == 7 and lines[3].strip() == "...,"
