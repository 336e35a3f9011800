"""Fake quantization: PyTorch's values and gradients, in tests_py/golden/quantization.json, and wrong arguments."""

import json
import math
from pathlib import Path

import plait
import pytest

CASES = json.loads((Path(__file__).parent / "golden" / "quantization.json").read_text("utf-8"))


@pytest.mark.parametrize("case", CASES)
def test_values_and_gradients_are_those_of_pytorch(case):
    dtype = getattr(plait, case["dtype"])
    x = plait.tensor(case["input"], dtype=dtype).requires_grad_()
    if "axis" in case:
        whole = isinstance(case["zero_point"][0], int)
        zeros = plait.tensor(case["zero_point"], dtype=plait.int32 if whole else plait.float32)
        y = plait.fake_quantize_per_channel_affine(x, plait.tensor(case["scale"]), zeros, case["axis"], 0, 15)
    else:
        scale, zero, low, high = case["arguments"]
        y = plait.fake_quantize_per_tensor_affine(x, scale, zero, low, high)
        tensors = plait.tensor([scale]), plait.tensor(zero, dtype=plait.int32)
        assert y.equal(plait.fake_quantize_per_tensor_affine(x, *tensors, low, high))
    assert y.dtype == dtype and y.tolist() == case["output"]
    (grad,) = plait.autograd.grad(y.square().sum(), x)
    assert grad.tolist() == case["grad"]


def test_values_that_are_not_finite():
    x = plait.tensor([math.inf, -math.inf, math.nan, 1e30, -1e30], requires_grad=True)
    y = plait.fake_quantize_per_tensor_affine(x, 0.5, 0, -4, 7)
    assert y[2].isnan() and y[[0, 1, 3, 4]].tolist() == [3.5, -2.0, 3.5, -2.0]
    (grad,) = plait.autograd.grad(y.sum(), x)
    assert grad.tolist() == [0, 0, 0, 0, 0]
    assert plait.fake_quantize_per_tensor_affine(plait.ones(0, 3), 0.5, 0, -4, 7).shape == (0, 3)


def test_derivatives_of_all_kinds():
    def f(x):
        return plait.fake_quantize_per_tensor_affine(x, 0.5, 0, -4, 7).square().sum()

    x = plait.tensor([0.6, 9.0, -1.3])
    assert plait.func.grad(f)(x).tolist() == [1.0, 0.0, -3.0]
    assert plait.func.jvp(f, (x,), (plait.ones(3),))[1].item() == -2.0
    rows = plait.stack((x, x + 0.5))
    assert plait.func.vmap(plait.func.grad(f))(rows).tolist() == [plait.func.grad(f)(row).tolist() for row in rows]
    leaf = x.clone().requires_grad_()
    (grad,) = plait.autograd.grad(f(leaf), leaf, create_graph=True)
    assert plait.autograd.grad(grad.sum(), leaf)[0].tolist() == [2.0, 0.0, 2.0]


ONES, SCALES, ZEROS = plait.ones(2, 3), plait.tensor([0.1, 0.2]), plait.tensor([0, 1], dtype=plait.int32)


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (
            lambda f, c: f(ONES.int(), 0.1, 0, 0, 5),
            TypeError,
            "an input of a floating-point dtype, got plait.int32",
        ),
        (lambda f, c: f([1.0], 0.1, 0, 0, 5), TypeError, "argument 'input' must be Tensor, got list"),
        (lambda f, c: f(ONES, 0.1, 0, 5, 0), ValueError, "want quant_min of at most quant_max, got 5 and 0"),
        (lambda f, c: f(ONES, 0.1, 9, 0, 5), ValueError, "want zero_point from 0 to 5, got 9"),
        (lambda f, c: f(ONES, 0.0, 0, 0, 5), ValueError, "want a positive scale, got 0.0"),
        (lambda f, c: f(ONES, 0.1, 0.5, 0, 5), TypeError, "argument 'zero_point' must be int or Tensor, got float"),
        (lambda f, c: f(ONES, "x", 0, 0, 5), TypeError, "argument 'scale' must be float or Tensor, got str"),
        (lambda f, c: f(ONES, 0.1, 0, 0.5, 5), TypeError, "argument 'quant_min' must be int, got float"),
        (lambda f, c: f(ONES, SCALES, ZEROS, 0, 5), ValueError, r"want scale of one element, got shape \[2\]"),
        (lambda f, c: f(ONES, SCALES[:1], 0, 0, 5), TypeError, "two numbers or two tensors, got one of each"),
        (lambda f, c: f(ONES, SCALES[:1], SCALES[:1], 0, 5), TypeError, "want a zero_point of an integer dtype"),
        (
            lambda f, c: c(ONES, SCALES, ZEROS, 1, 0, 5),
            ValueError,
            r"shape \[3\], the size of axis 1 of \[2, 3\], got",
        ),
        (lambda f, c: c(ONES, SCALES, ZEROS, 2, 0, 5), IndexError, "want an axis from 0 to 1, got 2"),
        (lambda f, c: c(ONES, SCALES, ZEROS, -1, 0, 5), IndexError, "want an axis from 0 to 1, got -1"),
        (
            lambda f, c: c(ONES, SCALES, ZEROS.long(), 0, 0, 5),
            TypeError,
            "a zero_point of int32, float32 or float16",
        ),
        (lambda f, c: c(ONES, SCALES, ZEROS + 8, 0, 0, 5), ValueError, "want zero_point from 0 to 5"),
        (lambda f, c: c(ONES, ZEROS, ZEROS, 0, 0, 5), TypeError, "want a scale of a floating-point dtype"),
        (lambda f, c: c(ONES, 0.1, ZEROS, 0, 0, 5), TypeError, "argument 'scale' must be Tensor, got float"),
    ],
)
def test_wrong_arguments(call, error, says):
    with pytest.raises(error, match=says):
        call(plait.fake_quantize_per_tensor_affine, plait.fake_quantize_per_channel_affine)
