"""What `gradcheck` and `gradgradcheck` find, in backward passes, in forward mode and in batches."""

import plait
import pytest
from plait import linalg
from plait.autograd import Function, GradcheckError, gradcheck, gradgradcheck

ALL = {"check_forward_ad": True, "check_batched_grad": True, "check_batched_forward_grad": True}
X = plait.tensor([0.3, -0.7, 1.2], dtype=plait.float64, requires_grad=True)


def numbers(*shape):
    return plait.randn(shape, dtype=plait.complex128, requires_grad=True)


def sine(backward=1.0, forward=1.0):
    """Returns a sine whose derivatives are multiplied by factors: in backward passes, and in forward mode."""

    class Sine(Function):
        @staticmethod
        def forward(x):
            return x.sin()

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)
            ctx.save_for_forward(*inputs)

        @staticmethod
        def backward(ctx, g):
            return g * backward * ctx.saved_tensors[0].cos()

        @staticmethod
        def jvp(ctx, t):
            return t * ctx.saved_tensors[0].cos() * forward

    return Sine.apply


@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        (plait.sin, X),
        (lambda z: (z * z.conj() + z.exp(), z.abs()), numbers(2, 3)),
        (lambda x, y: (plait.ones(2), x @ y, x.argmax(), y.sum()), (X, X.detach().clone().requires_grad_())),
        (linalg.inv, numbers(3, 3)),
        (lambda a, b: linalg.lstsq(a, b).solution, (numbers(4, 2), numbers(4, 1))),
        (linalg.householder_product, (numbers(4, 3), numbers(2))),
        (plait.ormqr, (numbers(4, 3), numbers(3), numbers(4, 2))),
    ],
)
def test_what_is_right(function, inputs):
    assert gradcheck(function, inputs, **ALL)
    assert gradcheck(function, inputs, check_forward_ad=True, check_backward_ad=False)
    assert gradgradcheck(function, inputs, check_fwd_over_rev=True, check_batched_grad=True)


def test_what_is_wrong():
    assert gradcheck(sine(), X, check_forward_ad=True, check_batched_grad=True)
    for factors, options, message in (
        ({"backward": 2}, {}, "backward gives"),
        ({"forward": 2}, {"check_forward_ad": True}, "forward mode gives"),
        ({"forward": 2}, {"check_forward_ad": True, "check_backward_ad": False}, "forward mode gives"),
    ):
        wrong = sine(**factors)
        with pytest.raises(GradcheckError, match=message):
            gradcheck(wrong, X, **options)
        assert not gradcheck(wrong, X, raise_exception=False, **options)
    assert gradcheck(sine(forward=2), X)
    assert gradcheck(sine(backward=2), X, check_forward_ad=True, check_backward_ad=False)


def test_results_that_are_no_functions_of_the_inputs():
    """Results are told apart also where one before them has no gradient."""
    assert gradcheck(lambda x: (plait.ones(2), x.sin()), X)
    with pytest.raises(GradcheckError, match="output 1"):
        gradcheck(lambda x: (plait.ones(3), x.sin().detach() + x * 0), X)


def test_options_that_do_not_go_together():
    for options, message in (
        ({"check_backward_ad": False}, "at least one"),
        ({"check_batched_grad": True, "check_backward_ad": False, "check_forward_ad": True}, "wants check_backward_ad"),
        ({"check_batched_forward_grad": True}, "wants check_forward_ad"),
    ):
        with pytest.raises(ValueError, match=message):
            gradcheck(plait.sin, X, **options)


def test_inputs_are_left_as_they_were():
    x = X.detach().clone().requires_grad_()
    before = x.tolist()
    gradcheck(plait.exp, x, **ALL)
    assert x.tolist() == before and x.grad is None
