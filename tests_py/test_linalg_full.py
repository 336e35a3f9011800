"""Complete bases, and what functions say of matrices that they cannot take."""

import numpy as np
import plait
import pytest
from plait import linalg

RNG = np.random.default_rng(5)


@pytest.mark.parametrize("shape", [(4, 2), (2, 5, 3), (3, 3), (2, 4), (3, 0)])
def test_complete_qr(shape):
    a = RNG.normal(size=shape)
    q, r = linalg.qr(plait.tensor(a), mode="complete")
    m = shape[-2]
    assert q.shape == (*shape[:-2], m, m) and r.shape == shape
    assert np.allclose(q.numpy() @ r.numpy(), a)
    assert np.allclose(q.numpy().swapaxes(-1, -2) @ q.numpy(), np.eye(m))
    assert np.allclose(np.tril(r.numpy(), -1), 0)


def test_complete_qr_of_dependent_columns():
    a = plait.tensor([[1.0, 2.0], [0.0, 0.0], [0.0, 0.0]], dtype=plait.float64)
    q, r = linalg.qr(a, mode="complete")
    assert np.allclose(q.numpy().T @ q.numpy(), np.eye(3))
    assert np.allclose((q @ r).numpy(), a.numpy())


@pytest.mark.parametrize("shape", [(4, 2), (2, 3, 5), (3, 3)])
def test_full_svd(shape):
    a = RNG.normal(size=shape)
    u, s, v = linalg.svd(plait.tensor(a))
    m, n = shape[-2:]
    assert u.shape[-2:] == (m, m) and v.shape[-2:] == (n, n)
    k = min(m, n)
    assert np.allclose((u.numpy()[..., :k] * s.numpy()[..., None, :]) @ v.numpy()[..., :k, :], a)
    for basis, size in ((u.numpy(), m), (v.numpy(), n)):
        assert np.allclose(basis.swapaxes(-1, -2) @ basis, np.eye(size))


def test_infos():
    a = plait.tensor([[[2.0, 0.0], [0.0, 4.0]], [[1.0, 1.0], [1.0, 1.0]]])
    inverse, info = linalg.inv_ex(a)
    assert info.tolist() == [0, 2] and info.dtype == plait.int32
    assert inverse[0].tolist() == [[0.5, 0.0], [0.0, 0.25]]
    x, info = linalg.solve_ex(a, plait.ones(2, 2, 1))
    assert info.tolist() == [0, 2]
    assert x[0].tolist() == [[0.5], [0.25]]
    with pytest.raises(linalg.LinAlgError, match="singular"):
        linalg.inv_ex(a, check_errors=True)
    assert plait.ones(2).sum().item() == 2, "and nothing is left to raise"


def test_infos_of_cholesky():
    a = plait.tensor([[[4.0, 2.0], [2.0, 5.0]], [[1.0, 2.0], [2.0, 1.0]]])
    factor, info = linalg.cholesky_ex(a)
    assert info.tolist() == [0, 2] and factor[0].tolist() == [[2.0, 0.0], [1.0, 2.0]]
    with pytest.raises(linalg.LinAlgError, match=r"matrix \[1\] is not positive definite; its info is 2"):
        linalg.cholesky_ex(a, check_errors=True)
    with pytest.raises(linalg.LinAlgError, match="matrix 1 is not positive definite"):
        linalg.cholesky(a)
    assert plait.ones(2).sum().item() == 2, "and nothing is left to raise"


@pytest.mark.parametrize("shape", [(4, 4), (2, 5, 3), (3, 6), (2, 0, 0)])
def test_lu(shape):
    a = plait.tensor(RNG.normal(size=shape))
    p, low, up = linalg.lu(a)
    assert np.allclose((p @ low @ up).numpy(), a.numpy())
    assert np.allclose(np.triu(low.numpy(), 1), 0) and np.allclose(np.tril(up.numpy(), -1), 0)
    packed, pivots = plait.lu_unpack(*a.lu())[1:], a.lu()[1]
    assert np.array_equal(packed[0].numpy(), low.numpy()) and np.array_equal(packed[1].numpy(), up.numpy())
    assert pivots.dtype is plait.int32 and pivots.shape == (*shape[:-2], min(shape[-2:]))
    only = plait.lu_unpack(*a.lu(), unpack_data=False)
    assert np.array_equal(only.P.numpy(), p.numpy()) and only.L.numel() == 0


def test_solutions_with_lu():
    a, b = plait.tensor(RNG.normal(size=(2, 4, 4))), plait.tensor(RNG.normal(size=(2, 4, 3)))
    factors = linalg.lu_factor(a)
    for left, adjoint in [(True, False), (True, True), (False, False), (False, True)]:
        right = b if left else b.mT
        x = linalg.lu_solve(*factors, right, left=left, adjoint=adjoint)
        m = a.mT if adjoint else a
        assert np.allclose((m @ x if left else x @ m).numpy(), right.numpy())
    assert np.allclose(plait.lu_solve(b, *factors).numpy(), b.lu_solve(*factors).numpy())
    with pytest.raises(linalg.LinAlgError, match=r"matrix \[1\] is singular; its info is 1"):
        linalg.lu_factor(plait.stack([plait.eye(2), plait.zeros(2, 2)]))
    assert linalg.lu_factor_ex(plait.zeros(2, 2)).info.item() == 1
    with pytest.raises(NotImplementedError, match="without exchanges"):
        linalg.lu(a, pivot=False)


def test_products_of_reflections_and_roots():
    a = plait.tensor(RNG.normal(size=(2, 4, 3)))
    v = np.tril(a.numpy(), -1) + np.eye(4, 3)
    tau = 2 / (v**2).sum(-2)
    q = linalg.householder_product(a, plait.tensor(tau)).numpy()
    want = np.eye(4)[None].repeat(2, 0)
    for i in range(3):
        want = want @ (np.eye(4) - tau[:, i, None, None] * v[:, :, i, None] @ v[:, None, :, i])
    assert np.allclose(q, want[..., :3])
    s = plait.tensor(want @ np.diag([1.0, 2.0, 3.0, 4.0]) @ want.swapaxes(1, 2))
    root = linalg.matrix_sqrth(s)
    assert np.allclose((root @ root).numpy(), s.numpy())
    with pytest.raises(ValueError, match="columns"):
        linalg.householder_product(plait.ones(2, 3), plait.ones(3))


def symmetric(shape, dtype, hermitian, hollow):
    x = RNG.normal(size=shape) + (1j * RNG.normal(size=shape) if dtype == plait.complex128 else 0)
    x = x + (x.conj() if hermitian else x).swapaxes(-1, -2)
    eye = np.eye(shape[-1])
    return plait.tensor(x * (1 - eye) if hollow else x + 4 * shape[-1] * eye, dtype=dtype)


@pytest.mark.parametrize("dtype", [plait.float64, plait.complex128])
@pytest.mark.parametrize("hermitian", [False, True])
@pytest.mark.parametrize(("n", "hollow"), [(3, False), (4, True), (30, False), (30, True)])
def test_ldl(dtype, hermitian, n, hollow):
    a = symmetric((2, 1, n, n), dtype, hermitian, hollow)
    b = plait.randn(3, n, 2, dtype=dtype)
    ld, pivots, info = linalg.ldl_factor_ex(a.tril(), hermitian=hermitian)  # the upper triangle is not read
    assert not info.any() and pivots.dtype == plait.int32 and (ld.triu(1) == 0).all()
    assert (pivots < 0).any() == hollow  # blocks of two where the diagonal is 0, none where it is large
    x = linalg.ldl_solve(ld, pivots, b, hermitian=hermitian)
    assert x.shape == (2, 3, n, 2) and np.allclose((a @ x).numpy(), b.numpy())
    b.requires_grad_()
    linalg.ldl_solve(ld, pivots, b, hermitian=hermitian).sum().abs().backward()
    assert np.allclose(b.grad.numpy(), plait.autograd.grad(linalg.solve(a, b).sum().abs(), b)[0].numpy())


def test_ldl_of_singular_and_empty_matrices():
    assert linalg.ldl_factor_ex(plait.zeros(2, 3, 3)).info.tolist() == [1, 1]
    with pytest.raises(linalg.LinAlgError, match=r"ldl_factor: matrix \[1\] is singular; its info is 2"):
        linalg.ldl_factor(plait.tensor([[[1.0, 0.0], [0.0, 2.0]], [[1.0, 1.0], [1.0, 1.0]]]))
    for shape in ((0, 0), (2, 0, 0), (0, 3, 3)):
        ld, pivots = linalg.ldl_factor(plait.zeros(shape))
        assert ld.shape == shape and pivots.shape == shape[:-1]
        assert linalg.ldl_solve(ld, pivots, plait.zeros(*shape[:-1], 2)).shape == (*shape[:-1], 2)
    ld, pivots = linalg.ldl_factor(plait.tensor([[0.0, 1.0], [1.0, 0.0]]))
    assert pivots.tolist() == [-2, -2]
    for wrong in ([-2, 7], [0, 1], [1, -2]):
        with pytest.raises(IndexError):
            linalg.ldl_solve(ld, plait.tensor(wrong, dtype=plait.int32), plait.ones(2, 1)).sum().item()
    x = plait.eye(2, requires_grad=True)
    with pytest.raises(NotImplementedError, match="no derivative"):
        linalg.ldl_factor(x).LD.sum().backward()


@pytest.mark.parametrize("dtype", [plait.float64, plait.complex128])
@pytest.mark.parametrize("shape", [(3, 3), (2, 5, 3), (2, 3, 5), (30, 12)])
def test_geqrf_and_its_reflections(dtype, shape):
    x = plait.randn(shape, dtype=dtype)
    a, tau = x.geqrf()
    k, m = tau.shape[-1], shape[-2]
    q, r = a[..., :k].orgqr(tau), a[..., :k, :].triu()
    assert np.allclose((q @ r).numpy(), x.numpy())
    assert np.allclose((q.mH @ q).numpy(), np.eye(k))
    assert np.allclose(q.numpy(), linalg.qr(x).Q.numpy())
    whole = plait.ormqr(a, tau, plait.eye(m, dtype=dtype).expand(*shape[:-1], m))
    assert np.allclose(whole[..., :k].numpy(), q.numpy())
    y = plait.randn(*shape[:-1], 4, dtype=dtype)
    assert np.allclose(a.ormqr(tau, y).numpy(), (whole @ y).numpy())
    assert np.allclose(a.ormqr(tau, y, transpose=True).numpy(), (whole.mH @ y).numpy())
    assert np.allclose(a.ormqr(tau, y.mH, left=False).numpy(), (y.mH @ whole).numpy())
    assert np.allclose(a.ormqr(tau, y.mH, False, True).numpy(), (y.mH @ whole.mH).numpy())
    with pytest.raises(ValueError, match="m rows"):
        plait.ormqr(a, tau, y[..., 1:, :])
    with pytest.raises(NotImplementedError, match="no derivative"):
        x.requires_grad_().geqrf().a.abs().sum().backward()


NONE = float("nan") * plait.ones(2, 2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: linalg.cholesky(-plait.eye(2)), "not positive definite"),
        (lambda: plait.cholesky(-plait.eye(2)), "not positive definite"),
        (lambda: linalg.inv(plait.zeros(2, 2)), "singular"),
        (lambda: plait.zeros(3, 2, 2).inverse(), "singular"),
        (lambda: linalg.solve(plait.ones(2, 2), plait.ones(2)), "singular"),
        (lambda: linalg.solve(plait.ones(2, 2), plait.ones(1, 2), left=False), "singular"),
        (lambda: linalg.matrix_power(plait.zeros(2, 2), -2), "singular"),
        (lambda: linalg.eigh(NONE), "convergence"),
        (lambda: linalg.svd(NONE), "convergence"),
    ],
)
def test_a_call_says_that_it_cannot(call, message):
    with pytest.raises(linalg.LinAlgError, match=message):
        call()
    assert plait.ones(2).sum().item() == 2, "and nothing is left to raise"


def test_growing_jitter_makes_a_matrix_definite():
    a = plait.ones(3, 3) - 1e-3 * plait.eye(3)
    for jitter in (0, 1e-5, 1e-2):
        try:
            factor = linalg.cholesky(a + jitter * plait.eye(3))
            break
        except RuntimeError:
            continue
    assert jitter == 1e-2
    assert plait.allclose(factor @ factor.T, a + 1e-2 * plait.eye(3), atol=1e-5)


def test_errors_of_others_stay_what_they_are():
    plait.ones(3)[plait.tensor([5])]
    with pytest.raises(IndexError, match="index 5"):
        linalg.cholesky(plait.eye(2))
    assert linalg.inv(plait.ones(2, 0, 0)).shape == (2, 0, 0)
    assert linalg.inv(plait.ones(2, 2, device="meta")).shape == (2, 2)


@pytest.mark.parametrize("shape", [(9, 5), (5, 9), (2, 3, 7, 7)])
def test_svd_lowrank(shape):
    plait.manual_seed(0)
    *batch, m, n = shape
    values = np.array([4.0, 2.0, 0.5])
    a = (
        np.linalg.qr(RNG.normal(size=(*batch, m, 3)))[0]
        * values
        @ np.swapaxes(np.linalg.qr(RNG.normal(size=(*batch, n, 3)))[0], -1, -2)
    )
    x = plait.tensor(a, requires_grad=True)
    u, s, v = plait.svd_lowrank(x, q=4)
    assert (u.shape, s.shape, v.shape) == ((*batch, m, 4), (*batch, 4), (*batch, n, 4))
    assert np.allclose((u * s.unsqueeze(-2) @ v.mT).detach().numpy(), a)
    assert np.allclose(s.detach().numpy(), [*values, 0.0])
    s[..., :3].sum().backward()  # of singular values it is U V^T
    found, wanted = x.grad.numpy(), (u[..., :3] @ v[..., :3].mT).detach().numpy()
    assert np.allclose(found, wanted)
    shift = plait.tensor(RNG.normal(size=n))
    assert np.allclose(plait.svd_lowrank(x.detach() + shift, 3, M=shift)[1].numpy(), values)


def test_svd_lowrank_of_a_decaying_spectrum_is_near():
    plait.manual_seed(0)
    a = RNG.normal(size=(40, 30)) @ np.diag(0.7 ** np.arange(30))
    exact = np.linalg.svd(a, compute_uv=False)
    for niter, near in ((0, 0.1), (2, 1e-3)):
        s = plait.svd_lowrank(plait.tensor(a), q=10, niter=niter)[1].numpy()
        assert np.abs(s[:5] / exact[:5] - 1).max() < near


def test_pca_lowrank():
    plait.manual_seed(0)
    a = RNG.normal(size=(20, 3)) @ RNG.normal(size=(3, 8)) + RNG.normal(size=8)
    u, s, v = plait.pca_lowrank(plait.tensor(a), q=3)
    centred = a - a.mean(0)
    assert np.allclose((u * s @ v.mT).numpy(), centred)
    assert np.allclose(s.numpy(), np.linalg.svd(centred, compute_uv=False)[:3])
    assert [t.shape for t in plait.svd_lowrank(plait.ones(3, 4))] == [(3, 3), (3,), (4, 3)]
    assert [t.shape for t in plait.pca_lowrank(plait.tensor(a))] == [(20, 6), (6,), (8, 6)]
    s = plait.pca_lowrank(plait.tensor(a), q=4, center=False)[1].numpy()
    assert np.allclose(s, np.linalg.svd(a, compute_uv=False)[:4])


def test_wrong_lowrank_arguments():
    x = plait.ones(3, 4)
    for call, text in (
        (lambda: plait.svd_lowrank(x, -1), "svd_lowrank: q must not be negative, got -1"),
        (lambda: plait.svd_lowrank(x, 2, -1), "svd_lowrank: niter must lie between 0 and 10000, got -1"),
        (lambda: plait.svd_lowrank(x, 2, 1 << 31), "svd_lowrank: niter must lie between 0 and 10000, got 2147483648"),
        (lambda: plait.pca_lowrank(x, 5), "pca_lowrank: q must lie between 0 and .*, 3, got 5"),
        (lambda: plait.pca_lowrank(x, -1), "pca_lowrank: q must lie between 0 and .*, 3, got -1"),
    ):
        with pytest.raises(ValueError, match=text):
            call()
