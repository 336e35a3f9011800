"""Linear algebra of complex matrices, beside NumPy's."""

import gpus
import numpy as np
import plait
import pytest
from plait import linalg


def numbers(*shape, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal(shape) + 1j * rng.standard_normal(shape)


def same(got, want, tolerance=1e-10):
    np.testing.assert_allclose(got.numpy(), want, tolerance, tolerance)


@pytest.mark.parametrize("n", [1, 2, 3, 9, 20])
def test_values_are_numpys(n):
    a, b = numbers(2, n, n), numbers(2, n, 3, seed=1)
    x, y = plait.tensor(a), plait.tensor(b)
    same(linalg.inv(x), np.linalg.inv(a))
    same(linalg.solve(x, y), np.linalg.solve(a, b))
    same(linalg.solve(x, y.mT, left=False), np.linalg.solve(a.swapaxes(1, 2), b).swapaxes(1, 2))
    same(linalg.det(x), np.linalg.det(a))
    sign, size = linalg.slogdet(x)
    assert size.dtype is plait.float64
    same(sign * size.exp(), np.linalg.det(a))
    same(plait.logdet(x), np.log(np.linalg.det(a)))
    same(linalg.svdvals(x), np.linalg.svd(a, compute_uv=False))
    same(linalg.pinv(x), np.linalg.pinv(a))
    same(linalg.matrix_norm(x, 2), np.linalg.norm(a, 2, (-2, -1)))
    same(linalg.cond(x), np.linalg.cond(a), 1e-8)
    h = a @ a.conj().swapaxes(1, 2) + np.eye(n)
    low = linalg.cholesky(plait.tensor(h))
    same(low, np.linalg.cholesky(h))
    same(linalg.cholesky(plait.tensor(h), upper=True), np.linalg.cholesky(h).conj().swapaxes(1, 2))
    same(plait.cholesky_solve(y, low), np.linalg.solve(h, b))
    same(plait.cholesky_solve(y, low.mH, True), np.linalg.solve(h, b))
    same(plait.cholesky_inverse(low), np.linalg.inv(h))
    same(linalg.eigvalsh(plait.tensor(h)), np.linalg.eigvalsh(h))
    factors = linalg.lu_factor(x)
    same(linalg.lu_solve(*factors, y), np.linalg.solve(a, b))
    same(linalg.lu_solve(*factors, y, adjoint=True), np.linalg.solve(a.conj().swapaxes(1, 2), b))
    row = b.swapaxes(1, 2)
    same(linalg.lu_solve(*factors, plait.tensor(row), left=False) @ x, row)
    same(linalg.lu_solve(*factors, plait.tensor(row), left=False, adjoint=True) @ x.mH, row)


@pytest.mark.parametrize("shape", [(4, 4), (2, 12, 5), (3, 5, 9), (0, 2, 2), (3, 0)])
def test_factors_make_the_matrix(shape):
    x = plait.tensor(numbers(*shape))
    p, low, up = linalg.lu(x)
    same(p @ low @ up, x.numpy())
    for full in (False, True):
        u, s, vh = linalg.svd(x, full)
        k = s.shape[-1]
        assert s.dtype is plait.float64
        same((u[..., :k] * s[..., None, :]) @ vh[..., :k, :], x.numpy())
        same(u.mH @ u, np.broadcast_to(np.eye(u.shape[-1]), u.mH.shape[:-1] + u.shape[-1:]))
        same(vh @ vh.mH, np.broadcast_to(np.eye(vh.shape[-2]), vh.shape[:-1] + vh.shape[-2:-1]))
    for mode in ("reduced", "complete"):
        q, r = linalg.qr(x, mode)
        same(q @ r, x.numpy())
        same(q.mH @ q, np.broadcast_to(np.eye(q.shape[-1]), q.mH.shape[:-1] + q.shape[-1:]))
        same(r.tril(-1).abs().sum(), 0)
    u, s, v = plait.svd(x)
    same((u * s[..., None, :]) @ v.mH, x.numpy())


@pytest.mark.parametrize("triangle", ["L", "U"])
def test_one_triangle_of_a_hermitian_matrix_is_read(triangle):
    a = numbers(5, 5)
    half = np.tril(a, -1) if triangle == "L" else np.triu(a, 1)
    want = half + half.conj().T + np.diag(a.diagonal().real)
    values, vectors = linalg.eigh(plait.tensor(a), triangle)
    same(values, np.linalg.eigvalsh(want))
    same((vectors * values) @ vectors.mH, want)


@pytest.mark.parametrize("dtype", [plait.float32, plait.float64, plait.complex64, plait.complex128])
@pytest.mark.parametrize("n", [1, 2, 6, 17])
def test_eigenvalues(n, dtype):
    a = (
        plait.tensor(numbers(3, n, n)).to(dtype)
        if dtype.is_complex
        else plait.tensor(numbers(3, n, n).real, dtype=dtype)
    )
    values, vectors = linalg.eig(a)
    assert (
        values.dtype
        is vectors.dtype
        is (plait.complex128 if dtype in (plait.float64, plait.complex128) else plait.complex64)
    )
    tolerance = 1e-10 if values.dtype is plait.complex128 else 1e-4
    same(a.to(values.dtype) @ vectors, (vectors * values[..., None, :]).numpy(), tolerance)
    same((vectors.abs() ** 2).sum(-2), np.ones((3, n)), tolerance)
    want = np.linalg.eigvals(a.numpy())
    got = linalg.eigvals(a).numpy()
    assert np.allclose(np.abs(got[..., None] - want[:, None]).min(-1), 0, atol=10 * tolerance)


def projection(v):
    return v[:, :1] @ v[:, :1].mH


def first_part(x):
    u, s, vh = linalg.svd(x)
    return (u[:, :1] @ vh[:1]) * s[0]


def hermitian(x):
    return (x + x.mH) / 2


@pytest.mark.parametrize(
    "function",
    [
        lambda x: linalg.cholesky(x @ x.mH),
        lambda x: linalg.cholesky(x @ x.mH, upper=True),
        lambda x: linalg.eigvalsh(hermitian(x)),
        lambda x: linalg.eigh(hermitian(x))[1].abs(),
        lambda x: projection(linalg.eigh(hermitian(x))[1]),
        lambda x: projection(linalg.svd(x[:, :2], False)[0]),
        lambda x: projection(linalg.svd(x[:2], False)[2].mH),
        first_part,
        linalg.eigvals,
        lambda x: linalg.eig(x)[1].abs(),
        lambda x: linalg.eigvals(x.real),
        linalg.slogdet,
        plait.logdet,
        lambda x: linalg.qr(x[:, :2]),
        lambda x: plait.cholesky_solve(x, linalg.cholesky(x @ x.mH)),
        lambda x: linalg.lu_solve(*linalg.lu_factor(x), x, left=False, adjoint=True),
        lambda x: linalg.householder_product(x, x[0]),
        lambda x: linalg.matrix_power(x, -2),
    ],
)
def test_gradients_agree_with_differences(function):
    x = plait.tensor(numbers(3, 3, seed=4) + np.diag([3, -2, 1j]), requires_grad=True)
    assert plait.autograd.gradcheck(function, (x,))


def test_what_is_no_inverse_or_has_no_factor():
    one = plait.ones(2, 2, dtype=plait.complex64)
    with pytest.raises(linalg.LinAlgError, match="singular"):
        linalg.inv(one)
    with pytest.raises(linalg.LinAlgError, match="not positive definite"):
        linalg.cholesky(-one)
    for function in (linalg.eig, linalg.svd, linalg.eigh):
        with pytest.raises(linalg.LinAlgError, match="convergence"):
            function(one * float("nan"))
    sign, size = linalg.slogdet(one)
    assert sign.item() == 0 and size.item() == -float("inf")
    infos = linalg.inv_ex(plait.stack([one, plait.eye(2) * 1j]))[1]
    assert infos.tolist() == [2, 0]


def test_sums_of_exponentials_losses_and_covariances():
    a, b = numbers(3, 5), numbers(3, 5, seed=1)
    x, y = plait.tensor(a, requires_grad=True), plait.tensor(b, requires_grad=True)
    same(plait.logsumexp(x.detach(), 1), np.log(np.exp(a).sum(1)))
    assert plait.logsumexp(x.detach() + 1000, (0, 1), True).shape == (1, 1)
    same(plait.logsumexp(x.detach() + 1000, 1), np.log(np.exp(a).sum(1)) + 1000)
    same(plait.nn.functional.l1_loss(x.detach(), y.detach()), np.abs(a - b).mean())
    same(plait.cov(x.detach()), np.cov(a))
    same(plait.corrcoef(x.detach()), np.corrcoef(a))
    z = x.detach().clone()
    same(z.tril_(1), np.tril(a, 1))
    assert plait.autograd.gradcheck(plait.nn.functional.l1_loss, (x, y))
    assert plait.autograd.gradcheck(lambda x: plait.logsumexp(x, 1), (x,))
    assert plait.autograd.gradcheck(plait.cov, (x,))
    assert plait.autograd.gradcheck(lambda x: (x * 1).triu_(1), (x,))


@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (2, 4, 3)])
def test_least_squares_are_numpys(shape):
    rng = np.random.default_rng(3)
    a, b = (rng.standard_normal(s) + 1j * rng.standard_normal(s) for s in (shape, (*shape[:-1], 2)))
    want = np.linalg.pinv(a) @ b
    for driver in ("gelsy", "gelsd", "gels"):
        found = plait.linalg.lstsq(plait.tensor(a), plait.tensor(b), driver=driver)
        np.testing.assert_allclose(found.solution.numpy(), want, 1e-10, 1e-12)
        if driver != "gels":
            assert set(found.rank.flatten().tolist()) == {3}
        if driver == "gelsd":
            np.testing.assert_allclose(found.singular_values.numpy(), np.linalg.svd(a, compute_uv=False), 1e-10)
        if driver != "gelsy" and shape[-2] > shape[-1]:
            assert found.residuals.dtype is plait.float64
            np.testing.assert_allclose(found.residuals.numpy(), (np.abs(a @ want - b) ** 2).sum(-2), 1e-10)
    for driver in ("gelsy", "gelsd"):
        low = plait.linalg.lstsq(plait.ones(4, 2) + 0j, plait.full((4, 1), 2j), driver=driver)
        np.testing.assert_allclose(low.solution.numpy(), [[1j], [1j]], 1e-6)
        assert low.rank.item() == 1
    with pytest.raises(linalg.LinAlgError, match="full rank"):
        linalg.lstsq(plait.ones(4, 2) + 0j, plait.full((4, 1), 2j), driver="gels")


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (2, 0, 4)])
@pytest.mark.parametrize("driver", ["gelsy", "gelsd", "gels"])
@pytest.mark.parametrize("dtype", [plait.float64, plait.complex128])
def test_least_squares_of_nothing_are_zero(shape, driver, dtype):
    found = linalg.lstsq(plait.zeros(shape, dtype=dtype), plait.ones(*shape[:-1], 2, dtype=dtype), driver=driver)
    assert found.solution.shape == (*shape[:-2], shape[-1], 2) and not found.solution.any()


def test_gradients_of_least_squares_of_full_rank():
    for shape in ((5, 3), (3, 5)):
        a, b = (plait.randn(s, dtype=plait.complex128, requires_grad=True) for s in (shape, (shape[0], 2)))
        made = [
            plait.autograd.grad(linalg.lstsq(a, b, driver=driver).solution.sum().abs(), (a, b))
            for driver in ("gels", "gelsy", "gelsd")
        ]
        for other in made[1:]:
            for x, y in zip(made[0], other, strict=True):
                np.testing.assert_allclose(x.numpy(), y.numpy(), 1e-8, 1e-10)


def test_bincount_refuses_complex_weights():
    with pytest.raises(TypeError, match="bincount: not defined for complex64"):
        plait.bincount(plait.tensor([1]), plait.ones(1, dtype=plait.complex64))


def test_matrices_on_a_gpu():
    """GPUs have no kernels for complex matrices, nor for some real ones: the host does that work."""
    gpus.run("""
    from plait import linalg as la
    plait.manual_seed(1)
    x, b = plait.randn(2, 4, 4, dtype=plait.complex64), plait.randn(2, 4, 2, dtype=plait.complex64)
    h, real = x @ x.mH + plait.eye(4), plait.randn(2, 4, 4)
    sizes = lambda v: v.abs().sort(-1)[0]
    for name, f, *args in [
        ("inv", la.inv, x), ("solve", la.solve, x, b), ("slogdet", lambda x: la.slogdet(x)[1], x), ("det", la.det, x),
        ("cholesky", la.cholesky, h), ("lu", lambda x: la.lu_factor(x).LU, x), ("qr", lambda x: la.qr(x)[1], x),
        ("eigh", la.eigvalsh, h), ("svd", la.svdvals, x), ("pinv", la.pinv, x), ("empty", la.inv, x[:0]),
        ("eig", lambda x: sizes(la.eigvals(x)), x), ("real eig", lambda x: sizes(la.eigvals(x)), real),
        ("lstsq", lambda x, b: la.lstsq(x, b).solution, x, b), ("ormqr", plait.ormqr, x, x[:, 0], b),
        ("triangular", lambda x, b: la.solve_triangular(x, b, upper=True), x, b),
        ("geqrf", lambda x: plait.geqrf(x.detach())[0], x), ("real geqrf", lambda x: plait.geqrf(x.detach())[1], real),
        ("ldl", lambda x: la.ldl_factor(x.detach()).LD, x),
        ("hermitian ldl", lambda h: la.ldl_factor(h.detach(), hermitian=True).LD, h),
    ]:
        made = []
        for device in ("cpu", "cuda"):
            leaves = [a.clone().to(device).requires_grad_() for a in args]
            out = f(*leaves)
            assert out.device.type == device, name
            if out.requires_grad and out.numel():
                out.abs().sum().backward()
            made.append([out.detach().cpu(), *(a.grad.cpu() for a in leaves if a.grad is not None)])
        for want, got in zip(*made, strict=True):
            assert plait.allclose(want, got, 1e-3, 1e-3), (name, want, got)
    for call in (lambda x: la.inv(x), lambda x: la.cholesky(x)):
        try:
            call(plait.zeros(2, 2, dtype=plait.complex64, device="cuda"))
        except la.LinAlgError as error:
            assert "matrix 0" in str(error)
        else:
            raise AssertionError("no error")
    """)


def test_recurrent_layers_are_their_cells():
    """What the layers make of complex sequences is what their cells make of one step after the other."""
    rng = np.random.default_rng(5)
    x = plait.tensor(rng.standard_normal((4, 2, 3)) + 1j * rng.standard_normal((4, 2, 3)))
    for layer, cell in ((plait.nn.LSTM, plait.nn.LSTMCell), (plait.nn.GRU, plait.nn.GRUCell)):
        plait.manual_seed(1)
        whole, single = layer(3, 5, dtype=plait.cdouble, bidirectional=True), cell(3, 5, dtype=plait.cdouble)
        for suffix, steps in (("", range(4)), ("_reverse", reversed(range(4)))):
            for name, p in single.named_parameters():
                p.data.copy_(getattr(whole, name + "_l0" + suffix))
            state, y = None, whole(x)[0]
            for t in steps:
                state = single(x[t], state)
                h = state[0] if layer is plait.nn.LSTM else state
                part = y[t, :, 5:] if suffix else y[t, :, :5]
                np.testing.assert_allclose(part.detach().numpy(), h.detach().numpy(), 1e-10, 1e-12)


def test_exponentials_have_the_precision_of_the_parts():
    """A skew-Hermitian matrix has a unitary exponential, whose eigenvalues are those of the exponents."""
    a = numbers(6, 6)
    a = a - a.conj().T
    values, vectors = np.linalg.eigh(1j * a)
    want = vectors @ np.diag(np.exp(-1j * values)) @ vectors.conj().T
    same(linalg.matrix_exp(plait.tensor(a)), want, 2e-14)
    same(linalg.matrix_exp(plait.tensor(a).to(plait.complex64)), want, 1e-5)
