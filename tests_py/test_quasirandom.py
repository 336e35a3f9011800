"""Sobol sequences, with PyTorch 2.15's numbers."""

import hashlib

import plait
import pytest
from plait.quasirandom import SobolEngine


def test_points():
    assert SobolEngine(1).draw(4).tolist() == [[0.0], [0.5], [0.75], [0.25]]
    want = [[0.0] * 5, [0.5] * 5, [0.75, 0.25, 0.25, 0.25, 0.75], [0.25, 0.75, 0.75, 0.75, 0.25]]
    engine = SobolEngine(5)
    assert engine.draw(4).tolist() == want and engine.num_generated == 4
    assert engine.sobolstate[1, :6].tolist() == [536870912, 805306368, 671088640, 1006632960, 570425344, 855638016]
    parts = SobolEngine(5)
    got = [parts.draw(), parts.draw(0), parts.draw(2, dtype=plait.float64).float(), parts.draw(1)]
    assert plait.cat(got).tolist() == want and parts.fast_forward(12) is parts
    assert plait.equal(parts.draw(3), SobolEngine(5).draw(19)[16:])
    assert parts.reset() is parts and parts.num_generated == 0 and parts.draw(4).tolist() == want


def test_scrambled_points_are_those_of_the_seed():
    engine = SobolEngine(2, scramble=True, seed=7)
    want = [
        [0.19947312772274017, 0.17093220353126526],
        [0.9453538656234741, 0.8952855467796326],
        [0.6495087742805481, 0.4836291968822479],
        [0.4036279320716858, 0.7079510688781738],
    ]
    assert engine.draw(4).tolist() == want and engine.reset().draw(4).tolist() == want
    assert SobolEngine(3, True, 3).sobolstate[:, 0].tolist() == [659530265, 540231819, 1064791748]
    assert SobolEngine(3, True, 3).shift.tolist() == [73513868, 241083994, 750744354]
    plait.manual_seed(0)
    first = SobolEngine(4, scramble=True).draw(2)
    plait.manual_seed(0)
    assert plait.equal(SobolEngine(4, scramble=True).draw(2), first) and first.min() >= 0 and first.max() < 1


def test_all_dimensions():
    state = SobolEngine(SobolEngine.MAXDIM).sobolstate
    assert state.shape == (21201, 30) and state.dtype is plait.int64
    assert hashlib.sha256(state.numpy().astype("<i8").tobytes()).hexdigest() == (
        "4a6c1b3e473e79ebf849fc9a695e6cbc566dff5cc899272a4dfc9b5038c3beca"
    )


def test_points_fill_the_cube():
    points = SobolEngine(8, scramble=True, seed=1).draw_base2(10)
    counts = (points * 1024).long().sort(0).values
    assert plait.equal(counts, plait.arange(1024)[:, None].expand(-1, 8))  # one point in each interval


def test_out_dtypes_and_words():
    engine, out = SobolEngine(3), plait.empty(0)
    assert engine.draw(2, out=out) is out and out.tolist() == [[0.0] * 3, [0.5] * 3]
    assert engine.draw(1, dtype=plait.float64).dtype is plait.float64
    assert repr(SobolEngine(3)) == "SobolEngine(dimension=3)"
    assert repr(SobolEngine(3, True, 5)) == "SobolEngine(dimension=3, scramble=True, seed=5)"
    with pytest.raises(ValueError, match="points are balanced"):
        engine.draw_base2(3)
    with pytest.raises(ValueError, match="dimension must be 1 to 21201"):
        SobolEngine(21202)
