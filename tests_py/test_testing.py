"""Comparisons of tests, generators by module, and the types that older programs name."""

import numpy as np
import plait
import pytest
from plait.nn import functional as F
from plait.nn.attention import SDPBackend, sdpa_kernel
from plait.testing import assert_close


def test_what_is_close():
    x = plait.randn(3, 4)
    assert_close(x, x + 1e-6)
    assert_close({"a": [x, 1.0]}, {"a": (x.clone(), 1.0)})
    assert_close(x, x.double(), check_dtype=False)
    assert_close(np.float32(2), 2.0)
    assert_close(plait.tensor([1, 2]), plait.tensor([1, 2]))
    nan = plait.tensor([float("nan"), 1.0])
    assert_close(nan, nan, equal_nan=True)
    assert_close(x, x + 0.1, rtol=0, atol=0.2)
    assert_close(x.requires_grad_(), x.detach())


@pytest.mark.parametrize(
    ("a", "b", "options", "message"),
    [
        ([1.0, 2.0], [1.0, 2.5], {}, r"1 of 2 elements are not close; the largest difference, 0.5, .* at \(1,\)"),
        ([1, 2], [1, 3], {}, "1 of 2"),
        ([1.0], [1.0, 2.0], {}, "shapes differ, got \\[1\\] and \\[2\\]"),
        ([1.0], [1], {}, "dtypes differ, got plait.float32 and plait.int64"),
        ([float("nan")], [float("nan")], {}, "1 of 1"),
        ([1.0], [2.0], {"msg": "mine"}, "mine"),
        ([1.0], [2.0], {"msg": lambda m: "so: " + m}, "so: 1 of 1"),
    ],
)
def test_what_is_not_close(a, b, options, message):
    with pytest.raises(AssertionError, match=message):
        assert_close(plait.tensor(a), plait.tensor(b), **options)


def test_where_nested_values_differ():
    with pytest.raises(AssertionError, match=r"\['a'\]\[1\]: 1 of 1"):
        assert_close({"a": [1.0, 2.0]}, {"a": [1.0, 3.0]})
    for a, b, message in [({"a": 1}, {"b": 1}, "keys differ"), ([1], [1, 2], "lengths differ")]:
        with pytest.raises(AssertionError, match=message):
            assert_close(a, b)
    with pytest.raises(AssertionError, match="strides differ"):
        assert_close(plait.ones(2, 3), plait.ones(3, 2).t(), check_stride=True)
    with pytest.raises(ValueError, match="both rtol and atol"):
        assert_close(1.0, 1.0, rtol=0.1)
    with pytest.raises(TypeError, match="got str"):
        assert_close("a", "a")


def test_forked_generators():
    plait.random.manual_seed(3)
    want = plait.rand(2)
    plait.random.manual_seed(3)
    with plait.random.fork_rng():
        assert_close(plait.rand(2), want)
        plait.rand(5)
    assert_close(plait.rand(2), want)
    with plait.random.fork_rng(enabled=False):
        plait.rand(1)


def test_older_types():
    assert plait.FloatTensor([1, 2]).dtype is plait.float32 and plait.LongTensor([1.5]).tolist() == [1]
    assert plait.HalfTensor(2, 3).shape == (2, 3) and plait.BoolTensor([1, 0]).tolist() == [True, False]
    for kind in (plait.Tensor, plait.DoubleTensor):  # a size is no data
        assert (
            kind(plait.ones(2, 3).shape).shape == (2, 3) and kind(plait.Size()).shape == () and kind((2, 3)).sum() == 5
        )
    assert isinstance(plait.ones(1), plait.FloatTensor) and not isinstance(plait.ones(1), plait.LongTensor)
    assert plait.DoubleTensor().shape == (0,) and plait.ones(1).type() == "plait.FloatTensor"
    for given in (plait.DoubleTensor, "plait.DoubleTensor", "torch.DoubleTensor", plait.float64):
        assert plait.ones(1).type(given).dtype is plait.float64
        assert plait.nn.Linear(1, 1).type(given).weight.dtype is plait.float64
    assert not isinstance(plait.ones(1), plait.cuda.FloatTensor)
    with pytest.raises(ValueError, match="unknown type"):
        plait.ones(1).type("plait.StringTensor")
    assert (plait.ones(2) > 0).type(plait.Tensor).dtype is plait.float32
    assert plait.ones(2).long().type("plait.Tensor").dtype is plait.float32
    for place in (plait, plait.cuda):
        with pytest.raises(AttributeError):
            _ = place.StringTensor


def test_attention_takes_what_it_takes():
    x = plait.randn(1, 2, 3, 4)
    with sdpa_kernel([SDPBackend.MATH, SDPBackend.FLASH_ATTENTION]):
        inside = F.scaled_dot_product_attention(x, x, x)
    assert_close(inside, F.scaled_dot_product_attention(x, x, x))
    with pytest.raises(TypeError, match="SDPBackend"), sdpa_kernel("math"):
        pass
