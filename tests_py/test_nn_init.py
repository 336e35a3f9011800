"""Initialisers: the distributions that they draw from, and those of layers."""

import math

import numpy as np
import plait
import pytest
from plait import nn
from plait.nn import init


def drawn(function, *shape, **kwargs):
    t = plait.empty(*shape)
    assert function(t, **kwargs) is t
    return t.numpy()


@pytest.mark.parametrize(("function", "kwargs", "std"), [
    (init.xavier_uniform_, {}, math.sqrt(2 / 500)),
    (init.xavier_normal_, {"gain": 2.0}, 2 * math.sqrt(2 / 500)),
    (init.kaiming_uniform_, {}, math.sqrt(2 / 200)),
    (init.kaiming_uniform_, {"a": math.sqrt(5)}, math.sqrt(1 / 3 / 200)),
    (init.kaiming_normal_, {"mode": "fan_out", "nonlinearity": "relu"}, math.sqrt(2 / 300)),
    (init.uniform_, {"a": -3.0, "b": 3.0}, math.sqrt(3)),
    (init.normal_, {"mean": 0.0, "std": 0.5}, 0.5),
])  # fmt: skip
def test_moments(function, kwargs, std):
    a = drawn(function, 300, 200, **kwargs)
    assert abs(a.mean()) < 5 * std / math.sqrt(a.size)
    assert abs(a.std() / std - 1) < 0.02
    if "uniform" in function.__name__:
        assert np.abs(a).max() <= math.sqrt(3) * std * 1.0001


def test_fans_of_convolutions():
    a = drawn(init.kaiming_normal_, 20, 30, 4, 5)
    assert abs(a.std() / math.sqrt(2 / 600) - 1) < 0.05
    with pytest.raises(ValueError, match="2 dimensions"):
        init.xavier_normal_(plait.empty(3))
    with pytest.raises(ValueError, match="mode"):
        init.kaiming_normal_(plait.empty(3, 3), mode="both")
    with pytest.warns(UserWarning, match="without elements"):
        init.kaiming_uniform_(plait.empty(0, 3))


def test_truncated_normal():
    a = drawn(init.trunc_normal_, 20000, mean=1.0, std=2.0, a=0.0, b=2.0)
    assert a.min() >= 0
    assert a.max() <= 2
    assert abs(a.mean() - 1) < 0.02


@pytest.mark.parametrize("shape", [(4, 4), (6, 3), (3, 6), (4, 2, 3)])
def test_orthogonal(shape):
    a = drawn(init.orthogonal_, *shape, gain=2.0).reshape(shape[0], -1)
    product = a @ a.T if a.shape[0] <= a.shape[1] else a.T @ a
    np.testing.assert_allclose(product, 4 * np.eye(len(product)), atol=1e-5)


def test_constants_and_patterns():
    assert drawn(init.constant_, 2, val=3.0).tolist() == [3.0, 3.0]
    assert drawn(init.ones_, 2).tolist() == [1.0, 1.0]
    assert drawn(init.zeros_, 2).tolist() == [0.0, 0.0]
    np.testing.assert_array_equal(drawn(init.eye_, 2, 3), np.eye(2, 3))
    conv = nn.Conv1d(4, 4, 3, padding=1, groups=2, bias=False)
    init.dirac_(conv.weight, groups=2)
    x = plait.randn(1, 4, 5)
    np.testing.assert_array_equal(conv(x).detach().numpy(), x.numpy())
    a = drawn(init.sparse_, 10, 5, sparsity=0.35)
    assert ((a == 0).sum(0) == 4).all()
    with pytest.raises(ValueError, match="dirac_"):
        init.dirac_(plait.empty(2, 2))


def test_gains():
    assert init.calculate_gain("tanh") == 5 / 3
    assert init.calculate_gain("relu") == math.sqrt(2)
    assert init.calculate_gain("leaky_relu", 0.2) == math.sqrt(2 / 1.04)
    assert init.calculate_gain("conv2d") == 1.0
    assert init.calculate_gain("selu") == 0.75
    with pytest.raises(ValueError, match="unknown nonlinearity"):
        init.calculate_gain("step")


def test_leaves_that_require_gradients_are_overwritten():
    p = nn.Parameter(plait.zeros(3, 3))
    init.normal_(p)
    assert p.is_leaf
    assert p.requires_grad
    assert p.detach().abs().sum().item() > 0


def test_seeds_and_generators():
    plait.manual_seed(3)
    a = nn.Linear(4, 4)
    plait.manual_seed(3)
    b = nn.Linear(4, 4)
    np.testing.assert_array_equal(a.weight.detach().numpy(), b.weight.detach().numpy())
    one = drawn(init.uniform_, 5, generator=plait.Generator().manual_seed(1))
    two = drawn(init.uniform_, 5, generator=plait.Generator().manual_seed(1))
    np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize(("module", "name", "bound"), [
    (lambda: nn.Linear(100, 300), "weight", 0.1),
    (lambda: nn.Linear(100, 3000), "bias", 0.1),
    (lambda: nn.Conv2d(10, 300, 3, groups=2), "weight", 1 / math.sqrt(45)),
    (lambda: nn.ConvTranspose2d(200, 10, 3), "weight", 1 / math.sqrt(90)),
    (lambda: nn.LSTM(20, 64), "weight_ih_l0", 0.125),
    (lambda: nn.GRUCell(20, 64), "bias_hh", 0.125),
    (lambda: nn.Bilinear(25, 30, 40), "weight", 0.2),
    (lambda: nn.MultiheadAttention(64, 2), "in_proj_weight", math.sqrt(6 / 256)),
])  # fmt: skip
def test_layers_start_uniform_within(module, name, bound):
    a = module().get_parameter(name).detach().numpy()
    assert np.abs(a).max() <= bound * 1.0001
    assert np.abs(a).max() > 0.95 * bound
    assert abs(a.std() - bound / math.sqrt(3)) < 0.1 * bound


def test_other_layers_start():
    e = nn.Embedding(500, 40, padding_idx=3)
    assert abs(e.weight.detach().numpy().std() - 1) < 0.03
    assert e.weight[3].abs().sum().item() == 0
    n = nn.BatchNorm1d(3)
    assert n.weight.tolist() == [1.0] * 3
    assert n.running_var.tolist() == [1.0] * 3
    assert n.num_batches_tracked.item() == 0
    assert nn.PReLU().weight.tolist() == [0.25]
    m = nn.MultiheadAttention(8, 2)
    assert m.in_proj_bias.abs().sum().item() == 0
    assert m.out_proj.bias.abs().sum().item() == 0
