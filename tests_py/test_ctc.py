"""Connectionist temporal classification: PyTorch's losses and gradients, in tests_py/golden/ctc.json."""

import json
from pathlib import Path

import numpy as np
import plait
import pytest
from plait.nn import functional as F

CASES = json.loads((Path(__file__).parent / "golden" / "ctc.json").read_text())


@pytest.mark.parametrize("number", range(len(CASES)))
def test_losses_and_gradients_are_pytorchs(number):
    c = CASES[number]
    scores = plait.tensor(c["scores"], dtype=plait.float64, requires_grad=True)
    lengths = plait.tensor(c["inputs"]), plait.tensor(c["lengths"], dtype=plait.int32)
    loss = plait.nn.CTCLoss(**c["options"])(scores.log_softmax(-1), plait.tensor(c["targets"]), *lengths)
    assert np.allclose(loss.detach().numpy().ravel(), [np.inf if x is None else x for x in c["loss"]])
    loss.sum().backward()
    if c["grad"] is not None:
        assert np.allclose(scores.grad.numpy(), c["grad"])
    assert np.isfinite(scores.grad.numpy()).all()


def test_one_sample_and_older_names():
    x = plait.randn(6, 3).log_softmax(-1)
    target = plait.tensor([1, 2])
    one = F.ctc_loss(x, target, plait.tensor(6), plait.tensor(2), reduction="none")
    assert one.shape == ()
    both = F.ctc_loss(plait.stack([x, x], 1), target.repeat(2), (6, 6), (2, 2))
    assert plait.allclose(one / 2, both)
    assert plait.ctc_loss(x, target, [6], [2], 0, "sum").item() == one.item()
    half = F.ctc_loss(x.bfloat16(), target, [6], [2], reduction="sum")
    assert half.dtype is plait.bfloat16 and abs(half.item() - one.item()) < 0.1


def test_wrong_arguments():
    x, y = plait.randn(4, 2, 3), plait.tensor([[1, 2], [1, 2]])
    for args, error, message in [
        ((x, y, [4, 4], [2, 3]), ValueError, "length 3 of target 1 is not within"),
        ((x, y, [4, 9], [2, 2]), ValueError, "length 9 of input 1 is not within its 4 steps"),
        ((x, y, [4, 4.5], [2, 2]), TypeError, "input_lengths must be integers"),
        ((x, y.float(), [4, 4], [2, 2]), TypeError, "integers"),
        ((x, y, [4, 4], [2, 2], 7), ValueError, "blank must be one of the 3 classes"),
        ((x, [1, 2], [4, 4], [2, 2]), TypeError, "targets must be Tensor"),
    ]:
        with pytest.raises(error, match=message):
            F.ctc_loss(*args)
    with pytest.raises(IndexError):
        F.ctc_loss(x, y + 5, [4, 4], [2, 2]).item()
