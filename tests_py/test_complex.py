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
            real = convert()
        assert real.tolist() == [1, 0]
        real.add_(1)  # a copy
        assert z.tolist() == [1 + 2j, 0]
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
            lambda z: nn.utils.spectral_norm(nn.Linear(2, 2, dtype=plait.cfloat)),
            "spectral_norm: not defined for complex64",
        ),
        (lambda z: z < z, "lt: not defined for complex64"),
        (lambda z: z.max(), "amax: not defined for complex64"),
        (plait.sort, "sort: not defined for complex64"),
        (plait.floor, "floor: not defined for complex64"),
        (lambda z: z.clamp(0, 1), "not defined for complex64"),
        (lambda z: plait.ones(2).clamp(1j), "not defined for complex64"),
        (plait.sign, "sign: not defined for complex64"),
        (F.relu, "relu: not defined for complex64"),
        (lambda z: F.mse_loss(z, z), "mse_loss: not defined for complex64"),
        (lambda z: plait.ones(2).mul_(1j), "a result of complex64 can't be cast to float32"),
        (lambda z: plait.ones(2).fill_(1j), "a tensor of float32 cannot hold the complex number"),
        (lambda z: plait.tensor([1j], dtype=plait.float32), "float32 cannot hold complex numbers"),
        (lambda z: plait.arange(2j), "want a real one"),
        (lambda z: float(z[0]), "not 'complex'"),
    ],
)
def test_what_is_not_defined(call, message):
    with pytest.raises(TypeError, match=message):
        call(plait.tensor([1 + 2j, 3]))


Z, W = [1 + 2j, -0.5 + 1j, 0.25 - 0.75j], [0.5 - 1j, 2 + 0.5j, -1 + 1j]


def doubles(values, **options):
    return plait.tensor(values, dtype=plait.cdouble, **options)


# What PyTorch 2.15 computes of Z and W, and the gradient of Z of the real part of the results' sum, of which each is
# weighed by its number from 1 on.
@pytest.mark.parametrize(
    ("call", "values", "gradient"),
    [
        (
            lambda z, w: plait.sinc(z),
            [-34.0903387 - 17.0451693j, 1.47593333 + 2.95186666j, 1.89126459 + 0.96696534j],
            [-39.9132168 - 96.871603j, 14.935743 + 4.51600483j, -7.58018115 - 10.0166853j],
        ),
        (
            lambda z, w: F.tanhshrink(z),
            [-0.166736257 + 2.2434582j, 0.542830728 + 0.193122588j, -0.184839221 + 0.0823812131j],
            [1.3020016 + 0.568103021j, 0.872889539 + 3.36574624j, -1.51132001 + 2.17171199j],
        ),
        (
            lambda z, w: F.softsign(z),
            [0.309016994 + 0.618033989j, -0.236067977 + 0.472135955j, 0.13962039 - 0.41886117j],
            [0.266311896 - 0.0854101966j, 0.844582472 + 0.199378876j, 1.60147071 + 0.221921916j],
        ),
        (
            plait.logaddexp,
            [0.104993014 + 1.78895915j, 2.07023331 + 0.536692768j, 0.239872267 - 0.461216429j],
            [2.39305447 - 0.512666031j, 0.136902294 - 0.0683929087j, 2.90504607 + 0.863055819j],
        ),
        (
            lambda z, w: plait.logcumsumexp(4 * z, 0),
            [4 + 8j, 3.99838023 + 8.00187897j, 3.9999356 + 8.05168885j],
            [23.9976994 + 0.63508603j, -0.0312093092 - 0.0385431803j, 0.0335099191 - 0.59654285j],
        ),
        (
            lambda z, w: plait.renorm(plait.stack([z, w]), 2, 0, 1.5),
            [
                0.572077532 + 1.14415506j,
                -0.286038766 + 0.572077532j,
                0.143019383 - 0.429058149j,
                0.273861269 - 0.547722538j,
                1.09544508 + 0.273861269j,
                -0.547722538 + 0.547722538j,
            ],
            [0.509669076 - 0.124816911j, 1.17535929 - 0.0624084556j, 1.70063048 + 0.0468063417j],
        ),
        (
            lambda z, w: F.rms_norm(z, (3,), w),
            [0.529165752 - 1.86373394j, 0.987114304 + 1.48865639j, 0.851326725 - 0.161080486j],
            [-1.12336248 - 1.64508539j, 0.555248768 + 2.29493927j, 2.27978195 - 2.43503052j],
        ),
        (
            lambda z, w: plait.addcmul(z, z, w, value=1 - 2j),
            [3.5 - 3j, 1.5 + 5.75j, 2.75 - 0.75j],
            [-0.5 + 2j, 8 + 7j, 6 - 9j],
        ),
        (
            lambda z, w: plait.addcdiv(z, z, w, value=1 - 2j),
            [3 + 6j, 0.441176471 + 1.76470588j, 0.25 + 0.5j],
            [3, 2.47058824 + 2.11764706j, -1.5 - 1.5j],
        ),
        (
            lambda z, w: plait.addr(plait.ones(3, 3).double(), z, w, beta=0.5j, alpha=2 - 1j),
            [
                5 - 2j,
                6.5 + 8.5j,
                -7 + 1.5j,
                2.5 + 1.75j,
                -1.25 + 5.5j,
                -2.5 - 2j,
                -1.875 - 0.125j,
                0.375 - 3.125j,
                2 + 2j,
            ],
            [6 - 4.5j, 16.5 - 3j, 27 - 1.5j],
        ),
        (
            lambda z, w: plait.linalg.vander(z),
            [1, 1 + 2j, -3 + 4j, 1, -0.5 + 1j, -0.75 - 1j, 1, 0.25 - 0.75j, -0.5 - 0.375j],
            [8 - 12j, -1 - 12j, 12.5 + 13.5j],
        ),
        (
            lambda z, w: F.triplet_margin_loss(z[None], w[None], (z * w)[None], margin=9.0),
            [10.2066784],
            [-0.267194669 - 0.0913101403j, -0.364866023 - 0.267194891j, -0.101040484 + 0.746199037j],
        ),
        (
            F.poisson_nll_loss,
            [-0.454662455 - 0.214378956j],
            [-0.543734795 - 1.15724222j, -0.557430029 - 0.00345931718j, 0.646502368 + 0.625080498j],
        ),
        (
            lambda z, w: F.gaussian_nll_loss(z, w, plait.tensor([1.0, 2, 3]).double()),
            [-0.743040085 + 0.0486111111j],
            [0.166666667 - 1j, -0.416666667 - 0.0833333333j, 0.138888889 + 0.194444444j],
        ),
        (
            lambda z, w: F.adaptive_avg_pool1d(plait.stack([z, w]), 1),
            [0.25 + 0.75j, 0.5 + 0.166666667j],
            [0.333333333, 0.333333333, 0.333333333],
        ),
    ],
)
def test_functions_are_pytorchs(call, values, gradient):
    z, w = doubles(Z, requires_grad=True), doubles(W)
    y = call(z, w).flatten()
    np.testing.assert_allclose(y.detach().numpy(), values, 1e-8, 1e-8)
    (y * plait.arange(1, len(y) + 1)).real.sum().backward()
    np.testing.assert_allclose(z.grad.numpy(), gradient, 1e-8, 1e-8)


def test_results_without_gradients_are_pytorchs():
    z, w, i = doubles(Z), doubles(W), plait.tensor([0, 2, 0])
    silu = [0.214537952009 + 2.44626943443j, -0.424145178224 + 0.217664478074j, -0.002070356325 - 0.477055619581j]
    for got, want in (
        (F.silu(z), silu),
        (z.scatter(0, i, w, reduce="multiply"), [-2.5 + 2.5j, -0.5 + 1j, 0.875 - 1.375j]),
        (z.scatter(0, i, 2j, reduce="add"), [1 + 6j, -0.5 + 1j, 0.25 + 1.25j]),
        (z.scatter_reduce(0, i, w, "mean", include_self=False), [-0.25, -0.5 + 1j, 2 + 0.5j]),
        (z.index_fill(0, plait.tensor([1]), plait.tensor(1.5)), [1 + 2j, 1.5, 0.25 - 0.75j]),
        (z.clone().addmv_(plait.outer(w, w), z, alpha=1j, beta=0), 1j * np.outer(W, W) @ Z),
        (plait.linspace(1j, 2, 3), [1j, 1 + 0.5j, 2]),
        (
            plait.logspace(0, 1 + 1j, 3, base=2, dtype=plait.cdouble),
            [1, 1.330127400426 + 0.480375997148j, 1.538477802728 + 1.277922552627j],
        ),
        (plait.logspace(0, 1, 3, base=-2, dtype=plait.cdouble), [1, 1.414213562373j, -2]),
        (plait.float_power(2j, plait.tensor(2)), -4),
    ):
        np.testing.assert_allclose(got.numpy(), want, 1e-6, 1e-9)
    assert plait.linspace(1j, 2, 3).dtype is plait.complex64


def test_jacobians_are_pytorchs():
    jacobian, z = plait.autograd.functional.jacobian, doubles(Z[:2])
    sizes = [[0.4472135955 + 0.894427191j, 0], [0, -0.4472135955 + 0.894427191j]]
    np.testing.assert_allclose(jacobian(plait.abs, z).numpy(), sizes, 1e-8)
    rows = jacobian(lambda x: x * x.conj() * x, z, vectorize=True)
    np.testing.assert_allclose(rows.numpy(), [[7 + 4j, 0], [0, 1.75 - 1j]], 1e-8)
    columns = jacobian(plait.square, z, strategy="forward-mode", vectorize=True)
    np.testing.assert_allclose(columns.numpy(), [[2 + 4j, 0], [0, -1 + 2j]], 1e-8)
    with pytest.raises(TypeError, match=r"got an output of plait\.complex128, want a real one"):
        jacobian(plait.square, z)
    with pytest.raises(TypeError, match="not defined for complex numbers"):
        plait.func.jacrev(plait.square)(z)


def test_lbfgs_is_pytorchs():
    z, w = doubles(Z, requires_grad=True), doubles(W)
    optimizer = plait.optim.LBFGS([z], lr=0.5, max_iter=5, line_search_fn="strong_wolfe")

    def loss():
        optimizer.zero_grad()
        value = ((z * z - w).abs() ** 2).sum()
        value.backward()
        return value

    assert abs(optimizer.step(loss).item() - 49.203125) < 1e-9
    want = [0.193809217642 + 0.699981891948j, -0.916184387336 + 0.033708784226j, -0.285222636771 - 0.940241867144j]
    np.testing.assert_allclose(z.detach().numpy(), want, 1e-8)
    before, saved = z.detach().clone(), optimizer.state_dict()
    optimizer.step(loss)
    after = z.detach().clone()
    z.data.copy_(before)
    optimizer = plait.optim.LBFGS([z], lr=0.5, max_iter=5, line_search_fn="strong_wolfe")
    optimizer.load_state_dict(saved)
    optimizer.step(loss)
    assert z.tolist() == after.tolist()


def test_complex_factors_want_complex_tensors():
    x = plait.ones(2, 2)
    for call in (
        lambda: plait.addmm(x, x, x, alpha=1j),
        lambda: x.addmm_(x, x, beta=1j),
        lambda: plait.addcmul(x, x, x, value=1j),
        lambda: plait.add(x, x, alpha=1j),
        lambda: x.index_add_(0, plait.tensor([0]), x[:1], alpha=1j),
    ):
        with pytest.raises(TypeError, match=r"want a real number for tensors of plait\.float32, got 1j"):
            call()
    z = plait.full((2, 2), float("nan"), dtype=plait.cfloat)
    assert plait.addmm(z, x + 0j, x + 0j, beta=0j, alpha=1j).tolist() == [[2j] * 2] * 2
