"""Gradient clipping, parametrizations, packed sequences, fusion and calls with other parameters."""

import copy
import math

import numpy as np
import plait
import pytest
from plait import nn
from plait.func import functional_call
from plait.nn.utils import parametrizations, parametrize, rnn


def close(a, b, tol=1e-5):
    a, b = (t.detach().numpy() if isinstance(t, plait.Tensor) else np.asarray(t) for t in (a, b))
    np.testing.assert_allclose(a, b, rtol=tol, atol=tol)


def with_grads(*grads):
    out = []
    for g in grads:
        p = nn.Parameter(plait.zeros(len(g)))
        p.grad = plait.tensor(g)
        out.append(p)
    return out


def test_clip_grad_norm():
    ps = with_grads([3.0, 0.0], [4.0])
    total = nn.utils.clip_grad_norm_(ps, 1.0)
    assert abs(total.item() - 5) < 1e-6
    close(ps[0].grad, [0.6, 0.0])
    close(ps[1].grad, [0.8])
    ps = with_grads([3.0, -7.0])
    assert nn.utils.clip_grad_norm_(iter(ps), 100.0, norm_type=math.inf).item() == 7.0
    close(ps[0].grad, [3.0, -7.0])
    ps = with_grads([math.nan])
    with pytest.raises(RuntimeError, match="error_if_nonfinite"):
        nn.utils.clip_grad_norm_(ps, 1.0, error_if_nonfinite=True)
    assert nn.utils.clip_grad_norm_([nn.Parameter(plait.zeros(1))], 1.0).item() == 0.0
    close(nn.utils.get_total_norm([plait.tensor([1.0, 2.0]), plait.tensor([2.0])], 1.0), 5.0)


def test_clip_grad_value():
    ps = with_grads([3.0, -0.5], [-4.0])
    nn.utils.clip_grad_value_(ps, 1.0)
    close(ps[0].grad, [1.0, -0.5])
    close(ps[1].grad, [-1.0])


def test_parameters_as_a_vector():
    net = nn.Linear(2, 3)
    v = nn.utils.parameters_to_vector(net.parameters())
    assert list(v.shape) == [9]
    kept = net.weight
    nn.utils.vector_to_parameters(plait.arange(0, end=9, dtype=plait.float32), net.parameters())
    assert net.weight is kept
    close(net.weight, np.arange(6).reshape(3, 2))
    close(net.bias, [6, 7, 8])
    assert net.bias.requires_grad
    with pytest.raises(ValueError, match="9 elements are needed, got 2"):
        nn.utils.vector_to_parameters(plait.zeros(2), net.parameters())


@pytest.mark.parametrize("padding_side", ["left", "right"])
@pytest.mark.parametrize("batch_first", [False, True])
def test_pad_sequence(batch_first, padding_side):
    a, b = plait.ones(3, 2), 2 * plait.ones(1, 2)
    out = rnn.pad_sequence([a, b], batch_first, 9.0, padding_side)
    one = out[1] if batch_first else out[:, 1]
    close(one[:, 0], [9, 9, 2] if padding_side == "left" else [2, 9, 9])
    if padding_side == "right":
        parts = rnn.unpad_sequence(out, plait.tensor([3, 1]), batch_first)
        close(parts[1], b)


def test_pack_and_unpack():
    parts = [plait.randn(n, 2) for n in (2, 4, 1)]
    packed = rnn.pack_sequence(parts, enforce_sorted=False)
    assert packed.batch_sizes.tolist() == [3, 2, 1, 1]
    for mine, its in zip(rnn.unpack_sequence(packed), parts, strict=True):
        close(mine, its)
    padded, lengths = rnn.pad_packed_sequence(packed, batch_first=True, padding_value=-1.0, total_length=6)
    assert lengths.tolist() == [2, 4, 1]
    assert list(padded.shape) == [3, 6, 2]
    close(padded[0, 2:], -np.ones((4, 2)))
    with pytest.raises(RuntimeError, match="enforce_sorted"):
        rnn.pack_sequence(parts)
    with pytest.raises(RuntimeError, match="positive"):
        rnn.pack_padded_sequence(plait.zeros(2, 1, 1), [0])
    with pytest.raises(ValueError, match="total_length"):
        rnn.pad_packed_sequence(packed, total_length=2)


@pytest.mark.parametrize(("cls", "kwargs"), [
    (nn.RNN, {}), (nn.GRU, {}), (nn.LSTM, {}), (nn.LSTM, {"proj_size": 2}),
])  # fmt: skip
@pytest.mark.parametrize("lengths", [[4, 2, 1], [3, 3, 3], [1, 4, 2]])
def test_packed_sequences_run_as_each_alone(cls, kwargs, lengths):
    net = cls(3, 5, num_layers=2, bidirectional=True, **kwargs)
    parts = [plait.randn(n, 3) for n in lengths]
    out, last = net(rnn.pack_sequence(parts, enforce_sorted=False))
    for i, (one, mine) in enumerate(zip(parts, rnn.unpack_sequence(out), strict=True)):
        alone, end = net(one)
        close(mine, alone)
        for a, b in zip(last, end, strict=True) if cls is nn.LSTM else [(last, end)]:
            close(a[:, i], b)
    out.data.sum().backward()
    assert all(p.grad is not None for p in net.parameters())


def test_weight_norm():
    for norm in (parametrizations.weight_norm, nn.utils.weight_norm):
        net = nn.Linear(4, 3)
        before = net.weight.detach().clone()
        norm(net)
        x = plait.randn(2, 4)
        close(net(x), nn.functional.linear(x, before, net.bias))
        net(x).sum().backward()
        assert len(list(net.parameters())) == 3
        assert all(p.grad is not None for p in net.parameters())
    nn.utils.remove_weight_norm(net)
    assert sorted(n for n, _ in net.named_parameters()) == ["bias", "weight"]
    close(net.weight, before)
    with pytest.raises(ValueError, match="has none"):
        nn.utils.remove_weight_norm(net)


@pytest.mark.parametrize("norm", [parametrizations.spectral_norm, nn.utils.spectral_norm])
@pytest.mark.parametrize("steps", [0, 1 << 31])
def test_wrong_numbers_of_power_iterations(norm, steps):
    with pytest.raises(ValueError, match="spectral_norm: n_power_iterations must lie between 1 and 10000, got"):
        norm(nn.Linear(3, 2), n_power_iterations=steps)


def test_spectral_norm():
    net = parametrizations.spectral_norm(nn.Linear(6, 4), n_power_iterations=30)
    net(plait.randn(2, 6)).sum().backward()
    assert abs(np.linalg.norm(net.weight.detach().numpy(), 2) - 1) < 1e-3
    assert net.parametrizations.weight.original.grad is not None
    old = nn.utils.spectral_norm(nn.Conv2d(2, 3, 2), n_power_iterations=30)
    old(plait.randn(1, 2, 4, 4)).sum().backward()
    assert abs(np.linalg.norm(old.weight.detach().numpy().reshape(3, -1), 2) - 1) < 1e-3
    assert old.weight_orig.grad is not None
    nn.utils.remove_spectral_norm(old)
    assert isinstance(old.weight, nn.Parameter)


@pytest.mark.parametrize("map_", ["cayley", "matrix_exp", "householder", None])
@pytest.mark.parametrize(("n", "k"), [(4, 4), (5, 3), (3, 5)])
def test_orthogonal(n, k, map_):
    net = parametrizations.orthogonal(nn.Linear(k, n).double(), orthogonal_map=map_)
    w = net.weight.detach().numpy()
    small = min(n, k)
    close(w.T @ w if n >= k else w @ w.T, np.eye(small))
    net(plait.randn(2, k, dtype=plait.float64)).sum().backward()
    original = net.parametrizations.weight.original
    with plait.no_grad():
        original.add_(0.1 * original.grad)
    moved = net.weight.detach().numpy()
    close(moved.T @ moved if n >= k else moved @ moved.T, np.eye(small))
    assert np.abs(moved - w).max() > 1e-4
    net.weight = plait.tensor(w)
    close(net.weight, w)


@pytest.mark.parametrize("dtype", [plait.float64, plait.complex128])
@pytest.mark.parametrize("map_", ["cayley", "matrix_exp"])
@pytest.mark.parametrize(("n", "k"), [(4, 4), (5, 3), (3, 5)])
def test_orthogonal_maps_are_pytorchs(n, k, map_, dtype):
    """The map of A = X - X^H for the lower triangle X is exp(A), or (1 - A/2)^-1 (1 + A/2), after the first weight."""
    net = parametrizations.orthogonal(nn.Linear(k, n, dtype=dtype), orthogonal_map=map_)
    parametrization = net.parametrizations.weight
    x = plait.randn(n, k, dtype=dtype)
    with plait.no_grad():
        parametrization.original.copy_(x)
    tall = np.tril(x.numpy() if n >= k else x.numpy().T)
    whole = np.concatenate([tall, np.zeros((tall.shape[0], tall.shape[0] - tall.shape[1]))], 1)
    a, one = whole - whole.conj().T, np.eye(len(whole))
    values, vectors = np.linalg.eigh(1j * a)
    if map_ == "cayley":
        mapped = np.linalg.solve(one - a / 2, one + a / 2)
    else:
        mapped = vectors @ np.diag(np.exp(-1j * values)) @ vectors.conj().T
    want = (parametrization[0].base.numpy() @ mapped)[:, : tall.shape[1]]
    w = net.weight.detach().numpy()
    close(w if n >= k else w.T, want if dtype.is_complex else want.real)
    close(w.conj().T @ w if n >= k else w @ w.conj().T, np.eye(min(n, k)))


def test_norms_of_complex_weights():
    net = parametrizations.spectral_norm(nn.Linear(6, 4, dtype=plait.cdouble), n_power_iterations=30)
    net(plait.randn(2, 6, dtype=plait.cdouble)).abs().sum().backward()
    assert abs(np.linalg.norm(net.weight.detach().numpy(), 2) - 1) < 1e-3
    assert net.parametrizations.weight.original.grad is not None
    with pytest.raises(ValueError, match="householder is not defined for complex64"):
        parametrizations.orthogonal(nn.Linear(3, 2, dtype=plait.cfloat), orthogonal_map="householder")


class Symmetric(nn.Module):
    def forward(self, x):
        return x.triu() + x.triu(1).transpose(-1, -2)

    def right_inverse(self, x):
        return x.triu()


def test_parametrize():
    net = nn.Linear(3, 3)
    parametrize.register_parametrization(net, "weight", Symmetric())
    assert parametrize.is_parametrized(net)
    assert parametrize.is_parametrized(net, "weight")
    assert not parametrize.is_parametrized(net, "bias")
    assert type(net).__name__ == "ParametrizedLinear"
    assert sorted(n for n, _ in net.named_parameters()) == ["bias", "parametrizations.weight.original"]
    close(net.weight, net.weight.T if hasattr(plait.Tensor, "T") else net.weight.transpose(0, 1))
    net(plait.ones(1, 3)).sum().backward()
    assert net.parametrizations.weight.original.grad is not None
    with parametrize.cached():
        assert net.weight is net.weight
    value = plait.ones(3, 3)
    net.weight = value
    close(net.weight, value)
    other = copy.deepcopy(net)
    close(other.weight, net.weight)
    other.load_state_dict(net.state_dict())
    parametrize.remove_parametrizations(net, "weight")
    assert type(net) is nn.Linear
    assert isinstance(net.weight, nn.Parameter)
    close(net.weight, value)
    with pytest.raises(ValueError, match="no parameter"):
        parametrize.register_parametrization(net, "nothing", Symmetric())
    with pytest.raises(ValueError, match="changes from"):
        parametrize.register_parametrization(net, "weight", nn.Linear(3, 2))


def test_fusion():
    conv, bn = nn.Conv2d(2, 3, 2), nn.BatchNorm2d(3)
    bn(plait.randn(8, 3, 4, 4))
    nn.init.uniform_(bn.weight)
    both = nn.Sequential(conv, bn).eval()
    x = plait.randn(2, 2, 5, 5)
    close(nn.utils.fuse_conv_bn_eval(conv, bn)(x), both(x))
    linear, bn = nn.Linear(4, 3, bias=False).eval(), nn.BatchNorm1d(3)
    bn(plait.randn(8, 3))
    both = nn.Sequential(linear, bn).eval()
    linear.bias = nn.Parameter(plait.zeros(3))
    x = plait.randn(2, 4)
    close(nn.utils.fuse_linear_bn_eval(linear, bn)(x), both(x))
    with pytest.raises(ValueError, match="evaluation"):
        nn.utils.fuse_conv_bn_eval(conv.train(), bn)


def test_functional_call():
    net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    weight = plait.zeros(2, 2).requires_grad_()
    before = net[0].weight
    out = functional_call(net.eval(), {"0.weight": weight}, plait.ones(1, 2))
    close(out, net[1](net[0].bias.reshape(1, 2)))
    assert net[0].weight is before
    out.sum().backward()
    assert weight.grad is not None
    assert before.grad is None
    with pytest.raises(RuntimeError, match="missing"):
        functional_call(net, {"0.weight": weight}, plait.ones(1, 2), strict=True)
    with pytest.raises(ValueError, match="twice"):
        functional_call(net, [{"0.weight": weight}, {"0.weight": weight}], plait.ones(1, 2))
