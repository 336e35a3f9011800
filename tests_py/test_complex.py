"""Complex numbers, as a program meets them."""

import io
import pickle

import numpy as np
import plait
import pytest
from plait import nn
from plait.nn import functional as F


def numbers(*shape, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal(shape) + 1j * rng.standard_normal(shape)


def test_making_and_reading():
    z = plait.tensor([1 + 2j, 3])
    assert z.dtype is plait.complex64 is plait.cfloat and z.is_complex() and not z.is_floating_point()
    assert z.tolist() == [1 + 2j, 3] and z[0].item() == 1 + 2j and complex(z[0]) == 1 + 2j
    assert plait.tensor(np.array([1j])).dtype is plait.complex128 is plait.cdouble
    assert plait.tensor([np.complex128(1j)]).dtype is plait.tensor([[2j, np.complex128(1)]]).dtype is plait.complex128
    assert (
        plait.tensor([np.float64(1)]).dtype is plait.float64
        and plait.tensor([np.complex64(1)]).dtype is plait.complex64
    )
    assert plait.full((2,), 1j).tolist() == [1j, 1j] and plait.ones(2, dtype=plait.cfloat).tolist() == [1, 1]
    assert plait.eye(2, dtype=plait.cfloat).tolist() == [[1, 0], [0, 1]]
    assert plait.complex(plait.ones(2), plait.zeros(2)).tolist() == [1, 1]
    np.testing.assert_allclose(plait.polar(plait.tensor([2.0]), plait.tensor([1.0])).numpy(), [2 * np.exp(1j)], 1e-6)
    out = plait.empty(2, dtype=plait.cfloat)
    assert plait.complex(plait.ones(2), plait.ones(2), out=out) is out and out.tolist() == [1 + 1j] * 2
    plait.set_default_dtype(plait.float64)
    try:
        assert plait.tensor(1j).dtype is (plait.ones(1) * 1j).dtype is plait.complex128
    finally:
        plait.set_default_dtype(plait.float32)


def test_promotion():
    one = plait.ones(1)
    assert (one * 1j).dtype is plait.complex64 and (one.double() * 1j).dtype is plait.complex128
    assert (one.half() * 1j).dtype is (plait.arange(2) * 1j).dtype is plait.complex64
    assert (one.double() + plait.tensor(1j)).dtype is plait.complex128
    assert plait.promote_types(plait.float64, plait.complex64) is plait.complex128
    assert plait.result_type(one, 1j) is plait.complex64
    assert plait.can_cast(plait.float64, plait.complex64) and not plait.can_cast(plait.complex64, plait.float64)


def test_a_real_dtype_keeps_the_real_parts_and_says_so():
    z = plait.tensor([1 + 2j, 0])
    for convert in (lambda: z.to(plait.float32), z.float):
        with pytest.warns(UserWarning, match="only the real parts"):
            assert convert().tolist() == [1, 0]
    assert z.bool().tolist() == [True, False]


def test_printing():
    assert repr(plait.tensor([1 + 2j, 3 - 1j])) == "tensor([1.+2.j, 3.-1.j])"
    assert repr(plait.tensor([0.5 - 12.25j])) == "tensor([0.5000-12.2500j])"
    assert repr(plait.tensor([1j], dtype=plait.cdouble)) == "tensor([0.+1.j], dtype=plait.complex128)"


def test_parts_are_views():
    z = plait.tensor([1 + 2j, 3 - 1j])
    z.real += 1
    z.imag = plait.tensor([5.0, 6.0])
    plait.view_as_real(z)[1, 0] = -4
    assert z.tolist() == [2 + 5j, -4 + 6j]
    x = plait.zeros(2, 2)
    plait.view_as_complex(x)[1] = 3j
    assert x.tolist() == [[0, 0], [0, 3]]
    assert z.real.real is not None and plait.real(x) is x and plait.isreal(z).tolist() == [False, False]
    with pytest.raises(TypeError, match="imag: got float32, want a complex dtype"):
        plait.imag(x)
    with pytest.raises(ValueError, match="stride 1"):
        plait.view_as_complex(plait.ones(2, 3).T)


@pytest.mark.parametrize("dtype", [plait.complex64, plait.complex128])
def test_products(dtype):
    a, b = numbers(2, 3, 4), numbers(4, 5, seed=1)
    x, y = plait.tensor(a, dtype=dtype), plait.tensor(b, dtype=dtype)
    for got, want in [
        (x @ y, a @ b),
        (x[0] @ y[:, 0], a[0] @ b[:, 0]),
        (x.mH @ x, np.conj(np.swapaxes(a, 1, 2)) @ a),
        (plait.vdot(x[0, 0], y[:, 1]), np.vdot(a[0, 0], b[:, 1])),
        (plait.einsum("bij,jk->bk", x, y), np.einsum("bij,jk->bk", a, b)),
        (plait.addmm(x[0] @ y, x[0], y, beta=2, alpha=3), 5 * a[0] @ b),
        (F.linear(x, y.T), a @ b),
        (plait.linalg.vecdot(x[0], x[1]), (a[0].conj() * a[1]).sum(-1)),
    ]:
        np.testing.assert_allclose(got.numpy(), want, 1e-5, 1e-5)


def test_gradients_are_pytorchs():
    """The gradient of a real loss is its derivative by the real part plus i times that by the imaginary one."""
    z = plait.tensor([1 + 2j, -0.5 + 1j], requires_grad=True)
    (z.abs() ** 2).sum().backward()
    np.testing.assert_allclose(z.grad.numpy(), 2 * z.detach().numpy(), 1e-6)
    z.grad = None
    (z * z).real.sum().backward()
    np.testing.assert_allclose(z.grad.numpy(), 2 * np.conj(z.detach().numpy()), 1e-6)
    with pytest.raises(TypeError, match="only real outputs have an implicit one"):
        z.sum().backward()
    x = plait.randn(3, dtype=plait.cdouble, requires_grad=True)
    assert plait.autograd.gradcheck(lambda a: a.exp() * a.conj() + a.abs(), (x,))


@pytest.mark.parametrize("make", [plait.optim.SGD, plait.optim.Adam, plait.optim.RMSprop, plait.optim.Adagrad])
def test_optimizers_take_parts_as_parameters(make):
    z = plait.tensor([1 + 2j, -0.5 + 1j], requires_grad=True)
    x = plait.view_as_real(z.detach()).clone().requires_grad_()
    for leaf, value in ((z, lambda: z), (x, lambda: plait.view_as_complex(x))):
        optimizer = make([leaf], lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            ((value() - 1j).abs() ** 4).sum().backward()
            optimizer.step()
    np.testing.assert_allclose(plait.view_as_real(z.detach()).numpy(), x.detach().numpy(), 1e-6)


def test_modules():
    m = nn.Linear(3, 2).to(plait.cfloat)
    y = m(plait.randn(4, 3, dtype=plait.cfloat))
    assert y.dtype is m.weight.dtype is plait.complex64


def test_rotary_embedding():
    """Positions as complex numbers, as Llama has them, turn pairs of features."""

    def rotate(x, turns):
        pairs = plait.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
        return plait.view_as_real(pairs * turns).flatten(-2)

    n, d = 5, 8
    angles = plait.outer(plait.arange(n), 1.0 / (100.0 ** (plait.arange(0, d, 2) / d)))
    turns = plait.polar(plait.ones_like(angles), angles)
    x = plait.randn(2, n, d, requires_grad=True)
    y = rotate(x, turns)
    even, odd, c, s = x[..., ::2], x[..., 1::2], angles.cos(), angles.sin()
    want = plait.stack([even * c - odd * s, even * s + odd * c], -1).flatten(-2)
    plait.testing.assert_close(y, want)
    (got,) = plait.autograd.grad((y * y.detach().cos()).sum(), x)
    (wanted,) = plait.autograd.grad((want * want.detach().cos()).sum(), x)
    plait.testing.assert_close(got, wanted)


def test_going_out_and_coming_back(tmp_path):
    z = plait.tensor([[1 + 2j, 3 - 1j]])
    buffer = io.BytesIO()
    plait.save({"z": z, "wide": z.to(plait.cdouble)}, buffer)
    buffer.seek(0)
    loaded = plait.load(buffer)
    assert loaded["z"].equal(z) and loaded["wide"].dtype is plait.complex128
    assert pickle.loads(pickle.dumps(z)).equal(z)
    assert np.from_dlpack(z).tolist() == plait.from_dlpack(z.numpy()).tolist() == z.tolist()
    shared = plait.from_numpy(a := np.zeros(2, np.complex64))
    shared += 1j
    assert a.tolist() == [1j, 1j]
    plait.testing.assert_close(z, z + 1e-9)
    with pytest.raises(AssertionError, match="not close"):
        plait.testing.assert_close(z, z.conj())


def test_lists_of_real_numbers_and_layers_of_complex_dtypes():
    assert plait.tensor([1.5, 2], dtype=plait.cfloat).tolist() == [1.5, 2]
    assert plait.tensor([1, 2], dtype=plait.cdouble).tolist() == [1, 2]
    m = nn.Linear(3, 2, dtype=plait.cfloat)
    assert m.weight.dtype is plait.cfloat and m.weight.imag.abs().max() > 0
    assert nn.ParameterList([nn.Parameter(m.weight), nn.Parameter(plait.ones(1))]).double()[0].dtype is plait.cfloat


def test_powers_of_negative_numbers():
    z = plait.tensor([1 + 1j], requires_grad=True)
    ((-1.5) ** z).abs().sum().backward()
    assert plait.isfinite(z.grad).all()
    x = plait.tensor([1 + 2j], requires_grad=True)
    (y := x * 1).conj_physical_()
    y.abs().sum().backward()
    assert plait.ldexp(plait.tensor([1.0]), plait.tensor([1j])).dtype is plait.cfloat


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda z: plait.ones(2).copy_(z), "a tensor of float32 cannot hold complex numbers"),
        (lambda z: nn.Linear(1, 1).load_state_dict({"weight": z[:1, None], "bias": z[:1]}), "cannot hold complex"),
        (lambda z: plait.func.jacrev(lambda x: x * 1j)(plait.ones(2)), "not defined for complex numbers"),
        (plait.isposinf, "isposinf: not defined for complex64"),
        (plait.isneginf, "isneginf: not defined for complex64"),
        (
            lambda z: nn.utils.parametrizations.spectral_norm(nn.Linear(2, 2, dtype=plait.cfloat)),
            "spectral_norm: not defined for complex64",
        ),
        (lambda z: z < z, "lt: not defined for complex64"),
        (lambda z: z.max(), "amax: not defined for complex64"),
        (plait.sort, "sort: not defined for complex64"),
        (plait.floor, "floor: not defined for complex64"),
        (lambda z: z.clamp(0, 1), "not defined for complex64"),
        (lambda z: plait.ones(2).clamp(1j), "not defined for complex64"),
        (plait.sign, "sign: not defined for complex64"),
        (lambda z: plait.linalg.lstsq(z[None], z[None]), "linalg_lstsq: not defined for complex64"),
        (
            lambda z: nn.utils.parametrizations.orthogonal(nn.Linear(2, 2, dtype=plait.cfloat)),
            "orthogonal: not defined for complex64",
        ),
        (F.relu, "relu: not defined for complex64"),
        (lambda z: F.mse_loss(z, z), "mse_loss: not defined for complex64"),
        (lambda z: plait.ones(2).mul_(1j), "a tensor of float32 cannot hold a result of complex64"),
        (lambda z: plait.ones(2).fill_(1j), "a tensor of float32 cannot hold the complex number"),
        (lambda z: plait.tensor([1j], dtype=plait.float32), "float32 cannot hold complex numbers"),
        (lambda z: plait.arange(2j), "want a real one"),
        (lambda z: float(z[0]), "not 'complex'"),
    ],
)
def test_what_is_not_defined(call, message):
    with pytest.raises(TypeError, match=message):
        call(plait.tensor([1 + 2j, 3]))
