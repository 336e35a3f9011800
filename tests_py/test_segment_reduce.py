"""`segment_reduce`, with PyTorch 2.15's numbers."""

import math

import plait
import pytest

X = [-5.0, 2.0, -2.0, 5.0, 1.0, -3.0, 4.0]
WANT = {  # of parts of 2, 0, 4 and 1 elements
    "sum": [-3.0, 0.0, 1.0, 4.0],
    "mean": [-1.5, math.nan, 0.25, 4.0],
    "max": [2.0, -math.inf, 5.0, 4.0],
    "min": [-5.0, math.inf, -3.0, 4.0],
    "prod": [-10.0, 1.0, 30.0, 4.0],
}
WITH_THREE = {
    "sum": [0.0, 3.0, 4.0, 7.0],
    "mean": [0.0, 3.0, 1.0, 7.0],
    "max": [3.0, 3.0, 5.0, 4.0],
    "min": [-5.0, 3.0, -3.0, 3.0],
    "prod": [-30.0, 3.0, 90.0, 12.0],
}


def same(got, want):
    assert plait.allclose(got, plait.tensor(want, dtype=got.dtype), equal_nan=True), got


@pytest.mark.parametrize("reduce", WANT)
@pytest.mark.parametrize("dtype", [plait.float32, plait.float64])
def test_parts_are_reduced(reduce, dtype):
    x, lengths = plait.tensor(X, dtype=dtype), plait.tensor([2, 0, 4, 1])
    offsets = plait.tensor([0, 2, 2, 6, 7], dtype=plait.int32)
    for given in ({"lengths": lengths}, {"lengths": lengths.int()}, {"offsets": offsets}):
        same(plait.segment_reduce(x, reduce, **given), WANT[reduce])
        same(plait.segment_reduce(x, reduce, initial=3.0, **given), WITH_THREE[reduce])
        same(plait.segment_reduce(x, reduce, unsafe=True, **given), WANT[reduce])
    wide = plait.stack([x, x], 1)
    same(plait.segment_reduce(wide, reduce, lengths=lengths), [[v, v] for v in WANT[reduce]])
    rows = plait.stack([x, x.flip(0)])
    got = plait.segment_reduce(rows, reduce, lengths=plait.stack([lengths, lengths.flip(0)]), axis=-1)
    same(got, [WANT[reduce], WANT[reduce][::-1]])


GRADS = {
    "sum": [-1.5, -1.5, 0.5, 0.5, 0.5, 0.5, 1.5],
    "mean": [-0.75, -0.75, 0.125, 0.125, 0.125, 0.125, 1.5],
    "max": [0.0, -1.5, 0.0, 0.5, 0.0, 0.0, 1.5],
    "min": [-1.5, 0.0, 0.0, 0.0, 0.0, 0.5, 1.5],
    "prod": [-3.0, 7.5, -7.5, 3.0, 15.0, -5.0, 1.5],
}


@pytest.mark.parametrize("reduce", GRADS)
def test_gradients(reduce):
    x = plait.tensor(X, requires_grad=True)
    out = plait.segment_reduce(x, reduce, lengths=plait.tensor([2, 4, 1]))
    (out * plait.tensor([-1.5, 0.5, 1.5])).sum().backward()
    same(x.grad, GRADS[reduce])
    if reduce in ("max", "min"):
        tied = plait.ones(4, requires_grad=True)
        plait.segment_reduce(tied, reduce, lengths=plait.tensor([4])).backward(plait.ones(1))
        assert tied.grad.tolist() == [0.25] * 4
    if reduce == "prod":
        zeros = plait.tensor([0.0, 3.0, 0.0, 0.0], requires_grad=True)
        plait.segment_reduce(zeros, reduce, lengths=plait.tensor([2, 2])).sum().backward()
        assert zeros.grad.tolist() == [3.0, 0.0, 0.0, 0.0]
    if reduce in ("sum", "mean", "prod"):
        double = plait.tensor(X, dtype=plait.float64, requires_grad=True)
        assert plait.autograd.gradcheck(
            lambda t: plait.segment_reduce(t, reduce, lengths=plait.tensor([2, 4, 1]), initial=2.0), [double]
        )


def test_unsafe_leaves_out_what_is_in_no_part():
    x = plait.tensor(X)
    assert plait.segment_reduce(x, "sum", lengths=plait.tensor([2, 3]), unsafe=True).tolist() == [-3.0, 4.0]
    assert plait.segment_reduce(x, "sum", offsets=plait.tensor([1, 2, 4]), unsafe=True).tolist() == [2.0, 3.0]


def test_what_is_refused():
    x, lengths = plait.tensor(X), plait.tensor([7])
    for error, words, data, reduce, given in (
        (ValueError, "sum to 7", x, "sum", {"lengths": plait.tensor([2, 3])}),
        (ValueError, "0 or more", x, "sum", {"lengths": plait.tensor([8, -1])}),
        (ValueError, "offsets must begin with 0", x, "sum", {"offsets": plait.tensor([1, 7])}),
        (ValueError, "reduce must be one of", x, "avg", {"lengths": lengths}),
        (ValueError, "give lengths or offsets", x, "sum", {}),
        (ValueError, "before axis 1", x, "sum", {"lengths": lengths, "axis": 1}),
        (TypeError, "want floating-point data", x.long(), "sum", {"lengths": lengths}),
        (TypeError, "int32 or int64", x, "sum", {"lengths": plait.tensor([7.0])}),
        (NotImplementedError, "indices", x, "sum", {"indices": lengths}),
    ):
        with pytest.raises(error, match=words):
            plait.segment_reduce(data, reduce, **given)
