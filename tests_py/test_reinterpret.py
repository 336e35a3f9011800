"""The bits of tensors as another dtype, and functions that change a tensor or ask it something."""

import numpy as np
import plait
import pytest
from plait.nn import functional as F


@pytest.mark.parametrize(("of", "to"), [("float32", "int32"), ("float64", "int64"), ("uint8", "bool")])
def test_bits_of_the_same_size(of, to):
    a = np.arange(12).reshape(3, 4).astype(of) % (2 if to == "bool" else 99)
    t = plait.from_numpy(a.copy())
    v = t.t().view(getattr(plait, to))
    assert v.numpy().tolist() == a.T.view(to).tolist()
    assert v.data_ptr() == t.data_ptr()


@pytest.mark.parametrize(
    ("of", "to"), [("float64", "int32"), ("int32", "uint8"), ("uint8", "float32"), ("int32", "float64")]
)
def test_bits_of_another_size(of, to):
    a = np.arange(48).reshape(2, 3, 8).astype(of)
    v = plait.from_numpy(a.copy()).view(getattr(plait, to))
    assert np.array_equal(v.numpy(), a.view(to))
    part = plait.from_numpy(a.copy())[1:, ::2].view(getattr(plait, to))
    assert np.array_equal(part.numpy(), a[1:, ::2].view(to))


def test_bfloat16_is_the_upper_half():
    x = plait.tensor([1.0, -2.5])
    assert x.view(plait.bfloat16).tolist() == [0.0, 1.0, 0.0, -2.5]
    x.view(plait.int32)[0] = 0
    assert x.tolist() == [0.0, -2.5]


def test_bits_that_do_not_fit():
    with pytest.raises(RuntimeError, match="divisible by 2"):
        plait.ones(3).view(plait.float64)
    with pytest.raises(RuntimeError, match="must have stride 1"):
        plait.ones(4, 4).t().view(plait.float64)
    with pytest.raises(RuntimeError, match="offset"):
        plait.ones(5)[1:].view(plait.float64)
    with pytest.raises(RuntimeError, match="must have stride 1"):
        plait.tensor(1.0).view(plait.uint8)


def test_functions_that_change_their_input():
    for name, by in [
        ("arccos_", plait.acos), ("arcsin_", plait.asin), ("arctan_", plait.atan), ("arctanh_", plait.atanh),
        ("arcsinh_", plait.asinh), ("fix_", plait.trunc), ("negative_", plait.neg), ("i0_", plait.i0),
    ]:  # fmt: skip
        x = plait.tensor([0.25, 0.5])
        want = by(x).tolist()
        assert getattr(plait, name)(x) is x
        assert x.tolist() == want
    x = plait.tensor([1.5, 3.0])
    assert plait.arccosh_(x) is x and x.tolist() == plait.acosh(plait.tensor([1.5, 3.0])).tolist()
    assert plait.clip_(plait.tensor([0.5, 3.0]), 1, 2).tolist() == [1, 2]
    assert plait.lcm_(plait.tensor([4]), plait.tensor([6])).tolist() == [12]
    assert plait.ldexp_(plait.tensor([1.5]), plait.tensor([2])).tolist() == [6]
    a, x = plait.tensor([2.0]), plait.tensor([1.0])
    want = plait.igamma(a, x).item()
    assert a.clone().igamma_(x).item() == want
    assert a.igammac_(x).item() == pytest.approx(1 - want)
    x = plait.ones(100)
    assert plait.dropout_(x, 0.5, True) is x and 0 < (x == 0).sum().item() < 100
    assert (
        plait.rrelu_(plait.tensor([-1.0])).item()
        == F.rrelu(plait.tensor([-1.0])).item()
        == F.rrelu_(plait.tensor([-1.0])).item()
    )


@pytest.mark.parametrize("p", [0.0, 1.0, 2.0, 3.0, float("inf")])
def test_distances_of_pairs_row_by_row(p):
    x = plait.randn(120, 100, dtype=plait.float64).requires_grad_()
    i, j = plait.triu_indices(120, 120, 1).unbind(0)
    want, got = plait.linalg.vector_norm(x[i] - x[j], p, -1), plait.pdist(x, p)
    assert plait.allclose(got, want)
    if p > 0:
        weights = plait.randn_like(want)
        gradients = [plait.autograd.grad((d * weights).sum(), x)[0] for d in (want, got)]
        assert plait.allclose(*gradients)
    assert plait.pdist(plait.zeros(1, 2_000_000)).shape == (0,)


def test_functions_that_ask():
    x = plait.ones(2, 2, requires_grad=True)
    assert not plait.detach(x).requires_grad
    assert plait.get_device(x) == -1
    assert not (plait.is_conj(x) or plait.is_neg(x) or plait.is_inference(x))
    assert plait.pdist(plait.tensor([[0.0, 0.0], [3.0, 4.0]])).tolist() == [5.0]
    out, at = F.fractional_max_pool2d_with_indices(plait.randn(1, 1, 6, 6), 2, output_size=2)
    assert out.shape == at.shape == (1, 1, 2, 2)


def test_memory_formats_are_accepted():
    x = plait.ones(1, 2, 3, 3).to(memory_format=plait.channels_last)
    assert x.contiguous(memory_format=plait.contiguous_format).is_contiguous()
    assert plait.empty_like(x, memory_format=plait.preserve_format).shape == x.shape
    assert repr(plait.channels_last) == "plait.channels_last"
    assert isinstance(plait.channels_last, plait.memory_format)
